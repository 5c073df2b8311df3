"""What several reproductions do alike: divide drawn rows, train, and score after each round."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tacit.core.random import generator
from tacit.core.snapshot import Snapshot
from tacit.data.files import load
from tacit.data.partition import split
from tacit.data.table import Table
from tacit.federation import Federation
from tacit.methods.base import Method

Scores = Mapping[str, Any]


def divide(data: str | Table, rows: int | None, test: float | str, seed: int, **division: Any) -> Federation:
    """Divide so many drawn training rows among clients; the test is a share, or the data set's own."""
    training, held = split(load(data) if isinstance(data, str) else data, test, seed)
    if rows is not None:
        drawn = generator(b"public", seed, "rows").choice(training.rows, rows, replace=False)
        training = training.take(np.sort(drawn))
    federation = Federation.embedded(training, test=None, seed=seed, **division)
    federation.test = held
    return federation


def score(federation: Federation, method: Method, protect: Any = "plain", **settings: Any) -> Scores:
    """Train, and return the scores on the test and, as ``cpu_s``, the CPU seconds of all parties."""
    training = federation.train(method, protect=protect, **settings)
    assert training.scores is not None
    return {**training.scores, "cpu_s": training.ledger.summary()["sum_cpu_s"]}


def score_rounds(
    federation: Federation, method: Method, protect: Any = "plain", **settings: Any
) -> tuple[Scores, ...]:
    """Train, and return the scores after each round."""
    found: list[Scores] = []

    def keep(kept: Snapshot) -> None:
        assert kept.shared is not None and federation.test is not None
        found.append(method.model(kept.shared).scores(federation.test))

    last = score(federation, method, protect, keep=keep, **settings)
    return (*found[:-1], last)


def count_rounds(scores: Sequence[float], goal: float) -> float:
    """Return how many rounds it takes to a score; one more than there are if it is never reached.

    >>> count_rounds([0.1, 0.8, 0.9], 0.7), count_rounds([0.1], 0.7)
    (2.0, 2.0)
    """
    return float(next((number for number, one in enumerate(scores, 1) if one >= goal), len(scores) + 1))


def points(values: Iterable[float]) -> list[tuple[float, float]]:
    """Return the values over the numbers of their rounds."""
    return [(float(place), float(value)) for place, value in enumerate(values, 1)]
