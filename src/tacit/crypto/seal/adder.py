"""Sums of encrypted vectors, made by whoever holds no key."""

from dataclasses import replace
from typing import Any

import numpy as np

from tacit.core.errors import ConfigError, ProtectionError
from tacit.crypto.seal.blob import Form, Header, expand_seeds, read, residues_of, write
from tacit.crypto.seal.residues import Residues, from_seal
from tacit.crypto.seal.ring import Ring


class Adder:
    """Adds encrypted vectors without any key; a blob that is refused leaves the total as it was."""

    def __init__(self, ring: Ring, key_id: bytes, *forms: Form) -> None:
        self._ring, self._key_id, self._forms = ring, key_id, forms
        self._first: Header | None = None
        self.count = 0
        self._residues: list[Residues] = []
        self._room: dict[bool, list[Residues]] = {}
        self._held = [0] * len(ring.primes)
        self._expanded: list[Any] = []
        # So many residues of each prime add up in 64 bits before they have to be reduced.
        self._capacity = [((1 << 64) - 1) // (prime - 1) for prime in ring.primes]

    @property
    def primes(self) -> tuple[int, ...]:
        """The primes modulo which residues are added."""
        return self._ring.primes

    def add(self, blob: bytes) -> None:
        """Check a blob and add it; refuse more summands than were declared."""
        header = read(self._ring, self._key_id, blob, *self._forms)
        first = self._first or header
        if header.terms != first.terms:
            raise ProtectionError(
                "encrypted vectors differ in kind, size, bound or declared summands: every client has to "
                f"encrypt alike (first {first.terms}, now {header.terms})"
            )
        if self.count + header.count > header.summands:
            raise ProtectionError(
                f"{self.count + header.count:,} encrypted vectors, but {header.summands:,} were declared at "
                "encryption and more may overflow: declare as many summands as there are clients"
            )
        # Fresh memory for each blob would cost as much as adding it.
        if (room := self._room.get(header.seeded)) is None:
            sizes = header.sections(self._ring)
            room = self._room[header.seeded] = [np.empty(size, np.uint64) for size, _ in sizes]
        residues = residues_of(self._ring, header, blob, room)
        if header.seeded:
            self._add_expanded(expand_seeds(self._ring, header, blob))
        self._add_residues(header, residues)
        self._first = first
        self.count += header.count

    def _add_expanded(self, found: list[Any]) -> None:
        if not self._expanded:
            self._expanded = found
            return
        for total, ciphertext in zip(self._expanded, found, strict=True):
            self._ring.evaluator.add_inplace(total, ciphertext)

    def _add_residues(self, header: Header, residues: list[Residues]) -> None:
        if not self._residues:
            size = replace(header, seeded=False).sections(self._ring)[0][0]
            self._residues = [np.zeros(size, np.uint64) for _ in residues]
        for index, part in enumerate(residues):
            total = self._residues[index]
            if self._held[index] == self._capacity[index]:
                np.remainder(total, np.uint64(self._ring.primes[index]), out=total)
                self._held[index] = 1
            total[: part.size] += part
            self._held[index] += 1

    def total(self) -> bytes:
        """Return the encrypted total so far."""
        if (first := self._first) is None:
            raise ConfigError("nothing was added: an encrypted total needs at least one vector")
        primes = [np.uint64(prime) for prime in self._ring.primes]
        parts = [np.remainder(part, prime) for part, prime in zip(self._residues, primes, strict=True)]
        if self._expanded:
            second = np.stack([from_seal(self._ring, len(primes), item)[0][1] for item in self._expanded])
            for index, (part, prime) in enumerate(zip(parts, primes, strict=True)):
                own = part[-second[:, index].size :]
                np.remainder(own + second[:, index].reshape(-1), prime, out=own)
        return write(self._ring, replace(first, seeded=False, count=self.count), parts)
