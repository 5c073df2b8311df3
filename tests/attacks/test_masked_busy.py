"""A number of clients for which no sparse graph will do: a client of masked sums looks for one, in vain.

The coordinator writes the settings and says how many clients there are. With shares of which no number of
neighbours is right, a client tried all of them: half a million, each in milliseconds. Now it doubles them.
"""

from math import inf

import pytest

from tacit.core.errors import ConfigError
from tacit.core.fields import MOST_CLIENTS
from tacit.crypto import neighbours
from tacit.protections.masked import Masked


def tried(monkeypatch):
    """How many numbers of neighbours a client tries before it refuses, if none is right."""
    found = []

    def never(logs, clients, missing, count):
        found.append(count)
        return inf

    monkeypatch.setattr(neighbours, "_log_apart", never)
    neighbours.neighbours_for.cache_clear()
    with pytest.raises(ConfigError, match="too few stay to open the sum"):
        Masked(corrupt_share=0.3, dropout_share=0.3).rules(MOST_CLIENTS)
    return len(found)


def test_control_numbers_that_are_right():
    neighbours.neighbours_for.cache_clear()
    assert [neighbours.neighbours_for(n, 0.05, active=True).neighbours for n in (100, 1000)] == [26, 88]


def test_a_client_tries_a_few(monkeypatch):
    """Each twice as large as the one before, and in the end all others."""
    assert tried(monkeypatch) == 11
