"""The digest of a replica that holds few secrets: the coordinator tries which values have it.

It may ask for the digest after any sum. Of an averaging method's first one only the sum of squared numbers of
rows is not public: some hundred tries gave it, though clients alone had opened it.
"""

from __future__ import annotations

import numpy as np
import pytest

from tacit.core.shared import Shared
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.methods.fedavg import FedAvg
from tacit.protections.ckks import CKKS
from tacit.protections.plain import Plain
from tacit.protections.secret_sharing.shares import Shares
from tests.conftest import divide

MOST = 300


def guessed(coordinator):
    """The total that clients opened, by the digest of what they made of it; None if none has it."""
    method = coordinator.components.method
    coordinator.enrol()
    coordinator.protection.prepare(2)
    method.agree(coordinator)
    digest, schema = coordinator.finish().digest, coordinator.schema
    start = method.init(schema, coordinator.manifest.rng("init"))
    replicas = (Shared(schema, {**start, "scale": total**0.5}) for total in range(MOST))
    return next((total for total, found in enumerate(replicas) if found.digest() == digest), None)


@pytest.mark.parametrize(
    ("protection", "experiment", "found"),
    [
        (Plain(opens="clients"), False, 100),
        (CKKS(), True, 100),  # one experimenter has all of it, and compares runs by their digests
        (CKKS(), False, None),
        (Shares(), False, None),
    ],
    ids=["control", "experiment", "ckks", "shares"],
)
def test_a_total_that_it_did_not_open(coordinator_of, protection, experiment, found):
    rows = np.random.default_rng(1).normal(size=(20, 2))
    options = {"data": divide(Table.of(rows, np.array(["no", "yes"])[np.arange(20) % 2]), 4)}
    options |= {"preparation": Preparation(scale="none"), "min_clients": 3, "experiment": experiment}
    method = FedAvg.from_config({"hidden": (2,), "rounds": 1})
    assert guessed(coordinator_of(method, protection, **options)) == found
