"""How a training goes, read from events alone: a line for each sum with its scores; a bar in notebooks."""

import sys
import time
from html import escape
from importlib import import_module
from typing import Any

from tacit.core import events
from tacit.core.errors import extra

SCORES = ("accuracy", "balanced_accuracy", "f1", "auc", "loss", "r2", "rmse", "mae")
EVERY = 0.2  # seconds between two changes: more would fill the notebook's connection


class History:
    """Collects a line for each sum that opened; subscribe it to the events of a training."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self._cost = {"bytes_up": 0, "bytes_down": 0, "cpu_s": 0.0, "seconds": 0.0}

    def __call__(self, number: int, event: events.Event) -> None:
        match event:
            case events.Replied():
                self._cost["bytes_up"] += event.bytes_up
                self._cost["bytes_down"] += event.bytes_down
                self._cost["cpu_s"] += event.cpu_s
            case events.WaveEnded():
                self._cost["cpu_s"] += event.cpu_s
                self._cost["seconds"] += event.wall_s
            case events.TotalOpened():
                opened = {"sum": event.contribution, "clients": event.contributors, "values": event.values}
                self.lines.append({**opened, **self._cost})
                self._cost = dict.fromkeys(self._cost, 0)
            case events.BudgetSpent() if self.lines:
                self.lines[-1][event.key] = event.epsilon
            case events.Evaluated() if self.lines and event.model.startswith("round "):
                scores = {name: event.scores[name] for name in SCORES if event.scores.get(name) is not None}
                self.lines[-1] |= {"round": int(event.model.split()[1]), **scores}

    def frame(self) -> Any:
        """Return the lines as a pandas DataFrame."""
        with extra("a history is a pandas DataFrame: pip install 'tacit-fl[notebook]'"):
            import pandas
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


class NotebookBar:
    """Subscriber that draws what a training is doing: the sum, who has answered, and the last score."""

    def __init__(self) -> None:
        shown: Any = import_module("IPython.display")
        self._html = shown.HTML
        self._handle = shown.display(shown.HTML(""), display_id=True)
        self._drawn = self._began = time.monotonic()
        self._asked, self._answered, self._sums, self._score = 0, 0, 0, ""

    def __call__(self, number: int, event: events.Event) -> None:
        match event:
            case events.WaveStarted():
                self._asked, self._answered = event.parties, 0
            case events.Replied():
                self._answered += 1
            case events.TotalOpened():
                self._sums += 1
            case events.Evaluated():
                known = [name for name in ("accuracy", "r2", "loss") if name in event.scores]
                self._score = f", {known[0]} {event.scores[known[0]]:.3f}" if known else ""
            case events.RunEnded():
                self._draw("done" if event.error is None else "stopped")
                return
        if time.monotonic() > self._drawn + EVERY:
            share = f'<progress value="{self._answered}" max="{max(self._asked, 1)}"></progress>'
            self._draw(f"{share} {self._answered:,} of {self._asked:,} clients")

    def _draw(self, state: str) -> None:
        self._drawn = time.monotonic()
        sums = f"{self._sums} sum" + "s" * (self._sums != 1)
        told = escape(f": {sums}{self._score}, {self._drawn - self._began:.1f} s")
        self._handle.update(self._html(f"Tacit {state}{told}"))


def notebook_bar() -> NotebookBar | None:
    """Return a bar if this runs in a notebook, where a cell's output can be changed."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return NotebookBar() if hasattr(shell, "kernel") else None
