"""Scikit-learn estimators: ``fit(X, y, groups=...)``, where a row's group is the party that owns it.

Rows come in one array, so this is for experiments; the training inside is the real one, with every message
encoded and every sum protected as asked.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import validation
from sklearn.utils.multiclass import check_classification_targets

from tacit.core.errors import TacitError
from tacit.core.events import Events
from tacit.data.arrow import to_arrow, to_table
from tacit.data.preparation import Preparation
from tacit.data.table import Table, Task, is_frame
from tacit.engines.holdings import Holdings, holdings_of
from tacit.federation import Federation
from tacit.methods.base import Method
from tacit.methods.federboost import FederBoost
from tacit.methods.fedheonn import FedHEONN
from tacit.models.activations import ActivationName

__all__ = ["FedHEONNClassifier", "FedHEONNRegressor", "FederBoostClassifier", "FederBoostRegressor"]

FEDERATED = ("protect", "seed", "min_count")  # settings of FederBoost's estimators that are not the method's


class Estimator(BaseEstimator):  # type: ignore[misc]
    """Trains a method on prepared rows."""

    protect: str
    seed: int
    min_count: int | None

    def _plan(self) -> tuple[Method, Preparation]:
        raise NotImplementedError

    @property
    def _allows_gaps(self) -> bool:
        return getattr(self, "missing", "keep") != "refuse"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._allows_gaps
        return tags

    def _checks(self, X: Any) -> dict[str, Any]:
        if is_frame(X):
            return {"skip_check_array": True}
        return {"dtype": np.float64, "ensure_all_finite": "allow-nan" if self._allows_gaps else True}

    def _train(self, X: Any, target: Any, groups: Any, task: Task) -> None:
        with _as_value_error():
            method, preparation = self._plan()
            table = _table(X, target, task)
            holdings = _holdings(table, groups)
            declared = {"classes": list(table.classes)} if table.classes else {}
            federation = Federation(holdings, seed=self.seed, declared=declared)
            training = federation.train(
                method,
                protect=self.protect,
                preparation=preparation,
                min_count=self.min_count,
                events=Events(),
            )
        self.model_ = training.model
        self.cost_ = training.ledger.summary()
        self.parties_ = np.array(holdings.names)

    def _ask(self, ask: str, X: Any) -> NDArray[Any]:
        validation.check_is_fitted(self)
        rows = validation.validate_data(self, X, reset=False, **self._checks(X))
        with _as_value_error():
            found: NDArray[Any] = getattr(self.model_, ask)(rows)
        return found


class Classifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    """What classifiers have in common."""

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Train; rows with the same entry in ``groups`` belong to one party (None: all to one)."""
        rows, labels = _pair(validation.validate_data(self, X, y, **self._checks(X)))
        check_classification_targets(labels)
        self.classes_, codes = np.unique(validation.column_or_1d(labels, warn=True), return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y holds one class, {self.classes_.tolist()}: a classifier needs two")
        self._train(rows, codes, groups, "classification")
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities of the classes."""
        return self._ask("predict_proba", X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most likely class of each row."""
        chosen = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[chosen])


class Regressor(RegressorMixin, Estimator):  # type: ignore[misc]
    """What regressors have in common."""

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Train; rows with the same entry in ``groups`` belong to one party (None: all to one)."""
        checks = {} if is_frame(X) else {"multi_output": True, "y_numeric": True}
        rows, targets = _pair(validation.validate_data(self, X, y, **checks, **self._checks(X)))
        if targets.ndim == 2 and targets.shape[1] == 1:
            targets = validation.column_or_1d(targets, warn=True)
        self._train(rows, targets, groups, "regression")
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the predicted targets of each row."""
        return self._ask("predict", X)


@dataclass(eq=False, repr=False)
class _FedHEONN(Estimator):
    lam: float = 1e-3
    activation: ActivationName | None = None
    mode: Literal["sealed", "paper", "robust"] = "sealed"
    scale: Literal["standard", "minmax", "none"] = "standard"
    protect: str = "plain"
    seed: int = 0
    min_count: int | None = None
    hidden: int = 0
    missing: Literal["refuse", "mean"] = "refuse"
    class_weight: Literal["balanced"] | None = None

    def _plan(self) -> tuple[FedHEONN, Preparation]:
        prepared = Preparation(scale=self.scale, missing=self.missing)
        hidden, weight = self.hidden, self.class_weight
        return FedHEONN(self.lam, self.activation, self.mode, hidden=hidden, class_weight=weight), prepared


class FedHEONNClassifier(Classifier, _FedHEONN):
    """FedHEONN as a scikit-learn classifier; of a DataFrame, columns of text or truth values are categories.

    Parameters
    ----------
    lam, activation, mode, hidden, class_weight
        As for :class:`tacit.FedHEONN`.
    scale, missing
        As for :class:`tacit.Preparation`: federated scaling, and whether missing numbers are refused.
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
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> hospitals = np.arange(len(y)) % 3
    >>> FedHEONNClassifier().fit(X, y, groups=hospitals).score(X, y) > 0.8
    True
    """


class FedHEONNRegressor(Regressor, _FedHEONN):
    """FedHEONN as a scikit-learn regressor, for one target or several.

    Parameters are those of :class:`FedHEONNClassifier`; any ``class_weight`` is refused. The activation
    softplus needs targets above 0, logistic ones between 0 and 1.
    """


@dataclass(eq=False, repr=False)
class _FederBoost(Estimator):
    trees: int = 100
    depth: int = 6
    rate: float = 0.3
    buckets: int = 64
    lam: float = 1.0
    gamma: float = 0.0
    min_child_weight: float = 1.0
    samples: float = 1.0
    columns: float = 1.0
    loss: Literal["auto", "logistic", "softmax", "squared", "poisson"] = "auto"
    class_weight: Literal["balanced"] | None = None
    protect: str = "plain"
    seed: int = 0
    min_count: int | None = None

    def _plan(self) -> tuple[FederBoost, Preparation]:
        own = {name: value for name, value in self.get_params().items() if name not in FEDERATED}
        return FederBoost(**own), Preparation(scale="none", missing="keep")

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """The gain of each column's splits, scaled to sum to one; zeros if no tree has a split."""
        validation.check_is_fitted(self)
        model: Any = self.model_
        gains = model.importances("gain")
        ordered = np.array([gains[column.name] for column in model.schema.columns])
        return ordered / (ordered.sum() or 1.0)


class FederBoostClassifier(Classifier, _FederBoost):
    """FederBoost as a scikit-learn classifier; missing numbers may stay missing.

    Parameters
    ----------
    trees, depth, rate, buckets, lam, gamma, min_child_weight, samples, columns, loss
        As for :class:`tacit.FederBoost`.
    class_weight, protect, seed, min_count
        As for :class:`FedHEONNClassifier`, which has the same attributes.

    Attributes
    ----------
    model_ : BoostedTrees
    feature_importances_ : ndarray

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> hospitals = np.arange(len(y)) % 3
    >>> FederBoostClassifier(trees=3, depth=2).fit(X, y, groups=hospitals).score(X, y) > 0.9
    True
    """


class FederBoostRegressor(Regressor, _FederBoost):
    """FederBoost as a scikit-learn regressor, for one target or several.

    Parameters and attributes are those of :class:`FederBoostClassifier`; any ``class_weight`` is refused.

    Examples
    --------
    >>> X = np.arange(60.0).reshape(30, 2)
    >>> FederBoostRegressor(trees=20, depth=3).fit(X, X[:, 0] ** 2).score(X, X[:, 0] ** 2) > 0.9
    True
    """


@contextmanager
def _as_value_error() -> Iterator[None]:
    try:
        yield
    except TacitError as error:
        raise ValueError(str(error)) from error


def _pair(checked: tuple[Any, Any]) -> tuple[Any, NDArray[Any]]:
    """Return rows, and targets as an array that fits them: of a DataFrame nobody has looked at those yet."""
    rows, targets = checked
    if is_frame(rows):
        targets = validation.check_array(targets, ensure_2d=False, dtype=None, input_name="y")
        validation.check_consistent_length(rows, targets)
    return rows, targets


def _table(X: Any, target: NDArray[Any], task: Task) -> Table:
    if not is_frame(X):
        return Table.of(X, target, task=task, name="X")
    data, names = to_arrow(X, "X"), list[str]()
    for index, column in enumerate(target.reshape(len(target), -1).T):
        names.append(f"target {index} of {len(data)} rows")
        data = data.append_column(names[-1], [np.asarray(column)])
    return to_table(data, "X", target=names, task=task, groups=())


def _holdings(table: Table, groups: Any) -> Holdings:
    owners = np.full(table.rows, "everybody") if groups is None else validation.column_or_1d(groups)
    if len(owners) != table.rows:
        raise ValueError(
            f"groups has {len(owners)} entries for {table.rows} rows: name the owner of each row"
        )
    names, codes = np.unique(owners, return_inverse=True)
    return holdings_of(table, codes, holdout=0.0, seed=0, names=[str(name) for name in names])
