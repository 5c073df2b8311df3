"""The durable engine: parties of this machine that remember everything, whenever their process ends.

What a party does in a step is committed to the party store before its reply goes out. Where keys are made
for one batch of clients only, the run of that batch is kept in memory and is gone if the process ends;
then only a party's ledger of what it contributed is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tacit.core.client import Assemble
from tacit.core.engine import Job, Reply, read_reply
from tacit.core.message import DEFAULT_LIMIT, Message
from tacit.core.parallel import cpu_seconds
from tacit.core.party import Party, State, Vault
from tacit.core.standing_client import LEDGER
from tacit.core.steps import perform
from tacit.engines.holdings import Holdings
from tacit.engines.sites import Sites
from tacit.engines.store import PartyStore

KEPT = "standing/"  # names in a party's state that outlive a batch


class DurableEngine:
    """Parties in this process, their states and vaults in a party store.

    The store keeps what they remember under the name ``run``; if ``batch``, only what outlives a batch.
    ``services`` are parties without rows that a protection needs.
    """

    persistent = False

    def __init__(
        self,
        holdings: Holdings,
        store: PartyStore,
        run: str,
        names: Sequence[str],
        *,
        seed: int,
        services: Sequence[str],
        assemble: Assemble,
        batch: bool,
    ) -> None:
        self._store, self._run, self._batch = store, run, batch
        self._names, self._services = tuple(names), tuple(services)
        self._assemble = assemble
        self._sites = Sites(holdings, assemble, seed=seed, limit=DEFAULT_LIMIT, roster=self._names)

    def parties(self, role: str = "client") -> Sequence[str]:
        """Return the names of the parties of a role, in party order."""
        return self._names if role == "client" else tuple(n for n in self._services if n == role)

    def present(self) -> Sequence[str]:
        """Return the names of all clients: they are always there."""
        return self._names

    def ask(self, call: bytes, jobs: Iterable[Job], timeout: float | None = None) -> Iterator[Reply]:
        """Ask each party of ``jobs``; replies stream back in that order."""
        message = Message.decode(call, DEFAULT_LIMIT)
        for name, job in jobs:
            party = self._sites.party(name)
            started = cpu_seconds()
            raw = (self._within_batch if self._batch else self._kept)(party, message, job)
            spent = cpu_seconds() - started
            yield read_reply(name, raw, len(call) + len(job), limit=DEFAULT_LIMIT, inline=spent)

    def _kept(self, party: Party, call: Message, job: bytes) -> bytes:
        with self._store.step(self._run, party):
            # Who enrolled, but never contributed because a process ended, has nothing to lose.
            if call["$step"] == "client.enrol" and not party.state.get(LEDGER):
                party.state, party.vault = State(), Vault()
            return perform(party, call, job, self._assemble)

    def _within_batch(self, party: Party, call: Message, job: bytes) -> bytes:
        with self._store.step(self._run, Party(party.id, dict, party.identity)) as kept:
            party.state.update(kept.state)
            raw = perform(party, call, job, self._assemble)
            kept.state.update({name: value for name, value in party.state.items() if name.startswith(KEPT)})
        return raw

    def close(self) -> None:
        """Do nothing: there are no processes to end, and all is written."""
