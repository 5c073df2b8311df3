"""The watch over hold-outs: stop when nothing gets better, take back a round that made things much worse.

A round's model counts only once the clients' hold-outs, from a protected sum of hits and losses, do not
show a collapse: version control of models, as Santos et al. ("Exploring Aggregation Strategies for
Federated Learning in National Statistics") ask for.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError
from tacit.core.events import Evaluated, Noted

if TYPE_CHECKING:
    from tacit.methods.averaging import Averaging


class Watch:
    """Looks at the hold-outs after each round, if the method asks for it."""

    def __init__(self, method: Averaging, coordinator: Coordinator) -> None:
        self._method, self._coordinator = method, coordinator
        self._best_loss, self._best_accuracy, self._waited = coordinator.progress.get("best", (inf, 0.0, 0))

    @property
    def best(self) -> tuple[float, float, int]:
        """What a run that goes on later has to know: lowest loss, highest accuracy, rounds without either."""
        return self._best_loss, self._best_accuracy, self._waited

    def goes_on(self, number: int) -> bool:
        """Judge a round: keep it or take it back, and say whether to go on."""
        if not self._method.watched:
            return True
        counts = self._coordinator.reveal(self._method.hold_out)
        if counts["rows"] < 0.5:
            raise ConfigError(
                "patience and collapse need rows that clients keep aside: set holdout, say to 0.2"
            )
        accuracy, loss = (float(counts[name] / counts["rows"]) for name in ("hits", "loss"))
        self._coordinator.events.emit(
            Evaluated(f"round {number + 1}", "clients", {"accuracy": accuracy, "loss": loss})
        )
        if self._method.collapse and accuracy < self._best_accuracy - self._method.collapse:
            text = (
                f"round {number + 1} is taken back: accuracy on the hold-outs fell to {accuracy:.3f} "
                f"from {self._best_accuracy:.3f}"
            )
            self._coordinator.events.emit(Noted("hold-out", text, "warning"))
            self._coordinator.round(self._method.consent, self._method.take_back)
            self._waited += 1
        else:
            self._best_accuracy = max(self._best_accuracy, accuracy)
            self._waited = 0 if loss < self._best_loss else self._waited + 1
            self._best_loss = min(self._best_loss, loss)
        if self._method.patience and self._waited >= self._method.patience:
            text = (
                f"no lower loss on the hold-outs for {self._waited} rounds: training ends with {number + 1}"
            )
            self._coordinator.events.emit(Noted("hold-out", text))
            return False
        return True
