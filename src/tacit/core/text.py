"""Text that others wrote, made harmless for terminals, logs and pages."""

import unicodedata
from collections.abc import Sequence

HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # control and format characters, surrogates, line ends
JOINERS = "\u200c\u200d"  # which some scripts and emoji need
MARK = "\ufffd"
LONGEST = 4096  # characters of a text that a party sends for people to read


def visible(text: str, keep: str = "") -> str:
    """Replace what moves a cursor, turns the writing direction or ends a line, except for some characters."""
    if text.isprintable():
        return text
    kept = keep + JOINERS
    return "".join(MARK if c not in kept and unicodedata.category(c) in HIDDEN else c for c in text)


def foreign(text: str) -> str:
    """Return what a party wrote for people to read, on one line and not too long."""
    return visible(text[:LONGEST])


def abbreviate(names: Sequence[str]) -> str:
    """Return a few names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
