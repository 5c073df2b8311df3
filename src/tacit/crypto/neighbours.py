"""With how many others a client masks on a sparse random graph: a sum stays private, and finishes.

Bell et al., "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead" (2020, SecAgg+).
"""

from collections.abc import Callable
from functools import lru_cache, partial
from math import ceil, inf, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError

COMPLETE_BELOW = 64  # with fewer clients a sparse graph saves little and costs certainty
MOST_NEIGHBOURS = 2048  # on a sparse graph; what is tried beyond takes time, and saves little
SECURITY_BITS, CORRECTNESS_BITS = 40, 20  # s and q below
FALSE_ALARM_BITS = 20  # an honest draw looks suspicious to any of the clients at most once in 2^20

Logs = NDArray[np.float64]  # of probabilities, or of factorials


class Sizing(NamedTuple):
    """How many neighbours a client has, and how many shares open its secrets."""

    neighbours: int
    threshold: int


@lru_cache(maxsize=256)
def neighbours_for(
    clients: int, corrupt_share: float = 0.1, dropout_share: float = 0.1, *, active: bool = False
) -> Sizing:
    """Return the fewest neighbours, of the order of log n, that keep a sum private and let it finish.

    A secret is shared among its dealer and the dealer's k neighbours, any t shares recover it. With C
    corrupt and D vanishing clients among n, chosen before the graph is drawn, neighbours are a random
    set, so their kinds follow hypergeometric distributions H. Needed are:

    1. *no reconstruction*: that anybody has more than c corrupt neighbours has a probability of at most
       2^-(s+1). Against an ``active`` server, which tells each client another tale, 2t > k + 1 + c; and since
       it may also leave out clients as if they had vanished before the graph was made, all corrupt ones
       count in any arc that a client accepts (:func:`longest_arc`). An arc with c + 1 of them can be moved
       until it begins at one: ≤ C · P[c others or more in it], a binomial number.
       Against a curious one their number follows H(n-1, C, k), and t > max(c, (k+1)/2) suffices;
    2. *no isolation*: honest survivors stay connected but for 2^-(s+1). A circle falls apart only if
       h = ⌊k/2⌋ clients in a row are missing in two places: ≤ n(n-2h-1)/2 · C(C+D, 2h) / C(n, 2h);
    3. *no failure*: each secret finds t surviving holders, but for 2^-q in all. If one does not, k + 1
       clients in a row miss more than k + 1 - t, and so do as many that begin at one that vanished:
       ≤ D · P[k + 1 - t or more of the k after it], which follow H(n-1, D-1, k).

    Below 64 clients, or if nothing sparser fits, the graph is complete: then 1 and 3 are certain.

    Caveats, of a server that picks after seeing the graph or before announcing it: docs/masked.md.
    """
    for name, share in (("corrupt_share", corrupt_share), ("dropout_share", dropout_share)):
        if not 0 <= share < 1:
            raise ConfigError(f"{name} is {share}: it is a part of all clients, from 0 to below 1")
    if clients < 2:
        raise ConfigError(f"{clients} clients: masks need at least two")
    corrupt, vanishing = (ceil(share * clients - 1e-9) for share in (corrupt_share, dropout_share))
    logs = _log_factorials(clients)
    fit = partial(_fit, logs, clients, corrupt, vanishing, dropout_share, active)
    for count in (*_sparse_counts(clients, fit), clients - 1):
        if (found := fit(count)) is not None:
            return found
    raise ConfigError(
        f"{clients} clients of which {corrupt} may be corrupt and {vanishing} may vanish: too few stay to "
        "open the sum; lower corrupt_share or dropout_share, or take more clients"
    )


def _sparse_counts(clients: int, fit: Callable[[int], Sizing | None]) -> range:
    """Return numbers of neighbours to try, one of which fits: those up to the first doubling that does."""
    most = min(clients - 2, MOST_NEIGHBOURS) // 2 * 2
    before = 2
    while clients >= COMPLETE_BELOW and before < most:
        count = min(2 * before, most)
        if fit(count) is not None:
            return range(before, count + 1, 2)
        before = count
    return range(0)


def _fit(
    logs: Logs, clients: int, corrupt: int, vanishing: int, missing: float, active: bool, count: int
) -> Sizing | None:
    secure, correct = -(SECURITY_BITS + 1) * log(2), -CORRECTNESS_BITS * log(2)
    if _log_apart(logs, clients, min(corrupt + vanishing, clients), count) > secure:
        return None
    held = _log_held(logs, clients, corrupt, count, missing, active)
    most = min(int(np.argmax(held <= secure)) - 1, count)  # P[more corrupt neighbours] is small enough
    threshold = (count + 1 + most) // 2 + 1 if active else max(most + 1, (count + 1) // 2 + 1)
    stuck = -inf
    if vanishing:
        stuck = log(vanishing) + _log_tails(logs, clients - 1, vanishing - 1, count)[count + 1 - threshold]
    return Sizing(count, threshold) if stuck <= correct else None


@lru_cache(maxsize=256)
def security_bits_of(
    clients: int, neighbours: int, most: int, corrupt_share: float, dropout_share: float, *, active: bool
) -> float:
    """Return b: 2^-b bounds that somebody has over ``most`` corrupt neighbours, or the graph falls apart."""
    corrupt, vanishing = (ceil(share * clients - 1e-9) for share in (corrupt_share, dropout_share))
    logs = _log_factorials(clients)
    held = _log_held(logs, clients, corrupt, neighbours, dropout_share, active)
    more = float(held[most + 1]) if most + 1 < len(held) else -inf
    apart = _log_apart(logs, clients, min(corrupt + vanishing, clients), neighbours)
    return max(-float(np.logaddexp(more, apart)) / log(2), 0.0)


@lru_cache(maxsize=256)
def longest_arc(count: int, clients: int, missing: float) -> float:
    """Return how far, as a part of the circle, one can plausibly go from a client until ``count`` others sat.

    If μ clients are expected in an arc, P[fewer than h] ≤ exp(-(μ - h - h ln(μ/h))) (Chernoff); an arc
    that holds h neighbours is too long if that is below 2^-20 for all clients together. ``missing`` is the
    share of clients that may be missing.
    """
    mean = float(count)
    while mean - count - count * log(mean / count) < FALSE_ALARM_BITS * log(2) + log(clients):
        mean += 1
    return mean / (clients * (1 - missing))


def _log_factorials(clients: int) -> Logs:
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, clients + 1)))])


def _log_held(logs: Logs, clients: int, corrupt: int, count: int, missing: float, active: bool) -> Logs:
    """Log of a bound on the probability that somebody has at least x corrupt neighbours, for x = 0, 1, …."""
    if not active or count >= clients - 1:
        return log(clients) + _log_tails(logs, clients - 1, min(corrupt, clients - 1), count)
    near, others = min(longest_arc(count, clients, missing), 1.0), max(corrupt - 1, 0)
    x = np.arange(others + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        fewer = np.where(x < others, (others - x) * np.log1p(-near), 0.0)
    each = logs[others] - logs[x] - logs[others - x] + x * log(near) + fewer
    tails = log(max(corrupt, 1)) + np.logaddexp.accumulate(each[::-1])[::-1]
    return np.concatenate([[0.0], tails[:corrupt], [-inf]])


def _log_tails(logs: Logs, total: int, marked: int, drawn: int) -> Logs:
    """Return log P[X ≥ x] for x = 0 … drawn + 1, X the marked ones among those drawn without replacement."""

    def choose(n: int, k: NDArray[np.int64]) -> Logs:
        inside = (k >= 0) & (k <= n)
        safe = np.where(inside, k, 0)
        return np.where(inside, logs[n] - logs[safe] - logs[n - safe], -inf)

    x = np.arange(drawn + 1)
    each = choose(marked, x) + choose(total - marked, drawn - x) - choose(total, np.array([drawn]))
    tails: Logs = np.append(np.logaddexp.accumulate(each[::-1])[::-1], -inf)
    return np.minimum(tails, 0.0)


def _log_apart(logs: Logs, clients: int, missing: int, count: int) -> float:
    """Return the log of a bound on the probability that missing clients cut the circle in two."""
    run = 2 * (count // 2)
    if count >= clients - 1 or run > missing:
        return -inf
    pairs = log(clients) + log(clients - run - 1) - log(2)
    return float(pairs + logs[missing] - logs[missing - run] + logs[clients - run] - logs[clients])
