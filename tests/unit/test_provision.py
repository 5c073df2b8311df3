"""Provisioning: an operator's folder, bundles, requests, rosters; and what is refused of each."""

import datetime
import json
import shutil
import stat
import subprocess
from types import SimpleNamespace

import msgspec
import pytest
from cryptography import x509
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.core.errors import ConfigError, ProtectionError
from tacit.deploy.bundles import read_bundle, read_request, read_roster
from tacit.deploy.doctor import certificate_of, examine
from tacit.deploy.operate import bind_address, status, unit
from tacit.deploy.provision import Operator, add_sites, init, join, request, revoke_site, rotate, update
from tacit.engines.sitefolder import Roster, SiteFolder, SiteSettings

SITES = ("north", "south", "west")


@pytest.fixture
def home(tmp_path):
    init(tmp_path / "fed", SITES, "127.0.0.1:21999")
    return tmp_path / "fed"


def joined(home, name, **settings):
    return join(home / "bundles" / f"{name}.bundle", home.parent / name, SiteSettings("site", **settings))


class TestInit:
    def test_every_site_pins_everybody_by_the_same_roster(self, home):
        operator = Operator(home)
        sites = {name: joined(home, name) for name in SITES}
        for site in sites.values():
            assert site.roster == operator.coordinator.roster
            assert site.roster.coordinator == operator.coordinator.identity
        assert {name: site.identity for name, site in sites.items()} == dict(operator.roster.clients)
        assert len({site.identity for site in sites.values()}) == 3

    def test_a_name_that_nobody_has_is_answered_with_the_nearest(self):
        roster = Roster("aa", {"north": "bb"})
        assert roster.pinned("north") == b"\xbb"
        with pytest.raises(ConfigError, match="no identity is pinned for 'nort': did you mean 'north'"):
            roster.pinned("nort")

    def test_a_member_with_the_name_of_a_service_is_one(self, tmp_path):
        init(tmp_path / "fed", ("north", "key-server"), "127.0.0.1:21999")
        roster = joined(tmp_path / "fed", "key-server").roster
        assert {*roster.clients} == {*roster.exchanges} == {"north"}
        assert {*roster.services} == {"key-server"}
        found = {finding.what: finding for finding in examine(tmp_path / "key-server")}
        assert found["rows"].fine and "service" in found["rows"].text

    def test_no_private_key_can_be_read_by_others_and_no_sites_stay_with_the_operator(self, home):
        for name in ("ca.key", "server.key", "coordinator.unlock", "federation.json", "bundles/north.bundle"):
            assert stat.S_IMODE((home / name).stat().st_mode) == 0o600
        site = joined(home, "north")
        assert stat.S_IMODE(site.path.stat().st_mode) == 0o700
        for name in ("secret.key", "unlock", "node"):
            assert stat.S_IMODE((site.path / name).stat().st_mode) == 0o600
        kept = b"".join(
            path.read_bytes() for path in home.rglob("*") if path.is_file() and path.suffix != ".bundle"
        )
        assert site.secret.reveal() not in kept
        assert (site.path / "unlock").read_bytes() not in kept

    def test_the_certificate_is_for_the_address(self, home, tmp_path):
        found = x509.load_pem_x509_certificate((home / "server.pem").read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert "127.0.0.1" in map(str, names.get_values_for_type(x509.IPAddress))
        init(tmp_path / "other", ["a"], "tacit.example.org:8000")
        named = x509.load_pem_x509_certificate((tmp_path / "other/server.pem").read_bytes())
        names = named.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert "tacit.example.org" in names.get_values_for_type(x509.DNSName)

    @pytest.mark.parametrize(
        ("sites", "address", "text"),
        [
            (["north", "north"], "127.0.0.1:1", "named twice"),
            (["North Wing"], "127.0.0.1:1", "use small letters"),
            (["coordinator"], "127.0.0.1:1", "cannot be a site's name"),
            (["../up"], "127.0.0.1:1", "cannot be a site's name"),
            (["north"], "nowhere", "give host:port"),
            (["north"], "host:99999", "give host:port"),
        ],
    )
    def test_what_cannot_work_is_refused_before_anything_is_written(self, tmp_path, sites, address, text):
        with pytest.raises(ConfigError, match=text):
            init(tmp_path / "fed", sites, address)
        assert not (tmp_path / "fed").exists()

    def test_a_federation_is_made_once(self, home):
        with pytest.raises(ConfigError, match="is a federation's folder already"):
            init(home, ["east"])


class TestRequests:
    def test_a_site_that_makes_its_own_keys_sends_none_of_them(self, home, tmp_path):
        path = request(tmp_path / "own", "east")
        site = SiteFolder(tmp_path / "own")
        found = add_sites(home, requests=[path])
        sent = path.read_bytes() + (home / "bundles/east.bundle").read_bytes()
        for secret in ((tmp_path / "own/unlock").read_bytes(), (tmp_path / "own/node").read_bytes()):
            assert secret not in sent
        assert read_bundle(home / "bundles/east.bundle").keys == {}
        made = join(home / "bundles/east.bundle", tmp_path / "own", SiteSettings("site"))
        assert made.identity == site.identity == made.roster.clients["east"]
        assert found["revision"] == Operator(home).state.revision

    def test_a_changed_request_is_refused(self, home, tmp_path):
        path = request(tmp_path / "own", "east")
        told = json.loads(path.read_bytes())
        for name, value in (
            ("name", "west2"),
            ("exchange", "00" * 32),
            ("signature", "00" * 99),
            ("node", "x"),
        ):
            path.write_text(json.dumps({**told, name: value}))
            with pytest.raises(ProtectionError):
                add_sites(home, requests=[path])
        path.write_text("{}")
        with pytest.raises(ConfigError, match="is no request of a site"):
            read_request(path)
        path.write_bytes(b"x" * (1 << 21))
        with pytest.raises(ConfigError, match="2,097,152 bytes"):
            read_request(path)

    def test_two_sites_with_the_same_keys_are_refused(self, home, tmp_path):
        path = request(tmp_path / "own", "east")
        add_sites(home, requests=[path])
        other = msgspec.structs.replace(read_request(path), name="east2")
        (tmp_path / "two").write_bytes(msgspec.json.encode(other.sign(SiteFolder(tmp_path / "own").secret)))
        with pytest.raises(ConfigError, match="'east2' has the keys of 'east'"):
            add_sites(home, requests=[tmp_path / "two"])
        with pytest.raises(ConfigError, match="there is a site 'north' already"):
            add_sites(home, ["north"])


class TestRosters:
    def test_a_revoked_site_is_out_of_the_others_roster(self, home):
        north, south = joined(home, "north"), joined(home, "south")
        found = revoke_site(home, "south")
        assert found["sites"] == ["north", "west"]
        assert not (home / "bundles/south.bundle").exists()
        roster, revision = update(north.path, home / "roster.json")
        assert {*roster.clients} == {*SiteFolder(north.path).roster.clients} == {"north", "west"}
        assert revision == 3
        assert "south" in south.roster.clients, "what the revoked one believes is its own affair"

    def test_an_older_roster_a_foreign_and_a_changed_one_are_refused(self, home, tmp_path):
        north, old = joined(home, "north"), (home / "roster.json").read_bytes()
        revoke_site(home, "south")
        update(north.path, home / "roster.json")
        (tmp_path / "old.json").write_bytes(old)
        with pytest.raises(ConfigError, match="is revision 2, this site has 3"):
            update(north.path, tmp_path / "old.json")
        init(tmp_path / "stranger", SITES)
        with pytest.raises(ProtectionError, match="not signed by its pinned identity"):
            update(north.path, tmp_path / "stranger/roster.json")
        told = json.loads((home / "roster.json").read_bytes())["signed"]
        (tmp_path / "changed.json").write_text(json.dumps({"signed": told[:-2] + "00"}))
        with pytest.raises(ProtectionError, match="not signed"):
            update(north.path, tmp_path / "changed.json")
        with pytest.raises(ConfigError, match="is no signed roster"):
            read_roster(b"[]", north.roster.coordinator)

    def test_a_known_site_gets_no_other_identity_by_a_roster(self, home):
        north = joined(home, "north")
        operator = Operator(home)
        operator.state.members["west"].identity = "ab" * 32
        operator.state.revision += 1
        operator.save()
        with pytest.raises(ConfigError, match="another key for west: ask that site by another way"):
            update(north.path, home / "roster.json")

    def test_another_roster_of_the_same_revision_is_refused(self, home):
        north = joined(home, "north")
        update(north.path, home / "roster.json")  # the one that it has
        before = {path.name: path.read_bytes() for path in north.path.glob("roster.*")}
        operator = Operator(home)
        operator.state.members["south"].active = False
        operator.save()
        with pytest.raises(ConfigError, match=r"is revision 2 as this site's roster is, with other sites"):
            update(north.path, home / "roster.json")
        assert {path.name: path.read_bytes() for path in north.path.glob("roster.*")} == before

    def test_who_has_not_joined_yet_gets_the_newest_roster(self, home):
        add_sites(home, ["east"])
        assert "east" in joined(home, "west").roster.clients


class TestBundles:
    def test_nothing_but_what_belongs_into_one_is_taken_out(self, home, tmp_path):
        found = read_bundle(home / "bundles/north.bundle")
        for name in ("../escape", "/etc/passwd", "site.toml"):
            bad = msgspec.structs.replace(found, keys={**found.keys, name: b"x"})
            (tmp_path / "bad").write_bytes(msgspec.json.encode(bad))
            with pytest.raises(ConfigError, match="belongs into no bundle"):
                read_bundle(tmp_path / "bad")
        (tmp_path / "bad").write_bytes(msgspec.json.encode(msgspec.structs.replace(found, format=9)))
        with pytest.raises(ConfigError, match="is of format 9, this release reads 1"):
            read_bundle(tmp_path / "bad")

    @pytest.mark.parametrize("content", [b"", b"no bundle", b"\0" * 10240, b'{"name": "a"}'])
    def test_other_files_are_none(self, tmp_path, content):
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(ConfigError, match="is no bundle of a site"):
            read_bundle(tmp_path / "bad")

    def test_keys_are_neither_overwritten_nor_missing(self, home, tmp_path):
        site = joined(home, "north")
        with pytest.raises(ConfigError, match="brings others: choose another folder"):
            join(home / "bundles/south.bundle", site.path, SiteSettings("site"))
        path = request(tmp_path / "own", "east")
        add_sites(home, requests=[path])
        with pytest.raises(ConfigError, match="name its folder with --folder"):
            join(home / "bundles/east.bundle", tmp_path / "elsewhere", SiteSettings("site"))
        request(tmp_path / "stranger", "east")
        with pytest.raises(ConfigError, match="another identity for 'east'"):
            join(home / "bundles/east.bundle", tmp_path / "stranger", SiteSettings("site"))


class TestDoctor:
    def wrong(self, folder):
        return {finding.what: finding.text for finding in examine(folder) if not finding.fine}

    def test_a_new_federation_only_lacks_a_running_coordinator(self, home):
        told = self.wrong(home)
        assert [*told] == ["superlink"]
        assert told["superlink"].startswith("no SuperLink answers at 127.0.0.1:21999")

    def test_what_is_wrong_at_a_site_is_said_with_its_mend(self, home, tmp_path):
        site = joined(home, "north")
        assert "add data to site.toml" in self.wrong(site.path)["rows"]
        (site.path / "node").chmod(0o644)
        assert self.wrong(site.path)["keys"] == "node can be read by others: chmod 600 it"
        (site.path / "unlock").write_text("x" * 64)
        assert "does not open with this site's key" in self.wrong(site.path)["secrets"]
        (site.path / "bundle.json").unlink()
        assert "tacit site join" in self.wrong(site.path)["address"]

    def test_certificates_are_renewed_by_the_same_authority(self, home, monkeypatch):
        before = (home / "server.pem").read_bytes()
        rotate(home)
        assert (home / "server.pem").read_bytes() != before
        (home / "ca.key").unlink()
        with pytest.raises(ConfigError, match="get a new certificate there"):
            rotate(home)

        class Later(datetime.datetime):
            @classmethod
            def now(cls, tz=None):
                return super().now(tz) + datetime.timedelta(days=cls.days)

        monkeypatch.setattr("tacit.deploy.doctor.datetime", SimpleNamespace(datetime=Later, UTC=datetime.UTC))
        for days, text in ((340, "expires in"), (400, "has expired"), (-1, "is not valid yet")):
            Later.days = days
            assert text in certificate_of(home / "server.pem").text
        assert "cannot be read" in certificate_of(home / "missing.pem").text


def test_status_without_a_running_coordinator(home):
    revoke_site(home, "west")
    found = status(home)
    assert not found["running"]
    assert [row["state"] for row in found["sites"]] == ["unknown", "unknown", "revoked"]


def test_units_name_the_command_and_the_folder(home):
    text = unit("the coordinator", ["coordinator", "start", str(home)], home)
    assert f"coordinator start {home}" in text
    assert f"ReadWritePaths={home}" in text
    assert f"User={home.owner()}" in text
    assert (bind_address("localhost"), bind_address("::1")) == ("127.0.0.1", "::1")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd here")
def test_systemd_takes_the_units_and_calls_them_confined(tmp_path):
    folder = tmp_path / "a folder, 100% ours"
    folder.mkdir()
    path = tmp_path / "tacit-site.service"
    path.write_text(unit("site north", ["site", "start", str(folder)], folder))
    done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=25", path]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-300:]


def test_the_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [f"{i},{i * i},{'ab'[i % 2]}" for i in range(30)]
    (tmp_path / "rows.csv").write_text("\n".join(["x,y,outcome", *lines]))

    def tacit(*words, code=0):
        result = CliRunner().invoke(app, [*words])
        assert result.exit_code == code, result.output + str(result.exception)
        return result.stdout

    found = json.loads(tacit("federation", "init", "fed", "--site", "north", "--site", "south", "--json"))
    assert [*found["bundles"]] == ["north", "south"]
    tacit("site", "join", "fed/bundles/north.bundle", "--data", "rows.csv", "--target", "outcome")
    assert SiteFolder("north").settings.target == "outcome"
    tacit("site", "request", "own", "--name", "east")
    told = tacit("federation", "add-site", "fed", "--request", "own.request")
    assert "the coordinator does not run" in told
    assert json.loads(tacit("site", "update", "north", "fed/roster.json", "--json"))["sites"][-1] == "east"
    tacit("federation", "revoke-site", "fed", "south")
    assert "revoked" in tacit("federation", "status", "fed")
    assert "wrong" in tacit("doctor", "fed", code=2)
    assert "[Service]" in tacit("coordinator", "start", "fed", "--systemd")
    assert "site start" in tacit("site", "start", "north", "--systemd")
    tacit("federation", "rotate", "fed")
    for words in (
        ("federation", "add-site", "fed"),
        ("federation", "revoke-site", "fed", "nobody"),
        ("federation", "logs", "fed"),
        ("federation", "status", "nowhere"),
        ("site", "join", "fed/bundles/north.bundle", "--data", "none.csv"),
        ("federation", "init", "fed2", "--ca", "fed/ca.crt"),
    ):
        assert CliRunner().invoke(app, [*words]).exit_code != 0
