"""No differencing: what opens again opens only if enough contributions changed, under every protection."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from tacit import Federation, Table
from tacit.core.errors import OpeningError
from tacit.core.layout import Field, Layout
from tacit.core.marks import contribution
from tacit.methods.base import Method
from tacit.models.onelayer import OneLayer
from tacit.protections.plain import Plain

CLIENTS = 7


class Askers(Method):
    """Asks for the same total twice, of other clients."""

    later: ClassVar[slice] = slice(None)
    found: ClassVar[list[float]] = []

    @property
    def sums(self):
        return 2

    def _layout(self, schema):
        return Layout(Field("rows", (), bound=100.0))

    @contribution(_layout, revealed=True)
    def rows(self, party, shared):
        return {"rows": party.data.rows}

    def train(self, coordinator):
        for chosen in (slice(None), self.later):
            self.found.append(float(coordinator.reveal(self.rows, coordinator.parties[chosen])["rows"]))

    def model(self, shared):
        return OneLayer(np.zeros((2, 1)), "linear", None)


@pytest.fixture
def asked():
    table = Table.of(np.arange(28.0)[:, None], np.arange(28.0), task="regression")
    federation = Federation.of(
        {f"site {i}": table.take(slice(4 * i, 4 * i + 4)) for i in range(CLIENTS)},
        quorum=0.5,
    )

    def ask(later, protection):
        Askers.later, Askers.found = later, []
        # With a count of cells, sums over others than were counted are refused for that reason.
        federation.train(Askers(), protect=protection, min_count=1)
        return Askers.found

    return ask


@pytest.mark.parametrize("later", [slice(1, None), slice(2, None)], ids=["one", "two"])
def test_a_total_that_differs_by_too_few_is_refused(asked, later, any_protection, keys_once):
    if any_protection.promises.single:
        pytest.skip("it hides nothing")
    with (
        keys_once(),
        pytest.raises(OpeningError, match=r"would differ by \d clients? from one that was opened before"),
    ):
        asked(later, any_protection)
    assert len(Askers.found) == 1


def test_the_same_total_and_one_over_other_clients_open(asked, any_protection, keys_once):
    for later, rows in ((slice(None), 28.0), (slice(3, None), 16.0)):
        with keys_once():
            found = asked(later, any_protection)
        assert len(found) == 2
        if any_protection.name != "noised":
            assert found == pytest.approx([28.0, rows], abs=0.01)


def test_plain_hides_nothing_and_so_refuses_nothing(asked):
    assert asked(slice(1, None), Plain()) == [28.0, 24.0]
