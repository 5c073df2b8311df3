"""Sections about what the run cost, and how the data lay: partition, traffic, time and energy."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.ledger.sentences import step_words
from tacit.runs.page import figures
from tacit.runs.page.drawing import THIRD, WHOLE
from tacit.runs.page.units import count, decimal, energy_text, part, significant, size_text, time_text

SKEW = {"s": "s", "gini": "Gini coefficient", "entropy": "entropy in bits"}
WAVES_SHOWN = 24
HEADS = ("wave", "step", "asked", "failed", "up", "down", "CPU clients", "CPU coordinator", "wall clock")


def draw_division(result: Mapping[str, Any]) -> dict[str, Any]:
    """Draw rows and classes over clients, and how skewed they are."""
    skew, drawings = part(result, "skew"), []
    if skew:
        counts = np.array(skew["counts"], dtype=np.float64)
        labels = part(result, "classes") or range(counts.shape[1])
        drawings.append((figures.division(counts, labels), _division_caption(counts)))
    return {
        "drawings": drawings,
        "sites": [[name, count(n)] for name, n in part(result, "sites").items()],
        "spreads": [_distribution(np.array(skew[key]), name, decimal) for key, name in SKEW.items() if skew],
    }


def _division_caption(counts: NDArray[np.float64]) -> str:
    clients, classes = counts.shape
    rows = counts.sum(axis=1)
    sizes = f"{count(rows.min())} to {count(rows.max())}" if np.ptp(rows) else count(rows[0])
    present = (counts > 0).sum(axis=1)
    seen = f"a client knows {decimal(float(present.mean()), 1)} of {classes} classes on average"
    text = (
        f"{count(clients)} clients with {sizes} rows each; {seen}. Above: rows. Below: shares of the classes."
    )
    if figures.columns_of(counts)[1] == 1:
        return text
    merged = count(clients / figures.COLUMNS)
    return f"{text} Each column is the mean of about {merged} clients, ordered by largest class."


def _distribution(
    values: NDArray[np.float64],
    name: str,
    write: Callable[[float], str],
    width: float = THIRD,
) -> tuple[str, str]:
    if len(values) == 0:
        return "", ""
    title = name if len(name) == 1 else name[0].upper() + name[1:]
    low, middle, high = (float(value) for value in np.quantile(values, [0, 0.5, 1]))
    spread = (high - low) / max(abs(high), abs(low), 1e-12)
    if spread < 0.03:
        about = "" if spread < 1e-9 else f", to within {np.ceil(1000 * spread) / 10:g} %"
        return "", f"{title}: {write(middle)} at every client{about}."
    caption = f"{title}: median {write(middle)}, from {write(low)} to {write(high)}."
    return figures.histogram(values, name, write, width=width), caption


def traffic_facts(result: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and remark of what travelled."""
    ledger, waves = result["ledger"], result["ledger"]["waves"]
    for way, words in (("up", "sent by a client"), ("down", "received by a client")):
        spread = ledger[f"bytes_{way}_per_client"]
        yield words, size_text(spread["mean"]), f"mean; at most {size_text(spread['max'])}"
    up, down = ledger["bytes_up"], ledger["bytes_down"]
    yield "all traffic", size_text(up + down), f"{size_text(up)} up, {size_text(down)} down"
    routes = (f"{count(sent)} {route}" for route, sent in ledger["messages_by_route"].items() if sent)
    yield "messages", count(ledger["messages"]), "; ".join([*routes, f"{count(len(waves))} waves"])
    if (added := part(result, "engine").get("overhead_bytes")) is not None:
        mean = time_text(sum(wave["wall_s"] for wave in waves) / max(1, len(waves)))
        yield "Flower's own bytes", size_text(added), f"beside ours; a wave took {mean} on average"
    first = ledger["privacy"] or {}
    for spent in (first, first.get("rows")):
        if spent:
            whom = spent.get("unit", "client")
            words = f"of {spent['budget']:g}, at delta {spent['delta']:g}; for leaving out any one {whom}"
            yield "epsilon", f"{spent['epsilon']:.4g}", words


def time_facts(result: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and remark of what was computed."""
    ledger = result["ledger"]
    who = {"slowest_client": "slowest client", "coordinator": "coordinator", "services": "other servers"}
    waits = (f"{time_text(ledger['cpu_s'][key])} {word}" for key, word in who.items() if ledger["cpu_s"][key])
    yield "training time", time_text(ledger["training_s"]), " + ".join(waits)
    yield "all CPU time", time_text(ledger["sum_cpu_s"]), "every client + coordinator"
    yield "energy", energy_text(ledger["wh"]), f"at {ledger['watts']:g} W for each processor"
    if (measured := ledger.get("measured_wh")) is not None:
        yield "energy, metered", energy_text(measured), "of this machine, with all that ran on it"
    if (co2 := ledger.get("co2_g")) is not None:
        yield "CO2", f"{significant(co2)} g", "of the nominal energy, on the grid that was named"
    if (memory := ledger.get("memory_mb")) is not None:
        yield "peak memory", size_text(memory * 2**20), "of this process and its workers, all parties in them"


def read_traffic(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what travelled."""
    if not (ledger := part(result, "ledger")):
        return {"cards": [], "drawing": ""}
    ways = ([wave[key] for wave in ledger["waves"]] for key in ("bytes_up", "bytes_down"))
    drawing = figures.wave_traffic(*ways) if ledger["waves"] else ""
    return {"cards": list(traffic_facts(result)), "drawing": drawing}


def read_times(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return CPU time of clients and coordinator, energy, and the table of waves."""
    if not (ledger := part(result, "ledger")):
        return {"cards": [], "drawings": [], "heads": HEADS, "waves": []}
    each, waves = np.array(ledger["per_client"]["cpu_s"]), ledger["waves"]
    spread = _distribution(each, "CPU time of a client", time_text, WHOLE)
    half = WAVES_SHOWN // 2
    shown: Sequence[Any] = waves if len(waves) <= WAVES_SHOWN else [*waves[:half], None, *waves[-half:]]
    rows = [
        [
            *(str(wave["wave"]), step_words(wave["step"])),
            *(count(wave[key]) for key in ("parties", "failures")),
            *(size_text(wave[key]) for key in ("bytes_up", "bytes_down")),
            *(time_text(wave[key]) for key in ("cpu_clients_s", "cpu_coordinator_s", "wall_s")),
        ]
        if wave
        else ["…"] * len(HEADS)
        for wave in shown
    ]
    return {"cards": list(time_facts(result)), "drawings": [spread], "heads": HEADS, "waves": rows}
