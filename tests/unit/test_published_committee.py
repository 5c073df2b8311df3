"""Two-Phase MPC as published: votes elect the committee, and a member tells all clients the total."""

import numpy as np
import pytest

from tacit.core.errors import ConfigError, FederationError, OpeningError, ProtectionError, QuorumError
from tacit.core.values import Blob
from tacit.crypto.fixedpoint import FixedPoint
from tacit.ledger.cost import CostLedger
from tacit.protections.secret_sharing import votes
from tacit.protections.secret_sharing.committee import Committee, CommitteeClient
from tacit.protections.secret_sharing.votes import most_votes, read_tally, round_of
from tacit.protections.secret_sharing.wire import names_from_bytes, words_from_bytes

PUBLISHED = Committee(scheme="additive", published=True)


def rows_of(clients, size=5):
    values = np.random.default_rng(clients).uniform(-1, 1, size=(clients, size))
    return {f"client-{index + 1}": row for index, row in enumerate(values)}


def exact(rows):
    code = FixedPoint(np.ones(5), 32, len(rows))
    return code.decode(np.sum([code.encode(row) for row in rows.values()], axis=0)).tolist()


def total_of(scene):
    return scene.coordinator.reveal(scene.components.method.vector)


def relayed_by(scene_of, clients, rounds):
    """Messages between clients, elections included and the clients' key left out."""
    ledger = CostLedger()
    scene = scene_of(PUBLISHED, rows_of(clients), subscriber=ledger).begin()
    for _ in range(rounds):
        scene.round()
    return ledger.summary()["messages_by_route"]["client→client"] - (clients - 1)


@pytest.mark.parametrize("clients", [2, 3, 7])
def test_totals_are_exact_and_every_client_finds_the_same_committee(scene_of, clients):
    scene = scene_of(PUBLISHED, rows_of(clients), engine={"cold": True}).begin()
    assert scene.total()["vector"].tolist() == exact(scene.rows)
    scene.round()
    members = "\n".join(scene.coordinator.protection.election.members).encode()
    assert {scene.site(name).state["committee"] for name in scene.rows} == {members}
    scene.finish()


def test_messages_are_those_of_the_paper(scene_of):
    """1,470 for 16 clients and 15 rounds; the survey's formula, 1,530, counts messages to oneself."""
    assert relayed_by(scene_of, 16, 15) == 1470
    n, k = 9, 3
    assert relayed_by(scene_of, n, 2) == 2 * n * (n - 1) + 2 * ((k + 1) * (n - 1) + k * (k - 1))


def test_whoever_has_most_votes_is_elected(scene_of, monkeypatch):
    """The leak of the published rule: colluders that vote for each other take the seats."""
    friends = ("client-2", "client-5", "client-7")

    def cast(own, names):
        if own in friends:
            return np.array([(2**32 - 1) * (name in friends) for name in names])
        return proper(own, names) // 2

    proper = votes.cast_votes
    monkeypatch.setattr(votes, "cast_votes", cast)
    scene = scene_of(PUBLISHED, rows_of(9)).begin()
    assert {*scene.coordinator.protection.election.members} == {*friends}


def test_nobody_sees_how_others_voted(scene_of):
    """What each party hears of votes are sealed shares for others, its own shares, and sums over all."""
    scene = scene_of(PUBLISHED, rows_of(4)).begin()
    evidence, run = scene.coordinator.protection.election.evidence, scene.coordinator.manifest.digest
    names = names_from_bytes(evidence["names"])
    rows = [
        read_tally(row.tobytes(), scene.site(name).pinned(name), name, run, round_of(1, names))
        for name, row in zip(names, evidence["tallies"], strict=True)
    ]
    sums = np.sum(rows, axis=0, dtype=np.uint64)
    assert (sums < 3 * 2**32).all(), "votes of three others are 32 bits each"
    assert all((row > 2**40).any() for row in rows), "what one client has added up is uniform in 64 bits"
    assert all("votes" not in scene.site(name).vault for name in names), (
        "shares are kept no longer than needed"
    )


def test_who_does_not_vote_is_out(scene_of):
    for step in ("protection.vote", "protection.add_votes"):
        scene = scene_of(PUBLISHED, rows_of(6), quorum=0.5)
        scene.tap.lose = lambda asked, party, step=step: (asked, party) == (step, "client-2")
        scene.begin()
        assert scene.coordinator.protection.election.draw == 2
        assert "client-2" not in scene.coordinator.parties


def test_if_the_first_member_does_not_tell_the_next_one_does(scene_of):
    scene = scene_of(PUBLISHED, rows_of(6)).begin()
    first = scene.coordinator.protection.election.members[0]
    scene.tap.lose = lambda step, party: step == "protection.announce" and party == first
    assert total_of(scene)["vector"].tolist() == exact(scene.rows)
    scene.tap.lose = lambda step, party: step == "protection.announce"
    with pytest.raises(QuorumError, match="no member of the committee put the total together"):
        total_of(scene)


def test_a_member_that_vanishes_has_another_committee_elected(scene_of):
    scene = scene_of(PUBLISHED, rows_of(8), quorum=0.5).begin()
    silent = scene.coordinator.protection.election.members[1]
    scene.tap.lose = lambda step, party: step == "protection.hold" and party == silent
    left = {name: row for name, row in scene.rows.items() if name != silent}
    assert total_of(scene)["vector"] == pytest.approx(np.sum([*left.values()], axis=0), abs=1e-7)
    assert scene.coordinator.protection.election.draw == 2


def test_a_member_that_tells_another_total_is_found_out(scene_of, monkeypatch):
    """The total proves itself by its tag, whoever put it together."""
    proper = CommitteeClient.read_partials

    def read(self, total, words, needed):
        points, rows = proper(self, total, words, needed)
        if needed > 1:  # at the member; a client that opens needs one
            rows[0][0] += np.uint64(1)
        return points, rows

    monkeypatch.setattr(CommitteeClient, "read_partials", read)
    scene = scene_of(PUBLISHED, rows_of(5)).begin()
    with pytest.raises((QuorumError, FederationError, OpeningError)):
        scene.total()


class TestRefusals:
    def ballot(self, scene, names=None, draw=1):
        names = sorted(scene.rows) if names is None else names
        directory = scene.coordinator.protection.directory
        rows = np.frombuffer(b"".join(directory[name] for name in names), np.uint8).reshape(len(names), -1)
        return {"draw": draw, "names": "\n".join(names).encode(), "exchanges": rows}

    def voter(self, scene, name="client-1"):
        return PUBLISHED.at_client(scene.site(name)).voter

    def test_ballots_of_the_coordinators_choice(self, scene_of):
        scene = scene_of(PUBLISHED, rows_of(5))
        scene.coordinator.enrol()
        names = sorted(scene.rows)
        voter = self.voter(scene)
        with pytest.raises(OpeningError, match="draw 4, after draw 0 and with 3 agreed"):
            voter.vote(self.ballot(scene, draw=4))
        with pytest.raises(ProtectionError, match="not sorted, or names a client twice"):
            voter.vote(self.ballot(scene, names[::-1]))
        with pytest.raises(OpeningError, match="an election by 2 clients"):
            voter.vote(self.ballot(scene, names[:2]))
        with pytest.raises(ProtectionError, match="a ballot that is not its own"):
            voter.vote(self.ballot(scene, names[1:]))

    def test_votes_are_added_up_once_and_only_of_the_draw(self, scene_of):
        scene = scene_of(PUBLISHED, rows_of(4)).begin()
        ballot = self.ballot(scene) | {"votes": Blob("sealed", bytes(3 * 60))}
        with pytest.raises(OpeningError, match="or told its sum already"):
            self.voter(scene).add_votes(ballot)
        with pytest.raises(OpeningError, match="has not voted in this draw"):
            self.voter(scene).add_votes(ballot | {"draw": 2})

    def test_an_election_with_another_sum_is_refused(self, scene_of):
        scene = scene_of(PUBLISHED, rows_of(5)).begin()
        evidence = scene.coordinator.protection.election.evidence
        tallies = evidence["tallies"].copy()
        tallies[2, -9] ^= 1
        scene.coordinator.protection.election.evidence = evidence | {"tallies": tallies}
        with pytest.raises(QuorumError, match="not signed by its pinned identity"):
            scene.total()
        scene.coordinator.protection.election.evidence = evidence | {"tallies": tallies[:3]}
        with pytest.raises(QuorumError, match="sums of 3 voters, there are 5"):
            scene.total()

    def test_members_tell_only_totals_of_their_own_sums(self, scene_of):
        scene = scene_of(PUBLISHED, rows_of(6)).begin()
        scene.total()
        members = scene.coordinator.protection.election.members
        other = next(name for name in scene.rows if name not in members)
        ask = {"total/number": 9, "total/partials": Blob("sealed", b""), "total/points": np.array([1])}
        with pytest.raises(ProtectionError, match="no member of the committee"):
            PUBLISHED.at_client(scene.site(other)).announce(ask)
        with pytest.raises(OpeningError, match="of which it told no partial sum"):
            PUBLISHED.at_client(scene.site(members[0])).announce(ask)

    @pytest.mark.parametrize("settings", [{}, {"scheme": "additive", "opens": "coordinator"}])
    def test_settings_that_the_paper_does_not_have(self, settings):
        with pytest.raises(ConfigError, match="shares are additive, and its totals open at the clients"):
            Committee(published=True, **settings)


def test_a_tally_of_another_draw_is_refused(scene_of):
    scene = scene_of(PUBLISHED, rows_of(4)).begin()
    evidence, run = scene.coordinator.protection.election.evidence, scene.coordinator.manifest.digest
    name, row = names_from_bytes(evidence["names"])[0], evidence["tallies"][0].tobytes()
    with pytest.raises(ProtectionError, match="the votes of another election"):
        read_tally(row, scene.site(name).pinned(name), name, run, round_of(2, [*scene.rows]))


def test_equal_votes_go_by_name():
    rows = [words_from_bytes(np.array([5, 5, 7], "<u8").tobytes())]
    assert most_votes(rows, ["ann", "bob", "eve"], 2) == ("eve", "ann")
