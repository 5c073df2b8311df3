"""Rounds as the coordinator sees them: which are left, who takes part, and what the protection allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.core.coordinator import Coordinator
from tacit.core.errors import TacitError
from tacit.core.events import Noted
from tacit.data.schema import vocabulary


def find_remaining(coordinator: Coordinator, rounds: int) -> range:
    """Return the numbers of the rounds that are still to do."""
    known: Mapping[str, Any] = coordinator.shared or {}
    done = int(coordinator.progress.get("round", known.get("round", 0)))
    return range(done, done if coordinator.progress.get("over") else int(known.get("until", rounds)))


def draw_cohort(coordinator: Coordinator, fraction: float, number: int) -> tuple[str, ...] | None:
    """Return the clients of a round: a share of them, but never too few to open a total; None for all."""
    fewest = coordinator.components.protection.min_contributions(coordinator.manifest.min_clients)
    wanted = max(round(fraction * len(coordinator.parties)), fewest)
    if wanted >= len(coordinator.parties):
        return None
    drawn = coordinator.rng("cohort", number).choice(len(coordinator.parties), size=wanted, replace=False)
    return tuple(coordinator.parties[index] for index in sorted(drawn.tolist()))


def admit_late_clients(coordinator: Coordinator, number: int) -> None:
    """Let clients that were not there when the run began take part from now on."""
    if not (late := coordinator.late()):
        return
    agreement = coordinator.components.preparation.agreement(vocabulary(coordinator.schema))
    try:
        admitted = coordinator.admit(late, agreement)
    except TacitError as error:
        coordinator.events.emit(Noted("enrolment", f"nobody joins late: {error}", "warning"))
        return
    for name in admitted:
        coordinator.events.emit(Noted(name, f"joined late, in round {number + 1}"))


def has_sums_left(coordinator: Coordinator, round_sums: int) -> bool:
    """Return whether the protection's noise was sized for another round, and those sums that follow."""
    left = coordinator.protection.left()
    if left is None or left >= round_sums + coordinator.reserved:
        return True
    text = f"noise was sized for {left} more sums, too few for a round: training ends here"
    coordinator.events.emit(Noted("privacy", text, "warning"))
    return False


def epsilon_spent(coordinator: Coordinator) -> float:
    """Return the epsilon of the protection's noise so far; 0 where there is none."""
    return coordinator.protection.spent()
