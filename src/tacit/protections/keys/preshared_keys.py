"""Keys made at enrolment, where the roster already holds the clients' exchange keys: a wave less.

Exchange keys are else made anew for each run and shown at enrolment, so that a key can be sealed for the
others only in the wave after. A standing exchange key, pinned as the identity is, lets the first client make
and seal the federation's key with its introduction. Its price: whoever later steals a site's secret can open
the keys of recorded runs that were sealed under it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.core.errors import ProtectionError
from tacit.core.party import Party
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.channel import pair_key
from tacit.protections.keys.authenticated import run_of
from tacit.protections.keys.key_relay import keep_keys
from tacit.protections.keys.shared_key import ClientKeys


@dataclass(frozen=True)
class EarlyKeys(ClientKeys):
    """Base of protections whose key the first client makes as early as the roster allows."""

    def greet(self, coordinator: Any) -> dict[str, Any]:
        """Coordinator half: ask the first client for the key, if all have standing exchange keys."""
        greeting = super().greet(coordinator)
        names = coordinator.engine.parties()
        if len(names) > 1 and coordinator.standing.issuperset(names):
            maker = self._maker(names)
            others = [name for name in names if name != maker]
            greeting |= {"maker": maker, "names": "\n".join(others).encode()}
        return greeting

    def _maker(self, names: Sequence[str]) -> str:
        return self.chosen_maker if self.chosen_maker in names else names[0]

    def introduce(self, party: Party, greeting: Mapping[str, Any]) -> dict[str, Any]:
        """Party half: the first client makes the key and seals it for the others."""
        introduction = super().introduce(party, greeting)
        if greeting.get("maker") == party.id and self.chosen_maker in ("", party.id):
            names = greeting["names"].decode().split("\n")
            introduction |= self.new_keys(party, {}, {name: standing_key(party, name) for name in names})
        return introduction

    def welcome(self, coordinator: Any, party: str, fields: Mapping[str, Any]) -> None:
        """Coordinator half: keep the key's public half, and what is sealed for the others."""
        super().welcome(coordinator, party, fields)
        if "bundle" in fields:
            names = coordinator.engine.parties()
            if party != self._maker(names):
                raise ProtectionError(f"{party} made keys that nobody asked it for")
            made = {name: value for name, value in fields.items() if isinstance(value, Blob)}
            keep_keys(coordinator, party, [name for name in names if name != party], made, {})

    def prepare(self, coordinator: Any, sums: int) -> None:
        """Let one party make the key, unless it is made already and more is not wished for."""
        if coordinator.memory.get("keys", {}).get("maker") not in coordinator.parties or self.wishes(
            coordinator
        ):
            super().prepare(coordinator, sums)
        else:
            coordinator.memory["keys"]["standing"] = True

    def makers_key(self, party: Party, maker: str, ticket: Mapping[str, Any]) -> Secret:
        """Key that this party shares with the maker of the federation's key."""
        if ticket.get("standing"):
            return standing_key(party, maker)
        return super().makers_key(party, maker, ticket)


def standing_key(party: Party, other: str) -> Secret:
    """Key that two parties share for one run by their standing exchange keys."""
    if other == party.id:
        raise ProtectionError(f"{party.id} was told to seal for itself")
    private, public = party.standing(other)
    return pair_key(private, public, "seal", run_of(party))
