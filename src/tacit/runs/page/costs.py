"""Sections about what the run cost, and how the data lay: partition, traffic, time and energy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.ledger.sentences import step_words
from tacit.runs.page import figures
from tacit.runs.page.division import COLUMNS, columns_of, division
from tacit.runs.page.markup import Card, cards, figure, grid, mapping, section, sentence, sequence, table
from tacit.runs.page.units import count, decimal, energy_text, escape, number, numbers, size_text, time_text

SKEW = {"s": "s", "gini": "Gini coefficient", "entropy": "entropy in bits"}
WAVES_SHOWN = 24


def partition_section(result: Mapping[str, Any]) -> str:
    """Set the picture of rows and classes over clients, and how skewed they are."""
    skew = mapping(result.get("skew"))
    counts = _counts(skew.get("counts"))
    picture = ""
    if counts is not None:
        labels = [str(label) for label in sequence(result.get("classes"))]
        labels += [str(i) for i in range(len(labels), counts.shape[1])]
        picture = figure(division(counts, labels), _division_caption(counts))
    spreads = [
        _distribution(numbers(skew.get(key)), name, lambda value: f"{value:.2g}", decimal)
        for key, name in SKEW.items()
    ]
    words = (
        "Skew of each client: the fewer classes it holds, the larger are s and the Gini coefficient (0 if "
        "even), and the smaller is the entropy (0 for a single class)."
    )
    told = sentence(words) if any(spreads) else ""
    sites = [[str(name), count(rows)] for name, rows in mapping(result.get("sites")).items()]
    named = table(["client", "rows"], sites, words=1) if sites else ""
    return section("How the data lie", picture, named, told, grid("three", *spreads))


def _counts(rows: object) -> NDArray[np.float64] | None:
    lines = rows.tolist() if isinstance(rows, np.ndarray) else sequence(rows)
    widths = {len(sequence(line)) for line in lines}
    if len(widths) != 1 or widths == {0}:
        return None
    counts = np.array([numbers(line) for line in lines if len(numbers(line)) == len(line)])
    return counts if len(counts) == len(lines) else None


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
    ledger = mapping(result.get("ledger"))
    waves = [mapping(wave) for wave in sequence(ledger.get("waves")) or sequence(result.get("waves"))]
    if not ledger and not waves:
        return ""
    items = []
    for name, key in (("Sent by a client", "bytes_up"), ("Received by a client", "bytes_down")):
        spread = mapping(ledger.get(f"{key}_per_client"))
        highest = number(spread.get("max"))
        most = "" if highest is None else f"mean; at most {size_text(highest)}"
        items.append((name, size_text(number(spread.get("mean"))), most))
    up, down = number(ledger.get("bytes_up")), number(ledger.get("bytes_down"))
    if up is not None and down is not None:
        items.append(("All traffic", size_text(up + down), f"{size_text(up)} up, {size_text(down)} down"))
    routes = {route: number(sent) for route, sent in mapping(ledger.get("messages_by_route")).items()}
    ways = "; ".join(f"{count(sent)} {route}" for route, sent in routes.items() if sent)
    items.append(("Messages", count(number(ledger.get("messages"))), ways))
    spent = mapping(ledger.get("privacy"))
    epsilon, budget, delta = (number(spent.get(name)) for name in ("epsilon", "budget", "delta"))
    if epsilon is not None and budget is not None and delta is not None:
        words = f"of {budget:g}, at delta {delta:g}; for leaving out any one client"
        items.append(("Epsilon", decimal(epsilon), words))
    each = mapping(ledger.get("per_client"))
    spreads = [
        _distribution(numbers(each.get(key)), name, size_text, size_text, width=figures.HALF)
        for key, name in (("bytes_up", "sent by a client"), ("bytes_down", "received by a client"))
    ]
    return section("What travelled", _cards(items), _waves(result, waves), grid("two", *spreads))


def _cards(items: Iterable[tuple[str, str, str]]) -> str:
    return cards(Card(*item, "cost") for item in items if item[1] != "–")


def _waves(result: Mapping[str, Any], waves: list[Mapping[str, Any]]) -> str:
    """Set the bytes of each wave, and what a deployed engine added to them."""
    if not waves:
        return ""
    svg = figures.wave_traffic(
        [f"{wave.get('wave', i)}  {step_words(wave.get('step', ''))}" for i, wave in enumerate(waves)],
        *([number(wave.get(key)) or 0.0 for wave in waves] for key in ("bytes_up", "bytes_down")),
    )
    spread = "in each wave of asks and replies" if len(waves) <= figures.FEW else "added up over the waves"
    plot = figure(svg, f"Bytes as encoded, over all clients, {spread}.")
    added = number(mapping(result.get("engine")).get("overhead_bytes"))
    if added is None:
        return plot
    mean = sum(number(wave.get("wall_s")) or 0.0 for wave in waves) / len(waves)
    told = f"Flower added {size_text(added)} to these bytes; a wave took {time_text(mean)} on average."
    return plot + sentence(told)


def time_section(result: Mapping[str, Any]) -> str:
    """Set CPU time of clients and coordinator, energy, and the table of waves."""
    ledger = mapping(result.get("ledger"))
    cpu = mapping(ledger.get("cpu_s"))
    slowest, coordinator = number(cpu.get("slowest_client")), number(cpu.get("coordinator"))
    watts = number(ledger.get("watts"))
    power = f"at {watts:g} W for each processor" if watts else ""
    items = (
        ("Training time", time_text(number(ledger.get("training_s"))), "slowest client + coordinator"),
        ("All CPU time", time_text(number(ledger.get("sum_cpu_s"))), "every client + coordinator"),
        ("Energy", energy_text(number(ledger.get("wh"))), power),
    )
    bar = ""
    if slowest is not None and coordinator is not None and slowest + coordinator > 0:
        both = (("slowest client", slowest), ("coordinator", coordinator))
        svg = figures.shares_bar(*((name, value, time_text(value)) for name, value in both))
        bar = figure(svg, "Clients work side by side, so training waits for the slowest.")
    each = numbers(mapping(ledger.get("per_client")).get("cpu_s"))
    mark = (float(each.max()), f"slowest {time_text(float(each.max()))}") if len(each) else None
    spread = _distribution(each, "CPU time of a client", time_text, time_text, width=figures.WHOLE, mark=mark)
    return section("What it cost", _cards(items), bar, spread, _wave_table(ledger))


def _wave_table(ledger: Mapping[str, Any]) -> str:
    waves = [mapping(wave) for wave in sequence(ledger.get("waves"))]
    if not waves:
        return ""
    half = WAVES_SHOWN // 2
    shown = waves if len(waves) <= WAVES_SHOWN else [*waves[:half], {}, *waves[-half:]]
    heads = ["wave", "step", "asked", "failed", "up", "down", "CPU clients", "CPU coordinator", "wall clock"]
    return table(heads, [_wave_row(wave) if wave else ["…"] * len(heads) for wave in shown], words=2)


def _wave_row(wave: Mapping[str, Any]) -> list[str]:
    value = {key: number(wave.get(key)) for key in wave}
    times = ("cpu_clients_s", "cpu_coordinator_s", "wall_s")
    return [
        str(wave.get("wave", "")),
        step_words(wave.get("step", "")),
        count(value.get("parties")),
        count(value.get("failures")),
        size_text(value.get("bytes_up")),
        size_text(value.get("bytes_down")),
        *(time_text(value.get(key)) for key in times),
    ]
