"""How the coordinator relays a key that it cannot read: from the client that makes it to all others."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tacit.core.errors import ConfigError, MessageError, ProtectionError, QuorumError
from tacit.core.link import Link
from tacit.core.message import Message
from tacit.core.pending_sum import PendingSum
from tacit.core.text import abbreviate
from tacit.core.values import Blob
from tacit.protections.keys.authenticated import stack_rows
from tacit.protections.keys.shared_key import KeyTerms, SharedKey

KEPT = ("bundle", "maker", "public", "preshared", "used")  # of a key, for another process
WRAPPED = 12 + 32 + 16  # a sealed content key: nonce, key, tag
Ask = Callable[..., Iterable[tuple[str, Message]]]


@dataclass
class RelayedKey:
    """What the coordinator keeps of a key."""

    bundle: Blob  # the key, encrypted under a content key
    maker: str  # who made it
    public: bytes  # what the coordinator may know of it
    preshared: bool = False  # whether the maker sealed it under preshared exchange keys
    wraps: dict[str, Blob] = field(default_factory=dict)  # content keys, sealed for those who have none yet
    sealers: dict[str, str] = field(default_factory=dict)  # who sealed one, if not the maker
    holders: set[str] = field(default_factory=set)  # who has it
    used: int = 0  # for how many sums


class KeyRelay:
    """The coordinator's half of a key that clients share."""

    def __init__(self, terms: KeyTerms, link: Link, directory: dict[str, bytes]) -> None:
        self._terms, self._link, self._directory = terms, link, directory
        self.key: RelayedKey | None = None  # the newest; None before there is one

    @property
    def current_key(self) -> RelayedKey:
        """The newest key; there must be one."""
        if self.key is None:
            raise ProtectionError(f"{self._terms.protection} has no key yet: prepare it before the first sum")
        return self.key

    def greet(self) -> dict[str, Any]:
        """Ask the first client for the key, if all have preshared exchange keys."""
        names = self._link.transport.engine.parties()
        if self.key is not None:  # who comes late gets it from the others
            return {}
        if not self._terms.at_enrolment or len(names) < 2 or not self._link.preshared.issuperset(names):
            return {}
        maker = self._first_maker(names)
        return {"maker": maker, "names": "\n".join(name for name in names if name != maker).encode()}

    def welcome(self, party: str, fields: Mapping[str, Any]) -> None:
        """Keep what the maker of the key sent with its introduction."""
        if not self._terms.at_enrolment or "bundle" not in fields:
            return
        names = self._link.transport.engine.parties()
        if self.key is not None or party != self._first_maker(names):
            raise ProtectionError(f"{party} made keys that nobody asked it for")
        self._keep(party, [name for name in names if name != party], fields)

    def _first_maker(self, names: Sequence[str]) -> str:
        return self._terms.maker if self._terms.maker in names else names[0]

    def prepare(self) -> None:
        """Let one party make the key, unless it is made; if it cannot, the next does, down to the quorum."""
        link, name = self._link, self._terms.protection
        early = self.key if self._terms.at_enrolment else None
        if early is not None and early.maker in link.parties:
            early.preshared = True
            return
        if len(link.parties) < 2:
            raise ProtectionError(f"{name} protects nothing with a single client: have at least two")
        if (chosen := self._terms.maker) and chosen not in link.parties:
            raise ConfigError(f"{chosen} is to make the keys and has not enrolled: choose another client")
        spare = len(link.parties) - max(2, link.transport.quorum_of(len(link.parties)))
        for tried, maker in enumerate((chosen,) if chosen else link.parties):
            try:
                self._request_key(link.ask, link.parties, maker)
                break
            except (QuorumError, MessageError):
                if chosen or tried >= spare:
                    raise

    def rotate(self, ask: Ask, parties: Sequence[str]) -> None:
        """Have a key made for these parties, from the next sum on; others cannot open what comes later."""
        old = self.current_key
        holders = [name for name in parties if name in old.holders]
        if self._terms.lifetime and old.maker in holders:  # they take turns
            after = holders.index(old.maker) + 1
            holders = holders[after:] + holders[:after]
        for maker in [self._terms.maker] if self._terms.maker else holders:
            with suppress(QuorumError, MessageError):
                self._request_key(ask, parties, maker, renew=True)
                return
        raise ProtectionError("no client that holds the key could make a new one: the old one stays in use")

    def _request_key(self, ask: Ask, parties: Sequence[str], maker: str, **more: Any) -> None:
        others = [name for name in parties if name != maker]
        replies = dict(ask(SharedKey.make_keys, {**self._addressed(others), **more}, parties=[maker]))
        self._keep(maker, others, replies.get(maker, {}))

    def _keep(self, maker: str, others: Sequence[str], made: Mapping[str, Any]) -> None:
        bundle, public, wraps = made.get("bundle"), made.get("public"), _cut(made.get("wraps"), others)
        if not (isinstance(bundle, Blob) and isinstance(public, Blob)) or wraps is None:
            self._link.record_failure(maker, "MessageError: keys that are not what was agreed")
            raise MessageError(f"{maker} made keys that are not what was agreed")
        # Clients never take a public key from the coordinator, which could put its own there.
        self.key = RelayedKey(bundle, maker, public.data, wraps=wraps, holders={maker})

    def tickets(self, pending: PendingSum) -> tuple[dict[str, Any], dict[str, Mapping[str, Any]]]:
        """Return what has to ride on the ask, for all and for each: the key for those who lack it."""
        if self._terms.lifetime and self.current_key.used >= self._terms.lifetime:
            self.rotate(pending.ask, pending.parties)
        self.current_key.used += 1
        self._pass_on(pending.ask, pending.parties, pending.parties)
        return self.tickets_for(pending.parties)

    def admit(self, names: Sequence[str]) -> None:
        """Let any party that has the key seal it for those that come later."""
        if self.key is not None:
            self._pass_on(partial(self._link.ask, failures={}), names, self._link.parties)

    def mark_delivered(self, party: str) -> None:
        """Remember that a party has its key."""
        self.current_key.wraps.pop(party, None)
        self.current_key.holders.add(party)

    def _pass_on(self, ask: Ask, late: Sequence[str], others: Sequence[str]) -> None:
        """Let any of the others that holds the key seal it for those who came after it was made."""
        key = self.current_key
        late = [name for name in late if name not in key.wraps and name not in key.holders]
        if not late:
            return
        common = self._addressed(late)
        for holder in [name for name in others if name in key.holders]:
            for _, reply in list(ask(SharedKey.share_key, common, parties=[holder])):
                if (wraps := _cut(reply.get("wraps"), late)) is not None:
                    key.wraps.update(wraps)
                    key.sealers.update(dict.fromkeys(late, holder))
                    return
        raise ProtectionError(
            f"no client that holds the key handed it on to {abbreviate(late)}: ask again later"
        )

    def tickets_for(self, parties: Sequence[str]) -> tuple[dict[str, Any], dict[str, Mapping[str, Any]]]:
        """Return the key as it is sealed for those of some parties who lack it, for all and for each."""
        key = self.current_key
        if not (lacking := [name for name in parties if name in key.wraps]):
            return {}, {}
        # Who sealed for whom, and whether under preshared keys: only the maker does, at enrolment.
        origins = {
            name: (key.sealers.get(name, key.maker), key.preshared and name not in key.sealers)
            for name in lacking
        }
        for name, (sealer, _) in origins.items():
            self._link.record_relay(sealer, name, WRAPPED + len(key.bundle.data))
        exchanges = self._directory
        told = {
            (maker, preshared): {"maker": maker, "exchange": exchanges[maker], "preshared": preshared}
            for maker, preshared in set(origins.values())
        }
        own: dict[str, Mapping[str, Any]] = {name: {"wrap": key.wraps[name]} for name in lacking}
        if len(told) == 1:  # as it mostly is: then all are told alike
            return {"bundle": key.bundle, **next(iter(told.values()))}, own
        return {"bundle": key.bundle}, {name: {**own[name], **told[origins[name]]} for name in lacking}

    def _addressed(self, names: Sequence[str]) -> dict[str, Any]:
        return {"names": "\n".join(names).encode(), "exchanges": stack_rows(self._directory, names)}

    def snapshot(self) -> dict[str, Any]:
        """Return what does not grow with the parties."""
        return {} if self.key is None else {name: getattr(self.key, name) for name in KEPT}

    def party_snapshot(self, party: str) -> dict[str, Any]:
        """Return what is kept of one party: its exchange key, and whether it has the key."""
        fields: dict[str, Any] = {}
        if party in self._directory:
            fields["exchange"] = self._directory[party]
        if (key := self.key) is not None:
            fields["holds"] = party in key.holders
            for name, known in (("wrap", key.wraps), ("sealer", key.sealers)):
                fields |= {name: known[party]} if party in known else {}
        return fields

    def restore(self, kept: Mapping[str, Any], parties: Mapping[str, Mapping[str, Any]]) -> None:
        """Go on from what :meth:`snapshot` and :meth:`party_snapshot` returned."""
        exchanges = {name: own["exchange"] for name, own in parties.items() if "exchange" in own}
        self._directory.update(exchanges)
        if "bundle" not in kept:
            return
        self.key = RelayedKey(**{name: kept[name] for name in KEPT})
        self.key.wraps = {name: own["wrap"] for name, own in parties.items() if "wrap" in own}
        self.key.sealers = {name: own["sealer"] for name, own in parties.items() if "sealer" in own}
        self.key.holders = {name for name, own in parties.items() if own.get("holds")}

    def same_keys(self, kept: Mapping[str, Any]) -> bool:
        """Return whether another coordinator's snapshot is of the same key; who has it by now may differ."""
        own = self.snapshot()
        agreed = [name for name in {*own, *kept} if name not in ("maker", "used")]
        return all(own.get(name) == kept.get(name) for name in agreed)


def _cut(wraps: Any, names: Sequence[str]) -> dict[str, Blob] | None:
    if not isinstance(wraps, Blob) or len(wraps.data) != len(names) * WRAPPED:
        return None
    pieces = (wraps.data[at : at + WRAPPED] for at in range(0, len(wraps.data), WRAPPED))
    return {name: Blob("sealed", piece) for name, piece in zip(names, pieces, strict=True)}
