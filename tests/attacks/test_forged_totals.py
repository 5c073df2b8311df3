"""Totals that nobody encrypted: the coordinator makes up a ciphertext, and a client decrypts it.

A ciphertext (c0, c1) of BFV decrypts to ⌈t (c0 + c1·s) / q⌋ for any c0 and c1. With c0 = 0 and c1 a power of
X times q/4 that is a stretch of the secret key s, times t/4: four totals of 512 values give all 2,048
coefficients of it, and with them every contribution.
"""

from __future__ import annotations

import numpy as np
import pytest

from tacit.core.values import Blob
from tacit.crypto.bfv import INTEGERS, Parameters, ring_of
from tacit.crypto.seal.blob import Header, all_residues, ciphertexts_of, read, set_of, write
from tacit.crypto.seal.residues import from_seal
from tacit.protections.bfv import BFV
from tacit.protections.ckks import CKKS
from tacit.protections.paillier import Paillier
from tests.attacks.conftest import CLIENTS
from tests.attacks.lattice import negacyclic
from tests.attacks.malicious import REFUSED, unchecked
from tests.conftest import quick_keys

STRETCH = 512


def key_stretches(attack, entry):
    """What clients say to four totals, each of which would show a stretch of the key."""
    key_id = attack.coordinator.protection.key_id
    ring = ring_of(Parameters.named(set_of(entry["total/cipher"].data)))
    header = Header(INTEGERS, False, key_id, STRETCH, 1, CLIENTS, CLIENTS)
    (prime,) = ring.primes
    for first in range(0, ring.degree, STRETCH):
        second = np.zeros(ring.degree, np.uint64)
        second[-first % ring.degree] = prime // 4 if first == 0 else prime - prime // 4  # X^-f = -X^(N-f)
        forged = write(ring, header, [np.concatenate([np.zeros(STRETCH, np.uint64), second])])
        yield attack.disclosed({**entry, "total/cipher": Blob("cipher", forged)})


def opened_by(secret, blob):
    """The integers of a contribution, by a key that was put together: ⌈t (c0 + c1·s) / q⌋ around zero."""
    parameters = Parameters.named(set_of(blob))
    ring = ring_of(parameters)
    header = read(ring, blob[40:56], blob, INTEGERS)
    (ciphertext,) = ciphertexts_of(ring, header, all_residues(ring, header, blob))
    first, second = from_seal(ring, 1, ciphertext)[0][:, 0]
    (prime,) = ring.primes
    total = first.astype(object) + negacyclic(second, secret, prime)
    top = 1 << parameters.plain_bits
    found = [(2 * top * int(value % prime) + prime) // (2 * prime) % top for value in total[: header.rows]]
    return np.array([value - top if value >= top // 2 else value for value in found])


def test_without_a_proof_four_totals_show_the_key_and_it_a_contribution(malicious):
    attack = malicious(BFV(), STRETCH)
    entry, sent = attack.gathered("scores")
    with unchecked():
        stretches = list(key_stretches(attack, entry))
    secret = np.concatenate([np.rint(part / np.abs(part).max()) for part in stretches]).astype(int)
    assert set(secret) == {-1, 0, 1}
    found = opened_by(secret, sent["client-2"]["cipher"].data)
    assert np.allclose(found / 2.0**31, attack.rows["client-2"] / 2, atol=2.0**-31)


def test_with_a_proof_none_of_them_opens(malicious):
    attack = malicious(BFV(), STRETCH)
    answers = list(key_stretches(attack, attack.gathered("scores")[0]))
    assert len(answers) == 4
    assert all(REFUSED in answer for answer in answers)
    assert len(set(answers)) == 1  # and which of the checks failed is not told


@pytest.mark.parametrize("protection", [BFV(), CKKS()], ids=["bfv", "ckks"])
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
