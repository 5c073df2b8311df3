"""Plans: what a run will cost and show, compared with what it then did cost and show."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.core import coordinator
from tacit.core.errors import ConfigError
from tacit.data.table import Column, Table
from tacit.methods import fedheonn
from tacit.runs import plan as module
from tacit.runs.experiment import build_federation
from tacit.runs.page.units import size_text
from tacit.runs.plan import plan, thin_rows
from tacit.runs.settings import Settings


def settings_of(data, clients, method, protect=None, partition="iid", **held):
    name, _, rounds = method.partition(":")
    chosen = {"name": name} | ({"rounds": int(rounds)} if rounds else {})
    named = {"protect": {"name": protect}} if protect else {}
    division = {"name": partition, "clients": clients}
    held |= {"name": data}
    return Settings.from_tables({"data": held, "partition": division, "method": chosen, **named})


CASES = [
    settings_of("digits", 12, "fedheonn"),
    settings_of("digits", 12, "fedheonn", "masked", "label-sorted"),
    settings_of("wine", 5, "fedheonn", "plain"),
    settings_of("digits", 6, "fedavg:7"),
    settings_of("iris", 4, "scaffold:5", "bfv"),
    settings_of("digits", 5, "fedyogi:4", "shares", holdout=0.2),
    settings_of("wine", 4, "fedheonn-ensemble"),
    settings_of("iris", 6, "two-phase-mpc:3"),
    settings_of("breast_cancer", 5, "mime:3", "masked"),
    settings_of("wine", 5, "fedprox:4", "plain"),
]


@pytest.mark.parametrize("settings", CASES, ids=lambda each: f"{each.method['name']}-{each.protect['name']}")
def test_bytes_messages_and_waves_are_those_of_the_run(settings):
    found = plan(settings)
    cost = build_federation(settings).train(**settings.training()).ledger.summary()
    assert found["exact"]
    for name in ("bytes_up", "bytes_down", "messages"):
        assert found[name] == cost[name], name
    assert found["waves"] == len(cost["waves"])
    # Times are measured, beside whatever else the machine does: one of three attempts has to do.
    for _ in range(2):
        if 0.5 < found["sum_cpu_s"] / cost["sum_cpu_s"] < 2:
            break
        found = plan(settings)
        cost = build_federation(settings).train(**settings.training()).ledger.summary()
    assert 0.5 < found["sum_cpu_s"] / cost["sum_cpu_s"] < 2


def test_trees_are_planned_from_one_and_two_of_them():
    settings = settings_of("wine", 5, "federboost")
    settings = replace(settings, method={"name": "federboost", "trees": 6, "depth": 2})
    found = plan(settings)
    cost = build_federation(settings).train(**settings.training()).ledger.summary()
    assert (found["rounds"], found["exact"]) == (6, False), "trees may end early"
    assert found["bytes_up"] == pytest.approx(cost["bytes_up"], rel=0.1)


def test_a_rehearsal_is_short_and_leaves_nothing_of_a_row_out_that_is_told():
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.normal(size=500), np.r_[np.zeros(497), [1, 1, 2]]])
    columns = (Column("x"), Column("ward", "category", categories=("a", "b", "c")))
    table = Table("rows", columns, values, np.r_[np.zeros(490, int), np.ones(10, int)], classes=("no", "yes"))
    kept = table.take(thin_rows(table, 20))
    assert kept.rows <= 20 + 5 + 3
    assert set(kept.values[:, 1]) == {0, 1, 2}
    assert np.bincount(kept.target).tolist()[1] >= 5


def test_more_clients_than_rehearse_are_estimated(monkeypatch):
    monkeypatch.setattr(module, "MOST", 6)
    settings = settings_of("digits", 12, "fedheonn", "plain")
    found = plan(settings)
    cost = build_federation(settings).train(**settings.training()).ledger.summary()
    assert not found["exact"]
    assert found["bytes_up"] == pytest.approx(cost["bytes_up"], rel=0.1)
    assert found["clients"] == 12


def test_it_says_who_will_see_what_and_warns():
    found = plan(settings_of("iris", 4, "fedavg:1", "plain"))
    assert any("will see in the clear" in text for text in found["exposure"])
    assert any("hides nothing" in text or "in the clear" in text for text in found["warnings"])
    assert found["undone_by"].startswith("none is needed")
    settings = settings_of("breast_cancer", 5, "fedheonn", "noised")
    with pytest.raises(ConfigError, match="72 are needed: raise epsilon"):
        plan(settings)
    rows = replace(settings, protect={"name": "noised", "unit": "row", "epsilon": 2.0})
    assert 0 < plan(rows)["privacy"]["epsilon"] <= 2


def noisy(**method):
    """FedAvg with DP-SGD; no sum agrees on a scale."""
    settings = settings_of("iris", 4, "fedavg:6", "masked")
    chosen = {**settings.method, "hidden": "", "example_noise": 2.0, **method}
    return replace(settings, method=chosen, prepare={"scale": "none"})


def test_epsilon_is_that_of_all_planned_rounds():
    settings = noisy()
    spent = build_federation(settings).train(**settings.training()).ledger.summary()["privacy"]
    assert plan(settings)["privacy"] == spent
    assert spent["epsilon"] > 1.5 * plan(noisy(rounds=2))["privacy"]["epsilon"]


def test_rounds_that_the_budget_for_rows_does_not_allow_are_not_planned():
    limit = 1.01 * plan(noisy(rounds=3))["privacy"]["epsilon"]
    settings = noisy(example_epsilon=limit)
    found, cost = plan(settings), build_federation(settings).train(**settings.training()).ledger.summary()
    assert found["rounds"] == 3
    assert (found["waves"], found["privacy"]) == (len(cost["waves"]), cost["privacy"])
    assert not found["exact"], "keys are agreed on for all rounds"
    assert any(f"ends the training after {found['rounds']} rounds" in text for text in found["warnings"])


def test_what_follows_from_chance_or_rows_is_no_exact_figure():
    settings = settings_of("iris", 4, "fedavg:3", "plain")
    assert plan(settings)["exact"]
    assert not plan(replace(settings, method={**settings.method, "fraction": 0.5}))["exact"]


def test_keys_ciphertexts_and_settings_are_told():
    settings = settings_of("iris", 4, "fedavg:3", "bfv")
    found, cost = plan(settings), build_federation(settings).train(**settings.training()).ledger.summary()
    assert found["bytes_by_form"] == cost["bytes_by_form"]
    assert found["settings"]["bits"] == 32


class TestWarnings:
    """What a plan warns of, one by one; what cannot work is refused before anything is rehearsed."""

    def warned(self, text, settings):
        return any(text in warning for warning in plan(settings)["warnings"])

    def test_they_are_those_of_the_run(self):
        for settings in (noisy(), settings_of("iris", 4, "fedheonn", "bfv"), CASES[3]):
            least = replace(settings, run=replace(settings.run, min_count=1))
            text = "min_count is 1: a class or category that occurs once gives its row"
            assert self.warned(text, least)
            assert not self.warned(text, settings)
        assert not self.warned("does not cover the sums that agree on a scale", noisy())
        assert self.warned("does not cover the sums that agree on a scale", replace(noisy(), prepare={}))

    def test_a_key_that_all_clients_share(self):
        text = "all clients share one decryption key: the coordinator together with any single client"
        assert self.warned(text, settings_of("iris", 4, "fedheonn", "bfv"))
        assert not self.warned(text, settings_of("iris", 4, "fedheonn", "masked"))

    @pytest.mark.parametrize(("fraction", "alone"), [(0.25, True), (1.0, False)])
    def test_one_client_in_a_total(self, fraction, alone):
        settings = settings_of("iris", 4, "fedavg:1", "plain")
        drawn = replace(settings, method={**settings.method, "fraction": fraction})
        assert self.warned("over one client, and shows that client to whoever sees it", drawn) == alone
        assert not self.warned("over one client", replace(drawn, protect={"name": "masked"}))

    def test_values_that_do_not_fit_into_a_sum(self, monkeypatch):
        monkeypatch.setattr(module, "rehearse", None)
        settings = settings_of("digits", 9_000, "fedheonn", "masked")
        told = "50 bits a value and 14 guard bits for 9,000 summands exceed 63: use at most 49 bits"
        with pytest.raises(ConfigError, match=told):
            plan(replace(settings, protect={"name": "masked", "bits": 50}))

    def test_a_vector_that_does_not_fit_into_a_message(self, monkeypatch):
        settings = settings_of("digits", 4, "fedheonn", "masked")
        assert plan(settings)["fits"]
        monkeypatch.setattr(coordinator, "DEFAULT_LIMIT", 5_000)
        asked = []
        monkeypatch.setattr(fedheonn, "invert_targets", lambda *given: asked.append(given))
        told = r"'terms' has [0-9,]+ values, [0-9,]+ bytes or more under masked, and the limit .* is 5,000"
        found = plan(settings)
        assert re.match(f"this run would be refused: {told}", found["warnings"][0])
        assert (found["fits"], found["bytes_up"], found["clients"]) == (False, None, 4)
        with pytest.raises(ConfigError, match=told):
            build_federation(settings).train(**settings.training())
        assert not asked, "nobody computes it"
        shown = CliRunner().invoke(app, ["plan", "--data", "digits", "--clients", "4"])
        assert shown.exit_code == 0
        assert "does not fit" in shown.stdout and "would be refused" in shown.stderr

    @pytest.mark.parametrize("protect", ["plain", "shares", "masked", "bfv"])
    def test_what_fits_is_not_refused(self, protect, monkeypatch):
        settings = settings_of("digits", 4, "fedavg:1", protect)
        settings = replace(settings, method={**settings.method, "hidden": [300]})
        sent = plan(settings)["bytes_up"] / 4
        monkeypatch.setattr(coordinator, "DEFAULT_LIMIT", int(sent))
        assert plan(settings)["fits"]
        monkeypatch.setattr(coordinator, "DEFAULT_LIMIT", int(0.3 * sent))
        assert not plan(settings)["fits"]

    def test_a_vector_that_does_not_fit_into_one_ciphertext_takes_several(self):
        def sent(hidden):
            settings = settings_of("digits", 3, "fedavg:1", "ckks")
            return plan(replace(settings, method={**settings.method, "hidden": hidden}))["bytes_up"]

        # 75 values for each unit, in rings of 4,096 or more: three times as many values are more ciphertexts.
        assert sent([150]) > 1.5 * sent([50])


@pytest.mark.parametrize("protect", ["masked", "bfv", "shares"])
def test_it_speaks_of_what_has_not_happened_yet(protect):
    found = plan(settings_of("iris", 4, "fedheonn", protect))["exposure"]
    assert len(found) > 3
    assert all(" will " in text for text in found), found
    assert not any(f" {verb}" in text for text in found for verb in ("was ", "saw", "received", "relayed"))


def test_rows_at_the_sites_are_nothing_to_rehearse_with():
    with pytest.raises(ConfigError, match="give --data a file of one site, or a sample"):
        plan(settings_of("sites", 3, "fedheonn"))


def test_the_command_writes_one_object_and_nothing_else():
    words = ["plan", "--data", "iris", "--clients", "4", "--method", "fedavg", "--rounds", "3"]
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert (found["method"], found["rounds"], found["clients"]) == ("fedavg", 3, 4)
    shown = CliRunner().invoke(app, words).stdout
    assert "each client sends" in shown
    assert "3 rounds" in shown
    for word in ("masked values", "keys", "memory", "largest error", "on Flower"):
        assert word in shown
    traffic, masked = found["bytes_up"] + found["bytes_down"], found["bytes_by_form"]["masked"]
    told = f"all traffic {size_text(traffic)} among it {size_text(masked)} of masked values"
    assert " ".join(told.split()) in " ".join(shown.split())
