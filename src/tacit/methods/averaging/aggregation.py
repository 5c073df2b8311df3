"""From clients' changes to the next weights: how much each counts, what of it travels, the server's step."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Literal

import numpy as np

from tacit.core.errors import DataError
from tacit.core.layout import Field
from tacit.core.party import Party
from tacit.core.settings_group import Rule, SettingsGroup
from tacit.core.shared import Shared
from tacit.models.network import Network, Targets, Vector
from tacit.models.neural import PREFIX

DELTA = "delta/"  # prefix of the arrays of a change, in contributions and totals
MOST_GRADIENT = 10.0  # largest value of a gradient: a client whose own is larger scales it down as a whole
ABSURD = 1e3  # times the limit: such a change is no learning, and is refused


@dataclass(frozen=True)
class Weighting(SettingsGroup):
    """How much a client counts in the average, and which of its rows take part.

    Parameters
    ----------
    weighting : {"rows", "equal"}
        Whether a client counts by its rows, or as much as any other.
    """

    weighting: Literal["rows", "equal"] = "rows"

    # Weights that follow from labels are not covered by the privacy of examples.
    from_labels: ClassVar[bool] = False

    @property
    def equal(self) -> bool:
        """Whether all clients count the same, so that no weight travels."""
        return self.weighting == "equal"

    @property
    def sums(self) -> int:
        """Return how many sums it takes to agree on the weights."""
        return 0 if self.equal else 1

    def choose_rows(self, party: Party, shared: Shared, targets: Targets) -> Any:
        """Return an index of those rows of a client that take part in a round."""
        return slice(None)

    def weigh(self, targets: Targets, shared: Shared) -> float:
        """Return n_k: how much a client counts, from the targets of the rows that take part."""
        return float(len(targets))

    def contribute(self, targets: Targets, shared: Shared) -> tuple[float, dict[str, Any]]:
        """Return u_k = n_k/c, between 0 and 1, and the field that carries it; 1 and none if all are equal."""
        if self.equal:
            return 1.0, {}
        # Noise on the norm, or a client that joined late, may leave it smaller than a weight.
        share = min(1.0, self.weigh(targets, shared) / float(shared["scale"]))
        return share, {"weight": np.array(share)}

    def fields(self) -> list[Field]:
        """Return the fields of a contribution that carry the weight."""
        return [] if self.equal else [Field("weight", (), bound=1.0)]

    def explain_noise_conflict(self) -> str | None:
        """Return why noise on sums makes no sense: it would clip squares, and the mean be divided by it."""
        if self.equal:
            return None
        return "clients count by weights, which noise and clipping would spoil: set weighting = 'equal'"


@dataclass(frozen=True)
class Change(SettingsGroup):
    """What of a client's change of the weights travels, and how.

    Parameters
    ----------
    limit : float
        Largest change of a parameter in a round; a client whose change is larger scales it down as a whole,
        and refuses itself beyond a thousand times that.
    protect_layers : layers
        What is summed under protection: "all", a number k for the last k layers, "first-and-last", or names
        or regular expressions, separated by commas. The other layers travel in the clear.
    """

    limit: float = 1.0
    protect_layers: int | str = "all"

    def rules(self) -> Iterable[Rule]:
        return (("limit", 0 < self.limit < inf, "give the largest change of a weight, above 0"),)

    def fields(self, network: Network) -> list[Field]:
        """Return the fields of a contribution that carry a change; state that is not trained has no bound."""
        bounds, covered = dict.fromkeys(network.parameters, self.limit), network.chosen(self.protect_layers)
        return [
            Field(DELTA + name, shape, bound=bounds.get(name), clear=name not in covered)
            for name, shape in network.shapes.items()
        ]

    def pack(self, delta: Vector, share: float, network: Network, party: Party) -> dict[str, Any]:
        """Return u_k Δ_k by its fields, Δ_k within the limit; refuse one that is no number, or absurd."""
        trained = delta[: network.trained]
        largest = float(np.abs(trained).max())
        if not np.isfinite(delta).all() or largest > ABSURD * self.limit:
            raise DataError(
                f"local training ran away: a weight changed by more than {ABSURD * self.limit:g}, or is no "
                "number; lower the rate, or look for odd values in the rows",
                private=f"largest change {largest:g}",
            )
        if largest > self.limit:
            trained *= self.limit / largest * (1 - 1e-15)
            party.note(f"its change exceeded the limit of {self.limit:g} and was scaled down", "warning")
        return {DELTA + name: array for name, array in network.named(delta * share).items()}

    def average(self, total: Mapping[str, Any], weight: float, network: Network) -> dict[str, Any]:
        """Return the mean change by the names of the weights, from a total over so much weight."""
        mean = {name: np.asarray(total[DELTA + name]) / weight for name in network.shapes}
        for name in network.parameters:
            # A mean of changes is within their limit; noise on the sum may not be, and is cut there.
            mean[name] = np.clip(mean[name], -self.limit, self.limit)
        return mean

    def find_flaw(self, name: str, piece: Any, network: Network) -> str | None:
        """Return what is wrong with a visible field: a change or a weight that is too large."""
        if name != "weight" and name.removeprefix(DELTA) not in network.parameters:
            return None
        limit = 1.0 if name == "weight" else self.limit
        return f"exceeds its bound of {limit:g}" if np.abs(piece).max(initial=0.0) > limit else None


def gradient_field(network: Network) -> Field:
    """Return the field of a contribution that carries a gradient beside a change; it is always protected."""
    return Field("gradient", (network.trained,), bound=MOST_GRADIENT)


def confine_gradient(gradient: Vector, party: Party) -> Vector:
    """Return a gradient within its bound; what is no number stays so, and is refused when packed."""
    if (largest := float(np.abs(gradient).max())) > MOST_GRADIENT:
        gradient = gradient * (MOST_GRADIENT / largest * (1 - 1e-15))
        party.note(f"a gradient exceeded the limit of {MOST_GRADIENT:g} and was scaled down", "warning")
    return gradient


@dataclass(frozen=True)
class ServerStep(SettingsGroup):
    """The plain average: the mean change is added to the weights."""

    # Prefixes of the shared values that the server keeps for itself from round to round.
    state: ClassVar[tuple[str, ...]] = ()
    told: ClassVar[tuple[str, ...]] = ()  # and of those that clients need as well

    def move(self, mean: Mapping[str, Any], shared: Shared, network: Network) -> dict[str, Any]:
        """Return the weights after a round, and the server's own state."""
        return {PREFIX + name: shared[PREFIX + name] + change for name, change in mean.items()}
