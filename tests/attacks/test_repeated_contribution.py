"""One client's contribution, added to itself until it looks like a total over enough clients."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.protections.bfv import BFV
from tacit.protections.ckks import CKKS
from tacit.protections.paillier import Paillier
from tests.attacks.malicious import REFUSED, unchecked

VICTIM = "client-2"
every_key = pytest.mark.parametrize(
    "protection",
    [BFV(), CKKS(), Paillier(holder="clients", key_bits=2048)],
    ids=["bfv", "ckks", "paillier"],
)


def repeated(attack, times):
    entry, sent = attack.gathered("scores")
    return {**entry, **attack.added(*[sent[VICTIM]] * times)}


@every_key
def test_without_a_proof_it_shows_the_client(malicious, protection):
    attack = malicious(protection)
    forged = {**repeated(attack, 4), "contributors": 5}
    with unchecked():
        found = attack.disclosed(forged)
    assert np.allclose(found, 4 * attack.rows[VICTIM] / 2, atol=1e-7)


@every_key
def test_with_a_proof_it_does_not_open(malicious, protection):
    attack = malicious(protection)
    forged = repeated(attack, 4)
    names = [["client-2"], ["client-1", "client-2", "client-3", "client-4"], list(attack.rows)]
    for chosen in names:
        for contributors in {len(chosen), 4, 5}:
            claimed = {**forged, **attack.named(*chosen), "contributors": contributors}
            answer = attack.disclosed(claimed, by=f"client-{contributors}")
            reason = "agreed were at least 3" if contributors < 3 else REFUSED
            assert reason in answer


def test_nor_if_the_client_is_on_the_list_several_times(malicious):
    attack = malicious(BFV())
    forged = repeated(attack, 3)
    roll = attack.coordinator.link.briefing.roll
    roll.names = [VICTIM, VICTIM, VICTIM]
    roll.told.clear()
    answer = attack.disclosed({**forged, "in_total": b"\x07", "contributors": 3})
    assert REFUSED in answer
