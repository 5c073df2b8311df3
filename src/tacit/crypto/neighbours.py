"""With how many others a client masks on a sparse random graph: a sum stays private, and finishes.

Bell et al., "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead" (2020, SecAgg+).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf, log

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError

COMPLETE_BELOW = 64  # with fewer clients a sparse graph saves little and costs certainty
SECURITY_BITS, CORRECTNESS_BITS = 40, 20  # s and q below


@dataclass(frozen=True)
class Sizing:
    """How many neighbours, how many shares open, and the bounds on what may go wrong (-log2)."""

    neighbours: int
    threshold: int
    security_bits: float
    correctness_bits: float


@lru_cache(maxsize=256)
def neighbours_for(
    clients: int, corrupt_share: float = 0.1, dropout_share: float = 0.1, *, active: bool = False
) -> Sizing:
    """Return the fewest neighbours, of the order of log n, that keep a sum private and let it finish.

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
    secure, correct = -(SECURITY_BITS + 1) * log(2), -CORRECTNESS_BITS * log(2)
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
    """Return log P[X ≥ x] for x = 0 … drawn + 1, X the marked ones among those drawn without replacement."""

    def choose(n: int, k: NDArray[np.int64]) -> NDArray[np.float64]:
        inside = (k >= 0) & (k <= n)
        safe = np.where(inside, k, 0)
        return np.where(inside, logs[n] - logs[safe] - logs[n - safe], -inf)

    x = np.arange(drawn + 1)
    each = choose(marked, x) + choose(total - marked, drawn - x) - choose(total, np.array([drawn]))
    tails: NDArray[np.float64] = np.append(np.logaddexp.accumulate(each[::-1])[::-1], -inf)
    return np.minimum(tails, 0.0)


def _log_apart(logs: NDArray[np.float64], clients: int, missing: int, count: int) -> float:
    """Return the log of a bound on the probability that missing clients cut the circle in two."""
    run = 2 * (count // 2)
    if count >= clients - 1 or run > missing:
        return -inf
    pairs = log(clients) + log(clients - run - 1) - log(2)
    return float(pairs + logs[missing] - logs[missing - run] + logs[clients - run] - logs[clients])
