"""The settings of FedHEONN, and what follows from them: its parts, and what it can be combined with."""

from dataclasses import dataclass
from math import inf, sqrt
from typing import Any, ClassVar, Literal

import numpy as np

from tacit.core.errors import ConfigError
from tacit.core.protection import Protection
from tacit.core.settings_group import check_rules
from tacit.core.shared import Shared
from tacit.data.schema import Schema
from tacit.methods.base import Method
from tacit.methods.heonn.exchange import Exchange, Units, has_constant_slope
from tacit.methods.heonn.exchanges import Paper, Robust, Sealed
from tacit.methods.heonn.noisy import PARTS, NoisySums
from tacit.methods.heonn.selection import Selection
from tacit.models.activations import ActivationName
from tacit.models.onelayer import LayerKind, RandomLayer

MAX_SCALES = 4
SCALES = (1.0, 4.0)  # a Gram matrix each: further ones cost more than they gain (docs/fedheonn.md)


@dataclass(frozen=True)
class Settings(Method):
    """Base of :class:`tacit.FedHEONN`, where the settings are described."""

    weighs_classes: ClassVar[bool] = True
    budget_parts = PARTS  # most of a privacy budget: the preparation needs less

    lam: float = 1e-3
    activation: ActivationName | None = None
    mode: Literal["sealed", "paper", "robust"] = "sealed"
    rank: int | None = None
    hidden: int = 0
    layer: LayerKind = "tanh"
    scales: tuple[float, ...] = SCALES
    lams: tuple[float, ...] = ()
    folds: int | None = None
    finalists: int = 0
    row_norm: float = 2.0

    def __post_init__(self) -> None:
        scaled = 1 <= len(self.scales) <= MAX_SCALES and all(0 < scale < inf for scale in self.scales)
        ranked = self.rank is None or (self.rank >= 1 and self.mode == "paper")
        summed = self.mode == "sealed" or not (self.folds or self.lams or self.finalists)
        split = self.folds is None or (self.folds >= 0 and self.folds != 1)
        folds, penalty = self.selection.folds, "give a finite number of at least 0, say the paper's 0.001"
        found = not self.finalists or (self.finalists > 0 and folds > 0)
        rules = (
            ("lam", 0 <= self.lam < inf, penalty),
            ("lams", all(0 <= lam < inf for lam in self.lams), penalty),
            ("rank", ranked, "give at least 1, and mode = 'paper', which has factors"),
            ("hidden", self.hidden >= 0, "give the units of the random layer, or 0 for none"),
            ("scales", scaled, f"give 1 to {MAX_SCALES} finite numbers above 0"),
            ("folds", split, "give 0 for none, or at least 2"),
            ("mode", summed, "it forms no sums to choose from: set mode = 'sealed'"),
            ("lams", folds > 0 or not self.lams, "cross-validation chooses: set folds to 3, say"),
            ("finalists", found, "they come out of cross-validation, set folds"),
            ("row_norm", 0 < self.row_norm < inf, "the longest norm of a row is a number above 0"),
        )
        check_rules(self, rules)

    def check(self, schema: Schema) -> None:
        super().check(schema)
        if self.finalists and schema.task == "regression":
            raise ConfigError(
                f"finalists is {self.finalists}: they are compared by accuracy, which no regression has: "
                "give 0, and cross-validation chooses by squared errors"
            )

    @property
    def exchange(self) -> Exchange:
        """What travels, and how it is solved."""
        sealed = Sealed(self.lam, self._tried_scales, self.selection)
        return {"paper": Paper(self.lam, self.rank), "robust": Robust(self.lam)}.get(self.mode, sealed)

    def noisy_sums(self, schema: Schema) -> NoisySums:
        """Return what travels under noise, and how it is solved; a random layer's values are at most 1."""
        longest = sqrt(self.hidden) if self.hidden else self.row_norm
        return NoisySums(self.lam, self.function(schema), longest, self.class_weight is not None)

    def function(self, schema: Schema) -> ActivationName:
        """Return the activation of the outputs: if none is chosen, linear for a regression, else logistic."""
        return self.activation or ("linear" if schema.task == "regression" else "logistic")

    def agreements(self, schema: Schema, protection: Protection) -> dict[str, tuple[Any, Any]]:
        return {} if protection.adds_noise else super().agreements(schema, protection)

    def find_hopeless(self, schema: Schema, clients: float, noise: float) -> str | None:
        return self.noisy_sums(schema).find_hopeless(schema, clients, noise)

    @property
    def selection(self) -> Selection:
        """Which penalties, widths and scales are compared, and how."""
        by_default = 2 if self.hidden and self.mode == "sealed" else 0
        folds = by_default if self.folds is None else self.folds
        return Selection(self.lam, self.lams, folds, self.finalists, self.hidden)

    @property
    def _tried_scales(self) -> int:
        return len(self.scales) if self.hidden and self.selection.folds else 1

    @property
    def sums(self) -> int:
        return 2 if self.finalists else 1

    @property
    def divides_rows(self) -> bool:
        """Every fold has sums of its own."""
        return self.selection.folds > 0

    @property
    def standing(self) -> tuple[str, str] | None:
        """Sums add and subtract; factors and triangles only merge, and weights of classes would change."""
        changes = self.exchange.clear_fields or self.finalists or self.class_weight
        return None if changes else ("terms", "solve")

    def incompatibility(self, protection: Protection) -> str | None:
        if protection.adds_noise and self.mode != "sealed":
            return f"mode '{self.mode}' shows factors or triangles without noise: set mode = 'sealed'"
        if protection.adds_noise and self.selection.folds:
            return (
                "each fold would bear noise of its own, and the budget with it: set folds = 0; the penalty "
                "follows from the noise"
            )
        if self.mode != "robust" or protection.shows_contributions:
            return None
        return (
            "mode 'robust' shows the coordinator every client's triangle: set protect = 'plain' if it may "
            "see them, or mode = 'sealed'"
        )

    def size(self, schema: Schema) -> int:
        """Return the number of inputs with the bias."""
        return (self.hidden or schema.features) + 1

    def count_grams(self, schema: Schema) -> int:
        """Return the number of Gram matrices, factors or triangles: one for all outputs, or one for each."""
        return 1 if has_constant_slope(self.function(schema), schema) else schema.outputs

    def count_noisy_grams(self, schema: Schema) -> int:
        """Return the same under noise: one for each class where these are weighed afterwards."""
        return schema.outputs if self.class_weight else self.count_grams(schema)

    def units(self, shared: Shared) -> Units:
        """Return the units in which the entries of the sums lie in [-1, 1]."""
        norms = shared["norms"]
        # A random layer's values are at most 1, so no column is longer than that of the ones.
        squares = np.full(self.hidden + 1, norms[0]) if self.hidden else norms
        return Units.of(self.function(shared.schema), shared, squares)

    def layers(self, shared: Shared) -> list[RandomLayer | None]:
        """Return the random layer at each scale that is tried; one None if there is no layer."""
        if not self.hidden:
            return [None]
        seed, features = shared["layer_seed"], shared.schema.features
        scales = self.scales[: self._tried_scales]
        return [RandomLayer.draw(seed, features, self.hidden, scale, self.layer) for scale in scales]
