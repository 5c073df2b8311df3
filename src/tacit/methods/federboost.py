"""FederBoost: gradient-boosted trees from histograms that no client shows.

Z. Tian, R. Zhang, X. Hou, L. Lyu, T. Zhang, J. Liu, K. Ren, "FederBoost: Private Federated Learning for
GBDT", IEEE Transactions on Dependable and Secure Computing, 2023: its horizontal part. Their symbols:

    g_i, h_i   first and second derivative of the loss in the margin of row i
    q          buckets of a feature (``buckets``)
    G, H       sums of g_i and h_i over the rows of a node, or of one bucket in it
    λ, γ       penalties of a leaf's weight, and of a split (``lam``, ``gamma``)
    η          shrinkage (``rate``)

Clients agree on buckets by sums of counts (:mod:`tacit.methods.boosting.cuts`). Then, level by level, they
sum G and H of every bucket of every node; whoever opens the totals finds the splits (eq. 3: ``splits``). Of
two children only the lighter one is summed. Each g_i and h_i is a whole number before it is summed, so that
trees are the same whoever holds which rows, those of all rows in one place too.

A parent's histogram over some clients less its children's over others would show who left. So histograms
belong to the family of all sums over rows, and trees whose clients changed on the way start again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tacit.core.coordinator import Coordinator
from tacit.core.errors import DifferencingError, StepError
from tacit.core.events import Noted
from tacit.core.fields import add_prefix, strip_prefix
from tacit.core.marks import apply, contribution
from tacit.core.party import Party
from tacit.core.shared import Shared, Total
from tacit.data.inputs import Inputs
from tacit.methods.averaging import rounds
from tacit.methods.averaging.rounds import HoldOutMonitor, Stopping
from tacit.methods.boosting import cuts, growing, losses, noisy
from tacit.methods.boosting.rows import PartyRows, catch_up
from tacit.methods.boosting.settings import CUT, TREE, Settings, least_rows, tell_trees, with_sums
from tacit.models.trees import BoostedTrees

HIDDEN = tuple(TREE + name for name in (*growing.LATER[:-1], "lower", "upper", "depth", "clients"))


@with_sums
@dataclass(frozen=True)
class FederBoost(Settings):
    """Gradient-boosted trees, those of all rows in one place (Tian et al., 2023).

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
        Least sum of second derivatives in a leaf, beside what ``min_count`` asks for.
    samples : float
        Share of its rows that a client draws for each round, by randomness of its own.
    columns : float
        Share of the columns that are drawn for each round, by the public seed.
    loss : {"auto", "logistic", "softmax", "squared", "poisson"}
        Auto: logistic for two classes, softmax for more, squared for regression.
    increasing : tuple of str
        Columns of numbers with which predictions may only rise.
    decreasing : tuple of str
        Columns of numbers with which predictions may only fall.
    patience : int
        Stop after so many rounds without a lower loss on the clients' hold-outs, and drop their trees; 0 for
        never.

    Examples
    --------
    >>> import tacit
    >>> federation = tacit.Federation.embedded("iris", clients=5)
    >>> model = FederBoost(trees=5, depth=3).fit(federation)
    >>> model.scores(federation.test)["accuracy"] > 0.8
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
    noisy_contributions: ClassVar[tuple[str, ...]] = ("noisy_start", "noisy_roots", "noisy_1")

    # -- the coordinator ---------------------------------------------------------------------------

    def train(self, coordinator: Coordinator) -> None:
        if not coordinator.progress and "base" not in (coordinator.shared or {}):
            self.agree_on_buckets(coordinator)
        remaining, cohort = rounds.find_remaining(coordinator, self.trees), coordinator.parties
        monitor = HoldOutMonitor(Stopping(self.patience), coordinator, remaining.start)
        tell_trees(coordinator, everything=True)
        for number in remaining:
            before, cohort = cohort, self._grow_round(coordinator, cohort, number)
            tell_trees(coordinator, everything=self.patience > 0)
            going_on = monitor.judge_round(number)
            if not going_on:
                coordinator.round(self.consent, self.take_back)
            # Who has been in it needs the last trees only.
            tell_trees(coordinator, everything=cohort != before)
            coordinator.complete_round(number + 1, over=not going_on, best=monitor.best, start=monitor.start)
            if not going_on:
                break
        tell_trees(coordinator, everything=True)

    def _grow_round(self, coordinator: Coordinator, cohort: Sequence[str], number: int) -> tuple[str, ...]:
        before = coordinator.parties
        rounds.admit_late_clients(coordinator, number)
        if (wider := coordinator.parties) != before:  # with those that have waited, too
            tell_trees(coordinator, everything=True)
            try:
                if coordinator.manifest.min_count > 1:
                    coordinator.components.preparation.count_cells(coordinator, wider, continued=True)
                return self._grow_trees(coordinator, wider)
            except DifferencingError as error:
                text = f"clients that came late wait until there are more: {error}"
                coordinator.events.emit(Noted("trees", text, "warning"))
        return self._grow_trees(coordinator, cohort)

    def _grow_trees(self, coordinator: Coordinator, cohort: Sequence[str]) -> tuple[str, ...]:
        present = coordinator.round(self.choose_sum(coordinator, 0), self.plant, cohort)
        for step in range(1, self.steps):
            if coordinator.shared is not None and not len(coordinator.shared[TREE + "slots"]):
                break  # known here: no node splits any more
            found = coordinator.round(self.choose_sum(coordinator, step), self.extend, present)
            if {*found} != {*present}:
                text = "clients left: the trees of this round start again without them"
                coordinator.events.emit(Noted("trees", text, "warning"))
                return self._grow_trees(coordinator, found)
        return present

    # -- a client ----------------------------------------------------------------------------------

    @contribution(Settings.counts_layout)
    def counts(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return how many of this client's rows are in the parts of each interval."""
        key = (self.name, "images", party.id)
        if key not in party.cache:
            losses.read_truth(self.loss_of(shared), party, shared.schema)  # refuse before anything is sent
            X = Inputs.of(shared).columns(party.data)
            party.cache[key] = [cuts.images(X[:, column]) for column in self.buckets_of(shared).numbers]
        return {"counts": cuts.count(party.cache[key], strip_prefix(CUT, shared), least_rows(shared))}

    @contribution(Settings.labels_layout)
    def labels(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return how many rows this client has of each class; or Σy and Σy² of its targets."""
        party.cache.pop((self.name, "images", party.id), None)
        rows, truth = float(party.data.rows), losses.read_truth(self.loss_of(shared), party, shared.schema)
        if shared.schema.task == "classification":
            return {"rows": rows, "classes": np.bincount(truth, minlength=shared.schema.outputs)}
        return {"rows": rows, "sum": truth.sum(axis=0), "square": (truth**2).sum(axis=0)}

    noisy_start, begin_noisy = noisy.noisy_start, noisy.begin_noisy

    def sum_roots(self, party: Party, shared: Shared, shape: Any, *, noise: bool) -> Any:
        """Return G and H of each bucket over all of this client's rows, for every output."""
        rows = self._start_round(party, shared, noise=noise)
        outputs = len(rows.packed)
        none = np.full(outputs, -1, dtype=np.int32)
        record = {"slots": np.arange(outputs), "goes": np.zeros((outputs, 1), np.uint8)}
        return self.sum_slots(rows, {**record, "feature": none, "left": none}, 0, shape)

    def sum_level(self, party: Party, shared: Shared, shape: Any, *, noise: bool) -> Any:
        """Return G and H of each bucket in the nodes that are asked for."""
        if shared[TREE + "complete"]:  # where clients open totals, nobody else knows
            return np.zeros(shape)
        rows, step = self._find_rows(party, shared), int(shared[TREE + "step"])
        if rows.round != int(shared["round"]) or rows.step > step:
            rows = self._start_round(party, shared, noise=noise)
        return self.sum_slots(rows, strip_prefix(TREE, shared), step, shape)

    def _find_rows(self, party: Party, shared: Shared) -> PartyRows:
        if (self.name, party.id) not in party.cache:
            buckets, weights = self.buckets_of(shared), self.weigh_rows(party.data, shared)
            if shared["cuts"].shape != (len(buckets.numbers), self.buckets - 2):
                raise StepError("more buckets than were agreed: the cuts were not made by this protocol")
            bins = buckets.fill(Inputs.of(shared).columns(party.data))
            truth = losses.read_truth(self.loss_of(shared), party, shared.schema)
            trees = self.trees * self.count_outputs(shared.schema)
            party.cache[self.name, party.id] = PartyRows(bins, truth, weights, buckets.offsets, trees)
        found: PartyRows = party.cache[self.name, party.id]
        return found

    def _start_round(self, party: Party, shared: Shared, *, noise: bool) -> PartyRows:
        number, rows = int(shared["round"]), self._find_rows(party, shared)
        columns = Inputs.of(shared).columns
        predict = (lambda: self.model(shared).margins(columns(party.data)).T) if "feature" in shared else None
        margins = catch_up(party, rows, strip_prefix(TREE, shared), number, predict)
        first, second = losses.derive(self.loss_of(shared), margins, rows.truth)
        if least_rows(shared) > 1 and shared.schema.task == "classification" and not noise:
            second = np.maximum(second, losses.FLOOR)
        weights: Any = 1.0 if rows.weights is None else rows.weights
        if self.samples < 1:
            weights = weights * (party.rng("rows", number).random(len(rows.bins)) < self.samples)
        first, second = first * weights, second * weights
        if noise:
            first, second = noisy.bound_rows(self.loss_of(shared), first, second)
        packed = losses.pack(first, second, noisy.UNITS if noise else shared["units"])
        rows.begin(number, packed, self.draw_columns(shared))
        return rows

    hold_out, consent = rounds.hold_out, rounds.consent

    # -- whoever opens the total -------------------------------------------------------------------

    @apply
    def narrow(self, total: Total, shared: Shared) -> Shared:
        """Follow the intervals that hold a bucket's beginning; after the last sum they are single values."""
        counts = np.rint(total["counts"]).astype(np.int64)
        return shared | add_prefix(CUT, cuts.narrow(strip_prefix(CUT, shared), counts, least_rows(shared)))

    @apply
    def begin(self, total: Total, shared: Shared) -> Shared:
        """Set buckets, margins before any tree, and the units of derivatives."""
        found = cuts.finish(strip_prefix(CUT, shared), least_rows(shared))
        kept = {name: value for name, value in shared.items() if not name.startswith(CUT)}
        base, units = losses.start(self.loss_of(shared), total, shared.get("class_weights"))
        model = {**growing.start_model(self.buckets_of(shared)), "base": base}
        return Shared(shared.schema, {**kept, **model, "cuts": found, "units": units})

    @apply
    def plant(self, total: Total, shared: Shared) -> Shared:
        """Split the roots of a round's trees (eq. 3)."""
        roots = self.read_sums(total, shared)[: self.count_outputs(shared.schema)]
        found = self.grower(shared, total.noise).plant(roots)
        return self._keep({**found, "clients": total.contributors}, 1, shared)

    @apply
    def extend(self, total: Total, shared: Shared) -> Shared:
        """Split the nodes that the total is of, and their siblings; if clients left, all start again."""
        record = strip_prefix(TREE, shared)
        if record["complete"] or record["clients"] != total.contributors:
            return shared
        found = self.grower(shared, total.noise).extend(record, self.read_sums(total, shared))
        return self._keep({**record, **found}, int(record["step"]) + 1, shared)

    def _keep(self, record: dict[str, Any], step: int, shared: Shared) -> Shared:
        if complete := step >= self.steps or not len(record["slots"]):
            model = growing.append_trees(shared, record, self.buckets_of(shared))
            shared = shared | {**model, "round": int(shared["round"]) + 1}
            record |= {name: record[name][:0] for name in growing.LATER}
        return shared | add_prefix(TREE, {**record, "step": step, "complete": complete})

    @apply
    def take_back(self, total: Total, shared: Shared) -> Shared:
        """Drop the trees since the lowest loss on the hold-outs."""
        model = growing.drop_trees(shared, self.patience * self.count_outputs(shared.schema))
        return shared | {**model, "round": int(shared["round"]) - self.patience}

    def view(self, shared: Shared) -> Mapping[str, Any]:
        """Return what clients need: no histograms, and of all trees mostly those of the last round only."""
        hidden = (*HIDDEN, *growing.start_model(self.buckets_of(shared))) if shared["brief"] else HIDDEN
        return {name: value for name, value in shared.items() if name not in hidden}

    def release(self, shared: Shared) -> Mapping[str, Any]:
        """Return what a leader tells: all trees and buckets, no histograms."""
        return {name: value for name, value in shared.items() if name not in HIDDEN}

    def model(self, shared: Shared) -> BoostedTrees:
        return BoostedTrees(shared, self.loss_of(shared), Inputs.of(shared))
