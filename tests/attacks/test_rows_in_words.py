"""Rows that would travel as words: in the text of a failure, and as the categories of a column of text.

Nobody attacks here. A site's file has one line too long, or one stray word in a column of numbers.
"""

from __future__ import annotations

import numpy as np
import pytest

from tacit.core.errors import DataError, QuorumError
from tacit.core.manifest import Components
from tacit.data.agreement import introduce
from tacit.data.files import load
from tacit.data.preparation import Preparation
from tacit.methods.fedheonn import FedHEONN
from tacit.protections.masked import Masked
from tests.helpers.deployed import coordinator_at, make_sites

ALICE = "41,Alice,73000,yes"


@pytest.fixture
def sites(tmp_path):
    rows = np.random.default_rng(0).normal(size=(12, 2)).round(3), ["yes", "no"] * 6
    return make_sites(tmp_path, {"north": rows})


def test_a_line_that_cannot_be_read_stays_at_the_site(sites, tmp_path):
    path = tmp_path / "north.csv"
    path.write_text(path.read_text() + ALICE + "\n")
    with pytest.raises(DataError, match=r"Expected 3 columns, got 4") as told:
        load(path, target="target")
    assert "Alice" not in str(told.value) and told.value.__cause__ is None
    parts = Components(FedHEONN(), Masked(), Preparation())
    coordinator = coordinator_at(sites, parts, min_clients=3, min_count=5, link={"authenticated": True})
    with pytest.raises(QuorumError, match=r"\.csv cannot be read as CSV: correct the file\. Mend") as told:
        coordinator.enrol()
    assert "Alice" not in str(told.value) and "Alice" not in str(coordinator.failures)


def table_of(path, words):
    lines = [f"{word},{index % 2}" for index, word in enumerate(words)]
    path.write_text("\n".join(["income,target", *lines]) + "\n")
    return load(path, target="target")


INCOMES = [str(20_000 + 137 * index) for index in range(60)]


def test_a_stray_word_does_not_make_categories_of_numbers(tmp_path):
    table = table_of(tmp_path / "rows.csv", [*INCOMES, "unknown"])
    with pytest.raises(DataError, match=r"'income' holds numbers, and 1 stray words such as .* --na-values"):
        introduce(table, {})
    declared = {"categories": {"income": [*INCOMES, "unknown"]}}
    assert b"20000" not in introduce(table, declared)["vocabulary"]


def test_words_that_recur_are_categories(tmp_path):
    words = [f"ward {letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    assert b"ward z" in introduce(table_of(tmp_path / "rows.csv", words * 2), {})["vocabulary"]
    with pytest.raises(
        DataError, match="column 'income' holds 26 different texts in 30 rows, as identifiers"
    ):
        introduce(table_of(tmp_path / "rows.csv", [*words, *words[:4]]), {})
