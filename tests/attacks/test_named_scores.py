"""A site that tells its score under its name: with models of its own choice a coordinator asks for counts.

The share of rows for which a model that always says the same class is right is that class's share, at that
site alone; and a model that looks at one column only tells how its values are distributed.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from tacit import Federation, FedHEONN
from tacit.core.party import Party
from tacit.core.secret import Secret


@pytest.fixture
def site(table):
    return Party("site", lambda: table, Secret(bytes(32)), holdout=lambda: table, names_score=True)


def told(site, shared):
    """What the site tells of itself beside its protected counts."""
    FedHEONN().evaluation(site, shared)
    notes, site.notes = site.notes, []
    return [float(re.match(r"accuracy (\S+) on \d+ rows", note.text)[1]) for note in notes]


def always(shared, output):
    """A model that says the same class of every row."""
    weights = np.zeros_like(shared["weights"])
    weights[0] = np.where(np.arange(weights.shape[1]) == output, 9.0, -9.0)
    return shared | {"weights": weights}


@pytest.fixture
def shared(table, holdings):
    return Federation(holdings(table, 3)).train("fedheonn", protect="plain").outcome.shared


def test_a_model_of_its_choice_shows_a_share_of_the_rows(site, shared, table):
    (found,) = told(site, always(shared, 0))
    assert abs(found - np.mean(shared.schema.labels(table) == 0)) < 1e-4


def test_one_score_is_told_in_a_run(site, shared):
    assert len(told(site, shared)) == 1
    assert [told(site, always(shared, output)) for output in range(3)] == [[], [], []]
