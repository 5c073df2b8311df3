"""What the core asks of a method and of a preparation, which live in rooms above it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.shared import Shared

if TYPE_CHECKING:
    from tacit.core.coordinator import Coordinator
    from tacit.core.protection import Protection


class Described(Protocol):
    """A component as the manifest describes it."""

    @classmethod
    def registered_name(cls) -> str:
        """Return the name under which a party finds the class."""

    def config(self) -> dict[str, Any]:
        """Return the settings as plain values."""

    def carry_over(self, party: Party, earlier: Party) -> None:
        """Take over what a client must not count anew from an earlier attempt at the same run."""

    @property
    def own_epsilon(self) -> float:
        """Epsilon that a run costs at most by noise that clients add themselves; infinite without such."""


class LearningMethod(Described, Protocol):
    """What is learnt from sums: see :class:`tacit.methods.base.Method`."""

    name: ClassVar[str]
    needs_norms: ClassVar[bool]
    learns_from_models: ClassVar[bool]

    @property
    def sums(self) -> int:
        """How many sums :meth:`train` forms."""

    @property
    def round_sums(self) -> int:
        """How many of them at the most between two marks."""

    @property
    def divides_rows(self) -> bool:
        """Whether sums over parts of each client's rows open by themselves."""

    @property
    def standing(self) -> tuple[str, str] | None:
        """Names of the contribution and the apply by which it learns from one sum, if it does."""

    @property
    def evaluation(self) -> Callable[..., Any]:
        """Contribution of counts over the rows that a party kept aside."""

    def check(self, schema: Any) -> None:
        """Refuse a task that cannot be learnt."""

    def train(self, coordinator: Coordinator) -> None:
        """Train the method: form its sums and apply their totals."""

    def model(self, shared: Shared) -> Any:
        """Return the model."""

    def incompatibility(self, protection: Any) -> str | None:
        """Return why a protection makes no sense for this method, if so."""

    def check_task(self, task: str) -> None:
        """Refuse a task that this method cannot learn."""

    def continue_from(self, shared: Shared) -> Shared:
        """Return shared values of a finished training, as other clients go on from them."""

    def finds_scale_itself(self, coordinator: Coordinator) -> bool:
        """Return whether :meth:`train` finds the scale in its own sums."""

    def init(self, schema: Any, rng: np.random.Generator) -> Mapping[str, Any]:
        """Return the shared values before the first sum."""

    def view(self, shared: Shared) -> Mapping[str, Any]:
        """Return what of the shared values the clients need."""

    def fold(self, name: str, pieces: Sequence[Any]) -> Any:
        """Fold clear fields of several clients into one."""

    def flaw(self, name: str, piece: Any, schema: Any) -> str | None:
        """Return what is wrong with a clear field of a client, if anything is."""

    def operator(self, clear: Mapping[str, Any]) -> Any:
        """Return the matrix by which a total of columns is to be multiplied, unopened."""

    def remarks(self, clear: Mapping[str, Any]) -> Sequence[str]:
        """Return what people should know of the folded clear fields."""


class Agreement(Protocol):
    """Introductions of parties, from which the schema follows."""

    def add(self, party: str, introduction: Mapping[str, Any]) -> None:
        """Take an introduction into account, or refuse it."""

    def hold(self, schema: Any) -> None:
        """Accept only introductions that fit a schema that was agreed before."""

    def outvoted(self) -> Mapping[str, str]:
        """Return the parties that differ from most, with what differs."""

    def make_schema(self, *, without: Collection[str] = ()) -> Any:
        """Return the schema that all introductions, but for those of some, agree on."""


class DataPreparation(Described, Protocol):
    """How the federation agrees on schema and scale: see :class:`tacit.data.preparation.Preparation`."""

    counts: ClassVar[str]  # name of the contribution by which small cells are counted, before any other

    @property
    def scale(self) -> str:
        """How features are scaled."""

    @property
    def missing(self) -> str:
        """How missing values are treated."""

    @property
    def sums(self) -> int:
        """How many sums :meth:`train` forms."""

    def is_needless_for(self, method: Any) -> bool:
        """Return whether nothing has to be agreed for a method."""

    def check_clients(self, protection: Protection, clients: int) -> None:
        """Refuse a scale that would show single ones of so few clients."""

    def count_cells(
        self, coordinator: Coordinator, parties: Sequence[str] | None = None, *, continued: bool = False
    ) -> tuple[str, ...]:
        """Count the rows of every class and category; return the parties that took part."""

    def train(self, coordinator: Coordinator) -> tuple[str, ...]:
        """Agree on scale and fill values; return the parties that took part."""

    def introduce(self, party: Party, declared: Mapping[str, Any]) -> Message:
        """Check a party's rows and describe them."""

    def agreement(self, declared: Mapping[str, Any]) -> Agreement:
        """Start collecting introductions."""

    def read_schema(self, message: Message) -> Any:
        """Read the agreed schema."""
