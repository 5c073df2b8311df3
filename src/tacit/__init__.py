"""Tacit: privacy-preserving horizontal federated learning. Learn together, tell nothing.

>>> import tacit
>>> federation = tacit.Federation.embedded("wine", clients=5)
>>> model = tacit.FedHEONN(lam=0.01).fit(federation)
>>> model.predict(federation.test.values[:2]).tolist()
['class_0', 'class_0']
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.core.errors import TacitError as TacitError
    from tacit.data.files import load as load
    from tacit.data.preparation import Preparation as Preparation
    from tacit.data.table import Table as Table
    from tacit.estimators import FederBoostClassifier as FederBoostClassifier
    from tacit.estimators import FederBoostRegressor as FederBoostRegressor
    from tacit.estimators import FedHEONNClassifier as FedHEONNClassifier
    from tacit.estimators import FedHEONNRegressor as FedHEONNRegressor
    from tacit.federation import Federation as Federation
    from tacit.ledger.cost import CostLedger as CostLedger
    from tacit.ledger.exposure import ExposureLedger as ExposureLedger
    from tacit.models.files import load_model as load_model
    from tacit.runs.report import report as report
    from tacit.standing import Standing as Standing
    from tacit.training import Training as Training

__version__ = "0.1.0"

# Imported when first used, so that `import tacit` costs next to nothing. Methods, protections and the
# groups of their settings are found in the registries.
_HOMES = {
    "CostLedger": "tacit.ledger.cost",
    "ExposureLedger": "tacit.ledger.exposure",
    "Federation": "tacit.federation",
    "FedHEONNClassifier": "tacit.estimators",
    "FedHEONNRegressor": "tacit.estimators",
    "FederBoostClassifier": "tacit.estimators",
    "FederBoostRegressor": "tacit.estimators",
    "Preparation": "tacit.data.preparation",
    "Table": "tacit.data.table",
    "TacitError": "tacit.core.errors",
    "Standing": "tacit.standing",
    "Training": "tacit.training",
    "load": "tacit.data.files",
    "load_model": "tacit.models.files",
    "report": "tacit.runs.report",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name == "__all__":
        return [*_HOMES, *_components()]
    if not name.startswith("_"):
        from tacit.methods import METHODS
        from tacit.protections import PROTECTIONS

        for registry in (METHODS, PROTECTIONS):
            if name in registry.classes:
                return registry.get(registry.classes[name])
        if name in (found := _components()):
            return found[name]
    raise AttributeError(f"module 'tacit' has no attribute '{name}'")


def _components() -> dict[str, type]:
    from tacit.core.settings_group import groups_of
    from tacit.methods import METHODS
    from tacit.protections import PROTECTIONS

    own = [registry.get(name) for registry in (METHODS, PROTECTIONS) for name in registry.classes.values()]
    groups = [type(group) for kind in own for group in groups_of(kind).values()]
    return {kind.__name__: kind for kind in (*own, *groups)}


def __dir__() -> list[str]:
    return [*globals(), *__getattr__("__all__")]
