"""What estimators have in common: from rows and groups to a trained model."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

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
