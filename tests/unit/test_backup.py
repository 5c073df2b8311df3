"""Backup and restore: all comes back, also from a folder in use; nothing opens or is overwritten."""

import json
import shutil
import sqlite3
import stat
from contextlib import closing

import pytest
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.core.errors import ConfigError, ProtectionError, UnavailableError
from tacit.core.party import Charge, Party
from tacit.core.secret import Secret
from tacit.deploy import backup
from tacit.deploy.backup import back_up, restore
from tacit.deploy.connection import Access
from tacit.deploy.provision import Operator, init, join
from tacit.engines.sitefolder import SiteFolder, SiteSettings, write_private


@pytest.fixture
def home(tmp_path):
    init(tmp_path / "fed", ("north", "south", "west"), "127.0.0.1:21998")
    return tmp_path / "fed"


@pytest.fixture
def site(home, tmp_path):
    """A site that remembers a run, has spent some epsilon, and has an audit log."""
    found = join(home / "bundles/north.bundle", tmp_path / "north", SiteSettings("site"))
    with found.store.step("run-1", Party("north", dict, found.secret)) as party:
        party.state["shared/weights"] = 7
        party.vault["channel"] = Secret(b"a key of tags")
        party.vault["other"] = Secret(b"another secret")
    found.ledger.charge("terms", "run-1", Charge("row", 1.0, 0.1, 1e-5, 10, 20))
    found.audit_log.add("answered", run="run-1")
    (found.path / "supernode.log").write_text("words")
    return found


@pytest.fixture
def file(site, tmp_path):
    back_up(site.path, tmp_path / "north.backup")
    return tmp_path / "north.backup"


def key_of(site, tmp_path):
    shutil.copy(site.path / "unlock", tmp_path / "key")
    return tmp_path / "key"


class TestSite:
    def test_all_comes_back_and_is_private(self, site, file, tmp_path):
        found = restore(file, tmp_path / "again", key_of(site, tmp_path))
        again = SiteFolder(tmp_path / "again")
        assert again.identity == site.identity
        assert again.roster == site.roster
        assert (again.path / "node").read_bytes() == (site.path / "node").read_bytes()
        assert again.ledger.total() == site.ledger.total() > 0
        assert [record["event"] for record in again.audit_log.records()] == ["answered", "restored"]
        again.audit_log.verify()
        for path in again.path.rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert not (again.path / "supernode.log").exists()
        assert found["files"] == len([p for p in again.path.rglob("*") if p.is_file()]) - 1  # the key

    def test_nothing_can_be_read_in_it(self, site, file):
        raw = file.read_bytes()
        for secret in (
            b"coordinator = ",
            b"north",
            (site.path / "unlock").read_bytes(),
            (site.path / "node").read_bytes()[40:200],
            site.secret.reveal(),
            b"a key of tags",
        ):
            assert secret not in raw

    def test_an_old_account_of_epsilon_is_warned_of(self, site, file, tmp_path):
        site.ledger.charge("terms", "run-1", Charge("row", 1.0, 0.1, 1e-5, 10, 20))
        found = restore(file, tmp_path / "again", key_of(site, tmp_path))
        again = SiteFolder(tmp_path / "again").ledger.total()
        assert again < site.ledger.total()
        (warning,) = [text for text in found["warnings"] if text.startswith("epsilon.db")]
        assert f"{again:.4g} spent" in warning
        assert "could be spent twice" in warning

    def test_a_run_that_it_remembers_is_not_gone_on_with(self, site, file, tmp_path):
        restore(file, tmp_path / "again", key_of(site, tmp_path))
        again = SiteFolder(tmp_path / "again")
        with again.store.step("run-1", Party("north", dict, again.secret)) as party:
            assert party.state["shared/weights"] == 7, "the model can still be exported"
            assert {*party.vault} == {"other"}

    def test_a_copy_of_a_database_in_use_is_whole(self, site, tmp_path):
        with closing(sqlite3.connect(site.path / "epsilon.db", isolation_level=None)) as base:
            base.execute("BEGIN IMMEDIATE")
            base.execute("UPDATE spent SET epsilon = 99")
            back_up(site.path, tmp_path / "meanwhile")
            base.execute("COMMIT")
        restore(tmp_path / "meanwhile", tmp_path / "again", key_of(site, tmp_path))
        assert 0 < SiteFolder(tmp_path / "again").ledger.total() < 99 == site.ledger.total()


def test_a_folder_that_names_itself_comes_back_at_another_place(site, tmp_path):
    toml, key = site.path / "site.toml", key_of(site, tmp_path)
    toml.write_text(toml.read_text().replace('unlock = "unlock"', f'unlock = "{site.path}/unlock"'))
    identity = site.identity
    back_up(site.path, tmp_path / "kept")
    shutil.rmtree(site.path)
    restore(tmp_path / "kept", tmp_path / "again", key)
    assert SiteFolder(tmp_path / "again").identity == identity


class TestRefused:
    def test_nothing_is_overwritten(self, site, file, tmp_path):
        with pytest.raises(ConfigError, match="is there already"):
            back_up(site.path, file)
        with pytest.raises(ConfigError, match="nothing is overwritten"):
            restore(file, site.path, site.path / "unlock")
        with pytest.raises(ConfigError, match="none is no folder: make it, or choose another file"):
            back_up(site.path, tmp_path / "none" / "file")

    def test_another_key_opens_nothing_and_leaves_nothing(self, site, file, tmp_path, monkeypatch):
        monkeypatch.delenv("TACIT_UNLOCK", raising=False)
        write_private(tmp_path / "key", b"x" * 64)
        with pytest.raises(ProtectionError, match="does not open"):
            restore(file, tmp_path / "again", tmp_path / "key")
        with pytest.raises(ConfigError, match="give --unlock, or set TACIT_UNLOCK"):
            restore(file, tmp_path / "again")
        with pytest.raises(ConfigError, match="cannot be read"):
            restore(file, tmp_path / "again", tmp_path / "none")
        with pytest.raises(ProtectionError, match="does not open"):
            restore(file, tmp_path / "again", file)  # bytes that are no text
        assert not (tmp_path / "again").exists()

    def test_damage_is_noticed(self, site, file, tmp_path):
        raw, key = file.read_bytes(), key_of(site, tmp_path)
        for damaged in (raw[:500] + bytes([raw[500] ^ 1]) + raw[501:], raw[:2000], raw[:20], raw + b"x"):
            file.write_bytes(damaged)
            with pytest.raises(
                ProtectionError, match="does not open: it was changed or cut off, or this is not"
            ):
                restore(file, tmp_path / "again", key)
        for other in (b"", b"no archive"):
            file.write_bytes(other)
            with pytest.raises(ConfigError, match="is no backup of this release's format"):
                restore(file, tmp_path / "again", key)
        with pytest.raises(ConfigError, match=r"there is no file .*none: give one that `tacit backup` wrote"):
            restore(tmp_path / "none", tmp_path / "again", key)
        assert not (tmp_path / "again").exists()

    @pytest.mark.parametrize("unlock", ["../key", "/tmp/key"])
    def test_nothing_leads_out_of_the_folder(self, site, tmp_path, unlock, monkeypatch):
        """Made so by who has the key."""
        key = key_of(site, tmp_path)
        monkeypatch.setattr(backup.os.path, "relpath", lambda *_: unlock)
        back_up(site.path, tmp_path / "bad")
        monkeypatch.setattr(backup, "FACTS", "../escaped")
        back_up(site.path, tmp_path / "worse")
        monkeypatch.undo()
        with pytest.raises(ProtectionError, match="would write its key out of the folder"):
            restore(tmp_path / "bad", tmp_path / "again", key)
        with pytest.raises(UnavailableError, match="outside"):
            restore(tmp_path / "worse", tmp_path / "again", key)
        assert not (tmp_path / "escaped").exists()


def test_an_operators_folder_comes_back_at_another_place(home, tmp_path):
    (home / "runs/run-1").mkdir(parents=True)
    (home / "runs/run-1/result.json").write_text("{}")
    (home / "flower/control.json").write_text("of one start only")
    runner = CliRunner()

    def tacit(*words, code=0):
        result = runner.invoke(app, [*map(str, words)])
        assert result.exit_code == code, result.output
        return result

    told = json.loads(tacit("backup", home, "--to", tmp_path / "fed.backup", "--json").stdout)
    assert told["unlock"] == str(home / "coordinator.unlock")
    shutil.copy(home / "coordinator.unlock", tmp_path / "key")
    before = Operator(home)
    identity, ca = before.coordinator.identity, (home / "ca.key").read_bytes()
    shutil.rmtree(home)
    again = tmp_path / "again"
    result = tacit("restore", tmp_path / "fed.backup", "--to", again, "--unlock", tmp_path / "key")
    assert "warning: all is as of" in result.stderr
    assert Operator(again).coordinator.identity == identity
    assert Operator(again).state == before.state
    assert (again / "ca.key").read_bytes() == ca
    assert not (again / "flower").exists()
    assert Access.renew(again / "flower").port, "it can be started again"
    assert (again / "runs/run-1/result.json").is_file()
    assert join(again / "bundles/south.bundle", tmp_path / "south", SiteSettings("site")).name == "south"
    tacit("backup", tmp_path / "none", "--to", tmp_path / "x", code=2)
