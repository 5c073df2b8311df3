"""How unevenly classes are spread over the clients, and what only rows of several of them show.

References
----------
.. [1] Santos et al., "Exploring Aggregation Strategies for Federated Learning in National Statistics":
   p_ij = N_ij / N_i, P_j = N_j / N and s_i = Σ_j P_j p_ij², from which HWFedAvg weighs client i by
   N_i / s_i and NWFedAvg by its inverse.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.data.findings import Finding
from tacit.data.partition import BY_FILE
from tacit.data.table import Table, count_words

SAMPLE = 10_000  # rows of a site from which the size of a column is taken
STRANGE = 0.1  # share of rows with categories that no other site has: below, they may be rare ones
FAR = 100  # times the others' median of a column: another unit, most likely


class Skew(NamedTuple):
    """Class counts of every client and what follows from them; ``gini`` and ``entropy`` are of its p_ij."""

    counts: NDArray[np.int64]  # (clients, classes): N_ij, the rows of class j at client i
    rows: NDArray[np.int64]  # N_i
    s: NDArray[np.float64]  # s_i: small where a client holds all classes, large where it holds few
    gini: NDArray[np.float64]  # 0 if even, (k - 1)/k if one class only
    entropy: NDArray[np.float64]  # in bits: log2 k if even, 0 if one class only


def skew(codes: NDArray[Any], owner: NDArray[Any], clients: int, classes: int) -> Skew:
    """Measure the label skew of a partition, from the class and the client of every row."""
    cells = owner.astype(np.int64) * classes + codes
    counts = np.bincount(cells, minlength=clients * classes).reshape(clients, classes)
    rows = counts.sum(axis=1)
    # A client without rows has no distribution; its measures are all 0.
    probabilities = counts / np.maximum(rows, 1)[:, None]
    overall = counts.sum(axis=0) / max(len(codes), 1)
    safe = np.where(probabilities > 0, probabilities, 1.0)
    # Gini from the sorted shares p_(1) ≤ … ≤ p_(k) that sum to 1: (2 Σ_j j p_(j) − (k + 1)) / k.
    ranked = np.sort(probabilities, axis=1) @ np.arange(1, classes + 1)
    return Skew(
        counts=counts,
        rows=rows,
        s=probabilities**2 @ overall,
        gini=np.where(rows > 0, np.maximum(2 * ranked - (classes + 1), 0.0) / classes, 0.0),
        entropy=np.abs((safe * np.log2(safe)).sum(axis=1)),
    )


def sites_of(table: Table) -> dict[str, Table]:
    """Return the rows of each file of which a table was made."""
    files = table.groups.get(BY_FILE, np.empty(0))
    return {str(name): table.take(files == name) for name in np.unique(files)}


def look_at_sites(sites: Mapping[str, Table]) -> Iterator[Finding]:
    """Yield warnings on sites that write labels, words or a column's unit in another way than all others."""
    columns = {column.name: column.kind for table in sites.values() for column in table.columns}
    tables = [table.arranged([*columns]) for table in sites.values()]
    if len(sites) < 2 or any([(c.name, c.kind) for c in t.columns] != [*columns.items()] for t in tables):
        return  # that columns differ is told elsewhere
    if tables[0].task == "classification":
        held = [count_words(table.target, table.classes) for table in tables]
        yield from _in_words(dict(zip(sites, held, strict=True)), "labels", tables[0].target_names[0], 0.0)
    numbers = [table.values[:: 1 + table.rows // SAMPLE].astype(np.float64) for table in tables]
    middle = np.array([np.median(np.abs(np.nan_to_num(each)), axis=0) for each in numbers])
    for index, (name, kind) in enumerate(columns.items()):
        if kind == "category":
            held = [count_words(table.values[:, index], table.columns[index].categories) for table in tables]
            yield from _in_words(dict(zip(sites, held, strict=True)), "categories", name, STRANGE)
            continue
        sizes = np.log(np.where(middle[:, index] > 0, middle[:, index], np.nan))
        steps = np.diff(np.sort(sizes), prepend=np.nan, append=np.nan)
        for place in np.flatnonzero(np.fmin(steps[:-1], steps[1:]) > np.log(FAR)):
            site = [*sites][np.argsort(sizes)[place]]
            text = f"is {FAR} times as large or as small in {site} as in others: give it in one unit"
            yield Finding("warning", "range", name, text)


def look_at_repeats(table: Table) -> Iterator[Finding]:
    """Yield a warning if rows are there twice though numbers in them hardly recur otherwise."""
    values = table.values[: 10 * SAMPLE]
    rows = len({(row.tobytes(), aim.tobytes()) for row, aim in zip(values, table.target, strict=False)})
    extra = len(values) - rows
    if extra > len(values) / 20 and 2 * max(len(np.unique(column)) for column in values.T) > rows:
        text = f"{extra:,} rows repeat another one, so that tests hold rows that were learnt: drop them"
        yield Finding("warning", "duplicate", "", text)


def _in_words(held: Mapping[str, Counter[Any]], what: str, name: str, least: float) -> Iterator[Finding]:
    holders = Counter(word for own in held.values() for word in own)
    for site, own in held.items():
        strange = sum(count for word, count in own.items() if holders[word] == 1)
        lacking = any(count == len(held) - 1 and word not in own for word, count in holders.items())
        if lacking and strange > least * own.total():
            text = f"has {what} in {site} that no other file has, and none of some that all others have"
            yield Finding("warning", "labels", name, f"{text}: write them in one way")
