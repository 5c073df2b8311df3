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
difference to w. What travels, by ``mode``, is in :mod:`tacit.methods.heonn.exchanges`; where noise is added
to sums, other ones travel (:mod:`tacit.methods.heonn.noisy`).

A classifier's targets are 0.05 and 0.95. For the logistic function f' is the same at both, and for the
linear one it is 1 everywhere: then one factor or Gram matrix serves all outputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError
from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.core.method import CLASS_WEIGHTS
from tacit.core.party import Party
from tacit.core.shared import Shared, Total
from tacit.data.inputs import Inputs
from tacit.data.schema import Schema
from tacit.methods.heonn import unscaled
from tacit.methods.heonn.exchange import Rows, has_constant_slope, invert_targets, with_bias
from tacit.methods.heonn.noisy import group_rows
from tacit.methods.heonn.selection import COMPARED
from tacit.methods.heonn.settings import Settings
from tacit.models.leastsquares import Matrix, upper
from tacit.models.onelayer import OneLayer

INTERMEDIATE = ("m", "factor", "gram", "triangle", "finals")  # what weights are made of; no model needs it


@dataclass(frozen=True)
class FedHEONN(Settings):
    """One-layer network in closed form from one round (Fontenla-Romero et al., 2023).

    Parameters
    ----------
    lam : float
        Ridge penalty λ of eq. 1, at least 0.
    activation : {"logistic", "softplus", "linear"}, optional
        Activation f of the outputs; by default logistic, of a regression linear. Softplus is the smooth form
        of what the paper calls relu.
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
    row_norm : float
        Under noise, the longest norm of a prepared row; longer ones are shortened, and those to predict for,
        too. The noise does not grow with it: what a row brings is divided by it.

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
    default_protection = "masked"
    default_settings: ClassVar[Mapping[str, Any]] = {"opens": "clients"}
    noisy_contributions = ("noisy_terms",)

    def init(self, schema: Schema, rng: np.random.Generator) -> Mapping[str, Any]:
        return {"layer_seed": int(rng.integers(2**62))} if self.hidden else {}

    def finds_scale_itself(self, coordinator: Coordinator) -> bool:
        """Return whether one sum serves preparation and training (:mod:`tacit.methods.heonn.unscaled`)."""
        chosen = self.hidden or self.selection.folds or self.class_weight
        simple = self.mode == "sealed" and not chosen
        constant = has_constant_slope(self.function(coordinator.schema), coordinator.schema)
        return simple and constant and unscaled.can_serve(coordinator.components)

    def train(self, coordinator: Coordinator) -> None:
        known: Mapping[str, Any] = coordinator.shared or {}
        if coordinator.components.protection.adds_noise:
            if "weights" in known:
                raise ConfigError("under noise no sums are kept for others to add to: train all together")
            coordinator.round(self.noisy_terms, self.solve_noisy)
            return
        if coordinator.shared is not None and "norms" not in known and self.finds_scale_itself(coordinator):
            coordinator.round(self.raw_terms, self.solve_raw)
            if "weights" in coordinator.shared:
                return
            coordinator.parties = coordinator.components.preparation.train(coordinator)
        coordinator.round(self.terms, self.solve)
        if self.finalists and "chosen" not in known:  # else the training that is continued has chosen
            coordinator.round(self.trial, self.choose)

    def continue_from(self, shared: Shared) -> Shared:
        """Keep which finalist was chosen, not all that were compared."""
        if "chosen" not in super().continue_from(shared):
            return shared
        return Shared(shared.schema, {name: shared[name] for name in shared if name not in COMPARED})

    # -- client (algorithm 1) ----------------------------------------------------------------------

    @contribution(
        lambda self, schema: self.exchange.layout(schema, self.size(schema), self.count_grams(schema))
    )
    def terms(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return what this client's rows bring to the closed form."""
        X = Inputs.of(shared).matrix(party.data, bias=not self.hidden)
        designs = [with_bias(layer(X)) if layer else X for layer in self.layers(shared)]
        targets = invert_targets(self.function(shared.schema), party.data, shared.schema)
        rows = Rows(designs, *targets, self.selection.split_rows(party))
        rows = rows.weighted(self.weigh_rows(party.data, shared))
        return self.exchange.terms(rows, self.units(shared), self.count_grams(shared.schema))

    @contribution(lambda self, schema: unscaled.layout(schema))
    def raw_terms(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return the same of rows that are not scaled: the scale is found in their sum."""
        d_bar, _ = invert_targets(self.function(shared.schema), party.data, shared.schema)
        X = Inputs.of(shared).matrix(party.data, bias=True)
        return {"gram": upper(X.T @ X), "m": X.T @ d_bar}

    def _noisy_layout(self, schema: Schema) -> Layout:
        return self.noisy_sums(schema).layout(schema, self.size(schema) - 1, self.count_noisy_grams(schema))

    @contribution(_noisy_layout)
    def noisy_terms(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return the sums to which noise can be added: what each row brings is bounded."""
        with np.errstate(all="ignore"):  # whoever sends the scale may have sent one that overflows
            X, layer = Inputs.of(shared).matrix(party.data), self.layers(shared)[0]
            groups, grams = group_rows(party.data, shared), self.count_noisy_grams(shared.schema)
            return self.noisy_sums(shared.schema).terms(layer(X) if layer else X, groups, grams)

    @contribution(lambda self, schema: Layout(Field("right", (self.finalists,))))
    def trial(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return how often each finalist, learnt without the first fold, is right on this client's."""
        table, right = party.data.take(self.selection.split_rows(party)[0]), np.zeros(self.finalists)
        compared = zip(shared["finalists"], shared["tried"], strict=True)
        for index, (chosen, weights) in enumerate(compared if table.rows else ()):
            counts = self.build(shared, weights[: int(chosen[1]) + 1], chosen).counts(table)
            right[index] = (np.diag(counts["confusion"]) * shared.get(CLASS_WEIGHTS, 1.0)).sum()
        return {"right": right}

    # -- whoever opens the total (algorithm 2) -----------------------------------------------------

    def flaw(self, name: str, piece: Any, schema: Schema) -> str | None:
        return self.exchange.flaw(name, piece, self.size(schema), self.count_grams(schema))

    def fold(self, name: str, pieces: Sequence[Any]) -> Any:
        return self.exchange.fold(name, pieces)

    def operator(self, clear: Mapping[str, Any]) -> Any:
        return self.exchange.operator(clear)

    def remarks(self, clear: Mapping[str, Any]) -> Sequence[str]:
        return self.exchange.remarks(clear)

    @apply
    def solve(self, total: Total, shared: Shared) -> Shared:
        """Return the weights of all outputs; what earlier clients brought is added to (eq. 7)."""
        return shared | self.exchange.solve(total, shared, self.units(shared))

    @apply
    def solve_raw(self, total: Total, shared: Shared) -> Shared:
        """Return scale and weights; nothing if digits are lacking, so that a scale is agreed first."""
        return unscaled.solve(total, shared, self.function(shared.schema), self.exchange)

    @apply
    def solve_noisy(self, total: Total, shared: Shared) -> Shared:
        """Return the weights from sums with noise; rows that are predicted for are shortened as well."""
        longest = {} if self.hidden else {"longest": np.array([self.row_norm])}
        return shared | self.noisy_sums(shared.schema).solve(total, shared) | longest

    @apply
    def choose(self, total: Total, shared: Shared) -> Shared:
        """Keep the finalist that was right most often."""
        return shared | self.selection.choose_finalist(total["right"], shared)

    def view(self, shared: Shared) -> Mapping[str, Any]:
        return {name: value for name, value in shared.items() if name not in INTERMEDIATE}

    def model(self, shared: Shared) -> OneLayer:
        return self.build(shared, shared["weights"], shared.get("chosen", (0, len(shared["weights"]) - 1)))

    def build(self, shared: Shared, weights: Matrix, chosen: Sequence[float]) -> OneLayer:
        """Return a network with these weights and the scale and width that were chosen."""
        layer = self.layers(shared)[int(chosen[0])]
        narrow = layer and layer.first(int(chosen[1]))
        return OneLayer(weights, self.function(shared.schema), Inputs.of(shared), narrow)
