"""Two vectors of one client under the same pad: the difference of their tags has none.

With the tag of x - x' in hand, the coordinator can add that difference to any total of the sum, and the total
still proves itself. So a client tags one vector for a sum, whatever it is asked.
"""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from tacit.core.errors import MessageError
from tacit.protections.bfv import BFV
from tacit.protections.ckks import CKKS
from tacit.protections.keys.proved_totals import ProvedTotals
from tacit.protections.paillier import Paillier
from tests.attacks.malicious import REFUSED, PrivateAndScores
from tests.conftest import quick_keys

VICTIM = "client-2"
every_key = pytest.mark.parametrize(
    "protection", [BFV(), CKKS(), Paillier(holder="clients", key_bits=2048)], ids=["bfv", "ckks", "paillier"]
)
encrypted = pytest.mark.parametrize("protection", [BFV(), CKKS()], ids=["bfv", "ckks"])


def asked_again(attack, number, name="scores", change=1.0):
    """Ask the victim for a contribution to a sum, after its rows have changed; what it sends, or why not."""
    coordinator = attack.coordinator
    pending = coordinator.begin_sum(getattr(coordinator.components.method, name), (VICTIM,))
    pending.number = number
    scores = PrivateAndScores.scores

    def changed(self, party, shared):
        return {"vector": change * scores(self, party, shared)["vector"]}

    changed.__dict__.update(scores.__dict__)
    with quick_keys(), mock.patch.object(PrivateAndScores, "scores", changed):
        found = dict(pending.contributions({}, {"summands": 5}))
    return found.get(VICTIM), pending.failures.get(VICTIM, "")


@every_key
def test_a_second_vector_for_the_same_sum_is_refused(malicious, protection):
    attack = malicious(protection)
    attack.gathered("scores")
    for number, name, change in ((1, "scores", 0.5), (1, "private", 1.0)):
        reply, failure = asked_again(attack, number, name, change)
        assert reply is None
        assert "contributed to sum 1, and is asked for another contribution to sum 1" in failure


@every_key
def test_nor_for_an_earlier_one(malicious, protection):
    attack = malicious(protection)
    attack.gathered("scores")
    attack.gathered("scores")
    _, failure = asked_again(attack, 1)
    assert "contributed to sum 2, and is asked for another contribution to sum 1" in failure


@encrypted
def test_the_same_vector_again_has_the_same_ciphertext_and_tag(malicious, protection):
    attack = malicious(protection)
    _, sent = attack.gathered("scores")
    reply, _ = asked_again(attack, 1)
    assert (reply["cipher"], reply["tag"]) == (sent[VICTIM]["cipher"], sent[VICTIM]["tag"])


def anew(self, term, fingerprint, make):
    """What a client did that did not remember what it sent."""
    return make()


@encrypted
def test_control_another_ciphertext_of_the_same_vector_can_be_swapped_into_the_total(malicious, protection):
    """And so can any multiple of their difference, which is noise that the coordinator chose."""
    attack = malicious(protection)
    entry, sent = attack.gathered("scores")
    with mock.patch.object(ProvedTotals, "_once", anew):
        second, _ = asked_again(attack, 1)
    assert second["cipher"] != sent[VICTIM]["cipher"]
    others = [message for name, message in sent.items() if name != VICTIM]
    assert REFUSED not in str(attack.disclosed({**entry, **attack.added(*others, second)}))


@every_key
def test_control_without_the_refusal_the_pads_cancel(malicious, protection):
    """Two totals of one sum open that differ by what changed in one client's rows."""
    attack = malicious(protection)
    entry, sent = attack.gathered("scores")
    with mock.patch.object(ProvedTotals, "_once", anew):
        second, _ = asked_again(attack, 1, change=0.5)
    others = [message for name, message in sent.items() if name != VICTIM]
    one = attack.disclosed(entry)
    two = attack.disclosed({**entry, **attack.added(*others, second)})
    assert np.allclose(one - two, attack.rows[VICTIM] / 4, atol=1e-7)


@pytest.mark.parametrize("number", [float("nan"), 1.5, "1", True])
def test_a_sum_has_a_whole_number(malicious, number):
    attack = malicious(BFV())
    attack.gathered("scores")
    _, failure = asked_again(attack, number)
    assert MessageError.__name__ in failure
    assert "whole number" in failure
