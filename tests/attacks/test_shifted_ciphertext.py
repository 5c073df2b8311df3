"""A total that is genuine but for a little noise: whether a client still opens it tells of the key.

The coordinator adds d to one coefficient of a, which adds d·s to what is decrypted, and to one coefficient
of b so much that d decides whether it is rounded otherwise. The total's values stay what its contributors
sent, or the tag is wrong: yes or no, at each of the secret's coefficients. Two asks gave one, 8,192 the key.
"""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from tacit.core.values import Blob
from tacit.crypto.rlwe.blob import power, read, words_of
from tacit.protections.ckks import CKKS
from tacit.protections.keys.proved_totals import ProvedTotals
from tests.attacks.malicious import REFUSED
from tests.attacks.test_forged_totals import secret_of

COEFFICIENTS = 12
HONEST = ProvedTotals._product


def guessed(attack):
    """The first coefficients of the key, by which of the shifted totals opened."""
    entry, _ = attack.gathered("scores")
    blob, protection = entry["total/cipher"].data, attack.coordinator.protection
    header = read(protection.relay.current_key.public["public"], blob)
    layout = attack.coordinator.components.method._layout(attack.coordinator.schema)
    unit_bits = attack.coordinator.components.protection.slots(layout, header.summands).unit_bits
    half = 1 << (unit_bits + power(header.bound * header.summands) - 1)

    def opens(place, sign):
        b, a = (words.copy() for words in words_of(header, blob))
        a[:1] += np.uint64(half // 2)
        b[place : place + 1] += np.array([sign * 3 * half // 4]).view(np.uint64)
        shifted = Blob("cipher", header.write(b, a.tobytes()))
        answer = attack.disclosed({**entry, "total/cipher": shifted})
        assert not isinstance(answer, str) or REFUSED in answer
        return not isinstance(answer, str)

    return [int(opens(place, -1)) - int(opens(place, 1)) for place in range(COEFFICIENTS)]


@pytest.mark.parametrize("noise_is_proved", [False, True])
def test_it_tells_of_the_key_unless_the_tag_covers_the_noise(malicious, noise_is_proved):
    def values_only(self, key, place, integers, noise):
        return HONEST(self, key, place, integers, None)

    attack = malicious(CKKS(), COEFFICIENTS)
    with mock.patch.object(ProvedTotals, "_product", HONEST if noise_is_proved else values_only):
        found = guessed(attack)
    secret = secret_of(attack)[:COEFFICIENTS].tolist()
    assert found == ([0] * COEFFICIENTS if noise_is_proved else secret)
