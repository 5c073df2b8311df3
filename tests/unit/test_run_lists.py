"""Lists and comparisons of runs, and what a run tells other programs."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tacit.core.errors import ConfigError, UnavailableError
from tacit.core.events import BudgetSpent, Evaluated, Replied, RoundEnded
from tacit.runs import sinks
from tacit.runs.compare import compare_page, compare_runs
from tacit.runs.folder import RunFolder, delete_runs, list_runs
from tacit.runs.sinks import Sinks, check_sinks


def write_run(out: Path, name: str, **facts: Any) -> RunFolder:
    folder = RunFolder.create(str(out), name)
    result = {
        "run": name,
        "method": "fedavg",
        "data": "iris",
        "protect": "plain",
        "settings": {"run": {"seed": 0, "out": str(out)}, "method": {"name": "fedavg"}},
        "scores": {"federated": {"accuracy": 0.9, "loss": 0.3}},
        "accuracy": 0.9,
        "ledger": {"bytes_up": 100, "training_s": 2.0},
        "exposure": [],
    }
    folder.write_json("result.json", result | facts)
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    write_run(tmp_path, "20260101-000000-aa")
    write_run(tmp_path, "20260102-000000-bb", method="fedheonn", protect="masked")
    stopped = write_run(
        tmp_path, "20260103-000000-cc", error={"type": "Interrupted", "text": "", "exit_code": 1}
    )
    stopped.write("checkpoint.bin", b"")
    RunFolder.create(str(tmp_path), "20260104-000000-dd").write("events.jsonl", b"")
    (tmp_path / "notes").mkdir()  # no run
    return tmp_path


def names(rows: list[dict[str, Any]]) -> str:
    return "".join(row["run"][-1] for row in rows)


def test_runs_are_listed_newest_first_with_state_and_score(out: Path) -> None:
    rows = list_runs(str(out))
    assert names(rows) == "dcba"
    assert [row["state"] for row in rows] == ["unfinished", "stopped", "done", "done"]
    assert (rows[3]["measure"], rows[3]["score"]) == ("accuracy", 0.9)


def test_runs_are_chosen_by_id_state_and_facts(out: Path) -> None:
    assert names(list_runs(str(out), ["20260101", "20260103"])) == "ca"
    assert names(list_runs(str(out), state="done")) == "ba"
    assert names(list_runs(str(out), method="fedheonn", protect=None)) == "b"
    with pytest.raises(ConfigError, match="unknown state 'dine': did you mean 'done'"):
        list_runs(str(out), state="dine")
    with pytest.raises(ConfigError, match="no run '2027'"):
        list_runs(str(out), ["2027"])


def test_only_the_listed_runs_are_deleted_and_none_while_one_is_busy(out: Path) -> None:
    with (
        RunFolder(out / "20260102-000000-bb").claimed(),
        pytest.raises(UnavailableError, match="still works"),
    ):
        delete_runs(list_runs(str(out), state="done"))
    assert names(list_runs(str(out))) == "dcba"
    delete_runs(list_runs(str(out), state="done"))
    assert names(list_runs(str(out))) == "dc"
    assert (out / "notes").is_dir()


def test_a_comparison_says_what_differs_and_which_run_is_best(out: Path) -> None:
    other = {"run": {"seed": 1, "out": "elsewhere"}, "method": {"name": "fedavg"}}
    better = {"federated": {"accuracy": 0.95, "loss": 0.4}}
    last = write_run(out, "20260105-000000-ee", settings=other, scores=better, accuracy=0.95)
    found = compare_runs([RunFolder(out / "20260101-000000-aa"), last])
    assert found["settings"] == {"run.seed": ["0", "1"]}
    assert found["scores"]["accuracy"] == {"values": [0.9, 0.95], "best": [False, True]}
    assert found["scores"]["loss"]["best"] == [True, False]
    assert found["costs"]["bytes_up"] == {"values": [100.0, 100.0], "best": [False, False]}
    assert found["warning"] == "the test rows may not be the same: run.seed differ"
    page = compare_page(found)
    assert "95.00\xa0% ★" in page
    assert "the test rows may not be the same" in page
    with pytest.raises(ConfigError, match="has no scores, it stopped"):
        compare_runs([last, RunFolder(out / "20260103-000000-cc")])


# -- sinks -------------------------------------------------------------------------------------------------

EVENTS = [
    Replied(1, "client-1", bytes_down=10, bytes_up=20, cpu_s=0.5),
    Evaluated("round 1", "test", {"accuracy": 0.5, "round": 1}),
    RoundEnded(1),
    Replied(2, "client-1", bytes_down=10, bytes_up=20, cpu_s=0.5),
    BudgetSpent(2, epsilon=0.25, budget=1.0, delta=1e-5, left=3),
    BudgetSpent(2, epsilon=0.5, budget=1.0, delta=1e-5, left=3, unit="row"),
    Evaluated("round 2", "test", {"accuracy": 0.75, "round": 2}),
    RoundEnded(2),
    Evaluated("federated", "test", {"accuracy": 0.8, "confusion": [[1]]}),
]


def feed(name: str, folder: Path) -> None:
    with Sinks([name], folder, {"method.name": "fedavg"}) as told:
        for number, event in enumerate(EVENTS):
            told(number, event)


def test_tensorboard_reads_what_the_events_told(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    feed("tensorboard", tmp_path)
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()

    def points(tag: str) -> list[tuple[int, float]]:
        return [(each.step, each.tensor_proto.float_val[0]) for each in board.Tensors(tag)]

    assert points("round/accuracy") == [(1, 0.5), (2, 0.75)]
    assert points("test/federated/accuracy") == [(2, pytest.approx(0.8))]
    assert points("cost/bytes_up")[:2] == [(1, 20.0), (2, 40.0)]
    assert points("cost/epsilon")[0] == (2, 0.25)
    assert points("cost/epsilon_rows")[0] == (2, 0.5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of its own dependencies
def test_mlflow_reads_what_the_events_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = tmp_path / "runs" / "run-1"
    folder.mkdir(parents=True)
    feed("mlflow", folder)
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'runs' / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("tacit").experiment_id])
    assert (run.info.run_name, run.info.status) == ("run-1", "FINISHED")
    assert run.data.params == {"method.name": "fedavg"}
    history = client.get_metric_history(run.info.run_id, "round/accuracy")
    assert [(each.step, each.value) for each in history] == [(1, 0.5), (2, 0.75)]


def records_of(data: bytes) -> Iterator[bytes]:
    """Read the records of a log as LevelDB writes it, in blocks of 32 KiB, after a head of 7 bytes."""
    place, whole = 7, b""
    while place + 7 <= len(data):
        if (left := 32_768 - place % 32_768) < 7:
            place += left
            continue
        _, size, kind = struct.unpack("<IHB", data[place : place + 7])
        whole += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # all of a record, or its last part
            yield whole
            whole = b""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of its own dependencies
def test_wandb_writes_offline_what_the_events_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.delenv("WANDB_MODE", raising=False)
    feed("wandb", tmp_path)
    (path,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    told = []
    for raw in records_of(path.read_bytes()):
        record = Record()
        record.ParseFromString(raw)
        if record.WhichOneof("record_type") == "history":
            told += [{"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item}]
    assert {each["_step"]: each["round/accuracy"] for each in told if "round/accuracy" in each} == {
        1: 0.5,
        2: 0.75,
    }


def test_a_sink_that_fails_is_left_out_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def write(found: Any, step: int) -> None:
        raise OSError("no server")

    monkeypatch.setitem(sinks.SINKS, "wandb", lambda folder, settings: (write, os.abort))
    feed("wandb", tmp_path)
    assert [record.message for record in caplog.records] == [
        "the sink wandb is left out from here on: OSError: no server"
    ]


def test_unknown_and_missing_sinks_are_refused_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="sinks names 'mlfow': did you mean 'mlflow'"):
        check_sinks(["mlfow"])
    monkeypatch.setattr(sinks, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"not installed: pip install 'tacit-fl\[wandb\]'"):
        check_sinks(["wandb"])
