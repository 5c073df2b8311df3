"""Dividing the rows of a table among clients, and keeping some for a central test.

A partition is an array ``owner`` with the client of every row, so no row can be lost or held twice.
No client is ever left without rows.

References
----------
.. [1] Fontenla-Romero et al., FedHEONN: rows ordered by class and cut into equal parts (``label-sorted``).
.. [2] Santos et al., "Exploring Aggregation Strategies for Federated Learning in National Statistics":
   ``random``, ``majority-even``, ``majority`` and ``pick-two``.
.. [3] Hsu, Qi & Brown 2019, "Measuring the Effects of Non-Identical Data Distribution for Federated
   Visual Classification": ``dirichlet``.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.component import Option
from tacit.core.errors import ConfigError, DataError, nearest
from tacit.data.majority import Counts, even, majority_counts
from tacit.data.table import Table

Owner = NDArray[np.int32]
BY_FILE = "file"  # the group that says from which file a row is
BY_VALUE = ("by-column", "by-file")  # partitions that know themselves how many clients there are


@dataclass(frozen=True)
class Partitioner:
    """A way of dividing rows: its function, a line about it, and its options beside the clients."""

    divide: Callable[..., Owner]
    summary: str
    options: tuple[Option, ...] = ()


def partition(
    table: Table, name: str, clients: int | None, *, seed: int | np.random.Generator = 0, **options: Any
) -> Owner:
    """Divide the rows of a table among clients, and return the client of every row, from 0 on.

    ``name`` is one of ``PARTITIONERS``, with its ``options``; ``clients`` may be None for ``BY_VALUE``.
    """
    known = options_of(name)
    for word in options:
        if word not in known:
            fix = nearest(word, known) if known else "leave it out"
            raise ConfigError(f"the partition '{name}' has no option '{word}': {fix}")
    number, rng = _clients(table, name, clients), np.random.default_rng(seed)
    return PARTITIONERS[name].divide(table, number, rng, **{**known, **options})


def options_of(name: str) -> dict[str, Any]:
    """List the options of a partition with their defaults."""
    if name not in PARTITIONERS:
        raise ConfigError(f"unknown partition '{name}': {nearest(name, PARTITIONERS)}")
    return {option.name: option.default for option in PARTITIONERS[name].options}


def _clients(table: Table, name: str, clients: int | None) -> int:
    if clients is None and name in BY_VALUE:
        return 0
    if isinstance(clients, bool) or not isinstance(clients, int | np.integer) or clients < 1:
        raise ConfigError(f"clients is {clients!r}: give a whole number of at least 1")
    if clients > table.rows:
        raise ConfigError(
            f"{clients:,} clients cannot share the {table.rows:,} rows of {table.name}: every client needs "
            f"one, so ask for at most {table.rows:,}, or take the rows several times with repeat (--repeat)"
        )
    return int(clients)


def _iid(table: Table, clients: int, rng: np.random.Generator) -> Owner:
    return rng.permutation(np.arange(table.rows, dtype=np.int32) % clients)


def _label_sorted(table: Table, clients: int, rng: np.random.Generator) -> Owner:
    order = np.argsort(table.target if table.task == "classification" else table.target[:, 0], kind="stable")
    owner = np.empty(table.rows, dtype=np.int32)
    owner[order] = np.repeat(np.arange(clients, dtype=np.int32), even(table.rows, clients))
    return owner


def _random(table: Table, clients: int, rng: np.random.Generator) -> Owner:
    owner = rng.integers(clients, size=table.rows, dtype=np.int32)
    # One row is set aside for each client, so that none goes empty.
    owner[rng.permutation(table.rows)[:clients]] = np.arange(clients, dtype=np.int32)
    return owner


def _by_majority(
    table: Table, clients: int, rng: np.random.Generator, share: float, name: str, each: int = 1
) -> Owner:
    """Give the first clients ``each`` majority classes that together make up ``share`` of their rows.

    The paper says of pick-two "two unique majority classes" without a number: here both together make the
    share, half each, as one class does in majority-even. With share=1 these clients hold two classes only.
    For an odd number of classes, the last skewed client has one.
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise ConfigError(f"share is {share!r}: give a number above 0 and at most 1, such as 0.5")
    sizes = even(table.rows, clients)
    if name == "majority":
        # One row each, and the others by weights of which the largest is at most three times the smallest.
        sizes = 1 + _cut(table.rows - clients, rng.uniform(0.5, 1.5, size=clients))
    codes, totals = _classes(table, name)
    return _deal(codes, majority_counts(sizes, totals, share, each), rng)


def _dirichlet(table: Table, clients: int, rng: np.random.Generator, alpha: float) -> Owner:
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha < np.inf:
        raise ConfigError(f"alpha is {alpha!r}: give a number above 0, such as 0.5 (smaller is more uneven)")
    codes, totals = _classes(table, "dirichlet")
    counts = np.stack([_cut(total, rng.dirichlet(np.full(clients, alpha))) for total in totals], axis=1)
    _feed_empty(counts)
    return _deal(codes, counts, rng)


def read_owners(table: Table, column: str | None) -> NDArray[Any]:
    """Return the values by which a column divides the rows; none may be missing."""
    if column is None:
        raise ConfigError("the partition 'by-column' needs the option column: name a group or a feature")
    values = table.group(column)
    missing = np.isnan(values) if np.issubdtype(values.dtype, np.number) else values == ""
    if missing.any():
        raise DataError(
            f"column '{column}' of {table.name} is missing in {int(missing.sum())} rows, which would have no "
            "owner: fill it in or leave these rows out"
        )
    return values


def _by_column(table: Table, clients: int, rng: np.random.Generator, column: str | None) -> Owner:
    distinct, owner = np.unique(read_owners(table, column), return_inverse=True)
    if clients not in (0, len(distinct)):
        raise ConfigError(
            f"clients is {clients}, but column '{column}' has {len(distinct)} values: leave clients out"
        )
    return owner.astype(np.int32)


def _by_file(table: Table, clients: int, rng: np.random.Generator) -> Owner:
    if BY_FILE not in table.groups:
        raise ConfigError(
            "the partition 'by-file' needs several files, or a folder of them: name them as data"
        )
    return _by_column(table, clients, rng, BY_FILE)


def _classes(table: Table, name: str) -> tuple[NDArray[np.int64], Counts]:
    if table.task != "classification":
        raise ConfigError(
            f"the partition '{name}' needs classes and {table.name} has none: use label-sorted or iid"
        )
    _, codes, totals = np.unique(table.target, return_inverse=True, return_counts=True)
    return codes, totals


def _cut(total: int, weights: NDArray[np.float64]) -> Counts:
    edges = np.rint(np.cumsum(weights) / weights.sum() * total).astype(np.int64)
    return np.asarray(np.diff(edges, prepend=0))


def _feed_empty(counts: Counts) -> None:
    """Give every client without rows one of the largest client's, out of its largest class."""
    sizes = counts.sum(axis=1)
    for client in np.flatnonzero(sizes == 0):
        giver = sizes.argmax()
        group = counts[giver].argmax()
        counts[giver, group] -= 1
        counts[client, group] += 1
        sizes[giver] -= 1


def _deal(codes: NDArray[np.int64], counts: Counts, rng: np.random.Generator) -> Owner:
    order = rng.permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    clients, classes = counts.shape
    owner = np.empty(len(codes), dtype=np.int32)
    owner[order] = np.repeat(np.tile(np.arange(clients, dtype=np.int32), classes), counts.T.ravel())
    return owner


CLIENTS = Option("clients", "int", 100, "Number of clients; left out for by-column and by-file.")
_SHARE = Option("share", "float", 0.5, "Share of the rows of a skewed client that are of its main classes.")
_ALPHA = Option("alpha", "float", 0.5, "How even proportions are: 100 is nearly IID, 0.1 is severe.")
_COLUMN = Option("column", "str | None", None, "Column of which each value is a client.")


def _skewed(name: str, summary: str, each: int = 1) -> Partitioner:
    return Partitioner(partial(_by_majority, name=name, each=each), summary, (_SHARE,))


_ONE = "each of the first k clients holds mostly one class, the others are mixed; equal sizes"
PARTITIONERS: Mapping[str, Partitioner] = {
    "iid": Partitioner(_iid, "a shuffled, equal share: the easy case, and the reference"),
    "label-sorted": Partitioner(_label_sorted, "by class (or target), cut into equal parts: the extreme"),
    "random": Partitioner(_random, "every row goes to a random client"),
    "majority-even": _skewed("majority-even", _ONE),
    "majority": _skewed("majority", "as majority-even, with unequal sizes"),
    "pick-two": _skewed("pick-two", "each of the first k/2 clients holds mostly two classes; equal sizes", 2),
    "dirichlet": Partitioner(
        _dirichlet, "class by class, in proportions of a Dirichlet distribution", (_ALPHA,)
    ),
    "by-column": Partitioner(
        _by_column, "all rows with one value of a column: the natural division", (_COLUMN,)
    ),
    "by-file": Partitioner(_by_file, "all rows of one file, under its name: one client for each site's file"),
}


def split(table: Table, test: float | str | None, seed: int) -> tuple[Table, Table | None]:
    """Keep rows for a central test: a share drawn by class, or the data set's own division."""
    if test is None or test == 0:
        return table, None
    if isinstance(test, str):
        if test != "split":
            raise ConfigError(f"test = '{test}': give a share such as 0.3, or 'split'")
        kind = table.group("split").astype(str)
        return table.take(kind == "train"), table.take(kind == "test")
    if not 0 < test < 1:
        raise ConfigError(f"test is {test}: give a share between 0 and 1, 'split', or 0 for none")
    from sklearn.model_selection import train_test_split

    # The split that everybody knows, so that anyone can repeat a figure outside Tacit. A class of a
    # single row stays in training.
    codes = table.target if table.task == "classification" else np.zeros(table.rows, dtype=np.int64)
    rows = np.flatnonzero(np.bincount(codes)[codes] > 1) if table.rows else codes
    if table.rows and not len(rows):
        raise DataError(
            f"all {len(table.classes)} classes have a single row, so none can be learnt and tested: "
            "join classes, or check the target column"
        )
    for classes in (codes[rows], None):  # by class, unless there are fewer test rows than classes
        with suppress(ValueError):
            _, chosen = train_test_split(rows, test_size=test, stratify=classes, random_state=seed % 2**32)
            break
    else:
        raise DataError(
            f"{table.rows} rows cannot be divided into {test:.0%} test and the rest: use more rows"
        )
    testing = np.zeros(table.rows, dtype=bool)
    testing[chosen] = True
    return table.take(~testing), table.take(testing)
