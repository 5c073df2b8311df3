"""The manifest: what a federation has agreed on, named everywhere by its digest."""

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from tacit.core.errors import ConfigError, MessageError
from tacit.core.marks import marks_of
from tacit.core.message import Message
from tacit.core.random import generator
from tacit.core.values import thawed

if TYPE_CHECKING:
    from tacit.core.method import Method
    from tacit.core.protection import Protection
    from tacit.data.preparation import Preparation

MOST_ATTEMPTS = 1000
MIN_COUNT = 5  # rows of a class or category whose total hides them, unless agreed otherwise
STANDS = "standing"  # declared of a standing federation of sites; False in the run that finds its words
MOST_COUNT = 1000  # the largest least count: protected sums resolve thousandths with ease


class Components(NamedTuple):
    """The parts that a manifest names, built at this party."""

    method: "Method"
    protection: "Protection"
    preparation: "Preparation"

    @property
    def services(self) -> tuple[str, ...]:
        """Parties without rows that protection and method need."""
        return (*self.protection.services, *self.method.services)


@dataclass(frozen=True)
class Manifest:
    """Run, parts with their settings, seed and thresholds, agreed at enrolment."""

    run: str  # the run's id; ours, not the engine's
    components: Mapping[str, Any]  # for method, protection and preparation its ``name`` and ``config``
    seed: int = 0  # source of public randomness
    min_clients: int = 1  # no total over fewer contributions is ever opened
    min_count: int = 1  # no class, category or column in which fewer rows stand apart; 1: not counted
    quorum: float = 0.8  # share of the asked clients that must contribute to a sum
    experiment: bool = False  # all parties belong to one experimenter, who may read a client's replica
    attempt: int = 0  # how often this run was taken up again after it had been stopped
    declared: Mapping[str, Any] = field(default_factory=dict)  # what was fixed beforehand, such as classes
    reveals: tuple[str, ...] = ()  # contributions whose totals the coordinator gets, wherever totals open

    @classmethod
    def of(cls, run: str, components: Components, **settings: Any) -> "Manifest":
        """Write down built parts by name and settings."""
        described = {
            kind: {"name": part.registered_name(), "config": part.config()}
            for kind, part in components._asdict().items()
        }
        return cls(run, described, reveals=reveals_of(components), **settings)

    def __post_init__(self) -> None:
        # A manifest also comes by wire: what it says is checked at every party.
        if type(self.min_clients) is not int or self.min_clients < 1:
            raise ConfigError(f"min_clients is {self.min_clients!r}: at least 1 contribution makes a total")
        if type(self.min_count) is not int or not 1 <= self.min_count <= MOST_COUNT:
            raise ConfigError(
                f"min_count is {self.min_count!r}: give 1 to {MOST_COUNT} rows that a class or category must "
                "have; 1 counts nothing"
            )
        if type(self.attempt) is not int or not 0 <= self.attempt <= MOST_ATTEMPTS:
            raise ConfigError(f"attempt is {self.attempt!r}: a run is taken up {MOST_ATTEMPTS} times at most")
        if not isinstance(self.quorum, float | int) or not 0 < self.quorum <= 1:
            raise ConfigError(f"quorum is {self.quorum!r}: give a share of the clients, above 0 up to 1")

    def to_message(self) -> Message:
        """Return the manifest as a message."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        # Thousands of declared classes do not fit a header.
        return Message({**values, "declared": msgspec.json.encode(thawed(self.declared))})

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> "Manifest":
        """Read a manifest; unknown or missing fields are refused."""
        known = {f.name for f in fields(cls)}
        if message.keys() != known:
            odd = sorted(message.keys() ^ known)
            raise MessageError(f"manifest fields {odd} are unknown or missing: install the same release")
        values = {name: message[name] for name in known}
        try:
            values["declared"] = msgspec.json.decode(values["declared"], type=dict[str, Any])
        except (ValueError, TypeError) as error:
            raise MessageError(f"what the manifest declares cannot be read: {error}") from None
        for name, kind in (("run", str), ("seed", int), ("experiment", bool)):
            if (found := type(values[name])) is not kind:
                raise MessageError(f"the manifest's {name} is a {found.__name__}, not {kind.__name__}")
        _check_parts(values["components"])
        return cls(**values)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the manifest's message."""
        return self.to_message().digest()

    @property
    def stands(self) -> bool:
        """Whether this is a standing federation of sites that say by themselves which rows they bring."""
        return self.declared.get(STANDS) is True

    def rng(self, *label: object) -> np.random.Generator:
        """Return public randomness: everybody who has the manifest can repeat it."""
        return generator(b"public", self.seed, *label)


def _check_parts(parts: Any) -> None:
    if not isinstance(parts, Mapping) or parts.keys() != {*Components._fields}:
        raise MessageError(f"a manifest names {', '.join(Components._fields)} as its components, each once")
    for kind, part in parts.items():
        named = isinstance(part, Mapping) and part.keys() == {"name", "config"}
        if not named or not isinstance(part["name"], str) or not isinstance(part["config"], Mapping):
            raise MessageError(f"the manifest describes its {kind} by something else than name and settings")


def reveals_of(components: Components) -> tuple[str, ...]:
    """Return the contributions whose totals may be handed to the coordinator, as their parts mark them."""
    owners: dict[str, Any] = {kind: type(getattr(components, kind)) for kind in ("method", "preparation")}
    marks = {
        f"{kind}.{name}": mark
        for kind in owners
        for name, mark in marks_of(owners[kind], "contribution").items()
    }
    return tuple(name for name, mark in marks.items() if mark.revealed)


def check_reveals(manifest: Manifest, components: Components) -> None:
    """Refuse a manifest that does not name what the parts, as they are installed here, would reveal."""
    told, own = (", ".join(names) or "nothing" for names in (manifest.reveals, reveals_of(components)))
    if told != own:
        raise ConfigError(
            f"the manifest lets the coordinator have totals of {told}, but method and preparation, as "
            f"installed here, reveal {own}: install the same release everywhere"
        )


def new_run() -> str:
    """Make a run's id: when, and something random."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
