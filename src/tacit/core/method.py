"""What the core asks of a method, and what all methods have in common."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from tacit.core.component import Component
from tacit.core.errors import ConfigError, OpeningError
from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.core.party import Party
from tacit.core.shared import Shared, Total

if TYPE_CHECKING:
    from tacit.core.coordinator import Coordinator
    from tacit.core.protection import Protection

CLASS_WEIGHTS = "class_weights"  # name of a shared value
BINS = 200  # of the histograms of probabilities by which a federated evaluation finds areas under curves
MOST_ASIDE = 2.0**30  # rows that one client may keep aside: by it, their counts have a bound
SITE_BINS = 50  # of the histogram of the sites' own scores, from 0 to 1
NAMED = "score named"  # in a party's state: its own score was told in this run
# Authors, title and year, as the docstring of a method's module cites its paper.
CITATION = re.compile(r'^((?:\S+\. )+[^"]+), "([^"]+)",[^"]*?\b(\d{4})\b', re.MULTILINE)
SITE_ROWS = 10  # with fewer rows kept aside, a site's score tells of single rows, and is not counted


@dataclass(frozen=True)
class Method(Component):
    """Base of all methods: ``train`` says which sums are formed in which order, the rest are pure functions.

    Parameters
    ----------
    class_weight : {"balanced"}, optional
        With "balanced", rows count so that all classes weigh the same, by their numbers in the whole
        federation: one more protected sum.
    """

    class_weight: Literal["balanced"] | None = field(default=None, kw_only=True)

    weighs_classes: ClassVar[bool] = False  # whether :meth:`train` makes use of :meth:`weigh_rows`
    small: ClassVar[Mapping[str, Any]] = {}  # settings with which it learns in a moment, for contract tests
    tasks: ClassVar[tuple[str, ...]] = ("classification", "regression")
    paper: ClassVar[str] = ""  # as the docstring of its module cites it, unless the class says otherwise
    # What it shows by its nature, whatever protects its sums, in words by who sees it: "coordinator",
    # "client", or a service.
    reveals: ClassVar[Mapping[str, str]] = {}
    services: ClassVar[tuple[str, ...]] = ()  # parties without rows that it needs, beside a protection's own
    default_protection: ClassVar[str] = "plain"  # if a run names none
    default_settings: ClassVar[Mapping[str, Any]] = {}  # of that protection, where they differ from its own
    # Whether it bounds its sums by the lengths of the prepared columns, which the preparation then sums.
    needs_norms: ClassVar[bool] = True
    # Whether it learns from numbers as the preparation scales them, rather than from their order.
    needs_scale: ClassVar[bool] = True
    # A closed form gives the model of the pooled rows, whoever holds which of them: contract tests ask.
    closed_form: ClassVar[bool] = False
    has_model_by_round: ClassVar[bool] = True  # whether it can be scored after each round, or only at the end
    # Whether clients contribute what follows from a model that is sent to them, round after round.
    learns_from_models: ClassVar[bool] = False
    # Names of the contributions that it forms where noise is added to sums; None: all of them.
    noisy_contributions: ClassVar[tuple[str, ...] | None] = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cited = CITATION.search(getattr(sys.modules.get(cls.__module__), "__doc__", None) or "")
        if cited and "paper" not in cls.__dict__:
            *others, last = (re.sub(r"(\S+\. )+", "", author) for author in re.split(r",\s", cited[1]))
            authors = f"{', '.join(others)} and {last}" if others else last
            cls.paper = " ".join(f"{authors}, {cited[2]}, {cited[3]}".split())

    @property
    def divides_rows(self) -> bool:
        """Whether sums over parts of each client's rows open by themselves."""
        return False

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
        if self.class_weight and not (self.weighs_classes and task == "classification"):
            why = f"{self.name} does not weigh them" if task == "classification" else "a regression has none"
            raise ConfigError(f"class_weight = '{self.class_weight}' is for classes, and {why}: leave it out")

    def incompatibility(self, protection: "Protection") -> str | None:
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

    @property
    def counts_classes(self) -> bool:
        """Whether class counts are summed."""
        return self.class_weight is not None

    def agreements(self, schema: Any, protection: "Protection") -> dict[str, tuple[Any, Any]]:
        """Return what is summed before :meth:`train`, by the name of a shared value that follows from it."""
        return {CLASS_WEIGHTS: (self.class_counts, self.balance_classes)} if self.class_weight else {}

    def finds_scale_itself(self, coordinator: "Coordinator") -> bool:
        """Return whether :meth:`train` finds the scale in its own sums, so that none is agreed before it."""
        return False

    def init(self, schema: Any, rng: np.random.Generator) -> Mapping[str, Any]:
        """Return the shared values before the first sum."""
        return {}

    def continue_from(self, shared: Shared) -> Shared:
        """Return the shared values with which other clients continue a finished training."""
        if self.class_weight and "weights" in shared and CLASS_WEIGHTS not in shared:
            raise ConfigError("the training that is continued had no class_weight: leave it out here as well")
        return shared

    def view(self, shared: Shared) -> Mapping[str, Any]:
        """Return what the clients need of the shared values; all, unless a method says less."""
        return shared

    def release(self, shared: Shared) -> Mapping[str, Any]:
        """Return what a leader, who alone opens totals, tells of the shared values: what clients need."""
        return self.view(shared)

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

    def train(self, coordinator: "Coordinator") -> None:
        """Train the method: the coordinator's view of the paper."""
        raise TypeError(f"{type(self).__name__} must say how it trains")

    def model(self, shared: Shared) -> Any:
        """Make the model from the shared values."""
        raise TypeError(f"{type(self).__name__} must say what its model is")

    def model_at(self, party: Party, shared: Shared) -> Any:
        """Make the model that a party uses itself: that of all, unless it keeps a part of its own."""
        return self.model(shared)

    @classmethod
    def tiny(cls) -> Self:
        """Return a setting that learns in a moment, for contract tests."""
        return cls.from_config(cls.small)

    @contribution(lambda self, schema: Layout(Field("counts", (schema.outputs,))))
    def class_counts(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return how many rows of each class this party has, if it was agreed that they are counted."""
        if not self.counts_classes:
            raise OpeningError(f"no class_weight was agreed: {party.id} does not count its classes")
        counts = np.bincount(shared.schema.labels(party.data), minlength=shared.schema.outputs)
        return {"counts": counts.astype(np.float64)}

    @apply
    def balance_classes(self, total: Total, shared: Shared) -> Shared:
        """Set the weight of a row of each class, as scikit-learn does: rows over classes over its count."""
        counts = np.rint(np.asarray(total["counts"]))
        there = counts > 0
        weights = np.where(there, counts.sum() / (there.sum() * np.where(there, counts, 1.0)), 0.0)
        return shared | {CLASS_WEIGHTS: weights}

    def weigh_rows(self, table: Any, shared: Shared) -> NDArray[np.float64] | None:
        """Return how much each row of a table counts; None if all count the same."""
        weights: NDArray[np.float64] | None = shared.get(CLASS_WEIGHTS) if self.counts_classes else None
        return None if weights is None else weights[shared.schema.labels(table)]

    def _evaluation_layout(self, schema: Any) -> Layout:
        n, sites = schema.outputs, Field("sites", (SITE_BINS,), bound=1.0)
        if schema.task == "regression":
            sums = [Field(name, (n,)) for name in ("squared", "absolute", "sum", "square")]
            return Layout(Field("count", ()), *sums, sites)
        return Layout(
            Field("confusion", (n, n), bound=MOST_ASIDE, fine=True),
            Field("loss", ()),
            Field("brier", ()),
            Field("histogram", (2, n, BINS), bound=MOST_ASIDE, fine=True),
            sites,
        )

    @contribution(_evaluation_layout, family="holdout", revealed=True)
    def evaluation(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return the counts over the rows this party kept aside: its share of a federated evaluation."""
        counts: dict[str, Any] = self.model_at(party, shared).counts(party.holdout)
        sites = np.zeros(SITE_BINS)
        name, rows, score = _own_score(counts)
        if rows >= SITE_ROWS:
            sites[int(np.clip(score, 0, 1 - 1e-9) * SITE_BINS)] = 1.0
            if party.names_score and not party.state.get(NAMED):  # of one model only, whichever are sent
                party.state[NAMED] = True
                party.note(f"{name} {score:.4f} on {rows:.0f} rows that it keeps aside")
        return counts | {"sites": sites}


def _own_score(counts: Mapping[str, Any]) -> tuple[str, float, float]:
    if "confusion" in counts:
        rows = float(np.sum(counts["confusion"]))
        return "accuracy", rows, float(np.trace(counts["confusion"])) / max(rows, 1.0)
    rows = float(counts["count"])
    variation = np.asarray(counts["square"]) - np.asarray(counts["sum"]) ** 2 / max(rows, 1.0)
    left = np.asarray(counts["squared"]) / np.where(variation > 0, variation, np.inf)
    return "R²", rows, float(np.mean(1.0 - left))
