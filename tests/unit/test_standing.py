"""Standing federations: rows in parts, late joiners, refusals that change nothing, what is kept."""

import shutil
import sqlite3

import numpy as np
import pytest

from tacit.core.errors import (
    ConfigError,
    DataError,
    FederationError,
    OpeningError,
    ProtectionError,
    ReplayError,
    SchemaError,
    StepError,
    UnavailableError,
)
from tacit.core.standing_client import LEDGER
from tacit.crypto.linear_tag import TagKey
from tacit.data.preparation import Preparation
from tacit.data.table import Column, Table
from tacit.federation import Federation
from tacit.methods.fedheonn import FedHEONN
from tacit.protections.encrypted import EncryptedClient
from tacit.protections.keys.shared_key import SharedKey
from tacit.protections.plain import PlainClient
from tacit.standing import Standing, book, changes, read
from tacit.standing.folder import party_without_rows

CLASSES = ["class_0", "class_1", "class_2"]


@pytest.fixture(scope="module")
def federation():
    return Federation.embedded("wine", clients=8, seed=2, classes=CLASSES)


@pytest.fixture
def start(federation, tmp_path):
    """A federation that stands, made under a name; closed at the end."""
    opened = []

    def make(name="state", parties=federation, **settings):
        standing = Standing.start(tmp_path / name, parties, **{"protect": "plain", **settings})
        opened.append(standing)
        return standing

    yield make
    for standing in opened:
        standing.close()


def known(standing):
    """All that the coordinator's book holds, for before and after a refusal."""
    base = standing.folder.book
    return base.contributions(), base.fact("total"), len(base.opened())


class TestRows:
    def test_parts_add_up(self, start, federation):
        whole, parts = start("whole"), start("parts")
        whole.add(["client-1", "client-2"])
        assert [receipt.id for receipt in parts.add(["client-1"], rows=(0, 5))] == ["client-1:0-5"]
        parts.add(["client-2"])
        parts.add(["client-1"], rows=(5, federation.holdings.rows(0).rows))
        assert np.allclose(parts.weights().weights, whole.weights().weights, atol=1e-10)
        parts.withdraw(["client-1"])  # both of its contributions
        assert parts.status()["contributions"] == 1

    def test_a_repeat_is_acknowledged_and_not_added(self, start):
        standing = start()
        standing.add(["client-1"])
        before = known(standing)
        assert [receipt.new for receipt in standing.add(["client-1", "client-1"])] == [False]
        assert known(standing) == before

    @pytest.mark.parametrize(
        ("rows", "error", "text"),
        [
            ((3, 8), ReplayError, "overlap with its contribution 'client-1:0-5'"),
            ((5, 500), DataError, "has no rows 5:500"),
            ((7, 7), DataError, "has no rows 7:7"),
        ],
    )
    def test_rows_that_cannot_be_meant(self, start, rows, error, text):
        standing = start()
        standing.add(["client-1"], rows=(0, 5))
        before = known(standing)
        with pytest.raises(error, match=text):
            standing.add(["client-1"], rows=rows)
        assert known(standing) == before
        assert standing.add(["client-1"], rows=(5, 8))[0].new  # the client is none the worse

    def test_a_name_stands_for_one_contribution(self, start):
        standing = start()
        standing.add(["client-1"], name="spring")
        with pytest.raises(ReplayError, match="'spring' is another contribution, of client-1"):
            standing.add(["client-2"], name="spring")

    def test_rows_that_have_changed(self, federation, tmp_path):
        with Standing.start(tmp_path, federation, protect="plain") as standing:
            standing.add(["client-1", "client-2"])
        other = Federation.embedded("wine", clients=8, seed=2, classes=CLASSES)
        other.holdings.table.values.setflags(write=True)
        other.holdings.table.values[0, 0] += 1.0
        with Standing.open(tmp_path, other) as standing:
            before = known(standing)
            with pytest.raises(ReplayError, match="its rows have changed since"):
                standing.withdraw(["client-1"])
            assert known(standing) == before
            standing.withdraw(["client-2"])


def _impatient(path, federation):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(book, "PATIENCE", 0.05)
        Standing.open(path, federation)


@pytest.mark.parametrize("least", [1, 2])
def test_cells_are_counted_where_a_least_count_was_agreed(start, monkeypatch, least):
    counted, count = [], Preparation.count_cells
    monkeypatch.setattr(Preparation, "count_cells", lambda *a, **k: counted.append(1) or count(*a, **k))
    start(min_count=least, protect="masked")
    assert len(counted) == least - 1


class TestWithdrawing:
    def test_twice(self, start):
        standing = start()
        standing.add(["client-1", "client-2"])
        standing.withdraw(["client-1:all"])
        before = known(standing)
        for word in ("client-1", "client-1:all"):
            with pytest.raises(ReplayError, match="withdrawn already"):
                standing.withdraw([word])
        with pytest.raises(ReplayError, match="was withdrawn: a repeat does not bring it back"):
            standing.add(["client-1"])
        assert known(standing) == before
        assert standing.add(["client-1"], name="back")[0].new

    def test_what_was_never_contributed(self, start):
        standing = start()
        standing.add(["client-1"])
        with pytest.raises(ConfigError, match=r"'client-2' never contributed.*did you mean 'client-1:all'"):
            standing.withdraw(["client-2"])
        with pytest.raises(ConfigError, match="there is no client 'client-99'"):
            standing.add(["client-99"])

    def test_a_client_that_lost_its_ledger_refuses(self, start):
        standing = start()
        standing.add(["client-1", "client-2"])
        run = standing.folder.run(standing.manifest)
        with standing.folder.store.step(run, party_without_rows("client-1")) as party:
            del party.state[LEDGER]
        before = known(standing)
        with pytest.raises(StepError, match="never contributed 'client-1:all'"):
            standing.withdraw(["client-1"])
        assert known(standing) == before

    def test_all_of_them(self, start):
        standing = start()
        standing.add(["client-1", "client-2"])
        standing.weights()
        standing.withdraw(["client-1", "client-2"])
        with pytest.raises(OpeningError, match="0 clients contribute"):
            standing.weights()


class TestOpenings:
    """Whoever sees two totals sees their difference; so no two that open may differ by a few clients."""

    @pytest.fixture
    def standing(self, start):
        return start(min_clients=3, founders=4)

    def test_what_came_and_went_counts_for_nothing(self, standing):
        standing.add([f"client-{i}" for i in range(1, 5)])
        standing.weights()
        standing.add(["client-5", "client-6"])
        standing.withdraw(["client-6"])
        with pytest.raises(OpeningError, match="differ by 1 client "):
            standing.weights()

    def test_batches_of_one_client_are_one_client(self, standing):
        standing.add([f"client-{i}" for i in range(1, 5)])
        standing.weights()
        for rows in ((0, 3), (3, 6), (6, 9)):
            standing.add(["client-5"], rows=rows)
        with pytest.raises(OpeningError, match="differ by 1 client "):
            standing.weights()

    def test_an_opening_before_the_last_counts_too(self, standing):
        standing.add([f"client-{i}" for i in range(1, 5)])
        standing.weights()
        standing.add([f"client-{i}" for i in range(5, 8)])
        standing.weights()
        standing.withdraw([f"client-{i}" for i in range(4, 8)])  # four gone, but one since the first opening
        with pytest.raises(OpeningError, match="differ by 1 client "):
            standing.weights()
        assert not standing.status()["can_open"]

    def test_openings_of_a_merged_group_count(self, start, federation, tmp_path):
        standing = start(min_clients=3, founders=3)
        standing.branch(tmp_path / "group")
        standing.add([f"client-{i}" for i in range(1, 4)])
        standing.weights()
        with Standing.open(tmp_path / "group", federation) as group:
            group.add([f"client-{i}" for i in range(4, 7)])
            group.weights()
            group.add(["client-7"])
        standing.merge(tmp_path / "group")
        with pytest.raises(OpeningError, match="would show client-7"):
            standing.weights()  # less what both have opened

    def test_a_client_checks_for_itself(self, start):
        standing = start(protect="ckks")
        standing.add([f"client-{i}" for i in range(1, 5)])
        entry = {"clients": 4, "changed": 1, "component": "method", "contribution": "terms", "apply": "solve"}
        coordinator, failures = standing.coordinator(), {}
        assert not list(
            coordinator.link.wave("client.open_standing_total", ("client-1",), entry, {}, failures=failures)
        )
        assert "OpeningError: total over 4 clients of which 1 changed" in failures["client-1"]

    @pytest.mark.parametrize("protect", ["plain", "ckks"])
    def test_a_system_that_cannot_be_solved_is_said_to_be_so(self, start, federation, protect):
        """With no penalty and a repeated column there is no solution: that is no failure of a client."""
        tables = {}
        for index, name in enumerate(federation.holdings.names):
            table = federation.holdings.rows(index).take(slice(0, 2))
            values = np.array(table.values)
            values[:, 1] = values[:, 0]
            kept = (table.target, table.task, table.classes, table.target_names)
            tables[name] = Table("twice", table.columns, values, *kept)
        parties = Federation.of(tables, declared={"classes": CLASSES})
        standing = start(protect, parties, protect=protect, method=FedHEONN(lam=0.0))
        standing.add(list(tables))
        with pytest.raises(DataError, match="least eigenvalue"):
            standing.weights()

    def test_an_interrupted_batch_counts_as_opened(self, start, monkeypatch):
        standing = start(protect="masked", founders=3)
        names = [f"client-{i}" for i in range(1, 8)]
        standing.add(names[:3])
        with monkeypatch.context() as patch:
            patch.setattr(changes, "open_entry", _power_cut)  # the total is there; nobody wrote it down
            with pytest.raises(KeyboardInterrupt):
                standing.add(names[3:6])
        assert standing.status()["contributions"] == 3
        assert standing.status()["interrupted_batch"]
        with pytest.raises(OpeningError, match=r"differ by 1 client .* A batch that was interrupted counts"):
            standing.add(names[3:7])
        assert len(standing.add(names[3:6])) == 3
        assert not standing.status()["interrupted_batch"]


def _power_cut(*_):
    raise KeyboardInterrupt


class TestLateJoiners:
    def test_one_gets_the_key_from_another_client(self, start, federation):
        standing = start(protect="ckks", founders=4)
        standing.add([f"client-{i}" for i in range(1, 7)])
        assert standing.add(["client-7"])[0].new
        with standing.folder.store.step(standing.manifest.run, party_without_rows("client-7")) as party:
            late = party.vault["content"].reveal()
        with standing.folder.store.step(standing.manifest.run, party_without_rows("client-2")) as party:
            assert party.vault["content"].reveal() == late
        assert standing.weights().score(federation.test.values, _truth(federation)) > 0.8

    def test_one_with_other_columns_is_refused(self, start, federation):
        table = federation.holdings.rows(0)
        renamed = (Column("age", "number"), *table.columns[1:])
        odd = Table("odd", renamed, table.values, table.target, table.task, table.classes, table.target_names)
        tables = {f"client-{i}": federation.holdings.rows(i) for i in range(4)} | {"odd": odd}
        standing = start(parties=Federation.of(tables, declared={"classes": CLASSES}), founders=4)
        standing.add(["client-0"])
        before = known(standing)
        with pytest.raises(SchemaError, match="odd: there is no column 'alcohol', which the others have"):
            standing.add(["odd"])
        assert known(standing) == before
        standing.add(["client-1"])

    def test_one_with_far_too_many_rows_is_refused(self, start, federation):
        """The total is sized at the start, with room for sixteen times the founders' rows."""
        table = federation.holdings.rows(0)
        many = table.take(np.tile(np.arange(table.rows), 60))
        tables = {f"client-{i}": federation.holdings.rows(i) for i in range(3)} | {"many": many}
        standing = start(parties=Federation.of(tables, declared={"classes": CLASSES}), founders=3)
        standing.add(["client-0"])
        with pytest.raises(DataError, match="exceeds its bound of 1"):
            standing.add(["many"])


def _truth(federation):
    return np.array(federation.test.classes)[federation.test.target]


class TestRefusals:
    def test_a_ciphertext_under_another_key(self, start, monkeypatch):
        standing = start(protect="ckks")
        standing.add(["client-1"])
        before, protect = known(standing), EncryptedClient.protect

        def foreign(self, ticket, vector, layout):
            other = standing.components.protection.generate()[0]
            tagged = TagKey(self.key.newest())
            monkeypatch.setattr(
                SharedKey, "cached", lambda _, what, make: tagged if make is TagKey else make(other)
            )
            return protect(self, ticket, vector, layout)

        with monkeypatch.context() as patch:
            patch.setattr(EncryptedClient, "protect", foreign)
            with pytest.raises(ProtectionError, match=r"client-2: .*under key .*, in use is"):
                standing.add(["client-2"])
        monkeypatch.undo()
        assert known(standing) == before
        # Under the same name a client sends what it sent, whatever became of it.
        assert standing.add(["client-2"], name="again")[0].new

    def test_a_closed_federation(self, start):
        standing = start()
        standing.add(["client-1"])
        standing.end()
        before = known(standing)
        for change in (lambda: standing.add(["client-2"]), lambda: standing.withdraw(["client-1"])):
            with pytest.raises(FederationError, match="accepts no more changes: ended"):
                change()
        assert known(standing) == before
        standing.weights()

    def test_another_federations_state(self, start, federation, tmp_path):
        start("one").close()
        start("two").close()
        other = Federation.embedded("wine", clients=8, seed=3, classes=CLASSES)
        with pytest.raises(ConfigError, match="state of another federation: its seed is 2"):
            Standing.open(tmp_path / "one", other)
        with Standing.open(tmp_path / "one", federation) as standing:
            with pytest.raises(ConfigError, match=r"two belongs to another federation|two is the state"):
                standing.merge(tmp_path / "two")
            with pytest.raises(ReplayError, match="is in both"):
                standing.add(["client-1"])
                standing.branch(tmp_path / "group")
                with Standing.open(tmp_path / "group", federation) as group:
                    group.add(["client-1"])
                standing.merge(tmp_path / "group")
        assert read(tmp_path / "group")[0]["closed"] is None  # a merge that is refused ends nothing
        shutil.copy(tmp_path / "two" / "parties.db", tmp_path / "one" / "parties.db")
        with pytest.raises(ConfigError, match=r"parties.db belongs to another federation"):
            Standing.open(tmp_path / "one", federation)

    def test_another_version_or_no_state_at_all(self, start, federation, tmp_path):
        start("state").close()
        base = sqlite3.connect(tmp_path / "state" / "coordinator.db")
        base.execute("PRAGMA user_version = 9")
        base.close()
        with pytest.raises(ConfigError, match="is of format 9, this release reads 5"):
            Standing.open(tmp_path / "state", federation)
        with pytest.raises(ConfigError, match="there is no standing federation"):
            Standing.open(tmp_path / "nothing", federation)
        (tmp_path / "odd").mkdir()
        (tmp_path / "odd" / "coordinator.db").write_bytes(b"something else altogether" * 100)
        with pytest.raises(ConfigError, match="is not the state of a standing federation"):
            Standing.open(tmp_path / "odd", federation)
        sqlite3.connect(tmp_path / "odd" / "other.db").execute("CREATE TABLE t (x)").connection.close()
        (tmp_path / "odd" / "other.db").replace(tmp_path / "odd" / "coordinator.db")
        with pytest.raises(ConfigError, match="is not the state of a standing federation"):
            read(tmp_path / "odd")

    def test_a_start_that_was_interrupted_can_be_repeated(self, federation, tmp_path, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr("tacit.standing.folder.Folder.save", _power_cut)
            with pytest.raises(KeyboardInterrupt):
                Standing.start(tmp_path, federation, protect="plain")
        with pytest.raises(ConfigError, match="was interrupted: start it again"):
            Standing.open(tmp_path, federation)
        Standing.start(tmp_path, federation, protect="plain").close()
        with pytest.raises(ConfigError, match="holds a standing federation already"):
            Standing.start(tmp_path, federation, protect="plain")

    def test_a_full_total(self, start):
        standing = start(protect="ckks", capacity=4)
        standing.add(["client-1", "client-2", "client-3"])
        with pytest.raises(ConfigError, match="5 changes, but the total was made for 4"):
            standing.add(["client-4", "client-5"])

    @pytest.mark.parametrize(
        ("settings", "text"),
        [
            ({"method": FedHEONN(mode="paper")}, "does not learn from one sum"),
            ({"method": FedHEONN(folds=3, finalists=2)}, "does not learn from one sum"),
            ({"protect": "noised"}, "spends its budget"),
            ({"protect": "shares"}, "open them at the coordinator"),
            ({"protect": "ckks", "founders": 2}, "with 2 founders"),
            ({"protect": "ckks", "min_clients": 1}, "min_clients of 2 or more"),
            ({"founders": 0}, "founders is 0: give 1 to 8"),
            ({"founders": 9}, "founders is 9: give 1 to 8"),
            ({"capacity": 0}, "capacity is 0: give 1 to 1,048,576"),
            ({"capacity": 1 << 25}, "give 1 to 1,048,576"),
        ],
    )
    def test_what_cannot_stand(self, federation, tmp_path, settings, text):
        with pytest.raises(ConfigError, match=text):
            Standing.start(tmp_path / "new", federation, **{"protect": "plain", **settings})
        assert not (tmp_path / "new").exists()

    def test_two_processes_at_once(self, start, federation, tmp_path):
        start()
        with pytest.raises(UnavailableError, match="another process works on"):
            _impatient(tmp_path / "state", federation)


class TestWhatTheCoordinatorKeeps:
    def test_the_attack_works_on_plain_and_fails_on_ckks(self, start, federation, tmp_path):
        """Read the book after one contribution: under plain it is the client's vector."""
        vectors = {}

        def spied(name, protect):
            def spy(self, ticket, vector, layout):
                vectors.setdefault(name, vector)
                return protect(self, ticket, vector, layout)

            return spy

        for name, kind in (("plain", PlainClient), ("ckks", EncryptedClient)):
            standing = start(name, protect=name)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(kind, "protect", spied(name, kind.protect))
                standing.add(["client-1"])
            raw = written(standing, tmp_path / name)
            found = vectors[name][:40].tobytes() in raw
            assert found == (name == "plain")

    def test_no_secret_is_in_its_book(self, start, tmp_path):
        standing = start(protect="ckks", founders=5)
        standing.add([f"client-{i}" for i in range(1, 8)])
        standing.withdraw(["client-3"])
        raw, run, secrets = written(standing, tmp_path / "state"), standing.manifest.run, []
        for name in ("coordinator", *(f"client-{i}" for i in range(1, 8))):
            with standing.folder.store.step(run, party_without_rows(name)) as party:
                secrets += [secret.reveal() for secret in party.vault.values()]
                if name == "client-1":
                    secrets.append(standing.components.protection.at_client(party).key.newest().reveal())
                    assert party.state["bundle"].data in raw  # sealed, it is there: the search works
        keys = [secret for secret in secrets if len(secret) >= 16]
        assert len(keys) > 12
        assert not [key for key in keys if key in raw]
        stored = (tmp_path / "state" / "parties.db").read_bytes()
        assert not [key for key in keys if key in stored]  # encrypted at rest

    def test_only_the_owner_reads_the_files(self, start, tmp_path):
        start().add(["client-1"])
        modes = {path.name: path.stat().st_mode & 0o077 for path in (tmp_path / "state").iterdir()}
        assert {"coordinator.db", "parties.db", "unlock.key"} <= modes.keys()
        assert not any(modes.values())


def written(standing, path):
    """All that the book holds: its values, which SQLite cuts into pages, and the bytes of its files."""
    rows = [
        row for table in ("facts",) for row in standing.folder.book._base.execute(f"SELECT * FROM {table}")
    ]
    values = [value for row in rows for value in row if isinstance(value, bytes)]
    return b"|".join([*values, *(file.read_bytes() for file in path.glob("coordinator.db*"))])
