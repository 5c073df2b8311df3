"""How objects show themselves, here and in notebooks: short, and without rows."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import tacit
from tacit import FedAvg, Federation, Table
from tacit.core.errors import UnavailableError
from tacit.core.events import Events


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation.embedded("iris", clients=7, holdout=0.2, seed=2)


@pytest.fixture(scope="module")
def training(federation):
    return federation.train(FedAvg(rounds=3), protect="plain", track=True)


def test_reprs_are_short_and_hold_no_rows():
    secret = 31415.926
    rows = np.full((40, 2), secret)
    rows[::2] += 1
    tables = {name: Table.of(rows, ["a<b>", "c"] * 20, name=name) for name in ("north", "<i>south")}
    federation = Federation.of(tables)
    training = federation.train("fedheonn", protect="plain")
    shown = (tables["north"], federation, training, training.model, training.ledger, training.exposure)
    for each in shown:
        assert len(repr(each)) < 200 and "\n" not in repr(each)
        assert "31415" not in repr(each) and "31415" not in each._repr_html_()
        assert "<i>" not in each._repr_html_() and "<b>" not in each._repr_html_()
        assert len(each._repr_html_()) < 3000
    assert repr(federation) == (
        "Federation(clients north, <i>south, rows 80, columns 2, predicts target, task classification)"
    )


def test_a_training_says_what_was_learnt_and_how_well(training, federation):
    scores = training.model.scores(federation.test)
    assert training.scores["accuracy"] == scores["accuracy"]
    assert f"method fedavg, protection plain, accuracy {scores['accuracy']:.3g}" in repr(training)
    without = Federation.of({"a": federation.test}).train("fedheonn", protect="plain")
    assert without.scores is None


class TestHistory:
    def test_has_a_line_for_each_sum_and_scores_of_each_round(self, training, federation):
        pytest.importorskip("pandas")
        history = training.history
        assert history["sum"].tolist() == ["moments", "squares", "update", "update", "update", "evaluation"]
        rounds = history.dropna(subset=["round"])
        assert rounds["round"].tolist() == [1, 2, 3] and (rounds["clients"] == 7).all()
        assert rounds["accuracy"].iloc[-1] == training.scores["accuracy"]
        cost = training.ledger.summary()
        assert 0 < history["bytes_up"].sum() <= cost["bytes_up"]
        assert 0 < history["cpu_s"].sum() <= cost["sum_cpu_s"]

    def test_without_tracking_nobody_scores(self, federation, monkeypatch):
        def refuse(*args):
            raise AssertionError("scored")

        monkeypatch.setattr("tacit.models.neural.Neural.scores", refuse)
        training = federation.train(FedAvg(rounds=2), protect="plain")
        assert all("round" not in line for line in training.record.history.lines)

    def test_names_the_extra_if_pandas_is_missing(self, training, monkeypatch):
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(UnavailableError, match=r"pip install 'tacit-fl\[notebook\]'"):
            _ = training.history

    def test_is_drawn(self, training, federation):
        from matplotlib import pyplot

        axes = training.plot()
        assert {line.get_label() for line in axes.get_lines()} >= {"accuracy", "loss"}
        single = federation.train("fedheonn", protect="plain")
        assert len(single.plot().patches) == len(single.record.history.lines)
        pyplot.close("all")


@pytest.mark.draws
def test_a_report_is_shown_and_saved(training, tmp_path):
    report = training.report()
    assert report.save(tmp_path / "report.html").read_text() == report.html
    assert "fedavg learnt target from 7 clients" in report.html
    assert report.result["scores"]["federated"] == training.scores
    assert report.result["exposure"] == training.exposure.summary()
    inline = report._repr_html_()
    assert inline.startswith("<iframe sandbox srcdoc=") and "<h1>" not in inline
    assert len(repr(report)) < 100


class TestBar:
    @pytest.fixture
    def drawn(self, monkeypatch):
        """What a notebook shows: the text of the one output that is changed in place."""
        found = []
        handle = SimpleNamespace(update=found.append)
        shown = SimpleNamespace(HTML=str, display=lambda first, display_id: handle)
        shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=True))
        monkeypatch.setitem(sys.modules, "IPython", shell)
        monkeypatch.setitem(sys.modules, "IPython.display", shown)
        return found

    def test_is_drawn_in_notebooks(self, drawn, federation, monkeypatch):
        monkeypatch.setattr("tacit.ledger.history.EVERY", 0.0)
        federation.train("fedheonn", protect="plain")
        assert any("<progress" in text and "of 7 clients" in text for text in drawn)
        assert drawn[-1].startswith("Tacit done: ") and ", accuracy 0." in drawn[-1]

    def test_says_that_a_training_stopped(self, drawn):
        broken = Table.of([[1.0], [np.nan]], ["a", "b"])
        with pytest.raises(tacit.TacitError):
            Federation.of({"a": broken}).train("fedheonn", protect="plain")
        assert drawn[-1].startswith("Tacit stopped: ")

    def test_is_left_to_whoever_listens_to_events(self, drawn, federation):
        federation.train("fedheonn", protect="plain", events=Events())
        assert not drawn
