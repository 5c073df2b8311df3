"""Events say what happened; no method prints, times or counts: whoever is interested subscribes."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from tacit.core.errors import TacitError


class Event(msgspec.Struct, frozen=True, tag_field="event", omit_defaults=True):
    """Base of all events; as JSON each has its class name under ``event``."""


class RunStarted(Event, frozen=True, tag=True):
    """A federation begins to work under one agreed manifest."""

    run: str
    manifest: str
    method: str
    protection: str
    opens: str
    clients: int
    seed: int
    rounds: int | None = None  # at the most, of a method that has rounds


class WaveStarted(Event, frozen=True, tag=True):
    """The coordinator asks some parties for one step."""

    wave: int
    step: str
    parties: int
    sum: int | None = None


class Replied(Event, frozen=True, tag=True):
    """One party answered (or failed): what travelled, and what it cost the party."""

    wave: int
    party: str
    bytes_down: int  # to the party, as encoded
    bytes_up: int
    cpu_s: float
    failure: str | None = None
    service: bool = False  # a party without rows, such as a key server
    hidden_down: int = 0  # bytes of these that are cryptography: keys, and what is not plain
    hidden_up: int = 0


class Refused(Event, frozen=True, tag=True):
    """What a party sent in a wave cannot be used: the run goes on without it."""

    wave: int
    party: str
    reason: str


class Relayed(Event, frozen=True, tag=True):
    """The coordinator handed sealed messages on; their bytes are in the ``Replied`` of both parties."""

    wave: int
    sender: str  # empty where all neighbours of a party sent one each
    receiver: str
    bytes: int
    times: int = 1  # that it stands for then


class Received(Event, frozen=True, tag=True):
    """What parties of a kind received in a wave: its exposure class, about whom, over how many."""

    wave: int
    step: str
    receiver: str
    about: str
    kind: str
    what: str
    over: int
    times: int
    bytes: int
    contribution: str = ""  # of the sum that it belonged to, if it belonged to one
    form: str = "plain"  # in which it travelled: "plain", "key", or the kind of a protected blob


class WaveEnded(Event, frozen=True, tag=True):
    """All parties of a wave have answered or failed; CPU is the coordinator's own."""

    wave: int
    replies: int
    failures: int
    cpu_s: float
    wall_s: float


class TotalOpened(Event, frozen=True, tag=True):
    """A protected sum was opened: where, over how many contributions, and how many values."""

    sum: int
    contribution: str
    at: str
    contributors: int
    values: int


class RoundEnded(Event, frozen=True, tag=True):
    """So many rounds of the method are complete; their scores, if there are any, were told before."""

    round: int


EPSILONS = {"client": "epsilon", "row": "epsilon_rows"}  # by whom noise hides: a run may have both


class BudgetSpent(Event, frozen=True, tag=True):
    """Something with noise was released: the run's epsilon so far, its budget, and how many sums are left."""

    sum: int
    epsilon: float
    budget: float
    delta: float
    left: int
    unit: str = "client"  # whom the noise hides: a client, or a row

    @property
    def key(self) -> str:
        """The name under which this epsilon is told, apart from that of the other unit."""
        return EPSILONS[self.unit]


class Noted(Event, frozen=True, tag=True):
    """Something a person should know: a warning of a party, an unsafe choice, a recorded failure."""

    about: str
    text: str
    level: str = "info"


class Evaluated(Event, frozen=True, tag=True):
    """Scores of a model on a hold-out."""

    model: str
    holdout: str
    scores: Mapping[str, Any]


class RunEnded(Event, frozen=True, tag=True):
    """The model is agreed (its digest named), or the run stopped with an error."""

    run: str
    model: str | None
    error: str | None = None


Subscriber = Callable[[int, Event], None]


class Events:
    """Numbers events and hands them to the subscribers."""

    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscribers = list(subscribers)
        self._number = 0

    def subscribe(self, subscriber: Subscriber) -> None:
        """Hand all events from now on to this subscriber too."""
        self._subscribers.append(subscriber)

    @contextmanager
    def ending(self, run: str) -> Iterator[None]:
        """Tell that a run ended, and why, if the block fails."""
        try:
            yield
        except (TacitError, KeyboardInterrupt) as error:
            self.emit(RunEnded(run, None, f"{type(error).__name__}: {error}"))
            raise

    def emit(self, event: Event) -> None:
        """Assign the next number to an event, and hand it to every subscriber."""
        number, self._number = self._number, self._number + 1
        for subscriber in self._subscribers:
            subscriber(number, event)
