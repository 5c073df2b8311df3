"""Masks that cancel in a sum (Bonawitz et al. 2017; Bell et al. 2020, SecAgg+).

Client u uploads, modulo 2^32 or 2^64,

    y_u = x_u + PRG(b_u) + Σ_{v > u} PRG(s_uv) - Σ_{v < u} PRG(s_uv)        over its neighbours v

Pairwise masks cancel when both ends arrive. If u vanished, its neighbours hand out shares of what gives
s_uv; if it arrived, shares of its self-mask b_u; never both, or x_u lies open.

**Which key is shared.** Bonawitz et al. share the private key from which all s_uv follow. If that key
served several sums, recovering it for a client that vanishes in sum 9 would unmask the same client in
sums 1 to 8, whose self-masks were opened long ago. What is revealed must give all pair seeds of *one* sum
and those of no other. So two neighbours agree once, by X25519, on a *chain* of keys
(:func:`advance_chains`): each step gives the seed of one sum and the next link, from which no earlier one
follows. And for each sum a client draws a key of its own, deposits its pair seeds with the coordinator,
encrypted under that key (:func:`cover`), and shares the key by Shamir. A key that is recovered opens the
deposit of its sum, and no other. Seeds are then bound to what was asked (:func:`bind_seeds`), and no seed is
ever used for two vectors: only because of that may the PRG start at zero. It is AES-256 in the counter mode
of GCM, keyed by the seed: the encryption of zeros, a stretch of them for each nonce, without the tag.
"""

import os
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import DTypeLike, NDArray

from tacit.core.errors import ConfigError
from tacit.core.secret import Secret

SEED = 32
GIVEN = 16  # bytes that a step of a chain gives for one sum: 128 bits, like the exchange behind the chain
CHUNK = 1 << 16  # bytes of mask at a time: mask, zeros and the stretch of the vector stay in the L2 cache
_NUMBER = 16  # bytes of the mask of a number beside the vector
_ZEROS = bytes(CHUNK + _NUMBER)
_NONCE = 12
_WORDS = (np.dtype(np.uint32), np.dtype(np.uint64))

Words = NDArray[Any]


def new_seed() -> Secret:
    """Make a fresh seed from the operating system, for a self-mask."""
    return Secret(os.urandom(SEED))


def advance_chains(links: bytes) -> tuple[bytes, bytes]:
    """Return the next links of chains, and what this step of them gives; nothing leads back."""
    found = [
        blake2b(b"", key=links[at : at + SEED], digest_size=SEED + GIVEN, person=b"tacit chain").digest()
        for at in range(0, len(links), SEED)
    ]
    return b"".join([pair[:SEED] for pair in found]), b"".join([pair[SEED:] for pair in found])


def bind_seeds(given: bytes, call: bytes) -> list[Secret]:
    """Return the seeds of pair masks, bound to what was asked: whoever was told something else has others."""
    return [
        Secret(blake2b(call, key=given[at : at + GIVEN], digest_size=SEED, person=b"tacit mask").digest())
        for at in range(0, len(given), GIVEN)
    ]


def cover(key: Secret, raw: bytes) -> bytes:
    """Encrypt bytes under a key that serves for nothing else, or decrypt them again."""
    return _cipher(key).encrypt(bytes(_NONCE), raw, None)[: len(raw)]


def sign_for(own: str, other: str) -> int:
    """Return the sign with which a client applies a pair mask: one of the two adds it, one subtracts it."""
    if own == other:
        raise ConfigError(f"'{own}' was paired with itself: a pair mask is between two clients")
    return 1 if own < other else -1


def expand(seed: Secret, count: int, dtype: DTypeLike = np.uint64) -> Words:
    """Expand a seed into uniform words, the same on every machine.

    >>> expand(Secret(bytes(32)), 2, np.uint32).tolist()
    [1027647438, 1852530765]
    """
    kind = np.dtype(dtype)
    if kind not in _WORDS:
        raise ConfigError(f"masks of {kind}: sums are modulo 2^32 or 2^64, use uint32 or uint64")
    words = np.empty(count, kind.newbyteorder("<"))
    cipher, step = _cipher(seed), CHUNK // kind.itemsize
    for start in range(0, count, step):
        part = words[start : start + step]
        part[:] = np.frombuffer(_keystream(cipher, start // step, part.nbytes), part.dtype, len(part))
    return words.astype(kind, copy=False)


def add_masks(vector: Words, masks: Iterable[tuple[Secret, int]]) -> int:
    """Add masks, seeds with signs, to a vector in place; return what they give for a number beside it."""
    if vector.dtype not in _WORDS or vector.ndim != 1:
        raise ConfigError(
            f"a mask is added to one row of uint32 or uint64, not {vector.ndim} dimensions of {vector.dtype}"
        )
    if not (vector.flags.c_contiguous and vector.flags.writeable):
        raise ConfigError("the vector is read-only or not contiguous: give add_masks a copy of its own")
    streams = []
    for seed, sign in masks:
        if sign not in (1, -1):
            raise ConfigError(f"sign is {sign}: a mask is added with 1 or subtracted with -1")
        streams.append((_cipher(seed), np.add if sign == 1 else np.subtract, sign))
    kind, step, beside = vector.dtype.newbyteorder("<"), CHUNK // vector.itemsize, 0
    for number, start in enumerate(range(0, max(len(vector), 1), step)):
        part = vector[start : start + step]
        size, count, is_first = part.nbytes, len(part), start == 0
        for cipher, apply, sign in streams:
            stream = _keystream(cipher, number, size + _NUMBER)
            apply(part, np.frombuffer(stream, kind, count), out=part)
            if is_first:  # of the first stretch no word of a vector of this length uses these
                beside += sign * int.from_bytes(stream[size : size + _NUMBER], "little")
    return beside


def _cipher(seed: Secret) -> AESGCM:
    key = seed.reveal()
    if len(key) != SEED:
        raise ConfigError(f"a seed of {len(key)} bytes: masks are expanded from {SEED}")
    return AESGCM(key)


def _keystream(cipher: AESGCM, number: int, size: int) -> bytes:
    """Return a stretch of the stream of a key, with the tag of GCM after it, which nobody needs."""
    return cipher.encrypt(number.to_bytes(_NONCE, "little"), _ZEROS[:size], None)
