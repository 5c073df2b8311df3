"""Scikit-learn estimators: ``fit(X, y, groups=...)``, where a row's group is the party that owns it.

They let a federated method stand wherever scikit-learn takes an estimator: in pipelines, in grid
searches, in cross-validation. Rows come in one array, so this is for experiments; the training inside
is the real one, with every message encoded and every sum protected as asked.
"""

from tacit.estimators.federboost import FederBoostClassifier, FederBoostRegressor
from tacit.estimators.fedheonn import FedHEONNClassifier, FedHEONNRegressor

__all__ = ["FedHEONNClassifier", "FedHEONNRegressor", "FederBoostClassifier", "FederBoostRegressor"]
