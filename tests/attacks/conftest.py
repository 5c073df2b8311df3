"""A malicious coordinator with clients of one row each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tests.attacks.malicious import Malicious, PrivateAndScores
from tests.conftest import divide

CLIENTS = 5


@pytest.fixture
def malicious(coordinator_of: Callable[..., Any]) -> Callable[..., Malicious]:
    """Make a coordinator that has enrolled its clients, and will not follow the protocol from now on."""

    def make(protection: Any, values: int = 4, **settings: Any) -> Malicious:
        rows = np.random.default_rng(1).uniform(-1, 1, (CLIENTS, values))
        held = divide(Table.of(rows, np.zeros(CLIENTS), task="regression"), CLIENTS)
        options = {"preparation": Preparation(scale="none"), "min_clients": 3, "experiment": False}
        method = settings.pop("method", PrivateAndScores())
        made = coordinator_of(method, protection, data=held, **{**options, **settings})
        found = Malicious(made)
        found.rows = {f"client-{i + 1}": row for i, row in enumerate(rows)}
        return found

    return make
