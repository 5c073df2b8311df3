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


FAULTS = [
    Fault(
        "crypto",
        "crypto/paillier/keys.py",
        "return seal(self, self.randomiser, values, packing)",
        "return seal(self, (lambda once: lambda: once)(self.randomiser()), values, packing)",
        "one randomiser for a whole vector",
    ),
    Fault(
        "crypto",
        "crypto/channel.py",
        "nonce = os.urandom(NONCE)",
        "nonce = bytes(NONCE)",
        "a fixed nonce for sealed messages",
    ),
    Fault(
        "crypto",
        "crypto/channel.py",
        'return bound("place", run, str(number), step, sender, receiver)',
        'return bound("place", run, str(number), step)',
        "seals not bound to sender and receiver",
    ),
    Fault(
        "crypto",
        "crypto/channel.py",
        'for part in (len(raw).to_bytes(4, "little"), raw)',
        "for part in (raw,)",
        "names that run together",
    ),
    Fault(
        "crypto",
        "crypto/sharing.py",
        "higher = random_elements((threshold - 1) * len(constant)).reshape(threshold - 1, len(constant))",
        "higher = np.repeat(random_elements(threshold - 1), len(constant)).reshape(threshold - 1, -1)",
        "one polynomial for a whole vector",
    ),
    Fault(
        "standing",
        "engines/store.py",
        "nonce = os.urandom(NONCE)",
        "nonce = bytes(NONCE)",
        "a fixed nonce in the party store",
    ),
    Fault(
        "protections",
        "protections/masked/wire.py",
        "return hash_pieces(purpose.encode(), run.encode(), owner.encode(), number",
        "return hash_pieces(purpose.encode(), run.encode(), number",
        "a commitment not bound to its owner",
    ),
    Fault(
        "core",
        "core/snapshot.py",
        'if known.state.get("schema") != party.state["schema"]:',
        "if False:",
        "schema not checked when a site goes on",
    ),
    Fault(
        "core",
        "core/client.py",
        "if not manifest_of(party).experiment:",
        "if False:",
        "a deployed site shows its replica",
    ),
    Fault(
        "scores",
        "models/scores.py",
        "seen = (support > 0) | (called > 0)",
        "seen = support > 0",
        "classes that are predicted but absent left out of the mean",
    ),
]
