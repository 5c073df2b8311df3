"""What peer-to-peer and Two-Phase MPC can both be set to, and what follows from it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tacit.core.fields import BLOB, FLAG, INTEGER, INTEGERS, NAMES, ROWS, TEXT, Kind
from tacit.core.layout import Layout
from tacit.core.promises import Place, Promises
from tacit.core.protection import Protection
from tacit.crypto.fixedpoint import FixedPoint
from tacit.protections.keys.proved_totals import PROVED, check_room
from tacit.protections.keys.shared_key import FIELD_KINDS, FIELD_NAMES, KEY_FIELDS, KeyTerms
from tacit.protections.secret_sharing.share_round import Scheme

NO_DROPOUT = "additive shares: the sum needs every holder of shares; with scheme = shamir some may vanish"


@dataclass(frozen=True)
class SecretSharing(Protection):
    """Base of the settings of protections by secret sharing.

    Parameters
    ----------
    opens : {"clients", "coordinator"}
        Where partial sums are put together.
    bits : int
        Bits of a value in fixed point, its sign included.
    clip : bool
        Cut values at their bound instead of refusing them.
    """

    restarts: ClassVar[bool] = True
    authenticated: ClassVar[bool] = True
    key_fields: ClassVar[Collection[str]] = KEY_FIELDS
    field_names: ClassVar[Mapping[str, str]] = FIELD_NAMES
    field_kinds: ClassVar[Mapping[str, Kind]] = {
        **FIELD_KINDS,
        **dict.fromkeys(("lap", "slots", "draw", "number", "contributions", "threshold"), INTEGER),
        **dict.fromkeys(("holders", "dealers"), NAMES),
        **dict.fromkeys(("commitments", "nonces", "tallies"), ROWS),
        **dict.fromkeys(("shares", "partials", "votes"), BLOB),
        "last": FLAG,
        "mark": TEXT,
        "points": INTEGERS,
        "total/holders": INTEGER,
    }

    scheme: Scheme = "shamir"
    opens: Place = "clients"
    bits: int = 32
    clip: bool = False

    @property
    def terms(self) -> KeyTerms:
        """The key under which partial sums go to all clients, where totals open there."""
        return KeyTerms(self.name)

    @property
    def announces(self) -> bool:
        """Whether one holder puts the partial sums together and tells the total, instead of every client."""
        return False

    def code(self, layout: Layout, summands: int) -> FixedPoint:
        """Return how vectors become integers: in the field, or in 64 bits."""
        code = FixedPoint.of(layout, self.bits, summands, self.clip)
        if self.scheme == "shamir" or self.proves(layout):
            check_room(self.bits, code.guard_bits, summands)
        return code

    def words(self, layout: Layout, summands: int) -> int:
        """Return how many words are shared: those of the values, and that of their tag."""
        return self.code(layout, summands).slots + 1

    def proves(self, layout: Layout) -> bool:
        return self.opens == "clients"

    def min_holders(self, holders: int) -> int:
        """Return how many of so many holders of shares open a total."""
        raise TypeError(f"{type(self).__name__} must say how many holders open a total")

    def promise(self, client_sees: str, **own: Any) -> Promises:
        """Return promises: those of who holds shares, which are given, and all that does not depend on it."""
        here = self.opens == "clients"
        return Promises(
            opens=self.opens,
            keys={
                "client": "an exchange key of its own" + (", and the key of all clients" if here else ""),
                "coordinator": "none of either",
            },
            sees={
                "coordinator": "sealed shares"
                + (" and sealed partial sums it cannot read" if here else " it cannot read, and the total"),
                "client": client_sees,
                "outsider": "nothing",
            },
            precision=2.0 ** -(self.bits - 1),
            warnings=() if self.scheme == "shamir" else (NO_DROPOUT,),
            proof=PROVED if here else "",
            **own,
        )
