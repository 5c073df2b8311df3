"""The runs that ``_same_models.py`` trains: which methods, under which protections, on which data."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

Settings = tuple[str, dict[str, Any]]  # registered name, and settings as flags would give them

SEEDS = (0, 1)
KEY_BITS = 2048  # of Paillier: the shortest that is accepted, and the quickest

SMALL: dict[str, Any] = {"hidden": 6, "rounds": 3, "epochs": 2, "batch": 8}

# Every registered method, trained under every protection.
MAIN_METHODS: dict[str, Settings] = {
    "fedheonn": ("fedheonn", {}),
    "fedheonn-paper": ("fedheonn", {"mode": "paper"}),
    "fedheonn-robust": ("fedheonn", {"mode": "robust"}),
    "fedheonn-ensemble": ("fedheonn-ensemble", {"estimators": 3}),
    "fedavg": ("fedavg", SMALL),
    "fedprox": ("fedprox", {**SMALL, "mu": 0.1}),
    "hwfedavg": ("hwfedavg", SMALL),
    "nwfedavg": ("nwfedavg", SMALL),
    "fedadagrad": ("fedadagrad", SMALL),
    "fedadam": ("fedadam", SMALL),
    "fedyogi": ("fedyogi", SMALL),
}
# Settings that take another way through the code, trained under a few.
FURTHER_METHODS: dict[str, Settings] = {
    "fedheonn-linear": ("fedheonn", {"activation": "linear", "lam": 0.1}),
    "fedheonn-rank": ("fedheonn", {"mode": "paper", "rank": 5}),
    "fedheonn-hidden": ("fedheonn", {"hidden": 12, "layer": "tanh"}),
    "fedheonn-finalists": ("fedheonn", {"lams": [0.01, 1.0], "folds": 3, "finalists": 2}),
    "ensemble-paper": ("fedheonn-ensemble", {"estimators": 3, "mode": "paper"}),
    "ensemble-robust": ("fedheonn-ensemble", {"estimators": 3, "mode": "robust", "replace_samples": True}),
    "fedavg-cohort": ("fedavg", {**SMALL, "fraction": 0.5, "weighting": "equal", "momentum": 0.9}),
    "fedavg-last-layer": ("fedavg", {**SMALL, "protect_layers": 1, "optimiser": "adam", "rate": 0.01}),
    "fedavg-patience": ("fedavg", {**SMALL, "rounds": 5, "patience": 1, "collapse": 0.1, "rate": 0.5}),
    "nwfedavg-subsample": ("nwfedavg", {**SMALL, "heterogeneous": "subsample", "by_size": False}),
    "fedadam-corrected": ("fedadam", {**SMALL, "bias_correction": True}),
}
OTHER_METHODS: dict[str, Settings] = {
    "fedavg-equal": ("fedavg", {**SMALL, "weighting": "equal"}),  # noise suits no other averaging
    "fedavg-torch": ("fedavg", {"network": "cnn", "rounds": 2}),
    "fedavg-example-noise": ("fedavg", {**SMALL, "example_noise": 1.0, "example_epsilon": 100.0}),
}
METHOD_SETTINGS = {**MAIN_METHODS, **FURTHER_METHODS, **OTHER_METHODS}

PROTECTION_SETTINGS: dict[str, Settings] = {
    "plain": ("plain", {}),
    "plain-clients": ("plain", {"opens": "clients"}),
    "bfv": ("bfv", {}),
    "ckks": ("ckks", {}),
    "paillier-server": ("paillier", {"holder": "key-server", "key_bits": KEY_BITS}),
    "paillier-clients": ("paillier", {"holder": "clients", "key_bits": KEY_BITS}),
    "ring": ("ring", {"key_bits": KEY_BITS}),
    "masked": ("masked", {}),
    "masked-neighbours": ("masked", {"neighbours": 4, "bits": 24}),
    "masked-active": ("masked", {"active": True}),
    "shares": ("shares", {}),
    "shares-coordinator": ("shares", {"opens": "coordinator"}),
    "additive": ("shares", {"scheme": "additive"}),
    "additive-coordinator": ("shares", {"scheme": "additive", "opens": "coordinator"}),
    "committee": ("committee", {}),
    "committee-coordinator": ("committee", {"opens": "coordinator"}),
    "committee-additive": ("committee", {"scheme": "additive"}),
    "noised": ("noised", {"epsilon": 50.0}),
    "noised-distributed": ("noised", {"inner": "masked", "where": "distributed", "epsilon": 50.0}),
}
FURTHER_PROTECTIONS = ("plain", "plain-clients", "bfv", "ckks", "masked")


class Run(NamedTuple):
    """One training: what is learnt, how it is protected, on which data, by which seed."""

    method: str
    protection: str
    data: str = "wine"
    seed: int = 0

    @property
    def name(self) -> str:
        return f"{self.method} {self.data} {self.protection} seed {self.seed}"


def all_runs() -> Iterator[Run]:
    """All runs: every method under every protection and both seeds, and more ways of some methods."""
    for method, protection, seed in product(MAIN_METHODS, PROTECTION_SETTINGS, SEEDS):
        yield Run(method, protection, seed=seed)
    for protection in PROTECTION_SETTINGS:
        yield Run("fedheonn", protection, "regression")
        yield Run("fedavg-equal", protection)
    ways = ("fedheonn-paper", "fedheonn-robust", "fedheonn-ensemble")
    for method, protection in product(ways, FURTHER_PROTECTIONS):
        yield Run(method, protection, "regression")
    for method, protection in product(FURTHER_METHODS, FURTHER_PROTECTIONS):
        yield Run(method, protection, "wine-holdout" if "patience" in method else "wine")
    for method, protection in product(("fedheonn", "fedavg", "fedadam"), ("plain", "masked")):
        yield Run(method, protection, "wine-continued")
    for protection in ("plain", "masked"):
        yield Run("fedavg-torch", protection, "digits")
    yield Run("fedavg-example-noise", "masked")
