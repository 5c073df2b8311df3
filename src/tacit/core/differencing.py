"""No differencing: totals that are opened must not differ by too few clients.

Whoever sees a total over five clients and one over four of them subtracts, and has the fifth client's part;
also of two contributions, which may hold the same statistics. So contributions belong to *families*
(:func:`tacit.core.marks.contribution`): all totals of one are compared with each other. What follows from a
model that each round changes is compared only while that model is the same.

A total opens if the clients in it are those of an earlier one, or differ from each by at least as many as a
total must have, and no sum or difference of several shows fewer.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tacit.core.errors import DifferencingError
from tacit.core.marks import Family
from tacit.core.message import Message
from tacit.core.row_space import left_alone
from tacit.core.text import abbreviate

Clients = frozenset[str]
DRAWS = 3  # of clients to leave out, for each number of them


class Subject(NamedTuple):
    """What a total is about: totals of equal subjects are compared."""

    name: str
    state: str = ""  # the shared values from which it follows; empty if it is the same whatever they are


Subjects = tuple[Subject, ...]
ROWS: Subjects = (Subject("rows"),)
CELLS = Subject("cells")


def subjects_of(family: Family | None, contribution: str, state: str) -> Subjects:
    """Return what the total of a contribution is about, if computed from the shared values ``state``."""
    if family in ("rows", "cells"):
        return ROWS if family == "rows" else (*ROWS, CELLS)
    scores = Subject("scores", state)
    if family == "holdout":  # holds the scores of the present model, and counts that are those of any model
        return Subject("holdout"), scores
    return (scores,) if family == "scores" else (Subject(contribution, state),)


class OpenedTotals:
    """Who was in the totals that have been opened, or may have been."""

    def __init__(self) -> None:
        self._opened: dict[Subject, list[Clients]] = {}
        self._announced: tuple[Subjects, Clients] | None = None
        self._old: set[Subject] = set()  # from shared values before the last mark
        self._marked = False

    def check(self, what: str, subjects: Subjects, parties: Iterable[str], least: int) -> None:
        """Refuse a total that with earlier ones of its subjects would show fewer than ``least`` clients."""
        check_opened(what, subjects, frozenset(parties), least, lambda subject: self._opened.get(subject, []))

    def announce(self, subjects: Subjects, parties: Iterable[str]) -> bool:
        """Note that the total of the present sum is about to open; return whether that was not known yet.

        A sum that starts again before its total opens is announced again, and only the last time counts.
        """
        before, self._announced = self._announced, (subjects, frozenset(parties))
        return self._announced != before and bool(self._unknown())

    def _unknown(self) -> list[tuple[Subject, Clients]]:
        subjects, clients = self._announced or ((), frozenset())
        return [(subject, clients) for subject in subjects if clients not in self._opened.get(subject, ())]

    def add(self, subjects: Subjects, parties: Iterable[str]) -> None:
        """Note that the total of the present sum was opened."""
        self.announce(subjects, parties)
        self.count_announced()

    def count_announced(self) -> None:
        """Count what was announced as opened: another sum begins, and nobody knows whether it was."""
        states = {subject.state for subject, _ in self._unknown()} - {""}
        if states and not self._marked:  # nobody goes back to earlier shared values
            self._forget(subject for subject in self._opened if subject.state not in states)
        for subject, clients in self._unknown():
            self._opened.setdefault(subject, []).append(clients)
        self._announced = None

    def mark(self) -> None:
        """Forget what is from before the last mark but one: a run that was stopped goes on from either."""
        self._forget(self._old)
        self._marked, self._old = True, set(self._opened)

    def _forget(self, subjects: Iterable[Subject]) -> None:
        for subject in [subject for subject in subjects if subject.state]:
            self._opened.pop(subject, None)

    def choose(
        self, subjects: Subjects, parties: Iterable[str], least: int, fewest: int, rng: np.random.Generator
    ) -> Clients | None:
        """Return parties of these over whom a total may open, at least ``fewest``; None if there are none.

        They are the clients of an earlier total, or all but a few that are drawn, so that at least ``least``
        differ. Small cells may have to be counted over them before (:meth:`is_counted`).
        """
        present = frozenset(parties)
        subjects = (*ROWS, CELLS) if subjects == ROWS else subjects
        known = {one for subject in subjects for one in self._opened.get(subject, ()) if one <= present}
        for earlier in sorted(known, key=len, reverse=True):
            if fewest <= len(earlier) and self.opens(subjects, earlier, least):
                return earlier
        order = sorted(present)
        for leaving in range(min(least, len(order) - max(fewest, least)) + 1):
            for _ in range(DRAWS):
                drawn = rng.choice(len(order), size=leaving, replace=False)
                found = present.difference(order[place] for place in drawn.tolist())
                if self.opens(subjects, found, least):
                    return found
        return None

    def is_counted(self, parties: Iterable[str]) -> bool:
        """Return whether small cells were counted over these parties, or over none at all."""
        return frozenset(parties) in self._opened.get(CELLS, [frozenset(parties)])

    def opens(self, subjects: Subjects, parties: Iterable[str], least: int) -> bool:
        """Return whether a total over these parties would pass :meth:`check`."""
        try:
            self.check("", subjects, parties, least)
        except DifferencingError:
            return False
        return True

    def to_message(self) -> Message:
        """Return the record as a message; what was announced counts as opened."""
        opened = [(subject, one) for subject, totals in self._opened.items() for one in totals]
        told = [(subject, sorted(clients)) for subject, clients in (*opened, *self._unknown())]
        return Message(totals=msgspec.json.encode(told))

    @classmethod
    def from_message(cls, fields: Mapping[str, Any]) -> "OpenedTotals":
        """Read what :meth:`to_message` returned."""
        found = cls()
        found._marked = True
        totals = msgspec.json.decode(fields.get("totals", b"[]"), type=list[tuple[Subject, Clients]])
        for subject, clients in totals:
            found._opened.setdefault(subject, []).append(clients)
        return found


def check_opened(
    what: str, subjects: Subjects, now: Clients, least: int, opened: Callable[[Subject], Sequence[Clients]]
) -> None:
    """Refuse a total that with those ``opened`` of its subjects would show fewer than ``least`` clients."""
    for subject in subjects if least > 1 else ():
        if now not in (before := opened(subject)):
            _check_totals(what, before, now, least)
    if subjects == ROWS:
        check_cells(what, opened(CELLS), now)


def check_cells(what: str, counted: Sequence[Clients], now: Clients) -> None:
    """Refuse a total of rows over other clients than those whose small cells were counted, if any were."""
    if counted and now not in counted:
        raise DifferencingError(
            f"{what}: small cells were counted over other clients, and those of this total may have smaller "
            f"ones {_describe(counted[-1], now)}",
            now,
        )


def _check_totals(what: str, before: Sequence[Clients], now: Clients, least: int) -> None:
    for earlier in before:
        if (changed := len(earlier ^ now)) < least:
            what_shows = "them" if changed > 1 else "it"
            raise DifferencingError(
                f"{what}: this total would differ by {changed} client{'s' * (changed > 1)} from one that "
                f"was opened before, and the difference would show {what_shows}: at least {least} must "
                f"differ {_describe(earlier, now)}",
                now,
            )
    pieces = ({(name, "") for name in clients} for clients in (*before, now))
    if len(before) > 1 and (few := left_alone(list(pieces), least)):
        raise DifferencingError(
            f"{what}: added to and subtracted from those opened before, this total would show "
            f"{' and '.join(sorted(few))}: at least {least} must stay together "
            f"{_describe(before[-1], now)}",
            now,
        )


def _describe(earlier: Clients, now: Clients) -> str:
    changes = {"missing": earlier - now, "new": now - earlier}
    told = ", ".join(f"{word}: {abbreviate(sorted(names))}" for word, names in changes.items() if names)
    return f"({told}). Run or resume with the same clients as before: a new run over these shows it as well"
