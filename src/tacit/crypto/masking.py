"""Masks that cancel in a sum (Bonawitz et al. 2017; Bell et al. 2020, SecAgg+).

Client u uploads, modulo 2^32 or 2^64,

    y_u = x_u + PRG(b_u) + Σ_{v > u} PRG(s_uv) - Σ_{v < u} PRG(s_uv)        over its neighbours v

Pairwise masks cancel when both ends arrive. If u vanished, its neighbours hand out shares of what gives
s_uv; if it arrived, shares of its self-mask b_u; never both, or x_u lies open.

**Which key is shared.** Bonawitz et al. share the private key from which all s_uv follow. If that key
served several sums, recovering it for a client that vanishes in sum 9 would unmask the same client in
sums 1 to 8, whose self-masks were opened long ago. A ratchet of symmetric keys does not help, because
what is revealed must give all pair seeds of *one* sum and those of no other, earlier or later. So every
sum has **its own X25519 pair** (:func:`tacit.crypto.channel.new_exchange`): the private half is shared by
Shamir, lives for that sum and is then forgotten; the public half of the next sum may ride on the last
reply of this one. It costs 32 bytes per sum, and per neighbour about 80 µs. On top of that
:func:`pair_seed` binds run, sum and both names, so that no seed is ever used for two vectors: only
because of that may the PRG, AES-256 in counter mode keyed by the seed, start at counter zero.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import DTypeLike, NDArray

from tacit.core.errors import ConfigError
from tacit.core.secret import Secret
from tacit.crypto.channel import bound, derive_key

SEED = 32
CHUNK = 1 << 16  # bytes of mask at a time: mask, zeros and the stretch of the vector stay in the L2 cache
_ZEROS = bytes(CHUNK)
_FROM_ZERO = modes.CTR(bytes(16))
_WORDS = (np.dtype(np.uint32), np.dtype(np.uint64))

Words = NDArray[Any]


def new_seed() -> Secret:
    """Make a fresh seed from the operating system, for a self-mask."""
    return Secret(os.urandom(SEED))


def pair_seed(shared: Secret, run: str, number: int, one: str, other: str) -> Secret:
    """Derive the seed of the mask between two clients in one sum; both derive the same, in either order.

    ``shared`` is what the two clients' keys *of this sum* give by X25519 (see the module's first lines).

    >>> key = Secret(bytes(32))
    >>> pair_seed(key, "run", 1, "ann", "bob") == pair_seed(key, "run", 1, "bob", "ann")
    True
    >>> pair_seed(key, "run", 1, "ann", "bob") == pair_seed(key, "run", 2, "ann", "bob")
    False
    """
    if one == other:
        raise ConfigError(f"'{one}' was paired with itself: a pair mask is between two clients")
    low, high = sorted((one, other))
    info = bound("mask", run, str(number), low, high)
    return Secret(derive_key(shared.reveal(), info))


def sign_for(own: str, other: str) -> int:
    """Return the sign with which a client applies a pair mask: one of the two adds it, one subtracts it."""
    if own == other:
        raise ConfigError(f"'{own}' was paired with itself: a pair mask is between two clients")
    return 1 if own < other else -1


def expand(seed: Secret, count: int, dtype: DTypeLike = np.uint64) -> Words:
    """Expand a seed into uniform words, the same on every machine.

    >>> expand(Secret(bytes(32)), 2, np.uint32).tolist()
    [2025887196, 2307473570]
    """
    kind = np.dtype(dtype)
    if kind not in _WORDS:
        raise ConfigError(f"masks of {kind}: sums are modulo 2^32 or 2^64, use uint32 or uint64")
    words = np.empty(count, kind.newbyteorder("<"))
    stream, raw = _stream(seed), words.view(np.uint8)
    for start in range(0, len(raw), CHUNK):
        piece = raw[start : start + CHUNK]
        stream.update_into(_ZEROS[: len(piece)], piece.data)
    return words.astype(kind, copy=False)


def add_mask(vector: Words, seed: Secret, sign: int = 1) -> None:
    """Add (or subtract) the mask of a seed, in place, modulo 2^32 or 2^64.

    >>> vector, seed = np.arange(3, dtype=np.uint32), new_seed()
    >>> add_mask(vector, seed); add_mask(vector, seed, -1)
    >>> vector.tolist()
    [0, 1, 2]
    """
    add_masks(vector, [(seed, sign)])


def add_masks(vector: Words, masks: Iterable[tuple[Secret, int]]) -> None:
    """Add all masks of a client, seeds with their signs 1 or -1, in one pass over the vector, in place."""
    if vector.dtype not in _WORDS or vector.ndim != 1:
        raise ConfigError(
            f"a mask is added to one row of uint32 or uint64, not {vector.ndim} dimensions of {vector.dtype}"
        )
    if not (vector.flags.c_contiguous and vector.flags.writeable):
        raise ConfigError("the vector is read-only or not contiguous: give add_mask a copy of its own")
    streams = []
    for seed, sign in masks:
        if sign not in (1, -1):
            raise ConfigError(f"sign is {sign}: a mask is added with 1 or subtracted with -1")
        streams.append((_stream(seed), np.add if sign == 1 else np.subtract))
    buffer = np.empty(CHUNK, np.uint8)
    words = buffer.view(vector.dtype.newbyteorder("<"))
    for start in range(0, len(vector), len(words)):
        part = vector[start : start + len(words)]
        zeros, mask = _ZEROS[: part.nbytes], words[: len(part)]
        for stream, apply in streams:
            stream.update_into(zeros, buffer.data)
            apply(part, mask, out=part)


def _stream(seed: Secret) -> CipherContext:
    key = seed.reveal()
    if len(key) != SEED:
        raise ConfigError(f"a seed of {len(key)} bytes: masks are expanded from {SEED}")
    return Cipher(algorithms.AES(key), _FROM_ZERO).encryptor()
