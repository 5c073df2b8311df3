"""A coordinator that chooses who votes chooses the committee.

It shows the victim a ballot of three: the victim and two friends. All three are elected, two open a total,
and the friends open whatever the victim deals from then on.
"""

import re

import numpy as np
import pytest

from tacit.core.errors import OpeningError
from tacit.core.pending_sum import PendingSum
from tacit.crypto.channel import sign_key, unseal
from tacit.crypto.field import from_field
from tacit.crypto.fixedpoint import FixedPoint
from tacit.protections.keys.authenticated import manifest_digest_of, sealing_key, stack_rows
from tacit.protections.secret_sharing import election
from tacit.protections.secret_sharing.committee import Committee
from tacit.protections.secret_sharing.election import Voter, choose_voters
from tacit.protections.secret_sharing.share_round import ShareRound
from tacit.protections.secret_sharing.wire import (
    OVERHEAD,
    names_from_bytes,
    names_to_bytes,
    words_from_bytes,
)
from tests.helpers.shares import Share, recover_vector

CLIENTS = [f"client-{index + 1:02}" for index in range(16)]
ROWS = dict(zip(CLIENTS, np.random.default_rng(8).uniform(-1, 1, size=(16, 4)), strict=True))
VICTIM, FRIENDS = "client-01", ("client-02", "client-03")
CHOSEN = [VICTIM, *FRIENDS]


def made(scene_of, **settings):
    scene = scene_of(Committee(opens="coordinator"), ROWS, **settings)
    scene.coordinator.enrol()
    return scene


def ballot_of(scene, names, draw=1):
    signed = stack_rows(scene.coordinator.protection.election.commitments, names)
    return {"draw": draw, "names": names_to_bytes(names), "commitments": signed}


def elected_by(scene, names):
    """Let these clients vote; return what the election can be checked with, or why some did not vote."""
    ballot, failures = ballot_of(scene, names), {}
    replies = dict(scene.coordinator.link.ask(Voter.reveal, ballot, parties=names, failures=failures))
    if failures:
        return None, failures
    nonces = {name: reply["nonce"].data for name, reply in replies.items()}
    return {**ballot, "nonces": stack_rows(nonces, names)}, failures


def read_victim(scene, evidence):
    """Have the victim deal shares to the committee of choice, and open them with the friends' keys."""
    directory, run = scene.coordinator.protection.directory, scene.coordinator.manifest.digest
    committee, layout = drawn(scene, evidence), scene.components.method._layout(None)
    share_round = ShareRound("shamir", 1, 1, committee, 2)
    pending = PendingSum(scene.coordinator.link, 1, "method", "vector", layout, tuple(CLIENTS))
    exchanges = stack_rows(directory, committee)
    common = {"holders": names_to_bytes(committee), "exchanges": exchanges, "lap": 1, "summands": 16}
    reply = dict(pending.contributions({VICTIM: evidence}, common, [VICTIM]))[VICTIM]
    sealed, size, shares = reply["shares"].data, 8 * (layout.size + 1) + OVERHEAD, []  # values and tag
    for at, friend in enumerate(name for name in committee if name != VICTIM):
        key = sealing_key(scene.site(friend), VICTIM, directory[VICTIM])
        where = share_round.share_place(run, VICTIM, friend)
        piece = unseal(key, sealed[at * size : (at + 1) * size], where)
        shares.append(Share(committee.index(friend) + 1, words_from_bytes(piece)))
    return FixedPoint(np.ones(layout.size), 32, 16).decode(from_field(recover_vector(shares, 2)[:-1]))


def drawn(scene, evidence):
    names = names_from_bytes(evidence["names"])
    nonces = [row.tobytes() for row in evidence["nonces"]]
    seed = election.draw_seed(scene.coordinator.manifest.digest, 1, nonces)
    return election.draw_members(seed, names, 3)


@pytest.mark.parametrize("least", [12, 3])
class TestThreeOfSixteen:
    def test_without_the_rule_two_friends_read_the_victim(self, scene_of, monkeypatch, least):
        monkeypatch.setattr(Voter, "_check_electorate", lambda self, names: None)
        scene = made(scene_of, min_clients=least)
        evidence, _ = elected_by(scene, CHOSEN)
        assert np.abs(read_victim(scene, evidence) - ROWS[VICTIM]).max() < 1e-8

    def test_with_the_rule_it_reveals_nothing(self, scene_of, least):
        scene = made(scene_of, min_clients=least, quorum=0.75)
        evidence, failures = elected_by(scene, CHOSEN)
        assert evidence is None
        assert "OpeningError: an election by 3 clients, agreed were at least 12" in failures[VICTIM]
        assert "draw" not in scene.site(VICTIM).state

    def test_nor_does_it_take_part_in_what_others_elected(self, scene_of, least, monkeypatch):
        """Shown an election in which it had no vote, as if there were too many clients for that."""
        scene = made(scene_of, min_clients=least, quorum=0.75)
        others = CLIENTS[1:4]
        with monkeypatch.context() as patch:
            patch.setattr(Voter, "_check_electorate", lambda self, names: None)
            evidence, _ = elected_by(scene, others)
        monkeypatch.setattr(election, "rank", lambda run, name: b"z" if name == VICTIM else b"a")
        with pytest.raises(OpeningError, match="agreed were at least 12"):
            Committee(opens="coordinator").at_client(scene.site(VICTIM)).voter.find_committee(evidence)


def test_min_clients_bounds_what_the_quorum_does_not(scene_of):
    scene = made(scene_of, min_clients=12, quorum=0.1)
    _, failures = elected_by(scene, CLIENTS[:11])
    assert "an election by 11 clients, agreed were at least 12" in failures[VICTIM]
    assert elected_by(scene, CLIENTS[:12])[0] is not None


def test_of_very_many_clients_those_vote_whose_names_rank_lowest(scene_of, monkeypatch):
    """Else the coordinator would fill the electorate with its friends."""
    monkeypatch.setattr(election, "ELECTORATE", 4)
    scene = made(scene_of, min_clients=3, quorum=0.75)
    run = scene.coordinator.manifest.digest
    ranked = sorted(CLIENTS, key=lambda name: election.rank(run, name))
    _, failures = elected_by(scene, sorted([*ranked[:3], ranked[-1]]))
    assert "rank behind 8 others, though only 4 may be absent" in failures[ranked[0]]
    assert elected_by(scene, choose_voters(CLIENTS, run, 4))[0] is not None


@pytest.mark.parametrize("draw", [float("nan"), 1.0, True, "1", -1, 0, 2**63, None])
def test_a_draw_that_is_no_number(scene_of, draw):
    scene = made(scene_of, min_clients=3)
    failures = {}
    ballot = ballot_of(scene, CLIENTS, draw)
    list(scene.coordinator.link.ask(Voter.reveal, ballot, parties=[VICTIM], failures=failures))
    assert re.match(r"MessageError: (field )?'draw' is", failures[VICTIM])


MALLORY = "client-05"


@pytest.mark.parametrize("draw", [0, 1])
def test_a_commitment_of_another_length_leaves_its_client_out(scene_of, monkeypatch, draw):
    """They travel as rows of a table, also the one of the next draw, which comes with the number."""
    with pytest.raises(ValueError, match="cannot reshape array"):  # the control
        stack_rows({"ann": bytes(96), "bob": bytes(97)}, ["ann", "bob"])
    proper = Voter.commit

    def commit(self):
        party, run = self._party, manifest_digest_of(self._party)
        if party.id == MALLORY and (draw == 0 or "nonce" in party.vault):
            return sign_key(party.identity, "commitment", party.id, run, bytes(33))
        return proper(self)

    monkeypatch.setattr(Voter, "commit", commit)
    scene = scene_of(Committee(opens="coordinator"), ROWS, quorum=0.5).begin()
    assert MALLORY not in scene.coordinator.parties and len(scene.coordinator.parties) == 15
    assert scene.coordinator.protection.election.draw == 1 + draw
