"""A federation of its own for the victim: fewer clients, so that fewer shares open its masks.

Thresholds follow from the number of clients, and hold among these clients only. A coordinator that tells one
client of five and the others of nine has the victim deal shares of which four open, not six. All keys are
therefore bound to one list of members, which each client sees.
"""

import numpy as np
import pytest

from tacit.core.errors import QuorumError
from tacit.core.message import Message
from tacit.crypto.channel import SIGNATURE, sign_key
from tacit.protections.masked import Masked, dealing
from tacit.protections.masked.dealing import Dealer
from tacit.protections.masked.wire import OFFERED, SIGNED_OFFER
from tests.helpers.lying import forged

OFFER, DEAL = "protection.offer", "protection.deal"
VICTIM = "client-2"
FEW = [f"client-{number}" for number in range(1, 6)]


def rows_of(clients, size=5):
    rows = np.random.default_rng(clients).uniform(-1, 1, size=(clients, size))
    return {f"client-{index + 1}": row for index, row in enumerate(rows)}


def tell_of_few(scene):
    """Tell the victim that five of nine take part."""

    def recall(name, party, call, job):
        if party != VICTIM or name not in (OFFER, DEAL):
            return None
        if name == OFFER:
            told = {"clients": len(FEW), "members": "\n".join(FEW).encode()}
            return forged(scene, party, call, job, told)
        message = Message.decode(job)
        names, offers = message["names"].decode().split("\n"), message["offers"]
        offer = len(offers) // len(names)
        chosen = [index for index, other in enumerate(names) if other in FEW]
        shown = b"".join(offers[offer * index : offer * (index + 1)] for index in chosen)
        few = "\n".join(names[index] for index in chosen).encode()
        return forged(scene, party, call, job, names=few, offers=shown)

    scene.tap.recall = recall


def test_control_without_the_list(scene_of, monkeypatch):
    monkeypatch.setattr(
        dealing, "check_members", lambda settings, party, message, clients: message["members"]
    )
    scene = scene_of(Masked(), rows_of(9), quorum=0.5)
    tell_of_few(scene)
    scene.begin()
    known = scene.site(VICTIM).state
    assert known["mask/names"] == b"client-1\nclient-3\nclient-4\nclient-5"  # it has dealt, to these
    assert scene.protection.rules(known["mask/clients"]).threshold == 4
    assert scene.coordinator.protection.batch.rules.threshold == 6


def test_another_list_than_keys_are_bound_to_is_refused(scene_of):
    scene = scene_of(Masked(), rows_of(9), quorum=0.5)
    tell_of_few(scene)
    scene.begin()
    assert "another than the one that keys are bound to" in scene.coordinator.failures[VICTIM]


@pytest.mark.parametrize("members", [[*FEW, "client-1"], FEW[::-1], FEW[2:], ["client-1", "client-3"]])
def test_a_list_that_is_none_is_refused(scene_of, members):
    scene = scene_of(Masked(), rows_of(9))
    scene.coordinator.enrol()
    common = {"first": 1, "sums": 1, "clients": 5, "root": bytes(32), "members": "\n".join(members).encode()}
    with pytest.raises(QuorumError, match="each stands there once, in order"):
        list(scene.coordinator.ask(Dealer.offer, common, None, [VICTIM]))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("root", "an offer for another batch of sums: somebody was told something else"),
        ("name", "clients that are not on the list of members"),
    ],
)
def test_offers_from_another_federation_are_refused(scene_of, change, reason):
    scene = scene_of(Masked(), rows_of(9), quorum=0.5)

    def recall(name, party, call, job):
        if (name, party) != (DEAL, VICTIM):
            return None
        message = Message.decode(job)
        offers, names = message["offers"], message["names"]
        if change == "root":  # as if one of the others had been told of other members
            offer = offers[SIGNATURE:SIGNED_OFFER]
            told, run = offer[:32] + bytes(32) + offer[64:], scene.coordinator.link.manifest.digest
            signed = sign_key(scene.site("client-1").identity, OFFERED, "client-1", run, told)
            offers = signed + offers[SIGNED_OFFER:]
        else:
            names = names.replace(b"client-9", b"client-90")
        return forged(scene, party, call, job, names=names, offers=offers)

    scene.tap.recall = recall
    scene.begin()
    assert reason in scene.coordinator.failures[VICTIM]
