"""One client of a masked sum offers a key that nobody can use, and its neighbours refuse: who is named?

All to whom the offer is shown refuse to deal. A coordinator that shows it without a look loses them, names
them as failures, and the sum stays shut. Now it refuses whoever made the offer, and the others go on.
"""

import struct
from types import SimpleNamespace

import pytest

from tacit.core.errors import TacitError
from tacit.crypto.channel import SIGNATURE
from tacit.protections.masked import Masked, dealing, keys, wire
from tacit.protections.masked.wire import Offer
from tests.helpers.masked_sums import assert_exact, rows_of

LIAR = "client-2"
OFFERS = {
    "unsigned": (lambda sign, given, offer: bytes(SIGNATURE) + offer, "is not signed by its pinned identity"),
    "weak": (lambda sign, given, offer: sign(*given, bytes(32) + offer[32:]), "a point of small order"),
}


class Unseen(Offer):
    """An offer that is read without a look at its signature."""

    @classmethod
    def from_signed(cls, signed, *_):
        return cls._make(struct.unpack("<32s32s32s32sQI", signed[SIGNATURE:]))


GRAPHS = [(6, None), (70, 26)]


@pytest.fixture(params=OFFERS)
def words(request, monkeypatch):
    """A client that lies in its offers, and in which words it is refused."""
    (lie, words), sign = OFFERS[request.param], dealing.sign_key

    def signed(identity, purpose, owner, run, offer):
        given = identity, purpose, owner, run
        return lie(sign, given, offer) if owner == LIAR else sign(*given, offer)

    monkeypatch.setattr(dealing, "sign_key", signed)
    return words


@pytest.mark.parametrize(("clients", "neighbours"), GRAPHS)
def test_control_shown_without_a_look(scene_of, words, monkeypatch, clients, neighbours):
    """Honest clients are named."""
    monkeypatch.setattr(keys, "wire", SimpleNamespace(**{**vars(wire), "Offer": Unseen}))
    monkeypatch.setattr(keys, "pair_key", lambda *_: None)
    scene = scene_of(Masked(neighbours=neighbours), rows_of(clients), quorum=0.5)
    with pytest.raises(TacitError):
        scene.begin().total()
    assert len({*scene.coordinator.failures} - {LIAR}) >= (neighbours or clients - 1)


@pytest.mark.parametrize(("clients", "neighbours"), GRAPHS)
def test_the_liar_is_refused_and_the_others_go_on(scene_of, words, clients, neighbours):
    scene = scene_of(Masked(neighbours=neighbours), rows_of(clients), quorum=0.5).begin()
    assert_exact(scene, scene.total(), {LIAR})
    assert [*scene.coordinator.failures] == [LIAR]
    assert words in str([event for event in scene.told if getattr(event, "party", "") == LIAR])
