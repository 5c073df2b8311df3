"""Masked sums: exact over whoever arrives, and shut to everything else that anyone might try."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tacit.core.differencing import OpenedTotals
from tacit.core.errors import ConfigError, OpeningError, ProtectionError, QuorumError
from tacit.core.events import Events, Noted, Relayed, WaveStarted
from tacit.core.layout import Field, Layout
from tacit.core.marks import step
from tacit.core.message import Message
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.channel import SIGNATURE, new_exchange, sign_key, unseal
from tacit.crypto.fixedpoint import FixedPoint
from tacit.crypto.masking import add_masks, bind_seeds, sign_for
from tacit.crypto.neighbours import longest_arc, neighbours_for
from tacit.federation import Federation
from tacit.protections.masked import Masked, dealing, wire
from tacit.protections.masked import keys as masked_keys
from tacit.protections.masked.client import MaskedClient
from tacit.protections.masked.coordinator import MaskedSum
from tacit.protections.masked.dealing import Dealer
from tacit.protections.masked.keys import Batch
from tacit.protections.masked.neighbours import assign_holders, is_plausible_draw, proof_length
from tacit.protections.masked.wire import (
    COMMIT,
    OFFERED,
    SIGNED_OFFER,
    Encoding,
    commit,
    pack_flags,
    recover_secret,
    share_points,
)
from tests.helpers.lying import forged, read_released
from tests.helpers.masked_sums import assert_exact, rows_of, some

OFFER, DEAL, CONTRIBUTE, UNMASK = (
    "protection.offer",
    "protection.deal",
    "client.contribute",
    "protection.unmask",
)


def reveal(scene):
    scene.coordinator.link.opened_totals = OpenedTotals()  # as if the vectors were new ones each time
    return scene.coordinator.reveal(scene.components.method.vector)


def steps(scene):
    return [event.step for event in scene.told_of(WaveStarted)]


def replies(scene, wanted):
    return {reply.party: reply.message for name, reply in scene.tap.replies if name == wanted}


def unmask_ask(scene, slot, party, vanished=()):
    """An ask to unmask, as the coordinator would put it."""
    order = scene.coordinator.protection.batch.holders[party]
    common = {"slot": slot, "survivors": len(set(order) - set(vanished))}
    return common, {party: {"alive": pack_flags([name not in vanished for name in order])}}


def asked_again(scene, *args, **kwargs):
    common, jobs = unmask_ask(scene, *args, **kwargs)
    return dict(scene.coordinator.ask(MaskedClient.unmask, common, jobs))


class TestTotals:
    @pytest.mark.parametrize(
        ("clients", "neighbours", "lost"),
        [
            (2, None, ()),
            (3, None, (2,)),
            (5, None, (1, 5)),
            (17, None, (3, 4, 9)),
            (40, None, (1, 40)),
            (70, 4, (7,)),
            (71, 5, ()),
            (75, 2, ()),
            (100, 6, (1, 50, 99)),
            (150, 7, range(1, 150, 20)),
        ],
    )
    def test_are_exact(self, scene_of, clients, neighbours, lost):
        scene = scene_of(Masked(neighbours=neighbours), rows_of(clients), quorum=0.5).begin()
        assert_exact(scene, scene.total(some(*lost)), some(*lost))

    @pytest.mark.parametrize("bits", [8, 16, 24, 29, 32, 50])
    def test_are_exact_at_any_precision(self, scene_of, bits):
        scene = scene_of(Masked(bits=bits), rows_of(6), quorum=0.5).begin()
        assert_exact(scene, scene.total(some(2)), some(2))

    @pytest.mark.parametrize("bits", [16, 32])
    def test_values_may_have_no_bound(self, scene_of, bits):
        rows = {name: row * 1e9 for name, row in rows_of(5).items()}
        scene = scene_of(Masked(bits=bits), rows, bound=None).begin()
        np.testing.assert_allclose(scene.total()["vector"], scene.expected(), rtol=1e-15)

    def test_fine_values_shorten_no_word(self):
        layout = Layout(Field("x", (2,), bound=1.0, fine=True))
        assert [Masked(bits=bits).encoding(layout, 3).code.bits for bits in (32, 47, 50)] == [47, 47, 50]

    def test_more_sums_than_prepared_are_prepared_when_they_come(self, scene_of):
        scene = scene_of(Masked(), rows_of(4)).begin()
        for _ in range(4):
            assert_exact(scene, scene.total())
        assert steps(scene).count(OFFER) == 4

    def test_many_sums_are_prepared_in_two_waves(self, scene_of):
        scene = scene_of(Masked(), rows_of(4), quorum=0.5)
        scene.coordinator.enrol()
        scene.coordinator.protection.prepare(5)
        for lost in ((), (1,), (), (2,), ()):
            assert_exact(scene, scene.total(some(*lost)), some(*lost))
        assert steps(scene)[1:] == [OFFER, DEAL] + [CONTRIBUTE, UNMASK] * 5

    def test_a_cohort_that_its_graph_joins_needs_no_new_keys(self, scene_of):
        scene = scene_of(Masked(), rows_of(8))
        scene.coordinator.enrol()
        scene.coordinator.protection.prepare(3)
        for cohort, agreed in ((6, 1), (3, 2), (8, 3)):
            names = tuple(scene.rows)[:cohort]
            total = scene.coordinator.reveal(scene.components.method.vector, names)
            np.testing.assert_allclose(
                total["vector"], scene.expected(set(scene.rows) - set(names)), atol=1e-8
            )
            assert steps(scene).count(OFFER) == agreed

    def test_parties_may_be_cold(self, scene_of):
        scene = scene_of(
            Masked(), rows_of(5), engine={"cold": True, "keep_replies": True}, quorum=0.5
        ).begin()
        for lost in ((), (2,), ()):
            assert_exact(scene, scene.total(some(*lost)), some(*lost))

    def test_trains_fedheonn_like_plain(self):
        federation = Federation.embedded("iris", clients=7, seed=1)
        plain, masked = (federation.train("fedheonn", protect=way).model for way in ("plain", Masked()))
        np.testing.assert_allclose(masked.weights, plain.weights, rtol=1e-5, atol=1e-6)


class TestCosts:
    @pytest.mark.parametrize(("bits", "size"), [(16, 3), (24, 4), (25, 4), (26, 5), (32, 5), (50, 8)])
    def test_a_value_takes_as_few_bytes_as_its_sum_needs(self, bits, size):
        encoding = Encoding(FixedPoint(np.ones(100_000), bits, 100))
        raw = encoding.write(encoding.write_words(np.zeros(100_000, np.int64)), "00" * 32, 1, bytes(32))
        assert 100_000 * size < len(raw) < 100_000 * size + 200
        assert encoding.kind.itemsize == (4 if size <= 4 else 8)

    def test_relayed_shares_are_told_of_once(self, scene_of):
        scene = scene_of(Masked(), rows_of(4))
        scene.coordinator.enrol()
        scene.coordinator.protection.prepare(2)
        scene.total()
        scene.total()
        told = scene.told_of(Relayed)
        assert (
            sum(event.times for event in told) == 4
        )  # the shares of two of three neighbours follow from keys
        assert {event.bytes / event.times for event in told} == {12 + 2 * 48 + 16}
        assert not scene.coordinator.protection.batch.waiting  # nor kept once all have them

    def test_the_worth_of_a_sparse_graph_is_told(self, scene_of):
        for neighbours, level in ((None, "info"), (4, "warning")):
            scene = scene_of(Masked(neighbours=neighbours), rows_of(70)).begin()
            told = [
                event
                for event in scene.told_of(Noted)
                if "masks with" in event.text and "with a probability of at most" in event.text
            ]
            assert [event.level for event in told if event.text.startswith("each of 70")] == [level]


class TestDropouts:
    @pytest.mark.parametrize("where", [OFFER, DEAL, CONTRIBUTE, UNMASK])
    @pytest.mark.parametrize("heard", [False, True])
    @pytest.mark.parametrize("neighbours", [None, 4])
    def test_at_any_step_and_back_later(self, scene_of, where, heard, neighbours):
        """Before the ask reaches a client, or after it has done what was asked."""
        scene = scene_of(Masked(neighbours=neighbours), rows_of(9), quorum=0.5)
        gone = some(4)
        if heard:
            scene.tap.rewrite = lambda name, party, message: (
                "lost" if (name == where and party in gone) else None
            )
        else:
            scene.tap.lose = lambda name, party: name == where and party in gone
        scene.begin()
        assert_exact(scene, reveal(scene), () if where == UNMASK else gone)
        gone.clear()
        if (where, heard, neighbours) == (OFFER, True, 4):
            reveal(scene)  # its number was revealed, but not heard: it commits to another before it is drawn
        assert_exact(scene, reveal(scene))

    def test_of_more_than_half_starts_the_sum_again(self, scene_of):
        scene = scene_of(Masked(), rows_of(9), quorum=0.3).begin()
        lost = some(1, 2, 3, 4, 5, 6)
        assert_exact(scene, scene.total(lost), lost)
        assert steps(scene)[-4:] == [OFFER, DEAL, CONTRIBUTE, UNMASK]

    def test_of_all_but_one_opens_nothing(self, scene_of):
        scene = scene_of(Masked(), rows_of(4), quorum=0.1).begin()
        with pytest.raises(OpeningError, match="1 contributions"):
            scene.total(some(1, 2, 3))
        assert UNMASK not in steps(scene)

    def test_when_masks_are_agreed_on_the_quorum_is_named(self, scene_of):
        scene = scene_of(Masked(), rows_of(4), quorum=0.5).begin()
        reveal(scene)
        scene.tap.lose = lambda name, party: name == OFFER and party in some(1, 2, 3)
        with pytest.raises(QuorumError, match="0 of 4"):
            reveal(scene)

    def test_below_the_threshold_after_the_upload_opens_nothing(self, scene_of):
        """What the others gave cannot even be read; and coordinator's keys open nothing either."""
        scene = scene_of(Masked(), rows_of(5), quorum=0.5).begin()
        scene.tap.lose = lambda name, party: name == UNMASK and party in some(1, 2)
        with pytest.raises(OpeningError, match=r"0 shares of the masks of client-1, 4 are needed"):
            reveal(scene)
        assert len(replies(scene, UNMASK)) == 3
        assert not read_released(scene)
        for message in replies(scene, DEAL).values():
            sealed = message["shares"].data
            for key in scene.coordinator.link.vault.values():
                with pytest.raises(ProtectionError):
                    unseal(key, sealed, b"")

    @pytest.mark.parametrize("where", ["shares", "confirms", "lock"])
    def test_one_wrong_share_or_confirmation_is_found(self, scene_of, where):
        scene = scene_of(Meddling(who="client-2", where=where), rows_of(5)).begin()
        assert_exact(scene, reveal(scene))

    def test_who_deals_wrong_shares_is_named(self, scene_of):
        scene = scene_of(Meddling(who="client-2", where="deal"), rows_of(5)).begin()
        with pytest.raises(ProtectionError, match="client-2 dealt wrong ones"):
            reveal(scene)


@dataclass(frozen=True)
class Meddling(Masked):
    """One client that gives wrong shares."""

    who: str = ""
    where: str = ""

    def at_client(self, party):
        return MeddlingClient(self, party) if party.id == self.who else MaskedClient(self, party)


class MeddlingClient(MaskedClient):
    def __init__(self, settings, party):
        super().__init__(settings, party)
        self.dealer = MeddlingDealer(settings, party)

    def _lock(self, released, *rest):
        where = self.settings.where
        given = bytes([released[0] ^ 1]) + released[1:] if where == "shares" else released
        reply = super()._lock(given, *rest)
        if where == "confirms":
            return reply | {"confirms": Blob("public", bytes(len(reply["confirms"].data)))}
        return reply | (
            {"shares": Blob("share", bytes(len(reply["shares"].data)))} if where == "lock" else {}
        )


class MeddlingDealer(Dealer):
    @step
    def deal(self, message):
        reply = super().deal(message)
        if self.settings.where == "deal":
            return reply | {"commits": Blob("public", bytes(2 * COMMIT))}
        return reply


SECRETS = {}


@pytest.fixture(autouse=True)
def noted_secrets(monkeypatch):
    """Note each client's key and seed of each sum as it draws them: tests must know what may not be found."""
    SECRETS.clear()

    def noting(purpose, run, owner, slot, secret):
        if slot:
            SECRETS[slot, owner] = SECRETS.get((slot, owner), b"") + secret
        return commit(purpose, run, owner, slot, secret)

    monkeypatch.setattr(dealing, "wire", SimpleNamespace(**{**vars(wire), "commit": noting}))


def stripped(scene, slot, owner, upload, key, seed=None):
    """An upload without the masks that a key and a seed give: what a curious coordinator computes."""
    batch, encoding = (
        scene.coordinator.protection.batch,
        Encoding(FixedPoint(np.ones(5), 32, len(scene.rows))),
    )
    words, call = encoding.read(upload, batch.run, slot)
    masks = [] if seed is None else [(Secret(seed), -1)]
    for name, given in batch.pair_seeds(owner, slot, Secret(key), {*scene.rows}).items():
        masks += [(found, -sign_for(owner, name)) for found in bind_seeds(given, call)]
    add_masks(words, masks)
    spare = np.uint64(24)
    return (words[:-1] << spare).view(np.int64) >> np.int64(spare)


def key_in_transcript(scene, owner):
    """Key of a client that vanished, from what its neighbours gave in the last sum."""
    batch = scene.coordinator.protection.batch
    slot = batch.first + batch.used - 1
    holders = batch.holders[owner]
    shares = [
        (holders.index(party), row)
        for (party, name), row in read_released(scene, slot).items()
        if name == owner != party
    ]
    expected = batch.commitment(owner, slot, is_seed=False)

    def is_right(key):
        return commit("key", batch.run, owner, slot, key.reveal())[:COMMIT] == expected

    places, rows = map(np.array, zip(*shares, strict=True))
    points = share_points(holders.index(owner), places)
    return recover_secret(points, rows, batch.rules.threshold, is_right, owner).reveal()


class TestSecrets:
    def test_the_key_of_a_later_sum_does_not_unmask_an_earlier_one(self, scene_of):
        scene = scene_of(Masked(), rows_of(5), quorum=0.5)
        scene.coordinator.enrol()
        scene.coordinator.protection.prepare(9)
        for _ in range(8):
            reveal(scene)
        uploads = [reply.message["masked"] for name, reply in scene.tap.replies if name == CONTRIBUTE]
        uploads = uploads[::5]  # those of client-1
        scene.tap.replies.clear()
        scene.total(some(1))
        key = key_in_transcript(scene, "client-1")
        truth = FixedPoint(np.ones(5), 32, 5).encode(scene.rows["client-1"])
        for slot, upload in enumerate(uploads, start=1):
            own, seed = SECRETS[slot, "client-1"][:32], SECRETS[slot, "client-1"][32:]
            # The seed was opened in that sum; with the right key the vector would lie open.
            assert np.array_equal(stripped(scene, slot, "client-1", upload, own, seed), truth)
            assert not (stripped(scene, slot, "client-1", upload, key, seed) == truth).any()

    def test_an_upload_that_comes_too_late_stays_closed(self, scene_of):
        scene = scene_of(Masked(), rows_of(5), quorum=0.5).begin()
        late = {}

        def too_late(name, party, message):
            if (name, party) != (CONTRIBUTE, "client-1"):
                return None
            late["upload"] = message["masked"]
            return "StepTimeoutError: too late"

        scene.tap.rewrite = too_late
        assert_exact(scene, reveal(scene), some(1))
        key = key_in_transcript(scene, "client-1")
        truth = FixedPoint(np.ones(5), 32, 5).encode(scene.rows["client-1"])
        seed = SECRETS[1, "client-1"][32:]
        assert np.array_equal(stripped(scene, 1, "client-1", late["upload"], key, seed), truth)
        assert not (stripped(scene, 1, "client-1", late["upload"], key) == truth).any()
        for party in sorted(some(2, 3, 4, 5)):  # and nobody gives the seed any more
            with pytest.raises(QuorumError, match="gave its shares"):
                asked_again(scene, 1, party)

    def test_shares_of_the_last_sum_are_useless_in_the_next(self, scene_of, monkeypatch):
        found, real = {}, MaskedSum.request_shares

        def replay(self, arrived):
            found.setdefault("first", real(self, arrived))
            return found["first"]

        monkeypatch.setattr(MaskedSum, "request_shares", replay)
        scene = scene_of(Masked(), rows_of(4))
        scene.coordinator.enrol()
        scene.coordinator.protection.prepare(2)
        assert_exact(scene, reveal(scene))
        with pytest.raises(ProtectionError, match="do not give what it committed to"):
            reveal(scene)

    def test_secrets_of_a_sum_are_gone_when_it_is_over(self, scene_of):
        scene = scene_of(Masked(), rows_of(4), quorum=0.5)
        scene.coordinator.enrol()
        scene.coordinator.protection.prepare(2)
        assert f"mask/own/{1}" in scene.site("client-1").vault
        scene.total(some(2))
        for name in ("client-1", "client-3"):
            kept = {entry for entry in scene.site(name).vault if entry.startswith("mask/")}
            assert kept == {"mask/number", "mask/own/2", "mask/held/2", "mask/links"}
        scene.total()
        for name in scene.rows:
            assert {entry for entry in scene.site(name).vault if entry.startswith("mask/")} == {"mask/number"}

    def test_secrets_of_sums_that_did_not_come_are_gone_when_the_run_is_over(self, scene_of):
        scene = scene_of(Masked(), rows_of(4))
        scene.coordinator.enrol()
        scene.coordinator.protection.prepare(5)
        scene.round()
        assert {f"mask/own/{slot}" for slot in (2, 3, 4, 5)} <= set(scene.site("client-1").vault)
        scene.finish()
        for name in scene.rows:
            assert {entry for entry in scene.site(name).vault if entry.startswith("mask/")} == {"mask/number"}
        assert_exact(scene, scene.total())  # and whoever goes on all the same agrees on fresh ones

    def test_uploads_look_like_noise(self, scene_of):
        """Zeros and ones give the same upload but for masks: no byte is more likely than another."""
        rows = {f"client-{i}": np.zeros(4096) for i in range(3)}
        scene = scene_of(Masked(bits=16), rows).begin()
        reveal(scene)
        for message in replies(scene, CONTRIBUTE).values():
            raw = np.frombuffer(message["masked"].data[-4096 * 3 :], np.uint8)
            counts = np.bincount(raw, minlength=256)
            assert ((counts - raw.size / 256) ** 2).sum() / (raw.size / 256) < 400


class TestRefusals:
    def begun(self, scene_of, **settings):
        """A sum whose uploads have arrived, and of which nobody was asked for shares yet."""
        scene = scene_of(Masked(), rows_of(5), quorum=0.5, **settings).begin()
        scene.tap.lose = lambda name, party: name == UNMASK
        with pytest.raises(OpeningError):
            reveal(scene)
        scene.tap.lose = lambda name, party: False
        return scene

    def test_of_both_kinds_of_shares(self, scene_of):
        scene = self.begun(scene_of)
        assert asked_again(scene, 1, "client-1")
        for vanished in ((), some(2)):
            with pytest.raises(QuorumError, match="gave its shares of it already"):
                asked_again(scene, 1, "client-1", vanished)
        assert asked_again(scene, 1, "client-3", some(2))
        with pytest.raises(QuorumError, match="gave its shares of it already"):
            asked_again(scene, 1, "client-3")

    def test_of_shares_where_too_few_arrived(self, scene_of):
        scene = self.begun(scene_of)
        with pytest.raises(QuorumError, match="3 contributions around client-1, at least 4 were agreed"):
            asked_again(scene, 1, "client-1", some(2, 3))
        scene = self.begun(scene_of, min_clients=5)
        with pytest.raises(QuorumError, match="4 contributions around client-1, at least 5 were agreed"):
            asked_again(scene, 1, "client-1", some(2))

    def test_of_shares_by_one_that_is_said_to_have_vanished(self, scene_of):
        with pytest.raises(QuorumError, match="itself vanished"):
            asked_again(self.begun(scene_of), 1, "client-1", some(1))

    def test_of_shares_where_a_sparse_sum_is_too_small(self, scene_of):
        scene = scene_of(Masked(neighbours=4), rows_of(9), quorum=0.5, min_clients=8).begin()
        scene.tap.lose = lambda name, party: name == UNMASK
        with pytest.raises(OpeningError):
            reveal(scene)
        scene.tap.lose = lambda name, party: False
        common, jobs = unmask_ask(scene, 1, "client-1")
        with pytest.raises(QuorumError, match="7 contributions, agreed were at least 8"):
            list(scene.coordinator.ask(MaskedClient.unmask, common | {"survivors": 7}, jobs))

    def test_of_uploads_of_another_kind(self):
        encoding = Masked().encoding(Layout(Field("x", (2,), bound=1.0)), 3)
        upload = encoding.write(np.arange(3, dtype=encoding.kind), "00" * 32, 1, bytes(32))
        assert encoding.read(Blob("masked", upload), "00" * 32, 1)[0].tolist() == [0, 1, 2]
        for wrong in (Blob("sealed", upload), upload, Blob("masked", upload[:20])):
            with pytest.raises(ProtectionError, match="no masked vector where one was agreed"):
                encoding.read(wrong, "00" * 32, 1)

    def test_of_numbers_that_are_none(self, scene_of):
        scene = self.begun(scene_of)
        common, jobs = unmask_ask(scene, 1, "client-1")
        with pytest.raises(QuorumError, match="not a whole number"):
            list(scene.coordinator.ask(MaskedClient.unmask, common | {"survivors": float("nan")}, jobs))

    def test_of_a_second_deal_offer_or_upload(self, scene_of):
        scene = scene_of(Masked(), rows_of(3)).begin()
        job = {"client-1": {"names": b"client-2\nclient-3", "offers": b""}}
        with pytest.raises(QuorumError, match="deals them once"):
            list(scene.coordinator.ask(Dealer.deal, None, job))
        common = {"first": 1, "sums": 1, "clients": 3, "root": bytes(32)}
        with pytest.raises(QuorumError, match="prepared before"):
            list(scene.coordinator.ask(Dealer.offer, common, None, ["client-1"]))
        reveal(scene)
        scene.coordinator.protection.batch.used = 0  # as if masks could be used twice
        with pytest.raises(QuorumError, match="no masks for sum 1"):
            reveal(scene)

    def test_of_too_few_clients_or_neighbours(self, scene_of):
        scene = scene_of(Masked(), rows_of(5), min_clients=4)
        scene.coordinator.enrol()
        common = {"first": 1, "sums": 1, "clients": 3, "root": bytes(32)}
        with pytest.raises(QuorumError, match="agreed were at least 4"):
            list(scene.coordinator.ask(Dealer.offer, common))
        scene.tap.recall = lambda name, party, call, job: (
            forged(
                scene,
                party,
                call,
                job,
                names=b"client-2",
                offers=Message.decode(job)["offers"][:SIGNED_OFFER],
            )
            if (name, party) == (DEAL, "client-1")
            else None
        )
        scene.coordinator.protection.prepare(1)
        assert "1 neighbours among 5 clients" in scene.coordinator.failures["client-1"]

    @pytest.mark.parametrize(
        "settings",
        [{"bits": 7}, {"bits": 51}, {"neighbours": 1}, {"corrupt_share": 1.0}, {"dropout_share": -0.1}],
    )
    def test_of_settings_that_cannot_work(self, settings):
        with pytest.raises(ConfigError, match=next(iter(settings))):
            Masked(**settings)

    def test_of_sums_that_nobody_prepared(self, scene_of):
        scene = scene_of(Masked(), rows_of(3))
        scene.coordinator.enrol()
        with pytest.raises(ProtectionError, match="prepare"):
            reveal(scene)


class TestLies:
    @pytest.mark.parametrize("where", [OFFER, DEAL, CONTRIBUTE, UNMASK])
    def test_a_flipped_bit_is_a_dropout(self, scene_of, where):
        scene = scene_of(Masked(), rows_of(5), quorum=0.5)

        def flip(name, party, message):
            if (name, party) != (where, "client-2"):
                return None
            field = next(field for field in message if isinstance(message[field], Blob))
            raw = bytearray(message[field].data)
            raw[len(raw) // 2] ^= 4
            return message | {field: Blob(message[field].kind, bytes(raw))}

        scene.tap.rewrite = flip
        scene.begin()
        assert_exact(scene, reveal(scene), () if where == UNMASK else some(2))

    @pytest.mark.parametrize("neighbours", [None, 2])
    @pytest.mark.parametrize("by", ["nobody", "coordinator", "another"])
    def test_a_swapped_offer_is_refused(self, scene_of, neighbours, by):
        """The coordinator shows client-1 a key of its own as that of a neighbour."""
        scene = scene_of(Masked(neighbours=neighbours), rows_of(5), quorum=0.5)

        def swap(name, party, call, job):
            if (name, party) != (DEAL, "client-1"):
                return None
            asked = Message.decode(job)
            owner, raw = asked["names"].decode().split("\n")[-1], asked["offers"]
            offer = new_exchange()[1] + raw[-SIGNED_OFFER:][SIGNATURE + 32 :]
            link = scene.coordinator.link
            identity = link.identity if by == "coordinator" else scene.site("client-1").identity
            signed = sign_key(identity, OFFERED, owner, link.manifest.digest, offer)
            signed = raw[-SIGNED_OFFER:][:SIGNATURE] + offer if by == "nobody" else signed
            return forged(scene, party, call, job, offers=raw[:-SIGNED_OFFER] + signed)

        scene.tap.recall = swap
        scene.begin()
        assert "is not signed by its pinned identity" in scene.coordinator.failures["client-1"]
        scene.tap.recall = lambda *ask: None
        assert_exact(scene, reveal(scene), some(1))
        assert_exact(scene, reveal(scene))

    def test_two_that_were_shown_different_offers_have_no_key_together(self, scene_of):
        """A client that signs two offers, and a coordinator that shows one each: keys are bound to both."""
        scene = scene_of(Masked(), rows_of(5), quorum=0.5)

        def swap(name, party, call, job):
            if (name, party) != (DEAL, "client-1"):
                return None
            raw, friend = Message.decode(job)["offers"], scene.site("client-5")
            offer = raw[-SIGNED_OFFER:][SIGNATURE:]
            other = offer[:96] + bytes(32) + offer[128:]  # another next commitment
            signed = sign_key(
                friend.identity, OFFERED, "client-5", scene.coordinator.link.manifest.digest, other
            )
            return forged(scene, party, call, job, offers=raw[:-SIGNED_OFFER] + signed)

        scene.tap.recall = swap
        scene.begin()
        scene.tap.recall = lambda *ask: None
        with pytest.raises(ProtectionError, match="client-5 dealt wrong ones"):
            reveal(scene)
        assert "client-1 dealt to client-5 do not open" in scene.coordinator.failures["client-5"]

    def test_a_share_that_travels_is_said_to_follow_from_keys(self, scene_of, monkeypatch):
        """Its holder gives a number that says nothing; one such is left out when the seed is recovered."""
        scene = scene_of(Masked(), rows_of(5), quorum=0.5).begin()
        find = Batch.find_shares

        def lie(batch, party):
            dealt, derived, sealed = find(batch, party)
            return (dealt, [True] * 5, []) if party == "client-5" else (dealt, derived, sealed)

        monkeypatch.setattr(Batch, "find_shares", lie)
        assert_exact(scene, reveal(scene))

    def test_relayed_shares_of_another_are_refused(self, scene_of):
        scene = scene_of(Masked(), rows_of(5), quorum=0.5).begin()
        batch = scene.coordinator.protection.batch
        batch.sealed["client-1"], batch.sealed["client-2"] = (
            batch.sealed["client-2"],
            batch.sealed["client-1"],
        )
        assert_exact(scene, reveal(scene), some(5))  # the last neighbour of each, to whom shares travel
        assert "client-1 dealt to client-5 do not open" in scene.coordinator.failures["client-5"]

    def other_model(self, scene, victims):
        def recall(name, party, call, job):
            if name != CONTRIBUTE or party not in victims:
                return None
            return forged(scene, party, call, job, told={"shared/weights": np.ones(3)})

        scene.tap.recall = recall

    def test_different_broadcasts_are_noticed(self, scene_of):
        scene = scene_of(Masked(), rows_of(6)).begin()
        self.other_model(scene, some(2, 5))
        with pytest.raises(ProtectionError, match="asked different things"):
            reveal(scene)
        assert UNMASK not in steps(scene)

    @pytest.mark.parametrize("bits", [16, 24, 32])
    def test_whoever_broadcasts_different_models_gets_noise(self, scene_of, monkeypatch, bits):
        scene = scene_of(Masked(bits=bits), rows_of(6)).begin()
        self.other_model(scene, some(2))
        read = Encoding.read
        monkeypatch.setattr(Encoding, "read", lambda *args: (read(*args)[0], bytes(32)))  # it looks away
        with pytest.raises(ProtectionError, match="masks did not cancel"):
            reveal(scene)

    @pytest.mark.parametrize(
        "change", [{"masked": Blob("masked", b"")}, {"masked": Blob("public", bytes(200))}, {}]
    )
    def test_an_upload_of_another_kind_is_a_dropout(self, scene_of, change):
        class OddClient(MaskedClient):
            def protect(self, ticket, vector, layout):
                reply = super().protect(ticket, vector, layout)
                return Message(change) if self.party.id == "client-2" else reply

        class Odd(Masked):
            def at_client(self, party):
                return OddClient(self, party)

        scene = scene_of(Odd(), rows_of(5), quorum=0.5).begin()
        assert_exact(scene, reveal(scene), some(2))


class TestDraw:
    def test_everyone_has_as_many_neighbours_on_either_side(self):
        places = {f"c{i:03}": int(p) for i, p in enumerate(np.random.default_rng(0).integers(0, 2**63, 101))}
        for count in (2, 4, 10):
            graph = assign_holders(places, count)
            assert {len(around) for around in graph.values()} == {count + 1}
            assert all(name in graph[other] for name, around in graph.items() for other in around)
        assert {len(around) for around in assign_holders(places, 100).values()} == {101}

    @pytest.mark.parametrize(("clients", "count"), [(70, 4), (300, 30), (2000, 48)])
    def test_an_honest_draw_raises_no_alarm(self, clients, count):
        for seed in range(5):
            drawn = np.random.default_rng(seed).integers(0, 2**64, clients, dtype=np.uint64)
            places = sorted(drawn.tolist())[: int(clients * 0.9)]
            for index, own in enumerate(places):
                around = [places[(index + i) % len(places)] for i in range(-count // 2, count // 2 + 1) if i]
                if index % 7 == 0 and 60 < index < len(places) - 60:
                    assert is_plausible_draw(own, around, clients, 0.1)

    def test_a_coordinator_that_shows_its_friends_only_raises_one(self):
        rng = np.random.default_rng(0)
        alarms = 0
        for _ in range(200):
            own, *friends = rng.integers(0, 2**64, 201, dtype=np.uint64).tolist()  # 200 of 2,000 collude
            ahead = sorted(friends, key=lambda other: (other - own) % 2**64)
            alarms += not is_plausible_draw(own, ahead[:24] + ahead[-24:], 2000, 0.1)
        assert alarms == 200

    def test_neighbours_far_away_on_both_sides_raise_one(self):
        far, near = (int(share * longest_arc(24, 2000, 0.1) * 2**64) for share in (0.95, 0.3))
        for ahead, behind, honest in ((far, near, True), (near, far, True), (far, far, False)):
            places = [ahead * step // 24 for step in range(1, 25)]
            places += [2**64 - behind * step // 24 for step in range(1, 25)]
            assert is_plausible_draw(0, places, 2000, 0.1) is honest

    def test_neighbours_that_were_chosen_are_refused(self, scene_of, monkeypatch):
        scene = scene_of(Masked(neighbours=4), rows_of(90), quorum=0.5)
        scene.coordinator.enrol()
        by_name = {name: index for index, name in enumerate(scene.rows)}
        monkeypatch.setattr(
            masked_keys, "assign_holders", lambda places, count: assign_holders(by_name, count)
        )
        with pytest.raises(QuorumError, match="further away than chance explains"):
            scene.coordinator.protection.prepare(1)

    def test_a_commitment_serves_for_nothing_else_and_nobody_else(self):
        own, number = ("draw", "run", "ann", 0), bytes(range(32))
        others = [("key", "run", "ann", 0), ("draw", "other", "ann", 0), ("draw", "run", "bob", 0)]
        others += [("draw", "run", "ann", 1), ("drawr", "un", "ann", 0)]
        assert len({commit(*terms, number) for terms in [own, *others]} | {commit(*own, bytes(32))}) == 7

    def test_a_number_that_was_not_committed_to_is_refused(self, scene_of):
        scene = scene_of(Masked(neighbours=4), rows_of(20), quorum=0.5)
        scene.coordinator.enrol()
        scene.site("client-7").vault["mask/number"] = Secret(bytes(32))  # a better place on the circle
        scene.coordinator.protection.prepare(1)
        assert "not the one that it committed to" in scene.coordinator.failures["client-7"]
        assert_exact(scene, reveal(scene), some(7))
        assert_exact(scene, reveal(scene))


class TestThresholds:
    @pytest.mark.parametrize("clients", [2, 3, 4, 5, 10, 63, 64, 100, 1000, 5000])
    @pytest.mark.parametrize("active", [False, True])
    def test_half_never_suffices(self, clients, active):
        count, threshold = Masked(active=active).sizing(clients)
        assert count < clients
        assert (count + 1) / 2 < threshold <= count + 1
        if active and count == clients - 1:
            assert 2 * threshold > clients + np.ceil(0.05 * clients) or threshold == clients

    @pytest.mark.parametrize("clients", [6, 9, 10, 31, 60])
    def test_with_a_third_corrupt_it_takes_two_thirds_as_in_bonawitz(self, clients):
        _, threshold = Masked(active=True, corrupt_share=1 / 3).sizing(clients)
        assert threshold > 2 * clients / 3
        passive = Masked(active=False, corrupt_share=1 / 3).sizing(clients)[1]
        assert clients / 2 < passive < threshold

    @pytest.mark.parametrize(("active", "threshold", "colluders"), [(False, 5, 0), (True, 6, 2)])
    def test_a_coordinator_that_may_lie_has_to_find_more(self, scene_of, active, threshold, colluders):
        scene = scene_of(Masked(active=active), rows_of(9), quorum=0.5).begin()
        rules = scene.coordinator.protection.batch.rules
        assert (rules.threshold, rules.colluders) == (threshold, colluders)
        assert_exact(scene, scene.total(some(1, 2)), some(1, 2))

    @pytest.mark.parametrize("clients", [3, 4, 5, 8, 20, 63, 64, 100, 1000])
    def test_as_many_may_collude_as_is_said(self, clients):
        rules = Masked().rules(clients)
        count, t, m, c = rules.neighbours, rules.threshold, rules.partners, rules.colluders
        assert 2 * t > count + 1 + c >= count + 1 + np.ceil(0.05 * (count + 1)) - (clients == 2)
        assert rules.fewest_honest == (t - c if rules.complete else t - c + m - count - 1) >= 2

    def test_many_that_may_vanish_take_more_than_half_of_the_clients_as_neighbours(self):
        assert neighbours_for(100, 0.05, 0.3).neighbours == 58
        assert neighbours_for(100, 0.05, 0.1).neighbours == 18

    def test_a_proof_is_as_long_as_its_tree_is_deep(self):
        assert [proof_length(size) for size in (1, 2, 8, 9)] == [4 + 32 * depth for depth in (0, 1, 3, 4)]

    def test_the_documentation_has_the_thresholds(self):
        text = (Path(__file__).parents[2] / "docs" / "masked.md").read_text()
        text = text[text.index("## A coordinator that lies") :]
        for clients in (3, 4, 5, 10, 20, 40):
            rules = Masked().rules(clients)
            row = (clients, rules.threshold, rules.colluders, clients - rules.threshold)
            assert f"| {' | '.join(map(str, row))} |" in text
        small, large = Masked().rules(100), Masked().rules(1000)
        assert f"{small.colluders} of its {small.neighbours} neighbours among 100" in text
        assert f"{large.colluders} of {large.neighbours} among 1,000" in text
        assert f"{small.fewest_honest} honest clients among 100, {large.fewest_honest} among\n1,000" in text
        assert f"({Masked(active=False).rules(1000).neighbours} instead of {large.neighbours} for" in text

    def test_promises_say_what_it_takes(self):
        assert "with fewer it learns one total of each attempt at a sum" in Masked().promises.collusion
        assert "more than 20%" in Masked(corrupt_share=0.2).promises.collusion
        assert "which may be one: leave active on" in Masked(active=False).promises.collusion
        assert Masked(bits=24).promises.bytes_per_value == 4
        assert "From 64 clients on each masks with some others only" in Masked().promises.collusion
        assert "From 64" not in Masked(neighbours=10).promises.collusion

    @pytest.mark.parametrize(("clients", "told"), [(20, False), (70, True)])
    def test_a_sparse_graph_is_warned_of_where_there_is_one(self, clients, told):
        notes: list[Noted] = []
        federation = Federation.embedded("iris", clients=clients, partition="iid")
        events = Events(lambda _, event: notes.append(event) if isinstance(event, Noted) else None)
        federation.train("fedheonn", protect=Masked(), events=events)
        warned = [note for note in notes if note.level == "warning" and "some others only" in note.text]
        assert len(warned) == told
