"""Rows of a client from its histograms: what stands in one bucket of every column is one row.

The attacker is the coordinator, who keeps to the protocol. Histograms of gradients are all that FederBoost
sends. But a row's derivatives, which depend on the leaves that it fell into before, are nearly a name: where
the same pair of sums stands in one bucket of each column, these buckets are a row, to their width, and the
sign of the first tells its label. Published attacks on federated trees go further, and solve for rows that
share buckets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tacit import Federation, Table
from tacit.core.message import Message
from tacit.data.inputs import Inputs
from tacit.methods.boosting.cuts import Buckets
from tacit.methods.boosting.growing import Grower
from tacit.methods.federboost import FederBoost
from tacit.protections.noised import Noised
from tests.contract.test_reconstruction import readings

CLIENTS, ROWS, COLUMNS, BUCKETS = 5, 30, 4, 32
METHOD = FederBoost(trees=20, depth=6, buckets=BUCKETS)
LEAST_SUMS = 60  # of trees that end before their last level
EVERY = np.ones(COLUMNS * BUCKETS, dtype=bool)  # place of a histogram
Row = tuple[int, ...]  # the bucket of each column, and the label


def table() -> Table:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(CLIENTS * ROWS, COLUMNS))
    return Table.of(X, (X[:, 0] + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=len(X)) > 0).astype(int))


@cache
def run(
    protect: Any, method: FederBoost = METHOD
) -> tuple[list[set[Row]], dict[str, list[Any]], list[Any], Any]:
    """Train; return each client's rows in buckets, what each sent, and all totals with their siblings.

    And, as the coordinator knows, which places of a histogram are sent.
    """
    held = {f"site-{i}": table().take(slice(i * ROWS, (i + 1) * ROWS)) for i in range(CLIENTS)}
    heard: list[Any] = []
    least = {"min_clients": CLIENTS} if isinstance(protect, Noised) else {"min_count": 5}
    totals: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        plant, extend = Grower.plant, Grower.extend

        def planting(grower: Grower, sums: Any) -> Any:
            totals.append(sums)
            return plant(grower, sums)

        def extending(grower: Grower, record: Any, sums: Any) -> Any:
            used = sums[: len(record["slots"])]
            totals.extend([used, record["parent_sums"] - used])
            return extend(grower, record, sums)

        patch.setattr(Grower, "plant", planting)
        patch.setattr(Grower, "extend", extending)
        training = Federation.of(held, declared={"classes": [0, 1]}).train(
            method, protect=protect, **least, transcript=lambda *received: heard.append(received)
        )
    shared = training.outcome.shared  # None where clients open totals
    rows, used = [], np.ones(COLUMNS * BUCKETS, dtype=bool)
    if shared is not None:
        buckets = Buckets(shared.schema, BUCKETS, shared["cuts"])
        used = (np.arange(BUCKETS) < buckets.widths[:, None]).ravel()
    for one in held.values() if shared is not None else ():
        bins = buckets.fill(Inputs.of(shared).columns(one))
        rows.append({(*row, label) for row, label in zip(bins.tolist(), one.target.tolist(), strict=True)})
    sent: dict[str, list[Any]] = {name: [] for name in held}
    for receiver, sender, step, raw in heard:
        if receiver == "coordinator" and step == "client.contribute":
            for value in Message.decode(raw).values():
                sent[sender].extend(readings(value))
    return rows, sent, totals, used


def linked_rows(values: Any, used: Any) -> Iterator[Row]:
    """Rows of every histogram: sums that stand in one bucket of each column are those of one row."""
    size = int(used.sum()) * 2
    wide = np.zeros((values.size // size, COLUMNS * BUCKETS, 2), values.dtype)
    wide[:, used] = np.reshape(values[: values.size // size * size], (len(wide), size // 2, 2))
    for histogram in wide.reshape(-1, COLUMNS, BUCKETS, 2):
        places = [Counter(map(tuple, column.tolist())) for column in histogram]
        for sums in set.intersection(*({pair for pair, n in one.items() if n == 1} for one in places)):
            if sums[1] != 0:
                buckets = [int((column == sums).all(axis=1).argmax()) for column in histogram]
                yield (*buckets, int(sums[0] < 0))


def found_share(rows: set[Row], seen: list[Any], used: Any = EVERY) -> float:
    found = {row for values in seen for row in linked_rows(np.ravel(values), used)}
    return len(rows & found) / len(rows)


def test_what_single_clients_send_in_the_clear_gives_their_rows_away():
    rows, sent, _, used = run("plain")
    shares = [found_share(own, seen, used) for own, seen in zip(rows, sent.values(), strict=True)]
    assert min(shares) > 0.6, shares
    # It is no chance: of another client's rows none is found.
    others = [found_share(rows[i - 1], seen, used) for i, seen in enumerate(sent.values())]
    assert max(others) < 0.05, others


def test_masked_clients_send_nothing_that_gives_a_row_away():
    rows, sent, totals, used = run("masked")
    size = int(used.sum()) * 2
    for own, seen in zip(rows, sent.values(), strict=True):
        histograms = [one for one in seen if one.size >= size]
        assert len(histograms) >= LEAST_SUMS
        assert found_share(own, seen, used) == 0.0
        assert min(np.mean(one != 0) for one in histograms) > 0.95  # no bucket looks empty
    # What opens is the total, the same as without masks, and nothing else.
    plain = run("plain")[2]
    assert [one.tolist() for one in totals] == [one.tolist() for one in plain]


def test_totals_give_few_rows_away_and_none_of_larger_leaves():
    """Leaves have at least min_count rows, but a total over few rows still has buckets with one of them."""
    rows, _, totals, used = run("masked")
    assert sum((one != 0).any() for one in totals) >= LEAST_SUMS
    assert found_share(set().union(*rows), totals, used) < 0.05
    rows, _, totals, used = run("plain", replace(METHOD, min_child_weight=5.0))
    assert sum((one != 0).any() for one in totals) >= LEAST_SUMS
    assert found_share(set().union(*rows), totals, used) == 0.0


NOISE = Noised(epsilon=8.0, unit="row", where="distributed", inner="plain")


@pytest.mark.parametrize("protect", ["bfv", NOISE], ids=["bfv", "noise without masks"])
def test_neither_encryption_nor_a_part_of_the_noise_gives_a_row_away(protect, keys_once):
    short = replace(METHOD, trees=3)
    with keys_once():
        _, sent, _, _ = run(protect, short)
    rows, plain, _, used = run("plain", short)
    shares = [found_share(own, seen, used) for own, seen in zip(rows, sent.values(), strict=True)]
    control = [found_share(own, seen, used) for own, seen in zip(rows, plain.values(), strict=True)]
    assert max(shares) == 0.0 < 0.1 < min(control), (shares, control)
