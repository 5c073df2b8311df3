"""DP-SGD at the clients, and what it costs: one budget of epsilon for any single row, over a whole run.

M. Abadi, A. Chu, I. Goodfellow, H. B. McMahan, I. Mironov, K. Talwar, L. Zhang, "Deep Learning with
Differential Privacy", CCS 2016, algorithm 1.

All clients draw rows with one probability and add the same noise, so the cost is known beforehand: the
coordinator stops in time, and each client refuses by itself what would exceed the budget that the manifest
pins. A client counts the rounds that it computes, whichever round the coordinator says it is, and draws new
rows for each: a sample that came twice would not be the sampling that is accounted for. The unit is one
row of one client, added or removed, as if it took part in every round; how many rows a client has is not
hidden.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import ClassVar

import numpy as np

from tacit.core.client import manifest_of
from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError, ProtectionError
from tacit.core.events import BudgetSpent, Noted
from tacit.core.party import Charge, Party
from tacit.core.settings_group import Rule, SettingsGroup
from tacit.crypto.accounting import Accountant, Release
from tacit.crypto.noise import add_noise, flip_coins
from tacit.models.network import Matrix, Network, Targets, Vector

ROUNDS = "example_rounds"  # in a client's state: rounds that it has computed with noise
MOST_NOISE = 1e4


@dataclass(frozen=True)
class ExamplePrivacy(SettingsGroup):
    """DP-SGD: rows drawn by coins, their gradients clipped one by one, Gaussian noise on the sum.

    Parameters
    ----------
    noise : float
        DP-SGD at every client: standard deviation of the noise over example_clip; 0 for none.
    clip : float
        Longest norm of the gradient of one row.
    sampling : float
        Probability with which a row is part of a step.
    epsilon : float
        Budget of the whole run for any one row; training stops before it would be exceeded.
    delta : float
        Probability with which that may not hold.
    """

    prefix: ClassVar[str] = "example_"

    noise: float = 0.0
    clip: float = 1.0
    sampling: float = 0.1
    epsilon: float = 8.0
    delta: float = 1e-5

    def rules(self) -> Iterable[Rule]:
        return (
            ("noise", 0 <= self.noise <= MOST_NOISE, f"give 0 for none, or about 1; at most {MOST_NOISE:g}"),
            ("clip", 0 < self.clip < inf, "give the longest norm of a gradient, above 0"),
            ("sampling", 0 < self.sampling <= 1, "give a probability above 0"),
            ("epsilon", self.epsilon > 0, "give a budget above 0"),
            ("delta", 0 < self.delta < 1, "give a probability above 0 and below 1"),
        )

    def noisy_gradients(
        self,
        network: Network,
        weights: Vector,
        X: Matrix,
        targets: Targets,
        epochs: int,
        coins: np.random.Generator | None,
    ) -> Iterator[Vector]:
        """Yield the clipped and noised mean gradient of each drawn batch, at the weights of that moment."""
        for _ in range(self.count_steps(epochs)):
            rows = np.flatnonzero(flip_coins(self.sampling, len(targets), coins))
            total = network.clipped_gradients(weights, X[rows], targets[rows], self.clip)
            yield add_noise(total, self.clip, self.noise) / (self.sampling * len(targets))

    def count_steps(self, epochs: int) -> int:
        """Return how many steps look at as many rows as so many epochs."""
        return max(1, round(epochs / self.sampling))

    def begin_round(self, party: Party, number: int, rounds: int, epochs: int) -> np.random.Generator | None:
        """Count a round at a client before its noise is drawn, and return where its coins come from.

        A round that the budget does not allow is refused, whoever asks for it. Experiments repeat their coins
        by the client's own count; everywhere else they come from the operating system (None).
        """
        if not self.noise:
            return None
        used = max(party.state.get(ROUNDS, 0), number)
        if used >= (affordable := self.count_affordable_rounds(rounds, epochs)):
            raise ProtectionError(
                f"the budget of {self.epsilon:g} for each row is spent after {used} rounds: "
                f"{party.id} takes part in no more"
            )
        steps = self.count_steps(epochs)
        party.charge(Charge("row", self.noise, self.sampling, self.delta, steps, affordable * steps))
        party.state[ROUNDS] = used + 1
        return party.rng("coins", used) if manifest_of(party).experiment else None

    def carry_over(self, party: Party, earlier: Party) -> None:
        """Go on counting the rounds that a client has computed in an earlier attempt at the same run."""
        party.state[ROUNDS] = max(earlier.state.get(ROUNDS, 0), party.state.get(ROUNDS, 0))

    def compute_epsilon(self, rounds: int, epochs: int) -> float:
        """Return the epsilon that so many rounds of so many epochs cost any one row."""
        return _epsilon(self.noise, self.sampling, self.delta, rounds * self.count_steps(epochs))

    def foresee(self, rounds: int, epochs: int) -> tuple[int, float]:
        """Return how many of so many rounds there are, and what they cost a row; infinite without noise."""
        if not self.noise:
            return rounds, inf
        rounds = max(1, self.count_affordable_rounds(rounds, epochs))
        return rounds, self.compute_epsilon(rounds, epochs)

    def count_affordable_rounds(self, rounds: int, epochs: int) -> int:
        """Return how many rounds the budget allows, up to those that are asked for."""
        # Epsilon grows with the rounds.
        return bisect_right(range(1, rounds + 1), self.epsilon, key=lambda n: self.compute_epsilon(n, epochs))

    def check_budget(self, epochs: int) -> None:
        """Refuse a budget that does not allow a single round."""
        if self.noise and (cost := self.compute_epsilon(1, epochs)) > self.epsilon:
            raise ConfigError(
                f"one round costs epsilon {cost:.3g}, the budget is {self.epsilon:g}: "
                "raise example_noise, lower example_sampling or epochs, or raise example_epsilon"
            )

    def check_sums(self, of: str | None) -> None:
        """Refuse sums of what rows hold beside features, of labels or targets, that the budget leaves out."""
        if self.noise and of:
            raise ConfigError(
                f"{of} are summed without noise here, which example_epsilon would not cover: use fedavg for "
                "classes, without class_weight"
            )

    def allows_round(self, coordinator: Coordinator, number: int, rounds: int, epochs: int) -> bool:
        """Return whether the budget allows another round; tell what it is by then."""
        if not self.noise:
            return True
        allowed, computed = self.count_affordable_rounds(rounds, epochs), number + coordinator.repeats
        if computed >= allowed:
            text = f"example_epsilon {self.epsilon:g} allows {allowed} rounds: training ends here"
            coordinator.events.emit(Noted("privacy", text, "warning"))
            return False
        spent, left = self.compute_epsilon(computed + 1, epochs), allowed - computed - 1
        coordinator.events.emit(BudgetSpent(number + 1, spent, self.epsilon, self.delta, left, "row"))
        return True


@lru_cache(maxsize=1024)
def _epsilon(noise: float, sampling: float, delta: float, steps: int) -> float:
    accountant = Accountant(delta)
    accountant.add(Release(noise, "discrete", sampling), rounds=steps)
    return accountant.epsilon()
