"""Fusion Learning: distributions and local models travel once; the final model learns from drawn rows.

A. Kasturi, A. R. Ellore, C. Hota, "Fusion Learning: A One Shot Federated Learning", ICCS 2020::

    client i      D_ij = the distribution nearest to its column j (Kolmogorov-Smirnov), M_i = its model
    coordinator   x_j ~ D_ij independently, y = M_i(x): ``samples`` rows for each client
                  M = the final model, learnt from all of them

With ``copula``, z ~ N(0, R_i) and x_j = D_ij⁻¹(Φ(z_j)), R_i the correlation of its columns' normal scores. With
``epsilon``, D_i and M_i follow from n, Σz and Σzzᵀ of each class, with noise: rows z are shortened, and others,
drawn from these normal distributions, take the place of the client's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.core.charge import Charge
from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError, DataError, nearest
from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.core.party import Party
from tacit.core.protection import Protection
from tacit.core.shared import Shared, Total
from tacit.crypto.accounting import sigma_for
from tacit.crypto.noise import add_noise
from tacit.data.inputs import Inputs, shorten_rows
from tacit.data.schema import Schema
from tacit.data.table import Table
from tacit.methods.base import Method
from tacit.models.estimator import Estimator, fit_estimator, name_estimator
from tacit.models.marginals import FAMILIES, Marginal, describe

Matrix = NDArray[np.float64]
TOLD = ("distributions", "model")  # by each client, as bytes behind their length
NOISY = "noisy_sums"  # in a client's state: asking again shows nothing more


class Columns(msgspec.Struct, frozen=True):
    """What a client tells of its columns."""

    marginals: list[Marginal]
    correlation: list[list[float]]  # of normal scores; empty: columns are drawn independently

    def draw(self, rows: int, rng: np.random.Generator, inputs: Inputs) -> Matrix:
        """Draw rows, and prepare them like those of clients."""
        from scipy.special import ndtr

        schema, z = inputs.schema, rng.normal(size=(rows, len(self.marginals)))
        if self.correlation:
            values, vectors = np.linalg.eigh(np.asarray(self.correlation))
            root = vectors * np.sqrt(np.maximum(values, 1e-9))
            z = z @ (root / np.linalg.norm(root, axis=1, keepdims=True)).T
        V = np.column_stack([one.draw(u) for one, u in zip(self.marginals, ndtr(z).T, strict=True)])
        for values, column in zip(V.T, schema.columns, strict=True):
            if column.kind == "category":
                values[~np.isin(values, np.arange(len(column.categories)))] = np.nan
        return inputs.matrix(Table("drawn", schema.columns, V, np.zeros(rows), schema.task, schema.classes))


@dataclass(frozen=True)
class Fusion(Method):
    """One round: clients tell distributions and models, the final one learns from drawn rows (Kasturi et al.).

    Parameters
    ----------
    local : str
        Estimator of scikit-learn that each client fits, with settings; "MLP" is the one for the task.
    final : str
        Estimator that learns from the drawn rows; empty: like ``local``.
    samples : int
        Rows drawn for each client.
    upsample : bool
        Whether local models learn from equally many rows of each class, of small ones repeatedly.
    copula : bool
        Whether columns are drawn with their correlations, not independently.
    families : tuple of str
        Distributions of scipy.stats to choose from; empty: all that are known here.
    levels : int
        A number with at most so many values is drawn from these, not from a distribution.
    digits : int
        Digits of parameters that travel; 0: all, as published, which shows extremes exactly.
    epsilon : float
        Budget for any one row, of all that its client tells; 0: no noise.
    delta : float
        Probability with which that may not hold.
    row_norm : float
        With epsilon, the longest norm of a prepared row, with its targets; longer ones are shortened.
    """

    name = "fusion"
    paper = "Kasturi, Ellore and Hota, Fusion Learning: A One Shot Federated Learning, 2020"
    needs_norms = False

    local: str = "MLP(hidden_layer_sizes=(100, 100), early_stopping=True)"
    final: str = ""
    samples: int = 1000
    upsample: bool = False
    copula: bool = False
    families: tuple[str, ...] = ()
    levels: int = 20
    digits: int = 3
    epsilon: float = 0.0
    delta: float = 1e-5
    row_norm: float = 3.0

    def __post_init__(self) -> None:
        for name, least in {"samples": 1, "levels": 0, "digits": 0, "epsilon": 0, "row_norm": 1e-9}.items():
            if not least <= getattr(self, name) < inf:
                raise ConfigError(f"{name} is {getattr(self, name)}: give a number of at least {least}")
        if unknown := [family for family in self.families if family not in FAMILIES]:
            raise ConfigError(f"unknown distribution '{unknown[0]}': {nearest(unknown[0], FAMILIES)}")

    @property
    def own_epsilon(self) -> float:
        """Return the budget of a row, which one release spends."""
        return self.epsilon or inf

    def carry_over(self, party: Party, earlier: Party) -> None:
        """Tell the same as in an earlier attempt."""
        party.state.update({NOISY: earlier.state[NOISY]} if NOISY in earlier.state else {})

    def check(self, schema: Schema) -> None:
        """Refuse estimators that are unknown, or for another task."""
        super().check(schema)
        for text in {self.local, self.final or self.local}:
            name_estimator(text, schema.task)

    def incompatibility(self, protection: Protection) -> str | None:
        """Return why a protection cannot hide what it promises to."""
        text = "each client's distributions and model travel by themselves, and no sum hides them: use plain"
        return None if protection.shows_contributions else text

    def warnings_for(self, scaled: bool) -> Sequence[str]:
        """Warn of what is told, or of sums that the budget leaves out."""
        if self.epsilon:
            return ("epsilon does not cover the sums that agree on a scale: use scale = 'none'",) * scaled
        return ("whoever opens totals sees each client's model, and the distribution of each of its columns",)

    def init(self, schema: Schema, rng: np.random.Generator) -> Mapping[str, Any]:
        """Return the seed by which rows are drawn."""
        return {"seed": int(rng.integers(2**62))}

    def continue_from(self, shared: Shared) -> Shared:
        """Refuse: what clients told is not kept."""
        raise ConfigError("fusion has one round, and keeps only its model: train all clients together")

    def train(self, coordinator: Coordinator) -> None:
        """Gather distributions and models, once."""
        coordinator.round(self.description, self.fuse)

    @contribution(lambda self, schema: Layout(*(Field(n, None, clear=True, dtype="uint8") for n in TOLD)))
    def description(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return the distributions of this client's columns, and its model."""
        schema, rng, table = shared.schema, party.rng("fusion"), party.data
        X, y = Inputs.of(shared).matrix(table), table.target
        y = schema.labels(table) if schema.task == "classification" else np.asarray(y, np.float64)
        unscaled = {name: shared[name] for name in ("fill", "cells") if name in shared}
        encoded = Inputs(schema, unscaled).matrix(table)
        if self.epsilon:
            X, y = self._draw_private(party, X, y, schema.outputs, rng)
            encoded = X * shared.get("spread", 1.0) + shared.get("centre", 0.0)
        columns, first = [], 0
        for column in schema.columns:
            own = encoded[:, first : (first := first + (len(column.categories) or 1))]
            columns.append(np.where(own.max(axis=1) > 0, own.argmax(axis=1), -1) if column.categories else own[:, 0])
        marginals = []
        for values, column in zip(columns, schema.columns, strict=True):
            levels = self.levels if column.kind == "number" else len(values) + 1
            try:
                marginals.append(describe(values, self.families or FAMILIES, levels, self.digits, rng))
            except DataError as error:
                raise DataError(f"column '{column.name}': {error.public}") from None
        told = Columns(marginals, _correlate(np.column_stack(columns)) if self.copula else [])
        rows = np.arange(len(X))
        if self.upsample and y.ndim == 1:
            counts = np.bincount(y)
            rows = np.concatenate([rng.choice(np.flatnonzero(y == c), counts.max()) for c in np.unique(y)])
        model = fit_estimator(self.local, X[rows], y[rows], rng)
        return dict(zip(TOLD, map(_pack, (msgspec.msgpack.encode(told), model)), strict=True))

    def _draw_private(
        self, party: Party, X: Matrix, y: NDArray[Any], classes: int, rng: np.random.Generator
    ) -> tuple[Matrix, NDArray[Any]]:
        """Return rows drawn from normal distributions, one for each class, whose sums bear noise."""
        labels, kinds = (y, classes) if y.ndim == 1 else (np.zeros(len(y)), 1)
        Z = shorten_rows(X if y.ndim == 1 else np.hstack([X, y]), self.row_norm) / self.row_norm
        Z = np.hstack([np.ones((len(Z), 1)), Z])  # of length √2 at most: its products have one of 2 at most
        upper = np.triu_indices(Z.shape[1])
        if NOISY not in party.state:
            noise = sigma_for(self.epsilon, self.delta, 1)
            party.charge(Charge("row", noise, 1.0, self.delta, 1, 1))
            sums = [(Z[labels == one].T @ Z[labels == one])[upper] for one in range(kinds)]
            party.state[NOISY] = add_noise(np.concatenate(sums), 2.0, noise)
        drawn, found = [], []
        for one, part in enumerate(party.state[NOISY].reshape(kinds, -1)):
            gram = np.zeros((Z.shape[1], Z.shape[1]))
            gram[upper] = gram.T[upper] = part
            if (rows := round(gram[0, 0])) >= 1:
                mean = gram[0, 1:] / rows
                spreads, vectors = np.linalg.eigh(gram[1:, 1:] / rows - np.outer(mean, mean))
                normal = rng.normal(size=(rows, len(mean))) * np.sqrt(np.clip(spreads, 0.0, 1.0))
                drawn.append(self.row_norm * (mean.clip(-1, 1) + normal @ vectors.T))
                found.append(np.full(rows, one))
        if not drawn:
            raise DataError("noise hides all rows of this client: raise epsilon, or bring more rows")
        made = np.concatenate(drawn)
        return (made, np.concatenate(found)) if y.ndim == 1 else np.hsplit(made, [X.shape[1]])

    def flaw(self, name: str, piece: Any, schema: Schema) -> str | None:
        """Refuse what cannot be drawn from, or does not predict."""
        inputs, rng = Inputs(schema, {}), np.random.default_rng(0)
        try:
            (raw,) = _unpack(piece)
            if name == "model":
                found = Estimator(raw, inputs).outputs(Columns([Marginal("levels", [0, 1])] * len(schema.columns), []).draw(9, rng, inputs))
            else:
                found = msgspec.msgpack.decode(raw, type=Columns).draw(99, rng, inputs)
            return None if np.isfinite(found).all() else "gives values that are not finite"
        except Exception as error:  # noqa: BLE001  # whatever crafted bytes make it raise
            return f"cannot be used: {type(error).__name__}"

    def fold(self, name: str, pieces: Sequence[Any]) -> Any:
        """Put what clients tell one behind the other."""
        return np.concatenate(pieces)

    @apply
    def fuse(self, total: Total, shared: Shared) -> Shared:
        """Draw rows of each client, have them labelled by its model, and fit the final one to all."""
        rng, inputs = np.random.default_rng(shared["seed"]), Inputs.of(shared)
        rows, labels = [], []
        for told, model in zip(*(_unpack(total[name]) for name in TOLD), strict=True):
            rows.append(msgspec.msgpack.decode(told, type=Columns).draw(self.samples, rng, inputs))
            labels.append(Estimator(model, inputs).label(rows[-1]))
        text = self.final or self.local
        return shared | {"estimator": fit_estimator(text, np.concatenate(rows), np.concatenate(labels), rng)}

    def model(self, shared: Shared) -> Estimator:
        """Return the final model."""
        return Estimator(shared["estimator"], Inputs.of(shared))

    @classmethod
    def tiny(cls) -> "Fusion":
        """Return trees, and few distributions."""
        return cls("DecisionTree(max_depth=4)", families=("norm", "uniform"), samples=100)


def _correlate(V: Matrix) -> list[list[float]]:
    """Return the correlations of the columns' normal scores, to two digits; of a constant one, 0."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    scores = ndtri((rankdata(V, axis=0) - 0.5) / len(V))
    lengths = np.linalg.norm(scores, axis=0)
    found = scores.T @ scores / np.maximum(np.outer(lengths, lengths), 1e-12)
    np.fill_diagonal(found, 1.0)
    return found.round(2).tolist()


def _pack(raw: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(len(raw).to_bytes(8, "little") + raw, np.uint8)


def _unpack(stack: NDArray[np.uint8]) -> list[bytes]:
    """Return the pieces that stand one behind the other."""
    raw, pieces = stack.tobytes(), []
    while raw:
        end = 8 + int.from_bytes(raw[:8], "little")
        pieces.append(raw[8:end])
        raw = raw[end:]
    return pieces
