"""A progress bar in notebooks: one line of HTML that is changed in place, without widgets."""

import sys
import time
from html import escape
from importlib import import_module
from typing import Any

from tacit.core.events import Evaluated, Event, Replied, RunEnded, TotalOpened, WaveStarted

EVERY = 0.2  # seconds between two changes: more would fill the notebook's connection


class NotebookBar:
    """Subscriber that draws what a training is doing: the sum, who has answered, and the last score."""

    def __init__(self) -> None:
        shown: Any = import_module("IPython.display")
        self._html = shown.HTML
        self._handle = shown.display(shown.HTML(""), display_id=True)
        self._drawn = self._began = time.monotonic()
        self._asked, self._answered, self._sums, self._score = 0, 0, 0, ""

    def __call__(self, number: int, event: Event) -> None:
        """Draw what an event tells."""
        match event:
            case WaveStarted():
                self._asked, self._answered = event.parties, 0
            case Replied():
                self._answered += 1
            case TotalOpened():
                self._sums += 1
            case Evaluated():
                known = [name for name in ("accuracy", "r2", "loss") if name in event.scores]
                self._score = f", {known[0]} {event.scores[known[0]]:.3f}" if known else ""
            case RunEnded():
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
