"""Names that a shell may complete; each is looked up when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def data(incomplete: str) -> list[str]:
    """Complete the name of a data set."""
    from tacit.data.files import available

    return starting(incomplete, (known.name for known in available()))


def runs(incomplete: str) -> list[str]:
    """Complete the name of a run in the usual folder."""
    return starting(
        incomplete, ["latest", *(path.parent.name for path in Path("runs").glob("*/result.json"))]
    )


def papers(incomplete: str) -> list[str]:
    """Complete the name of a paper whose tables can be repeated."""
    from tacit.reproduce.harness import PAPERS

    return starting(incomplete, [*PAPERS, "all"])


def benches(incomplete: str) -> list[str]:
    """Complete the name of a bench."""
    from tacit import bench
    from tacit.core.errors import ConfigError

    try:
        return starting(incomplete, [*bench.benches(), "all"])
    except ConfigError:
        return []


def starting(incomplete: str, names: Iterable[str]) -> list[str]:
    """Return the names that start as typed.

    >>> starting("ma", ["iid", "majority", "majority-even"])
    ['majority', 'majority-even']
    """
    return sorted(name for name in names if name.startswith(incomplete))
