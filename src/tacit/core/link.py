"""The coordinator's link to the parties of a run, for protections: who they are, and how they are asked."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import partial
from typing import Any

from tacit.core.briefing import Briefing
from tacit.core.client import view_of
from tacit.core.differencing import OpenedTotals
from tacit.core.engine import Engine
from tacit.core.errors import ConfigError, FederationError
from tacit.core.events import Events, Refused, Relayed
from tacit.core.manifest import Components, Manifest
from tacit.core.marks import Mark
from tacit.core.message import Message
from tacit.core.party import Vault, identity_of, no_identities
from tacit.core.secret import Secret
from tacit.core.text import abbreviate
from tacit.core.transport import Jobs, Transcript, Transport


@dataclass(eq=False, repr=False)
class Link:
    """Transport, briefing and identity of a coordinator."""

    engine: InitVar[Engine]
    manifest: Manifest
    components: Components  # those that the manifest names
    events: Events = field(default_factory=Events)  # where to tell what happens
    _: KW_ONLY
    secret: Secret | None = None  # its own, from which its signing key comes
    pinned: Callable[[str], bytes] = no_identities  # identity keys of parties
    preshared: frozenset[str] = frozenset()  # parties whose exchange keys all others have pinned
    authenticated: bool = False  # under every protection, as deployed sites demand
    transcript: InitVar[Transcript | None] = None  # told everything that anyone received
    vault: Vault = field(default_factory=Vault)
    opened_totals: OpenedTotals = field(default_factory=OpenedTotals)
    # Told who is in a total before it opens, unless one like it was opened; raises if it must not open.
    before_opening: Callable[[Sequence[str]], None] | None = None
    parties: tuple[str, ...] = ()  # clients that take part, in party order

    def __post_init__(self, engine: Engine, transcript: Transcript | None) -> None:
        self.transport = Transport(engine, self.manifest, self.components.protection, self.events, transcript)
        self.briefing = Briefing(partial(view_of, self.components))
        # Asks enrolled parties for a step, after telling each what it does not know yet.
        self.wave = partial(self.transport.wave, briefing=self.briefing)

    @property
    def schema(self) -> Any:
        """The agreed schema; None before enrolment has ended."""
        return self.briefing.schema

    @property
    def min_contributions(self) -> int:
        """Fewest contributions over which a total opens."""
        return self.components.protection.min_contributions(self.manifest.min_clients)

    @property
    def identity(self) -> Secret:
        """The coordinator's signing key."""
        if self.secret is None:
            raise ConfigError(
                "this protection needs a coordinator with an identity: give the coordinator its secret"
            )
        return identity_of(self.secret)

    def keep_only(self, names: Sequence[str]) -> None:
        """Go on with these of the parties only."""
        kept = set(names)
        self.parties = tuple(name for name in self.parties if name in kept)

    def record_failure(self, party: str, reason: str) -> None:
        """Record that what a party sent cannot be used."""
        self.transport.failures[party] = reason
        self.events.emit(Refused(self.transport.waves, party, reason))

    def record_relay(self, sender: str, receiver: str, size: int, times: int = 1) -> None:
        """Record that sealed messages, ``size`` bytes together, ride on the next ask to another party."""
        self.events.emit(Relayed(self.transport.waves + 1, sender, receiver, size, times))

    def ask(
        self,
        step: Callable[..., Any],
        common: Mapping[str, Any] | None = None,
        jobs: Jobs | None = None,
        parties: Sequence[str] | None = None,
        failures: dict[str, str] | None = None,
    ) -> Iterator[tuple[str, Message]]:
        """Ask parties for one step of a component, and return their replies in party order as they come.

        Too few answers stop the run, unless the caller takes the ``failures`` and judges by itself.
        """
        named = jobs if isinstance(jobs, Mapping) and jobs else self.parties
        asked = tuple(named if parties is None else parties)
        lost: dict[str, str] = {} if failures is None else failures
        answered = []
        address = f"{self.kind_of(step)}.{step.__name__}"
        aggregate = getattr(step, "tacit", Mark("")).replies == "aggregate"
        wave = self.wave(address, asked, common or {}, jobs, failures=lost, aggregate=aggregate)
        for reply in wave:
            answered.append(reply.party)
            yield reply.party, reply.message
        if failures is None:
            self.transport.check_quorum(step.__name__, asked, answered, lost)

    def compare_replicas(
        self, step: str, call: Mapping[str, Any], expected: str | None = None
    ) -> tuple[str, tuple[str, ...]]:
        """Ask parties for the digest of their replica; return the one that all must have, and who has it."""
        failures: dict[str, str] = {}
        wave = self.wave(step, self.parties, call, failures=failures)
        digests = {reply.party: str(reply.message.get("digest")) for reply in wave}
        self.transport.check_quorum(step, self.parties, list(digests), failures)
        agreed = expected or Counter(digests.values()).most_common(1)[0][0]
        if odd := [party for party, digest in digests.items() if digest != agreed]:
            raise FederationError(
                f"{len(odd)} of {len(digests)} replicas differ from the rest ({abbreviate(odd)}): "
                "they were told something else; the run is void"
            )
        return agreed, tuple(digests)

    def kind_of(self, function: Callable[..., Any]) -> str:
        """Return which component of the manifest a marked function belongs to."""
        owner = getattr(function, "__self__", None)
        for kind in ("method", "preparation"):
            if owner is getattr(self.components, kind):
                return kind
        if isinstance(getattr(function, "tacit", None), Mark) and owner is None:
            return "protection"  # a step of its client half, which lives elsewhere
        raise TypeError(f"{function!r} is not a function of this run's method, protection or preparation")
