"""The settings of FederBoost, and what follows from them."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf, log2
from typing import Any, ClassVar, Literal

import numpy as np

from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError, nearest
from tacit.core.fields import add_prefix
from tacit.core.layout import Field, Layout
from tacit.core.marks import contribution
from tacit.core.party import Party
from tacit.core.protection import Protection
from tacit.core.random import generator
from tacit.core.settings_group import check_rules
from tacit.core.shared import Shared, Total
from tacit.data.schema import Schema
from tacit.methods.base import Method
from tacit.methods.boosting import cuts, losses, noisy
from tacit.methods.boosting.cuts import Buckets
from tacit.methods.boosting.growing import Grower
from tacit.methods.boosting.rows import PartyRows
from tacit.methods.boosting.splits import Rules

TREE, CUT = "tree/", "cut/"  # shared values of the trees that grow, and of the intervals that become buckets
MOST_DEPTH, MOST_LEAVES, MOST_CATEGORIES = 12, 1024, 255
WIDTHS = tuple(2**level for level in range(MOST_DEPTH - 1))  # nodes of a tree that are summed at once
POISSON_STEP = 0.7  # largest weight of a leaf, as XGBoost has it: exp of a larger one runs away


@dataclass(frozen=True)
class Settings(Method):
    """Base of :class:`tacit.methods.federboost.FederBoost`, where the settings are described."""

    small: ClassVar[Mapping[str, Any]] = {"trees": 4, "depth": 2, "buckets": 16}

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
            ("buckets", 2 <= self.buckets <= 256, "give 2 to 256"),
            ("patience", self.patience >= 0, "give a number of rounds, or 0 for never"),
        ]
        checks += [(name, 0 < getattr(self, name) <= 1, share) for name in ("rate", "samples", "columns")]
        values = ("lam", "gamma", "min_child_weight")
        check_rules(self, checks + [(name, 0 <= getattr(self, name) < inf, least) for name in values])

    def check(self, schema: Schema) -> None:
        super().check(schema)
        loss, names = losses.choose(self.loss, schema), [column.name for column in schema.columns]
        task = "classification" if loss in ("logistic", "softmax") else "regression"
        if task != schema.task or (loss == "logistic" and schema.outputs != 2):
            text = f"loss = '{loss}' does not fit {schema.task} with {schema.outputs} outputs"
            other = f", or set task = '{task}'" if task != schema.task else ""
            raise ConfigError(f"{text}: leave it out{other}")
        numbers = {names[index] for index in Buckets(schema, self.buckets).numbers}
        if odd := [name for name in (*self.increasing, *self.decreasing) if name not in numbers]:
            way_out = f"give columns of numbers: {nearest(odd[0], sorted(numbers))}"
            raise ConfigError(f"increasing or decreasing names '{odd[0]}': {way_out}")
        if both := {*self.increasing} & {*self.decreasing}:
            raise ConfigError(f"column '{min(both)}' is both increasing and decreasing: choose one")
        if large := [c.name for c in schema.columns if len(c.categories) > MOST_CATEGORIES]:
            text = f"column '{large[0]}' has more than {MOST_CATEGORIES} categories"
            raise ConfigError(f"{text}: put rare ones together")

    @property
    def steps(self) -> int:
        """Sums by which the trees of a round grow: one for each level, or each split of a leaf."""
        return self.depth if self.grow == "level" else self.leaves - 1

    @property
    def round_sums(self) -> int:
        return self.steps + bool(self.patience)

    @property
    def sums(self) -> int:
        return cuts.SUMS + 1 + self.trees * self.round_sums + bool(self.patience)

    @property
    def budget_parts(self) -> int:
        return 1 + self.trees * self.steps

    def count_outputs(self, schema: Schema) -> int:
        """Return how many trees grow in a round."""
        return losses.count_outputs(losses.choose(self.loss, schema), schema)

    def counts_layout(self, schema: Schema) -> Layout:
        """Return the layout of the rows in parts of intervals."""
        return Layout(
            whole("counts", len(Buckets(schema, self.buckets).numbers), self.buckets - 1, cuts.PARTS)
        )

    def labels_layout(self, schema: Schema) -> Layout:
        """Return the layout of labels or targets."""
        if schema.task == "classification":
            return Layout(whole("rows"), whole("classes", schema.outputs))
        return Layout(whole("rows"), *(Field(name, (schema.outputs,)) for name in ("sum", "square")))

    def histogram_layout(self, schema: Schema, width: int = 1, eighths: int = 8) -> Layout:
        """Return the layout of histograms of up to so many nodes of each output's tree.

        With fewer than eight ``eighths`` it has room for such a part of that: for fewer nodes, of places that
        can hold rows only, one after the other.
        """
        width = min(width, 2 ** max(0, self.depth - 2)) if self.grow == "level" else 1
        nodes, places = width * self.count_outputs(schema), self.most_places(schema)
        known = schema.task == "classification"  # derivatives of other losses have no bound for good
        shape = (nodes, places) if eighths == 8 else (-(-nodes * places * eighths // 8),)
        return Layout(whole("sums", *shape, 2, known=known))

    def most_places(self, schema: Schema) -> int:
        """Return how many places a histogram has at most: that of the widest columns that can be drawn."""
        widths = np.sort(Buckets(schema, self.buckets).widths)
        return int(widths[-self.count_columns(schema) :].sum())

    def choose_sum(self, coordinator: Coordinator, step: int) -> Any:
        """Return the contribution that has room for the nodes of a step, the smallest if they are known."""
        noise, shared = coordinator.components.protection.adds_noise, coordinator.shared
        width = 2 ** (step - 1) if self.grow == "level" and step else 1
        eighths, outputs = 8, self.count_outputs(coordinator.schema)
        if shared is not None and (slots := len(shared[TREE + "slots"]) if step else outputs):
            # Of nodes that do not split, nothing is summed; nor of buckets that no value is in.
            width = 2 ** (-(-slots // outputs) - 1).bit_length()
            if not noise:
                found = self.drawn_buckets(shared).offsets[-1]
                share = float(slots * found / (outputs * self.most_places(shared.schema)))
                width = min(width, 2 ** max(0, ceil(log2(share))))
                eighths = min(8, ceil(8 * share / width))
                if eighths == 8 and slots > width * outputs:  # eight are whole histograms: too few
                    width, eighths = 2 * width, 5
        return getattr(self, name_sum(width if step else 0, eighths, noise=noise))

    def agree_on_buckets(self: Any, coordinator: Coordinator) -> None:
        """Form the sums from which buckets and first margins follow."""
        if coordinator.components.protection.adds_noise:
            coordinator.round(self.noisy_start, self.begin_noisy)
            return
        for _ in range(cuts.SUMS if Buckets(coordinator.schema, self.buckets).numbers else 0):
            coordinator.round(self.counts, self.narrow)
        coordinator.round(self.labels, self.begin)

    def scale_sums(self, sums: Any, shared: Shared) -> Any:
        """Return a client's histograms, of rows with bounded derivatives, as noise is added to them."""
        return sums / noisy.UNIT * noisy.scale_sums(self.loss_of(shared), self.count_columns(shared.schema))

    def read_sums(self, total: Total, shared: Shared) -> Any:
        """Return the histograms of a total: whole numbers, or sums with noise."""
        flat, buckets = total["sums"].reshape(-1, 2), self.drawn_buckets(shared)
        places = int(buckets.offsets[-1])
        sums = flat[: len(flat) // places * places].reshape(-1, places, 2)
        return noisy.read_sums(sums, self.loss_of(shared), buckets) if total.noise else np.rint(sums)

    def sum_slots(self, rows: PartyRows, record: Mapping[str, Any], step: int, shape: Any) -> Any:
        """Return a client's histograms of the nodes that are asked for, in the shape of a layout."""
        sums = np.zeros(shape)
        flat = sums.reshape(-1, 2)
        found = rows.sum_slots(record, step, len(flat) // int(rows.places[-1])).reshape(-1, 2)
        flat[: len(found)] = found
        return sums

    def grower(self, shared: Shared, noise: float) -> Grower:
        """Return how trees grow in the present round, from sums with so much noise."""
        schema, loss = shared.schema, self.loss_of(shared)
        buckets, drawn = self.drawn_buckets(shared), self.draw_columns(shared)
        names = [column.name for column in buckets.schema.columns]
        signs = np.array([(name in self.increasing) - (name in self.decreasing) for name in names], np.int64)
        highest = losses.HIGHEST.get(loss, 0.0)
        weight, count = float(np.max(shared.get("class_weights", 1.0))), least_rows(shared)
        fewer, lam, least = 0.0, self.lam, self.min_child_weight
        if schema.task == "classification" and not noise:
            fewer = weight * (count - 1)
        elif count > 1:
            least = max(least, highest * weight * count)
        if noise:
            floors = noisy.find_floors(noise, loss, buckets)
            lam, least = max(lam, floors[0]), max(least, floors[1])
        largest = POISSON_STEP if loss == "poisson" else inf
        rules = Rules(lam, self.gamma, least, fewer, highest, largest, signs)
        width = int(self.buckets_of(shared).widths.max())
        return Grower(buckets, drawn, width, rules, shared["units"], self.rate, self.grow == "leaf")

    def count_columns(self, schema: Schema) -> int:
        """Return how many columns are drawn for a round."""
        return max(1, round(self.columns * len(schema.columns)))

    def draw_columns(self, shared: Shared) -> Any:
        """Return the columns from which the trees of the present round are made, by the public seed."""
        rng = generator(shared["seed"].tobytes(), "columns", int(shared["round"]))
        return np.flatnonzero(rng.permutation(len(shared.schema.columns)) < self.count_columns(shared.schema))

    def drawn_buckets(self, shared: Shared) -> Buckets:
        """Return which places of the present round's histograms belong to which of the drawn columns."""
        return self.buckets_of(shared).select(self.draw_columns(shared))

    def loss_of(self, shared: Shared) -> str:
        """Return the loss that suits the task, if none is named."""
        return losses.choose(self.loss, shared.schema)

    def buckets_of(self, shared: Shared) -> Buckets:
        """Return the buckets of all columns."""
        return Buckets(shared.schema, self.buckets, shared.get("cuts"))

    def incompatibility(self, protection: Protection) -> str | None:
        return noisy.find_unfit(self, protection.noise_unit) if protection.adds_noise else None

    def find_hopeless(self, schema: Schema, clients: float, noise: float) -> str | None:
        regression = "nothing bounds what a row brings to a regression: use fedheonn, or classes"
        return regression if schema.task == "regression" else None

    def init(self, schema: Schema, rng: np.random.Generator) -> Mapping[str, Any]:
        start = cuts.begin(len(Buckets(schema, self.buckets).numbers), self.buckets - 1)
        seed = rng.integers(1 << 32, size=8, dtype=np.uint32)
        return {**add_prefix(CUT, start), "seed": seed, "round": 0, "brief": False, TREE + "complete": False}

    def continue_from(self, shared: Shared) -> Shared:
        return super().continue_from(shared) | {"until": int(shared["round"]) + self.trees}


def sum_nodes(width: int, eighths: int = 8, *, noise: bool = False) -> Any:
    """Return a contribution of the roots (0), or of up to so many nodes of each output, or a part of that.

    A layout has one size. With ``noise`` it is of rows whose derivatives are bounded.
    """

    def layout(method: Any, schema: Schema) -> Layout:
        if noise:
            return noisy.histogram_layout(method, schema, width or 1)
        found: Layout = method.histogram_layout(schema, width or 1, eighths)
        return found

    def histograms(self: Any, party: Party, shared: Shared) -> Any:
        shape = layout(self, shared.schema).fields[0].shape
        sums = (self.sum_level if width else self.sum_roots)(party, shared, shape, noise=noise)
        return {"sums": self.scale_sums(sums, shared) if noise else sums}

    histograms.__name__ = name_sum(width, eighths, noise=noise)
    return contribution(layout)(histograms)


def name_sum(width: int, eighths: int = 8, *, noise: bool = False) -> str:
    """Return the name of the contribution of the roots (0), or of so many nodes of each output.

    >>> name_sum(0), name_sum(4), name_sum(4, 5), name_sum(1, noise=True)
    ('roots', 'histograms_4', 'histograms_4_5_of_8', 'noisy_1')
    """
    name = f"noisy_{width or 'roots'}" if noise else f"histograms_{width}" if width else "roots"
    return name if eighths == 8 else f"{name}_{eighths}_of_8"


def with_sums(method: type) -> type:
    """Give a method its contributions: a layout has one size, so there is one for each."""
    for width in (0, *WIDTHS):
        made = [sum_nodes(width, part) for part in range(1 if width < 2 else 5, 9)]
        made += [sum_nodes(width, noise=True)] if width <= WIDTHS[4] else []
        for each in made:
            setattr(method, each.__name__, each)
    return method


def tell_trees(coordinator: Coordinator, *, everything: bool) -> None:
    """Let shared values say whether clients are told all trees, or those of the last round only."""
    if coordinator.shared is not None:
        coordinator.shared = coordinator.shared | {"brief": not everything}


def whole(name: str, *shape: int, known: bool = True) -> Field:
    """Return a field of whole numbers below 2³¹; if it is ``known``, so is their sum over all clients."""
    return Field(name, shape, bound=losses.WHOLE, total=losses.WHOLE if known else None)


def least_rows(shared: Mapping[str, Any]) -> int:
    """Return how many rows a bucket must have: as many as were agreed, if small cells are counted."""
    return int(shared.get("min_count", 1))
