"""What operators and sites keep of a federation, in real processes: records, status, metrics, backups."""

import json
import os
import signal
import time
import urllib.request

import pytest

from tacit.deploy.processes import free_port
from tests.e2e.test_operating import SITES, terminal

pytestmark = [pytest.mark.slow, pytest.mark.operations]
__all__ = ["terminal"]  # the fixture
ROUNDS = """
[method]
name = "fedavg"
rounds = 4
[data]
holdout = 0.2
"""


def read(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=20) as reply:
        return reply.read().decode()


@pytest.fixture
def running(terminal):
    """A coordinator with metrics and three sites."""
    terminal.ports = [free_port() for _ in range(2)]
    sites = [word for site in SITES for word in ("--site", site)]
    terminal.type("federation", "init", "fed", *sites, "--address", f"127.0.0.1:{free_port()}")
    ready = ("SuperLink at", "coordinator", "start", "fed", "--metrics", str(terminal.ports[0]))
    terminal.start(*ready)
    for site in SITES:
        bundle, rows = f"fed/bundles/{site}.bundle", ("--data", f"{site}.csv", "--target", "outcome")
        terminal.type("site", "join", bundle, *rows)
        watched = ("--metrics", str(terminal.ports[1])) if site == "north" else ()
        terminal.start("answers the SuperLink", "site", "start", site, *watched)
    return terminal


def test_records_status_metrics_and_backup_of_a_run(running):
    result = json.loads(running.type("submit", "fed", "--json", "-q"))
    told = json.loads(running.type("federation", "status", "fed", "--json"))["sites"]
    assert {row["schema"].split(", ", 1)[1] for row in told} == {"4 columns, classification of outcome"}
    assert all("min_clients 3" in row["policy"] for row in told)
    assert all(row["since"] for row in told)
    for folder in ("fed", *SITES):
        assert json.loads(running.type("audit-log", "verify", folder, "--json"))["whole"]
    left = json.loads(running.type("audit-log", "show", "north", "--run", result["run"], "--json"))["records"]
    answered = [record for record in left if record["event"] == "answered"]
    assert {record["protection"] for record in answered} == {"masked"}
    assert any(record["left"].get("masked") for record in answered)
    asked = json.loads(running.type("audit-log", "show", "fed", "--last", "0", "--json"))["records"]
    assert [record["event"] for record in asked][-1] == "run ended"
    sent = sum(record.get("bytes_up", 0) for record in asked)
    assert sent == result["bytes_up"], "the coordinator's records and the ledger count the same bytes"
    whole = ("audit-log", "show", "north", "--event", "answered", "--last", "0", "--json")
    answers = len(json.loads(running.type(*whole))["records"])  # also of the run that agrees on words first
    site = read(running.ports[1], "metrics")
    assert f'tacit_records_total{{event="answered"}} {float(answers)}' in site
    for port in running.ports:
        assert json.loads(read(port, "health"))["fine"]
    assert "fine" in running.type("doctor", "north", "--json")
    running.type("backup", "north", "--to", "north.backup")
    running.type("restore", "north.backup", "--to", "again", "--unlock", "north/unlock")
    running.type("audit-log", "verify", "again")
    running.type("site", "export", "again", "--to", "model.onnx")


def test_a_run_that_was_stopped_goes_on(running):
    (running.folder / "rounds.toml").write_text(ROUNDS)
    process = running.spawn("submit", "fed", "rounds.toml", "-q")
    until, folder = time.monotonic() + 300, running.folder / "fed/runs"
    while not list(folder.glob("*/checkpoint.bin")):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < until, "no round was completed"
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (run,) = (path.parent.name for path in folder.glob("*/checkpoint.bin"))
    result = json.loads(running.type("resume", run, "--out", "fed/runs", "--json", "-q"))
    assert result["run"] == run
    assert len(result["scores"]["clients' own hold-outs"]) > 0
    events = json.loads(running.type("audit-log", "show", "fed", "--run", run, "--last", "0", "--json"))
    started = [record for record in events["records"] if record["event"] == "run started"]
    assert len(started) == 2, "both attempts are on record"
    assert json.loads(running.type("audit-log", "verify", "fed", "--json"))["whole"]
