"""The cost ledger adds up events: sums over waves, over clients and over routes must agree."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.core.errors import ConfigError
from tacit.core.events import Event, Events, Noted, Relayed, Replied, WaveEnded, WaveStarted
from tacit.core.exposure import COORDINATOR
from tacit.engines import embedded
from tacit.federation import Federation
from tacit.ledger.breakdown import break_down, read_events
from tacit.ledger.cost import CostLedger
from tacit.methods import METHODS
from tacit.methods.fedavg import FedAvg
from tacit.methods.fedheonn import FedHEONN
from tacit.protections import PROTECTIONS

SECONDS = st.floats(min_value=0, max_value=1e4)
BYTES = st.integers(min_value=0, max_value=2**40)
TIMES = st.integers(min_value=1, max_value=200)


@st.composite
def runs(draw: st.DrawFn) -> list[Event]:
    """A run of a few waves over a few parties, with failures and relayed messages."""
    events: list[Event] = []
    parties = [f"client-{i}" for i in range(draw(st.integers(1, 6)))]
    for wave in range(draw(st.integers(0, 5))):
        asked = draw(st.lists(st.sampled_from(parties), unique=True, max_size=len(parties)))
        events.append(WaveStarted(wave=wave, step=f"step-{wave}", parties=len(asked)))
        failures = 0
        for party in asked:
            failure = draw(st.none() | st.just("too slow"))
            failures += failure is not None
            events.append(Replied(wave, party, draw(BYTES), draw(BYTES), draw(SECONDS), failure))
            if draw(st.booleans()):
                events.append(Relayed(wave, party, draw(st.sampled_from(parties)), draw(BYTES), draw(TIMES)))
        events.append(WaveEnded(wave, len(asked) - failures, failures, draw(SECONDS), draw(SECONDS)))
    return events


def ledger_of(events: list[Event]) -> CostLedger:
    ledger = CostLedger()
    stream = Events(ledger)
    for event in events:
        stream.emit(event)
    return ledger


@given(runs())
def test_sums_over_waves_and_over_clients_are_the_totals(events: list[Event]) -> None:
    cost = ledger_of(events).summary()
    for key in ("bytes_up", "bytes_down"):
        assert sum(wave[key] for wave in cost["waves"]) == cost[key] == sum(cost["per_client"][key])
        clients = len(cost["per_client"]["party"])
        assert cost[f"{key}_per_client"]["mean"] * max(clients, 1) == pytest.approx(cost[key])
        assert cost[f"{key}_per_client"]["max"] == max(cost["per_client"][key], default=0)
    cpu = cost["cpu_s"]
    assert sum(wave["cpu_clients_s"] for wave in cost["waves"]) == pytest.approx(cpu["clients"])
    assert sum(wave["cpu_coordinator_s"] for wave in cost["waves"]) == pytest.approx(cpu["coordinator"])
    assert sum(cost["per_client"]["cpu_s"]) == pytest.approx(cpu["clients"])
    assert sum(wave["failures"] for wave in cost["waves"]) == len(cost["failures"])


@given(runs())
def test_every_ask_reply_and_relay_is_one_message(events: list[Event]) -> None:
    cost = ledger_of(events).summary()
    replied = [event for event in events if isinstance(event, Replied)]
    relayed = [event for event in events if isinstance(event, Relayed)]
    routes = cost["messages_by_route"]
    assert routes["coordinator→client"] == len(replied)
    assert routes["client→coordinator"] == sum(r.failure is None or r.bytes_up > 0 for r in replied)
    assert routes["client→client"] == sum(event.times for event in relayed)
    assert sum(routes.values()) == cost["messages"]
    assert cost["relayed_bytes"] == sum(event.bytes for event in relayed)


@given(runs())
def test_wave_lines_agree_with_the_engine_s_own_counts(events: list[Event]) -> None:
    lines = {line["wave"]: line for line in ledger_of(events).summary()["waves"]}
    for event in events:
        if isinstance(event, WaveEnded):
            line = lines[event.wave]
            assert (line["replies"], line["failures"]) == (event.replies, event.failures)
            assert (line["cpu_coordinator_s"], line["wall_s"]) == (event.cpu_s, event.wall_s)
        if isinstance(event, WaveStarted):
            line = lines[event.wave]
            assert (line["step"], line["parties"]) == (event.step, event.parties)


@given(runs(), st.floats(min_value=0.1, max_value=1e4))
def test_training_time_waits_for_the_slowest_and_energy_is_paid_by_all(
    events: list[Event], watts: float
) -> None:
    cost = ledger_of(events).summary(watts=watts)
    cpu = cost["cpu_s"]
    assert cpu["slowest_client"] == max(cost["per_client"]["cpu_s"], default=0.0)
    assert cost["training_s"] == cpu["slowest_client"] + cpu["coordinator"]
    assert cost["sum_cpu_s"] == cpu["clients"] + cpu["coordinator"]
    assert cost["wh"] == pytest.approx(watts * cost["sum_cpu_s"] / 3600)
    assert cost["training_s"] <= cost["sum_cpu_s"] * (1 + 1e-12)


@given(runs())
def test_summary_is_json_and_asking_twice_changes_nothing(events: list[Event]) -> None:
    ledger = ledger_of(events)
    first = ledger.summary()
    assert json.loads(json.dumps(first)) == first
    first["failures"].append("spoilt by a reader")
    assert ledger.summary()["failures"] == [f for f in first["failures"] if isinstance(f, dict)]


def test_slowest_client_is_judged_by_its_sum_over_waves() -> None:
    # "steady" is never the slowest of a wave alone, yet it is the slowest of the run.
    cpu = {"early": (3.0, 0.0), "late": (0.0, 3.0), "steady": (2.0, 2.0)}
    events: list[Event] = [
        Replied(wave, party, 10, 10, seconds[wave]) for party, seconds in cpu.items() for wave in (0, 1)
    ]
    assert ledger_of(events).summary()["cpu_s"]["slowest_client"] == 4.0


def test_a_failed_reply_still_counts_its_bytes_and_time() -> None:
    cost = ledger_of(
        [
            WaveStarted(0, "gram", 2),
            Replied(0, "a", 100, 7, 0.5, failure="refused: unknown manifest"),
            Replied(0, "b", 100, 0, 0.0, failure="no answer within 5 s"),
        ]
    ).summary()
    assert (cost["bytes_down"], cost["bytes_up"], cost["cpu_s"]["clients"]) == (200, 7, 0.5)
    assert cost["failures"] == [
        {"party": "a", "step": "gram", "reason": "refused: unknown manifest"},
        {"party": "b", "step": "gram", "reason": "no answer within 5 s"},
    ]
    # The refusal travelled; the silence did not.
    assert cost["messages_by_route"] == {
        "coordinator→client": 2,
        "client→coordinator": 1,
        "client→client": 0,
    }


def test_a_ledger_that_joined_late_still_adds_up() -> None:
    cost = ledger_of([Noted("run", "hello"), Replied(7, "a", 3, 4, 0.1)]).summary()
    assert [(wave["wave"], wave["step"]) for wave in cost["waves"]] == [(7, "")]


def test_an_empty_run_costs_nothing() -> None:
    cost = CostLedger().summary()
    assert (cost["messages"], cost["bytes_up"], cost["training_s"], cost["wh"]) == (0, 0, 0.0, 0.0)
    assert cost["bytes_up_per_client"] == {"mean": 0.0, "max": 0}


@pytest.mark.parametrize("watts", [0, -1, math.nan, math.inf, -math.inf])
def test_power_must_be_a_finite_number_above_zero(watts: float) -> None:
    with pytest.raises(ConfigError, match="watts"):
        CostLedger().summary(watts=watts)


def test_memory_is_bounded_by_parties_not_by_replies() -> None:
    ledger = CostLedger()
    parties = [f"client-{i}" for i in range(50)]

    def size() -> int:
        return sum(map(sys.getsizeof, (ledger._clients, *ledger._clients.values())))

    for party in parties:
        ledger(0, Replied(0, party, 1, 1, 0.1))
    before = size()
    for _ in range(100):
        for party in parties:
            ledger(0, Replied(0, party, 1, 1, 0.1))
    assert size() == before
    assert len(ledger.summary()["waves"]) == 1


def test_no_more_is_charged_than_was_computed() -> None:
    federation = Federation.embedded("synthetic-miniboone", clients=3, rows=90)
    started = time.thread_time()
    cost = federation.train(FedHEONN(), protect="plain").ledger.summary()
    assert 0 < cost["cpu_s"]["coordinator"] < cost["sum_cpu_s"] <= time.thread_time() - started


def test_the_share_of_cryptography_and_the_messages_of_each_client() -> None:
    federation = Federation.embedded("iris", clients=4)
    for protect, forms in (("plain", set()), ("masked", {"masked", "key", "sealed", "share", "public"})):
        training = federation.train(FedAvg.from_config({"rounds": 2, "hidden": ""}), protect=protect)
        cost = training.ledger.summary()
        total = cost["bytes_up"] + cost["bytes_down"] + cost["service_bytes"]
        hidden = {form: size for form, size in cost["bytes_by_form"].items() if form != "plain"}
        assert hidden.keys() == forms
        assert cost["cryptography_share"] == sum(hidden.values()) / total
        assert sum(cost["bytes_by_form"].values()) <= total
        each = cost["messages_by_route"]
        assert sum(cost["per_client"]["messages"]) == each["coordinator→client"] + each["client→coordinator"]
        assert [wave["complete_rounds"] for wave in cost["waves"]][-1] == 2
    assert 0.05 < cost["cryptography_share"] < 0.9


def test_it_is_exact_with_worker_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes and messages are those of one process, client by client; CPU time is the workers' own."""
    monkeypatch.setattr(embedded, "BLOCK", 2)  # so that both workers have clients
    at = [Federation.embedded("iris", clients=6, workers=workers) for workers in (0, 2)]
    alone, cost = (
        federation.train(FedAvg(rounds=2), protect="masked", run="one", min_count=1).ledger.summary()
        for federation in at
    )
    assert at[0].workers_mb == 0 < 2 * 30 < at[1].workers_mb  # memory of both workers
    named = ("messages", "messages_by_route", "relayed_bytes", "bytes_up", "bytes_down", "failures")
    counted = ("step", "parties", "replies", "failures", "bytes_up", "bytes_down")
    assert {name: cost[name] for name in named} == {name: alone[name] for name in named}
    for name in ("party", "bytes_up", "bytes_down", "messages"):
        assert cost["per_client"][name] == alone["per_client"][name]
    for found, expected in zip(cost["waves"], alone["waves"], strict=True):
        assert {name: found[name] for name in counted} == {name: expected[name] for name in counted}
        assert found["cpu_clients_s"] > 0
    assert min(cost["per_client"]["cpu_s"]) > 0
    assert sum(cost["per_client"]["cpu_s"]) == pytest.approx(cost["cpu_s"]["clients"])
    assert cost["sum_cpu_s"] == pytest.approx(cost["cpu_s"]["clients"] + cost["cpu_s"]["coordinator"])


@pytest.mark.parametrize(
    ("name", "options", "form"),
    [("bfv", {}, "cipher"), ("masked", {"opens": "clients"}, "cipher"), ("shares", {}, "sealed")],
)
def test_totals_that_go_down_to_clients_count_in_the_form_in_which_they_travel(
    name: str, options: dict[str, str], form: str
) -> None:
    federation = Federation.embedded("iris", clients=4)
    method, protect = FedAvg.from_config({"rounds": 2}), PROTECTIONS.build(name, options)
    training = federation.train(method, protect=protect, min_count=1)
    totals = [row for row in training.exposure.summary() if row["what"].startswith("totals")]
    size, forms = sum(row["bytes"] for row in totals), training.ledger.summary()["bytes_by_form"]
    assert size <= forms[form]
    assert forms["plain"] < size


def test_the_epsilon_of_rows_drawn_by_fusion_is_accounted() -> None:
    federation = Federation.embedded("iris", clients=3)
    chosen = {"epsilon": 20.0, "local": "DecisionTree(max_depth=2)", "families": ("norm",), "samples": 20}
    spent = federation.train(METHODS.build("fusion", chosen), protect="plain").ledger.summary()["privacy"]
    assert (spent["epsilon"], spent["unit"], spent["delta"]) == (20.0, "row", 1e-5)


@pytest.mark.parametrize(
    ("protect", "options", "hides"),
    [("plain", {}, False), ("masked", {}, True), ("bfv", {}, True), ("paillier", {"key_bits": 2048}, True)],
)
def test_what_each_party_cost_in_each_step_of_each_round_adds_up(
    protect: str, options: dict[str, int], hides: bool, tmp_path: Path
) -> None:
    told: list[Event] = []
    training = Federation.embedded("iris", clients=3).train(
        FedAvg.from_config({"rounds": 2}),
        protect=PROTECTIONS.build(protect, options),
        min_count=1,
        events=Events(lambda number, event: told.append(event)),
    )
    cost, rows = training.ledger.summary(), break_down(told)
    served = [row for row in rows if row["party"] not in (COORDINATOR, *cost["per_client"]["party"])]
    assert bool(served) == (protect == "paillier") == bool(cost["service_bytes"])
    up, down = (sum(row[name] for row in rows) for name in ("bytes_up", "bytes_down"))
    assert up + down == cost["bytes_up"] + cost["bytes_down"] + cost["service_bytes"]
    hidden = sum(row["hidden_up"] + row["hidden_down"] for row in rows)
    assert hidden / (up + down) == cost["cryptography_share"]
    assert all(
        row["hidden_up"] <= row["bytes_up"] and row["hidden_down"] <= row["bytes_down"] for row in rows
    )
    assert bool(hidden) == hides
    assert sum(row["cpu_s"] for row in rows) == pytest.approx(cost["sum_cpu_s"])
    contributed = [row for row in rows if row["step"] == "client.contribute" and row["party"] != COORDINATOR]
    assert {(row["party"], row["round"]) for row in contributed} == {
        (party, number) for party in cost["per_client"]["party"] for number in (1, 2)
    }
    for party, size in zip(cost["per_client"]["party"], cost["per_client"]["bytes_up"], strict=True):
        assert size == next(row["bytes_up"] for row in break_down(told, ["party"]) if row["party"] == party)
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in told) + b'{"event":"Repl')
    assert break_down(read_events(path)) == rows


def test_costs_by_what_nobody_knows_and_of_a_spoilt_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'party'"):
        break_down([], ["partys"])
    (tmp_path / "events.jsonl").write_text('{"event":"Replied"}\n')
    for name in ("events.jsonl", "other"):
        with pytest.raises(ConfigError, match="cannot be read"):
            break_down(read_events(tmp_path / name))
