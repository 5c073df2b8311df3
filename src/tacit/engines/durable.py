"""Parties of this machine that remember everything, whenever their process ends.

What a party does in a step is committed to the party store before its reply goes out. Where keys are made
for one batch of clients only, the run of that batch is kept in memory and is gone if the process ends;
then only a party's ledger of what it contributed is kept.
"""

from collections.abc import Sequence

from tacit.core.client import Assemble
from tacit.core.message import DEFAULT_LIMIT, Message
from tacit.core.party import Party, State, Vault
from tacit.core.standing_client import LEDGER
from tacit.engines.holdings import Holdings
from tacit.engines.sites import Sites
from tacit.engines.store import PartyStore

KEPT = "standing/"  # names in a party's state that outlive a batch


class DurableSites(Sites):
    """Parties whose states and vaults are in a party store, under the name ``run``.

    If ``batch``, only what outlives a batch is kept.
    """

    def __init__(
        self,
        holdings: Holdings,
        assemble: Assemble,
        store: PartyStore,
        run: str,
        names: Sequence[str],
        *,
        seed: int,
        batch: bool,
    ) -> None:
        super().__init__(holdings, assemble, seed=seed, limit=DEFAULT_LIMIT, roster=names)
        self._store, self._run, self._batch = store, run, batch

    def perform(self, name: str, call: Message, job: bytes, timeout: float | None) -> bytes:
        """Let a party perform an ask, and keep what it remembers then."""
        party = self.party(name)
        if self._batch:
            with self._store.step(self._run, Party(name, dict, party.identity)) as kept:
                party.state.update(kept.state)
                raw = super().perform(name, call, job, timeout)
                lasting = {key: value for key, value in party.state.items() if key.startswith(KEPT)}
                kept.state.update(lasting)
            return raw
        with self._store.step(self._run, party):
            # Who enrolled, but never contributed because a process ended, has nothing to lose.
            if call["$step"] == "client.enrol" and not party.state.get(LEDGER):
                party.state, party.vault = State(), Vault()
            return super().perform(name, call, job, timeout)
