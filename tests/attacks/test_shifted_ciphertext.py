"""A total that is genuine but for a little noise: whether a client still opens it tells of the key.

The coordinator adds d to a coefficient of c1, which adds d·s to what is decrypted, and to c0 so much that d·s
decides how it is rounded. If a tag covers what is decrypted, the total's values stay what its contributors
sent, or the tag is wrong: yes or no, as the secret s says. Under BFV two asks give one of its coefficients,
and 4,096 all of the small ring's; under CKKS a search gives one. So tags cover the ciphertext, and clients
check them before they decrypt.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from unittest import mock

import numpy as np
import pytest

from tacit.core.values import Blob
from tacit.crypto.bfv import INTEGERS, Parameters, ring_of
from tacit.crypto.ckks.rings import SUM, SUMS, noise_bits
from tacit.crypto.ckks.rings import unit as unit_of
from tacit.crypto.field import PRIME
from tacit.crypto.seal.blob import all_residues, read, residues_of, set_of, write
from tacit.crypto.seal.ring import ring_of as ckks_ring_of
from tacit.protections import encrypted
from tacit.protections.bfv import BFV, ExactSlots
from tacit.protections.ckks import CKKS, RoundedSlots
from tacit.protections.keys.proved_totals import add_tags
from tests.attacks.conftest import CLIENTS
from tests.attacks.malicious import REFUSED, unchecked
from tests.attacks.test_forged_totals import key_stretches

COEFFICIENTS = 12
STRETCH = 512
SEARCH = 10  # bits
SLOTS = {"bfv": ExactSlots, "ckks": RoundedSlots}


@contextmanager
def plaintexts_tagged(protection):
    """Let tags cover what is decrypted, and not the ciphertext."""
    kind, slots, made, asked = type(protection), SLOTS[protection.name], [], []
    honest, honest_ring, decrypt = kind.cipher, slots.ring, slots.decrypt

    def cipher(self, secret):
        made.append(honest(secret))
        return made[-1]

    def ring(self):
        asked.append(self)
        return honest_ring.fget(self)

    def opened(used, header, blob):
        residues = all_residues(used, header, blob)
        return {PRIME: decrypt(asked[-1], made[-1], header, residues)}

    with ExitStack() as stack:
        for owner, name, new in (
            (kind, "cipher", cipher),
            (slots, "ring", property(ring)),
            (slots, "decrypt", lambda self, cipher, header, found: found[PRIME]),
            (encrypted, "all_residues", opened),
            (encrypted, "add_tags", lambda *parts, moduli: add_tags(*parts)),
        ):
            stack.enter_context(mock.patch.object(owner, name, new))
        yield


def opens(attack, entry, blob):
    """Whether a client opens that ciphertext in place of the total."""
    answer = attack.disclosed({**entry, "total/cipher": Blob("cipher", blob)})
    assert not isinstance(answer, str) or REFUSED in answer
    return not isinstance(answer, str)


def coefficients(attack, entry):
    """The first coefficients of BFV's key, by which of the shifted totals opened."""
    blob = entry["total/cipher"].data
    parameters = Parameters.named(set_of(blob))
    ring = ring_of(parameters)
    header = read(ring, attack.coordinator.protection.key_id, blob, INTEGERS)
    (prime,) = ring.primes
    half = prime >> (parameters.plain_bits + 1)  # so much noise and a value is rounded otherwise

    def shifted(place, sign):
        (residues,) = (part.copy() for part in residues_of(ring, header, blob))
        first_of_second = INTEGERS.kept(ring, header)
        for at, shift in ((first_of_second, half // 2), (place, sign * 3 * half // 4)):
            residues[at] = (int(residues[at]) + shift) % prime
        return opens(attack, entry, write(ring, header, [residues]))

    return [int(shifted(place, -1)) - int(shifted(place, 1)) for place in range(COEFFICIENTS)]


def first_of_the_key(attack, entry):
    """The first coefficient of CKKS' key; and the true one, by a total without proof."""
    ring, blob = ckks_ring_of(SUMS), entry["total/cipher"].data
    header = read(ring, attack.coordinator.protection.key_id, blob, SUM)
    unit, step = 1 << noise_bits(header), unit_of(header)

    def changed(genuine, first, second):
        # A constant polynomial has the same residue at every point of the transform.
        made = []
        for prime, part in zip(ring.primes, residues_of(ring, header, blob), strict=True):
            shift = np.repeat(np.array([first % prime, second % prime], np.uint64), part.size // 2)
            made.append((part * np.uint64(genuine) + shift) % np.uint64(prime))
        return write(ring, header, made)

    def most(second):
        """The largest shift of the first polynomial with which a total still opens, found bit by bit."""
        found = 0
        for bit in range(1, SEARCH + 1):
            more = found + (unit >> bit)
            found = more if opens(attack, entry, changed(1, more, second)) else found
        return found

    small = unit // 4
    guess = (most(0) - most(small)) / small
    with unchecked():
        forged = Blob("cipher", changed(0, 0, 1000 * unit))
        (seen,) = attack.disclosed({**entry, "total/cipher": forged})
    return guess, seen / step / 1000


def test_control_a_tag_of_the_integers_lets_bfv_tell_of_the_key(malicious):
    with plaintexts_tagged(BFV()):
        attack = malicious(BFV(), STRETCH)
        entry, _ = attack.gathered("scores")
        found = coefficients(attack, entry)
        with unchecked():
            stretch = next(key_stretches(attack, entry))
    secret = np.rint(stretch / np.abs(stretch).max()).astype(int)
    assert found == secret[:COEFFICIENTS].tolist()


def test_control_and_ckks(malicious):
    with plaintexts_tagged(CKKS()):
        attack = malicious(CKKS(), 1)
        entry, _ = attack.gathered("scores")
        found, secret = first_of_the_key(attack, entry)
    assert round(found) == secret


@pytest.mark.parametrize("protection", [BFV(), CKKS()], ids=["bfv", "ckks"])
def test_a_tag_of_the_ciphertext_is_checked_before_anything_is_decrypted(malicious, protection):
    attack = malicious(protection, STRETCH if protection == BFV() else 1)
    entry, _ = attack.gathered("scores")
    slots, decrypted = SLOTS[protection.name], []
    honest = slots.decrypt

    def decrypt(self, cipher, header, residues):
        decrypted.append(write(self.ring, header, list(residues.values())))
        return honest(self, cipher, header, residues)

    with mock.patch.object(slots, "decrypt", decrypt):
        if protection == BFV():
            assert coefficients(attack, entry) == [0] * COEFFICIENTS  # no total opened
        else:
            guess, _ = first_of_the_key(attack, entry)
            assert guess == 0
            decrypted.clear()  # what was opened unchecked, to compare with
        assert not decrypted
        assert attack.disclosed(entry).shape
        assert decrypted == [entry["total/cipher"].data]


def test_every_residue_counts(malicious):
    """Also those of coefficients that hold no value, and of the second polynomial."""
    attack = malicious(BFV(), CLIENTS)
    entry, _ = attack.gathered("scores")
    blob = entry["total/cipher"].data
    ring = ring_of(Parameters.named(set_of(blob)))
    header = read(ring, attack.coordinator.protection.key_id, blob, INTEGERS)
    (residues,), (prime,) = residues_of(ring, header, blob), ring.primes
    for at in (0, CLIENTS, INTEGERS.kept(ring, header), residues.size - 1):
        changed = residues.copy()
        changed[at] = (int(changed[at]) + 1) % prime
        assert not opens(attack, entry, write(ring, header, [changed]))
    assert opens(attack, entry, blob)
