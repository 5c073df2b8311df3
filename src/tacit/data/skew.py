"""How unevenly the classes are spread over the clients.

References
----------
.. [1] Santos et al., "Exploring Aggregation Strategies for Federated Learning in National Statistics":
   p_ij = N_ij / N_i, P_j = N_j / N and s_i = Σ_j P_j p_ij², from which HWFedAvg weighs client i by
   N_i / s_i and NWFedAvg by its inverse.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.data.findings import Finding
from tacit.data.partition import BY_FILE
from tacit.data.table import Table

FAR = 100  # times the others' median of a column: another unit, most likely


class Skew(NamedTuple):
    """Class counts of every client and what follows from them; ``gini`` and ``entropy`` are of its p_ij."""

    counts: NDArray[np.int64]  # (clients, classes): N_ij, the rows of class j at client i
    rows: NDArray[np.int64]  # N_i
    s: NDArray[np.float64]  # s_i: small where a client holds all classes, large where it holds few
    gini: NDArray[np.float64]  # 0 if even, (k - 1)/k if one class only
    entropy: NDArray[np.float64]  # in bits: log2 k if even, 0 if one class only


def skew(codes: NDArray[Any], owner: NDArray[Any], clients: int, classes: int) -> Skew:
    """Measure the label skew of a partition, from the class and the client of every row.

    >>> found = skew(np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1]), clients=2, classes=2)
    >>> found.counts.tolist(), found.gini.tolist(), found.entropy.tolist()
    ([[2, 0], [1, 1]], [0.5, 0.0], [0.0, 1.0])
    """
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


def look_at_sites(table: Table) -> Iterator[Finding]:
    """Yield warnings on files that write labels, or a column's unit, in another way than all others."""
    files = table.groups.get(BY_FILE, np.empty(0))
    sites = {str(name): np.flatnonzero(files == name) for name in np.unique(files)}
    if len(sites) < 2:
        return
    held = {site: {*np.unique(table.target[rows])} for site, rows in sites.items()} if table.classes else {}
    for site, labels in held.items():
        others = [held[other] for other in held if other != site]
        if labels - set.union(*others) and set.intersection(*others) - labels:
            text = f"has labels in {site} that no other file has, and none of some that all others have"
            yield Finding("warning", "labels", table.target_names[0], f"{text}: write them in one way")
    for index, column in enumerate(table.columns):
        sizes = np.abs(np.nan_to_num(table.values[:, index].astype(np.float64)))
        middle = {site: np.median(sizes[rows]) or np.nan for site, rows in sites.items()}
        for site in sites if column.kind == "number" else ():
            apart = [abs(np.log(middle[site] / middle[other])) for other in sites if other != site]
            if min(apart) > np.log(FAR):
                text = f"is {FAR} times as large or as small in {site} as in others: give it in one unit"
                yield Finding("warning", "range", column.name, text)
