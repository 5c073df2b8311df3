"""What a run will cost and show, before it runs: rehearsed on a few rows of each client, and reckoned up.

How many bytes travel does not depend on how many rows a client has, and each round costs what the one before
cost. So the run is rehearsed, with its clients and its protection, with few rows and a few more, for one
round and for two; what follows is linear in both::

    cost(rows, rounds) = a + b rows + (rounds - 1) (c + d rows)

The rows of a rehearsal hold every class and category that its client has, so that what is told of them is as
long; for boosted trees they are all rows, since which buckets hold rows says how much is sent.
"""

from collections.abc import Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np

from tacit.core.errors import ConfigError, OversizeError
from tacit.core.events import Events
from tacit.data.table import Table
from tacit.engines.holdings import Holdings
from tacit.federation import Federation
from tacit.ledger.cost import SECONDS_PER_HOUR, peak_megabytes
from tacit.ledger.sentences import phrase, sentences
from tacit.methods.compatibility import warnings_before
from tacit.runs.experiment import build_federation
from tacit.runs.settings import Settings
from tacit.training import Record

FEW, MORE = 40, 160  # rows of a client in the rehearsals
MOST = 300  # clients that rehearse
SPARE = 5  # rows of each class and category that a client keeps: as many as may be learnt from
WAVE_S = 0.7  # on Flower, of sites on one machine; `python -m benchmarks._flower_wave` measures it
ALONE = (
    "a total is over one client, and shows that client to whoever sees it; have more clients, or ask more of "
    "them in a round (fraction)"
)
COUNTED = ("bytes_up", "bytes_down", "messages")
MEASURED = (*COUNTED, "bytes_up_per_client", "bytes_down_per_client", "bytes_by_form", "waves", "exact")
TIMED = ("cpu_s", "sum_cpu_s", "training_s", "flower_s", "wh", "memory_mb", "privacy", "exposure")
WARNED = ("protection", "privacy")  # of what a rehearsal's warnings may be about: others are of its rows


def thin_rows(table: Table, rows: int) -> Any:
    """Return which rows to keep: some of each class and category, and as many others as fit."""
    kept = np.zeros(table.rows, dtype=bool)
    kept[:rows] = True
    words = [table.values[:, place] for place, own in enumerate(table.columns) if own.kind == "category"]
    for codes in [table.target, *words] if table.task == "classification" else words:
        order = np.argsort(codes, kind="stable")
        _, first, counts = np.unique(codes[order], return_index=True, return_counts=True)
        for place, count in zip(first, counts, strict=True):
            kept[order[place : place + min(int(count), SPARE)]] = True
    return np.flatnonzero(kept)


def thin(holdings: Holdings, rows: int, clients: int) -> Holdings:
    """Return holdings with so many rows of each of the first clients, and those that they keep aside."""
    chosen, offsets, kept = [], [0], []
    for index in range(clients):
        own, aside = holdings.rows(index), holdings.holdout_rows(index)
        pieces = [thin_rows(own, rows), own.rows + thin_rows(aside, rows)]
        chosen.append(np.concatenate(pieces) + holdings.offsets[index])
        offsets.append(offsets[-1] + len(chosen[-1]))
        kept.append(len(pieces[1]))
    table = holdings.table.take(np.concatenate(chosen))
    return Holdings(table, np.array(offsets), holdings.names[:clients], np.array(kept))


def rehearse(settings: Settings, federation: Federation, rows: int, clients: int) -> dict[str, Any]:
    """Train on few rows and return the ledger's summary, with who saw what and the rows that there were."""
    held = thin(federation.holdings, rows, clients)
    few = Federation(held, seed=federation.seed, quorum=federation.quorum, declared=federation.declared)
    record = Record()
    training = few.train(**settings.training(), events=Events(record), record=record)
    sizes = np.diff(held.offsets)
    summary = training.ledger.summary(settings.run.watts)
    seen = record.exposure.summary()
    totals = {phrase(row["what"]) for row in seen if row["class"] == "aggregate" and row["over"] == 1}
    alone = sorted(each for each in totals if each.startswith("total"))
    warned = [note["text"] for note in record.notes if note["level"] == "warning" and note["about"] in WARNED]
    told = {"exposure": sentences(seen, planned=True), "alone": alone, "warned": warned}
    return {**summary, "rows": sizes, **told}


def plan(settings: Settings) -> dict[str, Any]:
    """Return bytes, time, energy, memory and exposure of a run, and what to be warned of, before it runs."""
    settings.check()
    if settings.brings_own_rows:
        raise ConfigError(
            "a plan needs rows like those of the sites: give --data a file of one site, or a sample"
        )
    federation = build_federation(settings)
    method, protection = settings.build_method(), settings.build_protection()
    sizes = np.diff(federation.holdings.offsets)
    config = method.config()
    counted_by = next((name for name in ("rounds", "trees") if name in config), None)
    clients, rounds = min(federation.clients, MOST), config.get(counted_by or "")
    row_epsilon = method.own_epsilon
    if hasattr(method, "foresee"):
        rounds, row_epsilon = method.foresee()
    # Without many more rows than rehearse, the first rehearsal is the run.
    row_counts = [FEW, MORE] if sizes.mean() > MORE and counted_by != "trees" else [int(sizes.max())]
    round_counts = [None] if rounds is None else [1] if rounds == 1 else [1, 2]
    before = warnings_before(method, protection, settings.build_preparation(), federation.clients)
    warned = [*before["privacy"], *before["protection"]]
    known = {"method": method.name, "clients": federation.clients, "rows": int(sizes.sum()), "rounds": rounds}
    promises = protection.promises
    known |= {
        "protect": protection.name,
        "settings": protection.config(),  # bits of keys among them
        "bytes_per_value": promises.bytes_per_value,
        "adds_noise": protection.adds_noise,
        "precision": promises.precision,
        "sees": promises.sees,
        "undone_by": promises.collusion,
    }
    try:
        found = {
            (place, count or 1): rehearse(
                replace(settings, method={**settings.method, **({counted_by: count} if counted_by else {})}),
                federation,
                rows,
                clients,
            )
            for place, rows in enumerate(row_counts)
            for count in round_counts
        }
    except OversizeError as refusal:
        warned.insert(0, f"this run would be refused: {refusal}")
        return {**known, "fits": False, **dict.fromkeys((*MEASURED, *TIMED)), "warnings": warned}
    first, last, wanted = found[0, 1], found[len(row_counts) - 1, 1], rounds or 1
    scale = federation.clients / clients
    counted = {name: _at(found, wanted, itemgetter(name)) for name in COUNTED}
    cpu = _in_rows(found, sizes, wanted)
    cpu |= {name: cpu[name] * scale for name in ("clients", "coordinator")}
    waves = _at(found, wanted, lambda each: len(each["waves"]))
    total = cpu["clients"] + cpu["coordinator"] + cpu["services"]
    # Who is drawn for a round, which trees end early and, here and there, the rows decide how much is sent.
    steady = (
        counted_by != "trees"
        and config.get("fraction", 1.0) == 1.0
        and rounds == config.get(counted_by or "")
    )
    steady &= all(first[name] == last[name] for name in COUNTED)
    warned += first["warned"]
    if rounds != config.get(counted_by or ""):
        warned.append(f"the budget for any one row ends the training after {rounds} rounds")
    if first["alone"]:
        warned.append(f"{ALONE}: {', '.join(first['alone'])}")
    forms = {
        form: _at(found, wanted, lambda each, form=form: each["bytes_by_form"].get(form, 0))
        for form in last["bytes_by_form"]
    }
    return {
        **known,
        "fits": True,
        "waves": int(waves),
        "messages": round(counted["messages"] * scale),
        "exact": clients == federation.clients and steady,
        "bytes_up_per_client": counted["bytes_up"] / clients,
        "bytes_down_per_client": counted["bytes_down"] / clients,
        "bytes_up": round(counted["bytes_up"] * scale),
        "bytes_down": round(counted["bytes_down"] * scale),
        "bytes_by_form": {form: round(scale * size) for form, size in forms.items()},
        "cpu_s": cpu,
        "sum_cpu_s": total,
        "training_s": (training := total - cpu["clients"] + cpu["slowest_client"]),
        "flower_s": waves * WAVE_S + training,
        "wh": settings.run.watts * total / SECONDS_PER_HOUR,
        "memory_mb": peak_megabytes(),
        "privacy": _spent(found[max(found)]["privacy"], row_epsilon, counted_by),
        "exposure": first["exposure"],
        "warnings": list(dict.fromkeys(warned)),
    }


def _spent(privacy: dict[str, Any] | None, row_epsilon: float, counted_by: str | None) -> Any:
    if privacy and np.isfinite(row_epsilon):  # noise on sums is sized for all rounds, that on rows adds up
        privacy.get("rows", privacy).update({"epsilon": row_epsilon, "sums_left": 0})
    elif privacy and counted_by and privacy["sums_left"]:  # trees that ended early: others may not
        privacy |= {"epsilon": privacy["budget"], "sums_left": 0}
    return privacy


def _at(found: Mapping[tuple[int, int], Any], rounds: int, read: Any) -> float:
    place, most = max(found)
    one = float(read(found[place, 1]))
    more = float(read(found[place, 2])) - one if most > 1 else 0.0
    return one + (rounds - 1) * more


def _round_cpu(found: Mapping[tuple[int, int], Any], place: int) -> tuple[float, float]:
    """Return CPU seconds of clients and coordinator in a round: those of the waves that two rounds have more.

    Not the difference of two runs, which hides it behind the time that making a key takes by chance.
    """
    if (place, 2) not in found:
        return 0.0, 0.0
    one, two = ([wave["step"] for wave in found[place, rounds]["waves"]] for rounds in (1, 2))
    more = len(two) - len(one)
    start = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), len(one))
    waves = found[place, 2]["waves"][start : start + more]
    return sum(wave["cpu_clients_s"] for wave in waves), sum(wave["cpu_coordinator_s"] for wave in waves)


def _cpu(found: Mapping[tuple[int, int], Any], place: int, rounds: int) -> dict[str, float]:
    first, (clients, coordinator) = found[place, 1]["cpu_s"], _round_cpu(found, place)
    slowest = clients * first["slowest_client"] / max(first["clients"], 1e-9)
    more = {"slowest_client": slowest, "clients": clients, "coordinator": coordinator}
    return {name: first[name] + (rounds - 1) * more.get(name, 0.0) for name in first}


def _in_rows(found: Mapping[tuple[int, int], Any], sizes: Any, rounds: int) -> dict[str, float]:
    few = _cpu(found, 0, rounds)
    if (1, 1) not in found:
        return few
    more, reckoned = _cpu(found, 1, rounds), {}
    for name in few:
        rows = [found[0, 1]["rows"], found[1, 1]["rows"], sizes]
        low, high, wanted = (
            float(np.max(each) if name == "slowest_client" else np.mean(each)) for each in rows
        )
        slope = max(0.0, (more[name] - few[name]) / max(high - low, 1.0))
        reckoned[name] = few[name] + slope * (wanted - low)
    return reckoned
