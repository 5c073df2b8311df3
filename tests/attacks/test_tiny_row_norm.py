"""A manifest with a ``row_norm`` so small that numbers of that size have hardly a digit left.

A row that is shortened to it is then longer than it by rounding alone, and brings more than the noise was
sized for. The control shortens before it divides, as was done once.
"""

from __future__ import annotations

import numpy as np
import pytest

from tacit.data.inputs import shorten_rows
from tacit.methods.heonn.noisy import NoisySums

TINY = [5e-324, 1e-323, 2.5e-323, 1e-310]
ROWS = [np.full((1, size), length / np.sqrt(size)) for size in (4, 9, 100) for length in (1e-18, 1e-17, 1.0)]


def test_control_a_row_comes_out_longer_than_it_may() -> None:
    assert max(np.linalg.norm(shorten_rows(row, norm) / norm) for norm in TINY for row in ROWS) > 1.5


@pytest.mark.parametrize("norm", TINY)
def test_what_it_brings_has_a_norm_of_1_at_most(norm: float) -> None:
    for row in ROWS:
        with np.errstate(all="ignore"):
            terms = NoisySums(0.0, "logistic", norm).terms(row, np.array([[1.0, 0.0]]), 1)
        assert np.sqrt(sum(np.square(part).sum() for part in terms.values())) <= 1 + 1e-12
