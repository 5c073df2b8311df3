"""Totals that stand: what a coordinator would have a client open instead of what joined and left."""

from __future__ import annotations

from unittest import mock

import pytest

from tacit import Federation, Preparation
from tacit.core.claims import Line, write_lines
from tacit.core.errors import OpeningError, ReplayError
from tacit.standing import Standing, opening
from tests.attacks.malicious import REFUSED, unchecked


@pytest.fixture
def standing(tmp_path):
    federation = Federation.embedded("iris", clients=6, seed=1)
    options = {"protect": "ckks", "min_clients": 3, "preparation": Preparation(scale="none")}
    with Standing.start(tmp_path / "state", federation, **options) as made:
        yield made


def opened(standing, lines=None, total=None, clients=4):
    """Have a client open a total, said to hold these lines of so many clients; the model, or why not."""
    book = standing.folder.book
    with book.writing():
        book.note("total", {**book.fact("total"), **(total or {})})
    told = book.claimed_lines() if lines is None else write_lines(lines)
    with (
        mock.patch.object(book, "claimed_lines", lambda: told),
        mock.patch.object(opening, "clients_in", lambda _: clients),
    ):
        try:
            return opening.solution(book, standing.coordinator(), 0)
        except OpeningError as error:
            return str(error)


def totals(standing):
    """The protected total after each client has joined."""
    found = []
    for number in range(1, 5):
        standing.add([f"client-{number}"])
        found.append({k: v for k, v in standing.folder.book.fact("total").items() if k[0] != "$"})
    return found


def lines_of(*numbers):
    return [Line(f"client-{n}:all", f"client-{n}", 1, 0) for n in numbers]


def test_one_contribution_many_times(standing):
    first = totals(standing)[0]
    add = standing.coordinator().protection.add
    many = add(add(add(first, first), first), first)
    for lines in (lines_of(1, 2, 3, 4), [Line("client-1:all", "client-1", 4, 0), *lines_of(2, 3, 4)]):
        assert REFUSED in opened(standing, lines, many)
    with unchecked():
        assert "weights" in opened(standing, lines_of(1, 2, 3, 4), many)  # that of one client


def test_others_than_it_says(standing):
    three = totals(standing)[2]
    assert REFUSED in opened(standing, lines_of(1, 2, 3, 4), three)
    assert REFUSED in opened(standing, lines_of(1, 2, 4), three, clients=3)
    assert REFUSED in opened(standing, [*lines_of(1, 2, 3), Line("more", "client-4", 1, 0)], three)
    assert "weights" in opened(standing, lines_of(1, 2, 3), three, clients=3)


def test_what_was_withdrawn_is_not_in_it(standing):
    totals(standing)
    standing.withdraw(["client-2"])
    assert REFUSED in opened(standing, lines_of(1, 2, 3, 4))
    assert REFUSED in opened(standing, lines_of(1, 3, 4), clients=3)
    assert "weights" in opened(standing, clients=3)  # it has joined and left


def test_a_few_clients_under_many_names(standing):
    """The number of clients counts, not that of their contributions."""
    for first in (0, 3, 6, 9):
        standing.add(["client-1"], rows=(first, first + 3))
    names = [f"client-1:{first}-{first + 3}" for first in (0, 3, 6, 9)]
    lines = [Line(name, "client-1", 1, 0) for name in names]
    assert REFUSED in opened(standing, lines)


def test_other_rows_under_a_name_that_was_used(standing):
    """The coordinator says that it never got the first: the same pad would cover two vectors."""
    standing.add(["client-1"], rows=(0, 5), name="first")
    standing.add(["client-1"], rows=(5, 10), name="second")
    book = standing.folder.book
    with book.writing():
        book._base.execute("DELETE FROM facts WHERE name = 'contribution/first'")
    with mock.patch.object(type(book), "present", lambda self: {"client-1": ["second"]}):
        standing.add(["client-1"], rows=(10, 12), name="third")  # the client forgets 'first'
        with pytest.raises(ReplayError, match="contributed other values under this name"):
            standing.add(["client-1"], rows=(12, 15), name="first")


def test_a_contribution_that_was_in_two_groups(standing, tmp_path):
    """Withdrawn from one of them, it joined twice and left once: the merged total still proves itself."""
    standing.branch(tmp_path / "branch")
    standing.add(["client-1", "client-2", "client-5", "client-6"])
    with Standing.open(tmp_path / "branch", Federation.embedded("iris", clients=6, seed=1)) as branch:
        branch.add(["client-2", "client-3", "client-4"])
        branch.withdraw(["client-2"])
    assert standing.merge(tmp_path / "branch") == 2
    assert standing.weights().weights.shape[1] == 3
