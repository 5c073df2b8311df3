"""Replies and tickets of masked sums that nobody would write: the sum goes on without whoever sent them.

A client answers with fields of other lengths, kinds or numbers than agreed, and the coordinator must count it
as vanished. A coordinator writes tickets that fit nothing, and a client must refuse in words.
"""

import re
from dataclasses import dataclass

import numpy as np
import pytest

from tacit.core.marks import step
from tacit.core.message import Message
from tacit.core.values import Blob
from tacit.protections.masked import Masked
from tacit.protections.masked.client import MaskedClient
from tacit.protections.masked.dealing import Dealer
from tests.helpers.lying import CONTRIBUTE, forged
from tests.helpers.masked_sums import rows_of

LIAR, VICTIM = "client-2", "client-4"
CHANGES = {
    "missing": lambda blob: None,
    "no blob": lambda blob: 7,
    "empty": lambda blob: Blob(blob.kind, b""),
    "short": lambda blob: Blob(blob.kind, blob.data[:-1]),
    "long": lambda blob: Blob(blob.kind, blob.data + bytes(24)),
    "another kind": lambda blob: Blob("cipher", blob.data),
}
NUMBERS = {
    "ones": lambda blob: Blob(blob.kind, b"\xff" * len(blob.data)),  # beyond the prime
    "zeros": lambda blob: Blob(blob.kind, bytes(len(blob.data))),
}


@dataclass(frozen=True)
class Odd(Masked):
    """One client whose replies to a step have another field than agreed."""

    where: str = ""
    field: str = ""
    change: str = ""

    def at_client(self, party):
        return OddClient(self, party) if party.id == LIAR else MaskedClient(self, party)

    def spoil(self, where, reply):
        if where != self.where:
            return reply
        value = (CHANGES | NUMBERS)[self.change](reply[self.field])
        rest = reply.without(self.field)
        return rest if value is None else rest | {self.field: value}


class OddClient(MaskedClient):
    def __init__(self, settings, party):
        super().__init__(settings, party)
        self.dealer = OddDealer(settings, party)

    def protect(self, ticket, vector, layout):
        return self.settings.spoil("protect", super().protect(ticket, vector, layout))

    @step
    def unmask(self, message):
        return self.settings.spoil("unmask", super().unmask(message))


class OddDealer(Dealer):
    @step
    def offer(self, message):
        return self.settings.spoil("offer", super().offer(message))

    @step
    def deal(self, message):
        return self.settings.spoil("deal", super().deal(message))


FIELDS = [
    ("offer", "offer"),
    *(("deal", name) for name in ("shares", "commits", "deposits")),
    *(("protect", name) for name in ("masked", "tag")),
    *(("unmask", name) for name in ("shares", "confirms")),
]


@pytest.mark.parametrize(("where", "field"), FIELDS)
def test_who_replies_so_has_vanished_and_the_sum_goes_on(scene_of, where, field):
    for change in (*CHANGES, *(NUMBERS if where == "unmask" else ())):
        odd = Odd(opens="clients", where=where, field=field, change=change)
        scene = scene_of(odd, rows_of(5), quorum=0.5).begin()
        lost = () if where == "unmask" else (LIAR,)  # then it arrived, and others hold its shares
        total = scene.total()
        assert np.allclose(total["vector"], scene.expected(lost), atol=1e-6), change
        assert set(scene.coordinator.failures) == set(lost), change


TICKETS = {
    "no derived": {"ticket/derived": None},
    "derived of another length": {"ticket/derived": bytes(2)},
    "derived of another kind": {"ticket/derived": 3},
    "nothing derived": {"ticket/derived": bytes(1)},
    "derived and not dealt": {"ticket/derived": b"\xff", "ticket/dealt": bytes(1)},
    "no dealt": {"ticket/dealt": None},
    "no shares": {"ticket/shares": None},
    "no bytes of shares": {"ticket/shares": Blob("sealed", b"")},
    "a few bytes of shares": {"ticket/shares": Blob("sealed", bytes(5))},
    "shares of another kind": {"ticket/shares": b"1"},
    "no partners": {"ticket/partners": None},
    "partners of another length": {"ticket/partners": b""},
}


@pytest.mark.parametrize("lie", TICKETS)
def test_such_a_ticket_is_refused_in_words_and_a_right_one_still_serves(scene_of, lie):
    scene = scene_of(Masked(), rows_of(5), quorum=0.5).begin()
    holders = scene.coordinator.protection.batch.find_shares(VICTIM)
    assert any(holders[1]) and holders[2], "it has shares of both kinds"

    def recall(name, party, call, job):
        if (name, party) != (CONTRIBUTE, VICTIM):
            return None
        told = {field: value for field, value in TICKETS[lie].items() if value is not None}
        kept = [item for item in Message.decode(job).items() if TICKETS[lie].get(item[0], True) is not None]
        return forged(scene, party, call, Message(dict(kept)).encode(), **told)

    scene.tap.recall = recall
    assert np.allclose(scene.total()["vector"], scene.expected([VICTIM]), atol=1e-6)
    assert re.match("(Message|MissingField|Protection)Error: ", scene.coordinator.failures[VICTIM])
    scene.tap.recall = lambda *ask: None
    assert np.allclose(scene.total()["vector"], scene.expected(), atol=1e-6)
