"""FedHEONN: the optimal one-layer network in closed form, from one round.

O. Fontenla-Romero, B. Guijarro-Berdiñas, E. Hernández-Pereira, B. Pérez-Sánchez, "FedHEONN: Federated
and homomorphically encrypted learning method for one-layer neural networks", Future Generation
Computer Systems, 2023.

The paper's symbols, with samples as its columns and ours as rows (X is the transpose of theirs)::

    X, d    inputs with a leading one for the bias, desired outputs
    f       invertible activation; d̄ = f⁻¹(d)
    F       diag f'(d̄): the error is measured before the activation, and weighted by its slope
    U S     factor of a client, from the economy-sized SVD of (F X)ᵀ
    m       (F X)ᵀ (F d̄), the right-hand side
    λ       ridge penalty, ``lam``

Minimising ½‖F(d̄ - Xw)‖² + ½λ‖w‖² (eq. 1) asks for (XᵀFFX + λI) w = m (eq. 2), solved by
w = U (S² + λI)⁻¹ Uᵀ m (eq. 4). Factors of several clients merge: the SVD of [U₁S₁ | U₂S₂ | …] has the U
and S of all their rows together (eq. 5), and m is a sum (eq. 6-8); so who holds which rows makes no
difference to w. Three modes say what travels::

    paper    factors in the clear, m protected. A factor reveals XᵀFFX, and with it single rows of a
             client that has few (docs/fedheonn.md)
    sealed   XᵀFFX is a sum as well: its upper triangle and m are one vector through any protected sum
    robust   triangles of [FX | Fd̄] in the clear, for a coordinator that may see them: no digits are lost

A classifier's targets are 0.05 and 0.95. For the logistic function f' is the same at both, and for the
linear one it is 1 everywhere: then one factor or Gram matrix serves all outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError, DataError
from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.core.party import Party
from tacit.core.protection import Protection
from tacit.core.shared import Shared, Total
from tacit.data.preparation import Inputs
from tacit.data.schema import Schema
from tacit.methods.base import Method
from tacit.methods.heonn import unscaled
from tacit.methods.heonn.paper import Paper
from tacit.methods.heonn.robust import Robust
from tacit.methods.heonn.sealed import Sealed
from tacit.methods.heonn.units import Rows, Units, constant_slope, targets, with_bias
from tacit.models.activations import ActivationName
from tacit.models.leastsquares import upper
from tacit.models.onelayer import OneLayer
from tacit.models.randomlayer import LayerKind, RandomLayer

Matrix = NDArray[np.float64]
PENALTIES = tuple(10.0**power for power in range(-5, 2))  # tried with a random layer
SCALES = (1.0, 4.0)  # a Gram matrix each: further ones cost more than they gain (docs/fedheonn.md)
MOST_SCALES = 4
COMPARED = ("finalists", "tried", "finals")
KEPT = ("m", "factor", "gram", "triangle", "finals")  # what weights were made of: nobody needs it to predict


@dataclass(frozen=True)
class FedHEONN(Method):
    """One-layer network in closed form from one round (Fontenla-Romero et al., 2023).

    Parameters
    ----------
    lam : float
        Ridge penalty λ of eq. 1, at least 0.
    activation : {"logistic", "softplus", "linear"}
        Activation f of the outputs; softplus is the smooth form of what the paper calls relu.
    mode : {"sealed", "paper", "robust"}
        What travels: sums only, factors in the clear, or triangles in the clear.
    rank : int, optional
        In mode "paper", keep so many directions of the merged factor.
    hidden : int
        Units of a fixed random layer in front; 0 for none.
    layer : {"tanh", "fourier"}
        Function of the random layer.
    scales : tuple of float
        Spreads of the random layer to choose from, at most 4; one Gram matrix each.
    lams : tuple of float
        Penalties to choose from; empty: ``lam``, or with a random layer 10⁻⁵ … 10.
    folds : int, optional
        Choose by cross-validation over so many folds; by default 2 with a random layer, else none.
    finalists : int
        Let the best of these decide by accuracy on the first fold: one more protected sum.

    Examples
    --------
    >>> import tacit
    >>> federation = tacit.Federation.embedded("digits", clients=20, partition="label-sorted")
    >>> model = tacit.FedHEONN().fit(federation)
    >>> model.score(federation.test.values, federation.test.target) > 0.9
    True
    """

    name = "fedheonn"
    closed_form = True
    default_protection = "ckks"
    paper = (
        "Fontenla-Romero, Guijarro-Berdiñas, Hernández-Pereira and Pérez-Sánchez, FedHEONN: Federated and "
        "homomorphically encrypted learning method for one-layer neural networks, 2023"
    )

    lam: float = 1e-3
    activation: ActivationName = "logistic"
    mode: Literal["sealed", "paper", "robust"] = "sealed"
    rank: int | None = None
    hidden: int = 0
    layer: LayerKind = "tanh"
    scales: tuple[float, ...] = SCALES
    lams: tuple[float, ...] = ()
    folds: int | None = None
    finalists: int = 0

    def __post_init__(self) -> None:
        for lam in (self.lam, *self.lams):
            if not (np.isfinite(lam) and lam >= 0):
                raise ConfigError(
                    f"lam is {lam}, it must be a finite number of at least 0: 0.001 is the paper's choice"
                )
        if self.rank is not None and (self.rank < 1 or self.mode != "paper"):
            raise ConfigError(f"rank is {self.rank}: give at least 1, and mode = 'paper', which has factors")
        if self.hidden < 0:
            raise ConfigError(f"hidden is {self.hidden}: give the units of the random layer, or 0 for none")
        if not 1 <= len(self.scales) <= MOST_SCALES or not all(0 < scale < inf for scale in self.scales):
            raise ConfigError(f"scales are {self.scales}: give 1 to {MOST_SCALES} finite numbers above 0")
        if self.folds is not None and (self.folds < 0 or self.folds == 1):
            raise ConfigError(f"folds is {self.folds}: give 0 for none, or at least 2")
        if self.mode != "sealed" and (self.folds or self.lams or self.finalists):
            raise ConfigError(f"mode '{self.mode}' forms no sums to choose from: set mode = 'sealed'")
        if self.lams and not self._folds:
            raise ConfigError("lams are to be chosen from by cross-validation: set folds to 3, say")
        if self.finalists < 0 or (self.finalists and not self._folds):
            raise ConfigError(f"finalists is {self.finalists}: they come out of cross-validation, set folds")

    @property
    def _folds(self) -> int:
        if self.folds is None:
            return 2 if self.hidden and self.mode == "sealed" else 0
        return self.folds

    @property
    def sums(self) -> int:
        """One, and one more if finalists are compared."""
        return 2 if self.finalists else 1

    @property
    def standing(self) -> tuple[str, str] | None:
        """Sums add and subtract; factors and triangles only merge."""
        return ("terms", "solve") if self.mode == "sealed" and not self.finalists else None

    def incompatibility(self, protection: Protection) -> str | None:
        """Triangles travel in the clear: that is no protection."""
        if self.mode != "robust" or protection.shows_contributions:
            return None
        return (
            "mode 'robust' shows the coordinator every client's triangle: set protect = 'plain' if it may "
            "see them, or mode = 'sealed'"
        )

    def init(self, schema: Schema, rng: np.random.Generator) -> Mapping[str, Any]:
        """Seed of the random layer, the same for all."""
        return {"layer_seed": int(rng.integers(2**62))} if self.hidden else {}

    def at_once(self, coordinator: Coordinator) -> bool:
        """Whether one sum can serve preparation and training: it must keep all digits, and open here."""
        protection, preparation = coordinator.components.protection, coordinator.components.preparation
        exact = protection.promises.precision == 0 and protection.opens == "coordinator"
        usual = preparation.scale == "standard" and preparation.missing == "refuse"
        plain = self.mode == "sealed" and not self.hidden and not self._folds
        return exact and usual and plain and constant_slope(self.activation, coordinator.schema)

    def train(self, coordinator: Coordinator) -> None:
        """One round: every client's terms, then the solution; another if finalists are compared."""
        if coordinator.shared is not None and "norms" not in coordinator.shared and self.at_once(coordinator):
            coordinator.round(self.raw_terms, self.solve_raw)
            if "weights" in coordinator.shared:
                return
            coordinator.parties = coordinator.components.preparation.train(coordinator)
        chosen = (
            coordinator.shared is not None and "chosen" in coordinator.shared
        )  # by those whom these clients join
        coordinator.round(self.terms, self.solve)
        if self.finalists and not chosen:
            coordinator.round(self.trial, self.choose)

    def joined(self, shared: Shared) -> Shared:
        """Those who join take over which finalist was chosen, not all that were compared."""
        if "chosen" not in shared:
            return shared
        return Shared(shared.schema, {name: shared[name] for name in shared if name not in COMPARED})

    @property
    def _way(self) -> Sealed | Paper | Robust:
        """What travels, and how it is solved."""
        if self.mode == "paper":
            return Paper(self.lam, self.rank)
        if self.mode == "robust":
            return Robust(self.lam)
        lams = self.lams or (PENALTIES if self.hidden and self._folds else ())
        widths = tuple(sorted({max(1, self.hidden // part) for part in (4, 2, 1)})) if self.hidden else ()
        return Sealed(self.lam, lams, self._folds, len(self._scales), widths, self.finalists)

    @property
    def _scales(self) -> tuple[float, ...]:
        return self.scales if self.hidden and self._folds else self.scales[:1]

    # -- client ------------------------------------------------------------------------------------

    def _terms_layout(self, schema: Schema) -> Layout:
        return self._way.layout(schema, self._size(schema), self._grams(schema))

    @contribution(_terms_layout)
    def terms(self, party: Party, shared: Shared) -> dict[str, Any]:
        """What this client's rows bring to the closed form."""
        X = Inputs.of(shared).matrix(party.data, bias=not self.hidden)
        designs = [with_bias(layer(X)) if layer else X for layer in self._layers(shared)]
        rows = Rows(designs, *targets(self.activation, party.data, shared.schema), self._fold_rows(party))
        return self._way.terms(rows, self._units(shared), self._grams(shared.schema))

    def _raw_layout(self, schema: Schema) -> Layout:
        return unscaled.layout(schema)

    @contribution(_raw_layout)
    def raw_terms(self, party: Party, shared: Shared) -> dict[str, Any]:
        """The same of rows that are not scaled: the scale is found in their sum."""
        d_bar, _ = targets(self.activation, party.data, shared.schema)
        return unscaled.terms(Inputs.of(shared).matrix(party.data, bias=True), d_bar)

    def _size(self, schema: Schema) -> int:
        return (self.hidden or schema.features) + 1

    def _grams(self, schema: Schema) -> int:
        return 1 if constant_slope(self.activation, schema) else schema.outputs

    def _units(self, shared: Shared) -> Units:
        norms = shared["norms"]
        # A random layer's values are at most 1, so no column is longer than that of the ones.
        lengths = np.full(self.hidden + 1, norms[0]) if self.hidden else norms
        return Units.of(self.activation, shared.schema, lengths, float(norms[0]))

    def _layers(self, shared: Shared) -> list[RandomLayer | None]:
        if not self.hidden:
            return [None]
        seed, features = shared["layer_seed"], shared.schema.features
        return [RandomLayer.draw(seed, features, self.hidden, scale, self.layer) for scale in self._scales]

    def _fold_rows(self, party: Party) -> list[Any]:
        """Which of its rows a client puts into which fold: by its own dice, evenly."""
        if not self._folds:
            return [slice(None)]
        rng = party.rng("folds")
        order = (rng.permutation(party.data.rows) + int(rng.integers(self._folds))) % self._folds
        return [np.flatnonzero(order == fold) for fold in range(self._folds)]

    # -- whoever opens the total -------------------------------------------------------------------

    def flaw(self, name: str, piece: Any, schema: Schema) -> str | None:
        """Say what is wrong with a factor or triangle."""
        way = self._way
        return (
            None
            if isinstance(way, Sealed)
            else way.flaw(name, piece, self._size(schema), self._grams(schema))
        )

    def fold(self, name: str, pieces: Sequence[Any]) -> Any:
        """Merge many clients' factors, or stack their triangles, at once."""
        way = self._way
        assert not isinstance(way, Sealed)
        return way.fold(name, pieces)

    def operator(self, clear: Mapping[str, Any]) -> Any:
        """In mode "paper", U (S² + λI)⁻¹ Uᵀ: times m, these are the weights (algorithm 2)."""
        way = self._way
        return way.operator(np.asarray(clear["factor"])) if isinstance(way, Paper) else None

    def remarks(self, clear: Mapping[str, Any]) -> Sequence[str]:
        """In mode "paper", what ``rank`` left out."""
        way = self._way
        return way.remarks(clear) if isinstance(way, Paper) else ()

    @apply
    def solve(self, total: Total, shared: Shared) -> Shared:
        """Weights of all outputs; what earlier clients brought is kept and added to (eq. 7)."""
        return shared | self._way.solve(total, shared, self._units(shared))

    @apply
    def solve_raw(self, total: Total, shared: Shared) -> Shared:
        """Scale and weights; nothing if the sum has not enough digits, and a scale must be agreed first."""
        if (found := unscaled.standardised(total, shared)) is None:
            return shared
        scaled, gram, m, error = found
        units = self._units(scaled)
        gram, m = upper(units.gram(units.slope**2 * gram)), units.m(units.slope**2 * m)
        sums = {"gram": gram[None, None, None], "m": m[None, None]}  # of one fold and one scale
        try:
            return scaled | self._way.solve(Total(sums, total.contributors, error, exact=True), scaled, units)
        except DataError:
            return shared

    def _trial_layout(self, schema: Schema) -> Layout:
        targets = (schema.outputs,) if schema.task == "regression" else ()
        return Layout(Field("right", (self.finalists, *targets)))

    @contribution(_trial_layout)
    def trial(self, party: Party, shared: Shared) -> dict[str, Any]:
        """How often each finalist, learnt without the first fold, is right (or how near) on this client's."""
        table = party.data.take(self._fold_rows(party)[0])
        right = np.zeros(self._trial_layout(shared.schema).fields[0].shape or ())
        for index, (chosen, weights) in enumerate(zip(shared["finalists"], shared["tried"], strict=True)):
            model = self._model(shared, weights[: int(chosen[1]) + 1], chosen)
            counts = model.counts(table) if table.rows else {}
            if "confusion" in counts:
                right[index] = np.trace(counts["confusion"])
            elif counts:
                right[index] = -counts["squared"]
        return {"right": right}

    @apply
    def choose(self, total: Total, shared: Shared) -> Shared:
        """Keep the finalist that was right most often, or nearest."""
        way = self._way
        assert isinstance(way, Sealed)
        return shared | way.decide(total["right"], shared)

    def view(self, shared: Shared) -> Mapping[str, Any]:
        """Clients need the scale and the weights, not what they were made of."""
        return {name: value for name, value in shared.items() if name not in KEPT}

    def model(self, shared: Shared) -> OneLayer:
        """Make the network from the weights."""
        return self._model(shared, shared["weights"], shared.get("chosen", (0, len(shared["weights"]) - 1)))

    def _model(self, shared: Shared, weights: Matrix, chosen: Sequence[float]) -> OneLayer:
        layer = self._layers(shared)[int(chosen[0])]
        return OneLayer(weights, self.activation, Inputs.of(shared), layer and layer.first(int(chosen[1])))
