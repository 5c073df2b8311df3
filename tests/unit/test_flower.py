"""The Flower engine without Flower's processes: a grid that hands messages to the sites' app directly.

Every message still goes through Flower's records and every step through the site's own files, as in a new
process. The real thing is in tests/contract/test_flower.py.
"""

import json
import os
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import tomllib
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")

from flwr.app import Error, RecordDict
from flwr.app import Message as FlowerMessage
from safetensors.numpy import load

import tacit
from tacit.core.errors import (
    ConfigError,
    DataError,
    FederationError,
    MessageError,
    ProtectionError,
    QuorumError,
    SchemaError,
    TacitError,
    UnavailableError,
)
from tacit.core.exposure import COORDINATOR
from tacit.core.message import Message
from tacit.core.secret import Secret
from tacit.core.shared import Shared
from tacit.deploy import launch as launching
from tacit.deploy.certificates import write_certificates
from tacit.deploy.connection import Access, Connection, probe
from tacit.deploy.launch import DeployedFederation
from tacit.deploy.node import Worker, respond
from tacit.deploy.site import learnt
from tacit.deploy.worker import perform
from tacit.engines.audit import AuditLog
from tacit.engines.flower import SMALL, FlowerEngine, pack, unpack
from tacit.engines.policy import Policy
from tacit.engines.sitefolder import Roster, SiteFolder, SiteSettings, new_unlock, write_private
from tacit.engines.store import PartyStore
from tacit.methods import METHODS
from tacit.protections import PROTECTIONS
from tacit.protections.keys.authenticated import FIELD_NAMES
from tacit.protections.noised.halves import NoisedCoordinator
from tacit.runs.checkpoint import read_checkpoint
from tacit.runs.job import execute
from tacit.runs.settings import OWN_ROWS, Settings
from tacit.runs.transcript import read_transcript
from tacit.runs.tune import tune
from tests.quick import representatives

CLIENTS = ("client-1", "client-2", "client-3")
SERVICES = ("key-server", "main-server")
WIDE = Policy(modes=("sealed", "paper"), protections=tuple(PROTECTIONS), min_clients=1, rows=1, min_count=1)


class Grid:
    """Hands messages to the sites, and keeps what passed."""

    def __init__(self, sites, config):
        self.sites = dict(sites)
        self.config = config
        self.passed = []
        self.rewrite = lambda name, message, reply: reply
        self._replies = {}

    def get_nodes(self):
        return [SimpleNamespace(name=name, node_id=number + 7) for number, name in enumerate(self.sites)]

    def push_messages(self, messages):
        numbers = []
        names = dict(zip((node.node_id for node in self.get_nodes()), self.sites, strict=True))
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
            name = names[message.metadata.dst_node_id]
            settings = str(self.config.get("settings", ""))
            answered = respond(message, settings, partial(perform, self.sites[name]))
            reply = self.rewrite(name, message, answered)
            self.passed += [message, reply]
            if reply is not None:
                self._replies[message.object_id] = reply
            numbers.append(message.object_id)
        return numbers

    def pull_messages(self, numbers):
        # The last comes first: order is the engine's affair.
        return [self._replies.pop(number) for number in reversed(list(numbers)) if number in self._replies]


@pytest.fixture(autouse=True)
def task(monkeypatch):
    """Flower's messages belong to a run, which its processes are told of when they start."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1, raising=False)


@pytest.fixture
def sites(tmp_path):
    """Folders of a coordinator, three clients, a key server and a main server that know each other."""
    folders = {}
    for name in (COORDINATOR, *CLIENTS, *SERVICES):
        key = new_unlock().encode()
        write_private(tmp_path / f"{name}.unlock", key)
        settings = SiteSettings(name, experiment=True, unlock=str(tmp_path / f"{name}.unlock"))
        folders[name] = SiteFolder.create(tmp_path / name, settings, Secret(key), WIDE)
    identity = {name: folder.identity for name, folder in folders.items()}
    roster = Roster(
        identity[COORDINATOR], {n: identity[n] for n in CLIENTS}, {n: identity[n] for n in SERVICES}
    )
    for folder in folders.values():
        (folder.path / "roster.toml").write_text(roster.to_toml())
    return {name: folder.path for name, folder in folders.items()}


@pytest.fixture
def rows(tmp_path, table_of):
    """A file of rows that everybody can read, as in an experiment."""

    def write(task="classification", name="rows.csv", **settings):
        table = table_of(task, **settings)
        header = [column.name for column in table.columns] + ["target"]
        target = [table.classes[c] for c in table.target] if table.classes else table.target[:, 0]
        lines = [",".join(header)]
        lines += [",".join(map(str, [*row, t])) for row, t in zip(table.values, target, strict=True)]
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


@pytest.fixture
def job(tmp_path, rows):
    """Settings of a run; tables override."""

    def settings(**tables):
        base = {
            "data": {"name": str(rows()), "target": "target"},
            "partition": {"name": "iid", "clients": 3},
            "run": {"out": str(tmp_path / "runs"), "baselines": False},
            "flower": {"coordinator": str(tmp_path / COORDINATOR), "wait": 0.0},
        }
        merged = {name: {**base.get(name, {}), **tables.get(name, {})} for name in {**base, **tables}}
        return Settings.from_tables(merged)

    return settings


def grid_of(sites, settings):
    config = {"settings": launching.encode_settings(settings)}
    return Grid({name: path for name, path in sites.items() if name != COORDINATOR}, config)


def on_grid(sites, settings, grid=None):
    grid = grid or grid_of(sites, settings)
    federation = DeployedFederation(settings, SiteFolder(sites[COORDINATOR]), grid)
    return execute(settings, federation=federation)


def method_for(protection):
    """A registered method that a protection serves, as settings."""
    for name in METHODS:
        method = METHODS.get(name).tiny()
        if hasattr(method, "weighting"):
            method = replace(
                method, weighting=replace(method.weighting, weighting="equal")
            )  # noise bears no other weights
        chosen = PROTECTIONS.build(protection)
        if not (chosen.incompatibility(method) or method.incompatibility(chosen)):
            return {"name": name, **method.config()}
    return pytest.skip(f"{protection} serves no method that is registered")


def same(ours, theirs, protection):
    """Compare the models of two runs: to the last bit where sums are exact, else as promised."""
    if PROTECTIONS.build(protection).promises.precision < 1e-12 or protection not in ("ckks", "noised"):
        assert ours.result["model"] == theirs.result["model"]
    elif protection == "ckks":
        own, found = (load(one.model.to_bytes("safetensors")) for one in (ours, theirs))
        assert own.keys() == found.keys()
        for name, value in found.items():
            assert np.allclose(own[name], value, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("protection", representatives(PROTECTIONS, "ckks", "masked"))
def test_every_protection_gives_what_the_embedded_engine_gives(protection, sites, job, keys_once):
    chosen = method_for(protection)
    more = {}
    if protection == "noised":  # after noise in scale or weights, training may run away, and is refused
        chosen, more = {**chosen, "rounds": 1, "rate": 1e-9}, {"prepare": {"scale": "none"}}
    chosen = job(method=chosen, protect={"name": protection}, **more)
    with keys_once():
        ours, theirs = on_grid(sites, chosen), execute(chosen)
    same(ours, theirs, protection)
    # Within one process plain sums go untagged; a site answers nobody without keys and tags.
    untagged = not PROTECTIONS.build(protection).authenticated
    for key in ("messages", "clients"):
        assert ours.result[key] == theirs.result[key]
    for key in ("bytes_up", "bytes_down"):
        more = ours.result[key] - theirs.result[key]
        if untagged:
            assert 0 < more < 100 * ours.result["messages"], key
        else:
            assert abs(more) < 0.01 * theirs.result[key], key  # seals vary by bytes
    assert [wave["step"] for wave in ours.result["ledger"]["waves"]] == [
        wave["step"] for wave in theirs.result["ledger"]["waves"]
    ]
    seen = [
        [
            {**row, "bytes": 0}
            for row in run.result["exposure"]
            if not (untagged and row["what"] == FIELD_NAMES["exchange"])
        ]
        for run in (ours, theirs)
    ]
    assert seen[0] == seen[1]
    engine = ours.result["engine"]
    assert engine["name"] == "flower"
    assert 0 < engine["overhead_bytes"] / engine["messages"] < 1000
    assert "Flower&#39;s own bytes" in (ours.folder.path / "report.html").read_text()
    assert "Flower&#39;s own bytes" not in (theirs.folder.path / "report.html").read_text()


@pytest.mark.parametrize("name", representatives(METHODS, "fedheonn", "fedavg"))
def test_every_method_gives_what_the_embedded_engine_gives(name, sites, job, rows):
    method = METHODS.get(name).tiny()
    data = {"name": str(rows(method.tasks[0])), "target": "target"}
    chosen = job(method={"name": name, **method.config()}, data=data)
    ours, theirs = on_grid(sites, chosen), execute(chosen)
    same(ours, theirs, chosen.protect["name"])
    assert ours.result["accuracy"] == pytest.approx(theirs.result["accuracy"])


def test_a_main_server_is_a_site_and_the_run_says_how_many_waves_it_takes(sites, job):
    settings = {"name": "splitfed", "rounds": 2, "batch": 0, "hidden": 6}
    chosen = job(method=settings, protect={"name": "plain"}, run={"min_count": 1})
    grid = grid_of(sites, chosen)
    ours, theirs = on_grid(sites, chosen, grid), execute(chosen)
    assert ours.result["model"] == theirs.result["model"]
    # A batch and its end, twice at the clients and twice at the main server; its key, and the sum.
    waves = [wave["step"] for wave in ours.result["ledger"]["waves"]].count("method.serve")
    assert waves == 4
    told = [note["text"] for note in ours.result["notes"] if "waves in all" in note["text"]]
    assert told == ["12 waves in all, each of which takes seconds between sites: raise batch"]
    assert not [note for note in theirs.result["notes"] if "waves in all" in note["text"]]


class TestSecrets:
    def test_none_is_in_messages_logs_or_run_folders(self, sites, job, keys_once, caplog, tmp_path):
        caplog.set_level(0)
        chosen = job(protect={"name": "ckks"}, run={"transcript": True})
        grid = grid_of(sites, chosen)
        finished = on_grid(sites, chosen, grid)
        secrets = []
        for path in sites.values():
            folder = SiteFolder(path)
            secrets += [folder.secret.reveal(), folder.unlock.reveal()]
            for run in folder.store.runs():
                with folder.store.step(run, _empty(folder.name)) as party:
                    secrets += [secret.reveal() for secret in party.vault.values()]
        assert len(secrets) > 12
        from flwr.common.serde import message_to_proto

        seen = b"".join(message_to_proto(message).SerializeToString() for message in grid.passed)
        seen += caplog.text.encode()
        for path in finished.folder.path.rglob("*"):
            seen += path.read_bytes() if path.is_file() else b""
        assert len(seen) > 100_000
        for secret in secrets:
            assert secret not in seen
            assert secret.hex().encode() not in seen
            # Nor in the clear in any site's files; unlock keys are files of their own.
            for path in sites.values():
                assert all(secret not in file.read_bytes() for file in path.iterdir())

    def test_what_clients_tell_each_other_is_sealed(self, sites, job):
        chosen = job(protect={"name": "masked"}, run={"transcript": True})
        finished = on_grid(sites, chosen)
        heard = list(read_transcript(finished.folder.path / "transcript" / f"{COORDINATOR}.bin"))
        dealt = [frame for frame in heard if frame.step == "protection.deal"]
        assert len(dealt) == 3
        relayed = [row for row in finished.result["exposure"] if row["class"] == "sealed"]
        assert relayed
        assert not any(row["openable"] for row in relayed if row["who"] == COORDINATOR)

    def test_a_swapped_identity_is_refused(self, sites, job):
        folder = SiteFolder(sites["client-2"])
        stranger = replace(folder.roster, coordinator="11" * 32)
        (folder.path / "roster.toml").write_text(stranger.to_toml())
        with pytest.raises(QuorumError, match="client-2: ProtectionError"):
            on_grid(sites, job(protect={"name": "masked"}))


class TestOperator:
    """Whoever runs the SuperLink reads all that passes it, and may change it."""

    @pytest.fixture(params=representatives(PROTECTIONS, "masked"))
    def chosen(self, request, job):
        method, more = method_for(request.param), {}
        if request.param == "noised":
            method, more = {**method, "rounds": 1, "rate": 1e-9}, {"prepare": {"scale": "none"}}
        run = {"quorum": 0.6, "min_clients": 2}
        return job(method=method, protect={"name": request.param}, run=run, **more)

    def test_no_secret_passes_it(self, chosen, sites, keys_once):
        from flwr.common.serde import message_to_proto

        grid = grid_of(sites, chosen)
        with keys_once():
            on_grid(sites, chosen, grid)
        seen = b"".join(message_to_proto(message).SerializeToString() for message in grid.passed)
        secrets = []
        for folder in map(SiteFolder, sites.values()):
            secrets += [folder.secret.reveal(), folder.unlock.reveal()]
            for run in folder.store.runs():
                with folder.store.step(run, _empty(folder.name)) as party:
                    secrets += [secret.reveal() for secret in party.vault.values()]
        assert len(secrets) > 12
        assert not any(secret in seen for secret in secrets)

    def test_what_it_changes_is_refused(self, chosen, sites, keys_once):
        changed = []

        def change(name, message, reply):
            call, _, _ = unpack(message.content)
            if name != "client-2" or Message.decode(call)["$step"] != "client.contribute":
                return reply
            raw, _, _ = unpack(reply.content)
            changed.append(raw)
            return FlowerMessage(pack(raw[:-1] + bytes([raw[-1] ^ 1])), reply_to=message)

        grid = grid_of(sites, chosen)
        grid.rewrite = change
        try:
            with keys_once():
                told = json.dumps(on_grid(sites, chosen, grid).result["failures"])
        except TacitError as stopped:  # where all of few clients are needed
            told = str(stopped)
        assert changed
        assert "client-2" in told
        # The last byte may be one that pads a field, which is looked at before the tag is.
        assert "a message is not authentic" in told or "padding between fields is missing or not zero" in told


def _empty(name):
    from tacit.core.party import Party

    return Party(name, dict, Secret(b"x"))


class TestWaves:
    """One-shot FedHEONN under CKKS: six waves to the weights, five with exchange keys in the roster."""

    def pinned(self, sites, names=CLIENTS):
        known = {name: SiteFolder(sites[name]).exchange for name in names}
        for path in sites.values():
            roster = replace(SiteFolder(path).roster, exchanges=known)
            (path / "roster.toml").write_text(roster.to_toml())

    def steps(self, finished):
        found = [wave["step"] for wave in finished.result["ledger"]["waves"]]
        return found[: found.index("client.adopt_model") + 1]

    def test_six_waves(self, sites, job):
        chosen = job(protect={"name": "ckks"})
        assert len(self.steps(on_grid(sites, chosen))) == 6

    def test_five_waves_where_the_roster_holds_exchange_keys(self, sites, job):
        self.pinned(sites)
        chosen = job(protect={"name": "ckks"})
        finished = on_grid(sites, chosen)
        assert self.steps(finished) == ["client.enrol", *["client.contribute"] * 3, "client.adopt_model"]
        same(finished, execute(chosen), "ckks")
        about_keys = [row for row in finished.result["exposure"] if row["about"] == "the keys"]
        assert {row["class"] for row in about_keys} == {"sealed"}
        assert not any(row["openable"] for row in about_keys if row["who"] == COORDINATOR)

    def test_with_some_of_them_it_is_six(self, sites, job):
        self.pinned(sites, CLIENTS[:2])
        assert len(self.steps(on_grid(sites, job(protect={"name": "ckks"})))) == 6

    def test_if_their_maker_fails_another_makes_the_keys(self, sites, job):
        self.pinned(sites)
        chosen = job(protect={"name": "ckks"}, run={"quorum": 0.6, "min_clients": 2})
        grid = grid_of(sites, chosen)
        del grid.sites["client-1"]
        finished = on_grid(sites, chosen, grid)
        assert "protection.make_keys" in self.steps(finished)

    def test_a_swapped_exchange_key_does_not_open(self, sites, job):
        self.pinned(sites)
        folder = SiteFolder(sites["client-3"])
        other = {**folder.roster.exchanges, "client-1": folder.roster.exchanges["client-2"]}
        (folder.path / "roster.toml").write_text(replace(folder.roster, exchanges=other).to_toml())
        with pytest.raises(QuorumError, match="client-3: ProtectionError: a sealed message does not open"):
            on_grid(sites, job(protect={"name": "ckks"}))


class TestRecords:
    @pytest.mark.parametrize("size", [0, 1, SMALL, SMALL + 1, 3 * SMALL])
    def test_bytes_of_any_size_come_back(self, size):
        raw = np.random.default_rng(size).bytes(size)
        assert unpack(pack(raw, raw[:10], 3.5)) == (raw, raw[:10], 3.5)
        assert unpack(pack(raw)) == (raw, b"", None)

    def test_another_version_is_refused(self, monkeypatch):
        records = pack(b"call")
        monkeypatch.setattr(tacit, "__version__", "99.0")
        with pytest.raises(ConfigError, match=r"99\.0 here.*install the same"):
            unpack(records)

    def test_foreign_records_are_refused(self):
        with pytest.raises(MessageError, match="not Tacit's"):
            unpack(RecordDict())

    def test_a_message_that_is_not_ours_is_refused_and_recorded(self, tmp_path):
        message = FlowerMessage(RecordDict(), dst_node_id=7, message_type="query.other")
        message.metadata.__dict__["_message_id"] = message.object_id
        reply = respond(message, "", lambda *_: pytest.fail("it was performed"), AuditLog(tmp_path))
        assert "not Tacit's" in Message.decode(unpack(reply.content)[0])["$failure"]
        (record,) = AuditLog(tmp_path).records()
        assert record["event"] == "refused"
        assert "runs no other app" in record["reason"]


class TestBadInput:
    def test_a_site_of_another_version_is_named(self, sites, job, monkeypatch):
        chosen = job()
        grid = grid_of(sites, chosen)
        hand_over = Grid.push_messages

        def push(self, messages):
            for message in messages:
                if message.metadata.dst_node_id == 8:
                    message.content["about"]["version"] = "0.0.1"
            return hand_over(self, messages)

        monkeypatch.setattr(Grid, "push_messages", push)
        with pytest.raises(QuorumError, match=r"client-2: ConfigError: Tacit .* and 0\.0\.1"):
            on_grid(sites, chosen, grid)

    def test_too_few_sites_are_named(self, sites, job):
        chosen = job()
        grid = grid_of(sites, chosen)
        del grid.sites["client-3"]
        with pytest.raises(QuorumError, match="client-3: StepError: not connected to the SuperLink"):
            on_grid(sites, chosen, grid)

    def test_one_missing_within_the_quorum_is_no_obstacle(self, sites, job):
        chosen = job(run={"quorum": 0.6}, protect={"name": "plain"})
        grid = grid_of(sites, chosen)
        del grid.sites["client-3"]
        finished = on_grid(sites, chosen, grid)
        assert [failure["party"] for failure in finished.result["failures"]][:1] == ["client-3"]

    def test_flowers_own_errors_are_that_sites_failure(self, sites, job):
        chosen = job(run={"quorum": 0.6}, protect={"name": "plain"})
        grid = grid_of(sites, chosen)
        grid.rewrite = lambda name, message, reply: (
            FlowerMessage(Error(3, "gone\nTraceback of a secret"), reply_to=message)
            if name == "client-2"
            else reply
        )
        federation = DeployedFederation(chosen, SiteFolder(sites[COORDINATOR]), grid)
        result = execute(chosen, federation=federation).result
        assert {f["party"] for f in result["failures"]} == {"client-2"}
        assert "secret" not in json.dumps(result["failures"])

    def test_sites_with_different_columns_are_named(self, sites, job, rows, tmp_path):
        for name in CLIENTS:
            path = rows(name=f"{name}.csv", features=2 if name == "client-3" else 3, seed=len(name))
            own(sites[name], path)
        with pytest.raises(SchemaError, match=r"client-3: there is no column 'x2', which the others have"):
            on_grid(sites, job(data={"name": OWN_ROWS, "target": None}))

    def test_a_message_above_the_limit_is_refused_before_it_is_sent(self, sites, job):
        grid = grid_of(sites, job())
        engine = FlowerEngine(grid, SiteFolder(sites[COORDINATOR]).roster, limit=1000)
        with pytest.raises(MessageError, match="1,001 bytes, the limit is 1,000"):
            list(engine.ask(b"x" * 1001, [("client-1", b"")]))
        assert not grid.passed

    def test_a_reply_above_the_limit_is_that_sites_failure(self, sites, job):
        grid = grid_of(sites, job())
        engine = FlowerEngine(grid, SiteFolder(sites[COORDINATOR]).roster, limit=100)
        big = Message(data=np.zeros(1000)).encode()
        grid.rewrite = lambda name, message, reply: FlowerMessage(pack(big), reply_to=message)
        (reply,) = engine.ask(b"call", [("client-1", b"")])
        assert "the limit is 100" in reply.failure

    def test_a_superlink_that_takes_too_little_is_noticed(self, sites, job):
        grid = grid_of(sites, job())
        grid.push_messages = lambda messages: []
        engine = FlowerEngine(grid, SiteFolder(sites[COORDINATOR]).roster)
        with pytest.raises(MessageError, match="too large"):
            list(engine.ask(b"call", [("client-1", b"")]))

    def test_two_nodes_of_one_name_are_refused(self, sites, job):
        grid = grid_of(sites, job())
        nodes = grid.get_nodes()
        strangers = [SimpleNamespace(name="", node_id=1), SimpleNamespace(name="", node_id=2)]
        grid.get_nodes = lambda: [*strangers, *nodes, nodes[0]]  # nodes of another federation do not matter
        engine = FlowerEngine(grid, SiteFolder(sites[COORDINATOR]).roster)
        with pytest.raises(FederationError, match="two SuperNodes are registered as 'client-1'"):
            list(engine.ask(b"call", [("client-1", b"")]))

    def test_silence_ends_with_the_time(self, sites, job, monkeypatch):
        monkeypatch.setattr("tacit.engines.flower.GRACE", 0.3)
        grid = grid_of(sites, job())
        grid.rewrite = lambda name, message, reply: None if name == "client-1" else reply
        engine = FlowerEngine(grid, SiteFolder(sites[COORDINATOR]).roster, timeout=0.2)
        replies = list(engine.ask(b"call", [("client-1", b""), ("client-2", b"")]))
        assert "no reply within" in replies[0].failure
        assert "MessageError" in replies[1].failure  # that call is no message

    def test_a_site_without_experiments_shows_nothing(self, sites, job):
        text = (sites["client-2"] / "site.toml").read_text().replace("true", "false")
        (sites["client-2"] / "site.toml").write_text(text)
        with pytest.raises(QuorumError, match="client-2: ConfigError: client-2 takes part in no experim"):
            on_grid(sites, job())

    @pytest.mark.parametrize(
        ("tables", "error"),
        [
            ({"partition": {"name": "iid", "clients": 5}}, "roster names 3 clients.*among 5"),
            ({"run": {"min_clients": 4}, "protect": {"name": "masked"}}, "fewer than 4"),
        ],
    )
    def test_what_the_roster_cannot_serve_is_refused_first(self, sites, job, tables, error):
        chosen = job(**tables)
        grid = grid_of(sites, chosen)
        with pytest.raises(ConfigError, match=error):
            on_grid(sites, chosen, grid)
        assert not grid.passed

    def test_an_experiment_needs_the_names_of_its_partition(self, sites, job):
        folder = SiteFolder(sites[COORDINATOR])
        clients = {name.replace("client-2", "north"): key for name, key in folder.roster.clients.items()}
        (folder.path / "roster.toml").write_text(replace(folder.roster, clients=clients).to_toml())
        with pytest.raises(ConfigError, match=r"the roster names client-1, north, client-3.*client-2 is not"):
            on_grid(sites, job())

    def test_the_order_of_the_roster_makes_no_difference(self, sites, job):
        folder = SiteFolder(sites[COORDINATOR])
        turned = dict(reversed(folder.roster.clients.items()))
        (folder.path / "roster.toml").write_text(replace(folder.roster, clients=turned).to_toml())
        chosen = job(protect={"name": "plain"})
        assert on_grid(sites, chosen).result["model"] == execute(chosen).result["model"]

    def test_a_protection_without_its_service_is_refused_first(self, sites, job):
        folder = SiteFolder(sites[COORDINATOR])
        (folder.path / "roster.toml").write_text(replace(folder.roster, services={}).to_toml())
        with pytest.raises(ConfigError, match="needs a key-server"):
            on_grid(sites, job(protect={"name": "paillier"}))
        with pytest.raises(ConfigError, match="splitfed needs a main-server, and the roster names none"):
            on_grid(sites, job(method={"name": "splitfed"}))


def own(site, source, query=""):
    """Let a site bring rows of its own, and take part in no experiments."""
    text = (site / "site.toml").read_text().replace("experiment = true", "experiment = false")
    asked = f'query = "{query}"\n' * bool(query)
    (site / "site.toml").write_text(f'data = "{source}"\ntarget = "target"\n{asked}{text}')


class TestOwnRows:
    @pytest.fixture
    def chosen(self, sites, job, rows):
        for seed, name in enumerate(CLIENTS):
            own(sites[name], rows(name=f"{name}.csv", seed=seed, rows=900))
        return lambda **tables: job(data={"name": OWN_ROWS, "target": None, "holdout": 0.2}, **tables)

    def test_each_site_brings_its_own(self, sites, chosen):
        finished = on_grid(sites, chosen(protect={"name": "plain"}))
        assert finished.result["clients"] == 3
        assert finished.result["rows"] is None
        assert finished.result["accuracy"] > 0.42  # a guess is a third; on the rows that the sites keep aside
        assert finished.model is not None
        # Nobody divided these rows.
        assert finished.result["partition"] is None
        assert "partition" not in finished.result["settings"]
        assert not {"--partition", "--clients"} & {*finished.result["command"].split()}
        page = (finished.folder.path / "report.html").read_text()
        assert "learnt the sites&#39; own rows from 3 clients" in page
        assert "label-sorted" not in page

    @pytest.mark.parametrize("protect", representatives(["plain", "ckks", "masked"], "masked"))
    def test_tuning_goes_by_the_rows_that_sites_keep_aside(self, sites, chosen, protect):
        settings, tried = chosen(protect={"name": protect}), [1e-3, 1e4]
        federation = DeployedFederation(settings, SiteFolder(sites[COORDINATOR]), grid_of(sites, settings))
        found = tune(settings, {"lam": tried}, federation=federation)
        alone = [
            on_grid(sites, replace(settings, method={**settings.method, "lam": lam})).result["accuracy"]
            for lam in tried
        ]
        assert [trial["score"] for trial in found["trials"]] == pytest.approx(alone)
        assert found["best"] == {"lam": tried[int(np.argmax(alone))]}
        best = Settings.from_tables(tomllib.loads(Path(found["file"]).read_text()))
        assert best.data.name == OWN_ROWS
        assert best.flower == settings.flower

    def test_rows_may_be_the_answer_to_a_query_of_a_site_s_own_database(self, sites, chosen, tmp_path):
        site, table = sites[CLIENTS[0]] / "site.toml", pd.read_csv(tmp_path / f"{CLIENTS[0]}.csv")
        with closing(sqlite3.connect(tmp_path / "ward.db")) as ward:
            table.to_sql("visits", ward, index=False)
        site.write_text(site.read_text().partition("\n")[2].partition("\n")[2])
        own(site.parent, f"sqlite:///{tmp_path}/ward.db", "SELECT * FROM visits")
        (tmp_path / f"{CLIENTS[0]}.csv").unlink()
        result = on_grid(sites, chosen(protect={"name": "plain"})).result
        assert result["clients"] == 3
        assert result["accuracy"] > 0.42

    def test_a_site_is_named_with_its_score_only_if_it_agrees(self, sites, chosen):
        policy = sites[CLIENTS[1]] / "site.toml"
        policy.write_text(policy.read_text().replace("name_scores = false", "name_scores = true"))
        result = on_grid(sites, chosen(protect={"name": "plain"})).result
        told = [note["about"] for note in result["notes"] if "rows that it keeps aside" in note["text"]]
        assert told == [CLIENTS[1]]
        assert result["scores"]["clients' own hold-outs"]["sites"]["sites"] == 3

    def test_where_sites_open_the_model_it_stays_there(self, sites, chosen):
        finished = on_grid(sites, chosen(protect={"name": "ckks"}))
        assert finished.model is None
        assert not (finished.folder.path / "model.safetensors").exists()
        assert "client.show_model" not in [wave["step"] for wave in finished.result["ledger"]["waves"]]
        assert finished.result["accuracy"] > 0.42


class KilledError(Exception):
    """The coordinator's process ends without warning."""


RESUMED = [
    {"name": "plain"},
    {"name": "masked"},
    {"name": "ckks"},
    {"name": "bfv"},
    {"name": "shares"},
    {"name": "paillier", "holder": "clients", "key_bits": 2048},
]


class TestGoingOn:
    chosen = TestOwnRows.chosen

    def stopped(self, sites, settings, monkeypatch, replies, resume=None, what="update"):
        """Run until so many replies to asks for a contribution have passed, then die; give the checkpoint."""
        grid, left = grid_of(sites, settings), [replies]

        def counted(name, message, reply):
            call = Message.decode(unpack(message.content)[0])
            left[0] -= call["$step"] == "client.contribute" and call["contribution"] == what
            if left[0] < 0:
                raise KilledError
            return reply

        grid.rewrite = counted
        run = resume.run if resume else "the-run"
        federation = DeployedFederation(settings, SiteFolder(sites[COORDINATOR]), grid)
        with monkeypatch.context() as patched, pytest.raises(KilledError):
            # What is killed writes no last words.
            patched.setattr("tacit.runs.folder.RunFolder.write_json", lambda *a: None)
            execute(settings, federation=federation, run=run, resume=resume)
        return read_checkpoint(run, settings.run.out)

    @pytest.mark.parametrize("own_rows", representatives([True, False], True))
    @pytest.mark.parametrize(
        "protect", representatives(RESUMED, RESUMED[1], RESUMED[2]), ids=lambda p: p["name"]
    )
    def test_at_the_sites_it_ends_with_the_same_model(
        self, sites, job, chosen, rows, protect, own_rows, monkeypatch, keys_once
    ):
        if not own_rows:  # the fixture has taken the sites out of experiments
            for name in CLIENTS:
                text = (
                    (sites[name] / "site.toml").read_text().replace("experiment = false", "experiment = true")
                )
                (sites[name] / "site.toml").write_text(text)
        method = {"name": "fedyogi", "rounds": 5, "hidden": 4, "rate": 0.5}
        settings = (chosen if own_rows else job)(method=method, protect=protect)
        with keys_once():
            whole = on_grid(sites, settings)
            point = self.stopped(sites, settings, monkeypatch, 8)  # within the third round
            at_clients = settings.build_protection().opens == "clients"
            assert point.kept.progress["round"] == 2
            assert (point.kept.shared is None) == at_clients
            again = self.stopped(sites, settings, monkeypatch, 1, point)  # and again, before it got further
            assert again.kept.progress == point.kept.progress
            assert again.kept.following == 2
            grid = grid_of(sites, settings)
            federation = DeployedFederation(settings, SiteFolder(sites[COORDINATOR]), grid)
            resumed = execute(settings, federation=federation, resume=again)
        if at_clients:  # what the coordinator has of the model is a digest under the clients' key
            site, error = SiteFolder(sites["client-1"]), 1e-6 if protect["name"] == "ckks" else 0
            ours, theirs = (learnt(site, finished.result["run"])[1] for finished in (resumed, whole))
            for name, value in theirs.arrays.items():
                assert np.abs(ours.arrays[name] - value).max() <= error
        else:
            assert resumed.result["model"] == whole.result["model"]
        assert not (resumed.folder.path / "checkpoint.bin").exists()

    @pytest.mark.slow
    @pytest.mark.parametrize("protect", [{"name": "masked"}, {"name": "plain", "opens": "clients"}], ids=str)
    @pytest.mark.parametrize(("name", "kept"), [("scaffold", "control"), ("flop", "head")])
    def test_sites_find_what_they_keep_in_their_own_stores(
        self, sites, chosen, monkeypatch, protect, name, kept
    ):
        settings = chosen(method={"name": name, "rounds": 4, "hidden": 4, "rate": 0.5}, protect=protect)
        whole = on_grid(sites, settings)
        point = self.stopped(sites, settings, monkeypatch, 8)  # within the third round
        assert kept not in point.kept.progress
        again = self.stopped(sites, settings, monkeypatch, 1, point)
        federation = DeployedFederation(settings, SiteFolder(sites[COORDINATOR]), grid_of(sites, settings))
        resumed = execute(settings, federation=federation, resume=again)
        site = SiteFolder(sites["client-1"])
        ours, theirs = (learnt(site, finished.result["run"])[1].arrays for finished in (resumed, whole))
        assert all(np.array_equal(ours[name], value) for name, value in theirs.items())

    @pytest.mark.parametrize("replies", representatives([6, 7, 8], 7))
    @pytest.mark.parametrize("fraction", representatives([1.0, 0.7], 0.7))
    def test_sites_that_know_more_than_the_coordinator_go_back(
        self, sites, chosen, monkeypatch, replies, fraction
    ):
        method = {"name": "fedavg", "rounds": 5, "hidden": 4, "patience": 9, "fraction": fraction}
        settings = chosen(
            method=method, protect={"name": "plain", "opens": "clients"}, run={"min_clients": 2}
        )
        whole = on_grid(sites, settings)
        # Within the third round's look at the hold-outs, for which its total was opened.
        point = self.stopped(sites, settings, monkeypatch, replies, what="hold_out")
        assert point.kept.progress["round"] == 2
        federation = DeployedFederation(settings, SiteFolder(sites[COORDINATOR]), grid_of(sites, settings))
        resumed = execute(settings, federation=federation, resume=point)
        assert resumed.result["model"] == whole.result["model"]

    def test_a_site_that_forgot_is_left_out(self, sites, chosen, monkeypatch):
        method = {"name": "fedavg", "rounds": 4, "hidden": 4}
        settings = chosen(method=method, protect={"name": "ckks"}, run={"quorum": 0.6, "min_clients": 2})
        point = self.stopped(sites, settings, monkeypatch, 8)
        (sites["client-2"] / "state.db").unlink()
        grid = grid_of(sites, settings)
        federation = DeployedFederation(settings, SiteFolder(sites[COORDINATOR]), grid)
        resumed = execute(settings, federation=federation, resume=point)
        (failure,) = resumed.result["failures"]
        assert "client-2 remembers nothing of attempt 0" in str(failure)

    def test_a_site_takes_no_model_that_it_did_not_learn(self, sites, chosen, monkeypatch):
        settings = chosen(method={"name": "fedavg", "rounds": 4, "hidden": 4}, protect={"name": "ckks"})
        point = self.stopped(sites, settings, monkeypatch, 8)
        model = learnt(SiteFolder(sites["client-1"]))[1]
        forged = Shared(point.kept.schema, {f"net/{n}": a for n, a in model.arrays.items()})
        point = replace(point, kept=replace(point.kept, shared=forged))
        point.write()
        grid = grid_of(sites, settings)
        federation = DeployedFederation(settings, SiteFolder(sites[COORDINATOR]), grid)
        with pytest.raises(QuorumError, match="takes a model that it did not learn in experiments only"):
            execute(settings, federation=federation, resume=point)

    def test_the_checkpoint_at_the_coordinator_does_not_hold_the_model(self, sites, chosen, monkeypatch):
        settings = chosen(method={"name": "fedavg", "rounds": 4, "hidden": 4}, protect={"name": "ckks"})
        point = self.stopped(sites, settings, monkeypatch, 8)
        raw = (point.folder.path / "checkpoint.bin").read_bytes()
        model = learnt(SiteFolder(sites["client-1"]))[1]
        assert all(array.tobytes() not in raw for array in model.arrays.values())
        assert len(raw) > 1000

    def test_a_site_counts_its_budget_over_all_attempts(self, sites, chosen, monkeypatch):
        method = {"name": "fedavg", "rounds": 4, "hidden": 4, "weighting": "equal", "rate": 1e-9}
        noised = {"name": "noised", "inner": "plain", "epsilon": 8.0}
        settings = chosen(method=method, protect=noised, prepare={"scale": "none"})
        point = self.stopped(sites, settings, monkeypatch, 5)
        # A coordinator that forgets what it has spent is refused by the clients, which do not.
        point = replace(point, kept=replace(point.kept, progress={**point.kept.progress, "round": 0}))
        monkeypatch.setattr(NoisedCoordinator, "resume", lambda *given: None)
        federation = DeployedFederation(settings, SiteFolder(sites[COORDINATOR]), grid_of(sites, settings))
        with pytest.raises(QuorumError, match="privacy budget is spent"):
            execute(settings, federation=federation, resume=point)


LATE = [("fedavg", "masked"), ("fedavg", "ckks"), ("scaffold", "masked"), ("mime", "masked")]
LATE += [("flop", "masked")]
LATE += [("ring-mlp", "bfv"), ("p2p-mpc", "shares"), ("two-phase-mpc", "committee"), ("pfmlp", "masked")]


@pytest.mark.parametrize(
    ("method", "protect"), [*LATE[:2], *(pytest.param(*each, marks=pytest.mark.slow) for each in LATE[2:])]
)
def test_a_site_that_connects_later_joins(sites, job, method, protect):
    settings = job(
        method={"name": method, "rounds": 4, "hidden": 4},
        protect={"name": protect},
        run={"quorum": 0.6, "min_clients": 2},
    )
    grid = grid_of(sites, settings)
    path = grid.sites.pop("client-3")
    rounds = []

    def come(name, message, reply):
        call = Message.decode(unpack(message.content)[0])
        rounds.append(call["$step"] == "client.contribute" and call["contribution"] == "update")
        if sum(rounds) == 4:  # the second round is done
            grid.sites["client-3"] = path
        return reply

    grid.rewrite = come
    result = on_grid(sites, settings, grid).result
    assert [note["text"] for note in result["notes"] if note["about"] == "client-3"] == [
        "joined late, in round 3"
    ]


class TestConnection:
    def test_nobody_at_the_address(self, tmp_path):
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        with pytest.raises(UnavailableError, match=f"no SuperLink answers at 127.0.0.1:{port}"):
            probe(Connection("127.0.0.1", port, tmp_path / "ca.crt", tmp_path))

    @pytest.mark.parametrize("host", ["north hospital", "line\nbreak", "a" * 70])
    def test_an_address_that_is_none(self, host, tmp_path):
        write_certificates(tmp_path)
        with pytest.raises(UnavailableError, match="the address is that in"):
            probe(Connection(host, 1, tmp_path / "ca.crt", tmp_path))

    @pytest.fixture
    def server(self, tmp_path):
        """A TLS server on loopback."""
        write_certificates(tmp_path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
        listening = socket.create_server(("127.0.0.1", 0))

        def serve():
            while True:
                try:
                    plain, _ = listening.accept()
                except OSError:
                    return
                try:
                    context.wrap_socket(plain, server_side=True).close()
                except (ssl.SSLError, OSError):
                    plain.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()

    def test_the_right_certificate(self, server, tmp_path):
        probe(Connection("127.0.0.1", server, tmp_path / "ca.crt", tmp_path))

    def test_another_certificate(self, server, tmp_path):
        (tmp_path / "other").mkdir()
        write_certificates(tmp_path / "other")
        with pytest.raises(ProtectionError, match=r"is not vouched for by .*other/ca\.crt"):
            probe(Connection("127.0.0.1", server, tmp_path / "other" / "ca.crt", tmp_path))

    def test_a_run_without_superlink_leaves_nothing(self, sites, job, tmp_path):
        home = Path(job().flower.coordinator).absolute().parent / "flower"
        with pytest.raises(UnavailableError, match="`tacit coordinator start` does"):
            launching.launch(job())
        Access.renew(home)
        with pytest.raises(UnavailableError, match=r"no SuperLink answers at 127\.0\.0\.1:\d+: start it"):
            launching.launch(job())
        assert not (tmp_path / "runs").exists()

    def test_it_is_found_again_at_the_same_port_with_another_token(self, tmp_path):
        first, second = Access.renew(tmp_path), Access.renew(tmp_path)
        assert first.port == second.port and first.token != second.token
        assert Access.read(tmp_path) == second
        assert (tmp_path / "control.json").stat().st_mode & 0o777 == 0o600
        with socket.create_server(("127.0.0.1", first.port)):
            assert Access.renew(tmp_path).port != first.port
        (tmp_path / "control.json").write_text("{")
        with pytest.raises(UnavailableError, match="no SuperLink was started"):
            Access.read(tmp_path)


def test_the_store_is_per_run_and_forgets_the_oldest(sites, job):
    chosen = job()
    for _ in range(2):
        on_grid(sites, chosen)
    store = PartyStore(sites["client-1"] / "state.db", SiteFolder(sites["client-1"]).unlock)
    assert len(store.runs()) == 2


def test_nothing_of_flower_is_imported_without_it():
    code = (
        "import sys, tacit, tacit.federation, tacit.runs.job, tacit.engines.store, tacit.cli.app; "
        "sys.exit(any(name.split('.')[0] == 'flwr' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_site_s_process_that_ended_or_is_stuck_is_started_anew(sites, monkeypatch):
    worker = Worker(sites["client-1"])
    try:
        first = worker._worker.process.pid
        assert b"not a Tacit message" in worker.perform("{}", b"not ours", b"", None)
        os.kill(first, signal.SIGKILL)
        assert b"performs the site's steps ended" in worker.perform("{}", b"not ours", b"", None)
        second = worker._worker.process.pid
        os.kill(second, signal.SIGSTOP)
        monkeypatch.setattr("tacit.deploy.node.GRACE", 0.2)
        assert b"performs the site's steps ended" in worker.perform("{}", b"not ours", b"", 0.1)
        assert len({first, second, worker._worker.process.pid}) == 3
        assert worker._worker.process.poll() is None
    finally:
        worker.close()


class TestSite:
    def test_a_site_takes_out_the_model_that_it_learnt(self, sites, chosen, tmp_path):
        trained = on_grid(sites, chosen(protect={"name": "ckks"}))
        known = [learnt(SiteFolder(sites[name])) for name in CLIENTS]
        assert {run for run, _ in known} == {trained.result["run"]}
        rows = np.random.default_rng(0).normal(size=(20, 3))
        predictions = [model.predict(rows).tolist() for _, model in known]
        assert predictions[0] == predictions[1] == predictions[2]

    chosen = TestOwnRows.chosen

    def test_a_run_that_it_does_not_know(self, sites, chosen):
        folder = SiteFolder(sites["client-1"])
        with pytest.raises(DataError, match="no model yet"):
            learnt(folder)
        on_grid(sites, chosen())
        with pytest.raises(ConfigError, match="remembers no run 'x'"):
            learnt(folder, "x")
