"""Two-Phase MPC: an election that nobody steers, and sums by the committee it gives."""

import itertools
from math import comb, sqrt
from unittest import mock

import numpy as np
import pytest

from benchmarks.sums import simulate_elections
from tacit.core.errors import (
    ConfigError,
    FederationError,
    OpeningError,
    ProtectionError,
    QuorumError,
    TacitError,
)
from tacit.core.message import Message
from tacit.crypto.channel import checked_key, pair_key, unseal
from tacit.crypto.field import to_field
from tacit.crypto.fixedpoint import FixedPoint
from tacit.federation import Federation
from tacit.ledger.cost import CostLedger
from tacit.protections.secret_sharing import election
from tacit.protections.secret_sharing.committee import Committee, CommitteeClient
from tacit.protections.secret_sharing.election import Voter, commitment, draw_members, draw_seed
from tacit.protections.secret_sharing.share_relay import ShareRelay
from tacit.protections.secret_sharing.share_round import ShareRound
from tacit.protections.secret_sharing.shares import SharesClient
from tacit.protections.secret_sharing.wire import OVERHEAD, names_from_bytes, words_from_bytes
from tests.helpers.shares import Share, recover_vector

ALL = [
    Committee(scheme=scheme, opens=opens)
    for scheme in ("shamir", "additive")
    for opens in ("clients", "coordinator")
]
SHAMIR = ALL[:2]


def ids(protection):
    return f"{protection.scheme}-{protection.opens}"


def rows_of(clients, size=7, seed=0):
    values = np.random.default_rng(seed).uniform(-1, 1, size=(clients, size))
    return {f"client-{index + 1}": row for index, row in enumerate(values)}


def exact(rows, names):
    """The sum in fixed point, to the last bit."""
    code = FixedPoint(np.ones(len(next(iter(rows.values())))), 32, len(rows))
    return code.decode(np.sum([code.encode(rows[name]) for name in names], axis=0)).tolist()


def election_of(scene):
    return scene.coordinator.protection.election


def members_of(scene):
    return election_of(scene).members


def total_of(scene):
    return scene.coordinator.reveal(scene.components.method.vector)


def message_counts(clients: int, members: int, rounds: int) -> dict[str, dict[str, int]]:
    """Messages of peer-to-peer and Two-Phase MPC, by the survey's formulas and as the ledger counts ours.

    Ours are messages between clients where totals open at the clients, in sums over all of them; one message
    for each other client once, with the clients' key; and, for the election, one list of commitments to
    each client and one number from it (commitments ride on enrolment, numbers on the first sum).
    The survey's Two-Phase count has (K - 1)² messages a round too many; ``corrected`` is without them.

    Examples
    --------
    >>> counts = message_counts(16, 3, 15)
    >>> counts["shares"]["survey"], counts["committee"]["survey"], counts["committee"]["corrected"]
    (7200, 1530, 1470)
    >>> counts["shares"]["ours"], counts["committee"]["ours"], counts["committee"]["election"]
    (7215, 1365, 32)
    """
    n, k = clients, min(members, clients)
    once = 2 * n * (n - 1)
    survey = once + rounds * (n * k + k * (k - 1) + n)
    return {
        "shares": {"survey": rounds * once, "ours": rounds * once + n - 1},
        "committee": {
            "survey": survey,
            "corrected": survey - rounds * (k - 1) ** 2,
            "ours": 2 * rounds * k * (n - 1) + n - 1,
            "election": 2 * n,
        },
    }


@pytest.mark.parametrize("protection", ALL, ids=ids)
class TestSums:
    @pytest.mark.parametrize("clients", [2, 3, 8])
    def test_are_exact_in_fixed_point(self, protection, summed, clients):
        rows = rows_of(clients)
        assert summed(protection, rows, bound=1.0)["vector"].tolist() == exact(rows, rows)

    def test_of_cold_parties_and_in_many_batches(self, protection, scene_of, monkeypatch):
        monkeypatch.setattr(ShareRelay, "batch_bytes", 700)
        scene = scene_of(protection, rows_of(6), engine={"cold": True, "keep_replies": True}).begin()
        assert scene.total()["vector"].tolist() == exact(scene.rows, scene.rows)
        scene.round()
        scene.finish()

    def test_members_serve_in_sums_over_others(self, protection, scene_of):
        scene = scene_of(protection, rows_of(7)).begin()
        others = [name for name in scene.rows if name not in members_of(scene)]
        method = scene.components.method
        assert scene.coordinator.round(method.vector, method.keep, parties=others) == tuple(others)
        assert total_of(scene)["vector"].tolist() == exact(scene.rows, scene.rows)
        scene.finish()

    def test_clients_that_vanish_are_left_out(self, protection, summed):
        rows = rows_of(6)
        for lost in itertools.combinations(rows, 3):
            total = summed(protection, rows, bound=1.0, lost=lost, quorum=0.5)
            assert total["vector"].tolist() == exact(rows, [name for name in rows if name not in lost])

    def test_learn_what_plain_sums_learn(self, protection, table):
        federation = Federation.embedded(table, clients=5, test=None, seed=3)
        ours, plain = (
            federation.train("fedheonn", protect=protect, min_clients=2) for protect in (protection, "plain")
        )
        assert np.allclose(ours.model.weights, plain.model.weights, atol=1e-5)

    def test_the_ledger_counts_what_the_formula_says(self, protection, scene_of):
        ledger = CostLedger()
        scene = scene_of(protection, rows_of(7), subscriber=ledger).begin()
        scene.round(), scene.round()
        relayed = ledger.summary()["messages_by_route"]["client→client"]
        here = protection.opens == "clients"
        assert relayed == (message_counts(7, 3, 2)["committee"]["ours"] if here else 2 * 3 * 6)
        reveal = [wave for wave in ledger.summary()["waves"] if wave["step"] == "protection.reveal"]
        assert sum(2 * wave["replies"] for wave in reveal) == message_counts(7, 3, 2)["committee"]["election"]

    def test_upload_of_long_vectors_costs_what_is_promised(self, protection, scene_of):
        def upload(size):
            ledger = CostLedger()
            scene_of(protection, rows_of(5, size), subscriber=ledger).begin().round()
            return np.array(ledger.summary()["per_client"]["bytes_up"])

        found = (upload(4096) - upload(2048)) / 2048
        assert found == pytest.approx(protection.promises.bytes_per_value, rel=0.01)


class TestVanishingMembers:
    @pytest.mark.parametrize("protection", SHAMIR, ids=ids)
    @pytest.mark.parametrize("step", ["client.contribute", "protection.hold"])
    def test_one_of_three_is_not_missed(self, protection, step, scene_of):
        for place in range(3):
            scene = scene_of(protection, rows_of(6)).begin()
            silent = members_of(scene)[place]
            scene.tap.lose = lambda asked, party, silent=silent: asked == step and party == silent
            left = [name for name in scene.rows if step == "protection.hold" or name != silent]
            assert total_of(scene)["vector"].tolist() == exact(scene.rows, left)
            assert election_of(scene).draw == 1

    @pytest.mark.parametrize("protection", ALL, ids=ids)
    @pytest.mark.parametrize("step", ["client.contribute", "protection.hold"])
    def test_without_two_another_committee_is_elected(self, protection, step, scene_of):
        class Counted(dict):
            asked = 0

            def __getitem__(self, name):
                type(self).asked += 1
                return super().__getitem__(name)

        scene = scene_of(protection, Counted(rows_of(8)), quorum=0.5).begin()
        Counted.asked, silent = 0, members_of(scene)[:2]
        scene.tap.lose = lambda asked, party: asked == step and party in silent
        total = total_of(scene)
        left = [name for name in scene.rows if name not in silent]
        assert Counted.asked == (8 if step == "protection.hold" else 6)  # nobody computes twice
        assert total["vector"].tolist() == exact(dict(scene.rows), left)
        assert election_of(scene).draw == 2
        assert not {*members_of(scene)} & {*silent}

    def test_when_the_agreed_draws_are_used_up_it_stops(self, scene_of):
        scene = scene_of(Committee(draws=2), rows_of(8), quorum=0.2).begin()
        scene.tap.lose = lambda step, party: step == "protection.hold"
        with pytest.raises(FederationError, match="after 2 draws"):
            total_of(scene)
        assert not [reply for _, reply in scene.tap.replies if "partial" in reply.message]

    def test_no_member_tells_a_sum_over_fewer_than_agreed(self, scene_of, monkeypatch):
        monkeypatch.setattr("tacit.core.pending_sum.PendingSum.check", lambda *anything: None)
        scene = scene_of(ALL[1], rows_of(6), min_clients=4).begin()
        others = [name for name in scene.rows if name not in members_of(scene)]
        scene.tap.lose = lambda step, party: step == "client.contribute" and party in others
        with pytest.raises(TacitError):
            total_of(scene)
        assert not [reply for _, reply in scene.tap.replies if "partial" in reply.message]


class TestElection:
    def test_every_client_finds_the_same_committee(self, scene_of):
        scene = scene_of(ALL[0], rows_of(9)).begin()
        scene.round()
        found = {scene.site(name).state["committee"] for name in scene.rows}
        assert found == {"\n".join(members_of(scene)).encode()}

    def test_it_follows_from_all_numbers(self, scene_of):
        scene = scene_of(ALL[1], rows_of(5)).begin()
        evidence, run = election_of(scene).evidence, scene.coordinator.manifest.digest
        nonces = [row.tobytes() for row in evidence["nonces"]]
        assert draw_members(draw_seed(run, 1, nonces), names_from_bytes(evidence["names"]), 3) == members_of(
            scene
        )
        for index in range(5):
            other = [*nonces]
            other[index] = bytes(32)
            assert draw_seed(run, 1, other) != draw_seed(run, 1, nonces)

    def test_no_number_is_known_before_all_have_committed(self, scene_of):
        scene = scene_of(ALL[1], rows_of(4))
        scene.coordinator.enrol()
        heard = b"".join(scene.received("coordinator"))
        for name in scene.rows:
            nonce = scene.site(name).vault["nonce"].reveal()
            assert nonce not in heard
            assert commitment(scene.coordinator.manifest.digest, name, nonce) in heard

    def test_who_withholds_is_out_and_the_others_draw_anew(self, scene_of):
        scene = scene_of(ALL[0], rows_of(6), quorum=0.5)
        first = {}

        def rewrite(step, party, message):
            if step == "protection.reveal":
                first.setdefault(party, message["nonce"].data)

        scene.tap.rewrite = rewrite
        scene.tap.lose = lambda step, party: (step, party) == ("protection.reveal", "client-2")
        scene.begin()
        assert election_of(scene).draw == 2
        assert "client-2" not in scene.coordinator.parties
        assert "client-2" not in members_of(scene)
        # What was heard in the void draw is of no use in the next.
        second = {row.tobytes() for row in election_of(scene).evidence["nonces"]}
        assert len(second) == 5
        assert not second & {*first.values()}
        scene.tap.lose = lambda step, party: False
        left = [name for name in scene.rows if name != "client-2"]
        assert total_of(scene)["vector"].tolist() == exact({name: scene.rows[name] for name in left}, left)
        method = scene.components.method
        asked = ["client-1", "client-2", "client-3"]
        assert scene.coordinator.round(method.vector, method.keep, parties=asked) == ("client-1", "client-3")
        assert "no part in the election" in scene.coordinator.failures["client-2"]

    def test_a_number_that_was_not_committed_to_counts_as_withheld(self, scene_of, monkeypatch):
        proper = Voter.reveal

        def reveal(self, message):
            if self._party.id == "client-3" and message["draw"] == 1:
                reply = proper(self, message)
                return reply | {"nonce": type(reply["nonce"])("public", bytes(32))}
            return proper(self, message)

        reveal.__dict__.update(proper.__dict__)
        monkeypatch.setattr(Voter, "reveal", reveal)
        scene = scene_of(ALL[0], rows_of(5), quorum=0.5).begin()
        assert election_of(scene).draw == 2
        assert "client-3" not in scene.coordinator.parties

    def test_a_number_of_another_length_counts_as_withheld(self, scene_of, monkeypatch):
        """Numbers travel as rows of a table: a longer one would shift those of all others."""
        proper = Voter.commit

        def commit(self):
            with mock.patch.object(election, "NONCE", 35 if self._party.id == "client-3" else 32):
                return proper(self)

        monkeypatch.setattr(Voter, "commit", commit)
        scene = scene_of(ALL[0], rows_of(5), quorum=0.5).begin()
        assert election_of(scene).draw == 2
        assert "client-3" not in scene.coordinator.parties

    def test_nobody_draws_until_it_suits_him(self, scene_of):
        scene = scene_of(Committee(draws=2), rows_of(8), quorum=0.2)
        scene.tap.lose = lambda step, party: (
            step == "protection.reveal" and party == f"client-{election_of(scene).draw}"
        )
        with pytest.raises(FederationError, match="after 2 draws"):
            scene.begin()
        # A coordinator that counts differently is refused by every client.
        election_of(scene).draw, election_of(scene).draws = 2, 9
        scene.tap.lose = lambda step, party: False
        with pytest.raises(QuorumError, match="until the committee suits it"):
            election_of(scene).elect(scene.coordinator.ask, scene.coordinator.parties)

    @pytest.mark.parametrize("change", ["own", "foreign", "twice", "unsorted"])
    def test_a_list_that_was_tampered_with_gets_no_number(self, change, scene_of):
        scene = scene_of(ALL[1], rows_of(4))
        scene.coordinator.enrol()
        kept = election_of(scene).commitments
        names, rows = sorted(kept), [kept[name] for name in sorted(kept)]
        if change == "own":  # one that client-1 made for another run of the draw
            rows[0] = ALL[1].at_client(scene.site("client-1")).voter.commit()
            scene.site("client-1").vault["nonce"] = scene.site("client-2").vault["nonce"]
        elif change == "foreign":
            rows[1] = rows[0]
        elif change == "twice":
            names[1], rows[1] = names[0], rows[0]
        else:
            names, rows = names[::-1], rows[::-1]
        signed = np.frombuffer(b"".join(rows), np.uint8).reshape(4, -1)
        ballot = Message(draw=1, names="\n".join(names).encode(), commitments=signed)
        with pytest.raises(ProtectionError):
            ALL[1].at_client(scene.site("client-1")).voter.reveal(ballot)

    def test_a_committee_that_was_not_elected_gets_no_shares(self, scene_of):
        scene = scene_of(ALL[1], rows_of(6)).begin()
        election_of(scene).members = tuple(n for n in scene.rows if n not in members_of(scene))
        with pytest.raises(QuorumError, match="did not find elected"):
            scene.total()

    def test_an_election_with_another_number_is_refused(self, scene_of):
        scene = scene_of(ALL[1], rows_of(6)).begin()
        nonces = election_of(scene).evidence["nonces"].copy()
        nonces[2, 0] ^= 1
        election_of(scene).evidence["nonces"] = nonces
        with pytest.raises(QuorumError, match="not the one that it committed to"):
            scene.total()

    def test_an_election_over_another_list_is_refused(self, scene_of):
        scene = scene_of(ALL[1], rows_of(6)).begin()
        election_of(scene).evidence["draw"] = 2
        with pytest.raises(QuorumError, match="revealed no number for"):
            scene.total()

    def test_of_very_many_clients_some_vote_and_all_can_check(self, scene_of, monkeypatch):
        monkeypatch.setattr(election, "ELECTORATE", 4)
        scene = scene_of(ALL[0], rows_of(9)).begin()
        voters = names_from_bytes(election_of(scene).evidence["names"])
        assert len(voters) == 4
        assert {*members_of(scene)} < {*voters}
        assert scene.total()["vector"].tolist() == exact(scene.rows, scene.rows)

    def test_who_does_not_vote_is_shown_no_smaller_electorate(self, scene_of, monkeypatch):
        monkeypatch.setattr(election, "ELECTORATE", 4)
        scene = scene_of(ALL[1], rows_of(9)).begin()
        outsider = next(
            n for n in scene.rows if n not in names_from_bytes(election_of(scene).evidence["names"])
        )
        monkeypatch.setattr(election, "ELECTORATE", 5)
        with pytest.raises(OpeningError, match="an election by 4 clients, agreed were at least 5"):
            ALL[1].at_client(scene.site(outsider)).read_round(election_of(scene).evidence)
        scene.site(outsider).roster = ()
        with pytest.raises(ProtectionError, match="no part in the election"):
            ALL[1].at_client(scene.site(outsider)).read_round(election_of(scene).evidence)

    def test_enrolment_without_a_commitment_is_refused(self, scene_of, monkeypatch):
        monkeypatch.setattr(CommitteeClient, "introduce", SharesClient.introduce)
        with pytest.raises(QuorumError, match="committed to no number"):
            scene_of(ALL[0], rows_of(3)).begin()

    def test_a_commitment_that_its_owner_did_not_sign_is_refused(self, scene_of):
        scene = scene_of(ALL[0], rows_of(3)).begin()
        kept = election_of(scene).commitments
        for wrong in (kept["client-2"], kept["client-1"][:-1] + b"!"):
            with pytest.raises(ProtectionError, match="the commitment key of client-1 is not signed"):
                election_of(scene).welcome("client-1", {"commitment": wrong})


class TestSteering:
    def test_three_of_sixteen_take_all_seats_as_often_as_is_fair(self):
        elections, fair = 10_000, 1 / comb(16, 3)
        seats = simulate_elections(16, 3, 3, elections, np.random.default_rng(5))
        assert seats.sum() == elections
        assert abs(seats[3] / elections - fair) < 3 * sqrt(fair * (1 - fair) / elections)

    def test_so_they_do_when_they_withhold_for_it(self):
        fair = 1 / comb(16, 3)
        seats = simulate_elections(16, 3, 3, 10_000, np.random.default_rng(6), draws=3)
        assert abs(seats[3] / 10_000 - fair) < 3 * sqrt(fair / 10_000)

    def test_by_votes_they_nearly_always_do(self):
        seats = simulate_elections(16, 3, 3, 10_000, np.random.default_rng(7), rule="votes")
        assert 0.78 < seats[3] / 10_000 < 0.88
        few = simulate_elections(16, 3, 3, 1000, np.random.default_rng(0), rule="votes")
        assert few.tolist() == [0, 0, 163, 837]

    def test_withholding_for_two_seats_gains_what_one_more_draw_with_a_friend_fewer_gives(self):
        def fair(clients, friends):
            return sum(comb(friends, k) * comb(clients - friends, 3 - k) for k in (2, 3)) / comb(clients, 3)

        first, second = fair(16, 3), fair(15, 2)
        expected = first + (1 - first) * second
        seats = simulate_elections(16, 3, 3, 10_000, np.random.default_rng(8), draws=3, wanted=2)
        assert abs(seats[2:].sum() / 10_000 - expected) < 3 * sqrt(expected / 10_000)
        assert expected < 3 * first

    def test_more_colluders_than_clients_are_refused(self):
        with pytest.raises(ConfigError, match="too many"):
            simulate_elections(4, 3, 5, 1, np.random.default_rng(0))


class TestTranscript:
    """The coordinator and some members pool all they received and all their keys."""

    @pytest.mark.parametrize("protection", SHAMIR, ids=ids)
    def test_one_member_and_the_coordinator_open_nothing(self, protection, scene_of):
        scene = scene_of(protection, rows_of(6, size=4)).begin()
        scene.round()
        members = members_of(scene)
        victim = next(name for name in scene.rows if name not in members)
        secret = to_field(FixedPoint(np.ones(4), 32, 6).encode(scene.rows[victim]))
        for member in members:
            shares = self.opened(scene, [member], victim)
            assert len(shares) == 1
            assert not np.array_equal(shares[0].values[:4], secret)
            with pytest.raises(ProtectionError, match="needed"):
                recover_vector(shares, 2)
        # The test could have failed: two members open it.
        assert np.array_equal(recover_vector(self.opened(scene, members[:2], victim), 2)[:4], secret)

    def test_clients_outside_the_committee_hold_no_share(self, scene_of):
        scene = scene_of(ALL[1], rows_of(6, size=4)).begin()
        scene.round()
        others = [name for name in scene.rows if name not in members_of(scene)]
        assert not self.opened(scene, others[1:], others[0])
        assert all("own" not in scene.site(name).vault for name in others)

    def opened(self, scene, friends, victim):
        replies = [
            r.message for step, r in scene.tap.replies if step == "client.contribute" and r.party == victim
        ]
        sealed, members, run = replies[0]["shares"].data, members_of(scene), scene.coordinator.manifest.digest
        share_round = ShareRound("shamir", 1, 1, members, 2)
        public = checked_key(
            scene.coordinator.protection.directory[victim],
            scene.coordinator.link.pinned(victim),
            "exchange",
            victim,
            run,
        )
        keys = [
            scene.coordinator.link.vault["exchange"],
            *(scene.site(name).vault["exchange"] for name in friends),
        ]
        size, found = 8 * (4 + 1) + OVERHEAD, []  # values and their tag
        for index, name in enumerate(members):
            for key in keys:
                try:
                    piece = sealed[index * size : (index + 1) * size]
                    raw = unseal(
                        pair_key(key, public, "seal", run), piece, share_round.share_place(run, victim, name)
                    )
                except ProtectionError:
                    continue
                found.append(Share(index + 1, words_from_bytes(raw)))
        return found


class TestTampering:
    def relay(self, monkeypatch, change):
        collected = ShareRelay._collect

        def changed(self, pending, share_round, batch, slots):
            mail = collected(self, pending, share_round, batch, slots)
            change(mail, share_round.holders)
            return mail

        monkeypatch.setattr(ShareRelay, "_collect", changed)

    def test_a_flipped_bit_costs_that_member_only(self, scene_of, monkeypatch):
        def flip(mail, members):
            dealer = next(name for name in mail if name != members[0])
            raw = bytearray(mail[dealer][members[0]])
            raw[-1] ^= 128
            mail[dealer][members[0]] = bytes(raw)

        self.relay(monkeypatch, flip)
        scene = scene_of(ALL[0], rows_of(6)).begin()
        assert scene.total()["vector"].tolist() == exact(scene.rows, scene.rows)
        assert f"dealt to {members_of(scene)[0]}" in scene.coordinator.failures[members_of(scene)[0]]

    def test_shares_of_last_round_do_not_open(self, scene_of, monkeypatch):
        mails = []

        def replay(mail, members):
            mails.append({**mail})
            mail.update(mails[0])

        self.relay(monkeypatch, replay)
        scene = scene_of(Committee(draws=1), rows_of(6)).begin()
        scene.round()
        with pytest.raises(FederationError):
            scene.round()
        assert any("does not open" in text for text in scene.coordinator.failures.values())

    def test_shares_for_another_member_do_not_open(self, scene_of, monkeypatch):
        def swap(mail, members):
            dealer = next(name for name in mail if name not in members)
            first, second, *_ = members
            mail[dealer][first], mail[dealer][second] = mail[dealer][second], mail[dealer][first]

        self.relay(monkeypatch, swap)
        scene = scene_of(Committee(draws=1), rows_of(6)).begin()
        with pytest.raises(FederationError):
            scene.total()

    def test_a_swapped_exchange_key_of_a_member_is_noticed(self, scene_of):
        scene = scene_of(ALL[1], rows_of(6)).begin()
        first, second, _ = members_of(scene)
        scene.coordinator.protection.directory[first] = scene.coordinator.protection.directory[second]
        with pytest.raises(QuorumError, match="pinned identity"):
            scene.total()

    def test_a_member_tells_its_partial_sum_once_a_draw(self, scene_of):
        scene = scene_of(ALL[1], rows_of(4)).begin()
        scene.round()
        member = scene.site(members_of(scene)[0])
        fields = {"sum": 1, "lap": 1, "holders": "\n".join(members_of(scene)).encode()}
        with pytest.raises(OpeningError, match="already"):
            ALL[1].at_client(member).read_round(fields)


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "word"),
        [
            ({"members": 1, "threshold": 1}, "members"),
            ({"members": 4, "threshold": 2}, "threshold"),
            ({"members": 3, "threshold": 4}, "threshold"),
            ({"draws": 0}, "draws"),
        ],
    )
    def test_impossible_ones_are_refused(self, settings, word):
        with pytest.raises(ConfigError, match=word):
            Committee(**settings)

    def test_two_members_are_enough(self):
        assert "2 of 2" in Committee(members=2, threshold=2).promises.collusion

    def test_messages_beside_the_survey(self):
        small, large = message_counts(16, 3, 15), message_counts(128, 3, 15)
        assert (small["shares"]["survey"], small["committee"]["corrected"]) == (7_200, 1_470)
        assert small["committee"]["survey"] == 1_530
        assert (large["shares"]["survey"], large["committee"]["corrected"]) == (487_680, 40_222)
        assert large["committee"]["ours"] < large["committee"]["corrected"]

    def test_promises_name_the_numbers(self):
        promises = Committee(members=5, threshold=4).promises
        assert "4 of 5" in promises.collusion
        assert "needs 3" in promises.collusion
        assert Committee(scheme="additive").promises.warnings

    def test_a_hundred_clients_with_ten_thousand_values_take_seconds(self, scene_of):
        ledger = CostLedger()
        scene = scene_of(ALL[1], rows_of(100, 10_000), subscriber=ledger).begin()
        scene.round()
        assert ledger.summary()["sum_cpu_s"] < 10
