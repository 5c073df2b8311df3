"""From what a user names to lines of the book; what cannot be meant is refused before anyone is asked."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.core.errors import ConfigError, ReplayError, nearest
from tacit.standing.book import Book, Contribution
from tacit.standing.differencing import all_rows


def entering(
    book: Book, clients: Sequence[str], client: str, rows: tuple[int, int] | None, name: str | None
) -> tuple[Contribution, bool]:
    """Return the line for a contribution, and whether it is in the total already."""
    if client not in clients:
        raise ConfigError(f"there is no client '{client}': {nearest(client, clients)}")
    if name is not None:
        _check_name(name, clients, client)
    first, last = rows or (None, None)
    usual = all_rows(client).id if rows is None else f"{client}:{first}-{last}"
    line = Contribution(name or usual, client, first, last, False)
    known = book.contribution(line.id)
    if known is None:
        return line, False
    if (known.client, known.rows) != (client, rows):
        raise ReplayError(
            f"'{line.id}' is another contribution, of {known.client}: give this one a name of its own"
        )
    if not known.present:
        raise ReplayError(
            f"'{line.id}' was withdrawn: a repeat does not bring it back. Give it another name if {client} "
            "wants to contribute these rows again"
        )
    return line, True


def _check_name(name: str, clients: Sequence[str], client: str) -> None:
    """Refuse a name that could be taken for another client's contribution, or cannot be typed."""
    if not name.isprintable() or not name.strip():
        raise ConfigError(f"a contribution is named {name!r}: give letters, digits and signs")
    for other in clients:
        if name == other or (other != client and name.startswith(f"{other}:")):
            raise ConfigError(f"'{name}' stands for {other}: name the contribution of {client} otherwise")


def leaving(book: Book, word: str) -> list[Contribution]:
    """Return the lines that a contribution's name, or a client's, stands for."""
    line = book.contribution(word)
    if line and any(other.client == word != line.client for other in book.contributions()):
        raise ConfigError(f"'{word}' is a client, and a contribution of {line.client}: name what it brought")
    lines = [line] if line else [other for other in book.contributions() if other.client == word]
    if not lines:
        known = [other.id for other in book.contributions() if other.present]
        raise ConfigError(f"'{word}' never contributed, so nothing can be withdrawn: {nearest(word, known)}")
    if not (present := [line for line in lines if line.present]):
        raise ReplayError(f"'{word}' was withdrawn already: it is in no total any more")
    return present
