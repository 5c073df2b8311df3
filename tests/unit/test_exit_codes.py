"""The table in docs/exit-codes.md is complete and agrees with the error tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tacit.core import errors

PAGE = Path(__file__).parents[2] / "docs" / "exit-codes.md"


def table() -> dict[int, str]:
    """Each code of the page's table with its line."""
    lines = re.findall(r"^\| (\d+) \|.*$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    rows = re.findall(r"^\| \d+ \|.*$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(map(int, lines), rows, strict=True))


def error_classes() -> list[type[errors.TacitError]]:
    found = [errors.TacitError]
    for parent in found:  # grows while it is walked: the whole tree, breadth first
        found.extend(child for child in parent.__subclasses__() if child.__module__ == errors.__name__)
    return found


@pytest.mark.parametrize("error", error_classes(), ids=lambda error: error.__name__)
def test_every_error_stands_in_the_line_of_its_code(error: type[errors.TacitError]) -> None:
    assert f"`{error.__name__}`" in table()[error.exit_code]


def test_every_error_of_the_module_is_found_by_the_walk() -> None:
    named = {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.TacitError)
    }
    assert named == set(error_classes())


def test_the_table_names_no_class_that_does_not_exist() -> None:
    named = set(re.findall(r"`(\w+Error)`", "\n".join(table().values())))
    assert named == {error.__name__ for error in error_classes()}


def test_the_codes_are_those_agreed() -> None:
    assert sorted(table()) == [0, 1, 2, 3, 4, 5, 6, 130]
