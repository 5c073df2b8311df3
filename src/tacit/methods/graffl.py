"""GRAFFL: clients learn a generator of rows from distances between summaries of real and generated ones.

S.-J. Hahn, J. Lee, "GRAFFL: Gradient-free Federated Learning of a Bayesian Generative Model", 2020; samples
divided among clients as Soos, Liang and Wang, "Horizontal Federated Learning Frameworks: A Literature
Study"::

    d        size of the summary that SuffiAE makes of a row (:class:`tacit.models.mlp.SuffiAE`)
    θ        a Gaussian mixture of the summaries of a class; priors are Dirichlet and normal-inverse-Wishart
    R, ε     draws of θ, and the share of them that is accepted (``draws``, ``quantile``)
    Δ        discrepancy of summaries X and points Y of θ: 2 E φ(X, Y) - E φ(Y, Y') - E φ(X, X'), where
             φ = ‖x - y‖ gives the energy distance and φ = -exp(-‖x - y‖²/2h²) the squared MMD

The last term of Δ is the same for all θ, and the first is a mean over the rows of all clients: it follows
from Σ_k n_k E φ(X_k, Y_k), a protected sum in which each client compares its rows with its own part Y_k of
the points. So draws are ranked by Δ of the pooled rows, and no client's own distance is told.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.spatial.distance import cdist

from tacit.core.coordinator import Coordinator
from tacit.core.events import Noted
from tacit.core.fields import add_prefix
from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.core.party import Party
from tacit.core.protection import Protection
from tacit.core.settings_group import check_rules
from tacit.core.shared import Shared, Total
from tacit.data.inputs import Inputs
from tacit.data.schema import Schema
from tacit.methods.averaging.architecture import Architecture
from tacit.methods.averaging.local_training import LocalTraining
from tacit.methods.fedavg import FedAvg
from tacit.models.generator import MIXTURE, Generator, Mixtures
from tacit.models.mlp import DECODER, SuffiAE
from tacit.models.network import Matrix, Targets
from tacit.models.neural import PREFIX, sizes_of

HELD = 0.9  # share of its variance that a client asks summaries to hold
WIDE = 0.5  # deviation of the vague prior: half of the way from the centre of the cube to its sides
LEAST = 1e-4  # variance of a summary, and weight of a class that somebody has
PAIRS = 200  # of points of a mixture, from which E φ(Y, Y') follows
FEW = {"trials": 1, "draws": 10, "points": 4}  # of the setting for tests
MOST = 1000  # rows of a class that a client compares: of more, so many are drawn
CHECKED = 200  # generated rows that are compared with clients' rows in the end
NEAR = (0.0, 0.01, 0.1, 1.0, np.inf)  # distances to the nearest row, in the usual one between a client's rows


@dataclass(frozen=True)
class Graffl(FedAvg):
    """A generator of rows, learnt from distances in summary space (Hahn and Lee, 2020).

    Parameters
    ----------
    architecture : Architecture
        SuffiAE: ``hidden`` are the layers of its encoder, the last of them the largest size of a summary.
    rounds : int
        Rounds of FedAvg that train SuffiAE.
    trials : int
        Rounds of rejection: the first draws mixtures from the prior, later ones near those accepted.
    draws : int
        Mixtures that are drawn for each class in a trial.
    quantile : float
        Share of the draws that is accepted, those of the least discrepancy.
    components : int
        Gaussians in the mixture of a class.
    points : int
        Points of each draw that every client makes and compares with its rows.
    discrepancy : {"energy", "mmd"}
        Energy distance, or maximum mean discrepancy with a Gaussian kernel.
    prior : {"moments", "vague"}
        Whether the first trial draws around the mean of each class, from one protected sum, or anywhere.
    """

    name = "graffl"
    tasks = ("classification",)
    small: ClassVar[Mapping[str, Any]] = {"hidden": (3,), "batch": 8, "rate": 0.05, "rounds": 3, **FEW}
    reveals: ClassVar[Mapping[str, str]] = {
        "coordinator": "where totals open there, the generator, and how far the summaries of all clients lie "
        "from each mixture that was tried: it gets answers to distance queries, of its choice if it cheats",
        "client": "the generator, which makes rows like those of all clients",
    }

    architecture: Architecture = field(default_factory=lambda: Architecture("suffiae", (32, 8), "tanh"))
    rounds: int = 20
    local: LocalTraining = field(default_factory=lambda: LocalTraining(5, optimiser="adam", rate=0.005))
    trials: int = 5
    draws: int = 200
    quantile: float = 0.05
    components: int = 2
    points: int = 20
    discrepancy: Literal["energy", "mmd"] = "energy"
    prior: Literal["moments", "vague"] = "moments"

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = ("trials", "draws", "components", "points")
        rules = [(name, getattr(self, name) >= 1, "give a whole number of at least 1") for name in counts]
        check_rules(self, (*rules, ("quantile", 0 < self.quantile <= 1, "give a share above 0 up to 1")))
        known = self.architecture
        fits = (known.network, known.activation) == ("suffiae", "tanh") and bool(sizes_of(known.hidden))
        way_out = "graffl needs network 'suffiae', activation 'tanh' and a size of the summary in hidden"
        check_rules(self, [("architecture", fits, way_out)])
        self.privacy.check_sums("distances")

    @property
    def _size(self) -> int:
        return sizes_of(self.architecture.hidden)[-1]

    def agree(self, coordinator: Coordinator) -> None:
        super().agree(coordinator)
        coordinator.round(self.votes, self.choose_size)

    def train(self, coordinator: Coordinator) -> None:
        super().train(coordinator)
        if not (done := int(coordinator.progress.get("trial", 0))):
            coordinator.round(self.class_moments, self.set_prior)
        for number in range(done, self.trials):
            coordinator.round(self.distances, self.accept)
            known = {**coordinator.progress, "over": True, "trial": number + 1}
            coordinator.complete_round(int(known.pop("round")) + 1, **known)
        near = coordinator.reveal(self.nearest)["near"].cumsum()
        text = f"{CHECKED} generated rows, compared with those of each client: {near[0]:.0f} times one is "
        text += f"within a hundredth of the usual distance between its rows, {near[1]:.0f} times a tenth"
        coordinator.events.emit(Noted("copies", text, "warning" if near[0] >= 0.5 else "info"))

    @contribution(lambda self, schema: Layout(Field("votes", (self._size,), bound=1.0)))
    def votes(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return a one for the fewest principal components that hold most of this client's variance."""
        X = Inputs.of(shared).matrix(party.data)
        squares = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2
        wanted = int((np.cumsum(squares) < HELD * squares.sum()).sum())
        return {"votes": np.eye(self._size)[min(wanted, self._size - 1)]}

    def _summarise(self, party: Party, shared: Shared) -> tuple[Matrix, Matrix, Matrix, Targets, Any]:
        X, labels, _ = self.read_rows(party, shared)
        network = self.architecture.build(shared.schema)
        assert isinstance(network, SuffiAE)
        weights = self.architecture.flatten_weights(party, shared)
        summaries = network.encode(weights, X)
        share = self.weighting.contribute(labels, shared)[0] / max(1, len(X))
        counted = share * np.bincount(labels, minlength=shared.schema.outputs)
        return X, summaries, network.decode(weights, summaries), labels, counted

    def _moments_layout(self, schema: Schema) -> Layout:
        size = self._size if self.prior == "moments" else 0
        shapes = {"count": (), "first": (size,), "second": (size, size)}
        fields = [Field(name, (schema.outputs, *shape), bound=1.0) for name, shape in shapes.items()]
        return Layout(*fields, Field("squares", (schema.features,)))

    @contribution(_moments_layout)
    def class_moments(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return Σz and Σzzᵀ of the summaries of each class, and the squares of what SuffiAE leaves out."""
        X, summaries, decoded, labels, count = self._summarise(party, shared)
        each = np.eye(len(count))[labels] * (count.sum() / max(1, len(X)))
        z = summaries if self.prior == "moments" else summaries[:, :0]
        second = np.einsum("nc,ni,nj->cij", each, z, z, optimize=True)
        squares = each.sum(axis=1) @ (X - decoded) ** 2
        return {"count": count, "first": each.T @ z, "second": second, "squares": squares}

    def _distances_layout(self, schema: Schema) -> Layout:
        longest = 2 * self._size**0.5 if self.discrepancy == "energy" else 1.0
        distance = Field("distance", (schema.outputs, self.draws), bound=longest)
        return Layout(Field("count", (schema.outputs,), bound=1.0), distance)

    @contribution(_distances_layout)
    def distances(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return the mean φ of this client's summaries of each class and its own points of each draw."""
        _, summaries, _, labels, count = self._summarise(party, shared)
        if party.cache.get("proposed", (None,))[0] is not shared:  # clients of one process and wave share it
            party.cache["proposed"] = shared, self._propose(shared)
        proposed, rng = party.cache["proposed"][1], party.rng("points", int(shared["trial"]))
        found = np.zeros((len(count), self.draws))
        for label in np.unique(labels):
            own = summaries[labels == label]
            points = proposed.choose(slice(None), label).points(self.points, rng, alike=True)
            apart = cdist(points.reshape(-1, self._size), own[rng.permutation(len(own))[:MOST]])
            found[label] = count[label] * self._measure(apart).reshape(self.draws, -1).mean(axis=1)
        return {"count": count, "distance": found}

    @contribution(lambda self, schema: Layout(Field("near", (len(NEAR) - 1,), bound=CHECKED)), revealed=True)
    def nearest(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Count how near generated rows are to this client's, in the usual distance between two of these."""
        X = Inputs.of(shared).matrix(party.data)[:MOST]
        rng = np.random.default_rng([int(shared["seed"]), self.trials, 1])
        apart = cdist(self.model(shared).generate(CHECKED, rng)[1], X).min(axis=1)
        usual = np.median(np.partition(cdist(X, X), min(1, len(X) - 1), axis=1)[:, min(1, len(X) - 1)])
        return {"near": np.histogram(apart / max(float(usual), 1e-12), NEAR)[0].astype(np.float64)}

    @apply
    def choose_size(self, total: Total, shared: Shared) -> Shared:
        """Set d, the median vote or that of before, and weights beyond to zero: no gradient moves them."""
        votes, place = np.cumsum(np.asarray(total["votes"])), len(sizes_of(self.architecture.hidden))
        size = int(shared.get("size", 1 + int((votes < votes[-1] / 2 - LEAST).sum())))
        kept = (np.arange(self._size) < size).astype(np.float64)
        factors = {f"layer{place}.weight": kept, f"layer{place}.bias": kept}
        factors |= {f"layer{place + 1}.weight": kept[:, None], f"{DECODER}layer1.weight": kept[:, None]}
        cut = {PREFIX + name: shared[PREFIX + name] * factor for name, factor in factors.items()}
        return shared | {"size": size, **cut}

    @apply
    def set_prior(self, total: Total, shared: Shared) -> Shared:
        """Set one mixture for each class, around which the first trial draws, and the noise of rows."""
        count, unit = np.maximum(np.asarray(total["count"]), LEAST**2), np.eye(self._size)
        means, spread = np.zeros((len(count), self._size)), np.tile(WIDE**2 * unit, (len(count), 1, 1))
        if self.prior == "moments":
            there, parted = count > LEAST, count[:, None]
            means = np.where(there[:, None], np.asarray(total["first"]) / parted, 0.0)
            found = np.asarray(total["second"]) / parted[..., None] - means[:, :, None] * means[:, None, :]
            spread = np.where(there[:, None, None], found + LEAST * unit, spread)
        factors: Any = np.linalg.cholesky(spread) * (np.arange(self._size) < int(shared["size"]))[:, None]
        alike = Mixtures(np.full(len(count), 1 / self.components), means, factors)._asdict()
        prior = {name: np.stack([part] * self.components, axis=1)[None] for name, part in alike.items()}
        noise, had = np.sqrt(np.maximum(total["squares"] / count.sum(), 0.0)), count * (count > LEAST)
        facts = add_prefix(PREFIX + MIXTURE, {**prior, "noise": noise, "classes": had})
        return shared | {"trial": 0, **facts}

    def _propose(self, shared: Shared) -> Mixtures:
        rng = np.random.default_rng([int(shared["seed"]), int(shared["trial"])])
        accepted = Mixtures(*(shared[PREFIX + MIXTURE + name] for name in Mixtures._fields))
        number, classes = accepted.shares.shape[:2]
        parents = rng.integers(number, size=(self.draws, classes))
        strength = self._size * 2.0 ** int(shared["trial"])
        drawn = accepted.choose(parents, np.arange(classes)).propose(strength, rng)
        both = zip(accepted, drawn, strict=True)
        return Mixtures(*(np.concatenate([old[: self.draws], new[number:]]) for old, new in both))

    def _measure(self, distances: Any) -> Any:
        """Return φ of distances; h is a quarter of the cube's diagonal."""
        return distances if self.discrepancy == "energy" else -np.exp(-2 * distances**2 / self._size)

    @apply
    def accept(self, total: Total, shared: Shared) -> Shared:
        """Keep the draws of each class that have the least discrepancy."""
        proposed, trial = self._propose(shared), int(shared["trial"])
        rng, count = np.random.default_rng([int(shared["seed"]), trial, 2]), np.asarray(total["count"])
        one, other = (proposed.points(PAIRS, rng, alike=True) for _ in range(2))
        own = self._measure(np.linalg.norm(one - other, axis=-1)).mean(axis=-1)
        discrepancy = 2 * (np.asarray(total["distance"]) / np.maximum(count, LEAST**2)[:, None]).T - own
        best = np.argsort(discrepancy, axis=0, kind="stable")[: max(1, round(self.quantile * self.draws))]
        accepted = proposed.choose(best, np.arange(len(count)))._asdict()
        return shared | {"trial": trial + 1, **add_prefix(PREFIX + MIXTURE, accepted)}

    def incompatibility(self, protection: Protection) -> str | None:
        return "noise would decide which draws are accepted: use masked" if protection.adds_noise else None

    @property
    def sums(self) -> int:
        return super().sums + self.trials + 3

    def init(self, schema: Schema, rng: np.random.Generator) -> Mapping[str, Any]:
        return {**super().init(schema, rng), "seed": int(rng.integers(2**31))}

    def model(self, shared: Shared) -> Generator:
        network = self.architecture.make_model(shared)
        return Generator(network.arrays, network.settings, network.inputs)
