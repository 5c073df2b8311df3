"""Which totals may open after which: families, sums and differences, and what is remembered."""

from __future__ import annotations

import time
from contextlib import contextmanager
from itertools import combinations

import numpy as np
import pytest

from tacit import Federation
from tacit.core.differencing import ROWS, OpenedTotals, subjects_of
from tacit.core.errors import DifferencingError
from tacit.core.events import Events, Noted, TotalOpened, WaveStarted
from tacit.engines.holdings import Holdings
from tacit.methods.averaging.aggregation import Change
from tacit.methods.averaging.architecture import Architecture
from tacit.methods.averaging.local_training import LocalTraining
from tacit.methods.averaging.rounds import Stopping
from tacit.methods.fedavg import FedAvg
from tacit.methods.homogeneity import HWFedAvg
from tacit.protections.masked import Masked
from tests.conftest import Tap

HOLDOUT = subjects_of("holdout", "evaluation", "some values")


def update(state):
    return subjects_of(None, "update", state)


def scores(state):
    return subjects_of("scores", "hold_out", state)


@pytest.fixture
def opened():
    return OpenedTotals()


class TestWhatIsCompared:
    def test_nobody_or_enough_changed(self, opened):
        opened.add(ROWS, "abcdefg")
        opened.check("terms", ROWS, "abcdefg", least=3)
        for others in ("abcdef", "abcde", "abcdefgh", "abcdefh"):
            with pytest.raises(DifferencingError, match=r"terms: this total would differ by [12] client"):
                opened.check("terms", ROWS, others, least=3)
        for others in ("abcd", "abcdexy", "abcdefgxyz"):
            opened.check("terms", ROWS, others, least=3)

    def test_the_error_names_all_that_is_known(self, opened):
        opened.add(ROWS, ["ann", "bob", "cat", "dan"])
        with pytest.raises(DifferencingError) as error:
            opened.check("terms", ROWS, ["bob", "cat", "dan", "eve"], least=3)
        assert str(error.value) == (
            "terms: this total would differ by 2 clients from one that was opened before, and the difference "
            "would show them: at least 3 must differ (missing: ann, new: eve). Run or resume with the same "
            "clients as before: a new run over these shows it as well"
        )
        assert error.value.contributors == {"bob", "cat", "dan", "eve"}

    def test_any_earlier_total_counts(self, opened):
        opened.add(ROWS, "abcd")
        opened.add(ROWS, "abcdefg")
        with pytest.raises(DifferencingError, match="differ by 1 client "):
            opened.check("terms", ROWS, "abc", least=3)

    def test_rows_kept_aside_are_others(self, opened):
        opened.add(ROWS, "abcdefg")
        opened.check("evaluation", HOLDOUT, "abcdef", least=3)
        opened.add(HOLDOUT, "abcdef")
        with pytest.raises(DifferencingError, match="evaluation: "):
            opened.check("evaluation", HOLDOUT, "abcdefg", least=3)

    def test_without_a_family_only_the_same_from_the_same_values(self, opened):
        opened.add(update("one"), "abcdefg")
        with pytest.raises(DifferencingError, match="update: "):
            opened.check("update", update("one"), "abcdef", least=3)
        opened.check("update", update("two"), "abcdef", least=3)
        opened.check("consent", subjects_of(None, "consent", "one"), "abcdef", least=3)
        opened.check("terms", ROWS, "abcdef", least=3)

    def test_scores_are_those_of_one_model(self, opened):
        """What the last round counted on rows kept aside, the final evaluation counts again."""
        opened.add(scores("before"), "abcdefg")
        opened.add(scores("last"), "abcdef")
        evaluation = subjects_of("holdout", "evaluation", "last")
        with pytest.raises(DifferencingError, match=r"evaluation: .*\(new: g\)"):
            opened.check("evaluation", evaluation, "abcdefg", least=3)
        opened.check("evaluation", evaluation, "abcdef", least=3)
        opened.check("evaluation", HOLDOUT, "abcdefg", least=3)  # of another model
        opened.add(HOLDOUT, "abcdefg")
        with pytest.raises(DifferencingError, match=r"evaluation: .*\(missing: g\)"):
            opened.check("evaluation", evaluation, "abcdef", least=3)  # counts of classes are of none

    def test_where_each_may_be_seen_nothing_is_refused(self, opened):
        opened.add(ROWS, "abcd")
        opened.check("terms", ROWS, "abc", least=1)

    def test_sums_and_differences_of_several(self, opened):
        """No two of them differ by fewer than three, but all three together show one client."""
        totals = ["abc", "abcdef", "defg"]
        for total in totals[:2]:
            opened.check("terms", ROWS, total, least=3)
            opened.add(ROWS, total)
        assert all(len(set(one) ^ set(two)) >= 3 for one, two in combinations(totals, 2))
        with pytest.raises(DifferencingError, match="would show g: at least 3 must stay together"):
            opened.check("terms", ROWS, totals[2], least=3)


class TestWhatIsRemembered:
    def test_what_was_announced_counts_once_another_sum_begins(self, opened):
        assert opened.announce(ROWS, "abcdefg")
        assert not opened.announce(ROWS, "abcdefg")
        opened.check("moments", ROWS, "abcdef", least=3)  # the same sum, begun again before it opened
        assert opened.announce(ROWS, "abcdef")
        opened.count_announced()
        with pytest.raises(DifferencingError, match="missing: f"):
            opened.check("terms", ROWS, "abcde", least=3)
        opened.check("terms", ROWS, "abcdef", least=3)
        assert not opened.announce(ROWS, "abcdef")

    def test_a_message_holds_it_all(self, opened):
        opened.add(ROWS, "abcdefg")
        opened.add(HOLDOUT, "abcd")
        opened.mark()
        opened.announce(update("one"), "abcde")
        again = OpenedTotals.from_message(opened.to_message())
        for subject, others in ((ROWS, "abcdef"), (HOLDOUT, "abc"), (update("one"), "abcd")):
            with pytest.raises(DifferencingError, match="differ by 1 client "):
                again.check("total", subject, others, least=3)
        assert again.to_message() == opened.to_message()

    def test_earlier_values_are_forgotten_where_nobody_goes_back_to_them(self, opened):
        for state in ("one", "two"):
            opened.add(update(state), "abcdefg")
        opened.check("update", update("one"), "abcdef", least=3)

    def test_a_run_may_go_back_to_its_last_two_marks(self, opened):
        opened.add(ROWS, "abcdefg")
        opened.mark()
        for state in ("one", "two", "three"):
            opened.add(update(state), "abcdefg")
            opened.add(scores(state), "abcdefg")
            for known in {"one": ("one",), "two": ("one", "two"), "three": ("two", "three")}[state]:
                with pytest.raises(DifferencingError, match="differ by 1 client "):
                    opened.check("update", update(known), "abcdef", least=3)
            opened.mark()
        opened.check("update", update("one"), "abcdef", least=3)
        with pytest.raises(DifferencingError, match="terms: "):  # of a family, nothing is forgotten
            opened.check("terms", ROWS, "abcdef", least=3)

    def test_a_run_that_goes_on_forgets_nothing_before_its_marks(self, opened):
        opened.mark()
        opened.add(update("one"), "abcdefg")
        again = OpenedTotals.from_message(opened.to_message())
        again.add(update("two"), "abcdefg")
        with pytest.raises(DifferencingError, match="differ by 1 client "):
            again.check("update", update("one"), "abcdef", least=3)


class TestLeavingOthersOut:
    def test_an_earlier_total_comes_first(self, opened):
        opened.add(ROWS, "abcdefghij")
        opened.add(ROWS, "abcdefg")
        rng = np.random.default_rng(0)
        assert opened.choose(ROWS, "abcdefghi", 3, 5, rng) == frozenset("abcdefg")
        assert opened.choose(ROWS, "abcdefghi", 3, 8, rng) is None  # it has too few, and so have all others

    @pytest.mark.parametrize("least", [2, 3, 6])
    def test_no_more_than_needed(self, opened, least):
        names = [f"client-{index}" for index in range(30)]
        opened.add(ROWS, names)
        kept = opened.choose(ROWS, names[:-1], least, 20, np.random.default_rng(0))
        assert len(kept) == 30 - least
        assert kept < set(names[:-1])

    def test_never_fewer_than_a_total_must_have(self, opened):
        opened.add(ROWS, "abcde")
        assert opened.choose(ROWS, "abcd", 3, 1, np.random.default_rng(0)) is None
        opened.add(update("one"), "abcdef")
        assert len(opened.choose(update("one"), "abcde", 3, 1, np.random.default_rng(0))) == 3


def test_twenty_thousand_clients_take_no_time(opened):
    names = [f"client-{index:05}" for index in range(20_000)]
    opened.add(ROWS, names)
    opened.add(ROWS, names[:-5])
    started = time.process_time()
    opened.check("terms", ROWS, names, least=3)
    opened.check("terms", ROWS, names[:-10], least=3)
    assert len(opened.choose(ROWS, names[1:], 3, 16_000, np.random.default_rng(0))) == 19_997
    assert time.process_time() - started < 2.0  # a fraction of a second; with room for a busy machine


# -- in a run --------------------------------------------------------------------------------------------


class LossyFederation(Federation):
    """Loses asks for contributions: ``lost`` is told the party and the sum's place among all asked for."""

    lost = staticmethod(lambda party, wave: False)

    @contextmanager
    def _engine(self, manifest, components):
        with super()._engine(manifest, components) as engine:
            tap = Tap(engine)
            tap.lose = lambda step, party: (
                step == "client.contribute"
                and self.lost(party, sum(known == "client.contribute" for known, _ in tap.calls))
            )
            yield tap


@pytest.fixture
def train(table, holdings):
    def train(method, protection, lost, aside=0):
        held = holdings(table, 7)
        held = Holdings(held.table, held.offsets, held.names, np.full(7, aside))
        federation, train.told = LossyFederation(held), []
        federation.lost = lost
        events = Events(lambda _, event: train.told.append(event))
        settings = {"min_clients": 3, "min_count": 1}  # 1: no sum that counts small cells comes first
        train.result = federation.train(method, protect=protection, events=events, **settings)
        opened = [event for event in train.told if isinstance(event, TotalOpened)]
        return [(event.contribution, event.contributors) for event in opened]

    return train


def notes(told, about="differencing"):
    return [event.text for event in told if isinstance(event, Noted) and event.about == about]


SMALL = {"architecture": Architecture(hidden=()), "rounds": 3}


def test_dropouts_between_rounds_do_not_stop_averaging(train):
    found = train(FedAvg(**SMALL), Masked(), lambda party, wave: party == "client-7" and wave >= 4)
    assert [count for _, count in found] == [7, 7, 7, 6, 6]  # moments, weights and three rounds
    assert not notes(train.told)


def test_training_ends_before_it_repeats_a_round_that_was_taken_back_over_fewer(train):
    """The weights are those from before the collapse, and so is what clients compute from them."""
    local, steep = LocalTraining(epochs=4, rate=0.9), Change(limit=5.0)
    method = FedAvg(**SMALL | {"rounds": 8}, local=local, change=steep, stopping=Stopping(collapse=1e-9))

    def is_taken_back():
        return any(isinstance(event, TotalOpened) and event.contribution == "consent" for event in train.told)

    found = train(method, Masked(), lambda party, wave: party == "client-7" and is_taken_back(), aside=3)
    assert found.count(("consent", 7)) == 1
    assert found[-1] == ("evaluation", 6)
    assert [count for name, count in found if name == "update"] == [7] * found.count(("update", 7))
    (text,) = [text for text in notes(train.told, "hold-out") if "would repeat" in text]
    assert "training ends before it. update: this total would differ by 1 client" in text


def test_a_model_is_worth_more_than_its_scores(train):
    """The last look at the hold-outs and the final evaluation score the same model."""
    method = FedAvg(**SMALL, stopping=Stopping(patience=9))
    found = train(method, Masked(), lambda party, wave: party == "client-7" and wave >= 9, aside=3)
    assert found[-2:] == [("update", 7), ("hold_out", 7)]
    assert train.result.holdout is None
    assert train.result.model.predict(np.zeros((1, 3))).shape == (1,)
    (text,) = [text for text in notes(train.told, "hold-out") if "evaluation" in text]
    assert text.startswith("no federated evaluation: evaluation: this total would differ by 1 client")


def test_counts_of_classes_are_statistics_of_the_rows(train):
    with pytest.raises(DifferencingError, match=r"class_counts: .*\(missing: client-7\)"):
        train(HWFedAvg(**SMALL), Masked(), lambda party, wave: party == "client-7" and wave >= 2)
    assert notes(train.told) == ["class_counts: without client-7 the total must not open: asked once more"]


def test_an_attempt_more_is_no_sum_that_noise_was_sized_for(coordinator_of, holdings, table, monkeypatch):
    coordinator = coordinator_of(FedAvg(), Masked(), data=holdings(table, 7), min_clients=3)
    coordinator.enrol()
    coordinator.protection.prepare(3)
    monkeypatch.setattr(coordinator.protection, "left", lambda: 1)  # as where noise is added
    method, told = coordinator.components.method, []
    coordinator.events.subscribe(lambda _, event: told.append(event))
    coordinator.round(method.consent, method.take_back)
    coordinator.link.transport.engine.lose = lambda step, party: party == "client-7"
    with pytest.raises(DifferencingError, match="missing: client-7"):
        coordinator.round(method.consent, method.take_back)
    assert coordinator.sums == 2
    assert not notes(told)


def test_nobody_is_asked_again_for_a_total_that_could_not_open_anyway(coordinator_of, holdings, table):
    coordinator = coordinator_of(FedAvg(), Masked(), data=holdings(table, 7), min_clients=3)
    coordinator.enrol()
    coordinator.protection.prepare(2)
    method, told = coordinator.components.method, []
    coordinator.round(method.consent, method.take_back)
    coordinator.events.subscribe(lambda _, event: told.append(event))
    with pytest.raises(DifferencingError, match="missing: client-1"):
        coordinator.round(method.consent, method.take_back, coordinator.parties[1:])
    assert sum(isinstance(event, WaveStarted) and event.step == "client.contribute" for event in told) <= 1
