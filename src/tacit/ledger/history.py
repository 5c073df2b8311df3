"""How a training went: one line for each sum, with the scores that followed it; read from events alone."""

from typing import Any

from tacit.core.errors import UnavailableError
from tacit.core.events import BudgetSpent, Evaluated, Event, Replied, TotalOpened, WaveEnded

SCORES = ("accuracy", "balanced_accuracy", "f1", "auc", "loss", "r2", "rmse", "mae")


class History:
    """Collects a line for each sum that opened; subscribe it to the events of a training."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self._cost = {"bytes_up": 0, "bytes_down": 0, "cpu_s": 0.0, "seconds": 0.0}

    def __call__(self, number: int, event: Event) -> None:
        """Take one event into account."""
        match event:
            case Replied():
                self._cost["bytes_up"] += event.bytes_up
                self._cost["bytes_down"] += event.bytes_down
                self._cost["cpu_s"] += event.cpu_s
            case WaveEnded():
                self._cost["cpu_s"] += event.cpu_s
                self._cost["seconds"] += event.wall_s
            case TotalOpened():
                opened = {"sum": event.contribution, "clients": event.contributors, "values": event.values}
                self.lines.append({**opened, **self._cost})
                self._cost = dict.fromkeys(self._cost, 0)
            case BudgetSpent() if self.lines:
                self.lines[-1][event.key] = event.epsilon
            case Evaluated() if self.lines and event.model.startswith("round "):
                scores = {name: event.scores[name] for name in SCORES if event.scores.get(name) is not None}
                self.lines[-1] |= {"round": int(event.model.split()[1]), **scores}

    def frame(self) -> Any:
        """Return the lines as a pandas DataFrame."""
        try:
            import pandas
        except ImportError:
            raise UnavailableError(
                "a history is a pandas DataFrame: pip install 'tacit-fl[notebook]'"
            ) from None
        return pandas.DataFrame(self.lines)

    def plot(self, axes: Any = None) -> Any:
        """Draw the scores by round or, where there are no rounds, the bytes of each sum; return the axes."""
        from matplotlib import pyplot

        axes = axes or pyplot.subplots(figsize=(6, 3), layout="constrained")[1]
        scored = [line for line in self.lines if "round" in line]
        names = [name for name in SCORES if any(name in line for line in scored)]
        for name in names:
            points = [(line["round"], line[name]) for line in scored if name in line]
            axes.plot(*zip(*points, strict=True), label=name)
        if names:
            axes.set(xlabel="round")
            axes.legend(frameon=False)
        else:
            axes.barh([line["sum"] for line in self.lines], [line["bytes_up"] for line in self.lines])
            axes.set(xlabel="bytes from the clients")
            axes.invert_yaxis()
        return axes
