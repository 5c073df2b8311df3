"""Shamir's secret sharing (1979) of whole vectors, over the prime 2^61 - 1.

A value is the constant term of a random polynomial of degree t - 1, and the share of holder i is the
polynomial at i: any t of n recover it, fewer say nothing at all. Shares are linear: those of several
dealers, added holder by holder, are shares of the sum.

A share says nothing about its dealer or its time, and a wrong one gives a wrong secret: who sends what
to whom, and when, is bound by the sealed channel it travels in (:mod:`tacit.crypto.channel`).
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod
from operator import mul

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, ProtectionError
from tacit.crypto import field
from tacit.crypto.field import PRIME, Ring

MOST_PARTIES = 1 << 20  # evaluation points stay small, so that multiplying by one takes two products
_BLOCK = 1 << 14  # values worked on at a time, for the cache
_FEW = 64  # values up to which Python's integers are faster than arrays


def share_rows(values: Ring, parties: int, threshold: int) -> Ring:
    """Share field elements so that any ``threshold`` parties recover all; a row for each, in order."""
    if not 1 <= parties <= MOST_PARTIES:
        raise ConfigError(f"{parties:,} parties: shares are for 1 to {MOST_PARTIES:,}")
    if not 1 <= threshold <= parties:
        raise ConfigError(f"threshold is {threshold}: with {parties} shares it goes from 1 to {parties}")
    secret = field.elements_of(values)
    powers = field.powers_of(parties, threshold)
    shares = np.empty((parties, len(secret)), np.uint64)
    block = max(_BLOCK // parties, 64)
    for start in range(0, len(secret), block):
        constant = secret[start : start + block]
        higher = field.random_elements((threshold - 1) * len(constant)).reshape(threshold - 1, len(constant))
        shares[:, start : start + block] = field.product(powers, np.concatenate([constant[None], higher]))
    return shares


def evaluate(rows: Ring, points: tuple[int, ...], others: tuple[int, ...]) -> Ring:
    """Evaluate the polynomials through rows at different points at others, a row for each of these.

    A dealer may so choose t - 1 shares beside the secret, at point 0, and deal what follows for the others.

    >>> rows = np.array([[7], [3], [8]], np.uint64)  # a secret, and the shares of points 1 and 2
    >>> third = evaluate(rows, (0, 1, 2), (3,))
    >>> int(interpolate(np.concatenate([rows[1:], third]), (1, 2, 3))[0])
    7
    """
    return field.product(_weight_digits(points, others), rows)


def recover(rows: Sequence[Ring], points: Sequence[int], threshold: int) -> Ring:
    """Recover what was shared from ``threshold`` shares; further ones are checked against these."""
    found = tuple(points)
    if threshold < 1:
        raise ConfigError(f"threshold is {threshold}: at least one share recovers a secret")
    if len(found) < threshold:
        raise ProtectionError(f"{len(found)} shares, {threshold} are needed: ask more holders for theirs")
    if len(set(found)) != len(found):
        raise ProtectionError(f"two shares of one point among {sorted(found)[:20]}: each holder gives one")
    if min(found) < 1 or max(found) > MOST_PARTIES:
        raise ProtectionError(f"a share of a point that is not from 1 to {MOST_PARTIES:,}")
    used = _stacked(rows[:threshold])  # all at once, or it refuses
    for row, point in zip(rows[threshold:], found[threshold:], strict=True):
        if not np.array_equal(interpolate(used, found[:threshold], point), row):
            raise ProtectionError(
                f"the share of point {point} does not fit the others: one of them is wrong, or "
                "threshold is lower than when they were dealt"
            )
    return interpolate(used, found[:threshold])


def add_shares(rows: Sequence[Ring]) -> Ring:
    """Add shares that one holder has of several dealers: its share of the sum."""
    return field.add_rows(_stacked(rows))


def _stacked(rows: Sequence[Ring]) -> Ring:
    if len({len(row) for row in rows}) != 1:
        raise ProtectionError("shares of different lengths: they belong to different secrets")
    return np.stack([field.elements_of(row) for row in rows])


def interpolate(rows: Ring, points: tuple[int, ...], at: int = 0) -> Ring:
    """Evaluate the polynomials through rows at different points at another: at 0 is what was shared."""
    if rows.size <= _FEW:
        each = _weights(points, at).tolist()
        columns = zip(*rows.tolist(), strict=True)
        return np.array([sum(map(mul, each, column)) % PRIME for column in columns], np.uint64)
    weights = _weights(points, at)[:, None]
    result = np.empty(rows.shape[1], np.uint64)
    block = max(_BLOCK // len(points), 64)
    for start in range(0, len(result), block):
        part = field.multiply(rows[:, start : start + block], weights)
        result[start : start + block] = field.add_rows(part)
    return result


@lru_cache(maxsize=8)
def _weight_digits(points: tuple[int, ...], others: tuple[int, ...]) -> NDArray[np.float64]:
    return field.digits_of(np.stack([_weights(points, at) for at in others]))


@lru_cache(maxsize=1024)
def _weights(points: tuple[int, ...], at: int) -> Ring:
    above = prod([at - point for point in points]) % PRIME
    below = [(at - own) * prod([own - other for other in points if other != own]) % PRIME for own in points]
    behind = list(accumulate(below, lambda a, b: a * b % PRIME, initial=1))
    inverse, weights = pow(behind.pop(), -1, PRIME), []
    for own, rest in zip(reversed(below), reversed(behind), strict=True):
        weights.append(above * inverse * rest % PRIME)
        inverse = inverse * own % PRIME
    return np.array(weights[::-1], np.uint64)
