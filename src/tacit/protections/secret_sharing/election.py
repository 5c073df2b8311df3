"""Electing a committee by commit and reveal, so that nobody can steer it; and what votes would give.

Every client commits to a random number when it enrols, sees all commitments, and only then reveals. The
seed is a hash of all numbers, so it is uniform if a single client is honest, whoever speaks last.

**Who does not reveal.** Whoever hears all numbers before its own is out (a colluder of the coordinator, which
relays them) could withhold it and so change the seed. If the draw went on without it, c colluders could
choose among 2^c seeds. So a draw in which anybody withholds is void: those that did are out, of the draw
and of the electorate, and the others draw again with numbers they committed to before. Every client
counts the draws and refuses more than were agreed. Withholding thus buys one further draw with one
friend fewer, and ``draws`` bounds how often that, or a coordinator that cuts off honest clients, can void a
draw: the chance of any committee is at most ``draws`` times the fair one among those that are left.

**Limits.** Every client gets the full list of commitments and numbers, about 150 bytes a client. With more
than 1,000 clients those 1,000 vote and stand for election whose names hash lowest with the run's digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError

ELECTORATE = 1_000
NONCE = 32


def hashed(*pieces: bytes) -> bytes:
    """Hash byte strings, each with its length, so that none run together."""
    digest = sha256()
    for piece in pieces:
        digest.update(len(piece).to_bytes(8, "little") + piece)
    return digest.digest()


def commitment(run: str, owner: str, nonce: bytes) -> bytes:
    """What a client shows of its number before all have committed."""
    return hashed(b"commitment", run.encode(), owner.encode(), nonce)


def rank(run: str, name: str) -> bytes:
    """Place of a client among those who may vote, where not all can."""
    return hashed(b"electorate", run.encode(), name.encode())


def electorate(names: Iterable[str], run: str, limit: int = ELECTORATE) -> list[str]:
    """Clients that vote and may be elected, sorted by name.

    >>> electorate(["bob", "ann"], "run"), len(electorate(map(str, range(2000)), "run"))
    (['ann', 'bob'], 1000)
    """
    found = sorted(names)
    return found if len(found) <= limit else sorted(sorted(found, key=lambda name: rank(run, name))[:limit])


def seed_of(run: str, draw: int, nonces: Iterable[bytes]) -> bytes:
    """Seed of a draw: a hash of all numbers, in the order of their owners' names."""
    return hashed(b"draw", run.encode(), draw.to_bytes(8, "little"), *nonces)


def elected(seed: bytes, names: Iterable[str], members: int) -> tuple[str, ...]:
    """Draw a committee: every set of members is as likely as any other.

    >>> elected(bytes(32), ["ann", "bob", "eve", "joe"], 2)
    ('eve', 'bob')
    """
    return tuple(sorted(names, key=lambda name: hashed(seed, name.encode()))[:members])


def simulate_elections(
    clients: int,
    members: int,
    colluders: int,
    elections: int,
    rng: np.random.Generator,
    *,
    rule: Literal["draw", "votes"] = "draw",
    draws: int = 1,
    wanted: int | None = None,
) -> NDArray[np.int64]:
    """Count how many seats colluders take; gives the number of elections for 0, 1, … members.

    Parameters
    ----------
    clients, members, colluders, elections : int
    rng : numpy.random.Generator
    rule : {"draw", "votes"}
        Ours; or random votes as published: every client gives each other one between 0 and 1, and the
        highest sums are elected. Colluders give each other 1, and everybody else 0.
    draws : int
        How often a draw may be made. Colluders that see one with too few seats for them withhold a number
        and so void it, at the price of one of them.
    wanted : int, optional
        Seats with which colluders are content; all, if left out.

    Examples
    --------
    >>> simulate_elections(16, 3, 3, 1000, np.random.default_rng(0), rule="votes").tolist()
    [0, 0, 163, 837]
    """
    if not 0 <= colluders <= clients or not 1 <= members <= clients:
        raise ConfigError(f"{colluders} colluders and {members} seats among {clients} clients: too many")
    if rule == "votes":
        seats = _by_votes(clients, members, colluders, elections, rng)
    else:
        content = members if wanted is None else wanted
        seats = np.array(
            [_by_draw(clients, members, colluders, draws, content, rng) for _ in range(elections)]
        )
    return np.bincount(seats, minlength=members + 1)


def _by_draw(
    clients: int, members: int, colluders: int, draws: int, wanted: int, rng: np.random.Generator
) -> int:
    friends = [f"friend {index}" for index in range(colluders)]
    honest = [f"honest {index}" for index in range(clients - colluders)]
    seats = 0
    for draw in range(draws):
        chosen = elected(seed_of("run", draw + 1, [rng.bytes(NONCE)]), honest + friends, members)
        seats = len({*chosen} & {*friends})
        if seats >= wanted or len(friends) <= wanted:
            break
        friends.pop()
    return seats


def _by_votes(
    clients: int, members: int, colluders: int, elections: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    honest = clients - colluders
    votes = rng.random((elections, honest, clients))
    votes[:, np.arange(honest), colluders + np.arange(honest)] = 0.0
    sums = votes.sum(axis=1)
    sums[:, :colluders] += colluders
    return np.asarray((np.argsort(-sums, axis=1)[:, :members] < colluders).sum(axis=1))


def message_counts(clients: int, members: int, rounds: int) -> dict[str, dict[str, int]]:
    """Messages of peer-to-peer and Two-Phase MPC, by the survey's formulas and as the ledger counts ours.

    Ours are messages between clients where totals open at the clients, in sums over all of them; one message
    for each other client once, with the clients' key; and, for the election, one list of commitments to
    each client and one number from it (commitments ride on enrolment, numbers on the first sum).
    The survey's Two-Phase count has (K - 1)² messages a round too many; ``corrected`` is without them.

    Examples
    --------
    >>> counts = message_counts(16, 3, 15)
    >>> counts["shares"]["survey"], counts["committee"]["survey"], counts["committee"]["corrected"]
    (7200, 1530, 1470)
    >>> counts["shares"]["ours"], counts["committee"]["ours"], counts["committee"]["election"]
    (7215, 1365, 32)
    """
    n, k = clients, min(members, clients)
    once = 2 * n * (n - 1)
    survey = once + rounds * (n * k + k * (k - 1) + n)
    return {
        "shares": {"survey": rounds * once, "ours": rounds * once + n - 1},
        "committee": {
            "survey": survey,
            "corrected": survey - rounds * (k - 1) ** 2,
            "ours": 2 * rounds * k * (n - 1) + n - 1,
            "election": 2 * n,
        },
    }


def checked_members(members: int, threshold: int) -> None:
    """Refuse a committee that could be told two tales, or that cannot open anything."""
    if not members >= 2:
        raise ConfigError(f"members is {members}: a committee has at least two")
    if not members < 2 * threshold <= 2 * members:
        raise ConfigError(
            f"threshold is {threshold}: of {members} members more than half, and at most all, open a total"
        )


def ballot_of(draw: int, names: Sequence[str], signed: NDArray[np.uint8]) -> bytes:
    """Digest of the list of commitments that a client saw before it revealed."""
    return hashed(draw.to_bytes(8, "little"), "\n".join(names).encode(), signed.tobytes())
