"""A list of clients that is small while it travels: how much does a client unpack?

A roll comes in stretches, each compressed. With a limit on each alone, one message of many stretches costs a
client gigabytes, and minutes.
"""

import zlib

import pytest

from tacit.core import claims
from tacit.core.claims import ROLL, read_roll
from tacit.core.errors import MessageError

MOST = 3_000_000  # bytes, for a quick test
LONG = MOST // 3 + 1


@pytest.fixture
def limit(monkeypatch):
    monkeypatch.setattr(claims, "MOST_BYTES", MOST)


def stretches(count):
    """One long name in each stretch."""
    return {f"{ROLL}{i}": zlib.compress(b"%d" % i * LONG, 1) for i in range(count)}


def unpacked(monkeypatch, fields):
    """Bytes that are unpacked before the list is refused."""
    sizes, unpack = [], claims._unpacked

    def counted(*given):
        sizes.append(len(found := unpack(*given)))
        return found

    monkeypatch.setattr(claims, "_unpacked", counted)
    with pytest.raises(MessageError, match=f"a list of clients of more than {MOST:,} bytes"):
        read_roll(fields)
    return sum(sizes)


def test_control_what_fits_is_read(limit):
    assert [len(name) for name in read_roll(stretches(2))] == [LONG, LONG]


def test_all_stretches_have_one_limit(monkeypatch, limit):
    assert sum(map(len, stretches(9).values())) < LONG / 10
    assert unpacked(monkeypatch, stretches(9)) <= MOST


def test_and_together_no_more_names_than_a_federation(monkeypatch):
    monkeypatch.setattr(claims, "MOST_CLIENTS", 6)
    half = ["\n".join(f"{end}{i}" for i in range(4)) for end in "ab"]
    told = {f"{ROLL}{4 * i}": zlib.compress(h.encode(), 1) for i, h in enumerate(half)}
    with pytest.raises(MessageError, match="a list of more than 6 clients"):
        read_roll(told)
