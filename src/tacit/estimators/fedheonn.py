"""FedHEONN as scikit-learn estimators."""

from typing import Literal

from tacit.data.preparation import Preparation
from tacit.estimators.base import Classifier, Estimator, Regressor
from tacit.methods.fedheonn import FedHEONN
from tacit.models.activations import ActivationName

Mode = Literal["sealed", "paper", "robust"]
Missing = Literal["refuse", "mean"]
Scale = Literal["standard", "minmax", "none"]


class _FedHEONN(Estimator):
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
        self.lam, self.activation, self.mode, self.hidden = lam, activation, mode, hidden
        self.scale, self.missing = scale, missing
        self.protect, self.seed, self.min_count = protect, seed, min_count

    def _plan(self) -> tuple[FedHEONN, Preparation]:
        weight = getattr(self, "class_weight", None)
        method = FedHEONN(self.lam, self.activation, self.mode, hidden=self.hidden, class_weight=weight)
        return method, Preparation(scale=self.scale, missing=self.missing)


class FedHEONNClassifier(Classifier, _FedHEONN):
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
    >>> import numpy as np
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


class FedHEONNRegressor(Regressor, _FedHEONN):
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
    >>> import numpy as np
    >>> X = np.arange(12.0).reshape(6, 2)
    >>> FedHEONNRegressor(lam=0.0, mode="robust").fit(X, X[:, 0] * 3 + 1).predict(X).round(6).tolist()
    [1.0, 7.0, 13.0, 19.0, 25.0, 31.0]
    """
