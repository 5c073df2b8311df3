"""Federated preparation: scaling and imputation from sums, never from pooled data.

docs/preparation.md says which sums a scale needs, and what becomes of missing and constant features. With
``scale="minmax"`` a feature counts as constant when its extremes are the same or neighbours in float32. Where
noise is added to sums, others that bear it take their place (:mod:`tacit.data.noisy_scale`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.core.client import manifest_of
from tacit.core.component import Component
from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError, DataError, OpeningError
from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.protection import Protection
from tacit.core.shared import Shared, Total
from tacit.data import cells
from tacit.data.agreement import Agreement, check_rows, introduce
from tacit.data.inputs import Inputs, Matrix
from tacit.data.noisy_scale import SUMS, NoisyScale
from tacit.data.schema import Schema
from tacit.data.table import Table
from tacit.data.words import WordSums

LEAST = 1e-12  # Σx² of a feature that is not zero, in a sum that rounds (to 2⁻⁶⁰): below, digits lack
DIGITS = 8  # hexadecimal digits of a 32-bit image, of which extremes are found one by one
LEAST_FOR_EXTREMES = 20  # clients: sums of yes or no place the extreme of each if there are few
CONSTANT = 1e-12  # variance over mean square, below which a feature counts as constant


@dataclass(frozen=True)
class Preparation(WordSums, NoisyScale, Component):
    """How the federation agrees on schema, scale and missing values.

    Parameters
    ----------
    scale : {"standard", "minmax", "none"}
        Standardise to mean 0 and variance 1, scale to [0, 1], or leave numbers as they are.
    missing : {"refuse", "mean", "keep"}
        Refuse missing numbers, replace them by the federation's mean of the feature, or leave them as they
        are to a method that learns from gaps, as federboost does.
    """

    name = "preparation"

    scale: Literal["standard", "minmax", "none"] = "standard"
    missing: Literal["refuse", "mean", "keep"] = "refuse"

    # -- enrolment ---------------------------------------------------------------------------------

    def introduce(self, party: Party, declared: Mapping[str, Any]) -> Message:
        """Check this party's rows and describe them."""
        table: Table = party.data
        check_rows(table, party.id, self.missing)
        return introduce(table, declared)

    def agreement(self, declared: Mapping[str, Any], min_count: int = 1) -> Agreement:
        """Start collecting introductions."""
        return Agreement(declared, min_count)

    def read_schema(self, message: Message) -> Schema:
        """Read the agreed schema."""
        return Schema.from_message(message)

    def is_needless_for(self, method: Any) -> bool:
        """Return whether nothing has to be agreed: rows stay as they are, the method asks for no norms."""
        if not getattr(method, "needs_scale", True):
            return True
        return self.scale == "none" and self.missing == "refuse" and not getattr(method, "needs_norms", True)

    def count_sums(self, method: Any, protection: Protection) -> int:
        """Return how many sums :meth:`train` forms for a method under a protection."""
        if self.is_needless_for(method):
            return 0
        if protection.adds_noise:
            return 0 if self.scale == "none" else SUMS
        return 1 + (DIGITS if self.scale == "minmax" else 0)

    def check_clients(self, protection: Protection, clients: int) -> None:
        """Refuse what noise would spoil, and min-max scaling of few clients that are to be hidden each."""
        unfit = self.scale == "minmax" or (self.scale == "none" and self.missing == "mean")
        if protection.adds_noise and unfit:
            raise ConfigError(
                f"scale = '{self.scale}' with missing = '{self.missing}' needs extremes or means that have "
                f"no bound, and {protection.name} cannot hide them: use scale = 'standard', or 'none' with "
                "missing = 'refuse'"
            )
        if self.scale == "minmax" and clients < LEAST_FOR_EXTREMES and not protection.promises.single:
            raise ConfigError(
                f"scale = 'minmax' needs at least {LEAST_FOR_EXTREMES} clients under {protection.name}, "
                f"there are {clients}: how many of few clients lie beyond each probe shows the extreme of "
                "each. Use scale = 'standard'"
            )

    # -- small cells -------------------------------------------------------------------------------

    def count_cells(
        self, coordinator: Coordinator, parties: Sequence[str] | None = None, *, continued: bool = False
    ) -> tuple[str, ...]:
        """Count the rows of every class and category, before anything else opens; return who took part.

        ``continued``: it was done before, over other clients or rows, and what counts as "other" stays.
        """
        return coordinator.round(self.cell_counts, self.recheck if continued else self.recode, parties)

    @contribution(lambda self, schema: cells.layout(schema), family="cells")
    def cell_counts(self, party: Party, shared: Shared) -> dict[str, Any]:
        """How many of this party's rows have each class and category, at most the least count."""
        if shared.schema.min_count != (least := manifest_of(party).min_count):
            raise DataError(
                f"{party.id} was told to count up to {shared.schema.min_count} rows, agreed was min_count = "
                f"{least}: it counts nothing"
            )
        return cells.count(party.data, shared.schema, party.holdout.rows)

    @apply
    def recode(self, total: Total, shared: Shared) -> Shared:
        """Put small cells together; stop if a class is one."""
        found = cells.Cells.of(total, shared.schema.min_count)
        found.check(shared.schema)
        recoding = found.recoding(shared.schema)
        return shared | {"min_count": found.least} | ({} if recoding is None else {"cells": recoding})

    @apply
    def recheck(self, total: Total, shared: Shared) -> Shared:
        """Stop if clients that continue, with others or other rows, have small cells of their own."""
        found = cells.Cells.of(total, shared.schema.min_count)
        found.check(shared.schema)
        found.check_again(shared.schema, shared.get("cells"))
        return shared | {"min_count": found.least}

    # -- scaling -----------------------------------------------------------------------------------

    def train(self, coordinator: Coordinator) -> tuple[str, ...]:
        """Agree on scale and fill values; return the parties that took part."""
        method, protection, _ = coordinator.components
        if self.count_sums(method, protection) == 0:
            return coordinator.parties
        if protection.adds_noise:
            parties = coordinator.round(self.magnitudes, self.apply_magnitudes)
            return coordinator.round(self.noisy_moments, self.apply_noisy_moments, parties)
        parties = coordinator.round(self.moments, self.apply_moments)
        if self.scale == "minmax":
            # Fewer may have come than were invited; a total over them must not open in the first place.
            self.check_clients(coordinator.components.protection, len(parties))
            for _ in range(DIGITS):
                parties = coordinator.round(self.probe, self.narrow, parties)
        return parties

    def _moments_layout(self, schema: Schema) -> Layout:
        features, filled = (schema.features,), self.missing == "mean"
        fields = [Field("rows", ())]
        fields += [Field("count", features)] if filled else []
        fields += [Field("sum", features)] if filled or self.scale == "standard" else []
        if self.scale != "minmax":
            fields += [Field("square", features), Field("nonzero", features, bound=1.0)]
        return Layout(*fields)

    @contribution(_moments_layout)
    def moments(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Compute n, Σx and Σx² of this party's rows, over the values that are there; only what is needed.

        And whether it has any value other than 0, since squares of tiny ones are lost where sums are rounded.
        """
        X = Inputs.of(shared).recoding.encode(party.data)
        found: dict[str, Any] = {"rows": len(X)}
        if self.missing == "mean":
            present = np.isfinite(X)
            found["count"] = present.sum(axis=0)
            X[~present] = 0.0
        # Numbers so large that a square is infinite are refused by name when the contribution is packed.
        with np.errstate(over="ignore", invalid="ignore"):
            if self.missing == "mean" or self.scale == "standard":
                found["sum"] = np.ones(len(X)) @ X
            if self.scale != "minmax":
                found["square"] = np.einsum("ij,ij->j", X, X)
                found["nonzero"] = X.any(axis=0).astype(np.float64)
        return found

    @apply
    def apply_moments(self, total: Total, shared: Shared) -> Shared:
        """Derive mean and standard deviation of every feature, and how long the prepared columns are.

        ``norms`` has Σx² of each prepared column, or a bound of it, after n, that of the ones.
        """
        self._check_digits(total, shared.schema)
        features, rows = shared.schema.features, float(np.maximum(total["rows"], 1.0))
        count = np.maximum(total.get("count", np.full(features, rows)), 1.0)
        mean = total.get("sum", np.zeros(features)) / count
        found = {"fill": mean} if self.missing == "mean" else {}
        squares = np.full(features, rows)  # of values in [0, 1], at the most
        if self.scale == "none":
            squares = total["square"] + (rows - count) * mean**2
        elif self.scale == "standard":
            mean_square = total["square"] / count
            variance = mean_square - mean**2
            constant = variance <= CONSTANT * mean_square
            spread = np.where(constant, 1.0, np.sqrt(np.where(constant, 1.0, variance)))
            found |= {"centre": mean, "spread": spread, "constant": constant}
            squares = np.where(constant, 0.0, count)  # a missing value becomes the mean, which is 0 then
        return shared | found | {"norms": np.concatenate([[rows], squares])}

    @staticmethod
    def _check_digits(total: Total, schema: Schema) -> None:
        """Refuse features in units so small that they vanish in a sum which is rounded."""
        if total.exact or "nonzero" not in total:
            return
        square = total["square"]
        if (lost := (total["nonzero"] > 0.5) & (square >= 0) & (square < LEAST)).any():
            name = schema.feature_names[int(np.argmax(lost))]
            raise DataError(
                f"feature '{name}' has values so small that a protected sum has no digits for their squares "
                f"(below {LEAST:g} in all): use larger units, or drop it"
            )

    @contribution(lambda self, schema: Layout(Field("reached", (2, schema.features, 15), bound=1.0)))
    def probe(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Tell whether this party holds a value at or beyond each probe: largest first, then smallest."""
        X = Inputs.of(shared).recoding.encode(party.data)
        largest = image_of(np.nanmax(X, axis=0, initial=-np.inf), np.inf)
        smallest = 0xFFFFFFFF - image_of(np.nanmin(X, axis=0, initial=np.inf), -np.inf)
        known, level = self._known(shared)
        probes = known[:, :, None] + np.arange(1, 16) * 16 ** (DIGITS - 1 - level)
        return {"reached": (np.stack([largest, smallest])[:, :, None] >= probes).astype(np.float64)}

    @staticmethod
    def _known(shared: Shared) -> tuple[NDArray[np.int64], int]:
        nothing = np.zeros((2, shared.schema.features), dtype=np.int64)
        return shared.get("digits", nothing), shared.get("level", 0)

    @apply
    def narrow(self, total: Total, shared: Shared) -> Shared:
        """Fix the next digit; with the last one, the extremes are known."""
        if not total.exact and total.contributors < LEAST_FOR_EXTREMES:
            raise OpeningError(
                f"a total of extremes over {total.contributors} clients, agreed are at least "
                f"{LEAST_FOR_EXTREMES}"
            )
        known, level = self._known(shared)
        digit = np.count_nonzero(total["reached"] > 0.5, axis=2)
        known = known + digit * 16 ** (DIGITS - 1 - level)
        if level + 1 < DIGITS:
            return shared | {"digits": known, "level": level + 1}
        top, bottom = known[0], 0xFFFFFFFF - known[1]
        high, low = value_of(top), value_of(bottom)
        # Rounding outwards parts a constant into two neighbours; a feature that nobody has a value for
        # ends with its bottom above its top.
        constant = top - bottom <= 1
        if not np.all(np.isfinite(high[~constant]) & np.isfinite(low[~constant])):
            raise DataError("a feature exceeds the range of float32 (3.4e38): use scale = 'standard'")
        return shared | {
            "digits": known,
            "level": DIGITS,
            "centre": np.where(constant, np.where(np.isfinite(low), low, 0.0), low),
            "spread": np.where(constant, 1.0, high - low),
            "constant": constant,
        }


def image_of(values: Matrix, towards: float) -> NDArray[np.int64]:
    """Image of float32 in 0 … 2³²-1 that keeps the order; rounds outwards to the next float32."""
    with np.errstate(over="ignore"):  # beyond float32 the neighbour is infinite, and refused later
        single = values.astype(np.float32)
        inside = single < values if towards > 0 else single > values
        single = np.where(inside, np.nextafter(single, np.float32(towards)), single)
    bits = single.view(np.uint32).astype(np.int64)
    return np.where(bits >> 31, 0xFFFFFFFF - bits, bits + 0x80000000)


def value_of(image: NDArray[np.int64]) -> Matrix:
    """Inverse of :func:`image_of`."""
    bits = np.where(image >> 31, image - 0x80000000, 0xFFFFFFFF - image)
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)
