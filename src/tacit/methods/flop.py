"""FLOP: clients share the layers that extract features, and each keeps a classifier of its own.

Q. Yang, J. Zhang, W. Hao, G. Spell, L. Carin, "FLOP: Federated Learning on Medical Datasets using Partial
Networks", KDD 2021. With w the shared layers and h_k the private ones, the *head*, of client k::

    (w_k, h_k) ← E epochs of steps on the rows of k, from (w, h_k)
    w ← w + Σ n_k (w_k - w) / Σ n_k                       over the clients of the round

This is FedAvg of w alone: h_k never leaves client k, and stays there for the next round that it is drawn for,
also if the run is stopped and goes on. A head begins with the weights of the public seed.

We add last layers in closed form, as FedHEONN solves them (:mod:`tacit.models.heads`). A client that is drawn
for the first time after the first round fits one before it trains. After the last round a protected sum gives
one for the model that everybody gets; private layers before it are those of the seed. From there each client
fits its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError, DataError, DifferencingError, OpeningError, nearest
from tacit.core.events import Noted
from tacit.core.fields import add_prefix, strip_prefix
from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution, step
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.protection import Protection
from tacit.core.settings_group import check_rules
from tacit.core.shared import Shared, Total
from tacit.data.schema import Schema
from tacit.methods.fedavg import FedAvg
from tacit.models.heads import fit_layer, solve_layer, sum_layer
from tacit.models.leastsquares import Matrix, symmetric, upper
from tacit.models.network import Network, Vector, layer_of
from tacit.models.neural import PREFIX, Neural

# In a client's state: h_k after the last round that it computed, before it, and the number of that round.
OWN, BEFORE, ROUND = KEPT = ("head", "head_before", "head_round")
SEED = "head_seed"  # a shared value


@lru_cache(maxsize=8)
def split(network: Network, share: int | str) -> tuple[Network, Network]:
    """Return the shapes of the shared and of the private part of a network."""
    layers, words = network.layers(), [word.strip() for word in str(share).split(",")]
    hits = {
        word: [one for one in layers if fnmatchcase(one, word) or one.startswith(f"{word}.")]
        for word in words
    }
    if isinstance(share, str) and not all(hits.values()):
        word = next(word for word, found in hits.items() if not found)
        raise ConfigError(f"share: no layer is called '{word}': {nearest(word, layers)}")
    named = {one for found in hits.values() for one in found}
    shared = layers[:share] if isinstance(share, int) else [one for one in layers if one in named]
    if len(shared) in (0, len(layers)):
        why = "nothing is left to keep" if shared else "nothing is learnt together"
        raise ConfigError(f"share is {share!r}: {why}; share some of the layers {', '.join(layers)}")
    if shared != layers[: len(shared)]:
        gap = next(layer for layer in layers if layer not in shared)
        raise ConfigError(f"share is {share!r}: '{gap}', before '{shared[-1]}', is left out: share both")

    def part(chosen: list[str]) -> Network:
        kinds = network.parameters, network.state
        return Network(*({name: kind[name] for name in kind if layer_of(name) in chosen} for kind in kinds))

    return part(shared), part(layers[len(shared) :])


@dataclass(frozen=True)
class Flop(FedAvg):
    """FedAvg of some layers; each client keeps the others, a head of its own (Yang et al., 2021).

    Parameters
    ----------
    share : layers
        The layers that are averaged: so many from the input on, -1 for all but the last; or names, separated
        by commas, in which * stands for anything: "conv*". The others stay at each client.
    fit_heads : bool
        Fit last layers in closed form: that of a client that is drawn for the first time after the first
        round; after the last round one for all, and from there those of all clients. Without, as published.
    """

    name = "flop"
    has_model_by_round = False
    kept = KEPT
    reveals: ClassVar[Mapping[str, str]] = {
        "coordinator": "changes of shared layers as the protection shows them, nothing of private ones; with "
        "fit_heads also sums over all rows of what the last layer gets and should give, as Gram matrix",
        "client": "the shared layers, and with fit_heads a last layer for all; no head of another client",
    }

    share: int | str = -1
    fit_heads: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        noisy = "heads are fitted without noise, which example_epsilon does not cover: give false"
        check_rules(self, [("fit_heads", not (self.fit_heads and self.privacy.noise), noisy)])
        kept = "clients do not take back their heads: give 0"
        check_rules(self.stopping, [("collapse", not self.stopping.collapse, kept)])

    def parts(self, schema: Schema) -> tuple[Network, Network]:
        """Return the shared part of the network, and that which stays at each client."""
        return split(self.architecture.build(schema), self.share)

    def travelling(self, schema: Schema) -> Network:
        return self.parts(schema)[0]

    def join(self, shared: Shared, own: Vector | None = None) -> dict[str, Any]:
        """Return all weights: the shared ones with a client's own, or with those that everybody knows."""
        network, known = self.architecture.build(shared.schema), strip_prefix(PREFIX, shared)
        if own is not None:
            return {**known, **self.parts(shared.schema)[1].named(own)}
        return {**network.named(network.initial(np.random.default_rng(shared[SEED]))), **known}

    def train(self, coordinator: Coordinator) -> None:
        super().train(coordinator)
        if not self.fit_heads:
            return
        try:
            coordinator.round(self.head_sums, self.solve_head)
        except DifferencingError as error:
            text = f"there is no last layer for all, only clients' own heads are trained: {error}"
            coordinator.events.emit(Noted("head", text, "warning"))
        list(coordinator.ask(self.fit_own, failures={}))

    @contribution(FedAvg.update_layout, family=None)
    def update(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return the change of the shared layers after local training, and keep the head."""
        network, (common, private) = self.architecture.build(shared.schema), self.parts(shared.schema)
        X, targets, counted = self.read_rows(party, shared)
        number, state = int(shared["round"]), party.state
        # A round that is computed again begins with what it began with.
        own = state.get(BEFORE if state.get(ROUND, -1) >= number else OWN)
        arrays = self.join(shared, own)
        if own is None and number and self.fit_heads:
            arrays |= network.last_layer(solve_layer(*self._sum_rows(party, shared)))
        coins = self.privacy.begin_round(party, number, self.rounds, self.local.epochs)
        with np.errstate(all="ignore"):  # what overflows is refused below
            more = party.rng("descent", number), self.privacy, None, coins, counted
            end = network.named(self.local.train(network, network.flat(arrays), X, targets, *more))
        if not np.isfinite(after := private.flat(end)).all():
            raise DataError("local training ran away in a private layer: lower the rate")
        state.update({OWN: after, BEFORE: private.flat(arrays), ROUND: number})
        share, weight = self.weighting.contribute(targets, shared)
        return {**self.change.pack(common.flat(end) - common.flat(arrays), share, common, party), **weight}

    def _read_last(self, party: Party, shared: Shared, own: Vector | None = None) -> tuple[Any, ...]:
        network, (X, targets, counted) = self.architecture.build(shared.schema), self.read_rows(party, shared)
        return network.last_inputs(network.flat(self.join(shared, own)), X), targets, counted

    def _sum_rows(self, party: Party, shared: Shared) -> tuple[Matrix, Matrix]:
        inputs, targets, counted = self._read_last(party, shared)
        return sum_layer(inputs, targets, shared.schema.outputs, counted)

    def _sums_layout(self, schema: Schema) -> Layout:
        size = self.architecture.build(schema).last_width + 1 if self.fit_heads else 1
        return Layout(Field("gram", (size * (size + 1) // 2,)), Field("m", (size, schema.outputs)))

    @contribution(_sums_layout)
    def head_sums(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return Σ xxᵀ and Σ x d̄ of what the last layer gets, if that was agreed."""
        if not self.fit_heads:
            raise OpeningError(f"no fit_heads was agreed: {party.id} does not sum what its last layer gets")
        gram, m = self._sum_rows(party, shared)
        return {"gram": upper(gram), "m": m}

    @step
    def fit_own(self, party: Party, message: Message, shared: Shared) -> Message:
        """Fit the own last layer, from that for all, to the shared layers as they are; tell nothing of it."""
        if self.fit_heads:
            network, own = self.architecture.build(shared.schema), party.state.get(OWN)
            inputs, targets, counted = self._read_last(party, shared, own)
            found = fit_layer(inputs, targets, network.last_weights(self.join(shared)), counted)
            arrays = self.join(shared, own) | network.last_layer(found)
            party.state[OWN] = self.parts(shared.schema)[1].flat(arrays)
        return Message()

    @apply
    def solve_head(self, total: Total, shared: Shared) -> Shared:
        """Set the last layer for all."""
        gram, m = symmetric(np.asarray(total["gram"]), len(total["m"])), np.asarray(total["m"])
        last = self.architecture.build(shared.schema).last_layer(solve_layer(gram, m))
        return shared | add_prefix(PREFIX, last)

    def check(self, schema: Schema) -> None:
        super().check(schema)
        self._sums_layout(schema)

    def incompatibility(self, protection: Protection) -> str | None:
        if protection.adds_noise and self.fit_heads:
            return "nothing bounds the sums that last layers are fitted from: set fit_heads = false"
        return super().incompatibility(protection)

    @property
    def sums(self) -> int:
        return super().sums + self.fit_heads

    def init(self, schema: Schema, rng: np.random.Generator) -> Mapping[str, Any]:
        seed, private = int(rng.integers(2**62)), add_prefix(PREFIX, self.parts(schema)[1].shapes)
        known = super().init(schema, np.random.default_rng(seed))
        return {SEED: seed, **{name: value for name, value in known.items() if name not in private}}

    def model(self, shared: Shared, own: Vector | None = None) -> Neural:
        return super().model(shared | add_prefix(PREFIX, self.join(shared, own)))

    def model_at(self, party: Party, shared: Shared) -> Neural:
        return self.model(shared, party.state.get(OWN))
