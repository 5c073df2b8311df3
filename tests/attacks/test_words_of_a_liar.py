"""Clients agree on words under sums, and one of them lies: counts that it does not have, letters of no word.

The attacker is a client. By its counts alone it would have every rare word of the others spelt, and be told
it with the agreed ones; by its letters it would end the coordinator, or give all clients features.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import wraps
from typing import Any

import numpy as np
import pytest

from tacit.core.errors import DataError
from tacit.core.party import Party
from tacit.core.shared import Shared
from tacit.data import words
from tacit.data.words import WordSums
from tacit.federation import Federation
from tests.attacks.test_who_holds_which_word import RARE, SITES, site, tables

MALLORY = "north"
WORD = f'[1,"{RARE}"]'.encode()  # which another client has in one row


def claim(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    """Let Mallory claim rows in the bucket of that word, and in the next ones; it spells nothing there."""
    honest = WordSums.word_counts

    @wraps(honest)
    def lie(self: WordSums, party: Party, shared: Shared) -> dict[str, Any]:
        found = honest(self, party, shared)
        if party.id == MALLORY:
            first = words._bucket(WORD, shared)
            found["counts"][np.arange(first, first + 1 + more) % words.BUCKETS] = 1.0
        return found

    monkeypatch.setattr(WordSums, "word_counts", lie)


def told_to_mallory(held: dict[str, Any]) -> tuple[Any, list[bytes]]:
    heard: list[bytes] = []
    try:
        training: Any = Federation.of(held).train(
            "fedheonn",
            protect="masked",
            transcript=lambda receiver, sender, step, raw: heard.append(raw) if receiver == MALLORY else None,
        )
    except DataError as error:
        training = error
    return training, heard


def test_control_a_word_that_it_guesses_is_spelt_by_whoever_has_it(monkeypatch):
    claim(monkeypatch, more=0)
    training, heard = told_to_mallory(tables())
    assert RARE in training.schema.columns[1].categories
    assert any(RARE.encode() in raw for raw in heard)


def test_a_claim_of_a_bucket_in_which_nobody_has_a_word_ends_the_run(monkeypatch):
    claim(monkeypatch, more=5)
    error, heard = told_to_mallory(tables())
    assert str(error).startswith("by the clients' counts enough rows have a word that no client has: one of")
    assert heard and not any(RARE.encode() in raw for raw in heard)


def test_so_many_claims_that_all_buckets_are_sought_end_the_run_at_once(monkeypatch):
    claim(monkeypatch, more=words.BUCKETS)
    error, heard = told_to_mallory(tables())
    assert "by the clients' counts there are 4,096 labels and categories, at most 2,000 are" in str(error)
    assert not any(RARE.encode() in raw for raw in heard)


def spell(monkeypatch: pytest.MonkeyPatch, *letters: bytes) -> None:
    """Let Mallory have words of its own making, in as many rows as it likes."""
    honest = words._unknown_words

    def lie(party: Party, shared: Shared) -> Iterator[tuple[bytes, int]]:
        yield from honest(party, shared)
        if party.id == MALLORY:
            known = words._known(shared)
            yield from ((word, 100) for word in letters if word not in known)

    monkeypatch.setattr(words, "_unknown_words", lie)


NO_WORDS = {
    "not UTF-8": b"\xff\xfe",
    "not JSON": b"{",
    "nothing": b"",
    "a number": b"5",
    "a column that is none": b'[7,"x"]',
    "a column of lists": b'[[1],"x"]',
    "a category that is a number": b"[1,5]",
    "a label that is a list": b"[-1,[1]]",
    "a label that is none": b"[-1,null]",
    "a word once more, in other bytes": b'[1, "medical"]',
}


@pytest.mark.parametrize("letters", NO_WORDS.values(), ids=NO_WORDS.keys())
def test_letters_that_are_no_word_are_left_out(monkeypatch, letters):
    held = {name: site(index, ("medical", "surgical")) for index, name in enumerate(SITES)}
    spell(monkeypatch, letters)
    training, _ = told_to_mallory(held)
    assert training.schema.columns[1].categories == ("medical", "surgical")
    assert training.schema.classes == ("no", "yes")


def test_control_a_word_of_its_own_making_is_agreed_on(monkeypatch):
    held = {name: site(index, ("medical", "surgical")) for index, name in enumerate(SITES)}
    spell(monkeypatch, b'[1,"invented"]')
    training, _ = told_to_mallory(held)
    assert training.schema.columns[1].categories == ("invented", "medical", "surgical")
