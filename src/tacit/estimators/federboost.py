"""FederBoost as scikit-learn estimators."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from tacit.data.preparation import Preparation
from tacit.estimators.base import Classifier, Estimator, Regressor
from tacit.methods.federboost import FederBoost

FEDERATED = ("protect", "seed", "min_count")  # settings that are not the method's


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
        check_is_fitted(self)
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
