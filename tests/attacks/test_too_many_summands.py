"""More in a total than its ring has room for: coefficients wrap around, and all tags are right.

The coordinator says for how many summands clients encrypt, and how many are in a total stands in its header,
which no tag covers. Told of three, five clients take a ring with room for four times a value's bound: five
times that bound opened as minus three. And a standing total may outgrow the scale that its founders settled.
"""

from __future__ import annotations

from dataclasses import dataclass
from unittest import mock

import numpy as np
import pytest

from tacit import Federation
from tacit.core.errors import DataError
from tacit.core.layout import Field, Layout
from tacit.core.marks import contribution
from tacit.core.values import Blob
from tacit.crypto.bfv import INTEGERS, Parameters, ring_of
from tacit.crypto.seal.blob import read, residues_of, set_of, write
from tacit.data.table import Table
from tacit.protections.bfv import BFV
from tacit.protections.encrypted import EncryptedCoordinator
from tacit.protections.keys.proved_totals import add_tags
from tacit.protections.noised import Noised
from tacit.standing import Standing
from tests.attacks.conftest import CLIENTS
from tests.attacks.malicious import REFUSED, PrivateAndScores, unchecked

DECLARED = 3


@dataclass(frozen=True)
class Full(PrivateAndScores):
    """Scores as large as their bound."""

    @contribution(PrivateAndScores._layout, revealed=True)
    def scores(self, party, shared):
        return {"vector": np.ones(shared.schema.features)}


@pytest.fixture
def attack(malicious):
    return malicious(BFV(), 4, method=Full(), quorum=0.6)


def crowded(attack):
    """A total of all five clients, of whom each was told that there are three summands."""
    honest = EncryptedCoordinator.accepted

    def accepted(self, pending, summands):
        return honest(self, pending, DECLARED)

    with mock.patch.object(EncryptedCoordinator, "accepted", accepted):
        entry, sent = attack.gathered("scores")
    parts = list(sent.values())
    blobs = [attack.added(*some)["total/cipher"].data for some in (parts[:DECLARED], parts[DECLARED:])]
    ring = ring_of(Parameters.named(set_of(blobs[0])))
    headers = [read(ring, attack.coordinator.protection.key_id, blob, INTEGERS) for blob in blobs]
    found = [residues_of(ring, header, blob) for header, blob in zip(headers, blobs, strict=True)]
    summed = [(one + two) % np.uint64(prime) for one, two, prime in zip(*found, ring.primes, strict=True)]
    cipher, tag = write(ring, headers[0], summed), add_tags(*parts, moduli=ring.primes)
    return {**entry, **attack.named(*sent), "total/cipher": Blob("cipher", cipher), "total/tag": tag}


def test_control_the_sum_of_all_wraps_around(attack):
    total = crowded(attack)
    with unchecked():
        assert attack.disclosed(total).tolist() == [CLIENTS - 8.0] * 4


def test_a_total_of_more_than_were_declared_stays_shut(attack):
    assert REFUSED in attack.disclosed(crowded(attack))


def test_as_many_as_were_declared_open(attack):
    assert attack.disclosed(attack.gathered("scores")[0]).tolist() == [float(CLIENTS)] * 4


def test_noise_has_room_where_less_is_known_of_a_total():
    """Or noise of many times the total would wrap around to values that bear hardly any."""
    protection = Noised(inner="bfv", where="distributed", epsilon=0.1)
    layout = Layout(Field("vector", (4,), bound=1.0, total=1.0))
    grid = protection.choose_grid(layout, CLIENTS, sums=1, min_clients=3)
    slots = BFV().slots(grid.layout, CLIENTS)
    (held,) = {float(bound) for bound in slots.bounds}
    assert slots.reach * held > 6 * grid.unit * np.sqrt(CLIENTS * grid.variance)


# -- a total that stands -----------------------------------------------------------------------------------

FOUNDERS, LATER = [20] * 3, [60 * 14] * 4  # rows: one client's are within sixteen times the founders'
FEATURES = 64


@pytest.fixture
def grown(tmp_path):
    """A standing federation that has grown to 57 times its founders' rows."""
    rng = np.random.default_rng(0)

    def rows(count):
        signs = [rng.permutation(np.arange(count) % 2 * 2.0 - 1) for _ in range(FEATURES)]
        values = np.stack(signs, axis=1) * rng.choice([0.9, 1.1], size=(count, FEATURES))
        return Table.of(values, np.where(values[:, 0] > 0, "yes", "no"))

    tables = {f"client-{i + 1}": rows(count) for i, count in enumerate(FOUNDERS + LATER)}
    federation = Federation.of(tables, declared={"classes": ["no", "yes"]})

    def model():
        with Standing.start(tmp_path / "s", federation, protect=BFV(), founders=len(FOUNDERS)) as opened:
            opened.add(tables)
            model, first = opened.weights(), tables["client-1"]
            return model.score(first.values, np.array(first.classes)[first.target])

    return model


@pytest.mark.slow
def test_control_without_room_it_gave_a_model_that_knows_nothing(grown):
    with mock.patch.object(Layout, "growing", lambda self: self):
        assert grown() == 0.5


@pytest.mark.slow
def test_a_standing_total_beyond_its_scale_is_refused(grown):
    with pytest.raises(DataError, match="'gram' of all clients exceeds 1, the room left at the start"):
        grown()
