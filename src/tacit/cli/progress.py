"""Progress bars on stderr, drawn from events."""

from __future__ import annotations

from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from tacit.cli.output import stderr
from tacit.core.events import Event, Noted, Replied, WaveEnded, WaveStarted

WORDS = {
    "desk.enrol": "enrol",
    "desk.contribute": "contribute",
    "desk.disclose": "disclose",
    "desk.adopt": "adopt the model",
}


class OneBar:
    """A single bar that appears with the first step of the work; a context manager."""

    def __init__(self, quiet: bool) -> None:
        self._bars = Progress(console=stderr, disable=quiet)
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def __call__(self, done: int, total: int | None, text: str) -> None:
        """Draw how much is done, and of what."""
        if self._task is None:
            self._bars.start()
            self._task = self._bars.add_task(text, total=total)
        self._bars.update(self._task, completed=done, total=total, description=text)


class ProgressBars:
    """Subscriber that draws a bar per wave and tells warnings; a context manager."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._bars = Progress(
            TextColumn("{task.description:<18}"),
            BarColumn(bar_width=32),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=stderr,
            disable=quiet,
        )
        self._step = 1
        self._replies = 0
        self._said: set[str] = set()
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def __call__(self, number: int, event: Event) -> None:
        """Draw what an event tells."""
        if isinstance(event, Replied):
            # A hundred updates per bar are plenty, with 20,000 clients too.
            self._replies += 1
            if self._replies % self._step == 0:
                self._bars.update(self._task, completed=self._replies)
        elif isinstance(event, WaveStarted):
            self._bars.start()  # not before there is something to draw
            self._task = self._bars.add_task(WORDS.get(event.step, event.step), total=event.parties)
            self._step, self._replies = max(1, event.parties // 100), 0
        elif isinstance(event, WaveEnded):
            self._bars.update(self._task, completed=event.replies + event.failures)
        elif isinstance(event, Noted) and event.level == "warning" and not self._quiet:
            self._warn(event)

    def _warn(self, event: Noted) -> None:
        if event.text not in self._said:
            self._said.add(event.text)
            self._bars.console.print(f"[yellow]warning[/] ({event.about}): {event.text}")
