"""Progress bars on stderr, drawn from events."""

import time
from math import inf
from typing import Self

from rich import progress
from rich.text import Text

from tacit.cli.output import stderr
from tacit.core import events
from tacit.ledger.sentences import step_words
from tacit.runs.page.units import time_text

LINE_S = 30.0  # between two lines of a bar that is written to a file
SHOWN = ("accuracy", "r2", "rmse")  # the first of these that a round has


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
    _began, _told = 0.0, -inf

    def __call__(self, done: int, total: int | None, text: str) -> None:
        now = time.monotonic()
        if not stderr.is_terminal and not self._bars.disable:
            self._began = self._began or now
            if now - self._told >= LINE_S:
                self._told = now
                left = (now - self._began) * ((total or done) - done) / max(done, 1)
                told = (f", {time_text(left)} left" if left else "") + (f": {text}" if text else "")
                stderr.print(f"{done:,} of {total or 'some'}{told}", soft_wrap=True)
            return
        if self._task is None:
            self._bars.start()
            self._task = self._bars.add_task(text, total=total)
        self._bars.update(self._task, completed=done, total=total, description=text)


class ProgressBars(_Bars):
    """Subscriber that draws a bar for the rounds, or one per wave, and tells warnings; a context manager."""

    def __init__(self, quiet: bool) -> None:
        text, bar = progress.TextColumn("{task.description:<18}"), progress.BarColumn(bar_width=32)
        times = progress.TimeElapsedColumn(), progress.TextColumn("{task.fields[left]}")
        super().__init__(quiet, text, bar, progress.MofNCompleteColumn(), *times)
        self._quiet = quiet
        self._step = 1
        self._replies = 0
        self._said: set[str] = set()
        self._task = progress.TaskID(0)
        self._sum: int | None = None
        self._before = 0  # replies of earlier waves of this sum: a ring asks one client at a time
        self._clients = 0
        self._rounds: progress.TaskID | None = None  # the bar of a method that has rounds
        self._score = ""
        self._began: tuple[float, int] | None = None  # when the first round ended, and its number

    def __call__(self, number: int, event: events.Event) -> None:
        match event:
            case events.Replied():
                # A hundred updates per bar are plenty, with 20,000 clients too.
                self._replies += 1
                if self._replies % self._step == 0 and self._rounds is None:
                    self._bars.update(self._task, completed=self._before + self._replies)
            case events.RunStarted():
                self._clients, self._rounds, self._began = event.clients, None, None
                if event.rounds:
                    self._bars.start()
                    self._rounds = self._bars.add_task("round 1", total=event.rounds, left="")
            case events.WaveStarted() if self._rounds is None:
                self._started(event)
            case events.WaveEnded() if self._rounds is None:
                self._before += event.replies + event.failures
                self._bars.update(self._task, completed=self._before)
            case events.Evaluated() if event.model.startswith("round "):
                shown = [f", {name} {event.scores[name]:.4f}" for name in SHOWN if name in event.scores]
                self._score = shown[0] if shown else ""
            case events.RoundEnded() if self._rounds is not None:
                self._ended(event.round, self._rounds)
            case events.Noted(level="warning") if not self._quiet:
                self._warn(event)

    def _ended(self, done: int, task: progress.TaskID) -> None:
        now, total = time.monotonic(), int(self._bars.tasks[task].total or 0)
        if self._began is None:
            self._began = self._bars.tasks[task].start_time or now, done - 1  # a run may go on from round 5
        each = (now - self._began[0]) / max(1, done - self._began[1])
        left = f"about {time_text(each * (total - done))} left" if done < total else ""
        self._bars.update(task, completed=done, description=f"round {done}{self._score}", left=left)

    def _started(self, event: events.WaveStarted) -> None:
        self._step, self._replies = max(1, event.parties // 100), 0
        if event.sum is not None and event.sum == self._sum:
            self._bars.update(self._task, total=max(self._clients, self._before + event.parties))
            return
        self._bars.start()  # not before there is something to draw
        self._task = self._bars.add_task(step_words(event.step), total=event.parties, left="")
        self._sum, self._before = event.sum, 0

    def _warn(self, event: events.Noted) -> None:
        if event.text not in self._said:
            self._said.add(event.text)
            text = Text.assemble(("warning", "yellow"), f" ({event.about}): {event.text}")
            self._bars.console.print(text, soft_wrap=True)
