"""What the core asks of a method, and what all methods have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tacit.core.component import Component
from tacit.core.errors import ConfigError
from tacit.core.layout import Field, Layout
from tacit.core.marks import contribution
from tacit.core.party import Party
from tacit.core.shared import Shared

if TYPE_CHECKING:
    from tacit.core.coordinator import Coordinator
    from tacit.core.protection import Protection

BINS = 1000  # of the histograms of probabilities by which a federated evaluation finds the AUC


@dataclass(frozen=True)
class Method(Component):
    """Base of all methods.

    ``train(coordinator)`` says which sums are formed in which order; contributions and applies are pure
    functions, so that it does not matter who runs them where.
    """

    tasks: ClassVar[tuple[str, ...]] = ("classification", "regression")
    paper: ClassVar[str] = ""

    default_protection: ClassVar[str] = "plain"  # if a run names none
    default_settings: ClassVar[Mapping[str, Any]] = {}  # of that protection, where they differ from its own

    # Whether it bounds its sums by the lengths of the prepared columns, which the preparation then sums.
    needs_norms: ClassVar[bool] = True

    # A closed form gives the model of the pooled rows, whoever holds which of them: contract tests ask.
    closed_form: ClassVar[bool] = False

    # Whether clients contribute what follows from a model that is sent to them, round after round.
    learns_from_models: ClassVar[bool] = False

    @property
    def divides_rows(self) -> bool:
        """Whether sums over parts of each client's rows open by themselves."""
        return False

    # Names of the contributions that it forms where noise is added to sums; None: all of them.
    noisy_contributions: ClassVar[tuple[str, ...] | None] = None

    @property
    def budget_parts(self) -> int:
        """How many equal parts of a privacy budget :meth:`train` takes; by default one for each sum."""
        return self.sums

    @property
    def standing(self) -> tuple[str, str] | None:
        """Names of contribution and apply if it learns from one sum, which may grow and shrink later."""
        return None

    def fit(self, federation: Any, **settings: Any) -> Any:
        """Train on a federation and return the model; settings as in ``Federation.train``."""
        return federation.train(self, **settings).model

    def check(self, schema: Any) -> None:
        """Refuse a schema that this method cannot learn."""
        self.check_task(schema.task)

    def find_hopeless(self, schema: Any, clients: float, noise: float) -> str | None:
        """Return why nothing can be learnt from sums with noise, if that is known beforehand.

        ``clients`` bring at most 1 each, or any amount if single rows are hidden (infinite); ``noise`` is the
        deviation in a sum that takes one part of the budget.
        """
        return None

    def check_task(self, task: str) -> None:
        """Refuse a task that this method cannot learn."""
        if task not in self.tasks:
            raise ConfigError(f"{self.name} cannot learn {task}: it does {' and '.join(self.tasks)}")

    def incompatibility(self, protection: Protection) -> str | None:
        """Return why a protection makes no sense for this method, if so; asked before anything is sent."""
        return None

    def warnings_for(self, scaled: bool) -> Sequence[str]:
        """Return what is better known before a run begins; ``scaled``: sums agree on a scale first."""
        return ()

    @property
    def sums(self) -> int:
        """How many sums :meth:`train` forms, so that keys for all can be agreed at once."""
        return 1

    @property
    def round_sums(self) -> int:
        """How many of them at the most between two marks, for methods that have rounds."""
        return 1

    def finds_scale_itself(self, coordinator: Coordinator) -> bool:
        """Return whether :meth:`train` finds the scale in its own sums, so that none is agreed before it."""
        return False

    def init(self, schema: Any, rng: np.random.Generator) -> Mapping[str, Any]:
        """Return the shared values before the first sum."""
        return {}

    def continue_from(self, shared: Shared) -> Shared:
        """Return the shared values with which other clients continue a finished training."""
        return shared

    def view(self, shared: Shared) -> Mapping[str, Any]:
        """Return what the clients need of the shared values; all, unless a method says less."""
        return shared

    def fold(self, name: str, pieces: Sequence[Any]) -> Any:
        """Fold clear fields of several clients into one; added up, unless a method says otherwise."""
        return sum(pieces[1:], start=np.asarray(pieces[0]))

    def flaw(self, name: str, piece: Any, schema: Any) -> str | None:
        """Say what is wrong with a clear field of a client, if this method can tell."""
        return None

    def operator(self, clear: Mapping[str, Any]) -> Any:
        """Return the matrix, or one for each output, by which an unopened total is multiplied, or None."""
        return None

    def remarks(self, clear: Mapping[str, Any]) -> Sequence[str]:
        """Return what people should know of the folded clear fields, such as what a truncation left out."""
        return ()

    def train(self, coordinator: Coordinator) -> None:
        """Train the method: the coordinator's view of the paper."""
        raise TypeError(f"{type(self).__name__} must say how it trains")

    def model(self, shared: Shared) -> Any:
        """Make the model from the shared values."""
        raise TypeError(f"{type(self).__name__} must say what its model is")

    @classmethod
    def tiny(cls) -> Method:
        """Return a setting that learns in a moment, for contract tests."""
        return cls()

    def _evaluation_layout(self, schema: Any) -> Layout:
        if schema.task == "regression":
            names = ("squared", "absolute", "sum", "square")
            return Layout(Field("count", ()), *(Field(name, (schema.outputs,)) for name in names))
        n = schema.outputs
        return Layout(Field("confusion", (n, n)), Field("loss", ()), Field("histogram", (2, n, BINS)))

    @contribution(_evaluation_layout, family="holdout", revealed=True)
    def evaluation(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return the counts over the rows this party kept aside: its share of a federated evaluation."""
        counts: dict[str, Any] = self.model(shared).counts(party.holdout)
        return counts
