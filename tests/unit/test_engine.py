"""The embedded engine: the same bytes warm, cold and in workers; and no party stops the others."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tacit.core.engine import read_reply
from tacit.core.errors import ConfigError, MessageError, QuorumError
from tacit.core.events import Replied
from tacit.core.message import Message
from tacit.data.preparation import Preparation
from tacit.data.table import Column, Table
from tacit.engines import embedded
from tacit.engines.embedded import EmbeddedEngine
from tacit.engines.frames import read_frames, write_frames
from tacit.engines.holdings import Holdings, read_holdings
from tacit.ledger.cost import CostLedger
from tacit.methods.fedheonn import FedHEONN
from tacit.protections.plain import Plain

HELPERS = Path(__file__).parents[1] / "helpers"
AS_THEY_ARE = Preparation(scale="none")


@pytest.fixture
def moody(monkeypatch):
    """A method that both this process and worker processes can import."""
    monkeypatch.syspath_prepend(HELPERS)
    monkeypatch.setenv("PYTHONPATH", str(HELPERS), prepend=os.pathsep)
    from moody import Moody

    return Moody


@pytest.fixture
def small_blocks(monkeypatch):
    """Few clients are many blocks, so that workers take turns."""
    monkeypatch.setattr(embedded, "BLOCK", 3)


@pytest.fixture
def moody_desk(coordinator_of, moody, small_blocks):
    def make(*, clients=8, engine=None, quorum=0.5, subscriber=None, **moods):
        coordinator = coordinator_of(
            moody(**moods),
            preparation=AS_THEY_ARE,
            clients=clients,
            engine=engine,
            quorum=quorum,
            subscriber=subscriber,
        )
        # The tap asks one party at a time; here waves are to reach the engine as they are.
        coordinator.link.transport.engine = coordinator.link.transport.engine.engine
        coordinator.enrol()
        return coordinator

    return make


def trained(coordinator):
    coordinator.enrol()
    coordinator.parties = coordinator.components.preparation.train(coordinator)
    coordinator.components.method.train(coordinator)
    return coordinator.finish()


def wave(coordinator, word="", parties=None):
    """Raw call and jobs of one wave of echoes."""
    coordinator.link.transport.serial += 1
    call = {
        "$serial": coordinator.link.transport.serial,
        "$step": "method.echo",
        "$manifest": coordinator.manifest.digest,
        "word": word,
    }
    call["schema"] = coordinator.link.briefing.schema_raw
    return Message(call).encode(), [(party, b"") for party in parties or coordinator.parties]


def words(replies):
    return [reply.message["word"] for reply in replies]


def children() -> set[int]:
    """Processes whose parent is this one."""
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {int(pid) for task in tasks for pid in task.read_text().split()}


class TestSameBytes:
    def run(self, coordinator_of, table_of, holdings, **engine):
        replies = []
        coordinator = coordinator_of(
            FedHEONN(),
            data=holdings(table_of(rows=100), 20),
            engine=engine,
            subscriber=lambda number, event: replies.append(event) if isinstance(event, Replied) else None,
        )
        coordinator.link.transport.engine = coordinator.link.transport.engine.engine
        outcome = trained(coordinator)
        sizes = [(event.wave, event.party, event.bytes_down, event.bytes_up) for event in replies]
        return outcome.shared["weights"].tobytes(), outcome.digest, sizes

    def test_any_number_of_workers_gives_the_same_model_and_the_same_bytes(
        self, coordinator_of, table_of, holdings, small_blocks
    ):
        runs = [self.run(coordinator_of, table_of, holdings, workers=workers) for workers in (0, 1, 2)]
        assert runs[0] == runs[1] == runs[2]
        assert len(runs[0][2]) == 20 * 4

    def test_cold_parties_give_the_same_model_as_warm_ones(self, coordinator_of, table_of, holdings):
        assert self.run(coordinator_of, table_of, holdings, cold=True) == self.run(
            coordinator_of, table_of, holdings
        )

    def test_cold_parties_in_workers_too(self, coordinator_of, table_of, holdings):
        warm = self.run(coordinator_of, table_of, holdings)
        assert self.run(coordinator_of, table_of, holdings, cold=True, workers=1) == warm

    def test_keeping_replies_changes_nothing(self, coordinator_of, table_of, holdings):
        kept = self.run(coordinator_of, table_of, holdings, keep_replies=True, cold=True)
        assert kept == self.run(coordinator_of, table_of, holdings)

    def test_cold_replicas_are_the_same_where_clients_open(self, coordinator_of):
        digests = {
            trained(coordinator_of(FedHEONN(), Plain(opens="clients"), engine={"cold": cold})).digest
            for cold in (True, False)
        }
        assert len(digests) == 1

    def test_a_party_draws_the_same_in_any_process_and_each_its_own(self, moody_desk):
        drawn = []
        for workers in (0, 2):
            coordinator = moody_desk(engine={"workers": workers, "seed": 5})
            drawn.append([reply["drawn"] for _, reply in coordinator.ask(coordinator.components.method.echo)])
        assert drawn[0] == drawn[1]
        assert len(set(drawn[0])) == 8

    def test_replies_come_in_the_order_of_the_jobs(self, moody_desk):
        for workers in (0, 2):
            coordinator = moody_desk(engine={"workers": workers})
            order = [f"client-{i}" for i in (8, 1, 5, 2, 7, 3)]
            call, jobs = wave(coordinator, "hi", order)
            assert [reply.party for reply in coordinator.link.transport.engine.ask(call, jobs)] == order


class TestTimeout:
    @pytest.mark.parametrize("workers", [0, 1])
    @pytest.mark.parametrize("mood", ["sleepy", "deaf"])
    def test_a_client_that_sleeps_fails_and_the_run_goes_on(self, moody_desk, workers, mood):
        seconds = 30.0 if mood == "sleepy" else 0.8
        ledger, engine = CostLedger(), {"workers": workers, "timeout": 0.5}
        coordinator = moody_desk(**{mood: ("client-2",)}, seconds=seconds, engine=engine, subscriber=ledger)
        started = time.monotonic()
        method = coordinator.components.method
        assert len(coordinator.round(method.rows, method.take)) == 7
        assert time.monotonic() - started < 10
        assert "StepTimeoutError: the step took longer than its 0.5 s" in coordinator.failures["client-2"]
        spent = ledger.summary()["waves"][-1]["cpu_clients_s"]
        assert spent < 0.4, "its wait is no CPU time"

    @pytest.mark.parametrize("mood", ["sleepy", "deaf"])
    def test_what_a_late_step_did_is_undone(self, moody_desk, mood):
        coordinator = moody_desk(**{mood: ("client-2",)}, seconds=0.6, engine={"timeout": 0.3})
        before = coordinator.link.transport.engine._sites.party("client-2").state.to_bytes()
        coordinator.round(coordinator.components.method.rows, coordinator.components.method.take)
        assert coordinator.link.transport.engine._sites.party("client-2").state.to_bytes() == before
        assert coordinator.link.transport.engine._sites.party("client-1").state["begun"] is True

    def test_also_where_no_alarm_can_ring(self, moody_desk):
        coordinator = moody_desk(sleepy=("client-2",), seconds=0.6, engine={"timeout": 0.3})
        before = coordinator.link.transport.engine._sites.party("client-2").state.to_bytes()
        got = []
        thread = threading.Thread(
            target=lambda: got.append(
                coordinator.round(coordinator.components.method.rows, coordinator.components.method.take)
            )
        )
        thread.start()
        thread.join()
        assert len(got[0]) == 7
        assert coordinator.link.transport.engine._sites.party("client-2").state.to_bytes() == before

    def test_the_alarm_of_others_is_given_back(self, moody_desk):
        def ours(number, frame):
            raise AssertionError("never set off")

        before = signal.signal(signal.SIGALRM, ours)
        try:
            coordinator = moody_desk(sleepy=("client-2",), seconds=0.6, engine={"timeout": 0.3})
            coordinator.round(coordinator.components.method.rows, coordinator.components.method.take)
            assert signal.getsignal(signal.SIGALRM) is ours
            assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
        finally:
            signal.signal(signal.SIGALRM, before)


class TestWorkersThatEnd:
    def test_a_killed_one_is_a_failure_of_its_clients_and_the_run_goes_on(self, moody_desk):
        coordinator = moody_desk(engine={"workers": 2}, quorum=0.3)
        os.kill(coordinator.link.transport.engine._workers[1].process.pid, signal.SIGKILL)
        method = coordinator.components.method
        # Blocks of three take turns: the second worker has clients 4 to 6.
        left = ("client-1", "client-2", "client-3", "client-7", "client-8")
        assert coordinator.round(method.rows, method.take) == left
        assert coordinator.round(method.rows, method.take) == left
        assert coordinator.failures["client-4"] == "StepError: the worker process of this client ended"
        assert coordinator.finish().holders == left

    def test_below_the_quorum_the_run_ends_with_their_names(self, moody_desk):
        coordinator = moody_desk(engine={"workers": 2}, quorum=0.9)
        os.kill(coordinator.link.transport.engine._workers[1].process.pid, signal.SIGKILL)
        with pytest.raises(
            QuorumError, match=r"client-5, client-6: StepError: the worker process of this client ended"
        ):
            coordinator.round(coordinator.components.method.rows, coordinator.components.method.take)

    def test_one_that_ends_in_the_middle_of_a_wave(self, moody_desk):
        coordinator = moody_desk(dying=("client-1",), engine={"workers": 2}, quorum=0.3)
        assert coordinator.round(coordinator.components.method.rows, coordinator.components.method.take) == (
            "client-4",
            "client-5",
            "client-6",
        )

    def test_one_that_ends_while_replies_are_awaited_without_a_timeout(self, moody_desk):
        coordinator = moody_desk(sleepy=("client-4",), engine={"workers": 2}, quorum=0.3)
        threading.Timer(0.3, coordinator.link.transport.engine._workers[1].process.kill).start()
        assert (
            len(coordinator.round(coordinator.components.method.rows, coordinator.components.method.take))
            == 5
        )


class TestWavesGivenUp:
    @pytest.mark.parametrize("workers", [0, 2])
    @pytest.mark.parametrize("taken", [0, 1, 4, 7])
    def test_the_next_wave_gets_its_own_replies(self, moody_desk, workers, taken):
        coordinator = moody_desk(engine={"workers": workers})
        replies = coordinator.link.transport.engine.ask(*wave(coordinator, "first"))
        assert words(next(replies) for _ in range(taken)) == [f"client-{i + 1}:first" for i in range(taken)]
        replies.close()
        assert words(coordinator.link.transport.engine.ask(*wave(coordinator, "second"))) == [
            f"client-{i + 1}:second" for i in range(8)
        ]

    def test_two_waves_that_are_read_by_turns_do_not_mix(self, moody_desk):
        coordinator = moody_desk(engine={"workers": 2})
        list(coordinator.link.transport.engine.ask(*wave(coordinator)))
        one = coordinator.link.transport.engine.ask(
            *wave(coordinator, "one", [f"client-{i}" for i in (1, 2, 3, 7, 8)])
        )
        first = words([next(one)])
        other = words(
            coordinator.link.transport.engine.ask(
                *wave(coordinator, "other", [f"client-{i}" for i in (4, 5, 6)])
            )
        )
        assert first + words(one) == [f"client-{i}:one" for i in (1, 2, 3, 7, 8)]
        assert other == [f"client-{i}:other" for i in (4, 5, 6)]

    def test_a_method_may_stop_reading(self, moody_desk):
        coordinator = moody_desk(engine={"workers": 2})
        for party, _reply in coordinator.ask(coordinator.components.method.echo):
            assert party == "client-1"
            break
        assert (
            len(coordinator.round(coordinator.components.method.rows, coordinator.components.method.take))
            == 8
        )


class TestClose:
    def test_no_process_is_left(self, table, holdings):
        before = children()
        engine = EmbeddedEngine(holdings(table, 4), workers=2)
        assert len(children() - before) == 2
        engine.close()
        assert children() == before

    def test_one_that_is_busy_with_a_wave_that_was_given_up_is_not_waited_for(self, moody_desk):
        before = children()
        coordinator = moody_desk(sleepy=("client-4",), engine={"workers": 2})
        replies = coordinator.link.transport.engine.ask(*wave(coordinator))
        next(replies)
        replies.close()
        started = time.monotonic()
        coordinator.link.transport.engine.close()
        assert time.monotonic() - started < 5
        assert children() == before

    def test_one_that_was_killed_already(self, table, holdings):
        engine = EmbeddedEngine(holdings(table, 4), workers=1)
        process = engine._workers[0].process
        process.kill()
        engine.close()
        assert process.returncode == -signal.SIGKILL

    def test_a_worker_whose_parent_is_gone_ends(self):
        worker = subprocess.run(
            [sys.executable, "-m", "tacit.engines.worker"], input=b"", capture_output=True, timeout=30
        )
        assert worker.returncode == 0
        assert worker.stdout == b""


class TestLimit:
    @pytest.mark.parametrize("workers", [0, 1])
    def test_a_call_above_it_is_refused_before_anything_is_sent(self, moody_desk, workers):
        coordinator = moody_desk(engine={"workers": workers, "limit": 4096})
        call, jobs = wave(coordinator, "x" * 5000)
        with pytest.raises(MessageError, match="the limit is 4,096"):
            list(coordinator.link.transport.engine.ask(call, jobs))
        coordinator.link.transport.serial -= 1
        assert len(list(coordinator.ask(coordinator.components.method.echo))) == 8

    @pytest.mark.parametrize("workers", [0, 1])
    def test_a_job_above_it_is_that_clients_failure(self, moody_desk, workers):
        coordinator = moody_desk(engine={"workers": workers, "limit": 4096})
        jobs = {party: {"own": "x" * (5000 if party == "client-3" else 5)} for party in coordinator.parties}
        assert len(list(coordinator.ask(coordinator.components.method.echo, jobs=jobs))) == 7
        assert "the limit is 4,096" in coordinator.failures["client-3"]

    @pytest.mark.parametrize("workers", [0, 1])
    def test_a_reply_above_it_is_that_clients_failure(self, moody_desk, workers):
        coordinator = moody_desk(engine={"workers": workers, "limit": 4096})
        jobs = {party: {"size": 1000 if party == "client-3" else 10} for party in coordinator.parties}
        assert len(list(coordinator.ask(coordinator.components.method.swell, jobs=jobs))) == 7
        assert "the limit is 4,096" in coordinator.failures["client-3"]


class TestKeptReplies:
    @pytest.mark.parametrize("workers", [0, 1])
    def test_a_repeated_ask_gets_the_same_reply_without_being_performed_again(self, moody_desk, workers):
        coordinator = moody_desk(engine={"workers": workers, "keep_replies": True})
        call, jobs = wave(coordinator, "hi")
        first, again = (list(coordinator.link.transport.engine.ask(call, jobs)) for _ in range(2))
        assert [reply.message for reply in again] == [reply.message for reply in first]
        assert {reply.message["echoes"] for reply in again} == {1}

    @pytest.mark.parametrize("workers", [0, 1])
    def test_where_they_are_not_kept_a_repeated_ask_is_refused(self, moody_desk, workers):
        coordinator = moody_desk(engine={"workers": workers})
        call, jobs = wave(coordinator, "hi")
        assert all(reply.failure is None for reply in coordinator.link.transport.engine.ask(call, jobs))
        assert all(
            "ReplayError" in reply.failure for reply in coordinator.link.transport.engine.ask(call, jobs)
        )


def test_two_thousand_clients_are_ordinary(coordinator_of, table_of, holdings):
    coordinator = coordinator_of(FedHEONN(), data=holdings(table_of(rows=4000), 2000))
    coordinator.link.transport.engine = coordinator.link.transport.engine.engine
    started = time.process_time()
    outcome = trained(coordinator)
    assert len(outcome.holders) == 2000
    assert time.process_time() - started < 10


class TestSettings:
    def test_fewer_than_no_workers(self, table, holdings):
        with pytest.raises(ConfigError, match="workers is -1"):
            EmbeddedEngine(holdings(table, 2), workers=-1)

    @pytest.mark.parametrize("timeout", [0, -1.0, float("nan")])
    def test_no_time_at_all(self, table, holdings, timeout):
        with pytest.raises(ConfigError, match="it must be positive"):
            EmbeddedEngine(holdings(table, 2), timeout=timeout)

    def test_parties_have_one_role(self, table, holdings):
        engine = EmbeddedEngine(holdings(table, 2))
        assert list(engine.parties()) == ["client-1", "client-2"]
        assert list(engine.parties("key server")) == []


class TestReplies:
    """What a hostile client may send back instead of what its steps gave."""

    def read(self, raw, limit=10_000):
        return read_reply("p", raw, 5, limit=limit)

    def test_a_good_one(self):
        reply = self.read(Message({"$cpu": 0.5, "a": 1, "$notes": [("text", "info")]}).encode())
        assert (reply.failure, reply.cpu_s, reply.message["a"], reply.bytes_down) == (None, 0.5, 1, 5)

    def test_a_failure(self):
        assert self.read(Message({"$cpu": 0.5, "$failure": "because"}).encode()).failure == "because"

    @pytest.mark.parametrize("raw", [b"", b"noise", b"TCT\x01\xff\xff\xff\xff", Message(a=1).encode()[:-1]])
    def test_bytes_that_are_no_message(self, raw):
        reply = self.read(raw)
        assert reply.failure.startswith("MessageError")
        assert len(reply.message) == 0

    @pytest.mark.parametrize("cpu", [None, 1, "1", -0.1, float("nan"), float("inf"), np.zeros(1), True])
    def test_cpu_time_that_is_none(self, cpu):
        assert "CPU time" in self.read(Message({"$cpu": cpu}).encode()).failure
        assert "CPU time" in self.read(Message(a=1).encode()).failure

    @pytest.mark.parametrize("failure", [5, None, True, np.zeros(2), b"raw", ["text"], {"a": 1}])
    def test_a_failure_that_is_no_text(self, failure):
        assert "no text" in self.read(Message({"$cpu": 0.0, "$failure": failure}).encode()).failure

    @pytest.mark.parametrize(
        "notes",
        [5, "ab", None, [5], [("a",)], [("a", 5)], [("a", "b", "c")], ["ab"], {"a": "b"}, np.zeros((1, 2))],
    )
    def test_notes_that_are_no_notes(self, notes):
        assert "notes" in self.read(Message({"$cpu": 0.0, "$notes": notes}).encode()).failure

    def test_more_than_the_limit(self):
        raw = Message({"$cpu": 0.0, "a": np.zeros(100)}).encode()
        assert "the limit is" in self.read(raw, limit=100).failure


class TestHoldings:
    @pytest.fixture
    def mixed(self):
        columns = (Column("age"), Column("town", "category", ("ü", "x")))
        values = np.arange(12.0).reshape(6, 2) % 2
        table = Table("t", columns, values, np.arange(6) % 2, "classification", ("no", "yes"))
        return Holdings(table, np.array([0, 1, 3, 6]), ["a", "b", "ç"], np.array([0, 1, 1]))

    def test_they_survive_their_message(self, mixed):
        back = read_holdings([mixed.to_messages()[0].encode()])
        assert back.names == mixed.names
        assert back.table.columns == mixed.table.columns
        assert back.table.classes == mixed.table.classes
        for index in range(3):
            assert np.array_equal(back.rows(index).values, mixed.rows(index).values)
            assert np.array_equal(back.holdout_rows(index).target, mixed.holdout_rows(index).target)

    def test_a_part_has_the_rows_of_its_parties(self, mixed):
        part = mixed.part(np.array([2, 0]))
        assert part.names == ("ç", "a")
        for own, index in enumerate((2, 0)):
            assert np.array_equal(part.rows(own).values, mixed.rows(index).values)
            assert np.array_equal(part.holdout_rows(own).values, mixed.holdout_rows(index).values)

    def test_rows_of_a_party_are_a_view(self, mixed):
        assert np.shares_memory(mixed.rows(2).values, mixed.table.values)

    def test_training_rows_and_rows_kept_aside_are_all_rows_once(self, mixed):
        rows = np.concatenate([part(i).values for i in range(3) for part in (mixed.rows, mixed.holdout_rows)])
        assert np.array_equal(rows, mixed.table.values)

    def test_a_regression_table_survives_too(self, regression, holdings):
        held = holdings(replace(regression, target_names=("one", "two")), 3)
        back = read_holdings([held.to_messages()[0].encode()])
        assert back.table.task == "regression"
        assert back.table.target_names == ("one", "two")
        assert np.array_equal(back.table.target, regression.target)


class TestFrames:
    def test_any_truncation_reads_as_gone(self):
        pipe = io.BytesIO()
        write_frames(pipe, [b"one", b"", b"three"])
        raw = pipe.getvalue()
        assert read_frames(io.BytesIO(raw)) == [b"one", b"", b"three"]
        assert all(read_frames(io.BytesIO(raw[:size])) is None for size in range(len(raw)))

    def test_an_empty_batch_is_a_batch(self):
        pipe = io.BytesIO()
        write_frames(pipe, [])
        pipe.seek(0)
        assert read_frames(pipe) == []
