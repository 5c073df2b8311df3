"""FedHEONN as scikit-learn estimators."""

from dataclasses import dataclass
from typing import Literal

from tacit.data.preparation import Preparation
from tacit.estimators.base import Classifier, Estimator, Regressor
from tacit.methods.fedheonn import FedHEONN
from tacit.models.activations import ActivationName


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
