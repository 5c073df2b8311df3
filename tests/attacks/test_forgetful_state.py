"""A damaged, shortened or lost file must not make anybody forget what was acknowledged.

A standing federation that lost its ``-wal`` file went back to an earlier moment without a word, damaged
checkpoints were read as if they were whole, and a site whose row was lost would have answered once more.
"""

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tacit.core.errors import ConfigError, ProtectionError, TacitError, UnavailableError
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.secret import Secret
from tacit.engines.store import PartyStore
from tacit.federation import Federation
from tacit.runs.checkpoint import MARK, read_checkpoint
from tacit.runs.folder import CHECKPOINT
from tacit.runs.job import execute
from tacit.runs.settings import Settings
from tacit.standing import Standing
from tacit.standing.book import Book
from tests.quick import Mode

KEY = Secret(bytes(32))
rng = np.random.default_rng(4)


def places(size, count):
    """Positions in a file: all of them if they are few, else spread over it at random."""
    count = count if not Mode.quick else count // 40
    return range(size) if size <= count else np.sort(rng.choice(size, count, replace=False)).tolist()


def flipped(raw, at):
    return raw[:at] + bytes([raw[at] ^ (1 << int(rng.integers(8)))]) + raw[at + 1 :]


# -- the standing federation's book ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def federation():
    return Federation.embedded("iris", clients=6, seed=4, classes=["setosa", "versicolor", "virginica"])


@pytest.fixture(scope="module")
def killed(federation, tmp_path_factory):
    """A state whose process was killed with acknowledged contributions in the ``-wal`` file."""
    path = tmp_path_factory.mktemp("standing") / "state"
    Standing.start(path, federation, protect="plain", min_clients=2).close()
    standing = Standing.open(path, federation)
    standing.add(["client-1", "client-2", "client-3"])
    standing.weights()
    copy = path.with_name("killed")
    shutil.copytree(path, copy)  # as it lies on the disk while the process works
    standing.close()
    assert (copy / "coordinator.db-wal").stat().st_size > 10_000
    return copy


@pytest.fixture
def copied(killed, tmp_path):
    return Path(shutil.copytree(killed, tmp_path / "state"))


def reopened(path, federation):
    with Standing.open(path, federation) as standing:
        return standing.status()["contributions"]


class TestBook:
    def test_control_without_checksums_it_forgets_in_silence(self, copied, federation, monkeypatch):
        monkeypatch.setattr(Book, "_check_whole", lambda self: None)
        (copied / "coordinator.db-wal").unlink()
        assert reopened(copied, federation) == 0

    def test_a_kill_by_itself_loses_nothing(self, copied, federation):
        assert reopened(copied, federation) == 3
        assert reopened(copied, federation) == 3

    def test_a_lost_wal_is_told(self, copied, federation):
        (copied / "coordinator.db-wal").unlink()
        for _ in range(2):  # and looking at it changes nothing
            with pytest.raises(ProtectionError, match=r"\d of \d+ changes are missing that were confirmed"):
                Standing.open(copied, federation)

    def test_an_older_copy_is_told(self, copied, federation, tmp_path):
        assert reopened(copied, federation) == 3
        older = (copied / "coordinator.db").read_bytes()
        with Standing.open(copied, federation) as standing:
            standing.add(["client-4", "client-5"])
        (copied / "coordinator.db").write_bytes(older)
        with pytest.raises(ProtectionError, match="changes are missing that were confirmed"):
            Standing.open(copied, federation)

    def test_another_state_with_as_many_changes_is_told(self, copied, federation, tmp_path):
        other = Path(shutil.copytree(copied, tmp_path / "other"))
        for path, client in ((copied, "client-4"), (other, "client-5")):
            with Standing.open(path, federation) as standing:
                standing.add([client])
        shutil.copy(other / "coordinator.db", copied / "coordinator.db")
        with pytest.raises(ProtectionError, match="is another than the one that was confirmed"):
            Standing.open(copied, federation)

    def test_a_lost_head_is_told(self, copied, federation):
        (copied / "coordinator.head").unlink()
        with pytest.raises(ProtectionError, match=r"coordinator\.head cannot be read"):
            Standing.open(copied, federation)

    @pytest.mark.parametrize(
        "change",
        [
            "UPDATE facts SET value = x'95' WHERE name = 'contribution/client-2:all'",
            "DELETE FROM facts WHERE name = 'contribution/client-2:all'",
            "DELETE FROM facts WHERE name LIKE 'opening/%'",
            "DELETE FROM facts WHERE name = 'total'",
            "UPDATE facts SET value = x'90' WHERE name = 'parties'",
            "DELETE FROM links WHERE number = (SELECT MAX(number) FROM links)",
            "DELETE FROM links WHERE number = 2",
        ],
    )
    def test_rows_that_were_changed_behind_its_back(self, copied, federation, change):
        reopened(copied, federation)
        base = sqlite3.connect(copied / "coordinator.db")
        assert base.execute(change).rowcount > 0
        base.commit()
        base.close()
        with pytest.raises(ProtectionError, match="is not whole"):
            Standing.open(copied, federation)

    @pytest.mark.parametrize("name", ["coordinator.db-wal", "coordinator.db", "coordinator.head"])
    @pytest.mark.parametrize("how", ["bit", "cut"])
    def test_damage_is_told_or_harms_nothing(self, copied, tmp_path, name, how):
        """Bytes that nobody reads may be anything; all else is noticed. Nothing is forgotten in silence."""
        if name == "coordinator.db":
            contents(copied)  # until then, all that matters is in the other file
        raw, told = (copied / name).read_bytes(), 0
        whole = contents(shutil.copytree(copied, tmp_path / "whole"))
        folder = tmp_path / "damaged"
        for at in places(len(raw), 200):
            shutil.copytree(copied, folder, ignore=shutil.ignore_patterns("parties.db", "unlock.key"))
            (folder / name).write_bytes(flipped(raw, at) if how == "bit" else raw[:at])
            try:
                assert contents(folder) == whole
            except (ProtectionError, UnavailableError, ConfigError):
                told += 1
            shutil.rmtree(folder)
        assert told or Mode.quick or (name, how) == ("coordinator.head", "bit")  # which stands there twice


def contents(folder):
    book = Book(Path(folder) / "coordinator.db")
    try:
        return book.contributions(), book.opened(), book.fact("total"), book.parties()
    finally:
        book.close()


# -- what a party remembers --------------------------------------------------------------------------------


class TestStore:
    @pytest.fixture
    def path(self, tmp_path):
        store = PartyStore(tmp_path / "state.db", KEY)
        for run in ("run-1", "run-2"):
            for name in ("ann", "bob"):
                with store.step(run, Party(name, dict, KEY)) as party:
                    party.state.update({"turn": 3, "bytes": b"x" * 300})
                    party.vault["key"] = Secret(b"hidden")
        return tmp_path / "state.db"

    def test_control_a_row_that_vanished_is_a_party_that_never_answered(self, path, monkeypatch):
        monkeypatch.setattr(PartyStore, "_check", lambda self, connection: None)
        self.spoil(path, "DELETE FROM parties WHERE run = 'run-2' AND party = 'ann'")
        assert PartyStore(path, KEY).recalled("run-2", Party("ann", dict, KEY)) is None

    @pytest.mark.parametrize(
        "change",
        [
            "DELETE FROM parties WHERE run = 'run-2' AND party = 'ann'",
            "UPDATE parties SET party = 'amn' WHERE party = 'ann'",
            "UPDATE parties SET written = 0",
            "DELETE FROM checksum",
        ],
    )
    def test_is_told(self, path, change):
        self.spoil(path, change)
        with pytest.raises(ProtectionError, match="is not what was written last"):
            PartyStore(path, KEY)

    def test_a_file_of_an_earlier_release_gets_a_checksum(self, path):
        self.spoil(path, "DROP TABLE checksum", "PRAGMA user_version = 0")
        assert sorted(PartyStore(path, KEY).runs()) == ["run-1", "run-2"]
        assert sorted(PartyStore(path, KEY).runs()) == ["run-1", "run-2"]

    def test_what_is_forgotten_on_purpose_is_no_damage(self, path, monkeypatch):
        monkeypatch.setattr("tacit.engines.store.KEPT_RUNS", 1)
        with PartyStore(path, KEY).step("run-3", Party("ann", dict, KEY)) as party:
            party.state["turn"] = 1
        assert PartyStore(path, KEY).runs() == ["run-3"]

    def test_damage_is_told_or_harms_nothing(self, path):
        raw, whole, told = path.read_bytes(), self.remembered(path), 0
        for cut in (False, True):
            for at in places(len(raw), 400):
                path.write_bytes(raw[:at] if cut else flipped(raw, at))
                try:
                    assert self.remembered(path) == whole or (cut and at == 0)
                except TacitError:
                    told += 1
        assert told

    def remembered(self, path):
        store = PartyStore(path, KEY)
        found = [
            store.recalled(run, Party(n, dict, KEY)) for run in ("run-1", "run-2") for n in ("ann", "bob")
        ]
        return [party and (dict(party.state), party.vault["key"].reveal()) for party in found]

    def spoil(self, path, *changes):
        base = sqlite3.connect(path)
        for change in changes:
            base.execute(change)
        base.commit()
        base.close()


# -- checkpoints, and results that come late ---------------------------------------------------------------


TABLES = {
    "method": {"name": "fedavg", "rounds": 2, "hidden": 3},
    "data": {"name": "iris"},
    "partition": {"name": "iid", "clients": 3},
    "protect": {"name": "plain"},
    "run": {"baselines": False},
}


def stopped(out, after=1):
    """The folder of a run that ended without a word after some rounds."""

    class Stop(BaseException):
        pass

    def stop(number, event):
        if type(event).__name__ == "Evaluated" and event.model == f"round {after + 1}":
            raise Stop

    tables = {**TABLES, "run": {**TABLES["run"], "out": str(out)}}
    with pytest.raises(Stop):
        execute(Settings.from_tables(tables), stop)
    (path,) = Path(out).glob(f"*/{CHECKPOINT}")
    return path


class TestCheckpoint:
    @pytest.fixture
    def path(self, tmp_path):
        return stopped(tmp_path / "runs")

    def test_every_damage_is_told(self, path):
        raw = path.read_bytes()
        assert read_checkpoint(str(path.parent)).kept.progress["round"] == 1
        for cut in (False, True):
            for at in places(len(raw), 1500):
                path.write_bytes(raw[:at] if cut else flipped(raw, at))
                with pytest.raises(ConfigError, match=r"cannot be read: (it is damaged|an earlier release)"):
                    read_checkpoint(str(path.parent))
        path.write_bytes(raw + b"\0")
        with pytest.raises(ConfigError, match="its digest is another"):
            read_checkpoint(str(path.parent))

    def test_control_without_the_digest_some_is_read(self, path, monkeypatch):
        def unchecked(file):
            raw = file.read_bytes()
            return Message.decode(raw[len(MARK) + 32 :] if raw.startswith(MARK) else raw)

        monkeypatch.setattr("tacit.runs.checkpoint._read", unchecked)
        raw, silent = path.read_bytes()[len(MARK) + 32 :], 0
        for at in places(len(raw), 500):
            path.write_bytes(flipped(raw, at))
            try:
                read_checkpoint(str(path.parent))
                silent += 1
            except Exception:  # noqa: BLE001  # some of it is noticed by accident
                pass
        assert silent

    @pytest.mark.parametrize("start", [b"", b"tacit checkpoint 2\n"])
    def test_one_of_an_earlier_release_is_refused(self, path, start):
        """Its record of opened totals is of another form, and would be taken for an empty one."""
        path.write_bytes(start + Message(a=1).encode())
        with pytest.raises(ConfigError, match="an earlier release wrote it: start the run again"):
            read_checkpoint(str(path.parent))

    def test_nobody_goes_on_while_another_process_works_on_the_run(self, path):
        held = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)"
        words = [sys.executable, "-c", f"{held}; print(1, flush=True); input()"]
        other = subprocess.Popen(
            [*words, str(path.parent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        other.stdout.readline()
        before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
        checkpoint = read_checkpoint(str(path.parent))
        with pytest.raises(UnavailableError, match="another process still works on run"):
            execute(checkpoint.settings, resume=checkpoint)
        assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before
        other.kill()
        other.wait()
        other.stdin.close(), other.stdout.close()
        assert "error" not in execute(checkpoint.settings, resume=checkpoint).result

    def test_a_checkpoint_that_another_process_wrote_meanwhile_counts(self, path, monkeypatch):
        """Attempts are numbered: two with the same number would draw the same secrets twice."""
        early, late = (read_checkpoint(str(path.parent)) for _ in range(2))
        late.begin()
        attempts = []

        def train(self, *anything, resume, **settings):
            attempts.append(resume.following)
            raise UnavailableError("it is enough to know")

        monkeypatch.setattr(Federation, "train", train)
        with pytest.raises(UnavailableError, match="enough to know"):
            execute(early.settings, resume=early)
        assert attempts == [late.kept.following + 1]
