"""Scikit-learn estimators: ``fit(X, y, groups=...)``, where a row's group is the party that owns it.

They let a federated method stand wherever scikit-learn takes an estimator: in pipelines, in grid
searches, in cross-validation. Rows come in one array, so this is for experiments; the training inside
is the real one, with every message encoded and every sum protected as asked.
"""

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from tacit.core.errors import TacitError
from tacit.core.events import Events
from tacit.data.arrow import to_table
from tacit.data.frames import is_frame, to_arrow
from tacit.data.preparation import Preparation
from tacit.data.table import Table, Task
from tacit.engines.holdings import Holdings
from tacit.federation import Federation
from tacit.methods.fedheonn import FedHEONN
from tacit.models.activations import ActivationName

Mode = Literal["sealed", "paper", "robust"]
Missing = Literal["refuse", "mean"]
Scale = Literal["standard", "minmax", "none"]


class _FedHEONNEstimator(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor have in common."""

    def __init__(
        self,
        lam: float = 1e-3,
        activation: ActivationName = "linear",
        mode: Mode = "sealed",
        scale: Scale = "standard",
        protect: str = "plain",
        seed: int = 0,
        min_count: int | None = None,
        hidden: int = 0,
        missing: Missing = "refuse",
    ) -> None:
        self.lam = lam
        self.activation = activation
        self.mode = mode
        self.scale = scale
        self.protect = protect
        self.seed = seed
        self.min_count = min_count
        self.hidden = hidden
        self.missing = missing

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "mean"
        return tags

    def _checks(self, X: Any) -> dict[str, Any]:
        """Return what scikit-learn is to check of rows; a DataFrame stays one, for its categories."""
        if is_frame(X):
            return {"skip_check_array": True}
        return {"dtype": np.float64, "ensure_all_finite": "allow-nan" if self.missing == "mean" else True}

    def _train(self, X: Any, target: Any, groups: Any, task: Task, **more: Any) -> None:
        """Train on the rows of each group as one party; ``more`` are options of the method."""
        try:
            table = _table(X, target, task)
            holdings = _holdings(table, groups)
            declared = {"classes": list(table.classes)} if table.classes else {}
            training = Federation(holdings, seed=self.seed, declared=declared).train(
                FedHEONN(self.lam, self.activation, self.mode, hidden=self.hidden, **more),
                protect=self.protect,
                preparation=Preparation(scale=self.scale, missing=self.missing),
                min_count=self.min_count,
                events=Events(),
            )
        except TacitError as error:
            raise ValueError(str(error)) from error
        self.model_ = training.model
        self.cost_ = training.ledger.summary()
        self.parties_ = np.array(holdings.names)

    def _ask(self, ask: str, X: Any) -> NDArray[Any]:
        """Return what the model predicts for rows that are like those it was fitted to."""
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, **self._checks(X))
        try:
            found: NDArray[Any] = getattr(self.model_, ask)(rows)
        except TacitError as error:
            raise ValueError(str(error)) from error
        return found


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
    hidden : int
        Units of a fixed random layer in front; 0 for none.
    missing : {"refuse", "mean"}
        Refuse missing numbers, or replace them by the mean over all parties.
    class_weight : {"balanced"}, optional
        Rows count so that all classes weigh the same, by their numbers at all parties.

    Of a DataFrame, columns of text or truth values are categories; a missing one belongs to none.

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

    def __init__(
        self,
        lam: float = 1e-3,
        activation: ActivationName = "logistic",
        mode: Mode = "sealed",
        scale: Scale = "standard",
        protect: str = "plain",
        seed: int = 0,
        min_count: int | None = None,
        hidden: int = 0,
        missing: Missing = "refuse",
        class_weight: Literal["balanced"] | None = None,
    ) -> None:
        super().__init__(lam, activation, mode, scale, protect, seed, min_count, hidden, missing)
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Train; rows with the same entry in ``groups`` belong to one party (None: all to one)."""
        rows, labels = _pair(validate_data(self, X, y, **self._checks(X)))
        check_classification_targets(labels)
        self.classes_, codes = np.unique(column_or_1d(labels, warn=True), return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y holds one class, {self.classes_.tolist()}: a classifier needs two")
        self._train(rows, codes, groups, "classification", class_weight=self.class_weight)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities of the classes."""
        return self._ask("predict_proba", X)

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
    mode, scale, protect, seed, min_count, hidden, missing
        As for :class:`FedHEONNClassifier`.

    Examples
    --------
    >>> X = np.arange(12.0).reshape(6, 2)
    >>> FedHEONNRegressor(lam=0.0, mode="robust").fit(X, X[:, 0] * 3 + 1).predict(X).round(6).tolist()
    [1.0, 7.0, 13.0, 19.0, 25.0, 31.0]
    """

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Train; rows with the same entry in ``groups`` belong to one party (None: all to one)."""
        checks = {} if is_frame(X) else {"multi_output": True, "y_numeric": True}
        rows, targets = _pair(validate_data(self, X, y, **checks, **self._checks(X)))
        if targets.ndim == 2 and targets.shape[1] == 1:
            targets = column_or_1d(targets, warn=True)
        self._train(rows, targets, groups, "regression")
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the predicted targets of each row."""
        return self._ask("predict", X)


def _pair(checked: tuple[Any, Any]) -> tuple[Any, NDArray[Any]]:
    """Return rows, and targets as an array that fits them: of a DataFrame nobody has looked at those yet."""
    rows, targets = checked
    if is_frame(rows):
        targets = check_array(targets, ensure_2d=False, dtype=None, input_name="y")
        check_consistent_length(rows, targets)
    return rows, targets


def _table(X: Any, target: NDArray[Any], task: Task) -> Table:
    """Return rows and targets as a table."""
    if not is_frame(X):
        return Table.of(X, target, task=task, name="X")
    data, names = to_arrow(X, "X"), list[str]()
    for index, column in enumerate(target.reshape(len(target), -1).T):
        names.append(f"target {index} of {len(data)} rows")
        data = data.append_column(names[-1], [np.asarray(column)])
    return to_table(data, "X", target=names, task=task, groups=())


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
