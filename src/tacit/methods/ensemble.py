"""FedHEONN-ensemble: one-layer networks on random patches, all in closed form from one round.

A. Pampín-Rodríguez, O. Fontenla-Romero, E. Hernández-Pereira, B. Guijarro-Berdiñas, "Efficient and Secure
Federated Learning with Ensemble of One-Layer Neural Networks", 2025. The paper's symbols:

    T           estimators, each a FedHEONN network on a patch of the data
    ρ_s, ρ_f    share of the rows and of the features in a patch
    β_s, β_f    whether rows and features are drawn with replacement
    I_f         features of each estimator: drawn and published by the coordinator, the same for all
    I_s         rows of each estimator: drawn by each client for itself

Client (algorithm 1): for each estimator, the terms of FedHEONN for X[I_s, I_f]. Coordinator (algorithms 3
and 4): for each estimator, merge and solve as FedHEONN does. Prediction (algorithm 2): every estimator
votes, or the mean is taken. What is inside the paper's boxes, the base model, is inside ``way`` here.

ρ_s = 1 is the Random Subspace method, ρ_f = 1 is Pasting, and one estimator with both is FedHEONN itself.
A memory of M_max values (eq. 9: ρ_s ρ_f ≤ M_max / (N_s N_f)) does not limit the patch here: a client takes
a larger patch in stretches of that many values and adds their terms up, as eq. 7 does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

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
from tacit.core.shared import Shared, Total
from tacit.data.preparation import Inputs
from tacit.data.schema import Schema
from tacit.data.table import Table
from tacit.methods.base import Method
from tacit.methods.fedheonn import KEPT, FedHEONN
from tacit.methods.heonn import patches
from tacit.methods.heonn.patches import draw_rows, flaw_of, patch, spread, stack, stacked
from tacit.methods.heonn.units import Rows, Units, constant_slope, targets
from tacit.models.activations import ActivationName
from tacit.models.ensemble import Ensemble, Vote

Matrix = NDArray[np.float64]
MOST_DRAWS = 10_000


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
    vote : {"majority", "mean"}
        How a class is chosen; targets of a regression are always the mean.
    lam : float
        Ridge penalty λ, at least 0.
    activation : {"logistic", "softplus", "linear"}
        Activation of the outputs.
    mode : {"sealed", "paper", "robust"}
        What travels: sums only, factors in the clear, or triangles in the clear.
    rank : int, optional
        In mode "paper", keep so many directions of each merged factor.
    max_memory : int, optional
        Values of prepared rows that a client holds at a time; larger patches are taken in stretches.
    processes : int
        Processes over which client and coordinator spread the networks.

    Examples
    --------
    >>> import tacit
    >>> federation = tacit.Federation.embedded("digits", clients=20, partition="label-sorted")
    >>> model = FedHEONNEnsemble(estimators=20, samples=0.1, features=0.75).fit(federation)
    >>> model.score(federation.test.values, federation.test.target) > 0.9
    True
    """

    name = "fedheonn-ensemble"
    default_protection = "ckks"
    paper = (
        "Pampín-Rodríguez, Fontenla-Romero, Hernández-Pereira and Guijarro-Berdiñas, Efficient and Secure "
        "Federated Learning with Ensemble of One-Layer Neural Networks, 2025"
    )

    estimators: int = 10
    samples: float = 0.5
    features: float = 0.8
    replace_samples: bool = False
    replace_features: bool = False
    draw: int = 0
    vote: Vote = "majority"
    lam: float = 1e-3
    activation: ActivationName = "logistic"
    mode: Literal["sealed", "paper", "robust"] = "sealed"
    rank: int | None = None
    max_memory: int | None = None
    processes: int = 1

    def __post_init__(self) -> None:
        self._base  # noqa: B018  # refuses what the base method refuses
        for name in ("estimators", "processes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: give at least 1")
        if not 0 <= self.draw < MOST_DRAWS:
            raise ConfigError(f"draw is {self.draw}: give 0 or more, below {MOST_DRAWS}")
        for name in ("samples", "features"):
            if not 0 < getattr(self, name) <= 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: give a share above 0, at most 1")
        if self.max_memory is not None and self.max_memory < 1:
            raise ConfigError(f"max_memory is {self.max_memory}: give a number of values, or leave it out")

    @property
    def _base(self) -> FedHEONN:
        return FedHEONN(self.lam, self.activation, self.mode, self.rank)

    def check(self, schema: Schema) -> None:
        """Refuse a task that cannot be learnt, and a memory that does not hold a row."""
        super().check(schema)
        if self.max_memory is not None and self.max_memory < schema.features:
            raise ConfigError(
                f"max_memory is {self.max_memory} values, a row has {schema.features}: give at least as many"
            )

    @property
    def standing(self) -> tuple[str, str] | None:
        """As the base method does; a client draws the same rows whenever it computes its terms."""
        return self._base.standing

    def incompatibility(self, protection: Protection) -> str | None:
        """As the base method does."""
        return self._base.incompatibility(protection)

    def init(self, schema: Schema, rng: np.random.Generator) -> Mapping[str, Any]:
        """Features of every estimator, published for all clients."""
        if self.draw:
            rng = generator(rng.bytes(32), "draw", self.draw)
        drawn = [
            patches.draw_features(rng, schema.features, self.features, self.replace_features)
            for _ in range(self.estimators)
        ]
        columns, factors = zip(*drawn, strict=True)
        return {"columns": np.stack(columns), "factors": np.stack(factors)}

    def train(self, coordinator: Coordinator) -> None:
        """One round: every client's terms for all estimators, then their solutions."""
        coordinator.round(self.terms, self.solve)
        if self.mode == "sealed" and coordinator.shared is not None and "empty" in coordinator.shared:
            for remark in self._blank(coordinator.shared["empty"]):
                coordinator.events.emit(Noted(self.name, remark, "warning"))

    # -- client ------------------------------------------------------------------------------------

    def _terms_layout(self, schema: Schema) -> Layout:
        layout = self._base._way.layout(schema, self._size(schema), self._grams(schema))
        return patches.repeated(layout, self.estimators)

    @contribution(_terms_layout)
    def terms(self, party: Party, shared: Shared) -> dict[str, Any]:
        """What this client's patches bring to each estimator's closed form (algorithm 1)."""
        table: Table = party.data
        whole = self._prepared(table, shared) if self.max_memory is None else None
        limit = self.max_memory and self.max_memory // shared.schema.features
        samples = [
            draw_rows(party.rng("rows", estimator), table.rows, self.samples, self.replace_samples)
            for estimator in range(self.estimators)
        ]

        def fit(estimator: int) -> dict[str, Any]:
            columns, factors = shared["columns"][estimator], shared["factors"][estimator]
            units, found = self._units(shared, estimator), []
            for members in patches.batches(samples[estimator], limit):
                rows = whole or self._prepared(table.take(members), shared)
                chosen = patch(rows, members if whole else slice(None), columns, factors)
                found.append(self._base._way.terms(chosen, units, self._grams(shared.schema)))
            return found[0] if len(found) == 1 else self._joined(found)

        found = stacked(each(fit, self.estimators, self.processes))
        return found | {"m": patches.side_by_side(found["m"])} if self.mode == "paper" else found

    def _prepared(self, table: Table, shared: Shared) -> Rows:
        X = Inputs.of(shared).matrix(table)
        return Rows([X], *targets(self.activation, table, shared.schema), [slice(None)])

    def _joined(self, pieces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Terms of a patch from those of its stretches: sums add, factors and triangles merge."""
        parts = {name: [piece[name] for piece in pieces] for name in pieces[0]}
        adds = parts if self.mode == "sealed" else ("m",)
        return {name: sum(v) if name in adds else self._base.fold(name, v) for name, v in parts.items()}

    def _size(self, schema: Schema) -> int:
        return patches.drawn_size(schema.features, self.features) + 1

    def _grams(self, schema: Schema) -> int:
        return 1 if constant_slope(self.activation, schema) else schema.outputs

    def _units(self, shared: Shared, estimator: int) -> Units:
        norms, factors = shared["norms"], shared["factors"][estimator]
        lengths = norms[1:][shared["columns"][estimator]] * factors**2
        return Units.of(self.activation, shared.schema, np.append(norms[0], lengths), float(norms[0]))

    # -- whoever opens the total -------------------------------------------------------------------

    def flaw(self, name: str, piece: Any, schema: Schema) -> str | None:
        """Say what is wrong with factors or triangles."""
        return flaw_of(name, piece, (self.estimators, self._grams(schema)), self._size(schema))

    def fold(self, name: str, pieces: Sequence[Any]) -> Any:
        """Merge many clients' factors or triangles, estimator by estimator (algorithm 3)."""
        parts = each(
            lambda t: self._base.fold(name, [piece[t] for piece in pieces]), self.estimators, self.processes
        )
        return stack(parts)

    def operator(self, clear: Mapping[str, Any]) -> Any:
        """In mode "paper", the matrix for each column of m, by which the coordinator multiplies unopened."""
        if self.mode != "paper":
            return None
        self._check_any(_unused(clear["factor"]))
        found = [self._base.operator({"factor": factors}) for factors in clear["factor"]]
        # For each estimator one for all outputs, or one for each.
        return np.concatenate([one[None] if one.ndim == 2 else one for one in found])

    def remarks(self, clear: Mapping[str, Any]) -> Sequence[str]:
        """Where factors or triangles are seen: what ``rank`` left out, and networks without a row."""
        pieces = np.asarray(clear["triangle" if self.mode == "robust" else "factor"])
        empty = _unused(pieces)
        found = list(self._blank(empty))
        if self.rank is None or empty.all():
            return found
        # As if all networks were outputs of one: the worst of them is told.
        factors, energy = np.concatenate(pieces[~empty]), np.concatenate(clear["energy"][~empty])
        return [*self._base.remarks({"factor": factors, "energy": energy}), *found]

    def _blank(self, empty: NDArray[np.bool_]) -> list[str]:
        if not empty.any():
            return []
        count = int(empty.sum())
        return [f"{count} of {self.estimators} networks drew none of these clients' rows: raise samples"]

    def _check_any(self, empty: NDArray[np.bool_]) -> None:
        """Refuse an ensemble in which nobody could vote."""
        if empty.all():
            raise DataError(
                f"none of {self.estimators} networks drew a row: samples is {self.samples:g}, too small a "
                "share of so few rows. Raise samples"
            )

    @apply
    def solve(self, total: Total, shared: Shared) -> Shared:
        """Weights of every estimator (algorithm 4); what earlier clients brought is kept and added to.

        A network for which nobody drew a row is marked as empty, and has no vote.
        """
        fields = dict(total)
        if self.mode == "paper":
            fields["m"] = patches.apart(total["m"], self.estimators)
        # Of what the coordinator multiplied only the weights are seen: nothing but zeros, beside others.
        sizes = np.abs(fields["m"]).max(axis=(1, 2)) if total.mapped else np.ones(self.estimators)
        blank = (sizes <= total.error) & (sizes.max() > total.error)

        def solved(estimator: int) -> Mapping[str, Any]:
            own = {name: value[estimator] for name, value in fields.items()}
            if blank[estimator]:
                return {"weights": np.zeros_like(own["m"])}
            kept = {name: shared[name][estimator] for name in KEPT if name in shared}
            units = self._units(shared, estimator)
            one = Total(own, total.contributors, total.error, total.mapped, total.exact)
            return self._base._way.solve(one, Shared(shared.schema, kept), units)

        found = stacked(each(solved, self.estimators, self.processes))
        empty = blank if total.mapped else self._empty(found, total.error)
        self._check_any(empty)
        return shared | found | ({"empty": empty} if empty.any() or "empty" in shared else {})

    def _empty(self, found: Mapping[str, Matrix], error: float) -> NDArray[np.bool_]:
        """Which estimators have not learnt from a single row; not those whose targets were all zero."""
        if self.mode != "sealed":
            return _unused(found["triangle" if self.mode == "robust" else "factor"])
        # The first entry of each Gram matrix counts the rows, with their slopes.
        return np.asarray((found["gram"][..., 0] <= error).all(axis=-1))

    def view(self, shared: Shared) -> Mapping[str, Any]:
        """Clients need the scale, the lists and the weights, not what they were made of."""
        return {name: value for name, value in shared.items() if name not in KEPT}

    def model(self, shared: Shared) -> Ensemble:
        """Make the voters: weights of each estimator that learnt something, at the places of its features."""
        full = spread(shared["weights"], shared["columns"], shared["factors"], shared.schema.features)
        if "empty" in shared:
            full = full[~shared["empty"]]
        return Ensemble(full, self.activation, Inputs.of(shared), self.vote)

    @classmethod
    def tiny(cls) -> FedHEONNEnsemble:
        """Give a setting that learns in a moment, for contract tests."""
        return cls(estimators=3, samples=0.8, features=0.7, replace_samples=True)


def _unused(pieces: Matrix) -> NDArray[np.bool_]:
    """Which estimators' factors or triangles hold nothing but zeros."""
    return np.asarray(~np.asarray(pieces).any(axis=(1, 2, 3)))
