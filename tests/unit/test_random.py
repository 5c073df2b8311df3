"""Three kinds of randomness, and never a shared stream."""

import numpy as np
import pytest

from tacit.core.manifest import Manifest
from tacit.core.party import Party
from tacit.core.random import derive, generator
from tacit.core.secret import Secret


def drawn(rng):
    return rng.integers(2**63, size=4).tolist()


def party(name="p", secret=b"s" * 32):
    return Party(name, lambda: None, Secret(secret))


def test_the_same_label_gives_the_same_stream():
    assert drawn(generator(b"k", "rows", 1)) == drawn(generator(b"k", "rows", 1))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("rows", 1), ("rows", 2)),
        (("rows",), ("columns",)),
        (("ab", "c"), ("a", "bc")),
        (("abc",), ("a", "b", "c")),
        (("a",), ("a", "")),
        ((), ("",)),
        (("a\0b",), ("a", "b")),
        ((11, 1), (1, 11)),
    ],
)
def test_another_label_gives_another_stream(one, other):
    assert derive(b"k", one) != derive(b"k", other)
    assert drawn(generator(b"k", *one)) != drawn(generator(b"k", *other))


def test_a_generator_that_was_used_does_not_move_another_one():
    first = generator(b"k", "a")
    drawn(first)
    assert drawn(first) != drawn(generator(b"k", "a"))


def test_streams_of_two_labels_are_uncorrelated():
    one, other = generator(b"k", "a").normal(size=20_000), generator(b"k", "b").normal(size=20_000)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.03


class TestPublic:
    def test_everybody_with_the_manifest_repeats_it(self):
        assert drawn(Manifest("r", {}, seed=7).rng("init")) == drawn(
            Manifest("other", {}, seed=7).rng("init")
        )

    def test_another_seed_gives_another_stream(self):
        assert drawn(Manifest("r", {}, seed=7).rng("init")) != drawn(Manifest("r", {}, seed=8).rng("init"))

    def test_seed_and_label_do_not_run_together(self):
        assert drawn(Manifest("r", {}, seed=1).rng("1")) != drawn(Manifest("r", {}, seed=11).rng())


class TestOwn:
    def test_a_party_repeats_its_own(self):
        assert drawn(party().rng("rows", 3)) == drawn(party().rng("rows", 3))

    def test_two_parties_draw_differently_under_one_label(self):
        assert drawn(party(secret=b"a" * 32).rng("rows")) != drawn(party(secret=b"b" * 32).rng("rows"))

    def test_the_name_alone_determines_nothing(self):
        assert drawn(party("p", b"a" * 32).rng("rows")) != drawn(party("p", b"b" * 32).rng("rows"))

    def test_the_public_seed_does_not_give_it(self):
        manifest = Manifest("r", {}, seed=3)
        own = drawn(party().rng("rows"))
        guesses = [("rows",), ("p", "rows"), (3, "rows"), (3, "p", "rows")]
        assert all(own != drawn(manifest.rng(*guess)) for guess in guesses)
        assert all(own != drawn(generator(b"public", *guess)) for guess in guesses)
