"""Scikit-learn estimators: ``fit(X, y, groups=...)``, where a row's group is the party that owns it.

They let a federated method stand wherever scikit-learn takes an estimator: in pipelines, in grid
searches, in cross-validation. Rows come in one array, so this is for experiments; the training inside
is the real one, with every message encoded and every sum protected as asked.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from tacit.core.errors import TacitError
from tacit.core.events import Events
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.engines.holdings import Holdings
from tacit.federation import Federation
from tacit.methods.fedheonn import FedHEONN
from tacit.models.activations import ActivationName

Mode = Literal["sealed", "paper", "robust"]
Scale = Literal["standard", "minmax", "none"]


class _FedHEONNEstimator(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor have in common."""

    def __init__(
        self,
        lam: float = 1e-3,
        activation: ActivationName = "logistic",
        mode: Mode = "sealed",
        scale: Scale = "standard",
        protect: str = "plain",
        seed: int = 0,
        min_count: int | None = None,
    ) -> None:
        self.lam = lam
        self.activation = activation
        self.mode = mode
        self.scale = scale
        self.protect = protect
        self.seed = seed
        self.min_count = min_count

    def _train(self, table: Table, groups: Any) -> None:
        """Train on the rows of each group as one party."""
        holdings = _holdings(table, groups)
        declared = {"classes": list(table.classes)} if table.classes else {}
        federation = Federation(holdings, seed=self.seed, declared=declared)
        method = FedHEONN(self.lam, self.activation, self.mode)
        try:
            training = federation.train(
                method,
                protect=self.protect,
                preparation=Preparation(scale=self.scale),
                min_count=self.min_count,
                events=Events(),
            )
        except TacitError as error:
            raise ValueError(str(error)) from error
        self.model_ = training.model
        self.cost_ = training.ledger.summary()
        self.parties_ = np.array(holdings.names)

    def _rows(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        rows: NDArray[np.float64] = validate_data(self, X, reset=False, dtype=np.float64)
        return rows


class FedHEONNClassifier(ClassifierMixin, _FedHEONNEstimator):  # type: ignore[misc]
    """FedHEONN as a scikit-learn classifier.

    Parameters
    ----------
    lam : float
        Ridge penalty λ.
    activation : {"logistic", "softplus", "linear"}
    mode : {"sealed", "paper", "robust"}
        What travels; see :class:`tacit.FedHEONN`.
    scale : {"standard", "minmax", "none"}
        Federated scaling of the features.
    protect : str
        How sums are protected; see ``tacit protections``.
    seed : int
    min_count : int, optional
        Fewest rows of a class, and of either side of a column; see :meth:`tacit.Federation.train`.

    Attributes
    ----------
    classes_ : ndarray
    model_ : OneLayer
        The trained network.
    parties_ : ndarray
        The owners of rows, in the order in which they took part.
    cost_ : dict
        Bytes, messages, CPU and energy of the training.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> hospitals = np.arange(len(y)) % 3
    >>> FedHEONNClassifier().fit(X, y, groups=hospitals).score(X, y) > 0.8
    True
    """

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Train; rows with the same entry in ``groups`` belong to one party (None: all to one)."""
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(column_or_1d(labels, warn=True), return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y holds one class, {self.classes_.tolist()}: a classifier needs two")
        self._train(Table.of(rows, codes, name="X"), groups)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities of the classes."""
        rows = self._rows(X)  # first: it refuses where nothing is fitted
        probabilities: NDArray[np.float64] = self.model_.predict_proba(rows)
        return probabilities

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most likely class of each row."""
        chosen = self.predict_proba(X).argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[chosen]
        return predicted


class FedHEONNRegressor(RegressorMixin, _FedHEONNEstimator):  # type: ignore[misc]
    """FedHEONN as a scikit-learn regressor, for one target or several.

    Parameters
    ----------
    lam : float
        Ridge penalty λ.
    activation : {"linear", "softplus", "logistic"}
        Softplus needs targets above 0, logistic ones between 0 and 1.
    mode, scale, protect, seed, min_count
        As for :class:`FedHEONNClassifier`.

    Examples
    --------
    >>> X = np.arange(12.0).reshape(6, 2)
    >>> FedHEONNRegressor(lam=0.0, mode="robust").fit(X, X[:, 0] * 3 + 1).predict(X).round(6).tolist()
    [1.0, 7.0, 13.0, 19.0, 25.0, 31.0]
    """

    def __init__(
        self,
        lam: float = 1e-3,
        activation: ActivationName = "linear",
        mode: Mode = "sealed",
        scale: Scale = "standard",
        protect: str = "plain",
        seed: int = 0,
        min_count: int | None = None,
    ) -> None:
        super().__init__(lam, activation, mode, scale, protect, seed, min_count)

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Train; rows with the same entry in ``groups`` belong to one party (None: all to one)."""
        rows, targets = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        if targets.ndim == 2 and targets.shape[1] == 1:
            targets = column_or_1d(targets, warn=True)
        self._train(Table.of(rows, targets, task="regression", name="X"), groups)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the predicted targets of each row."""
        rows = self._rows(X)
        predicted: NDArray[np.float64] = self.model_.predict(rows)
        return predicted


def _holdings(table: Table, groups: Any) -> Holdings:
    """Return the rows of each group as the holdings of one party, named after the group."""
    if groups is None:
        return Holdings(table, np.array([0, table.rows]), ["everybody"])
    owners = column_or_1d(groups)
    if len(owners) != table.rows:
        raise ValueError(
            f"groups has {len(owners)} entries for {table.rows} rows: name the owner of each row"
        )
    names, codes = np.unique(owners, return_inverse=True)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(codes))])
    return Holdings(table.take(np.argsort(codes, kind="stable")), offsets, [str(name) for name in names])
