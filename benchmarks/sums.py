"""Protected sums: masks beside Flower's SecAgg+, what they cost per client, and the PRG under them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from math import comb, log, sqrt
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks._harness import Row, alone, cpu
from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError, DataError
from tacit.core.events import Events, Replied
from tacit.core.exposure import COORDINATOR
from tacit.core.layout import Field, Layout
from tacit.core.link import Link
from tacit.core.manifest import Components, Manifest
from tacit.core.marks import contribution
from tacit.core.secret import Secret
from tacit.crypto.masking import add_masks, expand
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.engines.embedded import EmbeddedEngine
from tacit.engines.holdings import Holdings
from tacit.engines.sites import pinned_identity, site_secret
from tacit.federation import Federation
from tacit.ledger.cost import peak_megabytes
from tacit.methods.base import Method
from tacit.methods.fedheonn import FedHEONN
from tacit.protections.masked import Masked
from tacit.protections.secret_sharing.election import NONCE, draw_members, draw_seed

CLIENTS, DROPOUTS, VALUES, BITS = 100, 10, 100_000, 24  # of the comparison with SecAgg+
SIZES = (625, 1250, 2500, 5000)  # clients of the growth, with so many values each:
NARROW = 1500
MANY = 20_000  # clients of the largest run
ROUNDS = 20  # masks per measurement, so that the clock's resolution does not matter


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# -- masks -------------------------------------------------------------------------------------------------


def mask() -> Row:
    """Bytes of mask that are expanded from a seed and added to a vector, per second of one core."""
    vector, seed = np.zeros(VALUES, np.uint32), Secret(bytes(32))
    total = ROUNDS * vector.nbytes / 1e9

    def masked() -> None:
        for _ in range(ROUNDS):
            add_masks(vector, [(seed, 1)])

    def expanded() -> None:
        for _ in range(ROUNDS):
            expand(seed, VALUES, np.uint32)

    both, alone = cpu(masked, expanded, repeats=15)
    note = f"at least; AES-256-CTR expanded and added, {VALUES:,} uint32; expanded only {total / alone:.1f}"
    return Row("mask", total / both, "GB/s", target=2.0, at_least=True, note=note)


# -- a masked sum, all parties in this process -----------------------------------------------------------


def masked_sum(clients: int, values: int, dropouts: int, neighbours: int | None) -> tuple[float, float]:
    """CPU seconds of all parties and the coordinator together, and the bytes that a client sends."""
    vectors = np.random.default_rng(0).uniform(-1, 1, (clients, values)).astype(np.float32)
    rows = {f"client-{number}": row for number, row in enumerate(vectors)}
    gone = set(list(rows)[:: clients // dropouts])

    @dataclass(frozen=True)
    class Update(Method):
        """Sums one vector of each client; some clients vanish before they send it."""

        name = "update"

        def _layout(self, schema):
            return Layout(Field("vector", (values,), 1.0))

        @contribution(_layout, revealed=True)
        def update(self, party, shared):
            if party.id in gone:
                raise DataError("vanished")
            return {"vector": rows[party.id]}

    components = Components(Update(), Masked(bits=BITS, neighbours=neighbours), Preparation(scale="none"))
    manifest = Manifest.of("bench", components, experiment=True)
    table = Table.of(np.zeros((clients, 1)), np.zeros(clients), task="regression")
    holdings = Holdings(table, np.arange(clients + 1), list(rows))
    sent: list[int] = []
    link = Link(
        EmbeddedEngine(holdings, assemble=lambda _: components),
        manifest,
        components,
        Events(lambda _, event: sent.append(event.bytes_up) if isinstance(event, Replied) else None),
        secret=site_secret(0, COORDINATOR),
        pinned=partial(pinned_identity, 0),
    )
    coordinator = Coordinator(link)
    coordinator.enrol()
    sent.clear()
    started = time.process_time()
    coordinator.protection.prepare(1)
    total = coordinator.reveal(components.method.update)
    seconds = time.process_time() - started
    expected = np.sum([row for name, row in rows.items() if name not in gone], axis=0, dtype=float)
    assert np.abs(total["vector"] - expected).max() < clients * 2.0**-BITS
    return seconds, sum(sent) / total.contributors


def flower(neighbours: int, threshold: int) -> dict[str, float] | None:
    """The same work by Flower's SecAgg+, whose shares count a client among its neighbours."""
    tell(f"Flower's SecAgg+ with {neighbours} neighbours: once, as it takes its time")
    script = Path(__file__).with_name("_secaggplus.py")
    shape = (CLIENTS, DROPOUTS, VALUES, neighbours + 1, threshold)
    command = [sys.executable, str(script), *map(str, shape)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def beside_flower() -> list[Row]:
    """A masked sum on the sparse and on the complete graph, in CPU and in bytes."""
    rows, sizes = [], {}
    cases = (("masked-100-k20", 20, 20.0), ("masked-100-complete", CLIENTS - 1, 75.0))
    for name, neighbours, target in cases:
        runs = [masked_sum(CLIENTS, VALUES, DROPOUTS, neighbours) for _ in range(3)]
        seconds, sizes[neighbours] = min(runs)
        threshold = Masked(neighbours=neighbours).sizing(CLIENTS)[1]
        theirs = flower(neighbours, threshold)
        note = (
            f"{CLIENTS} clients × {VALUES:,} values, {DROPOUTS} vanish before the upload, {neighbours} "
            f"neighbours, {threshold} shares open; {BITS} bits a value (Flower: 22); CPU of all parties, "
            "agreeing on keys and codec included, enrolment not; least of 3"
        )
        if theirs is None:
            note += f"; target {target:g} times Flower's SecAgg+, which did not run"
        baseline = theirs and theirs["cpu_s"]
        rows.append(Row(name, seconds, "s", baseline, target if theirs else None, note=note))
        if theirs is not None:
            sizes[-neighbours] = theirs["bytes"]
    note = f"at most; all that a client sends after enrolment, {CLIENTS - 1} neighbours (the most)"
    note += f"; with 20: {sizes[20]:,.0f}"
    if -20 in sizes:
        note += f"; Flower {sizes[1 - CLIENTS]:,.0f} and {sizes[-20]:,.0f}"
    rows.append(Row("masked-100-bytes", sizes[CLIENTS - 1], "bytes", target=450_000.0, note=note))
    return rows


def growth() -> Row:
    """How much faster than log² n the CPU per client grows, from 625 to 5,000 clients."""
    each = {}
    for clients in SIZES:
        tell(f"masked sum of {clients:,} clients × {NARROW:,} values")
        seconds, _ = masked_sum(clients, NARROW, clients // 10, None)
        each[clients] = seconds / clients
    first, last = SIZES[0], SIZES[-1]
    allowed = (log(last) / log(first)) ** 2
    costs = ", ".join(
        f"{n:,}: {seconds * 1e3:.2f} ms ({Masked().sizing(n)[0]})" for n, seconds in each.items()
    )
    note = (
        f"at most; growth of the CPU per client from {first} to {last:,} clients × {NARROW:,} values, a "
        f"tenth vanishing, over that of log² n, which is {allowed:.2f}; per client (neighbours) {costs}; "
        f"{last:,} clients {each[last] * last:.0f} s in all"
    )
    return Row("masked-growth", each[last] / each[first] / allowed, "× log² n", target=1.0, note=note)


# -- the election of a committee ---------------------------------------------------------------------------


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
    """Count how many seats colluders take; return the number of elections for 0, 1, … members.

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
        chosen = draw_members(draw_seed("run", draw + 1, [rng.bytes(NONCE)]), honest + friends, members)
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


def election() -> Row:
    """How far from fair the colluders' chance of all seats is, in standard errors."""
    clients, seats, elections = 16, 3, 10_000
    rng = np.random.default_rng(5)
    drawn, voted = (
        simulate_elections(clients, seats, seats, elections, rng, rule=rule)[seats] / elections
        for rule in ("draw", "votes")
    )
    fair = 1 / comb(clients, seats)
    errors = abs(drawn - fair) / sqrt(fair * (1 - fair) / elections)
    note = (
        f"at most; {seats} colluders of {clients} took all {seats} seats in {drawn:.2%} of {elections:,} "
        f"elections, fair is {fair:.2%}; by raw votes, as published, in {voted:.1%}"
    )
    return Row("election", float(errors), "standard errors", target=3.0, note=note)


# -- totals that only clients open -------------------------------------------------------------------------


def padded_run(data: str, clients: int, protect: str, **data_settings: Any) -> dict[str, Any]:
    """CPU seconds, bytes and memory of FedHEONN, from enrolment to the model."""
    federation = Federation.embedded(data, clients=clients, **data_settings)
    training = federation.train(
        FedHEONN(), protect=Masked(opens="clients") if protect == "masked" else protect
    )
    summary = training.ledger.summary()
    return {"mb": peak_megabytes(), "bytes": summary["bytes_up"] / clients, **summary["cpu_s"]}


def padded() -> list[Row]:
    """``masked --opens clients`` beside ``bfv`` on digits, and with 20,000 clients of MiniBooNE's shape."""
    runs = {name: [padded_run("digits", CLIENTS, name) for _ in range(3)] for name in ("masked", "bfv")}
    ours, theirs = (min(run["clients"] + run["coordinator"] for run in found) for found in runs.values())
    note = f"{CLIENTS} clients, FedHEONN on digits, whole run, all parties; beside bfv; least of 3"
    made = [Row("padded-digits", ours, "s", theirs, target=0.5, note=note)]
    tell(f"FedHEONN of {MANY:,} clients under masked totals that clients open")
    command = alone(__file__, MANY)
    many = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
    note = f"at most; {MANY:,} clients of MiniBooNE's shape, whole run, all in one process"
    each = many["clients"] / MANY * 1e3
    return [
        *made,
        Row("padded-20000-client-ms", each, "ms", target=20.0, note=f"{note}; {many['bytes']:,.0f} bytes up"),
        Row("padded-20000-coordinator-s", many["coordinator"], "s", target=60.0, note=note),
        Row("padded-20000-mb", many["mb"], "MB", target=2000.0, note=note),
    ]


def rows() -> list[Row]:
    return [mask(), election(), *beside_flower(), growth(), *padded()]


if __name__ == "__main__":
    shape = {"partition": "iid", "test": 0.3, "rows": 130_064}
    print(json.dumps(padded_run("synthetic-miniboone", int(sys.argv[1]), "masked", **shape)))
