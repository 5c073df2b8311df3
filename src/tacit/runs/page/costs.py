"""Sections about what the run cost, and how the data lay: partition, traffic, time and energy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.ledger.sentences import step_words
from tacit.runs.page import figures
from tacit.runs.page.division import COLUMNS, columns_of, division
from tacit.runs.page.markup import cards, figure, grid, part, section, sentence, table
from tacit.runs.page.units import count, decimal, energy_text, escape, privacy_words, size_text, time_text

SKEW = {"s": "s", "gini": "Gini coefficient", "entropy": "entropy in bits"}
WAVES_SHOWN = 24


def partition_section(result: Mapping[str, Any]) -> str:
    """Set the picture of rows and classes over clients, and how skewed they are."""
    skew, picture, told = part(result, "skew"), "", ""
    if skew:
        counts = np.array(skew["counts"], dtype=np.float64)
        labels = part(result, "classes") or range(counts.shape[1])
        picture = figure(division(counts, labels), _division_caption(counts))
        told = sentence(
            "Skew of each client: the fewer classes it holds, the larger are s and the Gini coefficient (0 "
            "if even), and the smaller is the entropy (0 for a single class)."
        )
    spreads = [
        _distribution(np.array(skew[key]), name, lambda value: f"{value:.2g}", decimal)
        for key, name in SKEW.items()
        if skew
    ]
    named = table(["client", "rows"], [[name, count(n)] for name, n in part(result, "sites").items()])
    return section("How the data lie", picture, named, told, grid("three", *spreads))


def _division_caption(counts: NDArray[np.float64]) -> str:
    clients, classes = counts.shape
    rows = counts.sum(axis=1)
    sizes = f"{count(rows.min())} to {count(rows.max())}" if np.ptp(rows) else count(rows[0])
    present = (counts > 0).sum(axis=1)
    seen = f"a client knows {decimal(float(present.mean()), 1)} of {classes} classes on average"
    text = f"{count(clients)} clients with {sizes} rows each; {seen}. Above: rows. Below: shares of the "
    if columns_of(counts)[1] == 1:
        return f"{text}classes."
    merged = count(clients / COLUMNS)
    return f"{text}classes. Each column is the mean of about {merged} clients, ordered by largest class."


def _distribution(
    values: NDArray[np.float64],
    name: str,
    tick: Callable[[float], str],
    write: Callable[[float], str],
    *,
    width: float = figures.THIRD,
    mark: tuple[float, str] | None = None,
) -> str:
    """Set a histogram with its median and range, or one sentence if the values hardly differ."""
    if len(values) == 0:
        return ""
    title = name if len(name) == 1 else name[0].upper() + name[1:]
    low, middle, high = (float(value) for value in np.quantile(values, [0, 0.5, 1]))
    spread = (high - low) / max(abs(high), abs(low), 1e-12)
    if spread < 0.03:
        about = "" if spread < 1e-9 else f", to within {np.ceil(1000 * spread) / 10:g} %"
        return f'<p class="quiet">{escape(f"{title}: {write(middle)} at every client{about}.")}</p>'
    caption = f"{title}: median {write(middle)}, from {write(low)} to {write(high)}."
    return figure(figures.histogram(values, name, tick, width=width, mark=mark), caption)


def traffic_section(result: Mapping[str, Any]) -> str:
    """Set what travelled: totals, per wave and per client."""
    ledger = part(result, "ledger")
    if not ledger:
        return ""
    items, spreads = [], []
    for key, name in (("bytes_up", "sent by a client"), ("bytes_down", "received by a client")):
        spread, each = ledger[f"{key}_per_client"], np.array(ledger["per_client"][key])
        most = f"mean; at most {size_text(spread['max'])}"
        items.append((name.capitalize(), size_text(spread["mean"]), most))
        spreads.append(_distribution(each, name, size_text, size_text, width=figures.HALF))
    up, down = ledger["bytes_up"], ledger["bytes_down"]
    items.append(("All traffic", size_text(up + down), f"{size_text(up)} up, {size_text(down)} down"))
    routes = ledger["messages_by_route"].items()
    ways = "; ".join(f"{count(sent)} {route}" for route, sent in routes if sent)
    items.append(("Messages", count(ledger["messages"]), ways))
    if spent := ledger["privacy"]:
        items.append(("Epsilon", decimal(spent["epsilon"]), privacy_words(spent)))
    return section("What travelled", cards(items, "card cost"), _waves(result), grid("two", *spreads))


def _waves(result: Mapping[str, Any]) -> str:
    """Set the bytes of each wave, and what a deployed engine added to them."""
    waves = part(result, "ledger", "waves")
    if not waves:
        return ""
    names = [f"{wave['wave']}  {step_words(wave['step'])}" for wave in waves]
    svg = figures.wave_traffic(names, *([wave[key] for wave in waves] for key in ("bytes_up", "bytes_down")))
    spread = "in each wave of asks and replies" if len(waves) <= figures.FEW else "added up over the waves"
    plot = figure(svg, f"Bytes as encoded, over all clients, {spread}.")
    added = part(result, "engine").get("overhead_bytes")
    if added is None:
        return plot
    mean = sum(wave["wall_s"] for wave in waves) / len(waves)
    told = f"Flower added {size_text(added)} to these bytes; a wave took {time_text(mean)} on average."
    return plot + sentence(told)


def time_section(result: Mapping[str, Any]) -> str:
    """Set CPU time of clients and coordinator, energy, and the table of waves."""
    ledger = part(result, "ledger")
    if not ledger:
        return ""
    slowest, coordinator = (time_text(ledger["cpu_s"][key]) for key in ("slowest_client", "coordinator"))
    waits = f"{slowest} slowest client + {coordinator} coordinator"
    items = (
        ("Training time", time_text(ledger["training_s"]), waits),
        ("All CPU time", time_text(ledger["sum_cpu_s"]), "every client + coordinator"),
        ("Energy", energy_text(ledger["wh"]), f"at {ledger['watts']:g} W for each processor"),
    )
    each = np.array(ledger["per_client"]["cpu_s"])
    mark = (float(each.max()), f"slowest {time_text(float(each.max()))}") if len(each) else None
    spread = _distribution(each, "CPU time of a client", time_text, time_text, width=figures.WHOLE, mark=mark)
    return section("What it cost", cards(items, "card cost"), spread, _wave_table(ledger["waves"]))


def _wave_table(waves: Sequence[Mapping[str, Any]]) -> str:
    half = WAVES_SHOWN // 2
    shown = waves if len(waves) <= WAVES_SHOWN else [*waves[:half], {}, *waves[-half:]]
    heads = ["wave", "step", "asked", "failed", "up", "down", "CPU clients", "CPU coordinator", "wall clock"]
    return table(heads, [_wave_row(wave) if wave else ["…"] * len(heads) for wave in shown], words=2)


def _wave_row(wave: Mapping[str, Any]) -> list[str]:
    return [
        str(wave["wave"]),
        step_words(wave["step"]),
        *(count(wave[key]) for key in ("parties", "failures")),
        *(size_text(wave[key]) for key in ("bytes_up", "bytes_down")),
        *(time_text(wave[key]) for key in ("cpu_clients_s", "cpu_coordinator_s", "wall_s")),
    ]
