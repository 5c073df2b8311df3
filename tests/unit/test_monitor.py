"""Metrics, health and structured logs of a coordinator and of a site."""

import io
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import namedtuple
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.core.errors import ConfigError, UnavailableError
from tacit.core.party import Charge
from tacit.deploy import monitor
from tacit.deploy.doctor import LEAST_FREE
from tacit.deploy.logs import json_lines
from tacit.deploy.monitor import serve_metrics
from tacit.deploy.provision import init, join
from tacit.engines.audit import AuditLog
from tacit.engines.sitefolder import SiteSettings

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def site(tmp_path):
    init(tmp_path / "fed", ("north", "south", "west"), "127.0.0.1:21997")
    return join(tmp_path / "fed/bundles/north.bundle", tmp_path / "north", SiteSettings("site"))


def read(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
        return reply.read().decode()


def metrics_of(port):
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(read(port, "/metrics"))
        for sample in family.samples
    }


def test_a_site_tells_what_left_it_and_what_it_spent(site):
    site.audit_log.add("answered", bytes_in=10, bytes_out=300)
    with serve_metrics(site.path, "0") as port:
        first = metrics_of(port)
        site.audit_log.add("answered", bytes_in=1, bytes_out=2)
        site.audit_log.add("refused", bytes_in=5, reason="plain")
        site.ledger.charge("terms", "run-1", Charge("row", 1.0, 0.1, 1e-5, 10, 20))
        then = metrics_of(port)
    assert first["tacit_records_total", "answered"] == 1
    assert first["tacit_epsilon_spent",] == 0
    assert then["tacit_records_total", "answered"] == 2
    assert then["tacit_records_total", "refused"] == 1
    assert (then["tacit_bytes_total", "in"], then["tacit_bytes_total", "out"]) == (16, 302)
    assert then["tacit_epsilon_spent",] == pytest.approx(site.ledger.total())
    assert then["tacit_certificate_expiry_seconds", "ca.crt"] > then["tacit_last_record_seconds",] > 1.7e9
    assert then["tacit_healthy",] == 1
    assert next(key for key in then if key[0] == "tacit_info")[1] == "north"


def test_the_coordinator_has_its_own(site, tmp_path):
    AuditLog(tmp_path / "fed").add("answered", bytes_up=7, bytes_down=9)
    with serve_metrics(tmp_path / "fed", "127.0.0.1:0") as port:
        found = metrics_of(port)
    assert found["tacit_records_total", "roster"] == 1
    assert (found["tacit_bytes_total", "in"], found["tacit_bytes_total", "out"]) == (7, 9)
    assert ("tacit_certificate_expiry_seconds", "server.pem") in found


def test_health(site, monkeypatch):
    with serve_metrics(site.path, "0") as port:
        assert json.loads(read(port, "/health"))["fine"] is True
        monkeypatch.setattr("tacit.deploy.doctor.shutil.disk_usage", lambda _: Usage(0, 0, LEAST_FREE - 1))
        with pytest.raises(urllib.error.HTTPError) as caught:
            read(port, "/health")
        assert caught.value.code == 503
        told = json.loads(caught.value.read())
        caught.value.close()
        assert [row["what"] for row in told["findings"] if not row["fine"]] == ["disk"]
        assert metrics_of(port)["tacit_healthy",] == 0


def test_bad_addresses_and_taken_ports_are_refused(site):
    for address in ("here", "70000", "127.0.0.1:"):
        with pytest.raises(ConfigError, match="give a port"), serve_metrics(site.path, address):
            pass
    with (
        serve_metrics(site.path, "0") as port,
        pytest.raises(UnavailableError, match="cannot be served"),
        serve_metrics(site.path, str(port)),
    ):
        pass


def test_logs_as_json_lines(site):
    log, to = site.path / "supernode.log", io.StringIO()
    log.write_text("from before\n")
    site.audit_log.add("answered", run="run-0")
    with json_lines(site.path, to):
        with log.open("a") as file:
            file.write("\x1b[93mWARNING \x1b[0m:  slow\nplain words\nhalf a li")
        site.audit_log.add("refused", run="run-1", reason="no")
    first, second, third = map(json.loads, to.getvalue().splitlines())
    assert (first["level"], first["program"], first["text"]) == ("warning", "supernode", "slow")
    assert (second["level"], second["text"]) == ("info", "plain words")
    assert (third["program"], third["event"], third["run"]) == ("audit", "refused", "run-1")
    assert all("at" in each for each in (first, second, third))


def test_a_log_that_was_cut_off_is_followed_from_its_begin(site, monkeypatch):
    monkeypatch.setattr("tacit.deploy.logs.LOOK", 0.01)
    log, to = site.path / "supernode.log", io.StringIO()
    with json_lines(site.path, to):
        log.write_text("long before\n")
        while not to.getvalue():
            time.sleep(0.01)
        log.write_text("after\n")
    assert [json.loads(line)["text"] for line in to.getvalue().splitlines()] == ["long before", "after"]


def test_without_the_extra_the_command_says_what_to_install(site, monkeypatch):
    monkeypatch.setattr("tacit.cli.operating.find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["site", "start", str(site.path), "--metrics", "9464"])
    assert result.exit_code == UnavailableError.exit_code
    assert "pip install 'tacit-fl[metrics]'" in result.output


@pytest.mark.slow
@pytest.mark.operations
def test_a_running_coordinator_answers(site, tmp_path):
    words = ["coordinator", "start", str(tmp_path / "fed"), "--metrics", "0", "--json-log"]
    process = subprocess.Popen(
        [Path(sys.executable).with_name("tacit"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        port = int(process.stderr.readline().split()[-1])
        assert "SuperLink at" in process.stderr.readline()
        assert json.loads(read(port, "/health"))["fine"] is True
        assert metrics_of(port)["tacit_healthy",] == 1
        assert json.loads(process.stdout.readline())["program"] in ("superlink", "audit")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


class TestConnectionsThatSayNothing:
    def connect(self, opened, port, words=b""):
        found = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        found.sendall(words)
        return found

    def test_they_lock_nobody_out(self, site):
        with serve_metrics(site.path, "0") as port, ExitStack() as opened:
            silent = [self.connect(opened, port, b"GET /hea" * (place % 2)) for place in range(80)]
            assert json.loads(read(port, "/health"))["fine"]
            assert silent[0].recv(1) == b"", "the oldest were closed"
            patience = time.monotonic() + 10
            while sum("process_request" in one.name for one in threading.enumerate()) > 32:
                assert time.monotonic() < patience

    def test_they_are_closed_after_a_while_though_they_drip(self, site, monkeypatch, capfd):
        monkeypatch.setattr(monitor, "LONGEST_CONNECTION", 0.2)
        with serve_metrics(site.path, "0") as port, ExitStack() as opened:
            silent, drips = (self.connect(opened, port, words) for words in (b"", b"GET / HTTP/1.0\r\n"))
            patience = time.monotonic() + 10
            with pytest.raises(OSError):  # closed
                while time.monotonic() < patience:
                    drips.sendall(b"a")
                    time.sleep(0.05)
            assert silent.recv(1) == b""
            monkeypatch.undo()
            assert json.loads(read(port, "/health"))["fine"]
        assert capfd.readouterr().err == ""
