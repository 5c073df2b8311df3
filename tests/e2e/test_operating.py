"""From nothing to a first result on three sites, by the commands that an operator and the sites type."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from examples.federation import processes_of
from tacit.data.files import load
from tacit.deploy.processes import free_port

pytestmark = [pytest.mark.slow, pytest.mark.operations]
TACIT = [str(Path(sys.executable).with_name("tacit"))]
SITES = ("north", "south", "west")


class Terminal:
    """Runs commands in a folder; those that stay are ended with it, however the test ends."""

    def __init__(self, folder):
        self.folder, self.typed, self.running = folder, 0, []

    def type(self, *words, code=0):
        self.typed += 1
        done = subprocess.run([*TACIT, *words], cwd=self.folder, capture_output=True, text=True, timeout=400)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def spawn(self, *words):
        process = subprocess.Popen(
            [*TACIT, *words], cwd=self.folder, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.running.append(process)
        return process

    def start(self, ready, *words):
        self.typed += 1
        process = self.spawn(*words)
        for line in process.stderr:
            if ready in line:
                return process
        raise AssertionError(f"{' '.join(words)} ended with {process.wait()}")

    def end(self):
        for process in self.running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.running:
            process.wait(60)
            process.stderr.close()
        until = time.monotonic() + 20
        while any(processes_of(path.absolute()) for path in self.folder.glob("*/flower")):
            assert time.monotonic() < until, "something is left running"
            time.sleep(0.2)


@pytest.fixture
def terminal(tmp_path):
    rows = load("breast_cancer")
    names = [f"x{i}" for i in range(4)]
    for place, site in enumerate(SITES):
        part = rows.take(slice(place, None, 3))
        lines = [
            ",".join([*map(str, values[:4]), str(rows.classes[label])])
            for values, label in zip(part.values, part.target, strict=True)
        ]
        (tmp_path / f"{site}.csv").write_text("\n".join([",".join([*names, "outcome"]), *lines]))
    found = Terminal(tmp_path)
    try:
        yield found
    finally:
        found.end()


def test_from_nothing_to_a_result_in_six_commands(terminal):
    address = f"127.0.0.1:{free_port()}"
    sites = [word for site in SITES for word in ("--site", site)]
    terminal.type("federation", "init", "fed", *sites, "--address", address)
    terminal.start("SuperLink at", "coordinator", "start", "fed")
    for site in SITES:
        bundle, rows = f"fed/bundles/{site}.bundle", ("--data", f"{site}.csv", "--target", "outcome")
        terminal.start("answers the SuperLink", "site", "join", bundle, *rows, "--start")
    result = json.loads(terminal.type("submit", "fed", "--json", "-q"))
    assert terminal.typed == 6
    assert result["clients"] == 3
    assert result["protect"] == "masked"
    assert result["scores"]["clients' own hold-outs"]["accuracy"] > 0.8
    told = json.loads(terminal.type("federation", "status", "fed", "--json"))
    assert [row["state"] for row in told["sites"]] == ["online"] * 3
    assert json.loads(terminal.type("doctor", "fed", "--json"))["fine"]
    assert json.loads(terminal.type("doctor", "north", "--json"))["fine"]
    terminal.type("site", "export", "north", "--to", "model.onnx")
    terminal.type("federation", "revoke-site", "fed", "west")
    terminal.type("federation", "stop", "fed")
