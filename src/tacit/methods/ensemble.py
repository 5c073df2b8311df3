"""FedHEONN-ensemble: one-layer networks on random patches, all in closed form from one round.

A. Pampín-Rodríguez, O. Fontenla-Romero, E. Hernández-Pereira, B. Guijarro-Berdiñas, "Efficient and Secure
Federated Learning with Ensemble of One-Layer Neural Networks", 2025. The paper's symbols:

    T           estimators, each a FedHEONN network on a patch of the data
    ρ_s, ρ_f    share of the rows and of the features in a patch
    β_s, β_f    whether rows and features are drawn with replacement
    I_f, I_s    features of each estimator, published by the coordinator; its rows, drawn by each client

Client (algorithm 1): for each estimator, the terms of FedHEONN for X[I_s, I_f]. Coordinator (algorithms 3
and 4): for each estimator, merge and solve as FedHEONN does. Prediction (algorithm 2): every estimator
votes, or the mean is taken. A memory of M_max values (eq. 9: ρ_s ρ_f ≤ M_max / (N_s N_f)) does not limit the
patch here: a client takes a larger one in batches of so many values and combines their terms, as eq. 7 does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError, DataError
from tacit.core.events import Noted
from tacit.core.layout import Layout
from tacit.core.marks import apply, contribution
from tacit.core.parallel import each
from tacit.core.party import Party
from tacit.core.protection import Protection
from tacit.core.random import generator
from tacit.core.settings_group import check_rules
from tacit.core.shared import Shared, Total
from tacit.data.inputs import Inputs
from tacit.data.schema import Schema
from tacit.data.table import Table
from tacit.methods.base import Method
from tacit.methods.fedheonn import INTERMEDIATE, FedHEONN
from tacit.methods.heonn import patches
from tacit.methods.heonn.exchange import Rows, Units, invert_targets, stack, with_bias
from tacit.models.activations import ActivationName
from tacit.models.onelayer import Ensemble, Vote

MAX_DRAWS = 10_000


@dataclass(frozen=True)
class FedHEONNEnsemble(Method):
    """Ensemble of one-layer networks on random patches (Pampín-Rodríguez et al., 2025).

    Parameters
    ----------
    estimators : int
        Networks T.
    samples : float
        Share ρ_s of its rows that each client draws for each network.
    features : float
        Share ρ_f of the features that each network sees.
    replace_samples : bool
        Draw rows with replacement (β_s).
    replace_features : bool
        Draw features with replacement (β_f).
    draw : int
        Which draw of features, 0 for the first: few networks depend on it, so it may be worth tuning.
    vote : {"mean", "majority"}
        Whether probabilities are the networks' mean, or shares of their votes, as in the paper.
    lam : float
        Ridge penalty λ, at least 0.
    activation : {"logistic", "softplus", "linear"}, optional
        Activation of the outputs; by default logistic, of a regression linear.
    mode : {"sealed", "paper", "robust"}
        What travels: sums only, factors in the clear, or triangles in the clear.
    max_memory : int, optional
        Values of prepared rows that a client holds at a time; larger patches are taken in batches.
    processes : int
        Processes over which client and coordinator spread the networks.
    """

    name = "fedheonn-ensemble"
    weighs_classes: ClassVar[bool] = True
    default_protection, default_settings = FedHEONN.default_protection, FedHEONN.default_settings

    estimators: int = 10
    samples: float = 0.5
    features: float = 0.8
    replace_samples: bool = False
    replace_features: bool = False
    draw: int = 0
    vote: Vote = "mean"
    lam: float = 1e-3
    activation: ActivationName | None = None
    mode: Literal["sealed", "paper", "robust"] = "sealed"
    max_memory: int | None = None
    processes: int = 1

    def __post_init__(self) -> None:
        self.network  # noqa: B018  # refuses what the base model refuses
        room = self.max_memory is None or self.max_memory >= 1
        rules = (
            ("estimators", self.estimators >= 1, "give at least 1"),
            ("processes", self.processes >= 1, "give at least 1"),
            ("draw", 0 <= self.draw < MAX_DRAWS, f"give 0 or more, below {MAX_DRAWS}"),
            ("samples", 0 < self.samples <= 1, "give a share above 0, at most 1"),
            ("features", 0 < self.features <= 1, "give a share above 0, at most 1"),
            ("max_memory", room, "give a number of values, or leave it out"),
        )
        check_rules(self, rules)

    @property
    def network(self) -> FedHEONN:
        """The base model."""
        return FedHEONN(self.lam, self.activation, self.mode, class_weight=self.class_weight)

    def check(self, schema: Schema) -> None:
        super().check(schema)
        if self.max_memory is not None and self.max_memory < schema.features:
            raise ConfigError(
                f"max_memory is {self.max_memory} values, a row has {schema.features}: give at least as many"
            )

    @property
    def divides_rows(self) -> bool:
        """Every network has sums of its own, of the rows that were drawn for it."""
        return self.samples < 1 or self.replace_samples

    @property
    def standing(self) -> tuple[str, str] | None:
        """As the base model; a client draws the same rows whenever it computes its terms."""
        return self.network.standing

    def incompatibility(self, protection: Protection) -> str | None:
        return self.network.incompatibility(protection)

    def init(self, schema: Schema, rng: np.random.Generator) -> Mapping[str, Any]:
        if self.draw:
            rng = generator(rng.bytes(32), "draw", self.draw)
        settings = schema.features, self.features, self.replace_features
        drawn = [patches.draw_features(rng, *settings) for _ in range(self.estimators)]
        return dict(zip(("columns", "factors"), map(np.stack, zip(*drawn, strict=True)), strict=True))

    def train(self, coordinator: Coordinator) -> None:
        coordinator.round(self.terms, self.solve)
        known: Mapping[str, Any] = coordinator.shared or {}
        if "empty" in known and not self.network.exchange.clear_fields:  # else ``remarks`` has told
            for remark in self._describe_empty(known["empty"]):
                coordinator.events.emit(Noted(self.name, remark, "warning"))

    def _patch_layout(self, schema: Schema) -> Layout:
        network = self.network
        return network.exchange.layout(schema, self._size(schema), network.count_grams(schema))

    @contribution(lambda self, schema: patches.repeat_layout(self._patch_layout(schema), self.estimators))
    def terms(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return what this client's patches bring to each estimator's closed form (algorithm 1)."""
        table: Table = party.data
        exchange, grams = self.network.exchange, self.network.count_grams(shared.schema)
        whole = self._prepare(table, shared) if self.max_memory is None else None
        limit = self.max_memory and self.max_memory // shared.schema.features
        weights = self.weigh_rows(table, shared)
        samples = [
            patches.draw_rows(party.rng("rows", estimator), table.rows, self.samples, self.replace_samples)
            for estimator in range(self.estimators)
        ]

        def fit(estimator: int) -> dict[str, Any]:
            (columns, factors), found = self._drawn(shared, estimator), []
            units = self._units(shared, estimator)
            for members in patches.split_batches(samples[estimator], limit):
                rows = whole or self._prepare(table.take(members), shared)
                taken = members if whole else slice(None)
                design = with_bias(rows.designs[0][taken][:, columns] * factors)
                chosen = Rows([design], rows.d_bar[taken], rows.slope[taken])
                chosen = chosen.weighted(None if weights is None else weights[members])
                found.append(exchange.terms(chosen, units, grams))
            return found[0] if len(found) == 1 else exchange.combine(found)

        found = each(fit, self.estimators, self.processes)
        return patches.join(found, self._patch_layout(shared.schema))

    def _prepare(self, table: Table, shared: Shared) -> Rows:
        targets = invert_targets(self.network.function(shared.schema), table, shared.schema)
        return Rows([Inputs.of(shared).matrix(table)], *targets)

    def _size(self, schema: Schema) -> int:
        return patches.count_features(schema.features, self.features) + 1

    def _drawn(self, shared: Shared, estimator: int) -> tuple[Any, Any]:
        return shared["columns"][estimator], shared["factors"][estimator]

    def _units(self, shared: Shared, estimator: int) -> Units:
        norms, (columns, factors) = shared["norms"], self._drawn(shared, estimator)
        squares = np.append(norms[0], norms[1:][columns] * factors**2)
        return Units.of(self.network.function(shared.schema), shared, squares)

    def flaw(self, name: str, piece: Any, schema: Schema) -> str | None:
        if piece.shape[:1] != (self.estimators,):
            return f"has shape {piece.shape}, agreed were {self.estimators} networks"
        agreed = self._size(schema), self.network.count_grams(schema)
        flaws = (self.network.exchange.flaw(name, one, *agreed) for one in piece)
        return next((flaw for flaw in flaws if flaw), None)

    def fold(self, name: str, pieces: Sequence[Any]) -> Any:
        fold = self.network.fold
        return stack(each(lambda t: fold(name, [one[t] for one in pieces]), self.estimators, self.processes))

    def operator(self, clear: Mapping[str, Any]) -> Any:
        """Return, in mode "paper", the matrices by which the coordinator multiplies m, unopened."""
        self._refuse_all_empty(self._find_empty(clear))
        found = [self.network.operator(own) for own in patches.split(clear, self.estimators)]
        # For each estimator one for all outputs, or one for each.
        return np.concatenate([one[None] if one.ndim == 2 else one for one in found])

    def remarks(self, clear: Mapping[str, Any]) -> Sequence[str]:
        return self._describe_empty(self._find_empty(clear))

    def _find_empty(self, fields: Mapping[str, Any], error: float = 0.0) -> NDArray[np.bool_]:
        is_empty = self.network.exchange.is_empty
        return np.array([is_empty(own, error) for own in patches.split(fields, self.estimators)])

    def _describe_empty(self, empty: NDArray[np.bool_]) -> list[str]:
        text = f"{empty.sum()} of {self.estimators} networks drew none of these clients' rows: raise samples"
        return [text] if empty.any() else []

    def _refuse_all_empty(self, empty: NDArray[np.bool_]) -> None:
        if empty.all():  # no network could vote
            raise DataError(
                f"none of {self.estimators} networks drew a row: samples is {self.samples:g}, too small a "
                "share of so few rows. Raise samples"
            )

    @apply
    def solve(self, total: Total, shared: Shared) -> Shared:
        """Return the weights of every estimator (algorithm 4); one for which nobody drew rows has no vote."""
        fields = patches.split(total, self.estimators, self._patch_layout(shared.schema))
        # If the coordinator multiplied, only the weights are known: an empty network's are zero.
        sizes = np.array([np.abs(own["m"]).max() if total.multiplied else 1.0 for own in fields])
        zero = (sizes <= total.error) & (sizes.max() > total.error)
        exchange = self.network.exchange

        def solve_one(estimator: int) -> Mapping[str, Any]:
            if zero[estimator]:
                return {"weights": np.zeros_like(fields[estimator]["m"])}
            earlier = {name: shared[name][estimator] for name in INTERMEDIATE if name in shared}
            one = Total(fields[estimator], total.contributors, total.error, total.multiplied, total.exact)
            return exchange.solve(one, Shared(shared.schema, earlier), self._units(shared, estimator))

        found = patches.join(each(solve_one, self.estimators, self.processes))
        empty = zero if total.multiplied else self._find_empty(found, total.error)
        self._refuse_all_empty(empty)
        return shared | found | ({"empty": empty} if empty.any() or "empty" in shared else {})

    def view(self, shared: Shared) -> Mapping[str, Any]:
        return self.network.view(shared)

    def model(self, shared: Shared) -> Ensemble:
        """Return the voters: each network that learnt something, its weights at their features' places."""
        placed = shared["weights"], shared["columns"], shared["factors"]
        full = patches.place_weights(*placed, shared.schema.features)
        full = full[~shared["empty"]] if "empty" in shared else full
        return Ensemble(full, self.network.function(shared.schema), Inputs.of(shared), self.vote)

    @classmethod
    def tiny(cls) -> "FedHEONNEnsemble":
        return cls(estimators=3, samples=0.8, features=0.7, replace_samples=True)
