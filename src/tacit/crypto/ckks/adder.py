"""Sums of encrypted vectors, made by whoever holds no key."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tacit.core.errors import ConfigError, ProtectionError
from tacit.crypto.ckks.blob import Header, Kind, ciphertexts_of, read, residues_of, write
from tacit.crypto.ckks.parameters import ParameterSet, ring_of
from tacit.crypto.ckks.residues import Residues, from_seal


class Adder:
    """Adds encrypted vectors as they come in, without any key.

    Full ciphertexts are added as raw residues; seeded ones are expanded by SEAL. A blob that is refused
    leaves the total as it was.
    """

    def __init__(self, parameters: ParameterSet, key_id: bytes) -> None:
        self._ring = ring_of(parameters)
        self._key_id = key_id
        self._first: Header | None = None
        self.count = 0
        self._residues: list[Residues] = []
        self._room: list[Residues] = []
        self._held = [0] * len(self._ring.primes)
        self._ciphertexts: list[Any] = []
        # So many residues of each prime add up in 64 bits before they have to be reduced.
        self._capacity = [((1 << 64) - 1) // (prime - 1) for prime in self._ring.primes]

    def add(self, blob: bytes) -> None:
        """Check a blob and add it; refuse more summands than were declared."""
        header = read(self._ring, self._key_id, blob, Kind.SUM, Kind.COLUMNS)
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
        if header.seeded:
            self._add_seeded(ciphertexts_of(self._ring, header, blob))
        else:
            self._add_full(residues_of(self._ring, header, blob, self._room))
        self._first = first
        self.count += header.count

    def _add_seeded(self, ciphertexts: list[Any]) -> None:
        if not self._ciphertexts:
            self._ciphertexts = ciphertexts
            return
        for total, ciphertext in zip(self._ciphertexts, ciphertexts, strict=True):
            self._ring.evaluator.add_inplace(total, ciphertext)

    def _add_full(self, residues: list[Residues]) -> None:
        if not self._residues:
            self._residues = [part.copy() for part in residues]
            # Fresh memory for each blob would cost as much as adding it.
            self._room = [np.empty(part.size, np.uint64) for part in residues]
            self._held = [1] * len(residues)
            return
        for index, part in enumerate(residues):
            total = self._residues[index]
            if self._held[index] == self._capacity[index]:
                np.remainder(total, np.uint64(self._ring.primes[index]), out=total)
                self._held[index] = 1
            np.add(total, part, out=total)
            self._held[index] += 1

    def total(self) -> bytes:
        """Return the encrypted total so far."""
        if self._first is None:
            raise ConfigError("nothing was added: an encrypted total needs at least one vector")
        return write(self._ring, replace(self._first, seeded=False, count=self.count), self._reduced())

    def _reduced(self) -> list[Residues]:
        primes = [np.uint64(prime) for prime in self._ring.primes]
        parts = [np.remainder(part, prime) for part, prime in zip(self._residues, primes, strict=False)]
        if not self._ciphertexts:
            return parts
        expanded = [from_seal(self._ring, len(primes), item)[0] for item in self._ciphertexts]
        seeded = [np.stack([item[:, index] for item in expanded]) for index in range(len(primes))]
        if not parts:
            return seeded
        return [(one + two) % prime for one, two, prime in zip(parts, seeded, primes, strict=True)]
