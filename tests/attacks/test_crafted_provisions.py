"""Requests, bundles, rosters and backups that a stranger, a site or an operator crafted.

Whoever brings one is not trusted: a site's request goes into everybody's roster, a bundle chooses a folder
and pins identities, a roster may exchange keys, and a backup lies where others can write.
"""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys

import msgspec
import pytest

from tacit.core.errors import ConfigError, ProtectionError, UnavailableError
from tacit.deploy.backup import back_up, restore
from tacit.deploy.bundles import Request, read_bundle, read_request
from tacit.deploy.operate import PID, _running, end
from tacit.deploy.provision import Operator, add_sites, init, join, request, update
from tacit.engines.sitefolder import Roster, SiteFolder, SiteSettings, write_private

EVIL = "ee" * 32


@pytest.fixture
def home(tmp_path):
    init(tmp_path / "fed", ("north", "south"), "127.0.0.1:21997")
    return tmp_path / "fed"


def joined(home, name):
    return join(home / "bundles" / f"{name}.bundle", home.parent / name, SiteSettings("site"))


class TestRequests:
    @pytest.mark.parametrize(
        "changes",
        [
            {"exchange": f'{"aa" * 32}"\n\n[services]\nmain-server = "{EVIL}'},
            {"exchange": "no key"},
            {"node": "ssh-ed25519 AAAA"},
            {"node": ""},
        ],
    )
    def test_keys_that_are_none_never_reach_a_roster(self, home, tmp_path, changes):
        path = request(tmp_path / "east", "east")
        asked = msgspec.structs.replace(read_request(path), **changes)
        asked = Request(asked.name, asked.identity, asked.exchange, asked.node)
        path.write_bytes(msgspec.json.encode(asked.sign(SiteFolder(tmp_path / "east").secret)))
        with pytest.raises(ConfigError, match="keys that are none"):
            add_sites(home, requests=[path])
        assert EVIL not in (home / "coordinator/roster.toml").read_text()

    def test_no_key_ends_its_line_in_a_roster(self):
        roster = Roster("aa", {"north": f'bb"\n[services]\nmain-server = "{EVIL}'})
        import tomllib

        assert "services" not in tomllib.loads(roster.to_toml())

    def test_two_new_sites_do_not_share_keys(self, home, tmp_path):
        path = request(tmp_path / "east", "east")
        asked = msgspec.structs.replace(read_request(path), name="far-east")
        other = tmp_path / "other.request"
        other.write_bytes(msgspec.json.encode(asked.sign(SiteFolder(tmp_path / "east").secret)))
        with pytest.raises(ConfigError, match="has the keys of"):
            add_sites(home, requests=[path, other])

    def test_a_site_does_not_become_the_key_server_by_its_name(self, home, tmp_path):
        asked = request(tmp_path / "own", "key-server")
        with pytest.raises(ConfigError, match="is of 'key-server': if that is meant"):
            add_sites(home, requests=[asked])
        with pytest.raises(ConfigError, match="is of 'key-server': if that is meant"):
            add_sites(home, ["east"], [asked])
        assert not Operator(home).roster.services
        add_sites(home, ["key-server"], [asked])
        assert read_bundle(home / "bundles/key-server.bundle").keys == {}, "it keeps its own keys"


class TestBundles:
    def changed(self, home, tmp_path, site="north", **changes):
        found = msgspec.structs.replace(read_bundle(home / f"bundles/{site}.bundle"), **changes)
        (tmp_path / "bad.bundle").write_bytes(msgspec.json.encode(found))
        return tmp_path / "bad.bundle"

    @pytest.mark.parametrize("name", ["../elsewhere", "/tmp/elsewhere", ".", ""])
    def test_its_name_is_no_way_to_another_folder(self, home, tmp_path, name):
        with pytest.raises(ConfigError, match="cannot be a site's name"):
            join(self.changed(home, tmp_path, name=name), None, SiteSettings("site"))

    def test_the_roster_is_the_one_that_was_signed(self, home, tmp_path):
        told = json.loads((home / "roster.json").read_bytes())["signed"]
        south = Operator(home).roster.clients["south"].encode().hex()
        forged = json.dumps({"signed": told.replace(south, EVIL.encode().hex())}).encode()
        assert south in told
        with pytest.raises(ProtectionError, match="sign"):
            join(self.changed(home, tmp_path, roster=forged), None, SiteSettings("site"))
        assert not (tmp_path / "north").exists()

    def test_who_has_joined_takes_no_second_bundle(self, home, tmp_path):
        request_path = request(tmp_path / "own", "east")
        add_sites(home, requests=[request_path])
        join(home / "bundles/east.bundle", tmp_path / "own", SiteSettings("site"))
        with pytest.raises(ConfigError, match="has joined already"):
            join(home / "bundles/east.bundle", tmp_path / "own", SiteSettings("site"))

    def test_a_site_with_keys_of_its_own_takes_no_other_key(self, home, tmp_path):
        add_sites(home, requests=[request(tmp_path / "own", "east")])
        path = self.changed(home, tmp_path, "east", keys={"node": b"another"})
        with pytest.raises(ConfigError, match="brings others"):
            join(path, tmp_path / "own", SiteSettings("site"))

    @pytest.mark.parametrize("more", [{"policy": {}}, {"deep": [[]]}, {"keys": {"site.toml": ""}}])
    def test_one_that_holds_something_else_is_refused(self, home, tmp_path, more):
        told = json.loads((home / "bundles/north.bundle").read_bytes())
        deep = json.dumps({**told, **more}).replace("[[]]", "[" * 100_000 + "]" * 100_000)
        (tmp_path / "bad").write_text(deep)
        with pytest.raises(ConfigError, match=r"is no bundle|belongs into no bundle"):
            read_bundle(tmp_path / "bad")

    def test_a_roster_of_many_brackets_is_none(self, home, tmp_path):
        path = self.changed(home, tmp_path, roster=b"[" * 100_000)
        with pytest.raises(ConfigError, match="is no signed roster"):
            join(path, tmp_path / "north", SiteSettings("site"))

    def test_one_that_is_too_large_is_not_read(self, tmp_path):
        with (tmp_path / "bad").open("wb") as file:
            file.truncate(1 << 40)
        with pytest.raises(ConfigError, match="a site's bundle at most"):
            read_bundle(tmp_path / "bad")


def test_a_roster_exchanges_no_key_of_a_known_site(home):
    """With another exchange key for west, who made it would be let into the clients' own secrets."""
    north, operator = joined(home, "north"), Operator(home)
    operator.state.members["south"].exchange = EVIL
    operator.state.revision += 1
    operator.save()
    with pytest.raises(ConfigError, match="another key for south"):
        update(north.path, home / "roster.json")


def test_a_backup_that_was_changed_is_refused(home, tmp_path):
    """Who keeps it can read nothing in it, nor change a bit of it unnoticed."""
    site = joined(home, "north")
    back_up(site.path, tmp_path / "kept")
    raw = (tmp_path / "kept").read_bytes()
    assert site.roster.coordinator.encode() not in raw, "what would have to be exchanged"
    shutil.copy(site.path / "unlock", tmp_path / "key")
    for place in (20, len(raw) // 2, len(raw) - 1):
        (tmp_path / "changed").write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
        with pytest.raises(ProtectionError, match="does not open: it was changed"):
            restore(tmp_path / "changed", tmp_path / "again", tmp_path / "key")
    assert not (tmp_path / "again").exists()


def test_rows_that_lie_in_the_folder_are_in_no_backup(home, tmp_path):
    (tmp_path / "north").mkdir()
    (tmp_path / "north/rows.csv").write_text("age,outcome\n41.0625,yes\n52.5,no\n")
    site = join(
        home / "bundles/north.bundle",
        tmp_path / "north",
        SiteSettings("site", data="rows.csv", target="outcome"),
    )
    back_up(site.path, tmp_path / "kept")
    assert b"41.0625" not in (tmp_path / "kept").read_bytes()


def test_a_private_file_is_private_though_one_was_there(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(b"old")
    path.chmod(0o644)
    write_private(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


class TestNumbersOfProcesses:
    def test_a_number_that_is_another_process_s_by_now_is_not_ended(self, tmp_path):
        other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        try:
            (tmp_path / PID).write_text(str(other.pid))
            with pytest.raises(UnavailableError, match="nothing runs from"):
                end(tmp_path)
            assert other.poll() is None
        finally:
            other.kill()
            other.communicate()

    def test_two_do_not_run_from_one_folder(self, tmp_path):
        before = signal.getsignal(signal.SIGTERM)
        try:
            with _running(tmp_path):
                assert int((tmp_path / PID).read_text()) == os.getpid()
                with pytest.raises(UnavailableError, match="runs from"), _running(tmp_path):
                    pytest.fail("two run")
            assert not (tmp_path / PID).exists()
        finally:
            signal.signal(signal.SIGTERM, before)
