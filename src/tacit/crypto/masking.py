"""Masks that cancel in a sum, and who masks with whom (Bonawitz et al. 2017; Bell et al. 2020, SecAgg+).

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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf, log
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import DTypeLike, NDArray

from tacit.core.errors import ConfigError
from tacit.core.secret import Secret
from tacit.crypto.channel import bound

SEED = 32
CHUNK = 1 << 16  # bytes of mask at a time: mask, zeros and the stretch of the vector stay in the L2 cache
COMPLETE_BELOW = 64  # with fewer clients a sparse graph saves little and costs certainty
_ZEROS = bytes(CHUNK)
_WORDS = (np.dtype(np.uint32), np.dtype(np.uint64))

Words = NDArray[Any]


def new_seed() -> Secret:
    """Make a fresh seed from the operating system, for a self-mask."""
    return Secret(os.urandom(SEED))


def pair_seed(shared: Secret, run: str, number: int, one: str, other: str) -> Secret:
    """Derive the seed of the mask between two clients in one sum; both derive the same.

    Parameters
    ----------
    shared : Secret
        What the two clients' keys *of this sum* give by X25519 (see the module's first lines).
    run, number, one, other : str, int, str, str
        Run, number of the sum, and the two names in either order.

    Examples
    --------
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
    return Secret(HKDF(SHA256(), length=SEED, salt=None, info=info).derive(shared.reveal()))


def sign_for(own: str, other: str) -> int:
    """Sign with which a client applies a pair mask: of the two ends one adds it, one subtracts it."""
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
    """Add all masks of a client in one pass over the vector, in place.

    Parameters
    ----------
    vector : ndarray of uint32 or uint64
        Contiguous and writeable.
    masks : iterable of (Secret, int)
        Seeds with their signs, 1 or -1.
    """
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
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()


# -- who masks with whom ---------------------------------------------------------------------------


def neighbourhood(names: Sequence[str], count: int, rng: np.random.Generator) -> dict[str, tuple[str, ...]]:
    """Draw a random graph in which every client has the same number of neighbours.

    Clients are put on a circle in random order, and each is joined to the nearest ones on either side
    (Bell et al.'s Harary graph; an odd number adds the opposite client, which needs an even circle, and
    is otherwise rounded up). The graph is connected, and all who know ``rng``'s seed draw the same one,
    whatever the order of ``names``. The seed must come from all clients together (commit, then reveal),
    and only after it is settled who takes part: whoever chooses it could choose the neighbours.

    Examples
    --------
    >>> graph = neighbourhood(["a", "b", "c", "d", "e", "f"], 2, np.random.default_rng(0))
    >>> sorted(len(friends) for friends in graph.values())
    [2, 2, 2, 2, 2, 2]
    """
    size = len(names)
    if len(set(names)) != size:
        raise ConfigError("a name occurs twice among the clients: every client needs its own")
    if size < 2 or count < min(2, size - 1):
        raise ConfigError(
            f"{count} neighbours among {size} clients do not join all of them: "
            "at least two clients, and two neighbours each (one if there are two clients)"
        )
    ordered = sorted(names)
    # Raw words rather than rng.permutation: numpy promises the stream of the former across releases.
    keys = np.atleast_1d(rng.bit_generator.random_raw(size))
    circle = [ordered[index] for index in np.argsort(keys, kind="stable")]
    if count >= size - 1:
        return {name: tuple(other for other in ordered if other != name) for name in ordered}
    half, odd = divmod(count, 2)
    steps = {*range(1, half + 1), *range(-half, 0)}
    if odd:
        steps |= {size // 2} if size % 2 == 0 else {half + 1, -half - 1}
    return {
        name: tuple(sorted({circle[(place + step) % size] for step in steps}))
        for place, name in enumerate(circle)
    }


@dataclass(frozen=True)
class Sizing:
    """How many neighbours, how many shares open, and the bounds on what may go wrong (-log2)."""

    neighbours: int
    threshold: int
    security_bits: float
    correctness_bits: float


@lru_cache(maxsize=256)
def neighbours_for(
    clients: int,
    corrupt_share: float = 0.1,
    dropout_share: float = 0.1,
    security_bits: int = 40,
    *,
    correctness_bits: int = 20,
    active: bool = False,
) -> Sizing:
    """Give the fewest neighbours, of the order of log n, that keep a sum private and let it finish.

    A secret is shared among its dealer and the dealer's k neighbours, any t shares recover it. With C
    corrupt and D vanishing clients among n, chosen before the graph is drawn, neighbours are a random
    set, so their kinds follow hypergeometric distributions H. Needed are:

    1. *no reconstruction*: n P[H(n-1, C, k) > c] ≤ 2^-(s+1), with t > max(c, (k+1)/2): more than the
       corrupt hold, and more than half, so that nobody's halves give both secrets of a client. Against an
       ``active`` server that tells each neighbour another tale of who vanished, 2t > k + 1 + c;
    2. *no isolation*: honest survivors stay connected but for 2^-(s+1). A circle falls apart only if
       h = ⌊k/2⌋ clients in a row are missing in two places: ≤ n(n-2h-1)/2 · C(C+D, 2h) / C(n, 2h);
    3. *no failure*: each secret finds t surviving holders, but for 2^-q in all.

    Below 64 clients, or if nothing sparser fits, the graph is complete: then 1 and 3 are certain.

    Caveat: a server that picks *after* seeing the graph who "vanishes" can cut any sparse graph; clients
    must then insist on the complete one.

    Examples
    --------
    >>> [neighbours_for(n).neighbours for n in (40, 100, 1_000, 20_000)]
    [39, 20, 46, 56]
    >>> neighbours_for(40).threshold
    21
    """
    for name, share in (("corrupt_share", corrupt_share), ("dropout_share", dropout_share)):
        if not 0 <= share < 1:
            raise ConfigError(f"{name} is {share}: it is a part of all clients, from 0 to below 1")
    if clients < 2:
        raise ConfigError(f"{clients} clients: masks need at least two")
    corrupt, vanishing = (ceil(share * clients - 1e-9) for share in (corrupt_share, dropout_share))
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, clients + 1)))])  # log n!
    secure, correct = -(security_bits + 1) * log(2), -correctness_bits * log(2)
    sparse = range(2, clients - 1, 2) if clients >= COMPLETE_BELOW else ()
    for count in (*sparse, clients - 1):
        apart = _log_apart(logs, clients, min(corrupt + vanishing, clients), count)
        if apart > secure:
            continue
        held = log(clients) + _log_tails(logs, clients - 1, min(corrupt, clients - 1), count)
        most = int(np.argmax(held <= secure)) - 1  # P[more than `most` corrupt neighbours] is small enough
        threshold = (count + 1 + most) // 2 + 1 if active else max(most + 1, (count + 1) // 2 + 1)
        # A survivor keeps a share of its own; one that vanished is not among those who may vanish.
        spare = count + 1 - threshold
        stuck = log(clients) + max(
            _log_tails(logs, clients - 1, min(vanishing, clients - 1), count)[max(spare + 1, 0)],
            _log_tails(logs, clients - 1, vanishing - 1, count)[max(spare, 0)] if vanishing else -inf,
        )
        if stuck <= correct:
            leak = float(np.logaddexp(held[most + 1], apart))
            return Sizing(count, threshold, -leak / log(2), -float(stuck) / log(2))
    raise ConfigError(
        f"{clients} clients of which {corrupt} may be corrupt and {vanishing} may vanish: too few stay to "
        "open the sum; lower corrupt_share or dropout_share, or take more clients"
    )


def _log_tails(logs: NDArray[np.float64], total: int, marked: int, drawn: int) -> NDArray[np.float64]:
    """Log P[X ≥ x] for x = 0 … drawn + 1, X the marked ones among those drawn without replacement."""

    def choose(n: int, k: NDArray[np.int64]) -> NDArray[np.float64]:
        inside = (k >= 0) & (k <= n)
        safe = np.where(inside, k, 0)
        return np.where(inside, logs[n] - logs[safe] - logs[n - safe], -inf)

    x = np.arange(drawn + 1)
    each = choose(marked, x) + choose(total - marked, drawn - x) - choose(total, np.array([drawn]))
    tails: NDArray[np.float64] = np.append(np.logaddexp.accumulate(each[::-1])[::-1], -inf)
    return np.minimum(tails, 0.0)


def _log_apart(logs: NDArray[np.float64], clients: int, missing: int, count: int) -> float:
    """Log of a bound on the probability that missing clients cut the circle in two."""
    run = 2 * (count // 2)
    if count >= clients - 1 or run > missing:
        return -inf
    pairs = log(clients) + log(clients - run - 1) - log(2)
    return float(pairs + logs[missing] - logs[missing - run] + logs[clients - run] - logs[clients])
