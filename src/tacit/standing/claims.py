"""What a standing total claims of itself to the client that opens it: which contributions are in it."""

from __future__ import annotations

from collections import Counter

import msgspec

from tacit.core.claims import Line, write_lines
from tacit.standing.book import Book

REPEATED = "repeated"  # the fact that counts how often a contribution joined beyond the first time


def claimed_lines(book: Book) -> bytes:
    """Return all contributions that ever joined the total, and how often they joined and left."""
    repeated = read_repeated(book)
    lines = ((line, 1 + repeated[line.id]) for line in book.contributions())
    return write_lines(Line(line.id, line.client, joined, joined - line.present) for line, joined in lines)


def read_repeated(book: Book) -> Counter[str]:
    """Return how often contributions joined again, in another group that was merged."""
    raw = book.fact(REPEATED).get("counts")
    return Counter(msgspec.json.decode(raw, type=dict[str, int])) if raw else Counter()


def note_repeated(book: Book, other: Book) -> None:
    """Count what is in both books, before they are merged; within a transaction of the first."""
    both = {line.id for line in book.contributions()} & {line.id for line in other.contributions()}
    if counts := read_repeated(book) + read_repeated(other) + Counter(both):
        book.note(REPEATED, {"counts": msgspec.json.encode(counts)})
