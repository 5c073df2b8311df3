"""What a report shows of boosted trees: importances by column and the first trees."""

from __future__ import annotations

import re

import pytest

from tacit.runs.analysis import trees_of
from tacit.runs.report import render
from tests.helpers.grown import random_trees
from tests.unit.test_trees import hand_made, model


def test_a_tree_is_told_as_splits_within_splits():
    inner = {
        "split": "colour: blue",
        "missing": "left",
        "left": {"value": 0.5, "more": False},
        "right": {"value": 3.0, "more": False},
    }
    left = {"value": -2.0, "more": False}
    assert model().nested(0) == {"split": "age < 30", "missing": "right", "left": left, "right": inner}
    assert model().nested(0, levels=1)["right"] == {"value": 0.0, "more": True}
    assert model().nested(1) == {"value": 0.25, "more": False}


def test_an_analysis_has_importances_and_the_first_trees():
    found, _ = random_trees("softmax")
    told = trees_of(found)
    assert told["count"] == 36
    assert told["first"] == [found.nested(0), found.nested(1)]
    assert {name: gain for name, (gain, _) in told["columns"].items()} == found.importances()
    assert {name: cover for name, (_, cover) in told["columns"].items()} == found.importances("cover")
    assert trees_of(None) is None


@pytest.mark.draws
def test_the_page_draws_the_first_trees():
    word = "<script>"
    crafted = model(**hand_made())
    columns = trees_of(crafted)
    columns["first"][0]["split"] = f"{word} < 30"
    page = render({"trees": columns})
    assert "Tree 2 of 2" in page
    assert "colour: blue" in page
    assert "−2.00" in page
    assert word not in page
    assert "&lt;script&gt; &lt; 30" in page
    cells = re.search(r'<th scope="row">age</th><td class="n">(.*?)</td><td class="n">(.*?)</td>', page)
    assert cells.groups() == ("10.0", "8.00")
    assert "first trees" not in render({"trees": None})
