"""A million changed messages: none ends in an error that is not ours, none hangs, none is taken for genuine.

Before a client gets each ask of a run, it gets many that were made from it; before the coordinator gets each
reply, many that were made from that. Most are changed on the wire. Some are tagged by the other end, which
lies: those may be taken, if they ask for something else that was agreed, and end in no error but ours.
"""

import logging
import resource
import time
import traceback
import zlib
from collections import Counter
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

from tacit.core.engine import read_reply
from tacit.core.errors import ConfigError, MessageError, TacitError
from tacit.core.manifest import Components, Manifest
from tacit.core.message import Message
from tacit.core.party import Party, State, Vault
from tacit.core.secret import Secret
from tacit.core.shared import Shared
from tacit.core.snapshot import Snapshot
from tacit.core.steps import perform
from tacit.core.tags import ask_context, reply_context, tagged
from tacit.data.preparation import Preparation
from tacit.engines.assembly import assemble
from tacit.federation import Federation
from tacit.methods import METHODS
from tacit.models.files import load_model
from tacit.protections import PROTECTIONS
from tacit.runs.checkpoint import Checkpoint, read_checkpoint
from tacit.runs.folder import CHECKPOINT, RunFolder
from tacit.runs.settings import Settings
from tests.conftest import VARIANTS
from tests.helpers.mutation import Mutator, encoded
from tests.quick import Mode, representatives

TOTAL = 1_000_000
# Of each kind: as many as in the full session, and in the quick one.
ON_THE_WAY = {True: 300, False: 61_500}  # for every protection
OF_LIARS = {True: 5, False: 100}  # for every protection, each a run of its own
OTHERS = {True: 150, False: 34_000}  # introductions and manifests
FILES = {True: 60, False: 3_000}  # checkpoints and models
QUICK = ("plain", "shares", "committee", "ring", "masked", "bfv")
CLIENTS = [f"client-{index + 1}" for index in range(4)]
ROWS = dict(zip(CLIENTS, np.random.default_rng(2).uniform(-1, 1, size=(4, 3)), strict=True))
LONGEST = 5.0  # seconds that one message may take
MOST_MEMORY = 600 << 20  # bytes by which a campaign may grow
FOREIGN = "in the client's step"
KEY = Secret(bytes(32))

every_protection = pytest.mark.parametrize("name", representatives(VARIANTS, *QUICK))


@pytest.fixture(autouse=True)
def bounded_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < MOST_MEMORY, f"memory grew by {grown >> 20} MB"


def test_there_are_a_million():
    of_each_protection = ON_THE_WAY[False] + OF_LIARS[False]
    assert of_each_protection * len(VARIANTS) + 2 * OTHERS[False] + 4 * FILES[False] >= TOTAL


def made(scene_of, name):
    return scene_of(VARIANTS[name], ROWS, quorum=0.5, min_clients=2)


def whole_run(scene):
    """All steps that there are: enrolment, keys, a total that is disclosed, one that is kept, the model."""
    scene.coordinator.enrol()
    scene.coordinator.protection.prepare(2)
    scene.coordinator.reveal(scene.components.method.vector)
    scene.round()
    scene.finish()


# -- on the way between coordinator and clients --------------------------------------------------------------


class Campaign:
    """Runs whose every message is preceded by changed ones."""

    def __init__(self, seed):
        self.mutator, self.rng = Mutator(seed), np.random.default_rng(seed)
        self.tried = 0
        self.foreign = Counter()

    def run(self, scene, share):
        """Run once; before each message come ``share`` changed ones."""
        self.scene, self.share = scene, share
        scene.tap.recall, scene.tap.rewrite = self.asking, self.replying
        whole_run(scene)
        failures = [reason for reason in scene.coordinator.failures.values() if reason]
        assert not failures, "a changed message had an effect on what came after it"

    def asking(self, step, party, call, job):
        """Give a client changed asks before the genuine one."""
        site = self.scene.site(party)
        message, own = Message.decode(call), Message.decode(job) if job else Message()
        self.mutator.show(message, own)
        for _ in range(self.share):
            lying = self.rng.integers(10) == 0
            changed = self.lie(site, message, own) if lying else self.tamper(message, own, call, job)
            if changed is not None:
                self.tried += 1
                if changed[0] is not None:
                    self.one_ask(site, step, *changed, lying=lying)

    def one_ask(self, site, step, message, job, lying):
        state, vault = dict(site.state), dict(site.vault)
        started = time.perf_counter()
        reply = Message.decode(perform(site, message, job, lambda asked: self.scene.components))
        assert time.perf_counter() - started < LONGEST, f"{step}: {message} {job}"
        if "$failure" in reply:
            assert dict(site.state) == state
            assert dict(site.vault) == vault
            if FOREIGN in reply["$failure"]:
                self.foreign[f"{step}: {self.reason(site, message, job)}"] += 1
            return
        assert lying or "channel" not in vault, f"{step} was taken, changed on the wire: {message} {job}"
        if not lying and self.scene.protection.authenticated:  # at enrolment there are no tags yet
            agreed = self.scene.coordinator.manifest.to_message().encode()
            assert site.state["manifest"] == agreed, "enrolled under another manifest"
        site.state, site.vault = State(state), Vault(vault)

    def reason(self, site, message, job):
        """Where an error that is not ours came from."""
        found = []

        class Kept(logging.Handler):
            def emit(self, record):
                error = record.exc_info[1]
                frames = traceback.extract_tb(error.__traceback__)[-2:]
                found.append(f"{error!r} at {[f'{frame.name}, {frame.lineno}' for frame in frames]}"[:400])

        log, handler = logging.getLogger("tacit.site"), Kept()
        level = log.level
        log.addHandler(handler)
        log.setLevel(logging.DEBUG)
        perform(site, message, job, lambda asked: self.scene.components)
        log.removeHandler(handler)
        log.setLevel(level)
        return found[-1] if found else "it does not happen again"

    def tamper(self, message, own, call, job):
        """Change an ask as somebody on the wire can; None if it is the same, no message if it is none."""
        kind = self.rng.integers(5)
        if kind <= 1:
            raw = self.mutator.damaged(job)
            return (message, raw) if raw != job else None
        if kind == 2:
            raw = self.mutator.damaged(call)
            try:
                return (Message.decode(raw), job) if raw != call else None
            except MessageError:
                return None, b""
        if kind == 3:
            changed = encoded(self.mutator.changed(own))
            return None if changed in (None, own) else (message, changed.encode())
        changed = encoded(self.mutator.changed(message))
        return None if changed in (None, message) else (changed, job)

    def lie(self, site, message, own):
        """Change an ask as a coordinator can that does not follow the protocol: it has the channel's key."""
        own = own.without("$tag")
        if self.rng.integers(2):
            own = encoded(self.mutator.changed(own))
        else:
            message = encoded(self.mutator.changed(message))
        if own is None or message is None:
            return None
        key, serial = site.vault.get("channel"), message.get("$serial")
        if key is not None and type(serial) is int and 0 <= serial < 1 << 63:
            digest = bytes.fromhex(message.digest())
            own = tagged(own.without("$tag"), key, *ask_context(serial, site.id, digest))
        return message, own.encode()

    def replying(self, step, party, message):
        """Show the coordinator's transport changed replies before the genuine one."""
        transport, genuine = self.scene.coordinator.link.transport, message.encode()
        self.mutator.show(message)
        for _ in range(self.share):
            changed = encoded(self.mutator.changed(message)) if self.rng.integers(2) else None
            raw = self.mutator.damaged(genuine) if changed is None else changed.encode()
            if raw == genuine:
                continue
            self.tried += 1
            failure = transport._reason(read_reply(party, raw, 0, limit=1 << 30), step)
            tagless = party not in transport.channels or step in ("client.enrol", "client.enrol_service")
            assert failure is not None or tagless, f"{step} was taken, changed on the wire: {raw}"


@every_protection
def test_on_their_way(name, scene_of, keys_once):
    campaign, budget = Campaign(zlib.crc32(name.encode())), ON_THE_WAY[Mode.quick]
    with keys_once():
        while campaign.tried < budget:
            campaign.run(made(scene_of, name), 4 if Mode.quick else 250)
    assert not campaign.foreign
    assert campaign.tried >= budget


# -- of a client that lies -------------------------------------------------------------------------------


@every_protection
def test_of_a_client_that_lies(name, scene_of, keys_once):
    """It tags what it likes, in any step; the run goes on without it, or stops with an error of ours."""
    mutator, rng = Mutator(3), np.random.default_rng(zlib.crc32(name.encode()))
    tried = 0
    with keys_once():
        while tried < OF_LIARS[Mode.quick]:
            scene, when, lies = made(scene_of, name), int(rng.integers(20)), []

            def rewrite(step, party, message, scene=scene, when=when, lies=lies):
                mutator.show(message)
                lies.append(step)
                if len(lies) != when:
                    return None
                plain = {field: value for field, value in message.items() if field[0] != "$"}
                changed = encoded({**mutator.changed(plain), "$cpu": 0.0})
                if changed is None:
                    return None
                key = scene.site(party).vault.get("channel")
                serial = scene.coordinator.link.transport.serial
                if key is None or "$tag" not in message:
                    return changed.encode()
                return tagged(changed.without("$tag"), key, *reply_context(serial, party)).encode()

            scene.tap.rewrite = rewrite
            started = time.perf_counter()
            with suppress(TacitError):
                whole_run(scene)
            assert time.perf_counter() - started < LONGEST
            tried += len(lies) >= when


# -- introductions, manifests, checkpoints, models -----------------------------------------------------------


def changes(seed, genuine, budget):
    """Changed messages made from genuine ones, as many as asked for."""
    mutator = Mutator(seed)
    mutator.show(*genuine)
    made = 0
    while made < budget:
        one = genuine[made % len(genuine)]
        changed = encoded(mutator.changed(one))
        if changed is not None and changed != one:
            made += 1
            yield changed


def test_introductions(table_of):
    preparation = Preparation()
    sites = [Party("client-1", partial(table_of, task), KEY) for task in ("classification", "regression")]
    genuine = [preparation.introduce(site, {}) for site in sites]
    for changed in changes(1, genuine, OTHERS[Mode.quick]):
        agreement = preparation.agreement({})
        with suppress(TacitError):
            agreement.add("client-1", changed)
            agreement.add("client-2", genuine[0])
            agreement.make_schema()


def test_manifests():
    named = [("fedheonn", "plain"), ("fedheonn", "ckks"), ("fedadam", "masked"), ("fedavg", "noised")]
    parts = [Components(METHODS.build(m), PROTECTIONS.build(p), Preparation()) for m, p in named]
    genuine = [Manifest.of("run", one, min_clients=3).to_message() for one in parts]
    for changed in changes(2, genuine, OTHERS[Mode.quick]):
        with suppress(TacitError):
            manifest = Manifest.from_message(changed)
            assemble(manifest)
            assert Manifest.from_message(manifest.to_message()).digest == manifest.digest


def test_checkpoints(tmp_path, table_of):
    folder, mutator, agreement = RunFolder(tmp_path), Mutator(3), Preparation().agreement({})
    agreement.add("client-1", Preparation().introduce(Party("client-1", table_of, KEY), {}))
    schema = agreement.make_schema()
    shared = Shared(schema, {"weights": np.arange(60.0)})
    Checkpoint(folder, Settings(), Snapshot(schema, {"round": 1}, shared), [{"round": 1}]).write()
    raw = (tmp_path / CHECKPOINT).read_bytes()
    assert read_checkpoint(str(tmp_path)).kept.progress["round"] == 1
    for _ in range(FILES[Mode.quick]):
        changed = mutator.damaged(raw)
        if changed != raw:
            (tmp_path / CHECKPOINT).write_bytes(changed)
            with pytest.raises(ConfigError, match="cannot be read: "):
                read_checkpoint(str(tmp_path))


@pytest.mark.parametrize("method", ["fedheonn", "fedheonn-ensemble", "fedavg"])
def test_models(method, tmp_path):
    federation = Federation.embedded("iris", clients=3, seed=1)
    trained = federation.train(
        METHODS.build(method, {"rounds": 1} if method == "fedavg" else {}), protect="plain"
    )
    path, mutator = tmp_path / "model.safetensors", Mutator(4)
    trained.model.save(path)
    raw = path.read_bytes()
    for _ in range(FILES[Mode.quick]):
        path.write_bytes(mutator.damaged(raw))
        with suppress(TacitError):
            load_model(path)
