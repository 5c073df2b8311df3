"""Fusion Learning: distributions and local models travel once; the final model learns from drawn rows.

A. Kasturi, A. R. Ellore, C. Hota, "Fusion Learning: A One Shot Federated Learning", ICCS 2020::

    client i      D_ij = the distribution nearest to its column j (Kolmogorov-Smirnov), M_i = its model
    coordinator   x_j ~ D_ij independently, y = M_i(x): ``samples`` rows for each client
                  M = the final model, learnt from all of them

With ``copula``, z ~ N(0, R_i) and x_j = D_ij⁻¹(Φ(z_j)), R_i the correlation of its columns' normal scores.
With ``epsilon``, D_i and M_i follow from n, Σz and Σzzᵀ of each class, with noise: rows z are shortened to
√d, and rows drawn from these normal distributions take the place of the client's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError, DataError, nearest
from tacit.core.events import BudgetSpent
from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.core.party import Charge, Party
from tacit.core.protection import Protection
from tacit.core.shared import Shared, Total
from tacit.crypto.accounting import sigma_for
from tacit.crypto.noise import add_noise
from tacit.data.inputs import Inputs, Matrix, shorten_rows
from tacit.data.schema import Schema
from tacit.data.table import Table
from tacit.methods.base import Method
from tacit.models.estimator import Estimator, fit_estimator, name_estimator
from tacit.models.marginals import FAMILIES, Marginal, describe

TOLD = ("distributions", "model")  # by each client
NOISY = "noisy_sums"  # in a client's state: whoever asks again sees nothing more
LEVELS = 20  # values that a number may have to be drawn from these, not from a distribution
LARGEST = 1e25  # value that is drawn: what exceeds 32-bit numbers stops estimators
DELTA = 1e-5  # probability with which epsilon may not hold


class Columns(msgspec.Struct, frozen=True):
    """What a client tells of its columns."""

    marginals: list[Marginal]
    correlation: list[list[float]]  # of normal scores; empty: columns are drawn independently

    def draw(self, rows: int, rng: np.random.Generator, inputs: Inputs) -> Matrix:
        """Draw rows, and prepare them like those of clients."""
        schema, z = inputs.schema, rng.normal(size=(rows, len(self.marginals)))
        if self.correlation:
            values, vectors = np.linalg.eigh(np.asarray(self.correlation))
            root = vectors * np.sqrt(np.maximum(values, 1e-9))
            z = z @ (root / np.linalg.norm(root, axis=1, keepdims=True)).T
        V = np.column_stack([one.draw(u) for one, u in zip(self.marginals, ndtr(z).T, strict=True)])
        for drawn, column in zip(V.T, schema.columns, strict=True):
            if column.kind == "category":
                drawn[~np.isin(drawn, np.arange(len(column.categories)))] = np.nan
        return inputs.matrix(Table("drawn", schema.columns, V, np.zeros(rows), schema.task, schema.classes))


@dataclass(frozen=True)
class Fusion(Method):
    """Distributions and local models travel once, in the clear (Kasturi et al., 2020).

    Parameters
    ----------
    local : str
        Estimator of scikit-learn that each client fits, with settings; "MLP" is the one for the task.
    final : str
        Estimator that learns from the drawn rows; empty: like ``local``.
    samples : int
        Rows drawn for each client.
    upsample : bool
        Whether local models learn from equally many rows of each class, small ones repeated; so they do if
        ``class_weight`` is "balanced".
    copula : bool
        Whether columns are drawn with their correlations, not independently.
    families : tuple of str
        Distributions of scipy.stats to choose from; empty: all that are known here.
    digits : int
        Digits of parameters that travel; 0: all, as published, which shows extremes exactly.
    epsilon : float
        Budget for any one row, of all that its client tells, at a delta of 1e-5; 0: no noise.
    """

    name = "fusion"
    default_protection = "plain"  # no sum hides what it sends; the run says so
    needs_norms = False
    weighs_classes = True
    reveals: ClassVar[Mapping[str, str]] = {
        "coordinator": "the distribution of every column and the local model, of each client by itself",
        "client": "the final model; all that each client tells, where totals open at clients",
    }

    local: str = "MLP(hidden_layer_sizes=(100, 100), batch_size=32, max_iter=30, alpha=0.1)"
    final: str = ""
    samples: int = 1000
    upsample: bool = False
    copula: bool = False
    families: tuple[str, ...] = ()
    digits: int = 3
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        for name, least in {"samples": 1, "digits": 0, "epsilon": 0}.items():
            if not least <= getattr(self, name) < inf:
                raise ConfigError(f"{name} is {getattr(self, name)}: give a number of at least {least}")
        if unknown := [family for family in self.families if family not in FAMILIES]:
            raise ConfigError(f"unknown distribution '{unknown[0]}': {nearest(unknown[0], FAMILIES)}")

    def check(self, schema: Schema) -> None:
        super().check(schema)
        for text in {self.local, self.final or self.local}:
            name_estimator(text, schema.task)
        if self.epsilon and schema.task == "regression":
            raise ConfigError("epsilon is for classes: nothing bounds the targets of a regression")

    def incompatibility(self, protection: Protection) -> str | None:
        text = "each client's distributions and model travel by themselves, and no sum hides them: use plain"
        return None if protection.shows_contributions else text

    def warnings_for(self, scaled: bool) -> Sequence[str]:
        clear = f"the coordinator sees {self.reveals['coordinator']}"
        text = "epsilon does not cover the sums that agree on a scale: use scale = 'none'"
        return (clear, text) if self.epsilon and scaled else (clear,)

    @property
    def own_epsilon(self) -> float:
        return self.epsilon or inf

    def carry_over(self, party: Party, earlier: Party) -> None:
        party.state.update({NOISY: earlier.state[NOISY]} if NOISY in earlier.state else {})

    def init(self, schema: Schema, rng: np.random.Generator) -> Mapping[str, Any]:
        return {"seed": int(rng.integers(2**62))}

    def continue_from(self, shared: Shared) -> Shared:
        raise ConfigError("fusion has one round, and keeps only its model: train all clients together")

    def train(self, coordinator: Coordinator) -> None:
        coordinator.round(self.description, self.fuse)
        if self.epsilon:
            spent = BudgetSpent(coordinator.sums, self.epsilon, self.epsilon, DELTA, 0, "row")
            coordinator.events.emit(spent)

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
        V, marginals, first = np.empty((len(X), len(schema.columns))), [], 0
        for place, column in enumerate(schema.columns):
            number, last = column.kind == "number", first + (len(column.categories) or 1)
            own, first = encoded[:, first:last], last
            V[:, place] = own[:, 0] if number else np.where(own.max(axis=1) > 0, own.argmax(axis=1), -1)
            try:
                levels = LEVELS if number else inf
                marginals.append(describe(V[:, place], self.families or FAMILIES, levels, self.digits, rng))
            except DataError as error:
                raise DataError(f"column '{column.name}': {error.public}") from None
        rows = np.arange(len(X))
        if (self.upsample or self.class_weight) and y.ndim == 1:
            most = np.bincount(y).max()
            rows = np.concatenate([np.resize(rng.permutation(rows[y == one]), most) for one in np.unique(y)])
        told = msgspec.msgpack.encode(Columns(marginals, _correlate(V) if self.copula else []))
        return dict(
            zip(TOLD, map(_pack, (told, fit_estimator(self.local, X[rows], y[rows], rng))), strict=True)
        )

    def _draw_private(
        self, party: Party, X: Matrix, y: NDArray[Any], classes: int, rng: np.random.Generator
    ) -> tuple[Matrix, NDArray[Any]]:
        """Return rows drawn from a normal distribution for each class, by sums with noise."""
        longest, size = X.shape[1] ** 0.5, 1 + X.shape[1]
        # Each row has a length of √2 at most, its products one of 2.
        Z, upper = np.insert(shorten_rows(X, longest) / longest, 0, 1.0, axis=1), np.triu_indices(size)
        if NOISY not in party.state:
            noise = sigma_for(self.epsilon, DELTA, 1)
            party.charge(Charge("row", noise, 1.0, DELTA, 1, 1))
            sums = [(Z[y == one].T @ Z[y == one])[upper] for one in range(classes)]
            party.state[NOISY] = add_noise(np.concatenate(sums), 2.0, noise)
        drawn, labels = [], np.zeros(0, np.int64)
        for one, part in enumerate(party.state[NOISY].reshape(classes, -1)):
            gram = np.zeros((size, size))
            gram[upper] = gram.T[upper] = part
            if (rows := round(gram[0, 0])) >= 1:
                mean = (gram[0, 1:] / rows).clip(-1, 1)
                spreads, vectors = np.linalg.eigh(gram[1:, 1:] / rows - np.outer(mean, mean))
                normal = rng.normal(size=(rows, size - 1)) * np.sqrt(spreads.clip(0, 1))
                drawn.append(longest * (mean + normal @ vectors.T))
                labels = np.append(labels, np.full(rows, one))
        if not drawn:
            raise DataError("noise hides all rows of this client: raise epsilon, or bring more rows")
        return np.concatenate(drawn), labels

    def flaw(self, name: str, piece: Any, schema: Schema) -> str | None:
        inputs, need = Inputs(schema, {}), 1 if schema.task == "classification" else 2
        try:
            (raw,) = _unpack(piece)
            if name == "model":
                found = Estimator(raw, inputs).label(np.zeros((self.samples, schema.features)))
                return None if len(found) == self.samples and found.ndim == need else "labels no rows"
            told = msgspec.msgpack.decode(raw, type=Columns)
            told.draw(9, np.random.default_rng(0), inputs)
            extremes = [one.draw(np.array([0.0, 1.0])) for one in told.marginals]
            return None if (np.abs(extremes) < LARGEST).all() else "has no finite values"
        except Exception as error:  # noqa: BLE001  # whatever crafted bytes make it raise
            return f"cannot be used: {type(error).__name__}"

    def fold(self, name: str, pieces: Sequence[Any]) -> Any:
        return _pack(*(raw for piece in pieces for raw in _unpack(piece)))

    @apply
    def fuse(self, total: Total, shared: Shared) -> Shared:
        """Draw rows of each client, label them by its model, and fit the final one to all."""
        rng, inputs, rows, labels = np.random.default_rng(shared["seed"]), Inputs.of(shared), [], []
        for told, model in zip(*(_unpack(total[name]) for name in TOLD), strict=True):
            rows.append(msgspec.msgpack.decode(told, type=Columns).draw(self.samples, rng, inputs))
            labels.append(Estimator(model, inputs).label(rows[-1]))
        X, y = np.concatenate(rows), np.concatenate(labels)
        return shared | {"estimator": fit_estimator(self.final or self.local, X, y, rng)}

    def model(self, shared: Shared) -> Estimator:
        return Estimator(shared["estimator"], Inputs.of(shared))

    @classmethod
    def tiny(cls) -> "Fusion":
        return cls("DecisionTree(max_depth=4)", families=("norm", "uniform"), samples=100)


def _correlate(V: Matrix) -> list[list[float]]:
    scores = ndtri((rankdata(V, axis=0) - 0.5) / len(V))
    lengths = np.maximum(np.linalg.norm(scores, axis=0), 1e-9)
    found: list[list[float]] = (scores.T @ scores / np.outer(lengths, lengths)).round(2).tolist()
    return found


def _pack(*pieces: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(msgspec.msgpack.encode(pieces), np.uint8)


def _unpack(packed: NDArray[np.uint8]) -> list[bytes]:
    return msgspec.msgpack.decode(packed.tobytes(), type=list[bytes])
