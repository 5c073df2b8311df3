"""A million changed messages: none ends in an error that is not ours, none hangs, none is taken for genuine.

Before a client gets each ask of a run, it gets many that were made from it; before the coordinator gets each
reply, many that were made from that. Some are changed on the wire; some are tagged by the other end, which lies.
"""

import logging
import resource
import time
import traceback
import zlib
from collections import Counter

import numpy as np
import pytest

from tacit.core.engine import read_reply
from tacit.core.errors import MessageError
from tacit.core.message import Message
from tacit.core.steps import perform
from tacit.core.tags import ask_context, tagged
from tests.conftest import VARIANTS
from tests.helpers.mutation import Mutator, encoded
from tests.quick import Mode, representatives

TOTAL = 1_000_000
QUICK = ("plain", "shares", "committee", "ring", "masked", "ckks-coefficients")
CLIENTS = [f"client-{index + 1}" for index in range(4)]
ROWS = dict(zip(CLIENTS, np.random.default_rng(2).uniform(-1, 1, size=(4, 3)), strict=True))
LONGEST = 5.0  # seconds for one message
MOST_MEMORY = 400 << 20  # bytes by which a campaign may grow
FOREIGN = "in the client's step"
counted: Counter[str] = Counter()


def memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Campaign:
    """A run whose every message is preceded by changed ones."""

    def __init__(self, scene, budget, seed):
        self.scene, self.budget = scene, budget
        self.mutator = Mutator(seed)
        self.rng = np.random.default_rng(seed)
        self.tried, self.taken, self.foreign = Counter(), Counter(), Counter()
        self.share = 1
        scene.tap.recall = self.asking
        scene.tap.rewrite = self.replying

    # -- asks to a client --------------------------------------------------------------------------

    def asking(self, step, party, call, job):
        """Give the party changed asks before the genuine one."""
        site = self.scene.site(party)
        message, own = Message.decode(call), Message.decode(job) if job else Message()
        self.mutator.show(message, own)
        for _ in range(self.share):
            self.one_ask(site, step, message, own, call, job)

    def one_ask(self, site, step, message, own, call, job):
        lying = self.rng.integers(10) == 0
        changed = self.lie(site, message, own) if lying else self.tamper(message, own, call, job)
        if changed is None:
            return
        before = dict(site.state), dict(site.vault), site.cache.get("call")
        started = time.perf_counter()
        raw = perform(site, changed[0], changed[1], lambda asked: self.scene.components)
        assert time.perf_counter() - started < LONGEST, (step, changed)
        reply = Message.decode(raw)
        self.tried["ask, lying" if lying else "ask"] += 1
        failure = reply.get("$failure")
        if failure is not None:
            assert dict(site.state) == before[0] and dict(site.vault) == before[1]
            if FOREIGN in failure:
                self.foreign[f"{step}: {failure}: {self.reason(site, changed)}"] += 1
        else:
            self.taken["lying" if lying else "wire"] += 1
            if not lying and "channel" in before[1]:
                raise AssertionError(f"{step} was taken though it was changed on the wire: {changed}")
            if not lying and self.scene.protection.authenticated:
                manifest = before[0].get("manifest", message.get("manifest"))
                assert site.state["manifest"] == manifest, "enrolled under another manifest"
            site.state.data.clear()
            site.state.data.update(before[0])
            site.vault.data.clear()
            site.vault.data.update(before[1])

    def reason(self, site, changed):
        """Where an error that is not ours came from."""
        found = []

        class Kept(logging.Handler):
            def emit(self, record):
                error = record.exc_info[1]
                trace = [f"{f.filename[-40:]}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)]
                found.append(f"{error!r} at {trace[-3:]}")

        log, handler = logging.getLogger("tacit.site"), Kept()
        level = log.level
        log.addHandler(handler), log.setLevel(logging.DEBUG)
        perform(site, changed[0], changed[1], lambda asked: self.scene.components)
        log.removeHandler(handler), log.setLevel(level)
        return found[-1][:500] if found else "it does not happen again"

    def tamper(self, message, own, call, job):
        """Change an ask as somebody on the wire can: without the keys."""
        kind = self.rng.integers(4)
        try:
            if kind == 0:
                raw = self.mutator.damaged(job)
                return (message, raw) if raw != job else None
            if kind == 1:
                raw = self.mutator.damaged(call)
                return (Message.decode(raw), job) if raw != call else None
        except MessageError:
            self.tried["ask, no message"] += 1
            return None
        if kind == 2:
            changed = encoded(self.mutator.changed(own))
            return None if changed is None or changed == own else (message, changed.encode())
        changed = encoded(self.mutator.changed(message))
        return None if changed is None or changed == message else (changed, job)

    def lie(self, site, message, own):
        """Change an ask as a coordinator can that does not follow the protocol: it has the channel's key."""
        own = own.without("$tag")
        if self.rng.integers(2):
            own = encoded(self.mutator.changed(own))
        else:
            message = encoded(self.mutator.changed(message))
        if own is None or message is None:
            return None
        if (key := site.vault.get("channel")) is not None:
            serial = message.get("$serial")
            if type(serial) is not int or not 0 <= serial < 1 << 63:
                return message, own.encode()
            digest = bytes.fromhex(message.digest())
            own = tagged(own.without("$tag"), key, *ask_context(serial, site.id, digest))
        return message, own.encode()

    # -- replies to the coordinator ------------------------------------------------------------------

    def replying(self, step, party, message):
        """Show the coordinator's transport changed replies before the genuine one."""
        transport, genuine = self.scene.coordinator.link.transport, message.encode()
        self.mutator.show(message)
        for _ in range(self.share):
            if self.rng.integers(2):
                raw = self.mutator.damaged(genuine)
            else:
                changed = encoded(self.mutator.changed(message))
                raw = genuine if changed is None else changed.encode()
            if raw == genuine:
                continue
            reply = read_reply(party, raw, 0, limit=1 << 30)
            self.tried["reply"] += 1
            failure = transport._failure(reply, step)
            if failure is None and party in transport.channels and step not in ("client.enrol",):
                raise AssertionError(f"{step} of {party} was taken though it was changed on the wire: {raw}")


def run(scene):
    scene.coordinator.enrol()
    scene.coordinator.protection.prepare(2)
    totals = [scene.coordinator.reveal(scene.components.method.vector)]
    scene.round()
    scene.finish()
    return totals


@pytest.mark.parametrize("name", representatives(VARIANTS, *QUICK))
def test_messages_on_their_way(name, scene_of, keys_once):
    budget = 300 if Mode.quick else int(TOTAL * 0.9) // len(VARIANTS)
    before = memory()
    with keys_once():
        plain = Campaign(scene_of(VARIANTS[name], ROWS, quorum=0.5, min_clients=2), 0, 0)
        plain.share = 0
        run(plain.scene)
        messages = len(plain.scene.tap.jobs) * 2
        campaign = Campaign(
            scene_of(VARIANTS[name], ROWS, quorum=0.5, min_clients=2), budget, zlib.crc32(name.encode())
        )
        campaign.share = -(-budget // messages)
        (total,) = run(campaign.scene)
    print(name, dict(campaign.tried), dict(campaign.taken), memory() - before >> 20)
    for text, count in campaign.foreign.most_common():
        print("   ", count, text)
    assert not campaign.foreign
