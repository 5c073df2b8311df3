"""How clients agree on labels and categories without telling who holds which.

By sums in a run of its own: docs/preparation.md says how, what this shows to whom, and what a party can do
that lies. A client that lies has to guess in which buckets others have rare words: the run ends at the first
that nobody spells.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.core.client import manifest_of
from tacit.core.coordinator import Coordinator
from tacit.core.errors import DataError, OpeningError, SchemaError
from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.core.party import Party
from tacit.core.shared import Shared, Total
from tacit.data.agreement import DECLARE, MOST_AGREED, SOUGHT
from tacit.data.schema import OTHER, Schema
from tacit.data.table import count_words, order_labels

BUCKETS = 4096
CELLS = 64  # words that one sum spells
LETTERS, CHECK = 64, 4  # bytes of a word with its column and checksum
ATTEMPTS = 8  # with hashes that differ
LABEL = -1  # column of a word that is a label


class WordSums:
    """The sums by which a preparation agrees on words."""

    @contribution(lambda self, schema: Layout(Field("counts", (BUCKETS,), bound=1.0)), family="cells")
    def word_counts(self, party: Party, shared: Shared) -> dict[str, Any]:
        """How many of this party's rows have words in each bucket, as shares of the least count."""
        counts, least = np.zeros(BUCKETS), _least(party)
        for word, rows in _unknown_words(party, shared):
            counts[_bucket(word, shared)] += rows
        return {"counts": np.minimum(counts, least) / least}

    @apply
    def keep_frequent(self, total: Total, shared: Shared) -> Shared:
        """Note which buckets have enough rows."""
        sought = np.flatnonzero(total["counts"] > 0.9995)
        if (count := len(sought) + len(_known(shared))) > MOST_AGREED:  # each is a feature for all clients
            raise SchemaError(
                f"by the clients' counts there are {count:,} labels and categories, at most {MOST_AGREED:,} "
                f"are agreed on: {DECLARE}"
            )
        return shared | {"sought": sought, "counted": total.contributors, "spelt": 0, "unread": 0}

    @contribution(
        lambda self, schema: Layout(
            Field("holders", (CELLS,), bound=1.0),
            Field("letters", (CELLS, LETTERS), bound=1.0),
            Field("others", (len(schema.columns) + 1,), bound=1.0),
        ),
        family="cells",
    )
    def word_letters(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Spell this party's words of frequent buckets; say in which columns it has others."""
        least, places = _least(party), {bucket: place for place, bucket in enumerate(_present(shared))}
        holders, letters = np.zeros(CELLS), np.zeros((CELLS, LETTERS))
        others = np.zeros(len(shared.schema.columns) + 1)
        for word, rows in _unknown_words(party, shared):
            bucket = _bucket(word, shared)
            if bucket in places:
                holders[places[bucket]] += 1
                letters[places[bucket]] += _spell(word) / 255
            elif bucket not in shared["sought"]:
                others[msgspec.json.decode(word)[0]] += rows
        letters /= np.maximum(holders, 1)[:, None]  # of two own words the mean, which spells nothing
        return {"holders": holders > 0, "letters": letters, "others": np.minimum(others, least) / least}

    @apply
    def read_letters(self, total: Total, shared: Shared) -> Shared:
        """Read the words of these buckets; those that cannot be read are counted.

        None is kept if nobody spells a bucket with enough rows: a client has left, or made up its counts.
        """
        holders = np.rint(total["holders"])[: len(_present(shared)), None]
        if not (holders > 0).all() and total.contributors == shared["counted"]:
            raise DataError(
                "by the clients' counts enough rows have a word that no client has: one of them does not "
                "count as agreed. Find out which, and run again without it"
            )
        letters = total["letters"][: len(holders)] / np.maximum(holders, 1)
        read = [_read(row.tobytes()) for row in np.rint(255 * letters).clip(0, 255).astype(np.uint8)]
        kept = [word for word in read if word is not None and _is_genuine(word, shared.schema)]
        words = [*_known(shared), *(kept if (holders > 0).all() else ())]
        return shared | {
            "words": np.frombuffer(msgspec.json.encode([word.decode() for word in words]), dtype=np.uint8),
            "spelt": shared["spelt"] + CELLS,
            "unread": shared["unread"] + read.count(None),
            "others": total["others"] > 1e-4,
        }


def agree_on_words(coordinator: Coordinator) -> dict[str, Any]:
    """Return the labels and categories that enough rows of the clients have, as a manifest declares them."""
    preparation: Any = coordinator.components.preparation
    coordinator.enrol()
    schema: Schema = coordinator.schema
    if schema.task == "regression" and schema.numeric:
        return {}
    coordinator.protection.prepare(2)
    for attempt in range(ATTEMPTS):
        assert coordinator.shared is not None
        coordinator.shared = coordinator.shared | {"attempt": attempt}
        coordinator.parties = coordinator.round(preparation.word_counts, preparation.keep_frequent)
        while coordinator.shared["spelt"] == 0 or len(_present(coordinator.shared)):
            coordinator.parties = coordinator.round(preparation.word_letters, preparation.read_letters)
        if not coordinator.shared["unread"]:
            return _vocabulary(schema, coordinator.shared, coordinator.manifest.min_count)
    raise SchemaError(f"words of the clients cannot be told apart in {ATTEMPTS} attempts: declare them")


def _vocabulary(schema: Schema, shared: Shared, least: int) -> dict[str, Any]:
    found: dict[int, list[Any]] = {}
    for index, word in map(msgspec.json.decode, _known(shared)):
        found.setdefault(index, []).append(word)
    if shared["others"][LABEL]:
        raise DataError(
            f"a class occurs in fewer than min_count = {least} rows of all clients together, and what is "
            "learnt of it would show them: put it together with another class, leave its rows out, or "
            "declare the classes; `tacit data check` finds it at the site that has it"
        )
    categories = {
        column.name: [*sorted(found.get(index, ())), *([OTHER] if shared["others"][index] else ())]
        for index, column in enumerate(schema.columns)
        if column.kind == "category"
    }
    classes = {"classes": list(order_labels(found[LABEL]))} if LABEL in found else {}
    return {**classes, "categories": categories}


def _unknown_words(party: Party, shared: Shared) -> Iterator[tuple[bytes, int]]:
    table, known, declared = party.data, set(_known(shared)), manifest_of(party).declared
    columns: list[tuple[int, tuple[Any, ...], NDArray[Any]]] = [
        (index, column.categories, table.values[:, index])
        for index, column in enumerate(table.columns)
        if column.kind == "category" and column.name not in declared.get("categories", {})
    ]
    if table.task == "classification" and "classes" not in declared:
        columns.append((LABEL, table.classes, table.target))
    for index, words, codes in columns:
        where = "the target" if index == LABEL else f"column '{table.columns[index].name}'"
        for value, rows in count_words(codes, words).items():
            word = msgspec.json.encode((index, value))
            if len(word) > LETTERS - CHECK:
                raise DataError(
                    f"a word of {len(word)} bytes in {where}: at most {LETTERS - CHECK} are agreed on "
                    "unless they are declared. Shorten it, or declare the categories"
                )
            if word not in known:
                yield word, rows


def _least(party: Party) -> int:
    """Return the least count, if this is a run that agrees on words; in others nobody tells any."""
    if not manifest_of(party).declared.get(SOUGHT):
        raise OpeningError(f"{party.id} agreed to no run that seeks words: it contributes none")
    return manifest_of(party).min_count


def _bucket(word: bytes, shared: Shared) -> int:
    salt = int(shared["attempt"]).to_bytes(8, "little")
    return int.from_bytes(hashlib.blake2b(word, digest_size=8, salt=salt).digest(), "little") % BUCKETS


def _present(shared: Shared) -> list[int]:
    buckets: list[int] = shared["sought"][shared["spelt"] : shared["spelt"] + CELLS].tolist()
    return buckets


def _known(shared: Shared) -> list[bytes]:
    if "words" not in shared:
        return []
    return [word.encode() for word in msgspec.json.decode(shared["words"].tobytes(), type=list[str])]


def _spell(word: bytes) -> NDArray[np.uint8]:
    check = hashlib.blake2b(word, digest_size=CHECK).digest()
    return np.frombuffer(word.ljust(LETTERS - CHECK, b"\0") + check, dtype=np.uint8)


def _read(letters: bytes) -> bytes | None:
    word = letters[:-CHECK].rstrip(b"\0")
    return word if hashlib.blake2b(word, digest_size=CHECK).digest() == letters[-CHECK:] else None


def _is_genuine(word: bytes, schema: Schema) -> bool:
    """Return whether this is a label or a column's category, written as an honest client writes it."""
    try:
        index, value = msgspec.json.decode(word, type=tuple[int, str | int | float | bool])
    except ValueError:  # no JSON, not these two, or not UTF-8
        return False
    fits = index == LABEL or (0 <= index < len(schema.columns) and isinstance(value, str))
    return fits and msgspec.json.encode((index, value)) == word
