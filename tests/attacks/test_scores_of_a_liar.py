"""Scores that no rows can have: a client hands over counts of rows below 0, or without end.

The attacker is a client, and the first that is asked to open the total of scores. The coordinator must
neither end with an error of Python's nor reserve memory for as many sites as it is told of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tacit.core import steps
from tacit.core.message import Message
from tacit.core.method import SITE_BINS
from tacit.core.shared import Total
from tacit.engines.holdings import holdings_of
from tacit.federation import Federation
from tacit.models.scores import check_counts, classification_scores, spread_of
from tests.conftest import make_table

LIES: dict[str, Callable[[str, Any], Any]] = {
    "sites without end": lambda name, value: np.full_like(value, 1e12) if name == "sites" else value,
    "fewer sites than none": lambda name, value: -value if name == "sites" else value,
    "rows without end": lambda name, value: np.full_like(value, 1e308),
    "fewer rows than none": lambda name, value: -value if name == "confusion" else value,
}


def train(monkeypatch: pytest.MonkeyPatch, lie: Callable[[str, Any], Any]) -> Any:
    honest = steps.STEPS["disclose_total"]

    def disclose(party: Any, *asked: Any) -> Message:
        told = honest(party, *asked)
        return Message({name: lie(name, value) for name, value in told.items()})

    monkeypatch.setitem(steps.STEPS, "disclose_total", disclose)
    held = holdings_of(make_table(rows=120), np.arange(120) % 3, 0.25, 1)
    return Federation(held).train("fedheonn", protect="shares")


def test_control_honest_counts_give_scores(monkeypatch):
    assert train(monkeypatch, lambda name, value: value).holdout["accuracy"] > 0


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_counts_that_no_rows_have_give_no_scores(monkeypatch, lie):
    training = train(monkeypatch, lie)
    assert training.trained is not None and training.holdout is None
    (note,) = (note["text"] for note in training.record.notes if note["about"] == "hold-out")
    assert note.startswith("no federated evaluation: '") and note.endswith("does not count as agreed")


def test_control_without_the_check_the_coordinator_ends():
    sites = np.zeros(SITE_BINS)
    sites[3] = -1.0
    with pytest.raises(IndexError, match="out of bounds"):
        spread_of({"sites": sites})
    with pytest.raises(ZeroDivisionError), np.errstate(all="ignore"):
        counts = {"confusion": np.full((2, 2), 1e308), "histogram": np.ones((2, 2, 9)), "loss": 1, "brier": 1}
        classification_scores(counts, ["no", "yes"])


def test_noise_may_leave_less_than_nothing():
    counts = {"confusion": np.array([[-3.0, 2.0], [1.0, 9.0]]), "sites": np.full(SITE_BINS, -1.0)}
    check_counts(Total(counts, 3), noisy=True)
