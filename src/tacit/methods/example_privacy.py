"""What DP-SGD at the clients costs: one budget of epsilon for any single row, over all rounds of a run.

Every client draws rows with the same probability and adds the same noise, so the cost is known beforehand
and is the same for all: the coordinator stops in time, and each client refuses by itself whatever would
exceed the budget that the manifest pins. The unit is one row of one client, added or removed; how many rows
a client has is not hidden. It is counted as if a client took part in every round.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tacit.core.errors import ProtectionError
from tacit.core.party import Party
from tacit.crypto.accounting import Accountant, Release

if TYPE_CHECKING:
    from tacit.methods.averaging import Averaging

ROUNDS = "example_rounds"


def epsilon_after(method: Averaging, rounds: int) -> float:
    """Epsilon that so many rounds cost any one row."""
    assert method.private
    steps = rounds * method.private.steps(method.epochs)
    return _epsilon(method.example_noise, method.example_sampling, method.example_delta, steps)


@lru_cache(maxsize=1024)
def _epsilon(noise: float, sampling: float, delta: float, steps: int) -> float:
    accountant = Accountant(delta)
    accountant.add(Release(noise, sampling=sampling), rounds=steps)
    return accountant.epsilon()


def rounds_within(method: Averaging) -> int:
    """How many rounds the budget allows, up to those that are asked for."""
    low, high = 0, method.rounds
    while low < high:
        middle = (low + high + 1) // 2
        if epsilon_after(method, middle) <= method.example_epsilon:
            low = middle
        else:
            high = middle - 1
    return low


def check_budget(party: Party, number: int, method: Averaging) -> None:
    """Count a round at a client; refuse one that the budget does not allow, whoever asks for it."""
    used = max(party.state.get(ROUNDS, 0), number)
    if used >= rounds_within(method):
        raise ProtectionError(
            f"the budget of {method.example_epsilon:g} for each row is spent after {used} rounds: "
            f"{party.id} takes part in no more"
        )
    party.state[ROUNDS] = used + 1
