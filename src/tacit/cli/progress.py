"""Progress bars on stderr, drawn from events."""

from __future__ import annotations

from typing import Self

from rich import progress
from rich.text import Text

from tacit.cli.output import stderr
from tacit.core.events import Event, Noted, Replied, RunStarted, WaveEnded, WaveStarted

WORDS = {
    "client.enrol": "enrol",
    "client.contribute": "contribute",
    "client.disclose_total": "disclose",
    "client.adopt_model": "adopt the model",
    "client.enrol_service": "services",
    "client.show_model": "read the model",
    "protection.make_keys": "make keys",
    "protection.serve_key": "make keys",
    "protection.open_total": "open the total",
}


class _Bars:
    """What draws on stderr until its block ends."""

    def __init__(self, quiet: bool, *columns: progress.ProgressColumn) -> None:
        # A thread that redraws is of use on a terminal only, and where there is none, methods can fork.
        self._bars = progress.Progress(
            *columns, console=stderr, disable=quiet, auto_refresh=stderr.is_terminal
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()


class OneBar(_Bars):
    """A single bar that appears with the first step of the work; a context manager."""

    _task: progress.TaskID | None = None

    def __call__(self, done: int, total: int | None, text: str) -> None:
        """Draw how much is done, and of what."""
        if self._task is None:
            self._bars.start()
            self._task = self._bars.add_task(text, total=total)
        self._bars.update(self._task, completed=done, total=total, description=text)


class ProgressBars(_Bars):
    """Subscriber that draws a bar per wave and tells warnings; a context manager."""

    def __init__(self, quiet: bool) -> None:
        text, bar = progress.TextColumn("{task.description:<18}"), progress.BarColumn(bar_width=32)
        super().__init__(quiet, text, bar, progress.MofNCompleteColumn(), progress.TimeElapsedColumn())
        self._quiet = quiet
        self._step = 1
        self._replies = 0
        self._said: set[str] = set()
        self._task = progress.TaskID(0)
        self._sum: int | None = None
        self._before = 0  # replies of earlier waves of this sum: a ring asks one client at a time
        self._clients = 0

    def __call__(self, number: int, event: Event) -> None:
        """Draw what an event tells."""
        if isinstance(event, Replied):
            # A hundred updates per bar are plenty, with 20,000 clients too.
            self._replies += 1
            if self._replies % self._step == 0:
                self._bars.update(self._task, completed=self._before + self._replies)
        elif isinstance(event, RunStarted):
            self._clients = event.clients
        elif isinstance(event, WaveStarted):
            self._started(event)
        elif isinstance(event, WaveEnded):
            self._before += event.replies + event.failures
            self._bars.update(self._task, completed=self._before)
        elif isinstance(event, Noted) and event.level == "warning" and not self._quiet:
            self._warn(event)

    def _started(self, event: WaveStarted) -> None:
        self._step, self._replies = max(1, event.parties // 100), 0
        if event.sum is not None and event.sum == self._sum:
            self._bars.update(self._task, total=max(self._clients, self._before + event.parties))
            return
        self._bars.start()  # not before there is something to draw
        self._task = self._bars.add_task(WORDS.get(event.step, event.step), total=event.parties)
        self._sum, self._before = event.sum, 0

    def _warn(self, event: Noted) -> None:
        if event.text not in self._said:
            self._said.add(event.text)
            text = Text.assemble(("warning", "yellow"), f" ({event.about}): {event.text}")
            self._bars.console.print(text, soft_wrap=True)
