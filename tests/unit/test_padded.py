"""Masked sums whose totals open at the clients: exact whoever vanishes, and never twice under one pad."""

import numpy as np
import pytest

from tacit.core.errors import ConfigError, ProtectionError
from tacit.core.layout import Field, Layout
from tacit.crypto.pads import PadKey
from tacit.federation import Federation
from tacit.methods.fedavg import FedAvg
from tacit.protections.masked import Masked
from tacit.protections.masked.rules import Rules
from tacit.protections.noised import Noised
from tests.helpers.masked_sums import assert_exact, rows_of, some

PADDED = Masked(opens="clients")


@pytest.fixture
def places(monkeypatch):
    """Where clients have put pads, and whose, as they do it."""
    found = []
    add = PadKey.add

    def noting(self, vector, place, counts):
        found.append((place, tuple(counts.tolist())))
        add(self, vector, place, counts)

    monkeypatch.setattr(PadKey, "add", noting)
    return found


class TestTotals:
    @pytest.mark.parametrize(
        ("clients", "neighbours", "lost"),
        [
            (2, None, ()),
            (3, None, (2,)),
            (4, None, ()),
            (8, None, (3, 4)),
            (17, None, (9,)),
            (70, 6, (7, 50)),
        ],
    )
    def test_are_exact(self, scene_of, clients, neighbours, lost):
        scene = scene_of(Masked(opens="clients", neighbours=neighbours), rows_of(clients), quorum=0.5).begin()
        assert_exact(scene, scene.total(some(*lost)), some(*lost))

    @pytest.mark.parametrize("bits", [8, 16, 24, 32, 50])
    def test_at_any_precision(self, scene_of, bits):
        scene = scene_of(Masked(opens="clients", bits=bits), rows_of(6), quorum=0.5).begin()
        assert_exact(scene, scene.total(some(2)), some(2))

    def test_a_sum_that_starts_again_has_other_pads(self, scene_of, places):
        scene = scene_of(PADDED, rows_of(9), quorum=0.3).begin()
        lost = some(1, 2, 3, 4, 5, 6)
        assert_exact(scene, scene.total(lost), lost)
        assert len(places) == 6  # three clients, twice
        assert len({place for place, _ in places}) == 2
        scene.total()
        assert len({place for place, _ in places}) == 3

    def test_the_clients_key_travels_once(self, scene_of):
        scene = scene_of(PADDED, rows_of(4)).begin()
        scene.total()
        key = scene.coordinator.protection.relay.current_key
        assert (key.wraps, sorted(key.holders)) == ({}, sorted(scene.rows))

    def test_say_whose_contributions_they_are_of(self, scene_of):
        scene = scene_of(PADDED, rows_of(3)).begin()
        scene.total()
        half = PADDED.at_client(scene.site("client-1"))
        with pytest.raises(ProtectionError, match="does not say whose contributions it is the sum of"):
            half.open({"summands": 3}, Layout(Field("vector", (3,), 1.0)))

    def test_on_a_sparse_graph_each_client_carries_pads_of_its_own_choice(self, scene_of, places):
        scene = scene_of(Masked(opens="clients", neighbours=4), rows_of(66)).begin()
        scene.total()
        assert len(places) == 66
        assert len({place for place, _ in places}) == 1
        assert len({chosen for _, chosen in places}) == 66
        assert all(len(chosen) == 64 and set(chosen) <= {0, 1} for _, chosen in places)

    def test_two_groups_that_were_told_of_different_members_have_different_pads(self, scene_of, places):
        for members in (5, 6):
            scene_of(PADDED, rows_of(members)).begin().total()
        assert len({place for place, _ in places}) == 2

    def test_parties_may_be_cold(self, scene_of):
        scene = scene_of(PADDED, rows_of(5), engine={"cold": True, "keep_replies": True}, quorum=0.5).begin()
        for lost in ((), (2,), ()):
            assert_exact(scene, scene.total(some(*lost)), some(*lost))


class TestModels:
    @pytest.mark.parametrize("clients", [7, 66])
    def test_trains_fedheonn_like_plain(self, clients):
        federation = Federation.embedded("iris", clients=clients, seed=1, partition="iid")
        plain, padded = (federation.train("fedheonn", protect=way) for way in ("plain", PADDED))
        np.testing.assert_allclose(padded.model.weights, plain.model.weights, rtol=1e-5, atol=1e-6)

    def test_averages_like_masked(self):
        federation = Federation.embedded("iris", clients=6, seed=1)
        one, other = (federation.train(FedAvg.tiny(), protect=way) for way in (Masked(), PADDED))
        assert (
            one.model.predict(federation.test.values).tolist()
            == other.model.predict(federation.test.values).tolist()
        )

    def test_noise_may_be_around_it(self, scene_of):
        around = Noised(
            inner="masked", inner_options={"opens": "clients"}, where="distributed", epsilon=50.0, clip=4.0
        )
        scene = scene_of(around, rows_of(6), min_clients=4).begin()
        error = np.abs(scene.total()["vector"] - scene.expected()).max()
        assert 0 < error < 20


class TestSettings:
    def test_values_that_must_be_fine_take_one_word(self):
        layout = Layout(Field("gram", (100,), 1.0, fine=True), Field("m", (10,), 1.0))
        for clients, size in ((10, 7), (100, 7), (20_000, 8)):
            for protection in (Masked(), PADDED):
                encoding = protection.encoding(layout, clients)
                assert encoding.code.slots == 110
                assert 46 <= encoding.code.bits <= 47
                assert encoding.bits <= 8 * size

    def test_of_which_a_coordinator_could_have_too_many_totals_are_refused(self):
        with pytest.raises(ConfigError, match=r"could have \d+ totals of a sum of 20000 clients"):
            Masked(opens="clients", active=False).check_totals(20_000)
        Masked(active=False).check_totals(20_000)

    def test_that_leave_no_room_are_refused(self):
        with pytest.raises(ConfigError, match="bits is 48: pads and 20,000 summands leave 46 of a word"):
            Masked(opens="clients", bits=48).encoding(Layout(Field("vector", (3,), 1.0)), 20_000)

    def test_a_total_that_no_pads_leave_is_refused(self):
        encoding = Masked(opens="clients").encoding(Layout(Field("vector", (2,), 1.0)), 10)
        words = np.array([3, -5]).astype(np.uint64) << np.uint64(encoding.shift)
        assert (encoding.shift, encoding.read_integers(words, 10).tolist()) == (3, [3, -5])
        for changed in (words + np.uint64(1), words + (np.uint64(10) << np.uint64(34))):
            with pytest.raises(ProtectionError, match="a total that 10 contributions cannot have"):
                encoding.read_integers(changed, 10)

    def test_of_how_many_totals_a_liar_can_have(self):
        """A client sits with 16 more of its set, no further than a tenth or twentieth of the circle away."""
        rules = Rules(neighbours=26, threshold=20, partners=24, complete=False)
        assert [rules.most_totals(900, arc) for arc in (0.1, 0.05)] == [900 // (17 * 3), 900 // (17 * 6)]
        assert rules.most_totals(100, 0.05) == 1
        behind = Rules(neighbours=32, threshold=20, partners=30, complete=False)
        assert behind.most_totals(900, 0.05) == 900 // 17  # all may sit behind it: a set need not go around

    @pytest.mark.parametrize(("opens", "clients"), [("clients", 50), ("coordinator", 250)])
    def test_promised_bytes_are_those_of_so_many_clients(self, opens, clients):
        layout = Layout(Field("vector", (3,), 1.0))
        for bits in range(16, 40):
            masked = Masked(bits=bits, opens=opens)
            assert masked.encoding(layout, clients).bits == 8 * masked.promises.bytes_per_value

    def test_promises_say_who_reads_what(self):
        promises = PADDED.promises
        assert (
            "the coordinator with any one client learns the total, and no contribution" in promises.collusion
        )
        assert (
            promises.sees["coordinator"]
            == "vectors of uniform noise, and totals under pads that it cannot take off"
        )
        assert promises.proof
        assert not promises.warnings
        assert promises.as_dict()["model"].startswith("each client by itself")


@pytest.mark.parametrize("bound", [1, 2, 5, 16, 2000, 2048])
@pytest.mark.parametrize("clients", [2, 5, 16, 64, 65, 20_000])
def test_a_sum_of_the_largest_counts_does_not_wrap_around(bound, clients):
    layout = Layout(Field("count", (2,), bound=float(bound), whole=True))
    encoding = Masked(opens="clients").encoding(layout, clients)
    one = encoding.write_words(encoding.code.encode(np.array([bound, 0.0]))).astype(object)
    total = np.array(one * clients % (1 << encoding.bits), encoding.kind)
    integers = encoding.read_integers(encoding.read_total(total, clients), clients)
    assert encoding.code.decode(integers).tolist() == [bound * clients, 0]


@pytest.mark.parametrize("opens", ["clients", "coordinator"])
@pytest.mark.parametrize("clients", [3, 10, 1000])
def test_a_known_total_at_its_end_does_not_wrap_around_by_rounding(opens, clients):
    encoding = Masked(opens=opens).encoding(Layout(Field("shares", (40,), bound=1.0, total=1.0)), clients)
    parts = np.random.default_rng(clients).dirichlet(np.ones(clients), 40).T
    total = sum(encoding.code.encode(part) for part in parts)
    words = ((total << encoding.shift) & ((1 << encoding.bits) - 1)).astype(encoding.kind)
    assert np.allclose(encoding.code.decode(encoding.read_integers(words, clients)), 1, atol=1e-5)
