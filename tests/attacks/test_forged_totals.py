"""Totals that nobody encrypted: the coordinator makes up a ciphertext, and a client decrypts it.

Under ring-LWE, b + a·s is opened for any a and b. With b = 0 and a a power of X times a large number, that is
a stretch of the secret key: eight totals of 512 values gave all 4,096 coefficients of it.
"""

from __future__ import annotations

import numpy as np
import pytest

from tacit.crypto.rlwe.blob import DEGREE
from tacit.protections.ckks import CKKS
from tacit.protections.paillier import Paillier
from tests.attacks.conftest import CLIENTS
from tests.attacks.malicious import REFUSED, rlwe_total, unchecked
from tests.conftest import quick_keys

STRETCH = 512


def key_stretches(attack):
    """What clients say to eight totals, each of which would show a stretch of the key."""
    entry, _ = attack.gathered("scores")
    key_id = attack.coordinator.protection.relay.current_key.public["public"]
    for first in range(0, DEGREE, STRETCH):
        a = np.zeros(DEGREE, np.uint64)
        a[-first % DEGREE] = 1 << 50 if first == 0 else (1 << 64) - (1 << 50)  # X^-f = -X^(N-f)
        cipher = rlwe_total(key_id, np.zeros(STRETCH), a, CLIENTS)
        yield attack.disclosed({**entry, "total/cipher": cipher})


def secret_of(attack):
    """The true secret key."""
    party = attack.coordinator.link.transport.engine.engine._sites.party("client-1")
    client = attack.coordinator.components.protection.at_client(party)
    one = np.zeros(DEGREE, np.uint64)
    one[0] = 1
    return client.key.cached("sums", client._settings.scheme.cipher)._times_secret(one).view(np.int64)


def test_without_a_proof_eight_totals_show_the_key(malicious):
    attack = malicious(CKKS(), STRETCH)
    with unchecked():
        stretches = list(key_stretches(attack))
    found = np.concatenate([np.rint(part / np.abs(part).max()) for part in stretches])
    assert (found == secret_of(attack)).all()


def test_with_a_proof_none_of_them_opens(malicious):
    answers = list(key_stretches(malicious(CKKS(), STRETCH)))
    assert len(answers) == 8
    assert all(REFUSED in answer for answer in answers)
    assert len(set(answers)) == 1  # and which of the checks failed is not told


@pytest.mark.parametrize("protection", [CKKS(), CKKS(parameters="sum")], ids=["coefficients", "slots"])
def test_what_is_under_another_key_or_has_no_tag_is_no_total(malicious, protection):
    attack = malicious(protection)
    entry, _ = attack.gathered("scores")
    other = malicious(protection)  # the same clients under another key
    _, foreign = other.gathered("scores")
    forged = {**entry, **other.added(*foreign.values())}
    assert REFUSED in attack.disclosed(forged)
    assert REFUSED in attack.disclosed({**forged, "total/tag": entry["total/tag"]})
    assert REFUSED in attack.disclosed({name: value for name, value in entry.items() if name != "total/tag"})


def test_a_total_shifted_by_an_encryption_of_its_own(malicious):
    """Paillier's public key encrypts: the coordinator can add what it likes to a total."""
    from tacit.crypto.paillier import Packing, PublicKey, add_blobs

    attack = malicious(Paillier(holder="clients", key_bits=2048))
    entry, _ = attack.gathered("scores")
    key = PublicKey.from_bytes(attack.coordinator.protection.public)
    with quick_keys():
        shift = key.encrypt(np.array([1, 0, 0, 0]), Packing(32, 3))
    shifted = add_blobs(key, entry["total/cipher"].data, shift)
    cipher = type(entry["total/cipher"])("cipher", shifted)
    with unchecked():
        assert attack.disclosed({**entry, "total/cipher": cipher}).shape == (4,)
    assert REFUSED in attack.disclosed({**entry, "total/cipher": cipher})
    assert np.allclose(attack.disclosed(entry), sum(attack.rows.values()) / 2, atol=1e-8)
