"""Masked sums: every upload is noise, and only the sum of those that arrived can be cleared of it.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning" (2017), on the sparse
graph of Bell et al., "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead" (2020).

Two waves (``offer``, ``deal``) prepare any number of sums. After the uploads (:mod:`tacit.crypto.masking` has
their equation, and what each key serves) one wave, ``unmask``, collects shares of the own mask of each client
that arrived, and of the key of each that vanished: never both, or its vector lies open. docs/masked.md
tells the protocol, ``rules`` has the proof.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil
from typing import ClassVar

from tacit.core.errors import ConfigError, ProtectionError
from tacit.core.fields import BLOB, BYTES, INTEGER, NAMES, Kind
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.party import Party
from tacit.core.promises import Place, Promises
from tacit.core.protection import ClientHalf, CoordinatorHalf, Protection
from tacit.crypto.fixedpoint import FixedPoint
from tacit.crypto.linear_tag import VALUE_BITS
from tacit.crypto.neighbours import COMPLETE_BELOW, Sizing, longest_arc, neighbours_for, security_bits_of
from tacit.crypto.pads import MOST_TOTALS
from tacit.protections.keys.proved_totals import PROVED, TAG
from tacit.protections.keys.shared_key import FIELD_KINDS, FIELD_NAMES, KEY_FIELDS, KeyTerms
from tacit.protections.masked.rules import Rules
from tacit.protections.masked.wire import Encoding

FINE_WORD, FINE_LEAST = 47, 42  # bits of a word that holds a fine value: about and at least 40 that count


@dataclass(frozen=True)
class Masked(Protection):
    """Masks that cancel in the sum: the coordinator sees noise, and the total of those that arrived.

    Parameters
    ----------
    opens : {"coordinator", "clients"}
        Who reads totals. At the clients they carry pads from a key that all clients share: the coordinator
        sees no total and no model, and with one client on its side totals only.
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
    >>> Masked().sizing(10), Masked().sizing(1000)
    (Sizing(neighbours=9, threshold=6), Sizing(neighbours=88, threshold=62))
    >>> Masked(active=False).sizing(1000), Masked().rules(10).colluders
    (Sizing(neighbours=34, threshold=18), 1)
    """

    name = "masked"
    authenticated: ClassVar[bool] = True
    key_fields: ClassVar[Collection[str]] = KEY_FIELDS
    own_fields: ClassVar[Collection[str]] = tuple(
        f"ticket/{name}"
        for name in ("partners", "dealt", "derived", "shares", "wrap", "maker", "exchange", "preshared")
    )
    field_names: ClassVar[Mapping[str, str]] = {
        **FIELD_NAMES,
        "masked": "vector",
        TAG: "tag",
        "deposits": "seeds of masks, under keys that it has of those that vanished",
        "padded": "the total, under pads",
        "members": FIELD_NAMES["names"],
        "confirms": "confirmations of who arrived",
    }
    field_kinds: ClassVar[Mapping[str, Kind]] = {
        **FIELD_KINDS,
        **dict.fromkeys(("first", "sums", "slot", "survivors"), INTEGER),
        **dict.fromkeys(("root", "offers", "proofs", "partners", "dealt", "derived", "alive", "call"), BYTES),
        **dict.fromkeys(("shares", "padded"), BLOB),
        "members": NAMES,
    }

    opens: Place = "coordinator"
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

    def at_coordinator(self, link: Link) -> CoordinatorHalf:
        from tacit.protections.masked.coordinator import MaskedCoordinator

        return MaskedCoordinator(self, link)

    def at_client(self, party: Party) -> ClientHalf:
        from tacit.protections.masked.client import MaskedClient

        return MaskedClient(self, party)

    @property
    def terms(self) -> KeyTerms:
        """The key from which pads follow, where totals open at the clients."""
        return KeyTerms(self.name, at_enrolment=True)

    def proves(self, layout: Layout) -> bool:
        return self.opens == "clients"

    @cached_property
    def promises(self) -> Promises:
        clients = self.opens == "clients"
        by_hand = (
            f"each client masks with {self.neighbours} others, a number set by hand: what that is worth "
            "depends on the number of clients and is told when keys are agreed; leave neighbours out"
        )
        return Promises(
            opens=self.opens,
            keys={
                "client": "a key and a seed of its own for each sum, and shares of its neighbours'"
                + ("; and the key of all clients, which opens totals and no contribution" if clients else ""),
                "coordinator": "no key but those of clients that vanished, each for the one sum they missed",
            },
            sees={
                "coordinator": "vectors of uniform noise, and "
                + ("totals under pads that it cannot take off" if clients else "the total"),
                "client": "the total, and what is made of it" if clients else "what is made of the total",
                "outsider": "nothing",
            },
            collusion=self._collusion,
            dropout="the sum goes on without clients that vanish at any step; if more than n - t of the n "
            "that hold shares of one client do before the upload, it starts again with fresh keys, down to "
            "the quorum; if as many do between upload and unmasking, it stays shut",
            precision=2.0 ** -(self.bits - 1),
            bytes_per_value=(self.bits + 11) / 8 if clients else float(ceil((self.bits + 8) / 8)),
            warnings=() if self.neighbours is None else (by_hand,),
            proof=PROVED if clients else "",
        )

    @property
    def _collusion(self) -> str:
        text = (
            "the coordinator with t of the n clients that hold shares of one client's secrets opens that "
            "client's vector, t being over half of them; if it also lies to clients, 2t - n suffice, "
        )
        if self.active:
            text += (
                f"more than {self.corrupt_share:.0%}; with fewer it learns one total of each attempt at a "
                "sum, whatever it tells them, over others than helped to open an earlier one"
            )
        else:
            text += "which may be one: leave active on"
        if self.opens == "clients":
            text = (
                "the coordinator with any one client learns the total, and no contribution, and can forge "
                f"totals, and so the model; {text}"
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

    def sizing(self, clients: int) -> Sizing:
        """Return each client's number of neighbours, and how many of their and its shares open its masks."""
        if clients < 2:
            raise ProtectionError(f"{self.name} protects nothing with a single client: have at least two")
        if self.neighbours is None and clients >= COMPLETE_BELOW:
            return neighbours_for(clients, self.corrupt_share, self.dropout_share, active=self.active)
        count = clients - 1
        if self.neighbours is not None:
            count = min(self.neighbours + self.neighbours % 2, count)
        holders = count + 1
        corrupt = ceil(self.corrupt_share * holders - 1e-9)
        threshold = (holders + corrupt) // 2 + 1 if self.active else max(holders // 2, corrupt) + 1
        return Sizing(count, min(threshold, holders))

    def security_bits(self, clients: int) -> float:
        """Return b such that a client is exposed on a sparse graph with a probability of at most 2^-b."""
        rules = self.rules(clients)
        most = rules.colluders if self.active else rules.threshold - 1
        shares = self.corrupt_share, self.dropout_share
        return security_bits_of(clients, rules.neighbours, most, *shares, active=self.active)

    def check_totals(self, clients: int) -> None:
        """Refuse to open totals at clients where pads might not hide as many as a coordinator can have."""
        rules = self.rules(clients)
        if self.opens == "coordinator" or rules.complete:
            return
        arc = longest_arc(rules.neighbours // 2, clients, self.dropout_share)
        if (most := rules.most_totals(clients, arc)) > MOST_TOTALS:
            raise ConfigError(
                f"a coordinator that lies could have {most} totals of a sum of {clients} clients with "
                f"{rules.neighbours} neighbours, pads hide {MOST_TOTALS}: leave active on and neighbours and "
                "dropout_share as they are, or let totals open at the coordinator"
            )

    def encoding(self, layout: Layout, clients: int) -> Encoding:
        """Return how vectors become words, with room for the sum of that many."""
        padded = self.opens == "clients"
        shift = clients.bit_length() - 1 if padded and self.rules(clients).complete else 0
        if padded and layout.largest_whole is not None:
            return Encoding(FixedPoint.whole(layout, clients), shift, packed=True)
        code = FixedPoint.of(layout, self.bits, clients, self.clip, tight=True)
        room = min(64 - shift, VALUE_BITS + 1) - code.guard_bits
        if layout.fine.any() and self.bits < FINE_WORD and room >= FINE_LEAST:
            # One long word is shorter than two digits of a fine value, and needs half of the masks.
            code = FixedPoint(layout.bounds, min(FINE_WORD, room), clients, self.clip)
        if padded and code.bits > room:
            raise ConfigError(
                f"bits is {self.bits}: pads and {clients:,} summands leave {room} of a word: use fewer"
            )
        return Encoding(code, shift, packed=padded)


@lru_cache(maxsize=256)
def _find_rules(settings: Masked, clients: int) -> Rules:
    return Rules.of(clients, *settings.sizing(clients), settings.dropout_share)
