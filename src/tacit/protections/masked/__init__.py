"""Masked sums: every upload is noise, and only the sum of those that arrived can be cleared of it.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning" (2017), on the sparse
graph of Bell et al., "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead" (2020). Client u
uploads, modulo a power of two,

    y_u = x_u + PRG(b_u) + Σ_{v > u} PRG(s_uv) - Σ_{v < u} PRG(s_uv)          over its neighbours v.

Two waves (``offer``, ``deal``) prepare any number of sums: every client shows a public key for each of them
and deals Shamir shares of the private keys and of the seeds b to its neighbours, sealed against the
coordinator with keys into which both clients' pinned identities and all that each showed have gone. After
the uploads one wave (``unmask``) collects shares of b_u for those that arrived and of the private key for
those that vanished: never both, or x_u lies open. What a client gives can be read only together with the
answers of t holders that were told of the same survivors, so that a coordinator which tells each another
tale reads nothing (``rules`` has the proof). Keys serve one sum, so that the key of a client that vanishes
in sum 9 says nothing of sums 1 to 8. Seeds s_uv are bound to the digest of what was asked: if
clients were told different models, their masks do not cancel and the total is noise.

The settings here are known to all; ``client`` runs at the clients, ``coordinator`` and ``keys`` at the
coordinator; ``rules``, ``confirming``, ``wire`` and ``neighbours`` hold what both need.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import ClassVar

from tacit.core.errors import ConfigError, ProtectionError
from tacit.core.fields import BLOB, BYTES, INTEGER, NAMES, Kind
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.party import Party
from tacit.core.promises import Place, Promises
from tacit.core.protection import Protection
from tacit.crypto.fixedpoint import FixedPoint
from tacit.crypto.neighbours import COMPLETE_BELOW, neighbours_for, security_bits_of
from tacit.protections.keys.authenticated import FIELD_KINDS, FIELD_NAMES
from tacit.protections.masked.client import MaskedClient
from tacit.protections.masked.coordinator import MaskedCoordinator
from tacit.protections.masked.rules import Rules
from tacit.protections.masked.wire import Encoding


@dataclass(frozen=True)
class Masked(Protection):
    """Masks that cancel in the sum: the coordinator sees noise, and the total of those that arrived.

    Parameters
    ----------
    bits : int
        Bits of a value in fixed point, its sign included. With up to 256 clients a value travels in
        5 bytes at 32 bits, in 4 at 24 (and in half the time), in 3 at 16.
    clip : bool
        Cut values at their bound instead of refusing them.
    neighbours : int or None
        With how many others a client masks, rounded up to an even number. None: with all others below 64
        clients; above that with as few, of the order of log n, as keep the promised probabilities.
    corrupt_share : float
        Share of the clients that may collude with the coordinator.
    dropout_share : float
        Share of the clients that may vanish during a sum.
    active : bool
        Withstand a coordinator that tells each client what it likes and has ``corrupt_share`` of the clients
        on its side: the threshold t rises until 2t exceeds all holders and the corrupt ones again. Without
        it a coordinator that lies must have no client on its side; more clients may vanish, and from 64
        clients on each needs fewer neighbours.

    Examples
    --------
    >>> Masked().sizing(10), Masked().sizing(1000), Masked(neighbours=5).sizing(1000)
    ((9, 6), (102, 72), (6, 5))
    >>> Masked(active=False).sizing(1000), Masked().rules(10).colluders
    ((36, 19), 1)
    """

    name = "masked"
    authenticated: ClassVar[bool] = True
    own_fields: ClassVar[Collection[str]] = ("ticket/partners", "ticket/dealt", "ticket/shares")
    field_names: ClassVar[Mapping[str, str]] = {
        **FIELD_NAMES,
        "members": FIELD_NAMES["names"],
        "confirms": "confirmations of who arrived",
    }
    field_kinds: ClassVar[Mapping[str, Kind]] = {
        **FIELD_KINDS,
        **dict.fromkeys(("first", "sums", "slot", "survivors"), INTEGER),
        **dict.fromkeys(("root", "offers", "proofs", "partners", "dealt", "alive"), BYTES),
        "members": NAMES,
        "shares": BLOB,
    }

    bits: int = 32
    clip: bool = False
    neighbours: int | None = None
    corrupt_share: float = 0.05
    dropout_share: float = 0.1
    active: bool = True

    def __post_init__(self) -> None:
        if not 8 <= self.bits <= 50:
            raise ConfigError(f"bits is {self.bits}: fixed point works with 8 to 50 bits a value")
        if self.neighbours is not None and self.neighbours < 2:
            raise ConfigError(f"neighbours is {self.neighbours}: at least two, or None for as many as needed")
        for name, share in (("corrupt_share", self.corrupt_share), ("dropout_share", self.dropout_share)):
            if not 0 <= share < 1:
                raise ConfigError(f"{name} is {share}: it is a part of all clients, from 0 to below 1")

    def at_coordinator(self, link: Link) -> MaskedCoordinator:
        """Return the coordinator half, which adds uploads and removes the masks from their sum."""
        return MaskedCoordinator(self, link)

    def at_client(self, party: Party) -> MaskedClient:
        """Return the client half, which agrees on masks with neighbours and adds them to vectors."""
        return MaskedClient(self, party)

    @property
    def opens(self) -> Place:
        """At the coordinator, which unmasks the total."""
        return "coordinator"

    @property
    def promises(self) -> Promises:
        """What is promised; thresholds follow from the number of clients (``sizing``)."""
        by_hand = (
            f"each client masks with {self.neighbours} others, a number set by hand: what that is worth "
            "depends on the number of clients and is told when keys are agreed; leave neighbours out"
        )
        return Promises(
            opens="coordinator",
            keys={
                "client": "a key and a seed of its own for each sum, and shares of its neighbours'",
                "coordinator": "no key but those of clients that vanished, each for the one sum they missed",
            },
            sees={
                "coordinator": "vectors of uniform noise, and the total",
                "client": "what is made of the total",
                "outsider": "nothing",
            },
            collusion=self._collusion,
            dropout="the sum goes on without clients that vanish at any step; if more than n - t of the n "
            "that hold shares of one client do before the upload, it starts again with fresh keys, down to "
            "the quorum; if as many do between upload and unmasking, it stays shut",
            precision=2.0 ** -(self.bits - 1),
            bytes_per_value=float(ceil((self.bits + 8) / 8)),
            warnings=() if self.neighbours is None else (by_hand,),
        )

    @property
    def _collusion(self) -> str:
        """Who opens more than the total."""
        if self.active:
            text = (
                "the coordinator with t of the n clients that hold shares of one client's secrets opens that "
                "client's vector, t being over half of them; if it also lies to clients, 2t - n suffice, "
                f"more than {self.corrupt_share:.0%}; with fewer it learns one total, whatever it tells them"
            )
        else:
            text = (
                "the coordinator with t of the n clients that hold shares of one client's secrets opens that "
                "client's vector, t being over half of them; if it also lies to clients, 2t - n suffice, "
                "which may be one: leave active on"
            )
        return text + ("" if self.neighbours is not None else f". F{self.sparse_graph_warning[1:]}")

    @property
    def sparse_graph_warning(self) -> str:
        """What it means that clients mask with some others only, and from how many clients on they do."""
        return (
            f"from {COMPLETE_BELOW} clients on each masks with some others only: if up to "
            f"{self.corrupt_share:.0%} collude with the coordinator and {self.dropout_share:.0%} vanish, "
            "somebody is exposed with a probability of at most 2^-40; but a coordinator that chooses who "
            "vanishes once it knows the graph can cut it into parts, and have a total of each (neighbours as "
            "large as the federation: none can)"
        )

    def rules(self, clients: int) -> Rules:
        """Return what each client insists on in a federation of so many."""
        return _find_rules(self, clients)

    def sizing(self, clients: int) -> tuple[int, int]:
        """Return each client's number of neighbours, and how many shares open its masks.

        The client and its neighbours hold one share each.
        """
        if clients < 2:
            raise ProtectionError(f"{self.name} protects nothing with a single client: have at least two")
        if self.neighbours is None and clients >= COMPLETE_BELOW:
            found = neighbours_for(clients, self.corrupt_share, self.dropout_share, active=self.active)
            return found.neighbours, found.threshold
        count = clients - 1
        if self.neighbours is not None:
            count = min(self.neighbours + self.neighbours % 2, count)
        holders = count + 1
        corrupt = ceil(self.corrupt_share * holders - 1e-9)
        threshold = (holders + corrupt) // 2 + 1 if self.active else max(holders // 2, corrupt) + 1
        return count, min(threshold, holders)

    def security_bits(self, clients: int) -> float:
        """Return b such that some client is exposed on a sparse graph with a probability of at most 2^-b.

        It is exposed if too many of its neighbours are corrupt, or if chance cuts it off from the others.
        """
        rules = self.rules(clients)
        most = rules.colluders if self.active else rules.threshold - 1
        shares = self.corrupt_share, self.dropout_share
        return security_bits_of(clients, rules.neighbours, most, *shares, active=self.active)

    def encoding(self, layout: Layout, clients: int) -> Encoding:
        """Return how vectors become words, with room for the sum of that many."""
        return Encoding(FixedPoint.of(layout, self.bits, clients, self.clip))


@lru_cache(maxsize=256)
def _find_rules(settings: Masked, clients: int) -> Rules:
    return Rules.of(clients, *settings.sizing(clients), settings.dropout_share)
