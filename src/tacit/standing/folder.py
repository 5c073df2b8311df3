"""The folder of a standing federation, and how its coordinator comes to life again."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError, UnavailableError
from tacit.core.events import Events
from tacit.core.exposure import COORDINATOR
from tacit.core.link import Link
from tacit.core.manifest import Components, Manifest
from tacit.core.message import Message
from tacit.core.party import Party, State, Vault
from tacit.core.secret import Secret
from tacit.core.snapshot import Snapshot, restore, take, take_parties
from tacit.core.standing_client import LEDGER
from tacit.engines.embedded import EmbeddedEngine
from tacit.engines.sitefolder import write_private
from tacit.engines.sites import Sites
from tacit.engines.store import PartyStore
from tacit.federation import Federation
from tacit.standing.book import Book

KEY_BYTES = 32
KEPT = "standing/"  # names in a party's state that outlive a batch


class Folder:
    """Book, party store and parties of a standing federation. Unless ``new``, the folder must hold one."""

    def __init__(self, path: Path, federation: Federation, *, new: bool = False) -> None:
        self.path, self.federation, self.holdings = path, federation, federation.holdings
        try:
            if new:
                path.mkdir(parents=True, exist_ok=True)
            self.book = Book(path / "coordinator.db", new=new)
            key, unlock = path / "unlock.key", federation.unlock
            if new and unlock is None and not key.exists():
                draft = key.with_suffix(".new")
                write_private(draft, os.urandom(KEY_BYTES))
                draft.rename(key)  # it is there whole, or not at all
            unlock = Secret(key.read_bytes()) if unlock is None else unlock
            self.store = PartyStore(path / "parties.db", unlock)
        except BaseException as error:
            if hasattr(self, "book"):
                self.book.close()
            if isinstance(error, OSError):
                raise UnavailableError(f"{path} cannot be used: {error}") from None
            raise

    def coordinator(
        self, manifest: Manifest, components: Components, names: Any, events: Events, *, batch: bool
    ) -> Coordinator:
        """Return a coordinator for these clients; with ``batch`` only their ledgers outlive it."""
        keys = self.federation.keys
        if (away := self.federation.lasting_engine(names)) is not None:
            return Coordinator(Link(away, manifest, components, events, **keys))
        sites = DurableSites(self, manifest, components, names, batch=batch)
        engine = EmbeddedEngine(self.holdings, services=components.protection.services, sites=sites)
        return Coordinator(Link(engine, manifest, components, events, **keys))

    @staticmethod
    def run(manifest: Manifest) -> str:
        """Return the name under which parties remember a federation, whichever batch a manifest is for."""
        return manifest.run.partition(".")[0]

    def check_parties(self, manifest: Manifest, incremental: bool) -> None:
        """Refuse a party store of another federation."""
        if (incremental or self.book.contributions()) and self.run(manifest) not in self.store.runs():
            raise ConfigError(
                f"{self.path / 'parties.db'} belongs to another federation: it knows no {manifest.run}"
            )

    def save(self, coordinator: Coordinator) -> None:
        """Write down what the coordinator needs to go on; within a transaction of the book."""
        self.book.note("snapshot", take(coordinator).to_message())
        self.book.note_parties(take_parties(coordinator))

    def snapshot(self, components: Components) -> Snapshot:
        """Return what :meth:`save` wrote down."""
        return Snapshot.from_message(self.book.fact("snapshot"), components.preparation.read_schema)

    def keep_channels(self, manifest: Manifest, keys: Mapping[str, Secret]) -> None:
        """Keep these channel keys and no others; before the parties they belong to are written down."""
        if not keys:
            return
        with self.store.step(self.run(manifest), party_without_rows(COORDINATOR)) as keeper:
            keeper.vault["names"] = Secret("\n".join(keys).encode())
            keeper.vault["keys"] = Secret(b"".join(key.reveal() for key in keys.values()))

    def restored(self, manifest: Manifest, components: Components, events: Events) -> Coordinator:
        """Return the coordinator of a federation that stands, as an earlier process left it."""
        coordinator = self.coordinator(manifest, components, (), events, batch=False)
        with self.book.writing():
            block = self.book.fact("session").get("count", 1) + 1
            self.book.note("session", {"count": block})
        restore(coordinator, self.snapshot(components), self.book.parties(), block)
        coordinator.link.transport.channels.update(self.channels(manifest))
        return coordinator

    def channels(self, manifest: Manifest) -> dict[str, Secret]:
        """Return the coordinator's channel keys, by party."""
        with self.store.step(self.run(manifest), party_without_rows(COORDINATOR)) as keeper:
            if "names" not in keeper.vault:
                return {}
            names = keeper.vault["names"].reveal().decode().split("\n")
            raw = keeper.vault["keys"].reveal()
        return {name: Secret(raw[i * KEY_BYTES : (i + 1) * KEY_BYTES]) for i, name in enumerate(names)}


def party_without_rows(name: str) -> Party:
    """Return a party without rows, for what it remembers to be read or written."""
    return Party(name, dict, Secret(bytes(KEY_BYTES)))


class DurableSites(Sites):
    """Parties of this machine, whose states and vaults are in a folder's party store.

    What a party does in a step is committed before its reply goes out. If ``batch``, its keys are for one
    batch of clients only: the run of that batch is in memory, and only what outlives it is kept.
    """

    def __init__(
        self, folder: Folder, manifest: Manifest, components: Components, names: Sequence[str], *, batch: bool
    ) -> None:
        # All enrol under one manifest.
        super().__init__(folder.holdings, lambda _: components, seed=manifest.seed, names=names)
        self._store, self._run, self._batch = folder.store, folder.run(manifest), batch

    def perform(self, name: str, call: Message, job: bytes) -> bytes:
        """Let a party perform an ask, and keep what it remembers then."""
        party = self.party(name)
        if self._batch:
            with self._store.step(self._run, Party(name, dict, party.identity)) as kept:
                party.state.update(kept.state)
                raw = super().perform(name, call, job)
                kept.state.update({key: value for key, value in party.state.items() if key.startswith(KEPT)})
            return raw
        with self._store.step(self._run, party):
            # Who enrolled, but never contributed because a process ended, has nothing to lose.
            if call["$step"] == "client.enrol" and not party.state.get(LEDGER):
                party.state, party.vault = State(), Vault()
            return super().perform(name, call, job)
