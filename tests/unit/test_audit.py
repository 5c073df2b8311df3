"""The audit log: what is in it, that nothing leaves without it, and that no change to it stays unnoticed."""

import json
import os
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from itertools import pairwise

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.core.errors import ConfigError, ProtectionError, QuorumError, UnavailableError
from tacit.core.events import Noted, Replied, RunEnded, RunStarted, TotalOpened, WaveEnded, WaveStarted
from tacit.core.manifest import Components
from tacit.core.secret import Secret
from tacit.data.preparation import Preparation
from tacit.deploy.records import RunRecords
from tacit.engines.audit import AuditLog, End
from tacit.engines.links import Links
from tacit.engines.policy import Policy
from tacit.engines.sitefolder import SiteFolder
from tacit.methods import METHODS
from tacit.methods.fedheonn import FedHEONN
from tacit.protections.masked import Masked
from tacit.protections.plain import Plain
from tests.helpers.deployed import coordinator_at, engine_of, make_sites

PARTS = Components(FedHEONN(), Masked(), Preparation())
ROWS = 12
NAMES = ("north", "south", "west")


@pytest.fixture
def log(tmp_path):
    found = AuditLog(tmp_path)
    for number in range(6):
        found.add("answered", run=f"run-{number}", step="client.contribute")
    return found


def rows_of(seed):
    values = np.random.default_rng(seed).normal(size=(ROWS, 2)).round(6)
    return values, ["yes", "no"] * (ROWS // 2)


def train(coordinator):
    coordinator.enrol()
    coordinator.protection.prepare(9)
    coordinator.components.preparation.train(coordinator)
    coordinator.components.method.train(coordinator)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Three sites that have answered a run, and one of them a stranger."""
    sites = make_sites(tmp_path_factory.mktemp("sites"), {name: rows_of(i) for i, name in enumerate(NAMES)})
    log = AuditLog(sites["coordinator"].path)
    coordinator = coordinator_at(sites, PARTS, min_clients=3, min_count=1, link={"authenticated": True})
    for name in NAMES:
        path = sites[name].path / "site.toml"
        path.write_text(path.read_text().replace("min_count = 5", "min_count = 1"))
    coordinator.link.events.subscribe(RunRecords(log))
    train(coordinator)
    coordinator.finish()
    stranger = coordinator_at(sites, PARTS, secret=Secret(bytes(32)), link={"authenticated": True})
    with pytest.raises(QuorumError):
        stranger.enrol()
    return sites


class TestChain:
    def test_records_come_back_in_order_and_survive_another_process(self, log, tmp_path):
        assert [record["run"] for record in log.records()] == [f"run-{n}" for n in range(6)]
        assert [record["number"] for record in log.records(after=4)] == [5, 6]
        assert log.verify().number == 6
        assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / "audit.head").stat().st_mode) == 0o600

    @pytest.mark.parametrize(
        "change",
        [
            "UPDATE links SET written = CAST(replace(CAST(written AS TEXT), 'run-2', 'run-9') AS BLOB)",
            "DELETE FROM links WHERE number = 6",
            "DELETE FROM links WHERE number > 2",
            "DELETE FROM links WHERE number = 3",
            "UPDATE links SET number = CASE number WHEN 3 THEN -1 ELSE 3 END WHERE number IN (3, 4)",
            "DELETE FROM links",
            "UPDATE links SET written = 'text' WHERE number = 1",
        ],
    )
    def test_every_change_is_noticed(self, log, change):
        with closing(sqlite3.connect(log.path)) as base, base:
            assert base.execute(change).rowcount > 0
        with pytest.raises(ProtectionError, match="is not whole"):
            log.verify()

    @pytest.mark.parametrize("cut", ["DELETE FROM links WHERE number = 6", "DELETE FROM links"])
    def test_a_log_that_was_cut_is_not_gone_on_with(self, log, cut):
        with closing(sqlite3.connect(log.path)) as base, base:
            base.execute(cut)
        with pytest.raises(ProtectionError, match="changes are missing that were confirmed"):
            log.add("answered")

    def test_an_older_copy_and_a_lost_file_are_noticed(self, log, tmp_path):
        shutil.copy(log.path, tmp_path / "older")
        log.add("answered")
        newer = log.path.read_bytes()
        shutil.copy(tmp_path / "older", log.path)
        with pytest.raises(ProtectionError, match="1 of 7 changes are missing"):
            log.add("answered")
        log.path.unlink()
        with pytest.raises(ProtectionError, match=r"audit\.db is gone"):
            log.verify()
        with pytest.raises(ProtectionError, match="missing"):
            log.add("answered")
        log.path.write_bytes(newer)
        (tmp_path / "audit.head").unlink()
        with pytest.raises(ProtectionError, match=r"audit\.head cannot be read"):
            log.verify()

    def test_a_log_that_was_written_anew_as_a_whole_is_noticed_by_what_was_noted(self, log, tmp_path):
        end = log.verify()
        forged = AuditLog(tmp_path / "forged")
        forged.folder.mkdir()
        for number in range(6):
            forged.add("answered", run=f"run-{number}", step="another")
        assert forged.verify().number == end.number, "the control: by itself it is whole"
        with pytest.raises(ProtectionError, match="record 6 is another than the one that was noted"):
            forged.verify(end)
        log.add("answered")
        assert log.verify(end).number == 7
        with pytest.raises(ProtectionError, match="record 9 was noted, and there are 7"):
            log.verify(End(9, end.digest))

    def test_processes_that_write_at_once_lose_nothing(self, tmp_path):
        words = "import sys, pathlib; from tacit.engines.audit import AuditLog\n"
        words += "for _ in range(20): AuditLog(pathlib.Path(sys.argv[1])).add('answered')"
        both = [subprocess.Popen([sys.executable, "-c", words, str(tmp_path)]) for _ in range(2)]
        assert [process.wait(60) for process in both] == [0, 0]
        assert AuditLog(tmp_path).verify().number == 40

    def test_a_process_killed_before_it_wrote_the_head_of_the_first_record_loses_nothing(
        self, tmp_path, monkeypatch
    ):
        keep = Links.keep

        def killed(links):
            if links.last()[0]:
                raise KeyboardInterrupt
            keep(links)

        monkeypatch.setattr(Links, "keep", killed)
        with pytest.raises(KeyboardInterrupt):
            AuditLog(tmp_path).add("answered")
        monkeypatch.undo()
        AuditLog(tmp_path).add("answered")
        assert AuditLog(tmp_path).verify().number == 2

    def test_an_empty_file_in_place_of_a_log_does_not_begin_another(self, log):
        log.path.write_bytes(b"")
        for _ in range(2):
            with pytest.raises(ProtectionError, match="6 of 6 changes are missing"):
                log.add("answered")

    def test_what_a_killed_process_had_begun_is_taken_back_by_whoever_reads(self, log, tmp_path):
        with closing(sqlite3.connect(log.path, isolation_level=None)) as base:
            base.execute("PRAGMA cache_size = 1")  # so that pages are written before the end
            base.execute("BEGIN IMMEDIATE")
            for number in range(7, 60):
                base.execute("INSERT INTO links VALUES (?, ?, ?)", (number, b"x" * 2000, bytes(32)))
            (tmp_path / "killed").mkdir()
            for name in ("audit.db", "audit.db-journal", "audit.head"):
                shutil.copy(tmp_path / name, tmp_path / "killed" / name)
            base.execute("ROLLBACK")
        assert (tmp_path / "killed/audit.db-journal").stat().st_size > 0
        assert AuditLog(tmp_path / "killed").verify().number == 6

    def test_what_was_acknowledged_survives_a_kill(self, tmp_path):
        words = "import sys, pathlib; from tacit.engines.audit import AuditLog\n"
        words += "log = AuditLog(pathlib.Path(sys.argv[1]))\n"
        words += "for n in range(9999): log.add('answered'); print(n + 1, flush=True)"
        process = subprocess.Popen(
            [sys.executable, "-c", words, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(10):
            process.stdout.readline()
        time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        told = [10, *map(int, process.stdout.read().split())][-1]
        process.stdout.close()
        process.wait()
        log = AuditLog(tmp_path)
        assert log.verify().number in (told, told + 1)
        log.add("answered")
        log.verify()


class TestSite:
    def test_who_asked_what_left_and_by_which_policy(self, trained):
        records = list(trained["north"].audit_log.records())
        answered = [record for record in records if record["event"] == "answered"]
        coordinator = trained["coordinator"].identity
        assert {record["asker"] for record in answered} == {coordinator}
        assert {record["method"] for record in answered} == {"fedheonn"}
        assert {record["protection"] for record in answered} == {"masked"}
        assert len({record["policy"] for record in answered}) == 1
        enrolled, *rest = answered
        assert enrolled["accepts"]["min_clients"] == 3
        assert enrolled["settings"]["active"] is True
        contributed = [record for record in rest if record["step"] == "client.contribute"]
        assert contributed
        assert all(record["left"]["masked"] > 0 and "plain" not in record["left"] for record in contributed)
        assert all(earlier["sum"] < later["sum"] for earlier, later in pairwise(contributed))
        assert all(record["bytes_out"] > sum(record["left"].values()) for record in contributed)

    def test_what_is_refused_is_recorded_with_the_reason_and_without_a_name(self, trained):
        *_, last = trained["south"].audit_log.records()
        assert last["event"] == "refused"
        assert "signed by nobody" in last["reason"] or "not signed" in last["reason"]
        assert "asker" not in last

    def test_no_row_and_no_secret_is_in_it(self, trained):
        for name in NAMES:
            site, raw = trained[name], trained[name].audit_log.path.read_bytes()
            assert site.secret.reveal() not in raw
            assert site.secret.reveal().hex().encode() not in raw
            assert site.unlock.reveal() not in raw
            for value in rows_of(NAMES.index(name))[0].ravel():
                assert str(value).encode() not in raw
                assert value.tobytes() not in raw

    def test_the_coordinator_records_each_ask_before_and_what_opened(self, trained):
        records = list(trained["coordinator"].audit_log.records())
        events = [record["event"] for record in records]
        assert events[0] == "run started"
        assert events.count("asked") == events.count("answered")
        opened = [record for record in records if record["event"] == "total opened"]
        assert opened
        assert all(record["contributors"] == 3 for record in opened)
        told = {
            (record["site"], record["text"].split(":")[0]) for record in records if record["event"] == "told"
        }
        assert told == {(name, what) for name in NAMES for what in ("schema", "policy")}

    def test_a_site_that_tells_nothing_tells_nothing(self, tmp_path):
        sites = make_sites(tmp_path, {"north": rows_of(0)}, tell=False)
        log = AuditLog(tmp_path)
        coordinator = coordinator_at(sites, PARTS, min_clients=3, min_count=5, link={"authenticated": True})
        coordinator.link.events.subscribe(RunRecords(log))
        coordinator.enrol()
        assert "told" not in [record["event"] for record in log.records()]

    def test_what_noise_cost_is_in_it(self, tmp_path):
        private = {"rounds": 1, "example_noise": 4.0, "example_sampling": 0.5, "weighting": "equal"}
        parts = Components(METHODS.build("fedavg", private), Plain(), Preparation(scale="none"))
        sites = make_sites(tmp_path, {"north": rows_of(0)})
        path = sites["north"].path / "site.toml"
        wide = Policy(protections=("plain",), min_clients=1, min_count=1)
        path.write_text(path.read_text().split("[accept]")[0] + wide.to_toml())
        coordinator = coordinator_at(sites, parts, min_clients=1, min_count=1, link={"authenticated": True})
        train(coordinator)
        charged = [r["charges"] for r in sites["north"].audit_log.records() if "charges" in r]
        releases = sum(charge["releases"] for each in charged for charge in each)
        assert releases == sum(spent.releases for spent in SiteFolder(sites["north"].path).ledger.list()) > 0

    def test_a_full_disk_refuses_the_ask(self, tmp_path):
        sites = make_sites(tmp_path, {"north": rows_of(0)})
        log = sites["north"].audit_log
        log.add("answered", text="x" * 400)
        parts = {"min_clients": 3, "min_count": 5, "link": {"authenticated": True}}
        before, soft = log.verify(), resource.getrlimit(resource.RLIMIT_FSIZE)
        # No file may grow beyond the log as it is: the state database, which comes first, is not there yet.
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.path.stat().st_size, soft[1]))
        try:
            with pytest.raises(UnavailableError, match="Nothing is answered without a record"):
                for _ in range(50):
                    log.add("answered", text="x" * 400)
            with pytest.raises(QuorumError, match=r"audit log audit\.db cannot be written"):
                coordinator_at(sites, PARTS, engine=engine_of(sites), **parts).enrol()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, soft)
        assert log.verify(before).number >= 1
        coordinator_at(sites, PARTS, **parts).enrol()


def test_what_the_coordinator_records_of_events(tmp_path):
    log = AuditLog(tmp_path)
    records = RunRecords(log)
    for number, event in enumerate(
        (
            RunStarted("run-1", "ab", "fedavg", "masked", "coordinator", 3, 0),
            WaveStarted(1, "client.contribute", 3, 4),
            Replied(1, "north", 10, 20, 0.1),
            Replied(1, "south", 10, 1, 0.1, "ConfigError: min_clients = 2"),
            WaveEnded(1, 1, 1, 0.1, 0.2),
            TotalOpened(4, "gram", "coordinator", 3, 12),
            Noted("north", "something else"),
            RunEnded("run-1", "cd"),
        )
    ):
        records(number, event)
    found = list(log.records())
    assert [record["event"] for record in found] == [
        *("run started", "asked", "no answer", "answered", "total opened", "run ended")
    ]
    assert found[3]["bytes_up"], found[3]["bytes_down"] == (21, 20)
    assert {record["run"] for record in found} == {"run-1"}


def test_the_commands(log, tmp_path):
    def tacit(*words, code=0):
        result = CliRunner().invoke(app, ["audit-log", *words])
        assert result.exit_code == code, result.output
        return result.stdout

    told = json.loads(tacit("verify", str(tmp_path), "--json"))
    assert told["whole"] is True
    assert told["records"] == 6
    log.add("refused", run="run-9", reason="\x1b[2Jgone")
    assert json.loads(tacit("verify", str(tmp_path), "--json", "--noted", told["end"]))["records"] == 7
    assert "records: 7, whole" in tacit("verify", str(tmp_path))
    assert len(json.loads(tacit("show", str(tmp_path), "--last", "2", "--json"))["records"]) == 2
    assert len(json.loads(tacit("show", str(tmp_path), "--last", "0", "--json"))["records"]) == 7
    (only,) = json.loads(tacit("show", str(tmp_path), "--event", "refused", "--json"))["records"]
    assert only["run"] == "run-9"
    assert "\x1b" not in tacit("show", str(tmp_path), "--run", "run-9")
    with closing(sqlite3.connect(log.path)) as base, base:
        base.execute("DELETE FROM links WHERE number = 2")
    tacit("verify", str(tmp_path), code=ProtectionError.exit_code)
    tacit("verify", str(tmp_path / "none"), code=ConfigError.exit_code)
    tacit("verify", str(tmp_path), "--noted", "seven", code=2)
    tacit("show", str(tmp_path), "--last", "-1", code=2)
