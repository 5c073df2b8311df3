"""A total under another name, of another sum, or over other clients than it says."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.core.errors import QuorumError
from tacit.core.message import Message
from tacit.protections.bfv import BFV
from tacit.protections.ckks import CKKS
from tacit.protections.noised import Noised
from tacit.protections.paillier import Paillier
from tacit.protections.plain import Plain
from tacit.protections.secret_sharing.committee import Committee
from tacit.protections.secret_sharing.shares import Shares
from tests.attacks.malicious import REFUSED, unchecked
from tests.conftest import quick_keys

PAILLIER = Paillier(holder="clients", key_bits=2048)
every_shared_key = pytest.mark.parametrize(
    "protection",
    [BFV(), CKKS(), PAILLIER, Shares(), Committee()],
    ids=["bfv", "ckks", "paillier", "shares", "committee"],
)
both_that_add = pytest.mark.parametrize(
    "protection", [BFV(), CKKS(), PAILLIER], ids=["bfv", "ckks", "paillier"]
)


class TestAnotherName:
    @every_shared_key
    def test_what_is_not_revealed_is_refused_by_name(self, malicious, protection):
        attack = malicious(protection)
        entry, _ = attack.gathered("private")
        assert "totals of private are not for the coordinator" in attack.disclosed(entry)

    @every_shared_key
    def test_the_same_under_a_name_that_is(self, malicious, protection):
        attack = malicious(protection)
        entry = {**attack.gathered("private")[0], "contribution": "scores"}
        assert REFUSED in attack.disclosed(entry)
        with unchecked():
            found = attack.disclosed(entry)
        assert np.allclose(found, sum(attack.rows.values()), atol=1e-7)

    def test_control_plain_totals_prove_nothing(self, malicious):
        attack = malicious(Plain(opens="clients"))
        entry = {**attack.gathered("private")[0], "contribution": "scores"}
        assert np.allclose(attack.disclosed(entry), sum(attack.rows.values()))

    def test_a_method_that_forgot_the_mark_is_told(self, malicious):
        attack = malicious(BFV())
        with pytest.raises(TypeError, match="private is not marked revealed=True"):
            attack.coordinator.reveal(attack.coordinator.components.method.private)


class TestAnotherSum:
    @both_that_add
    def test_a_total_of_an_earlier_sum(self, malicious, protection):
        """The rows have not changed; had they, the difference of both totals would show how."""
        attack = malicious(protection)
        old, _ = attack.gathered("scores")
        new, _ = attack.gathered("scores")
        assert REFUSED in attack.disclosed({**old, "sum": new["sum"]})
        assert isinstance(attack.disclosed(new), np.ndarray)
        assert "disclosed a total of sum 2 already" in attack.disclosed(old)

    @both_that_add
    def test_some_of_both_sums(self, malicious, protection):
        attack = malicious(protection)
        old, before = attack.gathered("scores")
        new, after = attack.gathered("scores")
        mixed = [(after if i else before)[name] for i, name in enumerate(attack.rows)]
        for number in (old["sum"], new["sum"]):
            assert REFUSED in attack.disclosed(
                {**new, **attack.added(*mixed), "sum": number}, f"client-{number}"
            )

    def test_a_total_that_is_applied_twice(self, malicious):
        attack = malicious(BFV())
        coordinator = attack.coordinator
        method, log = coordinator.components.method, coordinator.link.briefing.log
        coordinator.round(method.private, method.keep)
        log.append(log[0])
        with pytest.raises(QuorumError, match="has applied that of sum 1: a replay"):
            coordinator.finish()


class TestOtherClients:
    @both_that_add
    def test_fewer_than_it_says(self, malicious, protection):
        attack = malicious(protection)
        entry, sent = attack.gathered("scores")
        part = attack.added(*(sent[name] for name in ("client-1", "client-2", "client-3")))
        assert REFUSED in attack.disclosed({**entry, **part})
        two = {**entry, **attack.added(sent["client-1"], sent["client-2"])}
        assert REFUSED in attack.disclosed(
            {**two, **attack.named("client-1", "client-2", "client-3")}, "client-2"
        )
        few = {**two, **attack.named("client-1", "client-2")}
        assert "total over 2 contributions, agreed were at least 3" in attack.disclosed(few, "client-3")

    @every_shared_key
    def test_others_than_it_says(self, malicious, protection):
        attack = malicious(protection)
        entry, _ = attack.gathered("scores")
        assert REFUSED in attack.disclosed({**entry, **attack.named("client-1", "client-2", "client-4")})

    @both_that_add
    def test_one_client_hands_over_one_total_of_a_sum(self, malicious, protection):
        """Both are honest totals, and their difference is one client."""
        attack = malicious(protection)
        entry, sent = attack.gathered("scores")
        four = [name for name in attack.rows if name != "client-5"]
        less = {**entry, **attack.added(*(sent[name] for name in four)), **attack.named(*four)}
        assert isinstance(attack.disclosed(entry), np.ndarray)
        assert "disclosed a total of sum 1 already" in attack.disclosed(less)
        # Two clients that open one each are not kept from it: that stands in SECURITY.md.
        assert isinstance(attack.disclosed(less, "client-3"), np.ndarray)


def test_all_refusals_sound_alike(malicious):
    """What is too large, under another key, damaged or not proved: no word tells which."""
    attack = malicious(BFV())
    entry, sent = attack.gathered("scores")
    blob = entry["total/cipher"].data
    kind = type(entry["total/cipher"])
    forgeries = [
        {"total/cipher": kind("cipher", blob[:60] + bytes([blob[60] ^ 1]) + blob[61:])},
        {"total/cipher": kind("cipher", blob[:-1])},
        {"total/cipher": malicious(BFV()).gathered("scores")[0]["total/cipher"]},
        {"total/tag": kind("public", bytes(8))},
        {"total/tag": kind("public", b"\xff" * 8)},
        {"total/cipher": kind("sealed", blob)},
        attack.added(*list(sent.values())[:4]),
        {"in_total": b"\xff" * 9},
        {"in_total": b""},
        {"total/claim": 1, "total/tag": kind("public", bytes(8))},
    ]
    answers = {attack.disclosed({**entry, **forged}) for forged in forgeries}
    assert len(answers) == 1
    assert REFUSED in answers.pop()


@pytest.mark.slow
def test_noise_around_it_changes_nothing(malicious):
    protection = Noised(inner="ckks", where="distributed", epsilon=2.0, clip=2.0)
    attack = malicious(protection)
    entry, sent = attack.gathered("scores")
    with quick_keys():
        assert REFUSED in attack.disclosed({**entry, "total/noise_asked": 50})
        part = attack.coordinator.protection.inner
        total = part.add(part.add(None, sent["client-1"]), sent["client-2"])
    forged = {f"total/{name}": value for name, value in total.items()}
    assert REFUSED in attack.disclosed({**entry, **forged})
    assert isinstance(attack.disclosed(entry), np.ndarray)


def test_a_message_has_no_say_in_what_a_total_claims(malicious):
    attack = malicious(BFV())
    entry, _ = attack.gathered("scores")
    assert "total/claim" not in Message(entry)
    assert isinstance(attack.disclosed({**entry, "total/claim": b"anything"}), np.ndarray)
