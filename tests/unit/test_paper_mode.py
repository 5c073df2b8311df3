"""FedHEONN as published: the coordinator merges factors, multiplies what it cannot read, clients open w."""

from dataclasses import dataclass

import numpy as np
import pytest

from tacit import Federation, FedHEONN, Preparation, Table
from tacit.core.briefing import read_log
from tacit.core.client import layout_of, open_entry
from tacit.core.errors import ConfigError, ProtectionError, QuorumError, TacitError
from tacit.core.events import Events, Noted, TotalOpened
from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.core.message import Message
from tacit.core.values import Blob
from tacit.methods.base import Method
from tacit.models.leastsquares import factor, solve
from tacit.protections.ckks import CKKS
from tacit.protections.encrypted import EncryptedClient

CLASSES = {"classes": ["blue", "green", "red"]}


def federation(table, components=4, **settings):
    rows = np.array_split(np.arange(table.rows), components)
    return Federation.of({f"client-{i + 1}": table.take(r) for i, r in enumerate(rows)}, **settings)


def relative(one, other):
    return np.abs(one - other).max() / np.abs(other).max()


@dataclass(frozen=True)
class Columns(Method):
    """Random matrices that are summed, and a public matrix for the coordinator to multiply by."""

    size: int = 5
    outputs: int = 2
    bound: float = 3.0
    own: bool = False  # a matrix for each output

    def _layout(self, schema):
        shape = (self.size, self.outputs)
        return Layout(
            Field("m", shape, self.bound, columns=self.outputs if self.own else 1),
            Field("seed", (1,), clear=True),
        )

    def matrix(self, index):
        return np.random.default_rng(index).uniform(-self.bound, self.bound, (self.size, self.outputs))

    @contribution(_layout)
    def part(self, party, shared):
        return {"m": self.matrix(int(party.id.split("-")[1])), "seed": np.ones(1)}

    def operator(self, clear):
        stack = (self.outputs,) if self.own else ()
        return np.random.default_rng(int(clear["seed"][0])).normal(size=(*stack, self.size, self.size))

    @apply
    def keep(self, total, shared):
        return shared | {"found": total["m"], "multiplied": total.multiplied}


def round_of(coordinator_of, method, protection, clients=6):
    coordinator = coordinator_of(method, protection, clients=clients, min_clients=2)
    coordinator.enrol()
    coordinator.protection.prepare(1)
    coordinator.round(method.part, method.keep)
    return coordinator


class TestProduct:
    """The hook itself, with another method than FedHEONN."""

    @pytest.mark.parametrize("own", [False, True])
    def test_clients_open_the_product_as_exactly_as_the_total_says(self, coordinator_of, own):
        method, protection = Columns(own=own), CKKS()
        coordinator = round_of(coordinator_of, method, protection)
        entry = Message.decode(coordinator.link.briefing.log[0])
        site = coordinator.link.transport.engine.engine._sites.party("client-2")
        client = protection.at_client(site)
        layout = layout_of(method, entry["contribution"], coordinator.schema)
        total = open_entry(protection, client, layout, entry)
        coordinator.finish()
        assert total.multiplied
        assert "seed" not in total
        m, A = sum(method.matrix(i + 1) for i in range(6)), method.operator({"seed": [6]})
        expected = A @ m if not own else np.einsum("oij,jo->io", A, m)
        unit = np.sqrt(12) * total.error * method.bound
        assert np.abs(total["m"] - expected).max() <= unit
        assert 0 < unit < 1e-6

    def test_products_of_too_many_polynomials_are_left_to_the_clients(self, coordinator_of, monkeypatch):
        method = Columns(size=300, outputs=4)
        assert CKKS().columns(method._layout(None)) is not None
        monkeypatch.setattr("tacit.protections.ckks.MOST_PIECES", 99)  # three of its rows fit into one
        coordinator = round_of(coordinator_of, method, CKKS())
        entry = Message.decode(coordinator.link.briefing.log[0])
        assert "total/multiplied" not in entry
        assert np.asarray(entry["clear/seed"]).tolist() == [6.0]
        assert not coordinator.peek()["multiplied"]

    def test_columns_of_another_shape_are_refused_by_name(self, coordinator_of, monkeypatch):
        method, protection = Columns(), CKKS()
        coordinator = coordinator_of(method, protection, clients=6, min_clients=2)
        coordinator.enrol()
        coordinator.protection.prepare(1)
        site = coordinator.link.transport.engine.engine._sites.party("client-1")
        cipher = protection.at_client(site).key.cached("cipher", protection.cipher)
        wrong = cipher.encrypt(np.zeros((4, 2)), bound=1.0, summands=6)
        genuine, fake = EncryptedClient.protect, Message(cipher=Blob("cipher", wrong))

        def protect(self, *contribution):
            return fake if self.party.id == "client-4" else genuine(self, *contribution)

        monkeypatch.setattr(EncryptedClient, "protect", protect)
        coordinator.round(method.part, method.keep)
        assert "4 × 2 values" in coordinator.failures["client-4"]
        assert "agreed were 5 × 2" in coordinator.failures["client-4"]

    def test_a_product_is_no_sum_and_a_sum_no_product(self, coordinator_of):
        method, protection = Columns(), CKKS()
        coordinator = round_of(coordinator_of, method, protection)
        entry = dict(Message.decode(coordinator.link.briefing.log[0]))
        site = coordinator.link.transport.engine.engine._sites.party("client-2")
        del entry["total/multiplied"]
        layout = layout_of(method, entry["contribution"], coordinator.schema)
        with pytest.raises(ProtectionError, match="blob of kind product, expected was columns"):
            open_entry(protection, protection.at_client(site), layout, entry)


@pytest.mark.parametrize("activation", ["logistic", "softplus", "linear"])
class TestWeights:
    def test_they_are_those_of_the_plain_run(self, table, activation):
        method = FedHEONN(mode="paper", activation=activation)
        found, plain = (
            federation(table, 6, declared=CLASSES).train(method, protect=protect).model.weights
            for protect in ("ckks", "plain")
        )
        assert relative(found, plain) < 1e-6

    def test_clients_get_encrypted_weights_and_no_factor(self, table, activation):
        heard, told = [], []
        federation(table, 6, declared=CLASSES).train(
            FedHEONN(mode="paper", activation=activation),
            protect="ckks",
            transcript=lambda *received: heard.append(received),
            events=Events(lambda number, event: told.append(event)),
        )
        to_clients = [raw for receiver, _, _, raw in heard if receiver != "coordinator"]
        assert not any(b"clear/factor" in raw for raw in to_clients)
        assert any(b"total/multiplied" in raw for raw in to_clients)
        opened = {event.contribution: event.at for event in told if isinstance(event, TotalOpened)}
        assert {name for name, at in opened.items() if at != "clients"} == {"word_counts", "word_letters"}


class TestFallback:
    def test_a_regression_has_no_bound_and_is_solved_at_the_clients(self, regression):
        method = FedHEONN(mode="paper", activation="linear")
        heard = []
        found = federation(regression, 5).train(
            method, protect="ckks", transcript=lambda *received: heard.append(received)
        )
        plain = federation(regression, 5).train(method, protect="plain")
        assert relative(found.model.weights, plain.model.weights) < 1e-8
        logs = [
            entry
            for receiver, _, step, raw in heard
            if receiver != "coordinator" and step == "client.adopt_model"
            for _, entry in read_log(Message.decode(raw[: raw.rfind(b"TCT\1")] or raw))
        ]
        assert logs
        assert not any("total/multiplied" in Message.decode(entry) for entry in logs)

    @pytest.mark.parametrize("protect", ["masked", "shares", "paillier"])
    def test_other_protections_sum_m_and_solve_where_it_opens(self, table, protect, keys_once):
        method = FedHEONN(mode="paper")
        with keys_once():
            found = federation(table, 5, declared=CLASSES).train(method, protect=protect)
        plain = federation(table, 5, declared=CLASSES).train(method, protect="plain")
        assert relative(found.model.weights, plain.model.weights) < 1e-6


class TestRank:
    @pytest.mark.parametrize("protect", ["plain", "ckks"])
    @pytest.mark.parametrize("clients", [4, 70])  # fewer and more than are folded at a time
    def test_what_it_leaves_out_is_told(self, table_of, protect, clients):
        table, told = table_of(rows=140, features=6), []
        federation(table, clients, declared=CLASSES).train(
            FedHEONN(mode="paper", rank=3),
            protect=protect,
            preparation=Preparation(scale="standard"),
            events=Events(lambda number, event: told.append(event)),
        )
        (said,) = [event.text for event in told if isinstance(event, Noted) and "rank 3" in event.text]
        X = np.column_stack(
            [np.ones(table.rows), (table.values - table.values.mean(0)) / table.values.std(0)]
        )
        S2 = np.linalg.svd(X, compute_uv=False) ** 2
        share = float(said.split("leaves out ")[1].split()[0])
        best = S2[3:].sum() / S2.sum()
        # Cutting batch by batch leaves out a little more than cutting once.
        assert best * 0.99 < share < (best * 1.01 if clients == 4 else best * 1.5)

    def test_the_weights_are_those_of_the_cut_factor(self, table):
        found = federation(table, 4, declared=CLASSES).train(
            FedHEONN(mode="paper", rank=2), preparation=Preparation(scale="none"), protect="plain"
        )
        X = np.column_stack([np.ones(table.rows), table.values])
        d = np.where(table.target[:, None] == np.arange(3), np.log(19), -np.log(19))
        cut = 0.0475 * factor(X)[:, :2]
        expected = solve(cut, np.eye(len(cut)), 1e-3) @ (0.0475**2 * X.T @ d)
        np.testing.assert_allclose(found.model.weights, expected, rtol=1e-8, atol=1e-10)


class TestLater:
    def test_clients_that_join_later_are_added(self, table):
        early, late = table.take(slice(0, 50)), table.take(slice(50, 90))
        method, raw = FedHEONN(mode="paper"), Preparation(scale="none")
        first = federation(early, 3, declared=CLASSES).train(method, preparation=raw, protect="plain")
        both = federation(late, 2, declared=CLASSES).train(
            method, preparation=raw, start=first, protect="plain"
        )
        together = federation(table, 5, declared=CLASSES).train(method, preparation=raw, protect="plain")
        np.testing.assert_allclose(both.model.weights, together.model.weights, rtol=1e-8, atol=1e-11)

    def test_to_weights_that_came_unopened_nothing_is_added(self, coordinator_of):
        protection, method = CKKS(), FedHEONN(mode="paper")
        coordinator = coordinator_of(method, protection, clients=4, min_clients=2)
        coordinator.enrol()
        coordinator.protection.prepare(2)
        coordinator.components.preparation.train(coordinator)
        coordinator.round(method.terms, method.solve)
        coordinator.round(method.terms, method.solve)
        with pytest.raises(QuorumError, match="nobody kept m: train all together, or set mode = 'sealed'"):
            coordinator.finish()

    def test_continuing_under_ckks_is_refused(self, table):
        first = federation(table, 4, declared=CLASSES).train(FedHEONN(mode="paper"), protect="ckks")
        with pytest.raises(ConfigError, match="totals that open at the coordinator"):
            federation(table, 4).train(FedHEONN(mode="paper"), protect="ckks", start=first)


class TestBadInput:
    def test_too_few_digits_are_refused_with_the_way_out(self):
        rng = np.random.default_rng(0)
        base = rng.normal(size=(400, 3))
        X = np.column_stack([base, base[:, 0] + 1e-4 * rng.normal(size=400)])
        table = Table.of(X, (base[:, 0] > 0).astype(int))
        with pytest.raises(TacitError, match=r"outputs would be exact to .* set mode = 'sealed'"):
            federation(table, 4, declared={"classes": [0, 1]}).train(
                FedHEONN(mode="paper", lam=1e-12), protect=CKKS()
            )

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (lambda factor: factor * np.nan, "missing or holds NaN"),
            (lambda factor: factor[:, 1:], "agreed was (1, 4, rank)"),
            (lambda factor: np.concatenate([factor, factor]), "agreed was (1, 4, rank)"),
            (lambda factor: factor * 1e200, "absurd"),
        ],
    )
    def test_a_factor_that_cannot_be_is_refused_and_the_rest_goes_on(self, coordinator_of, change, reason):
        method = FedHEONN(mode="paper")
        coordinator = coordinator_of(method, clients=5, quorum=0.5)
        coordinator.enrol()
        coordinator.components.preparation.train(coordinator)
        coordinator.link.transport.engine.rewrite = lambda step, party, message: (
            Message({**message, "clear/factor": change(message["clear/factor"])})
            if party == "client-3" and "clear/factor" in message
            else None
        )
        assert "client-3" not in coordinator.round(method.terms, method.solve)
        assert reason in coordinator.failures["client-3"]
        assert np.isfinite(coordinator.shared["weights"]).all()
