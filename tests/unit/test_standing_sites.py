"""Standing federations of sites that have rows, keys, a policy and a record of their own."""

from __future__ import annotations

import json
import re
import shutil
import zlib
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit import Federation, Preparation
from tacit.cli.app import app
from tacit.core import standing_client
from tacit.core.claims import MOST_LINES, Line, piece_of, read_lines, read_standing_claim, write_lines
from tacit.core.errors import (
    ConfigError,
    DataError,
    DifferencingError,
    MessageError,
    OpeningError,
    ProtectionError,
    QuorumError,
    ReplayError,
)
from tacit.core.exposure import COORDINATOR
from tacit.core.manifest import Components, Manifest
from tacit.core.message import Message
from tacit.core.standing_client import LEDGER
from tacit.data.files import load
from tacit.data.schema import vocabulary
from tacit.deploy.answer import answer
from tacit.deploy.launch import DeployedFederation
from tacit.deploy.site import learnt
from tacit.deploy.standing import STANDING, may_enrol
from tacit.engines.policy import Policy
from tacit.engines.sitefolder import SiteFolder
from tacit.engines.store import KEPT_RUNS
from tacit.methods import METHODS
from tacit.protections import PROTECTIONS
from tacit.runs.settings import OWN_ROWS, Settings, merged
from tacit.standing import Standing, opening
from tacit.standing.changes import begin_change
from tacit.standing.differencing import Contribution
from tests.helpers.deployed import OWN, SiteEngine, make_folder, make_sites

NAMES = ("north", "south", "west", "east", "far")
ROWS = 15
LEAST = 2
SETTINGS = Settings.from_tables({"data": {"name": OWN_ROWS}, "run": {"min_clients": LEAST}})
ACCEPT = Policy(standing=True, min_clients=LEAST)
TERMS = {"protect": "bfv", "min_clients": LEAST, "preparation": Preparation()}


class Sites(DeployedFederation):
    """Sites whose folders are here, asked without Flower."""

    def __init__(self, folders):
        super().__init__(SETTINGS, folders[COORDINATOR])
        self.paths = {name: folder.path for name, folder in folders.items() if name != COORDINATOR}
        self.asked = []

    def lasting_engine(self, names=()):
        return SiteEngine({name: self.paths[name] for name in names or self.paths}, asked=self.asked)


def rows_of(place, count=ROWS, start=0):
    """Rows of iris that only this site has, and their labels."""
    table = load("iris")
    part = table.take(np.random.default_rng(7).permutation(table.rows)[place :: len(NAMES)])
    chosen = slice(start, start + count)
    return part.values[chosen], [table.classes[code] for code in part.target[chosen]]


@pytest.fixture(scope="module")
def founded(tmp_path_factory):
    """Sites and a state that was just started, and copies of both."""
    home = tmp_path_factory.mktemp("sites")
    (home / "now").mkdir()
    rows = {name: rows_of(place) for place, name in enumerate(NAMES)}
    folders = make_sites(home / "now", rows, policy=ACCEPT)
    shutil.copytree(home / "now", home / "before")
    flower = {"run": {"engine": "flower"}, "flower": {"coordinator": str(home / "now" / COORDINATOR)}}
    kept = merged(SETTINGS.as_tables(), flower)
    with Standing.start(
        home / "now" / "state", Sites(folders), founders=4, settings=kept, **TERMS
    ) as standing:
        standing.close()
        shutil.copytree(home / "now", home / "after")
    with Standing.open(home / "now" / "state", Sites(folders)) as standing:
        standing.add(NAMES[:4])
        standing.open_at_sites()
    shutil.copytree(home / "now", home / "opened")
    return home


def put_back(home, which):
    shutil.rmtree(home / "now")
    shutil.copytree(home / which, home / "now")
    return {name: SiteFolder(home / "now" / name) for name in (COORDINATOR, *NAMES)}


@pytest.fixture
def new(founded):
    """Sites that are part of nothing yet."""
    return put_back(founded, "before")


@pytest.fixture
def folders(founded):
    """Sites that have founded a federation, four of them."""
    return put_back(founded, "after")


@pytest.fixture
def where(founded):
    return founded / "now" / "state"


@pytest.fixture
def started(folders, where):
    with Standing.open(where, Sites(folders)) as standing:
        yield standing


@pytest.fixture
def lasting(founded):
    """Sites whose four have contributed and opened the total once, and the federation."""
    folders = put_back(founded, "opened")
    with Standing.open(founded / "now" / "state", Sites(folders)) as standing:
        yield folders, standing


def append(folders, name, count=ROWS, start=ROWS):
    """Let a site have more rows, behind those that it had."""
    values, labels = rows_of(NAMES.index(name), count, start)
    path = folders[name].path.parent / f"{name}.csv"
    lines = [",".join(map(str, [*row, label])) for row, label in zip(values, labels, strict=True)]
    path.write_text(path.read_text() + "".join(f"{line}\n" for line in lines))
    return lines


def party(folders, name, standing):
    """What a site remembers of the federation."""
    folder = SiteFolder(folders[name].path)
    with folder.store.step(standing.manifest.digest, mock.MagicMock(id=name)) as found:
        return found


def state_of(folders, name, standing):
    return party(folders, name, standing).state


def events_of(folders, name):
    return [record["standing"] for record in folders[name].audit_log.records() if record.get("standing")]


def embedded(tmp_path, pieces):
    """The model of the same rows in an embedded standing federation; ``pieces`` are rows by client."""
    files = {}
    for place, name in enumerate(NAMES):
        values, labels = rows_of(place, 2 * ROWS)
        files[name] = tmp_path / f"{name}-all.csv"
        header = ",".join([*(f"x{i}" for i in range(values.shape[1])), "target"])
        lines = [",".join(map(str, [*row, label])) for row, label in zip(values, labels, strict=True)]
        files[name].write_text("\n".join([header, *lines]) + "\n")
    founding = Federation.of({name: load(path, target="target") for name, path in files.items()})
    whole = founding.holdings.rows
    # Founders settle the scale with the rows that they have then.
    with mock.patch.object(founding.holdings, "rows", lambda place: whole(place).take(slice(0, ROWS))):
        standing = Standing.start(tmp_path / "here", founding, founders=4, min_count=5, **TERMS)
    with standing, mock.patch("tacit.standing.standing.check_opening", lambda *_: LEAST):
        for name, rows in pieces:
            standing.add([name], rows=rows)
        return standing.weights().weights


def _admit(coordinator, name):
    agreed = vocabulary(coordinator.schema), coordinator.manifest.min_count
    assert coordinator.admit([name], coordinator.components.preparation.agreement(*agreed)) == (name,)


class TestLife:
    def test_its_model_is_that_of_the_embedded_one(self, folders, where, tmp_path):
        federation = Sites(folders)
        with Standing.open(where, federation) as standing:
            standing.add(NAMES[:4])
            first = standing.open_at_sites()
        assert first.holders == NAMES[:4] and not first.failures
        with Standing.open(where, federation) as standing:  # another process
            again = standing.add(["north"])
            assert [receipt.new for receipt in again] == [False]
            standing.withdraw(["north"])
            with pytest.raises(OpeningError, match="would differ by 1 client"):
                standing.open_at_sites()
            standing.add(["far"])  # comes late, and gets the key from another site
            append(folders, "west")
            assert standing.add(["west"], more=True)[0].id == "west:2"
            second = standing.open_at_sites()
            assert second.holders == ("south", "west", "east", "far")
            assert standing.status()["openings"] == 2
        part, twice = (0, ROWS), (ROWS, 2 * ROWS)
        pieces = [("south", part), ("west", part), ("east", part), ("far", part), ("west", twice)]
        models = [learnt(folders[name])[1].weights for name in second.holders]
        np.testing.assert_allclose(models[0], embedded(tmp_path, pieces), atol=1e-9)
        for model in models[1:]:
            np.testing.assert_array_equal(model, models[0])
        with (
            pytest.raises(ConfigError, match="the model is at the sites"),
            Standing.open(where, federation) as s,
        ):
            s.weights()

    def test_each_site_records_what_it_did(self, lasting):
        folders, standing = lasting
        standing.withdraw(["north"])
        brought = {"did": "contributed", "id": "north:1", "rows": ROWS}
        inside = sorted(f"{name}:1" for name in NAMES[:4])
        assert events_of(folders, "north") == [
            brought,
            {"did": "opened", "total": inside, "clients": 4},
            {**brought, "did": "withdrew"},
        ]
        told = [record["event"] for record in folders[COORDINATOR].audit_log.records()]
        assert told.count("total opened") >= 3 and "run started" in told

    def test_a_model_is_there_once_a_total_was_opened(self, folders, started, founded):
        started.add(["north"])
        with pytest.raises(DataError, match="has adopted no model yet"):
            learnt(folders["north"])
        folders = put_back(founded, "opened")
        assert learnt(folders["north"])[0] == started.manifest.run
        with pytest.raises(DataError, match="has adopted no model yet"):
            learnt(folders["far"])

    def test_what_was_withdrawn_comes_back_under_a_new_name(self, lasting):
        _, started = lasting
        started.withdraw(["north"])
        with pytest.raises(ReplayError, match="'north:1' was withdrawn"):
            started.add(["north"])
        assert started.add(["north"], name="north:1.2")[0].new
        with pytest.raises(OpeningError, match="differ by 0 clients"):  # as everywhere: names are no change
            started.open_at_sites()
        with pytest.raises(ReplayError, match=r"overlap with its contribution 'north:1.2': bring") as refused:
            started.add(["north"], name="north:1.3")
        assert str(ROWS) not in str(refused.value)

    def test_groups_are_for_one_machine(self, started, tmp_path):
        for change in (started.branch, started.merge):
            with pytest.raises(ConfigError, match="one record for one coordinator"):
                change(tmp_path / "other")


class TestCommands:
    """The commands, at sites that are reached without Flower."""

    @pytest.fixture
    def fedheonn(self, founded, where, monkeypatch):
        folders = put_back(founded, "opened")

        @contextmanager
        def leading(settings):
            assert settings.flower.coordinator == str(folders[COORDINATOR].path)
            yield Sites(folders)

        monkeypatch.setattr("tacit.deploy.launch.leading", leading)

        def call(word, *words, code=0):
            given = ["fedheonn", word, str(where), *words, "--json"]
            said = CliRunner().invoke(app, given)
            assert said.exit_code == code, said.output
            return json.loads(said.stdout)

        return call

    def test_a_life(self, fedheonn):
        assert fedheonn("status")["clients"] == 4
        fedheonn("withdraw", "north")
        assert "differ by 1 client" in fedheonn("weights", code=5)["error"]["text"]
        assert fedheonn("add", "far")["receipts"][0]["new"]
        found = fedheonn("weights")
        assert found["holders"] == ["south", "west", "east", "far"] and found["failures"] == {}
        assert "weights" not in found and len(found["model"]) == 64
        assert fedheonn("end")["closed"] == "ended"
        assert "accepts no more changes" in fedheonn("add", "north", code=4)["error"]["text"]

    @pytest.mark.parametrize(
        ("words", "code", "text"),
        [
            (("add", "north", "--rows", "0:1"), 2, "says by itself which rows it brings"),
            (("add", "north", "--name", "mine"), 2, "names no piece of north's rows"),
            (("add", "nort"), 2, "did you mean 'north'"),
            (("add", "north", "--more"), 3, "fewer than 10 rows that it did not have before"),
            (("weights", "--to", "model.onnx"), 2, "the model is at the sites: leave --to out"),
            (("branch", "other"), 2, "one record for one coordinator"),
        ],
    )
    def test_mistakes(self, fedheonn, words, code, text):
        assert text in fedheonn(*words, code=code)["error"]["text"]

    @pytest.mark.parametrize(
        ("words", "text"),
        [
            (("--data", "iris"), r"flags of \[data\] say which rows are divided here"),
            (("--clients", "5"), r"flags of \[partition\] say"),
            ((), "is no federation's folder"),
        ],
    )
    def test_starts_that_cannot_be_meant(self, tmp_path, words, text):
        given = [
            "fedheonn",
            "start",
            str(tmp_path / "state"),
            "--federation",
            str(tmp_path),
            *words,
            "--json",
        ]
        said = CliRunner().invoke(app, given)
        assert said.exit_code == 2 and re.search(text, json.loads(said.stdout)["error"]["text"])


class TestInterrupted:
    """The coordinator's process ends between what a site did and what the book has of it."""

    def test_a_contribution_that_the_book_does_not_have_is_sent_again(self, folders, started, where):
        book = started.folder.book
        with (
            mock.patch.object(type(book), "enter", side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            started.add(["north"])
        assert "north:1" in state_of(folders, "north", started)[LEDGER]
        assert started.status()["contributions"] == 0
        started.close()
        with Standing.open(where, Sites(folders)) as again:
            again.add(NAMES[:4])
            assert len(again.open_at_sites().holders) == 4
        calls = [job for name, _, job in again.folder.federation.asked if name == "north"]
        assert calls and [done["did"] for done in events_of(folders, "north")].count("contributed") == 2

    def test_a_site_whose_enrolment_was_lost_enrols_again(self, folders, started, where):
        with (
            mock.patch("tacit.standing.folder.Folder.save", side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            started.add(["far"])
        assert "manifest" in state_of(folders, "far", started)
        started.close()
        with Standing.open(where, Sites(folders)) as again:
            assert again.add(["far"])[0].new

    def test_who_took_part_does_not_enrol_again(self, folders, started):
        """Or it would forget what it has opened, and use the pads of its tags twice."""
        started.add(["north"])
        before = state_of(folders, "north", started)
        coordinator, failures = started.coordinator(), {}
        call = coordinator._enrolment._invitation()
        list(coordinator.link.transport.wave("client.enrol", ("north",), call, failures=failures))
        assert "ProtectionError" in failures["north"] or "enrolled already" in failures["north"]
        assert state_of(folders, "north", started).to_bytes() == before.to_bytes()

    def test_a_recorded_invitation_does_not_enrol_a_site_again(self, folders, started):
        """Whoever relays asks could else have a site forget its keys, for good."""
        coordinator, asked = started.coordinator(), started.folder.federation.asked
        _admit(coordinator, "far")
        _, call, job = next(ask for ask in asked if ask[0] == "far")
        signed = coordinator.protection.relay._addressed(["north"])
        transport = coordinator.link.transport
        keys = list(transport.wave("protection.make_keys", ("far",), signed, failures={}))
        before = state_of(folders, "far", started).to_bytes()
        answer(SiteFolder(folders["far"].path), OWN, call, job, None)
        assert keys and state_of(folders, "far", started).to_bytes() == before

    def test_who_opened_a_total_does_not_enrol_again(self, lasting):
        found = party(lasting[0], "north", lasting[1])
        for name in [
            name for name in found.state if not name.startswith(("standing/opened", "manifest", "$"))
        ]:
            del found.state[name]
        assert not may_enrol(found, Message({"$serial": found.state["$serial"] + 1}))
        del found.state["standing/opened"]
        assert may_enrol(found, Message({"$serial": found.state["$serial"] + 1}))

    def test_sites_keep_it_whatever_else_they_run(self, folders, started):
        store = SiteFolder(folders["north"].path).store
        for number in range(KEPT_RUNS + 4):
            with store.step(f"run-{number}", mock.MagicMock(id="north")) as found:
                found.state["seen"] = number
        assert started.manifest.digest in store.runs()
        assert len(store.runs()) == KEPT_RUNS + 1
        assert started.add(["north"])[0].new


class TestRows:
    def test_new_rows_have_to_be_enough(self, folders, started):
        started.add(["north"])
        with pytest.raises(DataError, match="north has fewer than 10 rows that it did not have before"):
            started.add(["north"], more=True)
        append(folders, "north", 9)
        with pytest.raises(DataError, match="fewer than 10 rows"):
            started.add(["north"], more=True)
        append(folders, "north", 1, start=ROWS + 9)
        assert started.add(["north"], more=True)[0].id == "north:2"

    def test_rows_that_came_since_it_enrolled_are_no_part_of_its_first_piece(self, folders, started):
        append(folders, "north")
        started.add(["north"])
        assert events_of(folders, "north")[0]["rows"] == ROWS

    def test_rows_that_changed_are_neither_brought_nor_added_to(self, folders, started):
        path = folders["north"].path.parent / "north.csv"
        before = path.read_text()
        head, first, *rest = before.splitlines()
        path.write_text("\n".join([head, ",".join(["9.9", *first.split(",")[1:]]), *rest]) + "\n")
        with pytest.raises(DataError, match="the rows of north changed"):
            started.add(["north"])
        path.write_text(before)
        started.add(["north"])
        append(folders, "north")
        started.add(["north"], more=True)
        lines = path.read_text().splitlines()
        last = lines[-1].split(",")
        path.write_text("\n".join([*lines[:-1], ",".join(["9.9", *last[1:]]), *lines[1 : ROWS + 1]]) + "\n")
        with pytest.raises(ReplayError, match="rows that north brought as 'north:2' have changed since"):
            started.add(["north"], more=True)
        with pytest.raises(ReplayError, match="'north:2' is no longer what north contributed"):
            started.withdraw(["north:2"])
        path.write_text("\n".join(lines) + "\n")
        started.withdraw(["north:2"])
        path.write_text("\n".join([*lines[:-1], ",".join(["9.9", *last[1:]])]) + "\n")
        with pytest.raises(ReplayError, match="rows that north brought as 'north:2' have changed since"):
            started.add(["north"], name="north:2.2")

    def test_where_they_lie_is_not_told(self, folders, started):
        path = folders["north"].path.parent / "north.csv"
        path.unlink()
        with pytest.raises(ConfigError, match="north: ConfigError: no file its rows: give") as refused:
            started.add(["north"])
        assert str(path.parent) not in str(refused.value)

    def test_the_coordinator_does_not_choose_them(self, folders, started):
        with pytest.raises(ConfigError, match="north says by itself which rows it brings"):
            started.add(["north"], rows=(0, 1))
        coordinator, failures = started.coordinator(), {}
        method = coordinator.components.method
        for more, reason in (
            ({"rows": (0, 1)}, "north says by itself which rows it brings"),
            ({"id": "north:3"}, "next comes not 3"),
            ({"id": "one row"}, "names no piece of north's rows"),
            ({"id": "south:1"}, "names no piece of north's rows"),
        ):
            job = {"id": "north:1", "accepted": (), "sign": 1.0, **more}
            pending = coordinator.begin_sum(
                getattr(method, method.standing[0]), ("north",), step=STANDING[0], jobs={"north": job}
            )
            list(coordinator.protection.accepted(replace(pending, layout=pending.layout.growing()), 1024))
            assert reason in pending.failures["north"]
        assert not failures
        assert LEDGER not in state_of(folders, "north", started)


class TestOpenings:
    """A coordinator that does not keep the rule on totals."""

    def lying(self, standing):
        """Open whatever is in the book, without a look at what was opened before."""
        changed = mock.patch("tacit.standing.standing.check_opening", lambda *_: LEAST)
        with changed:
            return standing.open_at_sites()

    def test_control(self, lasting, monkeypatch):
        """Without the sites' own record, two totals that differ by one site show the mean of its rows."""
        folders, started = lasting
        opened, apply = [], standing_client.apply_standing_total

        def kept(*given):
            opened.append(apply(*given))
            return opened[-1]

        monkeypatch.setattr(standing_client, "apply_standing_total", kept)
        started.open_at_sites()  # the same once more
        started.withdraw(["north"])
        monkeypatch.setattr(standing_client, "check_pieces", lambda *_: None)
        assert self.lying(started).holders == ("south", "west", "east")
        before, after = opened[0], opened[-1]
        line = (before["gram"] - after["gram"])[0, :5] * before["norms"]
        found = line[1:] / line[0] * before["spread"] + before["centre"]
        np.testing.assert_allclose(found, rows_of(0)[0].mean(axis=0), atol=1e-3)
        assert not [name for name in state_of(folders, "south", started) if name.endswith("gram")]

    def test_a_total_that_differs_by_one_site_is_refused_by_all(self, lasting):
        folders, started = lasting
        before = learnt(folders["south"])[1].weights
        started.withdraw(["north"])
        with pytest.raises(DifferencingError, match="differ by 1 client from one that south opened before"):
            self.lying(started)
        np.testing.assert_array_equal(learnt(folders["south"])[1].weights, before)
        refused = [r for r in folders["south"].audit_log.records() if r["event"] == "refused"]
        assert "DifferencingError" in refused[-1]["reason"]

    def test_the_founders_scale_counts(self, started):
        """Moments over four are opened at the start: a total over three of them shows the fourth."""
        started.add(NAMES[:3])
        with pytest.raises(DifferencingError, match="differ by 1 client"):
            self.lying(started)

    def test_sums_and_differences_of_several(self, lasting):
        """{n, s, w, e} less {w, e, f} is n + s less f: with {n, s, f}, f is left."""
        _, standing = lasting
        standing.withdraw(["north", "south"])
        standing.add(["far"])
        standing.open_at_sites()
        standing.withdraw(["west", "east"])
        for name in ("north", "south"):
            standing.add([name], name=f"{name}:1.2")
        with pytest.raises(OpeningError, match="this total would show far"):
            standing.open_at_sites()
        found = self.lying(standing)  # north and south have opened one of the other two
        assert found.holders == ("north", "south")
        assert "those that far opened before, this total would show far" in found.failures["far"]

    def test_what_a_site_withdrew_is_opened_by_it_no_more(self, lasting):
        _, started = lasting
        book = started.folder.book
        kept, lines = book.fact("total"), book.claimed_lines()
        started.withdraw(["north"])
        with book.writing():
            book.note("total", kept)  # as it was before
        with (
            mock.patch.object(type(book), "claimed_lines", lambda _: lines),
            mock.patch.object(opening, "clients_in", lambda _: 4),
            mock.patch.object(opening, "_adopted", wraps=opening._adopted) as asked,
        ):
            inside = self.lying(started)
            assert "north" not in inside.holders
            coordinator, _, entry = asked.call_args.args
            with pytest.raises(OpeningError, match="north has withdrawn 'north:1'"):
                opening._adopted(coordinator, ["north"], entry)

    def test_rows_count_once_whatever_they_are_called(self, lasting):
        _, started = lasting
        book = started.folder.book
        with mock.patch.object(type(book), "present", lambda *_: {}):  # the site forgets what it brought
            started.add(["north"], name="north:1.2")
        with pytest.raises(OpeningError, match="rows of a client would count double"):
            self.lying(started)

    def test_what_was_settled_at_the_start_stays(self, lasting):
        """Moments of others, once a standing total was opened, would be compared with nothing."""
        _, started = lasting
        coordinator = started.coordinator()
        preparation = coordinator.components.preparation
        coordinator.round(preparation.moments, preparation.apply_moments, NAMES[:4])
        failures = {}
        entry = {"component": "preparation", "contribution": "moments", "sum": 99}
        list(coordinator.link.wave("client.contribute", ("north",), entry, failures=failures))
        assert "has opened a standing total, and opens no other any more" in failures["north"]

    def test_steps_of_other_runs_are_refused(self, started):
        coordinator, failures = started.coordinator(), {}
        call = {"component": "method", "contribution": "terms", "sum": 9}
        for step in ("contribute", "disclose_total", "adopt_model", "show_model", "restore"):
            list(coordinator.link.wave(f"client.{step}", ("north",), call, failures=failures))
            assert f"'client.{step}' belongs to other runs" in failures["north"]

    def test_another_contribution_or_apply_is_refused(self, started):
        coordinator = started.coordinator()
        entry = {"component": "method", "contribution": "raw_terms", "apply": "solve", "contributors": 4}
        for wrong in (entry, {**entry, "contribution": "terms", "apply": "choose"}):
            failures = {}
            list(coordinator.link.wave(STANDING[1], ("north",), wrong, failures=failures))
            assert "by which a standing federation learns" in failures["north"]


class TestOtherSites:
    """A site is revoked, and its name given to another one, or to itself with other rows."""

    def replaced(self, folders, standing, home):
        """Let another site be north, for all; the coordinator puts its rows in the place of the old one's."""
        other = make_sites(home, {"north": rows_of(0, ROWS, ROWS)}, policy=ACCEPT)["north"]
        for folder in folders.values():
            path = folder.path / "roster.toml"
            path.write_text(path.read_text().replace(folders["north"].identity, other.identity))
        (other.path / "roster.toml").write_text((folders["south"].path / "roster.toml").read_text())
        federation = Sites({**folders, COORDINATOR: SiteFolder(folders[COORDINATOR].path), "north": other})
        standing.close()
        again = Standing.open(standing.folder.path, federation)
        coordinator, total = again.coordinator(), None
        link, relay = coordinator.link, coordinator.protection.relay
        link.parties = tuple(name for name in link.parties if name != "north")
        for known in (link.transport.channels, link.briefing.known, link.briefing.roll.told):
            known.pop("north", None)
        relay.current_key.holders.discard("north")
        _admit(coordinator, "north")
        for name in NAMES[:4]:
            line = Contribution(f"{name}:1", name, 0, 1)
            pending = begin_change(coordinator, {name: line}, again.folder.book)
            [(_, part)] = coordinator.protection.accepted(pending, 1024)
            total = dict(coordinator.protection.add(total, part))
        with again.folder.book.writing():
            again.folder.book.note("total", {**total, "$count": 4})
        return again

    def test_control(self, lasting, tmp_path, monkeypatch):
        """By the names alone it is the total that was opened before, and differs from it by one site."""
        monkeypatch.setattr("tacit.core.own_record.know_sites", lambda *_: None)
        folders, standing = lasting
        before = learnt(folders["south"])[1].weights
        with self.replaced(folders, standing, tmp_path) as again:
            assert "south" in again.open_at_sites().holders
        assert np.abs(learnt(folders["south"])[1].weights - before).max() > 1e-3

    def test_it_is_not_taken_for_the_same(self, lasting, tmp_path):
        with self.replaced(*lasting, tmp_path) as again:
            found = again.open_at_sites()
        assert found.holders == ("north",)  # which is new, and has opened nothing but the scale
        assert "'north' was another site before" in found.failures["south"]

    def test_a_site_that_was_revoked_stays_in_totals(self, lasting):
        folders, standing = lasting
        for name in NAMES[1:4]:
            path = folders[name].path / "roster.toml"
            path.write_text(re.sub(r"north = .*\n", "", path.read_text().replace('"north"', "north")))
        assert {"south", "west", "east"} <= {*standing.open_at_sites().holders}


class TestAccepted:
    def start(self, new, tmp_path, **terms):
        return Standing.start(tmp_path / "state", Sites(new), **{**TERMS, **terms})

    def test_a_site_takes_part_only_if_its_owner_says_so(self, new, tmp_path):
        for folder in new.values():
            text = (folder.path / "site.toml").read_text()
            (folder.path / "site.toml").write_text(text.replace("standing = true", "standing = false"))
        with pytest.raises(QuorumError, match=r"takes part in no standing federation: .* standing = true"):
            self.start(new, tmp_path, min_count=5)
        assert Policy().standing is False

    def test_nor_any_longer_than_that(self, folders, started):
        path = folders["north"].path / "site.toml"
        path.write_text(path.read_text().replace("standing = true", "standing = false"))
        with pytest.raises(ConfigError, match="takes part in no standing federation"):
            started.add(["north"])

    @pytest.mark.parametrize(
        ("key", "less", "reason"),
        [
            (f"min_clients = {LEAST}", "min_clients = 3", "does not accept min_clients = 2, but at least 3"),
            ("#protections = []", 'protections = ["masked"]', "does not accept protections = bfv"),
            ("#epsilon = 1.0", "epsilon = 1.0", "limits epsilon"),
        ],
    )
    def test_nor_under_a_policy_that_accepts_less(self, lasting, key, less, reason):
        path = lasting[0]["north"].path / "site.toml"
        text = path.read_text()
        assert key in text
        path.write_text(text.replace(key, less))
        with pytest.raises(ConfigError, match=reason):
            lasting[1].withdraw(["north"])
        assert reason in lasting[1].open_at_sites().failures["north"]

    def test_nor_for_a_coordinator_that_may_ask_no_more(self, folders, started, tmp_path):
        path = folders["north"].path / "roster.toml"
        other = make_folder(tmp_path / "other").identity
        path.write_text(path.read_text().replace(folders[COORDINATOR].identity, other))
        with pytest.raises(ProtectionError, match="may ask north no more"):
            started.add(["north"])

    def test_a_total_that_does_not_prove_itself_is_not_opened(self, lasting, monkeypatch):
        monkeypatch.setattr("tacit.protections.encrypted.Encrypted.proves", lambda *_: False)
        with pytest.raises(OpeningError, match="no standing total that does not prove what it holds"):
            lasting[1].open_at_sites()

    @pytest.mark.parametrize("protect", ["masked", "plain", "paillier"])
    def test_only_where_sites_can_judge_totals(self, new, tmp_path, protect):
        with pytest.raises(
            ConfigError, match=f"under {protect} only the coordinator could. Protect with bfv"
        ):
            self.start(new, tmp_path, protect=protect)

    def test_and_they_say_so_themselves(self):
        for protect, more, reason in (
            ("masked", {}, "masked lets the coordinator open or choose them"),
            ("bfv", {"holdout": 0.2}, "brings all its rows to a standing federation"),
        ):
            parts = Components(METHODS.build("fedheonn"), PROTECTIONS.build(protect), Preparation())
            terms = {"min_clients": 3, "min_count": 5, "declared": {"standing": True, **more}}
            manifest = Manifest.of("run", parts, **terms)
            with pytest.raises(ConfigError, match=reason):
                Policy(standing=True).check("north", manifest, parts)

    def test_an_altered_manifest_is_refused(self, folders, started):
        coordinator, failures = started.coordinator(), {}
        weaker = replace(started.manifest, min_clients=1)
        call = {**coordinator._enrolment._invitation(), "manifest": weaker.to_message().encode()}
        transport = coordinator.link.transport
        list(transport.wave("client.enrol", ("far",), call, failures=failures))
        assert "under the digest of another manifest: it was changed" in failures["far"]
        transport.manifest = weaker  # its own digest, under the signature of the other
        list(transport.wave("client.enrol", ("far",), call, failures=failures))
        assert "is signed by nobody whom this site has pinned" in failures["far"]

    def test_a_stranger_s_standing_federation_is_refused(self, new, tmp_path):
        federation = Sites(new)
        federation.keys["secret"] = make_folder(tmp_path / "stranger").secret
        with pytest.raises(QuorumError, match="is signed by nobody whom this site has pinned"):
            Standing.start(tmp_path / "state", federation, **TERMS)

    def test_asks_without_the_key_agreed_on_are_refused(self, folders, started):
        coordinator, failures = started.coordinator(), {}
        coordinator.link.transport.channels.clear()
        list(coordinator.link.wave(STANDING[1], ("north",), {}, failures=failures))
        assert "ProtectionError" in failures["north"]

    def test_channel_keys_are_locked_under_the_coordinator_s_key(self, folders, where, tmp_path):
        other = Sites(folders)
        other.unlock = make_folder(tmp_path / "other").unlock
        with Standing.open(where, other) as standing, pytest.raises(ProtectionError, match="does not open"):
            standing.coordinator()
        assert not (where / "unlock.key").exists()

    def test_a_state_is_opened_as_what_it_is(self, folders, tmp_path):
        Standing.start(tmp_path / "here", Federation.embedded("iris", clients=3), protect="plain").close()
        with pytest.raises(ConfigError, match="of a federation of one machine: open it as such"):
            Standing.open(tmp_path / "here", Sites(folders))


class TestNames:
    @pytest.mark.parametrize(
        "name",
        [
            "north",
            "north:",
            "north:0",
            "north:01",
            "north:1.0",
            "north:1.2.3",
            "north:-1",
            "south:1",
            "north:²",
        ],
    )
    def test_names_that_are_none(self, name):
        with pytest.raises(ConfigError, match="names no piece of north's rows"):
            piece_of(name, "north")

    def test_a_list_without_end_is_refused_before_it_is_read(self):
        assert read_lines(write_lines([Line("a:1", "a", 1, 0)])) == [Line("a:1", "a", 1, 0)]
        endless = write_lines([Line("", "", 0, 0)] * (MOST_LINES + 1))
        with (
            mock.patch("tacit.core.claims.msgspec.json.decode", side_effect=AssertionError("it was read")),
            pytest.raises(MessageError, match="more than 1,048,576 contributions"),
        ):
            read_lines(endless)

    def test_counts_that_would_wrap_around_are_refused(self):
        """2⁶³ times in and out sums to nothing, and would pass for a total with room."""
        lines = [Line(f"{name}:1", name, 1, 0) for name in NAMES] + [Line("a:1", "a", 2**63, 2**63)]
        entry = {"component": "method", "contribution": "terms", "clients": 5, "lines": write_lines(lines)}
        with pytest.raises(OpeningError, match="would count double"):
            read_standing_claim(entry, 3)

    @pytest.mark.parametrize("raw", [b"[", b'[["a","b",1]]', b'[["\xff","b",1,0]]', b"{}"])
    def test_lines_that_are_none(self, raw):
        with pytest.raises(MessageError, match="list of contributions is damaged"):
            read_lines(zlib.compress(raw))
