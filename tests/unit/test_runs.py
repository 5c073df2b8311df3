"""Settings, run folders and jobs: what is checked, what is written, and what remains after a failure."""

from __future__ import annotations

import errno
import json
import os
import shlex
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tacit.core.errors import ConfigError, DataError, UnavailableError
from tacit.core.events import Event, Noted, WaveStarted
from tacit.runs.experiment import build_federation
from tacit.runs.folder import EventFile, RunFolder
from tacit.runs.job import command, execute
from tacit.runs.keys import template
from tacit.runs.settings import DataSettings, RunSettings, Settings, merged, read_toml


def small(tmp_path: Path, **tables: Any) -> Settings:
    run = {"out": str(tmp_path / "runs"), "baselines": False}
    base = {"data": {"name": "iris"}, "partition": {"clients": 3}, "run": run}
    return Settings.from_tables(merged(base, tables))


# -- settings --------------------------------------------------------------------------------------


def test_no_tables_give_the_defaults() -> None:
    assert Settings.from_tables({}) == Settings()
    names = {"data", "partition", "method", "protect", "prepare", "run", "flower"}
    assert Settings().as_tables().keys() == names


def test_the_template_shows_every_default() -> None:
    text = template()
    shown, default = Settings.from_tables(tomllib.loads(text)), Settings()
    assert (shown.data, shown.run, shown.partition) == (default.data, default.run, default.partition)
    assert shown.build_method() == default.build_method()
    assert shown.build_protection() == default.build_protection()
    assert shown.build_preparation() == default.build_preparation()
    keys = {line.strip("# ").split(" ")[0] for line in text.splitlines() if "=" in line}
    assert keys >= {*vars(DataSettings()), *vars(RunSettings())} - {"min_clients"}


def test_other_settings_lie_over_a_file_key_by_key() -> None:
    below = {
        "method": {"name": "fedheonn", "lam": 0.1},
        "partition": {"name": "dirichlet", "alpha": 1.0, "clients": 5},
    }
    assert merged(below, {"method": {"activation": "linear"}})["method"]["lam"] == 0.1
    assert merged(below, {"partition": {"name": "iid"}})["partition"] == {"name": "iid", "clients": 5}
    assert merged(below, {"partition": {"name": "by-column"}})["partition"] == {"name": "by-column"}
    assert below["partition"]["alpha"] == 1.0  # the tables below are left alone


def test_by_column_has_as_many_clients_as_the_column_has_values(tmp_path: Path) -> None:
    settings = small(
        tmp_path, partition={"name": "by-column", "column": "sepal length (cm)"}, data={"test": 0}
    )
    assert "clients" not in settings.partition
    assert build_federation(settings).clients > 20


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("data", "test", -0.1),
        ("data", "test", float("inf")),
        ("data", "holdout", float("nan")),
        ("data", "classes", []),
        ("run", "seed", 2**63),
        ("run", "timeout", float("nan")),
        ("run", "min_clients", -3),
        ("partition", "clients", True),
    ],
)
def test_values_out_of_range_are_named(table: str, key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=key):
        Settings.from_tables({table: {key: value}})


def test_a_file_that_is_not_there_names_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tacit new"):
        read_toml(tmp_path / "federation.toml")


def test_the_command_repeats_the_settings() -> None:
    settings = Settings.from_tables(
        {
            "data": {"name": "my file.csv", "classes": ["a", "b"], "holdout": 0.25},
            "partition": {"name": "dirichlet", "alpha": 0.3, "clients": 7},
            "method": {"lam": 0.5},
            "prepare": {"missing": "mean"},
            "run": {"baselines": False, "min_clients": 2},
        }
    )
    words = shlex.split(command(settings))
    pairs = dict(pairwise(words))
    assert pairs["--data"] == "my file.csv"
    assert pairs["--classes"] == "a,b"
    assert (pairs["--alpha"], pairs["--lam"], pairs["--missing"]) == ("0.3", "0.5", "mean")
    assert pairs["--min-clients"] == "2"
    assert "--no-baselines" in words
    assert "--workers" not in words


# -- the federation of an experiment ---------------------------------------------------------------


def test_declared_classes_are_taken_in_the_types_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,target\n" + "".join(f"{i},{'true' if i % 2 else 'false'}\n" for i in range(20)))
    settings = small(tmp_path, data={"name": str(path), "classes": [True, False]})
    assert build_federation(settings).declared == {"classes": [True, False]}
    settings = small(tmp_path, data={"name": str(path), "classes": ["True", "False"]})
    assert build_federation(settings).declared == {"classes": [True, False]}
    settings = small(tmp_path, data={"name": str(path), "classes": ["no", "yes"]})
    with pytest.raises(DataError, match="class 'False', which is not declared"):
        build_federation(settings)


# -- folders ---------------------------------------------------------------------------------------


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path)
    folder.write("a.txt", b"first")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UnavailableError, match=r"a\.txt: No space left on device: free some space"):
        folder.write("a.txt", b"second")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_bytes() == b"first"


def test_a_model_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    from safetensors import SafetensorError

    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise SafetensorError("IoError: No space left on device")

    with pytest.raises(UnavailableError, match="free some space"):
        RunFolder(tmp_path).place("model.safetensors", fail)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UnavailableError, match="choose another place"):
        RunFolder(tmp_path / "none").write("a", b"")


def test_a_folder_is_made_once(tmp_path: Path) -> None:
    RunFolder.create(str(tmp_path), "one")
    with pytest.raises(ConfigError, match="is there already"):
        RunFolder.create(str(tmp_path), "one")


def test_only_the_owner_reads_a_run(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        found = execute(small(tmp_path, run={"transcript": True}))
        elsewhere = RunFolder(tmp_path).write("model.json", b"{}")
    finally:
        os.umask(before)
    assert found.folder.path.stat().st_mode & 0o777 == 0o700
    files = [path for path in found.folder.path.rglob("*") if path.is_file()]
    assert {"result.json", "events.jsonl", "report.html", "coordinator.bin"} <= {path.name for path in files}
    assert {path.name for path in files if path.stat().st_mode & 0o077} == set()
    assert found.folder.path.parent.stat().st_mode & 0o777 == 0o755
    assert elsewhere.stat().st_mode & 0o777 == 0o644, "where somebody exports to is theirs"


def test_latest_is_the_newest_even_within_a_second(tmp_path: Path) -> None:
    for place, name in enumerate(["20260102-000000-f", "20260102-000001-z", "20260102-000001-a"]):
        (tmp_path / name).mkdir()
        result = tmp_path / name / "result.json"
        result.write_text("{}")
        os.utime(result, ns=(place, place))
    (tmp_path / "20270101-000000-x").mkdir()  # still running, or killed: no result
    assert RunFolder.find("latest", str(tmp_path)).path.name == "20260102-000001-a"


def test_events_on_a_full_disk(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    (tmp_path / "events.jsonl").symlink_to("/dev/full")
    file = EventFile(RunFolder(tmp_path))
    file(0, Noted("test", "fits into the buffer"))
    with pytest.raises(UnavailableError, match=r"events\.jsonl.*free some space"):
        file.close()
    file = EventFile(RunFolder(tmp_path))
    with pytest.raises(UnavailableError, match=r"events\.jsonl.*free some space"):
        for number in range(10_000):
            file(number, Noted("test", "x" * 100))
    with pytest.raises(UnavailableError):
        file.close()


# -- jobs ------------------------------------------------------------------------------------------


def only(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def test_a_job_from_python(tmp_path: Path) -> None:
    finished = execute(small(tmp_path))
    assert (
        finished.result["accuracy"]
        == finished.model.scores(build_federation(small(tmp_path)).test)["accuracy"]
    )
    assert {path.name for path in finished.folder.path.iterdir()} == {
        *("report.html", "events.jsonl", "result.json", "model.safetensors")
    }
    assert finished.folder.result()["model"] == finished.result["model"]


class Stop:
    """Subscriber that raises in the second wave."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, number: int, event: Event) -> None:
        if isinstance(event, WaveStarted) and event.wave == 2:
            raise self.error


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (KeyboardInterrupt(), "Interrupted", 130),
        (UnavailableError("disk gone"), "UnavailableError", 6),
        (RuntimeError("fault"), "RuntimeError", 1),
    ],
)
def test_a_job_that_stops_says_why(tmp_path: Path, error: BaseException, kind: str, code: int) -> None:
    with pytest.raises(type(error)):
        execute(small(tmp_path), Stop(error))
    folder = only(tmp_path / "runs")
    assert {path.name for path in folder.iterdir()} == {"events.jsonl", "result.json"}
    told = RunFolder(folder).result()["error"]
    assert (told["type"], told["exit_code"]) == (kind, code)
    assert all(json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines())


def test_the_first_error_is_told_if_not_even_the_result_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise UnavailableError("disk full")

    monkeypatch.setattr(RunFolder, "write", full)
    with pytest.raises(RuntimeError, match="first"):
        execute(small(tmp_path), Stop(RuntimeError("first")))


def test_more_contributions_wanted_than_there_are_clients(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="min_clients is 4, but there are 3 clients"):
        execute(small(tmp_path, run={"min_clients": 4}))
    assert not (tmp_path / "runs").exists()
