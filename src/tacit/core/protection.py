"""Protections: how a sum is formed without showing its terms. This is their interface.

Settings (:class:`Protection`) are known to all; what is done at the coordinator (:class:`CoordinatorHalf`)
and at a client (:class:`ClientHalf`) are classes of their own: a file shows on whose machine a line runs.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from tacit.core.component import Component
from tacit.core.fields import Kind
from tacit.core.layout import Layout
from tacit.core.marks import find_marked
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.promises import Opening, Promises

if TYPE_CHECKING:
    from tacit.core.link import Link
    from tacit.core.pending_sum import PendingSum

Vector = NDArray[np.float64]
Owner = TypeVar("Owner", bound=type)
NoiseUnit = Literal["client", "row"]
FINE = 2.0**-40  # of its bound: how exact a total of a fine field is, with any protection


def hands_on(part: str, *names: str) -> Callable[[Owner], Owner]:
    """Let a class hand these calls on to a part of it, which answers them just so."""

    def decorate(owner: Owner) -> Owner:
        for name in names:
            setattr(owner, name, lambda self, *given, name=name: getattr(getattr(self, part), name)(*given))
        return owner

    return decorate


@dataclass(frozen=True)
class Protection(Component):
    """Base of all protections: settings that coordinator and clients agree on, and what follows from them."""

    # A ring may have to start again without a client: then clients keep their vector until the next
    # sum, so that nobody computes a contribution twice.
    restarts: ClassVar[bool] = False

    # Whether contributions can be added to a total that stays unopened one by one, today and next year.
    # Where they cannot (masks, shares), a batch of clients is the unit, and keys are made for each.
    incremental: ClassVar[bool] = False

    # Whether asks and replies carry tags, under keys that enrolment has agreed on.
    authenticated: ClassVar[bool] = False

    # What others must know of it, so that nobody has to ask for its name.
    adds_noise: ClassVar[bool] = False  # totals are not exact, and every run spends a privacy budget
    shows_contributions: ClassVar[bool] = False  # the coordinator sees them as they are

    # What an exposure report must know of its messages: which sealed fields hold a key, and the words to
    # show for a field instead of its name.
    key_fields: ClassVar[Collection[str]] = ()
    field_names: ClassVar[Mapping[str, str]] = {}

    # Fields of asks that differ from client to client, where what a client gives is bound to all others.
    own_fields: ClassVar[Collection[str]] = ()

    # What the fields of its asks hold; checked before any of its steps.
    field_kinds: ClassVar[Mapping[str, Kind]] = {}

    if TYPE_CHECKING:

        @property
        def opens(self) -> Opening:
            """Where totals open: fixed by the protection, or one of its settings."""

    @property
    def noise_unit(self) -> NoiseUnit | None:
        """Whose presence noise hides in every total: a single row's or a client's; None without noise."""
        return None

    @property
    def rotates_keys(self) -> bool:
        """Whether a new key replaces the one before it during a run."""
        return False

    @property
    def services(self) -> tuple[str, ...]:
        """Parties without rows that this protection needs, such as a key server."""
        return ()

    @property
    def inner_protection(self) -> "Protection | None":
        """The protection that this one is around, if it is around one."""
        return None

    @property
    def promises(self) -> Promises:
        """What this protection promises with these settings."""
        raise TypeError(f"{type(self).__name__} must state its promises")

    def at_coordinator(self, link: "Link") -> "CoordinatorHalf":
        """Return what this protection does at the coordinator of a run."""
        raise TypeError(f"{type(self).__name__} must say what it does at the coordinator")

    def at_client(self, party: Party) -> "ClientHalf":
        """Return what this protection does at a client."""
        raise TypeError(f"{type(self).__name__} must say what it does at a client")

    def at_service(self, party: Party) -> "ClientHalf":
        """Return what this protection does at one of its ``services``."""
        raise TypeError(f"{type(self).__name__} has no services")

    @property
    def stands_at_sites(self) -> bool:
        """Whether sites can judge a standing total by themselves: they open it, and it proves its parts."""
        return self.incremental and self.opens == "clients"

    def proves(self, layout: Layout) -> bool:
        """Return whether clients that open such a total can check of whose contributions it is the sum."""
        return False

    def min_contributions(self, agreed: int) -> int:
        """Return the least number of contributions for a total to open: one alone hides nothing."""
        return max(agreed, 1 if self.promises.single else 2)

    def error(self, layout: Layout, contributions: int, total: Mapping[str, Any] | None = None) -> float:
        """Return the typical (root mean square) error of a total, without noise, as a share of its bound.

        The protected ``total`` itself tells how exact it is where the coordinator has multiplied it.
        """
        rounding = sqrt(contributions / 12) * max(self.promises.precision, np.finfo(np.float64).eps)
        # Values without a bound have digits of their own, finer than any share of a bound.
        return min(rounding, FINE) if layout.fine[np.isfinite(layout.bounds)].all() else rounding

    def incompatibility(self, method: Component) -> str | None:
        """Return why this protection cannot serve a method, if so; asked before anything is sent."""
        return None

    def warnings_for(self, clients: int, scaled: bool) -> Sequence[str]:
        """Return what to know before so many clients begin; ``scaled``: sums agree on a scale first."""
        return ()


class CoordinatorHalf:
    """What a protection does at the coordinator; its own state holds no secret: those are in the vault."""

    def __init__(self, link: "Link") -> None:
        self.link = link
        self.leader = ""  # the client that alone opens totals, where one does

    # -- enrolment: how coordinator and parties come to trust each other; plain has nothing to trust ---

    def greet(self) -> Mapping[str, Any]:
        """Return what rides on the first ask."""
        return {}

    def welcome(self, party: str, fields: Mapping[str, Any]) -> None:
        """Check what came back with a party's introduction."""

    def prepare(self, sums: int) -> None:
        """Agree on keys and shares for that many sums, in as few waves as possible."""

    def admit(self, names: Sequence[str]) -> None:
        """Give parties that come later the keys they need."""

    def gather(self, pending: "PendingSum") -> Mapping[str, Any]:
        """Form the protected total, folding contributions one by one."""
        raise TypeError(f"{type(self).__name__} must say how contributions are gathered")

    def multiply(
        self, pending: "PendingSum", total: Mapping[str, Any], operator: Callable[[], Any]
    ) -> Mapping[str, Any] | None:
        """Multiply an unopened total by the method's matrix: ``multiplied`` is in it; None if it cannot."""
        return None

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Open a protected total; only meaningful digits leave."""
        raise TypeError(f"{type(self).__name__} does not open totals at the coordinator")

    def measure_noise(self, total: Mapping[str, Any], layout: Layout, contributions: int) -> float:
        """Return the standard deviation of the noise in each value of a total that was opened."""
        return 0.0

    def discard_unused_keys(self) -> None:
        """Forget what was prepared for sums that never came: the run is over."""

    # -- budget: only of protections that add noise --------------------------------------------------

    def resume(self, sums: int) -> None:
        """Count that many of the prepared sums as spent: the run was stopped and goes on."""

    def spent(self) -> float:
        """Return the epsilon that the sums have cost so far; 0 where there is no noise."""
        return 0.0

    def left(self) -> int | None:
        """Return how many sums may still be formed, where there is a limit."""
        return None

    # -- totals that grow: only of protections that are ``incremental`` --------------------------------

    def accepted(self, pending: "PendingSum", summands: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Return good contributions one by one, made for a total of at most so many."""
        raise TypeError(f"{type(self).__name__} forms totals of whole batches only")

    def add(self, total: Mapping[str, Any] | None, more: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a protected total with a contribution, or another total, added to it."""
        raise TypeError(f"{type(self).__name__} forms totals of whole batches only")

    def snapshot(self) -> Mapping[str, Any]:
        """Return what has to be written down to go on in another process; nothing secret."""
        return {}

    def party_snapshot(self, party: str) -> Mapping[str, Any]:
        """Return the part of the snapshot that belongs to one party; nothing secret."""
        return {}

    def restore(self, kept: Mapping[str, Any], parties: Mapping[str, Mapping[str, Any]]) -> None:
        """Go on from what :meth:`snapshot` and, for each party, :meth:`party_snapshot` returned."""

    def same_keys(self, kept: Mapping[str, Any]) -> bool:
        """Return whether another coordinator's snapshot is of a federation with the same keys."""
        return True


class ClientHalf:
    """What a protection does at a client or a service; its state is in the party's state and vault."""

    def __init__(self, party: Party) -> None:
        self.party = party

    def introduce(self, greeting: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what goes back with the introduction."""
        return {}

    def carry_over(self, earlier: Party) -> None:
        """Take over what a client must not count anew from an earlier attempt at the same run."""

    def receive(self, ticket: Mapping[str, Any]) -> None:
        """Take a key that rides on an ask, before any total is opened."""

    def check_layout(self, contribution: str, layout: Layout) -> None:
        """Refuse a contribution that cannot be protected, before it is computed: a failure tells of rows."""

    def protect(self, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Return this client's vector in a form in which it may leave the site.

        The ticket has what the coordinator's half told, the ``sum``'s number, and as ``term`` what this is.
        """
        raise TypeError(f"{type(self).__name__} must say how a vector is protected")

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Open a protected total; if totals of this layout prove themselves, it has its ``claim``."""
        raise TypeError(f"{type(self).__name__} does not open totals at the clients")

    def measure_noise(self, total: Mapping[str, Any], layout: Layout, contributions: int) -> float:
        """Return the standard deviation of the noise in each value of a total that was opened."""
        return 0.0

    def conceal(self, digest: str) -> str:
        """Return what the coordinator is told in place of a replica's digest, the same by all clients."""
        return digest

    def discard_unused_keys(self) -> None:
        """Forget what was prepared for sums that never came: the run is over."""

    @property
    def step_owners(self) -> tuple[object, ...]:
        """Objects whose marked steps can be asked for: this half, and parts of it that have steps."""
        return (self,)

    def find_step(self, name: str) -> Callable[[Message], Message]:
        """Return the step of that name; nothing without a mark can be called from outside."""
        owner = next((one for one in self.step_owners if hasattr(type(one), name)), self)
        return find_marked(owner, name, "step")[0]


Opener = CoordinatorHalf | ClientHalf  # whichever opens totals
