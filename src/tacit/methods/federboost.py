"""FederBoost: gradient-boosted trees from histograms that no client shows.

Z. Tian, R. Zhang, X. Hou, L. Lyu, T. Zhang, J. Liu, K. Ren, "FederBoost: Private Federated Learning for GBDT",
IEEE Transactions on Dependable and Secure Computing, 2023: its horizontal part. With the paper's symbols:

    g_i, h_i   first and second derivative of the loss in the margin of row i
    q          buckets of a feature (``buckets``)
    G, H       sums of g_i and h_i over the rows of a node, or of one bucket in it
    λ, γ       penalties of a leaf's weight, and of a split (``lam``, ``gamma``)
    η          shrinkage (``rate``)

Clients agree on the buckets by sums of counts (:mod:`tacit.methods.boosting.cuts`). Then, for each tree level
by level, they sum G and H of every bucket of every node; whoever opens the totals finds the splits (eq. 3:
:mod:`tacit.methods.boosting.splits`), and all learn them. Of two children only the one of less weight is
summed: the other is what its parent has left. Each g_i and h_i is a whole number (of a unit that all know)
before it is summed, so that trees are the same whoever holds which rows, those of all rows in one place too.

A parent's histogram over some clients less its children's over others would show who left. So histograms
belong to the family of all sums over rows, and trees whose clients changed on the way start again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Literal, Self

import numpy as np

from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError, DifferencingError
from tacit.core.events import Noted
from tacit.core.fields import add_prefix, strip_prefix
from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.core.party import Party
from tacit.core.protection import Protection
from tacit.core.random import generator
from tacit.core.settings_group import check_rules
from tacit.core.shared import Shared, Total
from tacit.data.inputs import Inputs
from tacit.data.schema import Schema
from tacit.methods.averaging import rounds
from tacit.methods.averaging.rounds import HoldOutMonitor, Stopping
from tacit.methods.base import Method
from tacit.methods.boosting import cuts, growing, losses
from tacit.methods.boosting.cuts import Buckets
from tacit.methods.boosting.growing import Grower
from tacit.methods.boosting.rows import PartyRows, catch_up
from tacit.methods.boosting.splits import Rules
from tacit.models.trees import BoostedTrees

TREE, CUT = (
    "tree/",
    "cut/",
)  # prefixes of shared values: the trees that grow, the intervals that become buckets
HIDDEN = tuple(TREE + name for name in ("parent_sums", "waiting", "waiting_sums", "lower", "upper", "depth"))
MOST_DEPTH, MOST_LEAVES = 12, 1024
POISSON_STEP = 0.7  # largest weight of a leaf, as XGBoost has it: exp of a larger one runs away
CACHED = "federboost"


@dataclass(frozen=True)
class FederBoost(Method):
    """Gradient-boosted trees, the same as of all rows in one place (Tian et al., 2023).

    Parameters
    ----------
    trees : int
        Rounds of boosting; in each a tree grows for every class (two have one), or every target.
    depth : int
        Levels of splits, where trees grow level by level.
    grow : {"level", "leaf"}
        Split all nodes of a level at once, in one sum; or always the leaf that gains most, one sum for each.
    leaves : int
        Leaves of a tree, where it grows leaf by leaf.
    rate : float
        Shrinkage: what of a leaf's weight counts.
    buckets : int
        Of a column of numbers, that of missing values among them: 2 to 256. A category has one each.
    lam : float
        Penalty of squared weights.
    gamma : float
        What a split has to gain, in XGBoost's units: twice those of the paper.
    min_child_weight : float
        Least sum of second derivatives in a leaf. It is raised to what ``min_count`` rows have, if that is
        more and the loss tells.
    samples : float
        Share of its rows that a client draws for each round, by randomness of its own.
    columns : float
        Share of the columns that are drawn for each round, by the public seed.
    loss : {"auto", "logistic", "softmax", "squared", "poisson"}
        Auto: logistic for two classes, softmax for more, squared for regression.
    increasing, decreasing : tuple of str
        Columns with which predictions may only rise, or only fall.
    patience : int
        Stop after so many rounds without a lower loss on the clients' hold-outs, and drop their trees; 0 for
        never.

    Examples
    --------
    >>> import tacit
    >>> federation = tacit.Federation.embedded("breast-cancer", clients=5)
    >>> model = FederBoost(trees=10, depth=3).fit(federation)
    >>> model.score(federation.test.values, federation.test.target) > 0.9
    True
    """

    name = "federboost"
    paper = "Tian, Zhang, Hou, Lyu, Zhang, Liu and Ren, FederBoost: Private Federated Learning for GBDT, 2023"
    needs_norms: ClassVar[bool] = False
    needs_scale: ClassVar[bool] = False
    weighs_classes: ClassVar[bool] = True
    learns_from_models: ClassVar[bool] = True
    closed_form: ClassVar[bool] = True
    default_protection: ClassVar[str] = "masked"

    trees: int = 100
    depth: int = 6
    grow: Literal["level", "leaf"] = "level"
    leaves: int = 31
    rate: float = 0.3
    buckets: int = 64
    lam: float = 1.0
    gamma: float = 0.0
    min_child_weight: float = 1.0
    samples: float = 1.0
    columns: float = 1.0
    loss: Literal["auto", "logistic", "softmax", "squared", "poisson"] = "auto"
    increasing: tuple[str, ...] = ()
    decreasing: tuple[str, ...] = ()
    patience: int = 0

    def __post_init__(self) -> None:
        share, least = "give a share, above 0 up to 1", "give a finite number of at least 0"
        checks = [
            ("trees", self.trees >= 1, "give a whole number of at least 1"),
            ("depth", 1 <= self.depth <= MOST_DEPTH, f"give 1 to {MOST_DEPTH} levels"),
            ("leaves", 2 <= self.leaves <= MOST_LEAVES, f"give 2 to {MOST_LEAVES}"),
            ("rate", 0 < self.rate <= 1, "give a number above 0 up to 1"),
            ("buckets", 2 <= self.buckets <= 256, "give 2 to 256"),
            ("samples", 0 < self.samples <= 1, share),
            ("columns", 0 < self.columns <= 1, share),
            ("patience", self.patience >= 0, "give a number of rounds, or 0 for never"),
        ]
        values = ("lam", "gamma", "min_child_weight")
        check_rules(self, checks + [(name, 0 <= getattr(self, name) < inf, least) for name in values])

    # -- the coordinator ---------------------------------------------------------------------------

    def train(self, coordinator: Coordinator) -> None:
        """Agree on buckets, then let trees grow, a wave of sums for each level."""
        known: Mapping[str, Any] = coordinator.shared or {}
        if not coordinator.progress and "base" not in known:
            for _ in range(cuts.SUMS):
                coordinator.round(self.counts, self.narrow)
            coordinator.round(self.labels, self.begin)
        remaining = rounds.find_remaining(coordinator, self.trees)
        scores = self.hold_out, self.consent, self.take_back
        monitor = HoldOutMonitor(Stopping(self.patience), coordinator, *scores, remaining.start)
        cohort = coordinator.parties
        self._tell(coordinator, everything=True)
        for number in remaining:
            if not rounds.has_sums_left(coordinator, self.round_sums):
                break
            before, cohort = cohort, self._grow_round(coordinator, cohort, number)
            if self.patience:
                self._tell(coordinator, everything=True)
            going_on = monitor.judge_round(number)
            if not going_on:
                coordinator.round(self.consent, self.take_back)
            # Who has been in it needs no more than the last trees.
            self._tell(coordinator, everything=cohort != before)
            coordinator.complete_round(number + 1, over=not going_on, best=monitor.best, start=monitor.start)
            if not going_on:
                break
        self._tell(coordinator, everything=True)

    @staticmethod
    def _tell(coordinator: Coordinator, *, everything: bool) -> None:
        """Let shared values say whether clients are told all trees, or those of the last round only."""
        if coordinator.shared is not None:
            coordinator.shared = coordinator.shared | {"brief": not everything}

    def _grow_round(self, coordinator: Coordinator, cohort: Sequence[str], number: int) -> tuple[str, ...]:
        """Grow the trees of a round, with clients that came late if the totals may open; return by whom."""
        before = coordinator.parties
        rounds.admit_late_clients(coordinator, number)
        if new := [name for name in coordinator.parties if name not in before]:
            self._tell(coordinator, everything=True)
            try:
                if coordinator.manifest.min_count > 1:
                    coordinator.components.preparation.count_cells(
                        coordinator, (*cohort, *new), continued=True
                    )
                return self._grow_trees(coordinator, (*cohort, *new))
            except DifferencingError as error:
                text = f"grow without {', '.join(new)}, who came late: {error}"
                coordinator.events.emit(Noted("trees", text, "warning"))
        return self._grow_trees(coordinator, cohort)

    def _grow_trees(self, coordinator: Coordinator, cohort: Sequence[str]) -> tuple[str, ...]:
        """Grow the trees of a round; if clients vanish on the way, anew without them."""
        present = coordinator.round(self.roots, self.plant, cohort)
        for step in range(1, self._steps):
            width = 2 ** (step - 1) if self.grow == "level" else 1
            if coordinator.shared is not None:  # known here: of nodes that do not split, nothing is summed
                slots, outputs = len(coordinator.shared[TREE + "slots"]), self._outputs(coordinator.schema)
                if not slots:
                    break
                width = 2 ** (-(-slots // outputs) - 1).bit_length()
            found = coordinator.round(getattr(self, f"histograms_{width}"), self.extend, present)
            if {*found} != {*present}:
                text = f"{len({*present} - {*found})} clients vanished: the trees of this round start again"
                coordinator.events.emit(Noted("trees", text, "warning"))
                return self._grow_trees(coordinator, found)
        return present

    # -- a client ----------------------------------------------------------------------------------

    def _counts_layout(self, schema: Schema) -> Layout:
        shape = (len(Buckets(schema, self.buckets).numbers), self.buckets - 1, cuts.PARTS)
        return Layout(_whole("counts", *shape))

    @contribution(_counts_layout)
    def counts(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return how many of this client's rows are in the quarters of each interval."""

        def read() -> list[Any]:
            X = Inputs.of(shared).columns(party.data)
            return [cuts.images(X[:, column]) for column in self._buckets(shared).numbers]

        columns = party.cache.setdefault((CACHED, "images", party.id), None) or read()
        party.cache[CACHED, "images", party.id] = columns
        return {"counts": cuts.count(columns, strip_prefix(CUT, shared), self._least_rows(shared))}

    def _labels_layout(self, schema: Schema) -> Layout:
        if schema.task == "classification":
            return Layout(_whole("rows"), _whole("classes", schema.outputs))
        return Layout(_whole("rows"), *(Field(name, (schema.outputs,)) for name in ("sum", "square")))

    @contribution(_labels_layout)
    def labels(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return how many rows this client has of each class; or Σy and Σy² of its targets."""
        party.cache.pop((CACHED, "images", party.id), None)
        rows, schema = float(party.data.rows), shared.schema
        truth = self._read_truth(party, shared)
        if schema.task == "classification":
            return {"rows": rows, "classes": np.bincount(truth, minlength=schema.outputs)}
        return {"rows": rows, "sum": truth.sum(axis=0), "square": (truth**2).sum(axis=0)}

    def _histogram_layout(self, schema: Schema, width: int = 1) -> Layout:
        width = min(width, 2 ** max(0, self.depth - 2)) if self.grow == "level" else 1
        places = int(Buckets(schema, self.buckets).offsets[-1])
        return Layout(_whole("sums", width * self._outputs(schema), places, 2))

    @contribution(_histogram_layout)
    def roots(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return G and H of each bucket over all of this client's rows, for every output."""
        rows = self._find_rows(party, shared)
        self._start_round(party, shared, rows)
        outputs = len(rows.packed)
        nothing = np.full(outputs, -1, dtype=np.int32)
        record = {"feature": nothing, "left": nothing, "slots": np.arange(outputs)}
        return {"sums": rows.sum_slots({**record, "goes": np.zeros((outputs, 32), np.uint8)}, 0, outputs)}

    def _sum_level(self, party: Party, shared: Shared, width: int) -> dict[str, Any]:
        layout = self._histogram_layout(shared.schema, width).fields[0]
        if shared[TREE + "complete"]:  # where clients open totals, nobody else knows
            return {"sums": np.zeros(layout.shape or ())}
        rows, step = self._find_rows(party, shared), int(shared[TREE + "step"])
        if rows.round != int(shared["round"]) or rows.step > step:
            self._start_round(party, shared, rows)
        return {"sums": rows.sum_slots(strip_prefix(TREE, shared), step, (layout.shape or (1,))[0])}

    def _find_rows(self, party: Party, shared: Shared) -> PartyRows:
        """Return this client's rows in buckets, from the cache if they are there."""
        key = (CACHED, party.id)
        if key not in party.cache:
            buckets, table = self._buckets(shared), party.data
            bins = buckets.fill(Inputs.of(shared).columns(table), shared["cuts"])
            truth, weights = self._read_truth(party, shared), self.weigh_rows(table, shared)
            party.cache[key] = PartyRows(bins, truth, weights, buckets.offsets)
        found: PartyRows = party.cache[key]
        return found

    def _start_round(self, party: Party, shared: Shared, rows: PartyRows) -> None:
        """Compute the derivatives of this client's rows, and put them into the roots."""
        number, record = int(shared["round"]), strip_prefix(TREE, shared)
        columns = Inputs.of(shared).columns
        predict = (lambda: self.model(shared).margins(columns(party.data)).T) if "feature" in shared else None
        margins = catch_up(party, rows, record, number, predict)
        first, second = losses.derive(self._loss(shared.schema), margins, rows.truth)
        weights = rows.weights
        if self.samples < 1:
            drawn = party.rng("rows", number).random(len(rows.bins)) < self.samples
            weights = drawn * (1.0 if weights is None else weights)
        if weights is not None:
            first, second = first * weights, second * weights
        rows.begin(number, losses.pack(first, second, shared["units"]))

    def _read_truth(self, party: Party, shared: Shared) -> Any:
        """Return labels, or targets that the loss is defined for."""
        if shared.schema.task == "classification":
            return shared.schema.labels(party.data)
        truth = np.asarray(party.data.target, dtype=np.float64).reshape(party.data.rows, -1)
        losses.check_truth(self._loss(shared.schema), truth, party.id)
        return truth

    @contribution(lambda method, schema: rounds.SCORES, family="scores", revealed=True)
    def hold_out(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return hits, loss and rows of this client's hold-out."""
        return rounds.score_hold_out(self.model(shared), party.holdout)

    @contribution(lambda method, schema: rounds.CONSENT, family=None)
    def consent(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return nothing but a one: wherever totals open, the last trees are dropped with it."""
        return {"consent": 1.0}

    # -- whoever opens the total -------------------------------------------------------------------

    @apply
    def narrow(self, total: Total, shared: Shared) -> Shared:
        """Follow the intervals that hold a bucket's beginning; after the last sum they are single values."""
        counts = np.rint(total["counts"]).astype(np.int64)
        state = cuts.narrow(strip_prefix(CUT, shared), counts, self._least_rows(shared))
        return shared | add_prefix(CUT, state)

    @apply
    def begin(self, total: Total, shared: Shared) -> Shared:
        """Set buckets, margins before any tree, and the units of derivatives."""
        weights, schema = shared.get("class_weights"), shared.schema
        found = cuts.finish(strip_prefix(CUT, shared), self._least_rows(shared))
        kept = {name: value for name, value in shared.items() if not name.startswith(CUT)}
        base, units = losses.start(self._loss(schema), total, weights)
        model = growing.start_model(self._buckets(shared))
        return Shared(schema, {**kept, **model, "cuts": found, "base": base, "units": units})

    @apply
    def plant(self, total: Total, shared: Shared) -> Shared:
        """Split the roots of a round's trees (eq. 3)."""
        return self._keep(self._grower(shared).plant(np.rint(total["sums"])), 1, shared)

    @apply
    def extend(self, total: Total, shared: Shared) -> Shared:
        """Split the nodes that the total is of, and their siblings."""
        record = strip_prefix(TREE, shared)
        if record["complete"]:
            return shared
        found = self._grower(shared).extend(record, np.rint(total["sums"]))
        return self._keep(found, int(record["step"]) + 1, shared)

    def _keep(self, record: Mapping[str, Any], step: int, shared: Shared) -> Shared:
        """Return shared values with the trees as they are now; complete ones join the model."""
        complete = step >= self._steps or not len(record["slots"])
        if complete:
            empty = {name: record[name][:0] for name in ("slots", "parent_sums", "waiting", "waiting_sums")}
            model = growing.append_trees(shared, record, self._buckets(shared))
            shared = shared | {**model, "round": int(shared["round"]) + 1}
            record = {**record, **empty}
        return shared | add_prefix(TREE, {**record, "step": step, "complete": complete})

    @apply
    def take_back(self, total: Total, shared: Shared) -> Shared:
        """Drop the trees since the lowest loss on the hold-outs."""
        trees = self.patience * self._outputs(shared.schema)
        number = int(shared["round"]) - self.patience
        return shared | {**growing.drop_trees(shared, trees), "round": number}

    def _grower(self, shared: Shared) -> Grower:
        """Return what the settings say of how trees grow, in the present round."""
        schema, loss, number = shared.schema, self._loss(shared.schema), int(shared["round"])
        names = [column.name for column in schema.columns]
        drawn = np.ones(len(names), dtype=bool)
        if self.columns < 1:
            order = generator(shared["seed"].tobytes(), "columns", number).permutation(len(names))
            drawn = order < max(1, round(self.columns * len(names)))
        signs = np.array([(name in self.increasing) - (name in self.decreasing) for name in names], np.int64)
        least = max(self.min_child_weight, losses.HIGHEST.get(loss, 0.0) * self._least_rows(shared, 0))
        largest = POISSON_STEP if loss == "poisson" else inf
        rules = Rules(self.lam, self.gamma, least, largest, drawn, signs)
        return Grower(self._buckets(shared), shared["cuts"], rules, shared["units"], self.rate, self.grow)

    # -- what a federation asks of every method ----------------------------------------------------

    @property
    def _steps(self) -> int:
        return self.depth if self.grow == "level" else self.leaves - 1

    @property
    def round_sums(self) -> int:
        """Return the sums of a round: one for each level, or each split; and scores of the hold-outs."""
        return self._steps + bool(self.patience)

    @property
    def sums(self) -> int:
        """Return the sums of buckets and labels, of all rounds, and one to take trees back."""
        return cuts.SUMS + 1 + self.trees * self.round_sums + bool(self.patience)

    def _loss(self, schema: Schema) -> str:
        return losses.choose(self.loss, schema)

    def _outputs(self, schema: Schema) -> int:
        return losses.count_outputs(self._loss(schema), schema)

    def _buckets(self, shared: Shared) -> Buckets:
        return Buckets(shared.schema, self.buckets)

    @staticmethod
    def _least_rows(shared: Shared, otherwise: int = 1) -> int:
        """Return how many rows a bucket or a leaf must have, if small cells are counted."""
        return int(shared.get("min_count", otherwise))

    def check(self, schema: Schema) -> None:
        """Refuse a loss, columns or categories that cannot work."""
        super().check(schema)
        loss, names = self._loss(schema), [column.name for column in schema.columns]
        task = "classification" if loss in ("logistic", "softmax") else "regression"
        if task != schema.task or (loss == "logistic" and schema.outputs != 2):
            raise ConfigError(
                f"loss = '{loss}' does not fit {schema.task} with {schema.outputs} outputs: leave it out"
            )
        numbers = {names[index] for index in Buckets(schema, self.buckets).numbers}
        if odd := [name for name in (*self.increasing, *self.decreasing) if name not in numbers]:
            raise ConfigError(f"increasing or decreasing names '{odd[0]}': give columns of numbers")
        if both := {*self.increasing} & {*self.decreasing}:
            raise ConfigError(f"column '{min(both)}' is both increasing and decreasing: choose one")
        if large := [column.name for column in schema.columns if len(column.categories) > 255]:
            raise ConfigError(f"column '{large[0]}' has more than 255 categories: put rare ones together")

    def incompatibility(self, protection: Protection) -> str | None:
        """Return why histograms cannot have noise, if the protection adds any."""
        if not protection.adds_noise:
            return None
        return (
            "a budget that covers the histograms of all levels of all trees leaves noise only: use fedheonn"
        )

    def init(self, schema: Schema, rng: np.random.Generator) -> Mapping[str, Any]:
        """Return one interval for each column of numbers, and the public seed of drawn columns."""
        start = cuts.begin(len(Buckets(schema, self.buckets).numbers), self.buckets - 1)
        seed = rng.integers(1 << 32, size=8, dtype=np.uint32)
        return {**add_prefix(CUT, start), "seed": seed, "round": 0, "brief": False, TREE + "complete": False}

    def view(self, shared: Shared) -> Mapping[str, Any]:
        """Return what clients need: no histograms, and of all trees mostly those of the last round only."""
        hidden = (*HIDDEN, *growing.start_model(self._buckets(shared))) if shared.get("brief") else HIDDEN
        return {name: value for name, value in shared.items() if name not in hidden}

    def continue_from(self, shared: Shared) -> Shared:
        """Go on from a finished training, by as many trees again."""
        return super().continue_from(shared) | {"until": int(shared["round"]) + self.trees}

    def model(self, shared: Shared) -> BoostedTrees:
        """Return the model that has the shared trees."""
        return BoostedTrees(shared, self._loss(shared.schema), Inputs.of(shared))

    @classmethod
    def tiny(cls) -> Self:
        """Return few small trees."""
        return cls(trees=4, depth=3, buckets=16, rate=0.5)


def _whole(name: str, *shape: int) -> Field:
    """Return a field of whole numbers that add up to less than 2³¹ over all clients."""
    return Field(name, shape, bound=losses.WHOLE, total=losses.WHOLE)


def _add_histograms(width: int) -> None:
    """Give the method a contribution of up to so many nodes of each output: its layout says how many."""

    def histograms(self: FederBoost, party: Party, shared: Shared) -> dict[str, Any]:
        return self._sum_level(party, shared, width)

    histograms.__name__ = f"histograms_{width}"
    histograms.__doc__ = f"Return G and H of each bucket in up to {width} nodes of each output's tree."
    mark = contribution(lambda method, schema: method._histogram_layout(schema, width))
    setattr(FederBoost, histograms.__name__, mark(histograms))


for _level in range(MOST_DEPTH - 1):
    _add_histograms(2**_level)
