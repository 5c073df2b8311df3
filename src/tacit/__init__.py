"""Tacit: privacy-preserving horizontal federated learning. Learn together, tell nothing.

>>> import tacit
>>> federation = tacit.Federation.embedded("wine", clients=5)
>>> model = tacit.FedHEONN(lam=0.01).fit(federation)
>>> model.predict(federation.test.values[:2]).tolist()
['class_0', 'class_0']
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.core.errors import TacitError as TacitError
    from tacit.data.files import load as load
    from tacit.data.preparation import Preparation as Preparation
    from tacit.data.table import Table as Table
    from tacit.estimators import FedHEONNClassifier as FedHEONNClassifier
    from tacit.estimators import FedHEONNRegressor as FedHEONNRegressor
    from tacit.federation import Federation as Federation
    from tacit.methods.ensemble import FedHEONNEnsemble as FedHEONNEnsemble
    from tacit.methods.fedavg import FedAvg as FedAvg
    from tacit.methods.fedheonn import FedHEONN as FedHEONN
    from tacit.methods.fedopt import FedAdagrad as FedAdagrad
    from tacit.methods.fedopt import FedAdam as FedAdam
    from tacit.methods.fedopt import FedYogi as FedYogi
    from tacit.methods.fedprox import FedProx as FedProx
    from tacit.methods.homogeneity import HWFedAvg as HWFedAvg
    from tacit.methods.homogeneity import NWFedAvg as NWFedAvg
    from tacit.protections.plain import Plain as Plain

__version__ = "0.1.0"

# Imported when first used, so that `import tacit` costs next to nothing.
_HOMES = {
    "Federation": "tacit.federation",
    "FedAdagrad": "tacit.methods.fedopt",
    "FedAdam": "tacit.methods.fedopt",
    "FedAvg": "tacit.methods.fedavg",
    "FedHEONN": "tacit.methods.fedheonn",
    "FedHEONNClassifier": "tacit.estimators",
    "FedHEONNEnsemble": "tacit.methods.ensemble",
    "FedHEONNRegressor": "tacit.estimators",
    "FedProx": "tacit.methods.fedprox",
    "FedYogi": "tacit.methods.fedopt",
    "HWFedAvg": "tacit.methods.homogeneity",
    "NWFedAvg": "tacit.methods.homogeneity",
    "Plain": "tacit.protections.plain",
    "Preparation": "tacit.data.preparation",
    "Table": "tacit.data.table",
    "TacitError": "tacit.core.errors",
    "load": "tacit.data.files",
}

__all__ = [
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedHEONN",
    "FedHEONNClassifier",
    "FedHEONNEnsemble",
    "FedHEONNRegressor",
    "FedProx",
    "FedYogi",
    "Federation",
    "HWFedAvg",
    "NWFedAvg",
    "Plain",
    "Preparation",
    "Table",
    "TacitError",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tacit' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
