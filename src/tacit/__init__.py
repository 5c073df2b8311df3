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
    from tacit.methods.averaging.architecture import Architecture as Architecture
    from tacit.methods.averaging.change import Change as Change
    from tacit.methods.averaging.early_stopping import Stopping as Stopping
    from tacit.methods.averaging.example_privacy import ExamplePrivacy as ExamplePrivacy
    from tacit.methods.averaging.local_training import LocalTraining as LocalTraining
    from tacit.methods.averaging.weighting import Weighting as Weighting
    from tacit.methods.ensemble import FedHEONNEnsemble as FedHEONNEnsemble
    from tacit.methods.fedavg import FedAvg as FedAvg
    from tacit.methods.fedheonn import FedHEONN as FedHEONN
    from tacit.methods.fedopt import AdagradStep as AdagradStep
    from tacit.methods.fedopt import AdamStep as AdamStep
    from tacit.methods.fedopt import FedAdagrad as FedAdagrad
    from tacit.methods.fedopt import FedAdam as FedAdam
    from tacit.methods.fedopt import FedYogi as FedYogi
    from tacit.methods.fedopt import YogiStep as YogiStep
    from tacit.methods.fedprox import FedProx as FedProx
    from tacit.methods.fedprox import ProximalTraining as ProximalTraining
    from tacit.methods.homogeneity import HomogeneityWeighting as HomogeneityWeighting
    from tacit.methods.homogeneity import HWFedAvg as HWFedAvg
    from tacit.methods.homogeneity import InverseHomogeneityWeighting as InverseHomogeneityWeighting
    from tacit.methods.homogeneity import NWFedAvg as NWFedAvg
    from tacit.protections.plain import Plain as Plain

__version__ = "0.1.0"

# Imported when first used, so that `import tacit` costs next to nothing.
_HOMES = {
    "AdagradStep": "tacit.methods.fedopt",
    "AdamStep": "tacit.methods.fedopt",
    "Architecture": "tacit.methods.averaging.architecture",
    "Change": "tacit.methods.averaging.change",
    "ExamplePrivacy": "tacit.methods.averaging.example_privacy",
    "FedAdagrad": "tacit.methods.fedopt",
    "FedAdam": "tacit.methods.fedopt",
    "FedAvg": "tacit.methods.fedavg",
    "Federation": "tacit.federation",
    "FedHEONN": "tacit.methods.fedheonn",
    "FedHEONNClassifier": "tacit.estimators",
    "FedHEONNEnsemble": "tacit.methods.ensemble",
    "FedHEONNRegressor": "tacit.estimators",
    "FedProx": "tacit.methods.fedprox",
    "FedYogi": "tacit.methods.fedopt",
    "HomogeneityWeighting": "tacit.methods.homogeneity",
    "HWFedAvg": "tacit.methods.homogeneity",
    "InverseHomogeneityWeighting": "tacit.methods.homogeneity",
    "load": "tacit.data.files",
    "LocalTraining": "tacit.methods.averaging.local_training",
    "NWFedAvg": "tacit.methods.homogeneity",
    "Plain": "tacit.protections.plain",
    "Preparation": "tacit.data.preparation",
    "ProximalTraining": "tacit.methods.fedprox",
    "Stopping": "tacit.methods.averaging.early_stopping",
    "Table": "tacit.data.table",
    "TacitError": "tacit.core.errors",
    "Weighting": "tacit.methods.averaging.weighting",
    "YogiStep": "tacit.methods.fedopt",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tacit' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
