"""Masked sums: every upload is noise, and only the sum of those that arrived can be cleared of it.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning" (2017), on the sparse
graph of Bell et al., "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead" (2020). Client u
uploads, modulo a power of two,

    y_u = x_u + PRG(b_u) + Σ_{v > u} PRG(s_uv) - Σ_{v < u} PRG(s_uv)          over its neighbours v.

Two waves (``offer``, ``deal``) prepare any number of sums: every client shows a public key for each of them
and deals Shamir shares of the private keys and of the seeds b to its neighbours, sealed against the
coordinator with keys into which both clients' pinned identities and all that each showed have gone. After
the uploads one wave (``unmask``) collects shares of b_u for those that arrived and of the private key for
those that vanished: never both, or x_u lies open. Keys serve one sum, so that the key of a client that
vanishes in sum 9 says nothing of sums 1 to 8. Seeds s_uv are bound to the digest of what was asked: if
clients were told different models, their masks do not cancel and the total is noise.

The settings here are known to all; ``client`` runs at the clients, ``coordinator`` and ``keys`` at the
coordinator; ``wire`` and ``neighbours`` hold what both need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, comb, inf, log2
from typing import ClassVar

from tacit.core.errors import ConfigError, ProtectionError
from tacit.core.fields import BLOB, BYTES, INTEGER, NAMES, Kind
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.party import Party
from tacit.core.promises import Place, Promises
from tacit.core.protection import Protection
from tacit.crypto.fixedpoint import FixedPoint
from tacit.crypto.neighbours import COMPLETE_BELOW, neighbours_for
from tacit.protections.keys.authenticated import FIELD_KINDS, FIELD_NAMES
from tacit.protections.masked.client import MaskedClient
from tacit.protections.masked.coordinator import MaskedCoordinator
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
        Withstand a coordinator that tells one client that a neighbour arrived and another that it
        vanished: the threshold t rises until 2t exceeds all holders and the corrupt ones again, so that
        both kinds of shares never come together. Fewer clients may vanish then.

    Examples
    --------
    >>> Masked().sizing(10), Masked().sizing(1000), Masked(neighbours=5).sizing(1000)
    ((9, 6), (46, 27), (6, 4))
    """

    name = "masked"
    authenticated: ClassVar[bool] = True
    field_names: ClassVar[Mapping[str, str]] = FIELD_NAMES
    field_kinds: ClassVar[Mapping[str, Kind]] = {
        **FIELD_KINDS,
        **dict.fromkeys(("first", "sums", "slot", "survivors"), INTEGER),
        **dict.fromkeys(("root", "offers", "proofs", "partners", "dealt", "alive", "list"), BYTES),
        "members": NAMES,
        "shares": BLOB,
    }

    bits: int = 32
    clip: bool = False
    neighbours: int | None = None
    corrupt_share: float = 0.1
    dropout_share: float = 0.1
    active: bool = False

    def __post_init__(self) -> None:
        if not 8 <= self.bits <= 50:
            raise ConfigError(f"bits is {self.bits}: fixed point works with 8 to 50 bits a value")
        if self.neighbours is not None and self.neighbours < 2:
            raise ConfigError(f"neighbours is {self.neighbours}: at least two, or None for as many as needed")
        for name, share in (("corrupt_share", self.corrupt_share), ("dropout_share", self.dropout_share)):
            if not 0 <= share < 1:
                raise ConfigError(f"{name} is {share}: it is a part of all clients, from 0 to below 1")

    def at_coordinator(self, link: Link) -> MaskedCoordinator:
        """Add uploads, and remove the masks from their sum."""
        return MaskedCoordinator(self, link)

    def at_client(self, party: Party) -> MaskedClient:
        """Agree on masks with neighbours, and add them to vectors."""
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
            collusion="the coordinator with t of the clients that hold shares of one client's secrets open "
            "that client's vector, t being over half of them; with fewer it learns nothing"
            + (
                ", also if it lies about who vanished"
                if self.active
                else ". If it lies about who vanished, 2t - holders of them suffice: active=True mends that"
            )
            + ("" if self.neighbours is not None else f". F{self.sparse_graph_warning[1:]}"),
            dropout="the sum goes on without clients that vanish at any step; if more than half around one "
            "client do before the upload, it starts again with fresh keys, down to the quorum; if as many do "
            "between upload and unmasking, it stays shut",
            precision=2.0 ** -(self.bits - 1),
            bytes_per_value=float(ceil((self.bits + 8) / 8)),
            warnings=() if self.neighbours is None else (by_hand,),
        )

    @property
    def sparse_graph_warning(self) -> str:
        """What it means that clients mask with some others only, and from how many clients on they do."""
        return (
            f"from {COMPLETE_BELOW} clients on each masks with some others only: if up to "
            f"{self.corrupt_share:.0%} collude with the coordinator and {self.dropout_share:.0%} vanish, "
            "somebody is exposed with a probability of at most 2^-40; but a coordinator that chooses who "
            "vanishes once it knows the graph can cut it (neighbours as large as the federation: none can)"
        )

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

        It is exposed if too many of its neighbours are corrupt, or if it is cut off from the others.
        """
        count, threshold = self.sizing(clients)
        if self.neighbours is None:
            shares = self.corrupt_share, self.dropout_share
            return neighbours_for(clients, *shares, active=self.active).security_bits
        corrupt = ceil(self.corrupt_share * clients - 1e-9)
        held = range(threshold, count + 1)
        bad = clients * sum(comb(corrupt, x) * comb(clients - 1 - corrupt, count - x) for x in held)
        # Set by hand, the circle may also fall apart: two stretches of count/2 that are corrupt or missing.
        gone = min(corrupt + ceil(self.dropout_share * clients - 1e-9), clients)
        apart = clients * (clients - count - 1) * comb(gone, count) / (2 * comb(clients, count))
        probability = bad / comb(clients - 1, count) + apart
        return max(-log2(probability), 0.0) if probability else inf

    def encoding(self, layout: Layout, clients: int) -> Encoding:
        """Return how vectors become words, with room for the sum of that many."""
        return Encoding(FixedPoint.of(layout, self.bits, clients, self.clip))
