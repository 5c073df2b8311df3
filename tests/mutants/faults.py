"""Faults that no rule makes, but that an author could: each is a text that becomes another.

A fault whose text is no longer there stops the campaign: write it anew for the code as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.mutants.operators import Mutant

SOURCES = Path(__file__).parents[2] / "src/tacit"


@dataclass(frozen=True)
class Fault:
    """One fault by hand, in a room under whose name it is reported."""

    room: str
    path: str
    before: str
    after: str
    meaning: str

    def mutant(self) -> Mutant:
        """Return where the fault lies in the source as it is."""
        source = (SOURCES / self.path).read_text()
        if (count := source.count(self.before)) != 1:
            raise LookupError(f"{self.path} has {count} times, not once: {self.before!r}")
        start = source.index(self.before)
        line = source.count("\n", 0, start) + 1
        stop = start + len(self.before)
        return Mutant(
            self.path, self.meaning.replace(" ", "_"), line, start, stop, self.before, self.after, "by hand"
        )


FAULTS: list[Fault] = []
