"""A total that is genuine but for a little noise: whether a client still opens it tells of the key.

The coordinator adds d to one coefficient of c1, which adds d·s to what is decrypted, and to one of c0 so much
that d decides whether it is rounded otherwise. The total's values stay what its contributors sent, or the tag
is wrong: yes or no, at each of the secret's coefficients. Two asks give one, 4,096 the key of the small ring.
SEAL keeps a ciphertext's noise to itself, so that no tag covers it: this attack works today, as SECURITY.md
says.
"""

from __future__ import annotations

import numpy as np

from tacit.core.values import Blob
from tacit.crypto.bfv import INTEGERS, Parameters
from tacit.crypto.bfv.parameters import ring_of
from tacit.crypto.seal.blob import read, residues_of, set_of, write
from tacit.protections.bfv import BFV
from tests.attacks.malicious import REFUSED, unchecked
from tests.attacks.test_forged_totals import key_stretches

COEFFICIENTS = 12
STRETCH = 512


def guessed(attack, entry):
    """The first coefficients of the key, by which of the shifted totals opened."""
    blob = entry["total/cipher"].data
    parameters = Parameters.named(set_of(blob))
    ring = ring_of(parameters)
    header = read(ring, attack.coordinator.protection.key_id, blob, INTEGERS)
    (prime,) = ring.primes
    half = prime >> (parameters.plain_bits + 1)  # so much noise and a value is rounded otherwise

    def opens(place, sign):
        (residues,) = (part.copy() for part in residues_of(ring, header, blob))
        first_of_second = INTEGERS.kept(ring, header)
        for at, shift in ((first_of_second, half // 2), (place, sign * 3 * half // 4)):
            residues[at] = (int(residues[at]) + shift) % prime
        shifted = Blob("cipher", write(ring, header, [residues]))
        answer = attack.disclosed({**entry, "total/cipher": shifted})
        assert not isinstance(answer, str) or REFUSED in answer
        return not isinstance(answer, str)

    return [int(opens(place, -1)) - int(opens(place, 1)) for place in range(COEFFICIENTS)]


def test_it_tells_of_the_key(malicious):
    attack = malicious(BFV(), STRETCH)
    entry, _ = attack.gathered("scores")
    found = guessed(attack, entry)
    with unchecked():
        stretch = next(key_stretches(attack, entry))
    secret = np.rint(stretch / np.abs(stretch).max()).astype(int)
    assert found == secret[:COEFFICIENTS].tolist()
