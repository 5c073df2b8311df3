"""A class, a category or a flag that occurs once gives its whole row to whoever opens the Gram total.

The attacker is whoever opens totals: a client under ``ckks``, the coordinator under ``masked``. It keeps to
the protocol and only computes with the total and the scale that it sees anyway.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit import Federation, FedHEONN, Table
from tacit.core import differencing
from tacit.core.differencing import OpenedTotals
from tacit.core.errors import DataError, DifferencingError, QuorumError
from tacit.core.events import Events, Noted, TotalOpened
from tacit.data import cells
from tacit.data.agreement import Agreement
from tacit.data.table import Column
from tacit.engines.embedded import EmbeddedEngine
from tacit.methods.heonn.exchange import Units
from tacit.methods.heonn.exchanges import Sealed
from tacit.models.activations import ACTIVATIONS, HIGH, LOW
from tacit.models.leastsquares import symmetric
from tacit.protections.ckks import CKKS
from tests.conftest import Tap

PROTECTIONS = ("ckks", "masked")
WARDS = ("east", "south", "west")
CLIENTS = 6
ALICE = 17  # the only one of her kind


def patients(*, rare_class: bool = False, rare_ward: bool = False, rare_flag: bool = False) -> Table:
    """Age, income, a flag and the ward of 120 patients."""
    rng = np.random.default_rng(5)
    age, income = rng.integers(20, 90, 120), rng.integers(10, 200, 120)
    flag = np.zeros(120) if rare_flag else np.arange(120) % 2
    ward = np.arange(120) % 2
    target = 2 * (np.arange(120) // 2 % 2)
    if rare_class:
        target[ALICE] = 1
    if rare_ward:
        ward[ALICE] = 2
    if rare_flag:
        flag[ALICE] = 1
    columns = (Column("age"), Column("income"), Column("flag"), Column("ward", "category", categories=WARDS))
    values = np.column_stack([age, income, flag, ward]).astype(float)
    return Table("patients", columns, values, target, classes=("no", "rare", "yes")).take(slice(None))


def federation_of(table: Table) -> Federation:
    tables = {f"site-{index}": table.take(slice(index, None, CLIENTS)) for index in range(CLIENTS)}
    declared = {"classes": list(table.classes), "categories": {"ward": list(WARDS)}}
    return Federation.of(tables, declared=declared)


class Opened:
    """What whoever opens the total of the training sees: the total, and the scale that was agreed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[Any] = []
        solve = Sealed.solve

        def spying(exchange: Sealed, total: Any, shared: Any, units: Units) -> Any:
            self.seen.append((total, shared, units))
            return solve(exchange, total, shared, units)

        monkeypatch.setattr(Sealed, "solve", spying)

    def sums(self) -> tuple[np.ndarray, np.ndarray]:
        """XᵀX and Xᵀd̄ of the rows as they were before they were scaled."""
        total, shared, units = self.seen[-1]
        size = len(units.lengths)
        gram = symmetric(total["gram"][0, 0, 0], size) * np.outer(units.lengths, units.lengths)
        m = total["m"][0, 0] * units.lengths[:, None] * units.target_unit / units.slope
        back = np.eye(size)
        back[0, 1:] = shared["centre"]
        back[1:, 1:] = np.diag(np.where(shared["constant"], 0.0, shared["spread"]))
        return back.T @ gram @ back, back.T @ m

    def row_of_class(self, place: int) -> np.ndarray:
        """The sum of the rows of a class, a one before it: d̄ takes two values, and Σx is known."""
        gram, m = self.sums()
        low, high = ACTIVATIONS["logistic"].inverse(np.array([LOW, HIGH]))
        return (m[:, place] - low * gram[0]) / (high - low)

    def row_of_feature(self, place: int) -> np.ndarray:
        """The sum of the rows that have a feature, a one before it: its line of XᵀX."""
        return self.sums()[0][1 + place]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    return Opened(monkeypatch)


def alice(table: Table) -> np.ndarray:
    """Her age, income and flag, after a one that says that she is alone."""
    return np.append(1.0, table.values[ALICE, :3])


@pytest.mark.parametrize("protect", PROTECTIONS)
def test_without_a_least_count_the_row_of_a_class_that_occurs_once_is_read(opened, protect):
    table = patients(rare_class=True)
    federation_of(table).train(FedHEONN(), protect=protect, min_count=1)
    np.testing.assert_allclose(opened.row_of_class(1)[:4], alice(table), atol=0.01)


@pytest.mark.parametrize("protect", PROTECTIONS)
def test_without_a_least_count_the_row_of_a_category_that_occurs_once_is_read(opened, protect):
    table = patients(rare_ward=True)
    federation_of(table).train(FedHEONN(), protect=protect, min_count=1)
    np.testing.assert_allclose(opened.row_of_feature(5)[:4], alice(table), atol=0.01)


@pytest.mark.parametrize("protect", PROTECTIONS)
def test_without_a_least_count_the_row_of_a_flag_that_is_set_once_is_read(opened, protect):
    table = patients(rare_flag=True)
    federation_of(table).train(FedHEONN(), protect=protect, min_count=1)
    np.testing.assert_allclose(opened.row_of_feature(2)[:4], alice(table), atol=0.01)


# -- the same with the default ---------------------------------------------------------------------


@pytest.fixture
def scattered(monkeypatch):
    """Let nobody have all rows at hand, as in a deployed federation."""
    monkeypatch.setattr("tacit.federation.check_at_hand", lambda *rows: None)


@pytest.mark.parametrize(("protect", "refusal"), [("ckks", QuorumError), ("masked", DataError)])
def test_a_class_that_occurs_once_stops_the_run_before_anything_else_opens(
    opened, scattered, protect, refusal
):
    with pytest.raises(refusal, match="the class 'rare' occurs in fewer than min_count = 5 rows"):
        federation_of(patients(rare_class=True)).train(FedHEONN(), protect=protect)
    assert not opened.seen


@pytest.mark.parametrize("protect", PROTECTIONS)
def test_a_category_that_occurs_once_becomes_part_of_other(opened, protect):
    table, told = patients(rare_ward=True), []
    training = federation_of(table).train(
        FedHEONN(), protect=protect, events=Events(lambda number, event: told.append(event))
    )
    # One row is too few for "other", so that the first ward that has enough is part of it too.
    assert opened.row_of_feature(3)[0] == pytest.approx(61)
    assert opened.row_of_feature(5)[0] == pytest.approx(0)
    notes = [event.text for event in told if isinstance(event, Noted) and event.about == "preparation"]
    assert len(notes) == 1 and "'ward=east', 'ward=west'" in notes[0]
    rows = [[50, 100, 1, ward] for ward in (*WARDS, "unheard of")]
    east, south, west, unheard = training.model.outputs(np.array(rows, dtype=object))
    np.testing.assert_array_equal(west, east)
    np.testing.assert_array_equal(unheard, east)
    assert not np.allclose(south, east)


@pytest.mark.parametrize("protect", PROTECTIONS)
def test_a_flag_that_is_set_once_is_left_out(opened, protect):
    federation_of(patients(rare_flag=True)).train(FedHEONN(), protect=protect)
    np.testing.assert_allclose(opened.row_of_feature(2), 0.0, atol=1e-9)


# -- cells that were counted over other clients, or other rows ---------------------------------------


MANY = 15  # so many that others can be left out as well


@pytest.fixture
def vanishing(monkeypatch):
    """Lose a client that has four of the five patients of the west ward, once cells are counted."""

    def train(protect: str, lost: tuple[str, ...] = ("site-00",)) -> tuple[Table, list[str]]:
        table, told = patients(), []
        table.values[[0, MANY, 2 * MANY, 3 * MANY, ALICE], 3] = 2  # all but Alice are at site-00
        federation = Federation.of(
            {f"site-{index:02}": table.take(slice(index, None, MANY)) for index in range(MANY)},
            declared={"classes": ["no", "rare", "yes"], "categories": {"ward": list(WARDS)}},
        )

        def make(*arguments: Any, **settings: Any) -> Tap:
            tap = Tap(EmbeddedEngine(*arguments, **settings))
            tap.lose = lambda step, party: bool(told) and step == "client.contribute" and party in lost
            return tap

        monkeypatch.setattr("tacit.federation.EmbeddedEngine", make)
        events = Events(lambda _, e: told.append(e.contribution) if isinstance(e, TotalOpened) else None)
        federation.train(FedHEONN(), protect=protect, events=events)
        return table, told

    return train


@pytest.mark.parametrize("lost", [("site-00",), ("site-00", "site-01", "site-03")], ids=["one", "three"])
@pytest.mark.parametrize("protect", PROTECTIONS)
def test_if_the_count_of_those_who_vanished_stands_the_row_is_read(
    opened, vanishing, protect, lost, monkeypatch
):
    monkeypatch.setattr(OpenedTotals, "is_counted", lambda *_: True)
    monkeypatch.setattr(differencing, "check_cells", lambda *_: None)
    table, _ = vanishing(protect, lost)
    np.testing.assert_allclose(opened.row_of_feature(5)[:4], alice(table), atol=0.01)


@pytest.mark.parametrize("lost", [("site-00",), ("site-00", "site-01", "site-03")], ids=["one", "three"])
@pytest.mark.parametrize(("protect", "refusal"), [("ckks", QuorumError), ("masked", DataError)])
def test_cells_of_those_who_stay_are_counted_anew(opened, vanishing, protect, refusal, lost):
    with pytest.raises(refusal, match=r"min_count = 5 rows of these clients differ .* in column 'ward'"):
        vanishing(protect, lost)
    assert not opened.seen


@pytest.mark.parametrize("protect", PROTECTIONS)
def test_if_their_cells_are_large_enough_the_run_goes_on(vanishing, protect):
    _, told = vanishing(protect, ("site-05",))
    assert told == ["cell_counts", "cell_counts", "moments", "terms"]


def test_a_client_opens_no_total_over_others_than_were_counted(opened, vanishing, monkeypatch):
    check = OpenedTotals.check

    def check_others(self, *given):  # the coordinator passes over this rule only
        try:
            check(self, *given)
        except DifferencingError as refused:
            if "small cells" not in str(refused):
                raise

    monkeypatch.setattr(OpenedTotals, "is_counted", lambda *_: True)
    monkeypatch.setattr(OpenedTotals, "check", check_others)
    with pytest.raises(QuorumError, match="DifferencingError: moments: small cells were counted over other"):
        vanishing("ckks")
    assert not opened.seen


def test_without_a_count_of_the_new_rows_a_second_batch_shows_the_row(opened, monkeypatch):
    first = federation_of(common_ward()).train(FedHEONN(), protect="masked")
    monkeypatch.setattr("tacit.federation.cells_are_counted", lambda _: False)
    table = patients(rare_ward=True)
    federation_of(table).train(FedHEONN(), protect="masked", start=first)
    np.testing.assert_allclose(opened.row_of_feature(5)[:4], alice(table), atol=0.01)


def test_rows_that_the_same_clients_bring_later_are_counted(opened):
    first = federation_of(common_ward()).train(FedHEONN(), protect="masked")
    opened.seen.clear()
    with pytest.raises(DataError, match=r"min_count = 5 rows of these clients differ .* in column 'ward'"):
        federation_of(patients(rare_ward=True)).train(FedHEONN(), protect="masked", start=first)
    assert not opened.seen


def common_ward() -> Table:
    """As the others, but that the west ward has six patients."""
    table = patients()
    table.values[:6, 3] = 2
    return table


@pytest.mark.parametrize("least", [1, 5])
def test_nor_to_a_total_that_stands(coordinator_of, least, monkeypatch):
    """Control: without a least count the client contributes. Sums of raw rows need nothing else."""
    monkeypatch.setattr("tacit.core.standing_client._check_asked", lambda *_: None)  # they do not stand
    coordinator = coordinator_of(FedHEONN(), CKKS(), min_count=least)
    coordinator.enrol()
    coordinator.protection.prepare(1)
    asked = {"component": "method", "contribution": "raw_terms", "id": "all", "sign": 1.0, "accepted": ()}
    call, failures = {**asked, "sum": 1, "ticket/summands": 8}, dict[str, str]()
    wave = coordinator.link.wave("client.change_contribution", ("client-1",), call, failures=failures)
    replies = list(wave)
    assert bool(replies) == (least == 1)
    if least > 1:
        assert "'raw_terms' is asked for before the federation has counted" in failures["client-1"]


# -- a client that does not count as agreed ------------------------------------------------------------


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the first client that counts say something else."""

    def lie(**told: Any) -> None:
        honest, counted = cells.count, []

        def count(*given: Any) -> dict[str, Any]:
            counted.append(given)
            return honest(*given) | (told if len(counted) == 1 else {})

        monkeypatch.setattr(cells, "count", count)

    return lie


def test_what_is_not_covered_a_client_that_claims_rows_reads_the_row_of_another(scattered, opened, claims):
    """Nobody can check its counts: SECURITY.md says so."""
    claims(classes=np.full(3, 5))
    table = patients(rare_class=True)
    federation_of(table).train(FedHEONN(), protect="ckks")
    np.testing.assert_allclose(opened.row_of_class(1)[:4], alice(table), atol=0.01)


def test_clients_count_up_to_what_was_agreed_whatever_they_are_told(monkeypatch):
    make = Agreement.make_schema
    monkeypatch.setattr(Agreement, "make_schema", lambda *a, **k: replace(make(*a, **k), min_count=2))
    with pytest.raises(QuorumError, match="was told to count up to 2 rows, agreed was min_count = 5"):
        federation_of(patients()).train(FedHEONN(), protect="plain", min_count=5)
