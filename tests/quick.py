"""What ``make test`` leaves out and ``make test-full`` does.

Tests marked ``slow`` are left out by pytest itself. This module thins out the rest: fewer examples of a
property, and no drawings in the reports of runs that are about something else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from unittest import mock

import pytest
from markupsafe import Markup

from tacit.runs.page import drawing

QUICK = "not slow"  # the expression of marks by which `make test` chooses its tests


class Mode:
    """Whether this session is the quick one; set before any test is collected."""

    quick = False


def examples(count: int) -> int:
    """Return how many examples of a property to try: a quarter of ``count`` in the quick session."""
    return max(4, count // 4) if Mode.quick else count


def representatives(values: Iterable[Any], *quick: Any) -> list[Any]:
    """Return all values as parameters of a test; all but the ``quick`` ones are marked slow."""
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values]


class BlankSheet(drawing.Sheet):
    """A sheet that shows its texts and draws nothing."""

    def __init__(self, width: float, height: float, label: str) -> None:
        self.label, self.figure = label, mock.MagicMock()
        self.figure.subplots.return_value = mock.MagicMock(), mock.MagicMock()
        self._texts: list[str] = []

    def text(self, value: object, longest: int = 28) -> str:
        self._texts.append(super().text(value, longest))
        return self._texts[-1]

    def finish(self) -> None:
        self.svg = Markup(f"<svg>{' '.join(map(drawing.escape, self._texts))}</svg>")
