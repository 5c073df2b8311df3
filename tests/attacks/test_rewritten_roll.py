"""A list of clients that is told anew, in another order: who was in earlier totals is then forgotten.

A client remembers one bit for each name on the list of every total that it opened. With strangers' names in
those places, a total over all clients but one differs from it by all of them.
"""

from __future__ import annotations

import zlib
from unittest import mock

import numpy as np

from tacit.core import claims
from tacit.protections.ckks import CKKS

STRANGERS = [f"stranger-{number}" for number in range(5)]
LEFT = [f"client-{number}" for number in range(1, 5)]


def two_totals(attack, names):
    """What one client says to a total over all, then to one without the last client, on a list of names."""
    first = attack.disclosed(attack.gathered("scores")[0])
    entry, sent = attack.gathered("scores")
    bits = np.packbits([name in LEFT for name in names], bitorder="little").tobytes()
    claimed = {"contributors": 4, "in_total": bits, "log/names/0": zlib.compress("\n".join(names).encode())}
    part = attack.added(*(sent[name] for name in LEFT))
    return first, attack.disclosed({**entry, **part, **claimed})


def test_control_on_the_list_that_it_knows_the_client_refuses_the_second(malicious):
    attack = malicious(CKKS())
    _, answer = two_totals(attack, list(attack.rows))
    assert "this total would differ by 1 client" in answer


def test_names_that_were_told_stay(malicious):
    attack = malicious(CKKS())
    _, answer = two_totals(attack, STRANGERS + LEFT)
    assert "on the list of clients is not who was told to be there" in answer


def test_control_without_that_rule_the_difference_is_the_last_client(malicious):
    attack = malicious(CKKS())
    with mock.patch.object(claims, "_check_known", lambda *_: None):
        first, second = two_totals(attack, STRANGERS + LEFT)
    assert np.allclose(first - second, attack.rows["client-5"] / 2, atol=1e-7)


def test_nor_by_way_of_a_shorter_list(malicious):
    attack = malicious(CKKS())
    attack.disclosed(attack.gathered("scores")[0])
    entry, _ = attack.gathered("scores")
    shorter = zlib.compress(b"client-1")
    attack.disclosed({**entry, "log/names/0": shorter})
    _, answer = two_totals(attack, ["client-1", *STRANGERS, *LEFT[1:]])
    assert "on the list of clients is not who was told to be there" in answer
