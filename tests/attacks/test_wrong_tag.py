"""A client that sends a wrong tag, or none: it can stop a run, and gets nothing opened."""

from __future__ import annotations

from unittest import mock

import pytest

from tacit.core.errors import QuorumError
from tacit.core.message import Message
from tacit.core.values import Blob
from tacit.protections.bfv import BFV
from tacit.protections.ckks import CKKS
from tacit.protections.keys.proved_totals import TAG, ProvedTotals
from tacit.protections.paillier import Paillier
from tacit.protections.secret_sharing.shares import Shares
from tests.attacks.malicious import REFUSED
from tests.conftest import quick_keys

LIAR = "client-2"
every_shared_key = pytest.mark.parametrize(
    "protection",
    [BFV(), CKKS(), Paillier(holder="clients", key_bits=2048), Shares()],
    ids=["bfv", "ckks", "paillier", "shares"],
)


def lying(attack, tag):
    """Let one client send what is made of its own tag, and form a sum."""
    honest, honest_ciphertext = ProvedTotals.tag, ProvedTotals.tag_ciphertext

    def of_vector(self, *terms):
        own = honest(self, *terms)
        return tag(own) if self._party.id == LIAR else own

    def of_ciphertext(self, *terms):
        own = honest_ciphertext(self, *terms)
        return Message({**own, TAG: tag(own[TAG])}) if self._party.id == LIAR else own

    method = attack.coordinator.components.method
    with mock.patch.multiple(ProvedTotals, tag=of_vector, tag_ciphertext=of_ciphertext), quick_keys():
        return attack.coordinator.round(method.private, method.keep)


@every_shared_key
def test_what_is_no_tag_leaves_the_client_out(malicious, protection):
    for odd in (
        lambda tag: Blob("public", b"\xff" * len(tag.data)),
        lambda tag: Blob("public", tag.data[:-1]),
        lambda tag: Blob("cipher", tag.data),
    ):
        attack = malicious(protection, quorum=0.5)
        assert LIAR not in lying(attack, odd)
        assert "tag" in attack.coordinator.failures[LIAR]
        with quick_keys():
            assert len(attack.coordinator.finish().holders) == 5


@every_shared_key
def test_with_a_wrong_one_nobody_opens_the_total(malicious, protection):
    attack = malicious(protection, quorum=0.5)
    assert LIAR in lying(attack, lambda tag: Blob("public", bytes(len(tag.data))))
    with quick_keys(), pytest.raises(QuorumError, match=REFUSED):
        attack.coordinator.finish()


@every_shared_key
def test_control_with_right_ones_all_do(malicious, protection):
    attack = malicious(protection)
    method = attack.coordinator.components.method
    with quick_keys():
        assert len(attack.coordinator.round(method.private, method.keep)) == 5
        assert len(attack.coordinator.finish().holders) == 5
