"""One client's introduction: bytes that are no text, a vocabulary without end, columns of its own.

The attacker is a client. It must neither stop the run nor make the others work: what it introduces is
refused, it stands in ``failures``, and the run goes on without it.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
import numpy as np
import pytest

from tacit.core.coordinator import Coordinator
from tacit.core.errors import QuorumError, SchemaError
from tacit.core.message import Message
from tacit.data import agreement
from tacit.data.agreement import Agreement, introduce
from tacit.data.schema import Schema, vocabulary
from tacit.data.table import Column, Table

MALLORY = "client-3"


def words(categories: int, length: int = 1) -> bytes:
    return msgspec.json.encode({"categories": {"ward": [f"{i:x}".zfill(length) for i in range(categories)]}})


def signature(*columns: tuple[str, str], task: str = "classification") -> bytes:
    return msgspec.json.encode({"columns": columns, "task": task, "targets": ["target"]})


NUMBERS = [(f"x{i}", "number") for i in range(3)]
UNREADABLE = {
    "not UTF-8": {"vocabulary": b'{"classes": ["\xff"]}'},
    "not JSON": {"signature": b"{"},
    "an array": {"signature": np.zeros(3)},
    "a text": {"vocabulary": "{}"},
    "too long": {"vocabulary": b" " * (agreement.MOST_BYTES + 1)},
    "no columns": {"signature": signature()},
    "a column twice": {"signature": signature(*NUMBERS, NUMBERS[0])},
    "too many columns": {"signature": signature(*((str(i), "number") for i in range(100_001)))},
    "a name without end": {"signature": signature(*NUMBERS[:2], ("x" * 1001, "number"))},
    "too many classes": {"vocabulary": msgspec.json.encode({"classes": list(range(1001))})},
    "a category without a column": {"vocabulary": words(3)},
    "other columns": {"signature": signature(*NUMBERS[:2], ("height", "number"))},
    "another task": {"signature": signature(*NUMBERS, task="regression")},
}


def poisoned(coordinator: Coordinator, **fields: Any) -> Coordinator:
    """Let Mallory introduce itself with these fields."""

    def rewrite(step: str, party: str, message: Message) -> Message | None:
        return message | fields if (step, party) == ("client.enrol", MALLORY) else None

    coordinator.link.transport.engine.rewrite = rewrite  # type: ignore[attr-defined]
    return coordinator


@pytest.mark.parametrize("fields", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_an_introduction_that_cannot_be_used_leaves_its_client_out(coordinator_of, fields):
    coordinator = poisoned(coordinator_of(clients=6), **fields)
    coordinator.enrol()
    assert MALLORY not in coordinator.parties and len(coordinator.parties) == 5
    assert coordinator.failures[MALLORY].startswith("SchemaError: ")
    assert coordinator.schema.features == 3 and coordinator.schema.classes == ("blue", "green", "red")


def test_bytes_that_are_no_text_are_told_in_our_words():
    taken = Agreement({})
    with pytest.raises(SchemaError, match="mallory: an introduction that cannot be read: 'utf-8' codec"):
        taken.add("mallory", {"signature": signature(*NUMBERS), "vocabulary": b'{"classes": ["\xff"]}'})
    with pytest.raises(SchemaError, match="not a schema: 'utf-8' codec"):
        Schema.from_message({"schema": b'{"task": "\xff"}'})


def test_other_columns_still_stop_a_run_that_has_too_few_clients_without_them(coordinator_of):
    coordinator = poisoned(coordinator_of(clients=4), signature=signature(*NUMBERS[:2], ("height", "number")))
    with pytest.raises(SchemaError, match="client-3: there is no column 'x2', which the others have"):
        coordinator.enrol()


def ward_of(rows: int) -> Table:
    columns = (Column("age"), Column("ward", "category", categories=("east", "west")))
    values = np.column_stack([np.arange(rows), np.arange(rows) % 2]).astype(float)
    return Table("wards", columns, values, np.arange(rows) // 2 % 2, classes=("no", "yes"))


@pytest.mark.parametrize("refused", [False, True])
def test_a_vocabulary_without_end_does_not_become_everybodys_features(
    coordinator_of, holdings, monkeypatch, refused
):
    if not refused:  # a coordinator without the limit asks all clients for 4·10⁶ products
        monkeypatch.setattr(agreement, "MOST_WORDS", 10**9)
        monkeypatch.setattr(agreement, "MOST_AGREED", 10**9)
    coordinator = coordinator_of(data=holdings(ward_of(120), 6))
    poisoned(coordinator, vocabulary=words(2000))
    coordinator.enrol()
    assert (MALLORY in coordinator.failures) == refused
    assert coordinator.schema.features == (3 if refused else 2003)
    if refused:
        assert (
            "2,000 categories that are not declared, at most 1,000 are taken" in coordinator.failures[MALLORY]
        )


def test_columns_and_words_are_limited_together(monkeypatch):
    columns, no_words = signature(*NUMBERS), b"{}"
    monkeypatch.setattr(agreement, "MOST_COLUMNS", len(NUMBERS))
    monkeypatch.setattr(agreement, "MOST_BYTES", len(columns) + len(no_words))
    Agreement({}).add("ann", {"signature": columns, "vocabulary": no_words})
    with pytest.raises(SchemaError, match=r"an introduction of .* bytes, at most"):
        Agreement({}).add("ann", {"signature": columns, "vocabulary": b"{ }"})
    monkeypatch.setattr(agreement, "MOST_COLUMNS", len(NUMBERS) - 1)
    with pytest.raises(SchemaError, match=f"{len(NUMBERS)} columns: introduce 1 to {len(NUMBERS) - 1}"):
        Agreement({}).add("ann", {"signature": columns, "vocabulary": no_words})


def test_many_clients_together_cannot_do_it_either():
    taken, columns = Agreement({}), signature(("ward", "category"))
    for index in range(3):
        invented = msgspec.json.encode({"categories": {"ward": [f"{index} {i}" for i in range(1000)]}})
        if index < 2:
            taken.add(f"client-{index}", {"signature": columns, "vocabulary": invented})
    with pytest.raises(
        SchemaError, match=r"client-2: with its categories .* 3,000 .* at most 2,000 are united"
    ):
        taken.add("client-2", {"signature": columns, "vocabulary": invented})


def test_a_client_says_itself_that_its_vocabulary_is_too_large():
    categories = tuple(f"{a}{b}" for a in "abcdefghijklmnopqrstuvwxyzABCD" for b in map(chr, range(256, 306)))
    values = np.tile(np.arange(1500.0), 2)[:, None]  # each twice: else they would pass for names
    table = Table(
        "t", (Column("zip", "category", categories=categories),), values, np.arange(3000) % 2, classes=(0, 1)
    )
    with pytest.raises(
        SchemaError, match=r"1,500 categories that are not declared, .* declare them beforehand"
    ):
        introduce(table, {})
    introduce(table, {"categories": {"zip": list(categories)}})


def test_a_refused_client_still_counts_for_the_quorum(coordinator_of):
    coordinator = poisoned(coordinator_of(clients=4), vocabulary=b"\xff")
    with pytest.raises(QuorumError, match="client-3: SchemaError: client-3: an introduction that cannot be"):
        coordinator.enrol()


def test_thousands_of_long_names_are_not_all_compared_with_the_column_that_is_missing():
    """Comparing 4,000 names of 1,000 letters took a coordinator 23 seconds."""
    name, taken = "ab" * 495, Agreement({})
    for party in ("ann", "bob"):
        taken.add(party, {"signature": signature((name, "number")), "vocabulary": b'{"classes": [0, 1]}'})
    odd = [(f"{'ba' * 490}{index}", "number") for index in range(4000)]
    taken.add("mallory", {"signature": signature(*odd), "vocabulary": b'{"classes": [0, 1]}'})
    started = time.process_time()
    assert taken.outvoted().keys() == {"mallory"}
    assert time.process_time() - started < 5


def test_classes_of_a_regression_keep_nobody_else_from_joining_late():
    columns = signature(*NUMBERS, task="regression")
    first = Agreement({})
    first.add("ann", {"signature": columns, "vocabulary": b"{}"})
    late = Agreement(vocabulary(first.make_schema()))
    late.hold(first.make_schema())
    late.add("bob", {"signature": columns, "vocabulary": b"{}"})
    with pytest.raises(SchemaError, match="mallory: classes of a regression, which has none"):
        late.add("mallory", {"signature": columns, "vocabulary": b'{"classes": [1, 2]}'})
    assert late.make_schema() == first.make_schema()
