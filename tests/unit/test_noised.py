"""Noised sums: the right noise, the right bill, and nothing that goes round them."""

import re

import dp_accounting
import numpy as np
import pytest

from tacit.core.errors import ConfigError, DataError, OpeningError, ProtectionError, QuorumError
from tacit.core.events import BudgetSpent, Noted, TotalOpened, WaveStarted
from tacit.core.layout import Field, Layout
from tacit.core.manifest import Components, Manifest
from tacit.core.marks import contribution
from tacit.core.message import Message
from tacit.core.protection import ClientHalf, CoordinatorHalf, Protection
from tacit.crypto.accounting import LARGE_ORDERS, ORDERS, sigma_for
from tacit.data.preparation import Preparation
from tacit.federation import Federation
from tacit.methods.base import Method
from tacit.methods.ensemble import FedHEONNEnsemble
from tacit.methods.fedheonn import FedHEONN
from tacit.protections.noised import Noised
from tacit.protections.noised import halves as module
from tacit.protections.noised.grid import TAIL_SHARE
from tacit.protections.noised.halves import NoisedClient, NoisedCoordinator
from tacit.protections.plain import Plain

CLIENTS = [f"client-{index}" for index in range(1, 5)]
HUGE = 1e7  # an epsilon that leaves noise of a thousandth of the clip
PAILLIER = {"inner": "paillier", "inner_options": {"key_bits": 2048}}
CENTRAL = {"plain": {}, "paillier": PAILLIER}
DISTRIBUTED = {
    "plain": {},
    "plain-clients": {"inner_options": {"opens": "clients"}},
    "ckks": {"inner": "ckks"},
    "paillier": PAILLIER,
    "paillier-clients": {"inner": "paillier", "inner_options": {"key_bits": 2048, "holder": "clients"}},
    "ring": {"inner": "ring", "inner_options": {"key_bits": 2048}},
    "masked": {"inner": "tacit.protections.masked:Masked"},
    "shares": {"inner": "tacit.protections.secret_sharing.shares:Shares"},
}
VARIANTS = {
    **{f"central-{name}": Noised(epsilon=HUGE, **chosen) for name, chosen in CENTRAL.items()},
    **{
        f"distributed-{name}": Noised(epsilon=HUGE, where="distributed", **chosen)
        for name, chosen in DISTRIBUTED.items()
    },
}


def rows_of(size, length=0.5, seed=0):
    """Give each client a vector of that L2 norm."""
    rows = np.random.default_rng(seed).normal(size=(len(CLIENTS), size))
    rows *= length / np.linalg.norm(rows, axis=1, keepdims=True)
    return dict(zip(CLIENTS, rows, strict=True))


@pytest.fixture
def prepared(scene_of, keys_once):
    """Make scenes with a budget for some sums."""

    def make(protection, rows, sums=1, **settings):
        scene = scene_of(protection, rows, **{"bound": None, "min_clients": 3, "quorum": 0.5, **settings})
        with keys_once():
            scene.coordinator.enrol()
            scene.coordinator.protection.prepare(sums)
        return scene

    return make


class TestNoise:
    @pytest.mark.parametrize(
        ("chosen", "size"),
        [(CENTRAL["plain"], 20_000), (CENTRAL["paillier"], 2000)],
        ids=["plain", "paillier"],
    )
    def test_central_noise_has_the_accounted_variance(self, prepared, chosen, size):
        protection, rows = Noised(epsilon=2.0, clip=3.0, **chosen), rows_of(size)
        scene = prepared(protection, rows, sums=5)
        error = scene.total()["vector"] - scene.expected()
        self.check(error, (sigma_for(2.0, 1e-5, 5) * 3.0) ** 2)

    @pytest.mark.parametrize(("name", "size"), [("plain", 20_000), ("ckks", 20_000), ("paillier", 2000)])
    def test_distributed_noise_has_the_variance_of_all_parts(self, prepared, name, size):
        protection = Noised(epsilon=2.0, clip=3.0, where="distributed", **DISTRIBUTED[name])
        scene = prepared(protection, rows_of(size), sums=5)
        error = scene.total()["vector"] - scene.expected()
        # Two of the three clients over which a total opens at least have it all; four add their components.
        accounted = (sigma_for(2.0, 1e-5 * (1 - TAIL_SHARE), 5) * 3.0) ** 2
        # A coarser inner protection has a coarser grid, whose rounding counts as sensitivity.
        grid = protection.choose_grid(Layout(Field("vector", (size,))), 4, 5, 3)
        inflation = (1 + np.sqrt(size) / 2 * grid.unit / 3.0) ** 2
        assert 1 <= inflation < 1.001
        self.check(error, accounted * inflation * 4 / 2)

    def test_survivors_down_to_the_fewest_leave_at_least_the_accounted_variance(self, prepared):
        protection = Noised(epsilon=2.0, where="distributed", colluding=0)
        scene = prepared(protection, rows_of(20_000))
        error = scene.total(lost=CLIENTS[:1])["vector"] - scene.expected(CLIENTS[:1])
        self.check(error, sigma_for(2.0, 1e-5 * (1 - TAIL_SHARE), 1) ** 2)
        with pytest.raises(OpeningError, match="2 contributions, no total over fewer than 3"):
            prepared(protection, rows_of(4)).total(lost=CLIENTS[:2])

    @staticmethod
    def check(error, variance):
        """Five standard deviations of what is estimated: wrong once in a million runs."""
        draws = error.size
        assert abs(error.mean()) < 5 * np.sqrt(variance / draws)
        assert abs(error.var() / variance - 1) < 5 * np.sqrt(2 / draws)

    def test_totals_lie_on_a_grid_of_a_power_of_two(self, prepared):
        protection = Noised(epsilon=2.0, where="distributed", inner="ckks")
        total = prepared(protection, rows_of(50)).total()["vector"]
        unit = protection.choose_grid(Layout(Field("vector", (50,))), 4, 1, 3).unit
        assert np.log2(unit) % 1 == 0
        assert (total / unit == np.rint(total / unit)).all()

    def test_what_is_cut_from_a_part_costs_a_thousandth_of_delta(self):
        protection = Noised(epsilon=3.0, where="distributed")
        grid = protection.choose_grid(Layout(Field("vector", (1000,))), 50, 20, 10)
        tail = 2 * np.exp(-(grid.cut**2) / (2 * grid.variance))
        # Parts of 9 clients have the whole variance: those of others add to it, however they are cut.
        cost = (1 + np.exp(3.0)) * tail * 1000 * 9 * 20
        assert cost <= TAIL_SHARE * 1e-5 * 1.0001
        alone = protection.choose_grid(Layout(Field("vector", (1000,))), 1, 20, 10)
        assert alone.cut**2 / alone.variance == pytest.approx(grid.cut**2 / grid.variance)
        assert grid.layout.bounds.max() >= 1.0 + grid.cut * grid.unit

    def test_a_part_beyond_the_tail_is_cut_and_still_fits(self, prepared, monkeypatch):
        monkeypatch.setattr(module, "discrete_gaussian", lambda variance, size: np.full(size, 1 << 50))
        protection = Noised(epsilon=3.0, where="distributed", **PAILLIER)
        grid = protection.choose_grid(Layout(Field("vector", (5,))), 4, 1, 3)
        total = prepared(protection, rows_of(5)).total()["vector"]
        assert np.allclose(total, 4 * grid.cut * grid.unit, atol=4)


class TestSum:
    @pytest.mark.parametrize("name", VARIANTS)
    def test_hardly_any_noise_gives_the_clipped_sum(self, name, prepared):
        rows = rows_of(40, length=0.8) | {"client-2": rows_of(40, length=7.0)["client-2"]}
        scene = prepared(VARIANTS[name], rows, bound=3.5)
        clipped = [row / max(1, np.linalg.norm(row)) for row in rows.values()]
        assert scene.total()["vector"] == pytest.approx(np.sum(clipped, axis=0), abs=0.01)

    @pytest.mark.parametrize("name", ["central-plain", "distributed-ckks", "distributed-paillier"])
    def test_fields_without_a_bound_have_one_once_clipped(self, name, prepared):
        rows = {client: {"a": np.full(3, 1e12), "b": np.array(-2.0)} for client in CLIENTS}
        total = prepared(VARIANTS[name], rows, bound={"a": None, "b": 5.0}).total()
        assert total["a"] == pytest.approx(4 / np.sqrt(3), abs=0.01)
        assert total["b"] == pytest.approx(0, abs=0.01)

    def test_bounds_of_the_wrapped_protection_are_tight(self):
        layout = Layout(
            Field("small", (2,), bound=0.25), Field("large", (2,), bound=9.0), Field("none", (1,))
        )
        found = Noised(epsilon=HUGE, clip=2.0).choose_grid(layout, 10, 1, 3)
        assert found.layout.bounds.tolist() == pytest.approx([0.25, 0.25, 2.0, 2.0, 2.0], rel=1e-6)

    @pytest.mark.parametrize("name", ["central-plain", "distributed-plain", "distributed-ckks"])
    def test_one_client_moves_the_total_by_no_more_than_the_clip(self, name, prepared):
        rows = rows_of(20)
        wild = rows | {"client-3": np.full(20, -1e9)}
        totals = [prepared(VARIANTS[name], chosen).total()["vector"] for chosen in (rows, wild)]
        moved = np.linalg.norm(totals[1] - totals[0])
        assert 1.0 < moved <= 1.5 + 0.02  # from a norm of 0.5 to one of 1, the other way

    @pytest.mark.parametrize("name", ["plain-clients", "ckks", "paillier-clients", "shares"])
    def test_replicas_are_equal_where_clients_open(self, name, prepared):
        protection = Noised(epsilon=1.0, where="distributed", **DISTRIBUTED[name])
        scene = prepared(protection, rows_of(30), sums=2)
        scene.round()
        scene.round()
        scene.finish()  # compares the digests of all replicas
        held = [scene.site(client).state["shared/vector"] for client in CLIENTS]
        assert all((other == held[0]).all() for other in held)
        assert np.abs(held[0]).max() > 1

    @pytest.mark.parametrize("name", ["ring", "masked", "shares"])
    def test_a_sum_that_starts_again_draws_no_second_noise(self, name, prepared, monkeypatch):
        drawn = []

        def draw(variance, size):
            drawn.append(size)
            return np.zeros(size, dtype=np.int64)

        monkeypatch.setattr(module, "discrete_gaussian", draw)
        protection = Noised(epsilon=1.0, where="distributed", **DISTRIBUTED[name])
        scene = prepared(protection, rows_of(6), min_clients=2)
        total = scene.total(lost=CLIENTS[2:3])["vector"]
        assert total == pytest.approx(scene.expected(CLIENTS[2:3]), abs=1e-3)
        assert len(drawn) == 3

    def test_a_party_gives_the_same_vector_for_the_same_sum(self, prepared):
        protection = Noised(epsilon=1.0, where="distributed")
        scene = prepared(protection, rows_of(6), sums=2)
        client, layout = protection.at_client(scene.site("client-1")), Layout(Field("vector", (6,)))
        ticket = {"sum": 1, "noise_asked": 4, "noise_sums": 2}
        first, again, other = (
            client.protect(ticket | {"sum": number}, np.zeros(6), layout)["vector"] for number in (1, 1, 2)
        )
        assert (first == again).all()
        assert (first != other).any()
        with pytest.raises(ProtectionError, match="the privacy budget is spent"):
            client.protect(ticket, np.zeros(6), layout)


class TestBudget:
    @pytest.mark.parametrize("where", ["central", "distributed"])
    def test_epsilon_is_the_figure_of_dp_accounting(self, where, prepared):
        protection = Noised(epsilon=2.5, where=where)
        scene = prepared(protection, rows_of(5), sums=3)
        delta = 1e-5 * (1 if where == "central" else 1 - TAIL_SHARE)
        noise = sigma_for(2.5, delta, 3)
        theirs = dp_accounting.rdp.RdpAccountant(ORDERS + LARGE_ORDERS)
        assert scene.coordinator.protection.spent() == 0
        for number in (1, 2, 3):
            scene.total()
            theirs.compose(dp_accounting.GaussianDpEvent(noise))
            spent = scene.told_of(BudgetSpent)[-1]
            assert spent.epsilon == scene.coordinator.protection.spent() == theirs.get_epsilon(delta)
            assert (spent.sum, spent.budget, spent.left) == (number, 2.5, 3 - number)
        assert 2.49 < spent.epsilon <= 2.5
        assert len(scene.told_of(TotalOpened)) == 3

    def test_nobody_is_asked_once_it_is_spent(self, prepared):
        scene = prepared(Noised(epsilon=1.0), rows_of(5), sums=2)
        scene.total(), scene.total()
        waves = len(scene.told_of(WaveStarted))
        with pytest.raises(
            ProtectionError, match=r"spent: 2 sums cost epsilon (1|0\.999\d) of 1, noise was sized for 2"
        ):
            scene.total()
        assert len(scene.told_of(WaveStarted)) == waves

    def test_a_sum_that_failed_is_charged(self, prepared):
        scene = prepared(Noised(epsilon=1.0), rows_of(5))
        with pytest.raises(QuorumError):
            scene.total(lost=CLIENTS[:3])
        with pytest.raises(ProtectionError, match="budget is spent"):
            scene.total()

    def test_clients_count_for_themselves(self, prepared):
        scene = prepared(Noised(epsilon=1.0, where="distributed"), rows_of(5))
        scene.total()
        scene.coordinator.protection.budget.used = 0
        with pytest.raises(QuorumError, match="the privacy budget is spent: it took part in 1 sums"):
            scene.total()

    def test_clients_are_told_once_how_many_sums_there_will_be(self, prepared):
        scene = prepared(Noised(epsilon=1.0, where="distributed"), rows_of(5), sums=3)
        scene.total()
        scene.coordinator.protection.budget.sums = 2
        with pytest.raises(QuorumError, match="noise for 2 sums, it was told 3 at first"):
            scene.total()

    @pytest.mark.parametrize("told", [0, -1, 1.0, True, None])
    def test_clients_refuse_numbers_that_are_none(self, told, prepared):
        protection = Noised(epsilon=1.0, where="distributed")
        client = protection.at_client(prepared(protection, rows_of(5)).site("client-1"))
        for ticket in ({"noise_asked": told, "noise_sums": 1}, {"noise_asked": 4, "noise_sums": told}):
            with pytest.raises(ProtectionError, match="sized for 1 or more"):
                client.protect({"sum": 1, **ticket}, np.zeros(5), Layout(Field("vector", (5,))))

    def test_a_run_has_one_budget(self, prepared):
        scene = prepared(Noised(epsilon=1.0), rows_of(5))
        with pytest.raises(ProtectionError, match="sized already"):
            scene.coordinator.protection.prepare(5)

    def test_noise_is_sized_before_the_first_sum(self, scene_of):
        scene = scene_of(Noised(epsilon=1.0), rows_of(5))
        scene.coordinator.enrol()
        with pytest.raises(ProtectionError, match="prepare the protection before"):
            scene.total()

    def test_the_run_is_told_how_much_noise_and_how_to_have_less(self, prepared):
        scene = prepared(Noised(epsilon=1.0, where="distributed"), rows_of(5), min_clients=2, quorum=1.0)
        told = [note.text for note in scene.told_of(Noted)]
        assert any("in each of 1 sums" in text and "a larger min_clients" in text for text in told)


class TestRefusals:
    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({"epsilon": 0.0}, "epsilon is 0.0: a privacy budget is a number above 0"),
            ({"epsilon": float("nan")}, "epsilon is nan"),
            ({"epsilon": float("inf")}, "epsilon is inf"),
            ({"delta": 0.0}, "delta is 0.0: it is a probability above 0 and below 1"),
            ({"delta": 1.0}, "delta is 1.0"),
            ({"delta": float("nan")}, "delta is nan"),
            ({"clip": -1.0}, "clip is -1.0: the longest norm"),
            ({"clip": float("nan")}, "clip is nan"),
            ({"where": "here"}, "where = 'here': valid: central, distributed"),
            ({"colluding": -1}, "colluding is -1"),
            ({"inner": "plane"}, "did you mean 'plain'"),
            ({"inner": "noised"}, "inner is 'noised'"),
            ({"inner": "tacit.protections.noised:Noised"}, "inner is 'noised'"),
            ({"inner": "bfv", "inner_options": {"bit": 24}}, "did you mean 'bits'"),
        ],
        ids=str,
    )
    def test_settings(self, settings, said):
        with pytest.raises(ConfigError, match=said):
            Noised(**settings)

    def test_central_noise_where_clients_open(self, prepared):
        protection = Noised(inner="ckks")
        assert "set where = 'distributed'" in protection.incompatibility(FedHEONN())
        with pytest.raises(ConfigError, match="replicas would differ"):
            prepared(protection, rows_of(5))

    @pytest.mark.parametrize("chosen", [{}, {"inner": "ckks", "where": "distributed"}], ids=str)
    @pytest.mark.parametrize(
        ("mode", "said"),
        [
            ("paper", "terms sends 'factor' in the clear, without noise"),
            ("sealed", "terms needs 'gram' to about 2^-40 of its bound, and noise of any epsilon"),
        ],
    )
    def test_an_ensemble_whose_terms_bear_no_noise(self, mode, said, chosen, table):
        federation = Federation.embedded(table, clients=4, test=None)
        with pytest.raises(ConfigError, match=re.escape(said)):
            federation.train(FedHEONNEnsemble(mode=mode), protect=Noised(**chosen))

    def test_a_layout_that_hid_its_clear_field(self, coordinator_of):
        class Sly(Method):
            def _layout(self, schema):
                beside = [] if schema.features == 1 else [Field("beside", (1,), clear=True)]
                return Layout(Field("vector", (1,)), *beside)

            @contribution(_layout, revealed=True)
            def vector(self, party, shared):
                return {"vector": np.zeros(1), "beside": np.zeros(1)}

        method, protection, seen = Sly(), Noised(), []
        coordinator = coordinator_of(method, protection, subscriber=lambda number, event: seen.append(event))
        coordinator.enrol()
        coordinator.protection.prepare(1)
        with pytest.raises(ProtectionError, match="vector sends 'beside' in the clear"):
            coordinator.reveal(method.vector)
        party = coordinator.link.transport.engine.engine._sites.party("client-1")
        with pytest.raises(ProtectionError, match="in the clear"):
            protection.at_client(party).protect({"sum": 1}, np.zeros(1), method._layout(coordinator.schema))
        assert [event.step for event in seen if isinstance(event, WaveStarted)] == ["client.enrol"]

    def test_too_few_clients_for_noise_that_some_know(self, prepared):
        with pytest.raises(ConfigError, match="set min_clients to 4 or more"):
            prepared(Noised(where="distributed", colluding=3), rows_of(5))
        with pytest.raises(ConfigError, match="set min_clients to 2 or more"):
            prepared(Noised(where="distributed"), rows_of(5), min_clients=1)

    def test_an_inner_protection_that_is_too_coarse(self, prepared):
        coarse = {"inner": "paillier", "inner_options": {"key_bits": 2048, "bits": 8}}
        for protection in (Noised(where="distributed", **coarse), Noised(epsilon=HUGE, clip=1e-3, **coarse)):
            scene = prepared(protection, rows_of(2000))
            waves = len(scene.told_of(WaveStarted))
            with pytest.raises(ConfigError, match=r"paillier resolves .* give it more bits"):
                scene.total()
            assert len(scene.told_of(WaveStarted)) == waves

    def test_nan_in_the_data(self, prepared):
        rows = rows_of(5) | {"client-2": np.full(5, np.nan)}
        scene = prepared(Noised(), rows)
        assert np.isfinite(scene.total()["vector"]).all()
        assert "DataError" in scene.coordinator.failures["client-2"]
        with pytest.raises(DataError, match="cannot be clipped"):
            ticket = {"sum": 9, "noise_asked": 4, "noise_sums": 1}
            client = scene.protection.at_client(scene.site("client-2"))
            client.protect(ticket, np.full(5, np.nan), Layout(Field("v", (5,))))


class TestWrapping:
    def test_every_hook_of_a_protection_is_handed_on(self):
        # A standing federation refuses noise.
        standing = {"incremental", "accepted", "add", "snapshot", "party_snapshot", "restore", "same_keys"}
        standing.add("stands_at_sites")
        # Set for each instance.
        declared = ("restarts", "authenticated", "key_fields", "own_fields", "field_names", "field_kinds")
        other = {*declared, "step_owners"}  # asked by find_step only
        pairs = ((Protection, Noised), (CoordinatorHalf, NoisedCoordinator), (ClientHalf, NoisedClient))
        for base, own in pairs:
            hooks = {name for name in vars(base) if not name.startswith("_")}
            noised = [one for one in own.__mro__ if one.__module__.startswith("tacit.protections.noised")]
            assert hooks - other - standing <= {name for one in noised for name in vars(one)}
        around = VARIANTS["distributed-ckks"]
        assert all(getattr(around, name) == getattr(around.inner_protection, name) for name in declared)
        assert [VARIANTS[f"distributed-{name}"].restarts for name in ("ring", "ckks")] == [True, False]
        assert [VARIANTS[f"distributed-{name}"].authenticated for name in ("plain", "ring")] == [False, True]

    def test_settings_round_trip_through_a_manifest(self):
        protection = VARIANTS["distributed-paillier"]
        components = Components(FedHEONN(), protection, Preparation())
        manifest = Manifest.of("run", components, min_clients=3)
        read = Manifest.from_message(Message.decode(manifest.to_message().encode()))
        again = Noised.from_config(read.components["protection"]["config"])
        assert (again, again.inner_protection) == (protection, protection.inner_protection)
        assert (
            Manifest.of("run", components._replace(protection=again), min_clients=3).digest == manifest.digest
        )
        assert hash(again) == hash(protection)

    def test_cold_parties_give_the_same(self, prepared):
        scene = prepared(VARIANTS["distributed-ckks"], rows_of(5), sums=2)
        for _ in range(2):
            total = scene.total()["vector"]
            for client in CLIENTS:
                scene.site(client).cool()
        assert total == pytest.approx(scene.expected(), abs=0.01)

    def test_promises_say_what_noise_changes(self):
        inner = Plain().promises
        central, distributed = (Noised(where=where).promises for where in ("central", "distributed"))
        assert "before it adds the noise" in central.sees["coordinator"]
        assert "its part of the noise only" in distributed.sees["coordinator"]
        assert central.sees["client"] == "the total with noise, and what is made of it"
        assert len(central.warnings) == len(distributed.warnings) == len(inner.warnings) + 1
        served = VARIANTS["central-paillier"].promises.sees
        assert served["key-server"] == "the total"
        assert VARIANTS["distributed-paillier"].promises.sees["key-server"] == "the total with noise"
        ckks = Noised(inner="ckks", where="distributed").promises
        assert (ckks.opens, ckks.single) == ("clients", False)

    @pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0, 100.0, HUGE])
    def test_promised_precision_is_about_the_noise_of_one_sum(self, epsilon):
        noise = sigma_for(epsilon, 1e-5, 1)
        assert 0.65 < noise / Noised(epsilon=epsilon).promises.precision < 1.1


def test_totals_around_ckks_are_proved_since_none_is_multiplied_unopened():
    layout = Layout(Field("gram", (4, 4), 1.0, columns=2))
    inside = Noised(inner="ckks", epsilon=1.0, clip=1.0, where="distributed")
    assert (inside.proves(layout), inside.inner_protection.proves(layout)) == (True, False)
