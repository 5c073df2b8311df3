"""All that a coordinator of masked sums can tell its clients, in small federations, and what it then learns.

Sets of clients are whole numbers, one bit for each client. What a client accepts is asked of
:class:`tacit.protections.masked.rules.Rules`, which the real clients ask, too; what a coordinator
can compute from their answers is modelled here, with secrets that are known or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import prod

import numpy as np

from tacit.protections.masked.rules import Rules

CHUNK = 1 << 17
NONE = 99  # larger than any group of clients


@dataclass(frozen=True)
class Federation:
    """Clients 0, 1, …; the last ``colluders`` of them are on the coordinator's side."""

    rules: Rules
    holders: Sequence[int]  # for each client: itself and its neighbours
    colluders: int = 0
    locked: bool = True  # whether shares can be read only with confirmations of enough holders
    least: int = 2
    honest: range = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "honest", range(len(self.holders) - self.colluders))

    def accepted(self, client: int) -> list[tuple[int, int]]:
        """Partners and survivors that a client accepts to be told of.

        It is told of no survivors only where it accepts no list: a client that gives nothing helps nobody.
        """
        found = []
        for partners in subsets(self.holders[client]):
            if self.rules.flaw_of_partners(str(client), names(partners)) is None:
                lists = [alive for alive in subsets(partners) if self._accepts(client, alive, partners)]
                found += [(partners, alive) for alive in lists or [0]]
        return found

    def _accepts(self, client: int, alive: int, partners: int) -> bool:
        told = str(client), names(alive), names(partners), self.least
        return self.rules.flaw_of_survivors(*told) is None

    def strategies(
        self, options: Sequence[Sequence[tuple[int, int]]]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Partners and survivors of all honest clients, for every combination of their options."""
        arrays = [np.array(choice, np.uint8) for choice in options]
        total = prod(len(choice) for choice in options)
        for start in range(0, total, CHUNK):
            number = np.arange(start, min(start + CHUNK, total))
            chosen = []
            for choice in arrays:
                number, index = np.divmod(number, len(choice))
                chosen.append(choice[index])
            told = np.stack(chosen)
            yield told[:, :, 0], told[:, :, 1]

    def smallest_group(self, partners: np.ndarray, alive: np.ndarray) -> np.ndarray:
        """Fewest honest clients whose sum the coordinator learns by each strategy; NONE if it learns none."""
        seeds, keys = self.known_secrets(partners, alive)
        return np.minimum.reduce([*self._groups(partners, seeds, keys)])

    def opens_first(self, partners: np.ndarray, alive: np.ndarray) -> np.ndarray:
        """Whether the coordinator learns the vector of client 0, by each strategy."""
        seeds, keys = self.known_secrets(partners, alive)
        others = [keys[v] | (partners[0] >> v & 1 == 0) for v in self.honest[1:]]
        return seeds[0] & (keys[0] | np.logical_and.reduce(others))

    def known_secrets(self, partners: np.ndarray, alive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Whose seed, and whose key, has enough shares that can be read."""
        readable = np.ones(alive.shape, bool)
        if self.locked:
            given = [alive >> w & 1 == 1 for w in self.honest]
            if self.rules.complete:  # a confirmation is of one list
                given = [said & (alive == alive[w]) for w, said in enumerate(given)]
            readable = np.stack([self._held(w, said) for w, said in enumerate(given)])
        seeds = [self._held(u, readable & (alive >> u & 1 == 1)) for u in self.honest]
        missed = partners & ~alive
        keys = [self._held(v, readable & (missed >> v & 1 == 1)) for v in self.honest]
        return np.stack(seeds), np.stack(keys)

    def _held(self, owner: int, by: np.ndarray) -> np.ndarray:
        """Whether as many of a client's holders as are needed are in a set of honest ones, or collude."""
        colluding = (self.holders[owner] >> len(self.honest)).bit_count()
        around = [w for w in self.honest if self.holders[owner] >> w & 1]
        return by[around].sum(axis=0, dtype=np.uint8) + colluding >= self.rules.threshold

    def _groups(self, partners: np.ndarray, seeds: np.ndarray, keys: np.ndarray) -> Iterator[np.ndarray]:
        """For each client, the size of the group that masks hold together, if the sum of it lies open."""
        hidden = ~keys
        masked = np.array([[partners[u] >> v & 1 for v in self.honest] for u in self.honest], bool)
        masked &= hidden[:, None] & hidden[None] & ~np.eye(len(self.honest), dtype=bool)[:, :, None]
        back = masked.transpose(1, 0, 2)
        lone = (masked & ~back).any(axis=1)  # whoever has a mask that nobody else can cancel
        joined = masked & back
        for _ in self.honest:  # who hangs together over others
            joined |= (joined[:, :, None] & joined[None]).any(axis=1)
        shut = ~seeds | lone
        for u in self.honest:
            group = joined[u].copy()
            group[u] = True
            yield np.where((group & shut).any(axis=0), NONE, group.sum(axis=0))


def subsets(members: int) -> Iterator[int]:
    """All subsets of a set."""
    bits = [1 << i for i in range(members.bit_length()) if members >> i & 1]
    for size in range(len(bits) + 1):
        yield from (sum(chosen) for chosen in combinations(bits, size))


def names(members: int) -> set[str]:
    """Names of the clients of a set."""
    return {str(i) for i in range(members.bit_length()) if members >> i & 1}


def complete_graph(clients: int) -> list[int]:
    return [(1 << clients) - 1] * clients


def circle(clients: int, neighbours: int) -> list[int]:
    half = neighbours // 2
    return [sum(1 << (index + step) % clients for step in range(-half, half + 1)) for index in range(clients)]
