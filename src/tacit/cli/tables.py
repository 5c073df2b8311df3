"""Tables that people read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tacit.ledger.sentences import exposes_one, saw
from tacit.runs.page.units import energy_text, size_text, time_text

MODELS = (
    ("federated", "federated"),
    ("centralised", "centralised"),
    ("local", "mean of local models"),
    ("clients' own hold-outs", "clients' hold-outs"),
)
NO_SCORES = "no scores: no rows were kept for a test; --test 0.3 or --holdout 0.2 keeps some"
CLASSIFICATION = (
    *(("accuracy", "accuracy"), ("balanced_accuracy", "balanced"), ("f1", "macro F1")),
    *(("auc", "ROC-AUC"), ("pr_auc", "PR-AUC"), ("loss", "log loss")),
)
REGRESSION = (("mse", "MSE"), ("rmse", "RMSE"), ("mae", "MAE"), ("r2", "R²"))


def run_table(result: Mapping[str, Any]) -> RenderableType:
    """Lay a run out in two tables: what was learnt, and what it cost."""
    data = "the sites' own rows" if result["partition"] is None else result["data"]
    clients = f"{result.get('clients', '?'):,} clients"
    facts = (clients, result["partition"], result["protect"], f"seed {result['seed']}")
    title = f"{result['method']} on {data}, {', '.join(str(fact) for fact in facts if fact)}"
    seen = saw(result["exposure"]) if "exposure" in result else result["promises"]["sees"]["coordinator"]
    told = Text.assemble(("the coordinator saw  ", "cyan"), (seen, "yellow"))
    scores = _scores(result) if result.get("scores") else Text(NO_SCORES, style="dim")
    about = [f"rows to learn from: {plain_text(result['sites'])}"] if result.get("sites") else []
    about += [note["text"] for note in result.get("notes", ()) if note["about"] == "data"]
    about[7:] = [f"and {len(about) - 7} more notes, in the report"] if len(about) > 7 else []
    head = [Text(title, style="bold"), *(Text(line, style="dim") for line in about)]
    return Group(*head, scores, Text(), _costs(result), told)


def budget_table(spent: Sequence[Mapping[str, Any]]) -> Table:
    """Return what noise has cost a site's rows, run by run."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("run", style="cyan", no_wrap=True)
    table.add_column("unit")
    for heading in ("noise", "sampling", "releases", "delta", "epsilon"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in spent:
        numbers = (f"{row[name]:.4g}" for name in ("noise", "sampling"))
        costs = (f"{row['releases']:,}", f"{row['delta']:.3g}", f"{row['epsilon']:.4g}")
        table.add_row(*map(Text, (row["run"], row["unit"], *numbers, *costs)))
    return table


ABOUT = {
    "each client": "each",
    "another client": "another",
    "all clients together": "all",
    "the keys": "keys",
}


def exposure_table(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """List who saw what, worst first; what was never a secret in one line."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("who", style="cyan", no_wrap=True)
    table.add_column("what", min_width=16)
    for heading in ("about", "class", "over", "times", "bytes", "open"):
        counted = heading in ("over", "times", "bytes")
        table.add_column(heading, justify="right" if counted else "left", no_wrap=True)
    for row in rows:
        if row["class"] != "public":
            words = (row["who"], row["what"], ABOUT.get(row["about"], row["about"]), row["class"])
            counts = (f"{row['over']:,}", f"{row['times']:,}", size_text(row["bytes"]))
            cells = map(Text, (*words, *counts, "yes" if row["openable"] else "no"))
            table.add_row(*cells, style="yellow" if exposes_one(row) else None)
    public = ", ".join(dict.fromkeys(row["what"] for row in rows if row["class"] == "public"))
    return Group(table, Text(f"\npublic: {public}", style="dim")) if public else table


def _scores(result: Mapping[str, Any]) -> Table:
    scores, columns = result["scores"], _measures(result)
    table = _numbers("model", [heading for _, heading in columns])
    for key, words in MODELS:
        if key in scores:
            table.add_row(words, *(number(scores[key].get(name)) for name, _ in columns))
    if constant := next((found["baseline"] for found in scores.values() if found.get("baseline")), None):
        words = "majority class" if "accuracy" in constant else "mean of the targets"
        table.add_row(words, *(number(constant.get(name)) for name, _ in columns))
    return table


def _measures(result: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return CLASSIFICATION if result.get("r2") is None else REGRESSION


def _numbers(first: str, headings: Iterable[str]) -> Table:
    """Make a table of numbers, each row named in its first column."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column(first, style="cyan")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _costs(result: Mapping[str, Any]) -> Table:
    ledger, cpu = result["ledger"], result["cpu_s"]
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="cyan")
    table.add_column(justify="right")
    table.add_column(style="dim")
    up, down = ledger["bytes_up_per_client"], ledger["bytes_down_per_client"]
    table.add_row("bytes up, per client", size_text(up["mean"]), f"largest {size_text(up['max'])}")
    table.add_row("bytes down, per client", size_text(down["mean"]), f"largest {size_text(down['max'])}")
    table.add_row("messages", f"{result['messages']:,}", f"{len(ledger['waves'])} waves")
    if result.get("engine", {}).get("name") == "flower":
        engine = result["engine"]
        table.add_row("Flower's own bytes", size_text(engine["overhead_bytes"]), "all messages, beside ours")
    table.add_row("CPU, slowest client", time_text(cpu["slowest_client"]))
    table.add_row("CPU, coordinator", time_text(cpu["coordinator"]))
    if cpu.get("services"):
        table.add_row("CPU, key server", time_text(cpu["services"]))
    table.add_row("CPU, in sum", time_text(ledger["sum_cpu_s"]))
    table.add_row("training time", time_text(result["training_s"]), "slowest client + coordinator")
    table.add_row("energy", energy_text(result["wh"]), f"at {result['settings']['run']['watts']:g} W")
    if spent := result.get("privacy"):
        words = f"of {spent['budget']:g}, at delta {spent['delta']:g}; for leaving out any one client"
        table.add_row("epsilon", f"{spent['epsilon']:.4g}", words)
    if result["failures"]:
        table.add_row("failed clients", str(len(result["failures"])), result["failures"][0]["reason"])
    return table


def listing(rows: Sequence[Mapping[str, Any]], columns: tuple[tuple[str, str], ...]) -> Table:
    """Make a plain table of mappings; columns are (key, heading)."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=any(heading for _, heading in columns))
    for index, (_, heading) in enumerate(columns):
        table.add_column(heading, style=None if index else "cyan", overflow="fold", no_wrap=heading == "run")
    for row in rows:
        cells = (row.get(key) for key, _ in columns)
        table.add_row(*(Text("–", "dim") if cell is None else Text(plain_text(cell)) for cell in cells))
    return table


def pairs_table(pairs: Iterable[tuple[str, Any]]) -> Table:
    """Set names beside what they stand for, without a heading."""
    return listing([{"key": key, "value": value} for key, value in pairs], (("key", ""), ("value", "")))


def plain_text(value: Any) -> str:
    """Write a value as people read it.

    >>> plain_text(True), plain_text(13611), plain_text(47.44441), plain_text({"no": 1000, "yes": 2})
    ('yes', '13,611', '47.44', 'no: 1,000, yes: 2')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {plain_text(part)}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(plain_text, value))
    return str(value)


def number(value: Any) -> str:
    """Write a number with four digits, or a dash for none.

    >>> number(0.93519), number(None)
    ('0.9352', '–')
    """
    return "–" if value is None else f"{value:.4f}"


def beside_table(run: Mapping[str, Any]) -> RenderableType:
    """Compare the same job on the embedded engine and on Flower."""
    embedded, flower = _beside(run["embedded"]), _beside(run["flower"])
    table = _numbers("", ("embedded", "Flower"))
    for heading, cell in embedded.items():
        table.add_row(heading, cell, flower[heading])
    apart = f"the models' numbers differ by {run['difference']:.0e} of the largest, at most"
    same = "the same model on both, to the last bit" if run["same_model"] else apart
    return Group(Text(), table, Text(same + "\n", style="dim"))


def _beside(result: Mapping[str, Any]) -> dict[str, str]:
    """Return what is compared of one engine."""
    ledger, waves = result["ledger"], result["ledger"]["waves"]
    return {
        **{heading: number(result.get(key)) for key, heading in _measures(result)},
        "model": result["model"][:12],
        "bytes up, per client": size_text(ledger["bytes_up_per_client"]["mean"]),
        "bytes down, per client": size_text(ledger["bytes_down_per_client"]["mean"]),
        "messages": f"{result['messages']:,}",
        "waves": str(len(waves)),
        "mean wave": time_text(sum(wave["wall_s"] for wave in waves) / len(waves)),
        "from start to result": time_text(result["wall_s"]),
    }
