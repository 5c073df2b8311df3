"""A coordinator of masked sums that lies: what it tells each client, and what it makes of the answers."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from tacit.core.exposure import COORDINATOR
from tacit.core.message import Message
from tacit.core.tags import FIELD, ask_context, tagged
from tacit.crypto.channel import place
from tacit.crypto.fixedpoint import FixedPoint
from tacit.crypto.masking import add_masks, bind_seeds, sign_for
from tacit.protections.keys.authenticated import manifest_digest_of
from tacit.protections.masked.confirming import CONFIRM, unlock
from tacit.protections.masked.wire import (
    COMMIT,
    ELEMENTS,
    Encoding,
    commit,
    pack_flags,
    recover_secret,
    share_points,
)

CONTRIBUTE, UNMASK = "client.contribute", "protection.unmask"


def forged(scene, party, call, job, told=None, **changes):
    """What a lying coordinator sends instead: it has the channel's key, and tags what it likes."""
    call = (Message.decode(call) | (told or {})).encode()
    message = Message.decode(job).without(FIELD) | changes
    serial = Message.decode(call)["$serial"]
    context = ask_context(serial, party, hashlib.sha256(call).digest())
    return call, tagged(message, scene.coordinator.link.transport.channels[party], *context).encode()


@dataclass
class Lies:
    """Whom the victim is told to mask with, and whom each holder is told has vanished."""

    victim: str
    partners: Collection[str]
    vanished: Mapping[str, Collection[str]] = field(default_factory=dict)

    def tell(self, scene, silent=()):
        """Put them in the place of what an honest coordinator says; some are not asked for shares at all."""
        batch = scene.coordinator.protection.batch

        def recall(name, party, call, job):
            if name == CONTRIBUTE and party == self.victim:
                flags = [holder in self.partners or holder == party for holder in batch.holders[party]]
                return forged(scene, party, call, job, **{"ticket/partners": pack_flags(flags)})
            if name == UNMASK and party not in silent:
                return self._ask_to_unmask(scene, party, call, job)
            return None

        scene.tap.recall = recall
        scene.tap.lose = lambda name, party: name == UNMASK and party in silent

    def suffice(self, batch):
        """Whether enough holders are told that each partner of the victim has vanished."""
        told = [sum(partner in gone for gone in self.vanished.values()) for partner in self.partners]
        return min(told) >= batch.rules.threshold

    def _ask_to_unmask(self, scene, party, call, job):
        holders = scene.coordinator.protection.batch.holders[party]
        known = [*self.partners, party] if party == self.victim else holders
        gone = {} if party == self.victim else self.vanished.get(party, ())
        alive = [name for name in holders if name in known and name not in gone]
        told = {"survivors": len(alive)}
        return forged(scene, party, call, job, told, alive=pack_flags([name in alive for name in holders]))


def spread_lies(batch, victim):
    """Lies by which holders together give the victim's seed and the keys of all with whom it masks.

    The victim masks with as few as it accepts. Each holder is told of a list of its own, with the victim on
    it, from which as many of those partners are missing as it puts up with.
    """
    partners = batch.neighbours(victim)[: batch.rules.partners - 1]
    vanished = {name: set() for name in batch.holders}
    for partner in partners:
        room = {
            name: len(batch.holders[name]) - batch.rules.threshold - len(vanished[name])
            for name in batch.neighbours(partner)
            if name != victim
        }
        willing = sorted((name for name in room if room[name] > 0), key=lambda name: -room[name])
        for name in willing[: batch.rules.threshold]:
            vanished[name].add(partner)
    return Lies(victim, partners, vanished)


def place_of_release(party, slot):
    """What a client binds the shares to that it gives."""
    return place(manifest_digest_of(party), slot, "release", party.id, COORDINATOR)


def read_released(scene, slot=1, partners=None):
    """Rows of shares, by holder and owner, that can be read from all answers in a sum with what they confirm.

    ``partners`` are those that a client has masked with, where they are not all that dealt shares.
    """
    batch = scene.coordinator.protection.batch
    answers = {reply.party: reply.message for name, reply in scene.tap.replies if name == UNMASK}
    given = {party: message["confirms"].data for party, message in answers.items() if "confirms" in message}
    released = {}
    for party in given:
        holders = batch.holders[party]
        pads = {}
        for index, name in enumerate(holders):
            if name in given:
                start = CONFIRM * batch.holders[name].index(party)
                pads[index] = given[name][start : start + CONFIRM]
        where = place(batch.run, slot, "release", party, COORDINATOR)
        raw = unlock(answers[party]["shares"].data, len(holders), pads, batch.rules.threshold, where)
        if raw is not None:
            known = (partners or {}).get(party, batch.commits)
            rows = np.frombuffer(raw, "<u8").astype(np.uint64).reshape(-1, ELEMENTS)
            owners = [name for name in holders if name in known or name == party]
            released |= {(party, owner): row for owner, row in zip(owners, rows, strict=True)}
    return released


def open_victim(scene, lies, released, slot=1):
    """The victim's vector, as integers, from its upload and shares that holders have released.

    ``released`` are rows of shares by holder and owner: of a seed or of a key, whichever was asked for.
    """
    batch, victim = scene.coordinator.protection.batch, lies.victim
    upload = next(
        reply.message["masked"]
        for name, reply in scene.tap.replies
        if (name, reply.party) == (CONTRIBUTE, victim)
    )
    size = len(scene.rows[victim])
    encoding = Encoding(FixedPoint(np.ones(size), scene.protection.bits, batch.clients))
    words, call = encoding.read(upload, batch.run, slot)

    def shares(owner, of_key):
        told = [
            name
            for name in batch.holders[owner]
            if (name, owner) in released and (owner in lies.vanished.get(name, ())) == of_key
        ]
        holders = batch.holders[owner]
        points = share_points(holders.index(owner), np.array([holders.index(name) for name in told], np.intp))
        return points, np.array([released[name, owner] for name in told], np.uint64).reshape(-1, ELEMENTS)

    def recovered(owner, is_seed):
        expected, purpose = batch.commitment(owner, slot, is_seed), "self" if is_seed else "key"
        return recover_secret(
            *shares(owner, not is_seed),
            batch.rules.threshold,
            lambda found: commit(purpose, batch.run, owner, slot, found.reveal())[:COMMIT] == expected,
            owner,
        )

    masks = [(recovered(victim, True), -1)]
    for partner in lies.partners:
        given = batch.pair_seeds(partner, slot, recovered(partner, False), {victim})
        masks += [(seed, -sign_for(victim, partner)) for seed in bind_seeds(given[victim], call)]
    add_masks(words, masks)
    values = encoding.read_total(words, 1)
    return encoding.code.decode(encoding.read_integers(values, 1))
