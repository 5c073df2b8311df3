"""Trained models as scikit-learn estimators, which ``fit`` leaves as they are, like its ``FrozenEstimator``.

They take DataFrames by column name, or arrays in the order of ``feature_names_in_``.
"""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from tacit.models.predictor import Predictor


class _Fitted(BaseEstimator):  # type: ignore[misc]
    def __init__(self, model: Predictor) -> None:
        self.model = model

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        return np.array([column.name for column in self.model.schema.columns], dtype=object)

    @property
    def n_features_in_(self) -> int:
        return len(self.model.schema.columns)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: Any = None, y: Any = None) -> Self:
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        return self.model.predict(X)


class FittedClassifier(ClassifierMixin, _Fitted):  # type: ignore[misc]
    """A trained model as a classifier."""

    @property
    def classes_(self) -> NDArray[Any]:
        """The agreed classes, in the order of the probabilities."""
        return self.model.classes_

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities of the classes."""
        return self.model.predict_proba(X)


class FittedRegressor(RegressorMixin, _Fitted):  # type: ignore[misc]
    """A trained model as a regressor."""
