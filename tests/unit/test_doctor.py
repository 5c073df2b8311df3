"""What `tacit doctor` looks at: each thing that can be wrong is made so, and is told with its mend."""

import datetime
import email.utils
import re
import shutil
import ssl
import threading
from collections import namedtuple
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

import tacit
from tacit.core.errors import ConfigError
from tacit.core.events import Noted
from tacit.core.party import Charge, Party
from tacit.data.agreement import Agreement, introduce
from tacit.data.files import load
from tacit.deploy.doctor import LEAST_FREE, examine
from tacit.deploy.processes import free_port
from tacit.deploy.provision import Operator, init, join
from tacit.deploy.records import RunRecords
from tacit.engines.audit import AuditLog
from tacit.engines.sitefolder import SiteFolder, SiteSettings

Usage = namedtuple("Usage", "total used free")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    home = tmp_path_factory.mktemp("federation")
    init(home / "fed", ("north", "south", "west"), f"127.0.0.1:{free_port()}")
    lines = [f"{i},{i * i},{'ab'[i % 2]}" for i in range(30)]
    (home / "rows.csv").write_text("\n".join(["x,y,outcome", *lines]))
    settings = SiteSettings("site", data=str(home / "rows.csv"), target="outcome")
    join(home / "fed/bundles/north.bundle", home / "north", settings)
    return home


@pytest.fixture
def home(made, tmp_path):
    """A federation and a site of it, to spoil."""
    shutil.copytree(made, tmp_path / "home")
    for path in (tmp_path / "home/fed/coordinator/site.toml", tmp_path / "home/north/site.toml"):
        path.write_text(path.read_text().replace(str(made), str(tmp_path / "home")))
    return tmp_path / "home"


def found(folder):
    return {finding.what: finding for finding in examine(folder)}


@contextmanager
def superlink(home, behind=0.0, says=None):
    """A TLS server with the federation's certificate, whose clock is so many seconds behind, or says that."""

    class Clock(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(404)
            self.end_headers()

        def date_time_string(self, timestamp=None):
            now = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=behind)
            return says or email.utils.format_datetime(now, usegmt=True)

        def log_message(self, *_):
            pass

    class Server(HTTPServer):
        def handle_error(self, *_):
            """Whoever only looks whether the port is open ends the handshake."""

    server = Server(("127.0.0.1", Operator(home / "fed").link.port), Clock)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(home / "fed/server.pem", home / "fed/server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def test_all_is_fine_at_a_site_of_a_running_federation(home):
    with superlink(home):
        findings = examine(home / "north")
        assert all(finding.fine for finding in findings), findings
        assert {finding.what for finding in findings} == {
            *("tacit", "flower", "disk", "audit log", "keys", "secrets", "roster", "rows", "schema"),
            *("epsilon", "certificate", "superlink", "clock"),
        }
        assert all(finding.fine for finding in examine(home / "fed"))


@pytest.mark.parametrize("behind", [600, -600])
def test_a_clock_ten_minutes_off(home, behind):
    with superlink(home, behind):
        clock = found(home / "north")["clock"]
    assert not clock.fine
    assert re.fullmatch(
        r"(59\d|60\d) s from the SuperLink's: let both machines follow a time server", clock.text
    )


@pytest.mark.parametrize(
    "says", ["soon", "Thu, 19 Nov 2026 05:00:00 -0000", "Thu, 19 Nov 99999999999999999999 05:00:00 GMT"]
)
def test_a_superlink_that_tells_no_time(home, says):
    """One is of no zone: Python does not subtract it from a time that has one."""
    with superlink(home, says=says):
        told = found(home / "north")
    assert told["superlink"].fine
    assert "clock" not in told


def test_a_port_at_which_nobody_answers(home):
    told = found(home / "north")["superlink"]
    assert not told.fine
    assert "whether a firewall is between" in told.text


def test_a_stranger_at_the_port(home, tmp_path):
    init(tmp_path / "other", ("a",), "127.0.0.1:1")
    for name in ("server.pem", "server.key"):
        shutil.copy(tmp_path / "other" / name, home / "fed" / name)
    with superlink(home):
        told = found(home / "north")
    assert not told["superlink"].fine
    assert "vouch" in told["superlink"].text
    assert "clock" not in told


def test_versions(home, monkeypatch):
    assert found(home / "north")["tacit"].text == f"version {tacit.__version__}"
    monkeypatch.setattr("tacit.deploy.doctor.metadata.version", lambda name: "1.0")
    assert found(home / "north")["flower"].text == "version 1.0: install 1.41.0, as all others"
    assert not found(home / "fed")["flower"].fine


def test_a_disk_that_is_almost_full(home, monkeypatch):
    monkeypatch.setattr("tacit.deploy.doctor.shutil.disk_usage", lambda _: Usage(0, 0, LEAST_FREE - 1))
    told = found(home / "north")["disk"]
    assert not told.fine
    assert "make room" in told.text


def test_an_audit_log_that_was_cut(home):
    log = AuditLog(home / "north")
    log.add("answered")
    assert found(home / "north")["audit log"].fine
    log.path.unlink()
    told = found(home / "north")["audit log"]
    assert not told.fine
    assert "is not whole" in told.text


def test_rows_that_lack_a_column_of_the_last_run(home):
    site = SiteFolder(home / "north")
    agreement = Agreement({})
    agreement.add("north", introduce(load(site.settings.data, **site.settings.choices()), {}))
    schema = agreement.make_schema()
    with site.store.step("run-1", Party("north", dict, site.secret)) as party:
        party.state["schema"] = schema.to_message().encode()
    assert found(home / "north")["schema"].text == "has all 2 columns of the last run"
    rows = (home / "rows.csv").read_text().replace("x,y,outcome", "x,z,outcome")
    (home / "rows.csv").write_text(rows)
    told = found(home / "north")["schema"]
    assert not told.fine
    assert told.text.startswith("the last run agreed on 'y'")


def test_a_site_with_another_schema_than_most(home):
    records = RunRecords(AuditLog(home / "fed"))
    for number, (name, text) in enumerate((("north", "aa"), ("south", "aa"), ("west", "bb"), ("gone", "cc"))):
        records(number, Noted(name, f"schema: {text}, 2 columns"))
    told = found(home / "fed")["schema"]
    assert not told.fine
    assert told.text == "west has bb, 2 columns, others aa, 2 columns: bring the same columns"
    records(9, Noted("west", "schema: aa, 2 columns"))
    assert found(home / "fed")["schema"].fine


def test_an_old_copy_of_the_account_of_epsilon(home):
    site, charge = SiteFolder(home / "north"), Charge("row", 1.0, 0.1, 1e-5, 10, 20)
    for _ in range(2):
        shutil.copy(site.ledger.path, home / "old.db") if site.ledger.path.is_file() else None
        site.ledger.charge("terms", "run-1", charge)
        site.audit_log.add("answered", run="run-1", charges=[vars(charge)])
    assert found(home / "north")["epsilon"].fine
    shutil.copy(home / "old.db", site.ledger.path)
    told = found(home / "north")["epsilon"]
    assert not told.fine
    assert told.text == "epsilon.db lacks what run run-1 cost: it is an old copy, put the newer one back"


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"is no site's folder, it has no site\.toml"):
        examine(tmp_path / "none")


@pytest.mark.parametrize("folder", ["fed", "north"])
def test_a_log_that_cannot_be_read_is_a_finding_beside_all_others(home, folder):
    log = AuditLog(home / folder)
    log.add("answered", run="run-1")
    log.path.write_bytes(b"no database")
    told = found(home / folder)
    assert not told["audit log"].fine and "cannot be read" in told["audit log"].text
    assert {"secrets", "superlink", "certificate"} <= told.keys()
    assert told["schema"].fine
