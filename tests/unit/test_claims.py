"""What totals say of themselves: the roll of names, one bit for each, and what is refused."""

from __future__ import annotations

import zlib

import pytest

from tacit.core.claims import (
    RECENT,
    ROLL,
    Line,
    Roll,
    keep_roll,
    read_claim,
    read_roll,
    read_standing_claim,
    recent,
    write_lines,
)
from tacit.core.errors import ConfigError, MessageError, OpeningError
from tacit.core.manifest import Components, Manifest, check_reveals
from tacit.data.preparation import Preparation
from tacit.methods.fedavg import FedAvg
from tacit.methods.fedheonn import FedHEONN
from tacit.protections.plain import Plain


def entry_of(names, contributors, number=1):
    return {
        "component": "method",
        "contribution": "terms",
        "contributors": contributors,
        "sum": number,
        "in_total": names,
    }


class TestRoll:
    def test_names_are_told_once_and_later_ones_follow(self):
        roll, state = Roll(), {}
        first = roll.mark(["bob", "ann"])
        keep_roll(state, roll.write())
        second = roll.mark(["eve", "ann"])
        keep_roll(state, roll.write(2))
        assert read_roll(state) == ("ann", "bob", "eve")
        cache = {}
        assert read_claim(state, entry_of(first, 2), cache).counts.tolist() == [1, 1, 0]
        assert read_claim(state, entry_of(second, 2), cache).counts.tolist() == [1, 0, 1]

    def test_who_is_told_again_forgets_what_came_after(self):
        roll, state = Roll(), {}
        for name in ("ann", "bob", "eve"):
            first = len(roll.names)
            roll.mark([name])
            keep_roll(state, roll.write(first))
        roll.mark(["joe"])
        keep_roll(state, roll.write(1))
        assert sorted(state) == [f"{ROLL}0", f"{ROLL}1"]
        assert read_roll(state) == ("ann", "bob", "eve", "joe")

    def test_another_process_goes_on_with_it(self):
        roll, other = Roll(), Roll()
        roll.mark(["bob", "ann"])
        other.restore(roll.write())
        assert other.mark(["bob"]) == roll.mark(["bob"])
        assert Roll().write() == {}

    def test_lists_that_are_none_are_refused(self):
        twice = {f"{ROLL}0": zlib.compress(b"ann\nann")}
        with pytest.raises(OpeningError, match="twice on the list"):
            read_roll(twice)
        with pytest.raises(MessageError, match="only 0 are known"):
            read_roll({f"{ROLL}3": zlib.compress(b"ann")})
        for raw in (b"nonsense", zlib.compress(b"ann")[:-2]):
            with pytest.raises(MessageError, match="damaged"):
                read_roll({f"{ROLL}0": raw})
        with pytest.raises(MessageError, match="more than 1,048,576 clients"):  # 1 kB, else 10 MB
            read_roll({f"{ROLL}0": zlib.compress(b"\n" * (1 << 20))})
        with pytest.raises(MessageError, match="is no list of clients"):
            keep_roll({f"{ROLL}0": b""}, {f"{ROLL}x": b""})


class TestClaims:
    def test_names_and_their_number_must_agree(self):
        roll = Roll()
        bits = roll.mark(["ann", "bob", "eve"])
        for odd in (entry_of(bits, 4), entry_of(bits, 2), entry_of(bits, 3, number=1.0), entry_of(b"", 3)):
            with pytest.raises(OpeningError, match="names"):
                read_claim(roll.write(), odd, {})
        for unknown in (b"\x0f", bits + b"\x01", bits + b"\x00"):
            with pytest.raises(OpeningError, match="only 3 are known by name"):
                read_claim(roll.write(), entry_of(unknown, 4), {})

    def test_lines_of_a_standing_total(self):
        lines = [Line("a:all", "a", 1, 0), Line("b:all", "b", 2, 1), Line("c:all", "c", 1, 1)]
        entry = {**entry_of(b"", 4), "clients": 2, "lines": write_lines(lines)}
        claim = read_standing_claim(entry, 2)
        assert claim.number is None
        assert claim.counts.tolist() == [1, 2, 1, 0, 1, 1]
        assert len(set(claim.labels)) == 6
        with pytest.raises(OpeningError, match="names 2"):
            read_standing_claim({**entry, "clients": 3}, 2)
        with pytest.raises(OpeningError, match="names 2"):
            read_standing_claim(entry, 3)
        for odd in (
            Line("a:all", "a", 1, 0),
            Line("d", "d", 2, 0),
            Line("d", "d", 0, 1),
            Line("d", "d", 0, -1),
        ):
            with pytest.raises(OpeningError, match="count double"):
                read_standing_claim({**entry, "lines": write_lines([*lines, odd])}, 2)


def test_only_the_last_few_are_kept_in_memory():
    cache = {}
    for key in range(2 * RECENT):
        assert recent(cache, "kind", key, lambda key=key: [key]) == [key]
    assert recent(cache, "kind", 2 * RECENT - 1, list) == [2 * RECENT - 1]
    assert len(cache["kind"]) == RECENT


def test_the_manifest_lists_what_is_revealed():
    parts = Components(FedAvg(), Plain(), Preparation())
    manifest = Manifest.of("run", parts)
    assert manifest.reveals == ("method.evaluation", "method.hold_out")
    check_reveals(Manifest.from_message(manifest.to_message()), parts)
    with pytest.raises(ConfigError, match=r"totals of method.evaluation, method.hold_out, "):
        check_reveals(manifest, Components(FedHEONN(), Plain(), Preparation()))
