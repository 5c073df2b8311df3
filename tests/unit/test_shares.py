"""Peer-to-peer MPC: exact sums, who may vanish when, what nobody can read, and what tampering does."""

import itertools

import numpy as np
import pytest

from tacit.core.claims import read_claim
from tacit.core.errors import ConfigError, OpeningError, ProtectionError, QuorumError
from tacit.core.events import TotalOpened
from tacit.core.layout import Field, Layout
from tacit.core.message import Message
from tacit.core.values import Blob
from tacit.crypto.channel import checked_key, pair_key, unseal
from tacit.crypto.field import to_field
from tacit.crypto.fixedpoint import FixedPoint
from tacit.federation import Federation
from tacit.ledger.cost import CostLedger
from tacit.protections.secret_sharing.share_holder import ShareHolder
from tacit.protections.secret_sharing.share_relay import ShareRelay
from tacit.protections.secret_sharing.share_round import ShareRound, recover_total
from tacit.protections.secret_sharing.shares import Shares, SharesClient
from tacit.protections.secret_sharing.wire import names_from_bytes, words_from_bytes, words_to_bytes
from tests.helpers.shares import Share, recover_vector

BOTH = [
    Shares(scheme=scheme, opens=opens)
    for scheme in ("shamir", "additive")
    for opens in ("clients", "coordinator")
]
SHAMIR = [protection for protection in BOTH if protection.scheme == "shamir"]
ids = lambda protection: f"{protection.scheme}-{protection.opens}"  # noqa: E731


def rows_of(clients, size=7, seed=0):
    values = np.random.default_rng(seed).uniform(-1, 1, size=(clients, size))
    return {f"client-{index + 1}": row for index, row in enumerate(values)}


def exact(rows, names, bits=32, bound=1.0):
    """The sum in fixed point, to the last bit."""
    size = len(next(iter(rows.values())))
    code = FixedPoint(np.full(size, bound), bits, len(rows))
    return code.decode(np.sum([code.encode(rows[name]) for name in names], axis=0))


@pytest.mark.parametrize("protection", BOTH, ids=ids)
class TestSums:
    @pytest.mark.parametrize("clients", [2, 3, 6])
    def test_are_exact_in_fixed_point(self, protection, summed, clients):
        rows = rows_of(clients)
        total = summed(protection, rows, bound=1.0)
        assert total["vector"].tolist() == exact(rows, rows).tolist()

    def test_values_without_a_bound(self, protection, summed):
        rows = {name: row * 1e9 for name, row in rows_of(4).items()}
        total = summed(protection, rows)
        assert np.abs(total["vector"] - np.sum(list(rows.values()), axis=0)).max() < 1e-5

    def test_of_cold_parties_and_in_many_batches(self, protection, scene_of, monkeypatch):
        monkeypatch.setattr(ShareRelay, "batch_bytes", 700)
        rows = rows_of(5)
        scene = scene_of(protection, rows, engine={"cold": True, "keep_replies": True}).begin()
        assert scene.total()["vector"].tolist() == exact(rows, rows).tolist()
        scene.round()
        scene.finish()

    def test_who_vanishes_before_dealing_is_left_out(self, protection, summed):
        rows = rows_of(6)
        lost = ("client-1", "client-4", "client-5")
        total = summed(protection, rows, bound=1.0, lost=lost, quorum=0.5)
        assert total.contributors == 3
        assert total["vector"].tolist() == exact(rows, [name for name in rows if name not in lost]).tolist()

    def test_in_batches_a_holder_may_vanish_between_two(self, protection, scene_of, monkeypatch):
        monkeypatch.setattr(ShareRelay, "batch_bytes", 1)
        rows = rows_of(4)
        scene = scene_of(protection, rows, quorum=0.5).begin()
        asked = itertools.count()
        scene.tap.lose = lambda step, party: (
            (step, party) == ("protection.hold", "client-2") and next(asked) == 1
        )
        total = scene.coordinator.reveal(scene.components.method.vector)
        names = [name for name in rows if name != "client-2" or protection.scheme == "shamir"]
        assert total["vector"].tolist() == exact(rows, names).tolist()

    def test_a_client_is_not_asked_to_compute_again(self, protection, scene_of):
        class Counted(dict):
            asked = 0

            def __getitem__(self, name):
                type(self).asked += name == "client-6"
                return super().__getitem__(name)

        scene = scene_of(protection, Counted(rows_of(6)), quorum=0.5).begin()
        Counted.asked = 0
        scene.total(lost=("client-1", "client-2", "client-3"))
        assert Counted.asked == 1

    def test_learn_what_plain_sums_learn(self, protection, table):
        federation = Federation.embedded(table, clients=4, test=None, seed=3)
        ours, plain = (
            federation.train("fedheonn", protect=protect, min_clients=2) for protect in (protection, "plain")
        )
        assert np.allclose(ours.model.weights, plain.model.weights, atol=1e-5)

    def test_the_ledger_counts_what_the_formula_says(self, protection, scene_of):
        ledger, clients = CostLedger(), 5
        scene = scene_of(protection, rows_of(clients), subscriber=ledger).begin()
        scene.round(), scene.round()
        pairs = clients * (clients - 1)
        expected = 2 * 2 * pairs + clients - 1 if protection.opens == "clients" else 2 * pairs
        assert ledger.summary()["messages_by_route"]["client→client"] == expected

    def test_upload_of_long_vectors_costs_what_is_promised(self, protection, scene_of):
        def upload(clients, size):
            ledger = CostLedger()
            scene_of(protection, rows_of(clients, size), subscriber=ledger).begin().round()
            return ledger.summary()["per_client"]["bytes_up"][1]

        for clients in (2, 4, 9):
            found = (upload(clients, 4096) - upload(clients, 2048)) / 2048
            promises = protection.promises
            promised = promises.bytes_per_value * (clients if promises.per_client else 1)
            assert found == pytest.approx(promised, rel=0.01)


class TestVanishing:
    @pytest.mark.parametrize("protection", SHAMIR, ids=ids)
    def test_holders_may_vanish_down_to_the_threshold(self, protection, scene_of):
        rows = rows_of(6)
        for silent in itertools.combinations(rows, 2):
            scene = scene_of(protection, rows).begin()
            scene.tap.lose = lambda step, party, silent=silent: step == "protection.hold" and party in silent
            total = scene.coordinator.reveal(scene.components.method.vector)
            assert total["vector"].tolist() == exact(rows, rows).tolist()

    @pytest.mark.parametrize(
        ("protection", "silent"), [(BOTH[0], 3), (BOTH[1], 3), (BOTH[2], 1), (BOTH[3], 1)], ids=str
    )
    def test_below_it_the_sum_stops_and_says_who(self, protection, silent, scene_of):
        scene = scene_of(protection, rows_of(6), quorum=0.5).begin()
        scene.tap.lose = lambda step, party: step == "protection.hold" and party > f"client-{6 - silent}"
        with pytest.raises(QuorumError, match="client-6 did not"):
            scene.coordinator.reveal(scene.components.method.vector)

    @pytest.mark.parametrize("protection", BOTH, ids=ids)
    def test_no_holder_tells_a_sum_over_fewer_than_agreed(self, protection, scene_of, monkeypatch):
        def goes_on(self, parties=None):
            if parties == []:
                raise QuorumError("nobody is left")

        monkeypatch.setattr("tacit.core.pending_sum.PendingSum.check", goes_on)
        scene = scene_of(protection, rows_of(5), min_clients=3).begin()
        with pytest.raises(QuorumError):
            scene.total(lost=("client-1", "client-2", "client-3"))
        assert not [reply for step, reply in scene.tap.replies if "partial" in reply.message]
        assert any("at least 3" in text for text in scene.coordinator.failures.values())

    @pytest.mark.parametrize("protection", BOTH, ids=ids)
    def test_a_partial_sum_is_told_once(self, protection, scene_of):
        scene = scene_of(protection, rows_of(4)).begin()
        scene.round()
        fields = {"sum": 1, "lap": 2, "holders": b"client-1\nclient-2\nclient-3"}
        with pytest.raises(OpeningError, match="already"):
            protection.at_client(scene.site("client-1")).read_round(fields)

    def test_in_one_round_nobody_counts_double(self, scene_of, monkeypatch):
        monkeypatch.setattr(ShareRelay, "batch_bytes", 1)
        collected, mails = ShareRelay._collect, []

        def again(self, pending, share_round, batch, slots):
            mails.append(collected(self, pending, share_round, batch, slots))
            return {**mails[0], **mails[-1]}

        monkeypatch.setattr(ShareRelay, "_collect", again)
        scene = scene_of(SHAMIR[1], rows_of(4)).begin()
        with pytest.raises(QuorumError):
            scene.total()
        assert any("count double" in text for text in scene.coordinator.failures.values())


class TestTranscript:
    """The coordinator and some clients pool all they received and all their keys."""

    @pytest.mark.parametrize("protection", SHAMIR, ids=ids)
    def test_fewer_than_the_threshold_open_nothing(self, protection, scene_of):
        rows = rows_of(5, size=4)
        scene = scene_of(protection, rows).begin()
        scene.round()
        code = FixedPoint(np.ones(4), 32, 5)
        secret = to_field(code.encode(rows["client-5"]))
        assert len(self.opened(scene, ("client-1", "client-2"), "client-5")) == 2
        shares = self.opened(scene, ("client-1", "client-2"), "client-5")
        with pytest.raises(ProtectionError, match="needed"):
            recover_vector(shares, 3)
        assert not np.array_equal(recover_vector(shares, 2)[:4], secret)
        # The test could have failed: one more friend, and the contribution lies open.
        three = self.opened(scene, ("client-1", "client-2", "client-3"), "client-5")
        assert np.array_equal(recover_vector(three, 3)[:4], secret)

    def test_all_but_two_open_nothing_of_an_additive_share(self, scene_of):
        rows = rows_of(4, size=4)
        scene = scene_of(BOTH[3], rows).begin()
        scene.round()
        # client-4's own share has the vector's length and never left it; client-3 holds a seed.
        assert [len(raw) for raw in self.raws(scene, ("client-1", "client-2"), "client-4")] == [32, 32]

    @pytest.mark.parametrize("protection", BOTH, ids=ids)
    def test_the_coordinator_reads_no_vector_and_no_partial_sum_meant_for_clients(self, protection, scene_of):
        rows = {name: np.full(6, 0.5 + i / 64) for i, name in enumerate(rows_of(4))}
        scene = scene_of(protection, rows).begin()
        scene.round()
        heard = b"".join(scene.received("coordinator"))
        code = FixedPoint(np.ones(6), 32, 4)
        for row in rows.values():
            assert row.tobytes() not in heard
            assert code.encode(row).tobytes() not in heard
        kinds = {
            reply.message["partial"].kind for step, reply in scene.tap.replies if "partial" in reply.message
        }
        assert kinds == {"sealed" if protection.opens == "clients" else "share"}
        if protection.opens == "clients":
            assert protection.at_client(scene.site("client-1")).key.newest().reveal() not in heard
            assert "content" not in scene.coordinator.link.vault
            assert scene.coordinator.shared is None

    def raws(self, scene, friends, victim):
        """Shares of a client that its peers' keys open in what passed the coordinator."""
        replies = [
            r.message for step, r in scene.tap.replies if step == "client.contribute" and r.party == victim
        ]
        sealed, names = replies[0]["shares"].data, list(scene.rows)
        share_round = ShareRound(
            scene.protection.scheme, 1, 1, tuple(names), scene.protection.min_holders(len(names))
        )
        run, found, position = scene.coordinator.manifest.digest, [], 0
        slots = len(scene.rows[victim]) + 1  # the tag
        for index, name in enumerate(names):
            if name == victim:
                continue
            size = share_round.sealed_size(victim, index, slots)
            piece, position = sealed[position : position + size], position + size
            signed = scene.coordinator.protection.directory[victim]
            public = checked_key(signed, scene.coordinator.link.pinned(victim), "exchange", victim, run)
            for friend in friends:
                key = pair_key(scene.site(friend).vault["exchange"], public, "seal", run)
                try:
                    found.append(unseal(key, piece, share_round.share_place(run, victim, name)))
                except ProtectionError:
                    continue
            key = pair_key(scene.coordinator.link.vault["exchange"], public, "seal", run)
            with pytest.raises(ProtectionError):
                unseal(key, piece, share_round.share_place(run, victim, name))
        return found

    def opened(self, scene, friends, victim):
        points = [list(scene.rows).index(friend) + 1 for friend in friends]
        return [
            Share(p, words_from_bytes(raw))
            for p, raw in zip(points, self.raws(scene, friends, victim), strict=True)
        ]


class TestTampering:
    """What a relay that holds its own channel keys can try."""

    def changed(self, monkeypatch, change):
        collected = ShareRelay._collect

        def relay(self, pending, share_round, batch, slots):
            mail = collected(self, pending, share_round, batch, slots)
            change(mail)
            return mail

        monkeypatch.setattr(ShareRelay, "_collect", relay)

    @pytest.mark.parametrize("protection", BOTH, ids=ids)
    def test_a_flipped_bit_in_a_share_is_that_holders_failure(self, protection, scene_of, monkeypatch):
        def flip(mail):
            raw = bytearray(mail["client-1"]["client-3"])
            raw[20] ^= 1
            mail["client-1"]["client-3"] = bytes(raw)

        self.changed(monkeypatch, flip)
        rows = rows_of(4)
        scene = scene_of(protection, rows).begin()
        if protection.scheme == "shamir":
            assert scene.total()["vector"].tolist() == exact(rows, rows).tolist()
        else:
            with pytest.raises(QuorumError):
                scene.total()
        assert "client-1 dealt to client-3" in scene.coordinator.failures["client-3"]

    @pytest.mark.parametrize("protection", BOTH, ids=ids)
    def test_a_share_of_last_round_is_refused(self, protection, scene_of, monkeypatch):
        seen = []

        def replay(mail):
            seen.append({**mail["client-1"]})
            mail["client-1"] = seen[0]

        self.changed(monkeypatch, replay)
        scene = scene_of(protection, rows_of(4)).begin()
        scene.round()
        with pytest.raises(QuorumError):
            scene.round()

    @pytest.mark.parametrize("protection", BOTH, ids=ids)
    def test_a_swapped_exchange_key_is_noticed_before_anything_is_sealed_for_it(self, protection, scene_of):
        scene = scene_of(protection, rows_of(4)).begin()
        scene.coordinator.protection.directory["client-2"] = scene.coordinator.protection.directory[
            "client-1"
        ]
        with pytest.raises(QuorumError, match="pinned identity"):
            scene.round()

    def test_a_changed_or_repeated_total_does_not_open(self, scene_of):
        scene = scene_of(BOTH[0], rows_of(4)).begin()
        scene.round()
        briefing = scene.coordinator.link.briefing
        logged = Message.decode(briefing.log[0])
        entry = {name[6:]: value for name, value in logged.items() if name[:6] == "total/"}
        entry["claim"] = read_claim(briefing.roll.write(), logged, {})
        layout, party = scene.components.method._layout(None), scene.site("client-1")
        client = BOTH[0].at_client(party)
        raw = bytearray(entry["partials"].data)
        raw[40] ^= 1
        changes = {
            "does not open": {"partials": Blob("sealed", bytes(raw))},
            "stays shut": {"points": entry["points"][:2], "partials": Blob("sealed", bytes(raw[:168]))},
            "at least": {"contributions": 1},
        }
        for reason, change in changes.items():
            with pytest.raises(ProtectionError, match=reason), party.transaction():
                client.open({**entry, **change}, layout)
        for change in ({"threshold": 2}, {"contributions": 5}, {"number": 2}, {"mark": "0" * 64}):
            with pytest.raises(ProtectionError, match="does not open"), party.transaction():
                client.open({**entry, **change}, layout)
        assert client.open(entry, layout).tolist() == exact(scene.rows, scene.rows).tolist()
        with pytest.raises(OpeningError, match="replay"):
            client.open(entry, layout)

    def test_a_partial_sum_that_is_wrong_does_not_fit_the_others(self):
        share_round = ShareRound("shamir", 1, 1, tuple("abcd"), 3)
        rows = [words_from_bytes(piece) for piece in share_round.cut("a", np.arange(5), 7)]
        total, tag = recover_total("shamir", [1, 2, 3, 4], rows, 3)
        assert (total.tolist(), tag) == ([0, 1, 2, 3, 4], 7)
        rows[1] = rows[1] + np.uint64(1)
        with pytest.raises(ProtectionError, match="does not fit"):
            recover_total("shamir", [1, 2, 3, 4], rows, 3)

    @pytest.mark.parametrize("protection", BOTH, ids=ids)
    @pytest.mark.parametrize("step", ["client.contribute", "protection.hold"])
    def test_replies_that_are_nonsense_are_refused(self, protection, step, scene_of, monkeypatch):
        owner, function = (SharesClient, "protect") if step == "client.contribute" else (ShareHolder, "hold")
        proper = getattr(owner, function)

        def odd(self, *more):
            return Message(what=1) if self.party.id == "client-2" else proper(self, *more)

        odd.__dict__.update(proper.__dict__)
        odd.__name__ = function
        monkeypatch.setattr(owner, function, odd)
        scene = scene_of(protection, rows_of(4), quorum=0.5).begin()
        if step == "protection.hold" and protection.scheme == "additive":
            with pytest.raises(QuorumError):
                scene.total()
        else:
            left = [name for name in scene.rows if name != "client-2" or step == "protection.hold"]
            assert scene.total()["vector"].tolist() == exact(scene.rows, left).tolist()

    @pytest.mark.parametrize("holders", [b"client-1\nclient-1", b"client-2\nclient-3", b""])
    def test_holders_that_repeat_or_leave_one_out_are_refused(self, holders, scene_of):
        scene = scene_of(BOTH[0], rows_of(3)).begin()
        with pytest.raises(ProtectionError, match="holders"):
            fields = {"sum": 1, "lap": 1, "holders": holders}
            BOTH[0].at_client(scene.site("client-1")).read_round(fields)


class TestSettings:
    @pytest.mark.parametrize("threshold", [0.0, 0.4, 1.0])
    def test_a_threshold_that_could_be_met_twice_is_refused(self, threshold):
        with pytest.raises(ConfigError, match="threshold"):
            Shares(threshold=threshold)

    def test_too_many_bits_for_the_field_are_refused(self, summed):
        with pytest.raises(ConfigError, match="use at most 49 bits"):
            Shares(bits=50).code(Layout(Field("x", (1,), 1.0)), 1 << 12)
        with pytest.raises(ConfigError, match="use at most 49 bits"):  # or the tags could not tell
            Shares(bits=50, scheme="additive").code(Layout(Field("x", (1,), 1.0)), 1 << 12)
        served = Shares(bits=50, scheme="additive", opens="coordinator")
        assert served.code(Layout(Field("x", (1,), 1.0)), 1 << 12).slots == 1

    def test_a_single_client_is_refused(self, summed):
        for protection in BOTH:
            with pytest.raises(ProtectionError, match="single client"):
                summed(protection, rows_of(1), bound=1.0)

    def test_clipped_values_are_summed(self, summed):
        rows = {name: row * 3 for name, row in rows_of(3).items()}
        total = summed(Shares(clip=True), {**rows, "client-1": np.clip(rows["client-1"], -1, 1)}, bound=5.0)
        assert total.contributors == 3

    def test_additive_shares_warn(self):
        assert "scheme = shamir" in Shares(scheme="additive").promises.warnings[0]
        assert not Shares().promises.warnings


def test_totals_open_where_they_should(scene_of):
    for protection in BOTH:
        scene = scene_of(protection, rows_of(3)).begin()
        scene.round()
        assert scene.told_of(TotalOpened)[0].at == protection.opens


def test_words_and_names_survive():
    assert names_from_bytes("\n".join(["a", "b"]).encode()) == ["a", "b"]
    assert words_from_bytes(words_to_bytes(np.array([1, 2**63], np.uint64))).tolist() == [1, 2**63]


def test_a_share_belongs_to_its_lap_its_holders_and_their_order():
    """A coordinator that tells clients of different holders gets shares that nobody can open."""
    rounds = [
        ShareRound("shamir", 1, 1, ("a", "b", "c"), 2),
        ShareRound("shamir", 1, 2, ("a", "b", "c"), 2),
        ShareRound("shamir", 1, 1, ("b", "a", "c"), 2),
        ShareRound("shamir", 1, 1, ("a", "b", "c"), 3),
        ShareRound("shamir", 2, 1, ("a", "b", "c"), 2),
    ]
    assert len({share_round.share_place("run", "a", "b") for share_round in rounds}) == len(rounds)
