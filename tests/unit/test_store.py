"""What a site keeps between steps: all of a step or nothing, secrets never in the clear."""

import sqlite3
import stat
from contextlib import closing

import numpy as np
import pytest

from tacit.core.errors import ConfigError, ProtectionError, UnavailableError
from tacit.core.party import Party
from tacit.core.secret import Secret
from tacit.engines.sitefolder import Roster, SiteFolder, SiteSettings, new_unlock, write_private
from tacit.engines.store import KEPT_RUNS, PartyStore

KEY = Secret(b"k" * 64)
HIDDEN = b"a secret that nobody else may read"


def party(name="client-1"):
    return Party(name, dict, KEY)


@pytest.fixture
def store(tmp_path):
    return PartyStore(tmp_path / "state.db", KEY)


def filled(store, run="run", name="client-1"):
    with store.step(run, party(name)) as found:
        found.state["vector"] = np.arange(3.0)
        found.vault["key"] = Secret(HIDDEN)
    return store


class TestStore:
    def test_another_process_reads_what_a_step_left(self, store):
        filled(store)
        with PartyStore(store.path, KEY).step("run", party()) as found:
            assert found.state["vector"].tolist() == [0, 1, 2]
            assert found.vault["key"].reveal() == HIDDEN

    def test_a_step_that_raises_leaves_no_trace(self, store):
        filled(store)
        with pytest.raises(ZeroDivisionError), store.step("run", party()) as found:
            found.state["vector"] = np.zeros(1)
            found.state["more"] = 1
            found.vault["key"] = Secret(b"other")
            raise ZeroDivisionError
        with store.step("run", party()) as found:
            assert found.state["vector"].tolist() == [0, 1, 2]
            assert "more" not in found.state
            assert found.vault["key"].reveal() == HIDDEN

    def test_a_process_that_is_killed_leaves_no_trace(self, store):
        filled(store)
        step = store.step("run", party())
        step.__enter__().state["more"] = 1
        del step  # the connection closes without a commit, as when the process ends
        with store.step("run", party()) as found:
            assert "more" not in found.state

    def test_runs_and_parties_are_apart(self, store):
        filled(store)
        for run, name in (("other", "client-1"), ("run", "client-2")):
            with store.step(run, party(name)) as found:
                assert not found.state
                assert not found.vault

    def test_no_secret_is_in_the_file(self, store):
        filled(store)
        raw = store.path.read_bytes()
        assert HIDDEN not in raw
        assert np.arange(3.0).tobytes() in raw  # the search finds what is written in the clear

    def test_no_nonce_is_used_twice(self, store):
        """With one nonce for two contents, AES-GCM shows their difference, and lets anyone forge."""
        found = set()
        for run in ("run", "again", "other"):
            filled(store, run)
            with closing(sqlite3.connect(store.path)) as base:
                ((sealed,),) = base.execute("SELECT vault FROM parties WHERE run = ?", (run,)).fetchall()
            found.add(sealed[:12])
        assert len(found) == 3

    def test_a_forgotten_run_is_gone_from_the_file(self, store, monkeypatch):
        filled(store)
        monkeypatch.setattr("tacit.engines.store.KEPT_RUNS", 1)
        with store.step("later", party()) as found:
            found.state["more"] = 1
        assert store.runs() == ["later"]
        assert np.arange(3.0).tobytes() not in store.path.read_bytes()

    def test_only_its_owner_can_read_it(self, store):
        assert stat.S_IMODE(store.path.stat().st_mode) == 0o600

    def test_another_key_does_not_open_it(self, store):
        filled(store)
        other = PartyStore(store.path, Secret(b"o" * 64))
        with pytest.raises(ProtectionError, match="does not open"), other.step("run", party()):
            pass

    @pytest.mark.parametrize("column", ["state", "vault"])
    def test_what_was_moved_from_another_run_does_not_open(self, store, column):
        filled(store)
        with store.step("old", party()) as found:
            found.state["vector"] = np.ones(3)
            found.vault["key"] = Secret(b"older")
        connection = sqlite3.connect(store.path)
        older = f"(SELECT {column} FROM parties WHERE run = 'old')"
        connection.execute(f"UPDATE parties SET {column} = {older} WHERE run = 'run'")
        connection.commit()
        connection.close()
        with pytest.raises(ProtectionError, match="changed"), store.step("run", party()):
            pass

    def test_old_runs_go_with_their_keys(self, store):
        for number in range(KEPT_RUNS + 3):
            filled(store, f"run-{number}")
        assert len(store.runs()) == KEPT_RUNS
        assert store.runs()[0] == f"run-{KEPT_RUNS + 2}"
        assert "run-0" not in store.runs()

    def test_a_place_that_cannot_be_written_is_named(self, tmp_path):
        with pytest.raises(UnavailableError, match=r"state\.db"):
            PartyStore(tmp_path / "absent" / "state.db", KEY)


class TestSiteFolder:
    def make(self, tmp_path, **settings):
        key = new_unlock().encode()
        write_private(tmp_path / "unlock", key)
        known = {"name": "north", "unlock": str(tmp_path / "unlock"), **settings}
        folder = SiteFolder.create(tmp_path / "north", SiteSettings(**known), Secret(key))
        (folder.path / "roster.toml").write_text(Roster("aa", {"north": folder.identity}).to_toml())
        return folder, key

    def test_it_reads_back_what_was_made(self, tmp_path):
        folder, _ = self.make(tmp_path, data="rows.csv", target="y", experiment=True)
        again = SiteFolder(folder.path)
        assert again.settings == folder.settings
        assert again.identity == folder.identity
        assert again.roster.pinned("north").hex() == folder.identity
        assert folder.secret.reveal() not in (folder.path / "secret.key").read_bytes()

    def test_the_key_may_come_from_the_environment(self, tmp_path, monkeypatch):
        folder, key = self.make(tmp_path)
        (folder.path / "site.toml").write_text("name = 'north'")
        with pytest.raises(ConfigError, match="TACIT_UNLOCK"):
            assert SiteFolder(folder.path).secret
        monkeypatch.setenv("TACIT_UNLOCK", key.decode())
        assert SiteFolder(folder.path).identity

    def test_a_key_that_others_can_read_is_refused(self, tmp_path):
        folder, _ = self.make(tmp_path)
        (tmp_path / "unlock").chmod(0o644)
        with pytest.raises(ProtectionError, match="chmod 600"):
            assert SiteFolder(folder.path).secret

    def test_another_key_does_not_open_it(self, tmp_path):
        folder, _ = self.make(tmp_path)
        write_private(tmp_path / "unlock", new_unlock().encode())
        with pytest.raises(ProtectionError, match="does not open"):
            assert SiteFolder(folder.path).secret

    def test_a_short_key_is_refused(self, tmp_path):
        folder, _ = self.make(tmp_path)
        write_private(tmp_path / "unlock", b"password")
        with pytest.raises(ConfigError, match="32 random characters"):
            assert SiteFolder(folder.path).secret

    @pytest.mark.parametrize(
        ("text", "error"),
        [
            ("nme = 'north'", "did you mean 'name'"),
            ("experiment = true", "who this is"),
            ("name = 3 3", "cannot be read"),
        ],
    )
    def test_a_faulty_site_file_is_explained(self, tmp_path, text, error):
        (tmp_path / "site.toml").write_text(text)
        with pytest.raises(ConfigError, match=error):
            SiteFolder(tmp_path)

    def test_what_is_no_folder_of_a_site_is_refused(self, tmp_path):
        with pytest.raises(ConfigError, match="no site's folder"):
            SiteFolder(tmp_path / "absent")

    def test_a_roster_is_needed(self, tmp_path):
        folder, _ = self.make(tmp_path)
        (folder.path / "roster.toml").unlink()
        with pytest.raises(ConfigError, match=r"no roster\.toml"):
            assert folder.roster
