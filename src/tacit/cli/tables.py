"""Tables that people read."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tacit.cli.output import make_table, pairs_table, plain_text
from tacit.ledger.sentences import exposes_one, saw
from tacit.runs.page.context import exposure_cells
from tacit.runs.page.costs import time_facts, traffic_facts
from tacit.runs.page.units import decimal, energy_text, size_text, time_text

MODELS = {
    "federated": "federated",
    "centralised": "centralised",
    "local": "mean of local models",
    "clients' own hold-outs": "clients' hold-outs",
}
NO_SCORES = "no scores: no rows were kept for a test; --test 0.3 or --holdout 0.2 keeps some"
CLASSIFICATION = {"accuracy": "accuracy", "balanced_accuracy": "balanced", "f1": "macro F1", "auc": "ROC-AUC"}
CLASSIFICATION |= {"pr_auc": "PR-AUC", "loss": "log loss"}
REGRESSION = {"mse": "MSE", "rmse": "RMSE", "mae": "MAE", "r2": "R²"}


def run_table(result: Mapping[str, Any]) -> RenderableType:
    """Lay a run out in two tables: what was learnt, and what it cost."""
    data = "the sites' own rows" if result["partition"] is None else result["data"]
    clients = f"{result.get('clients', '?'):,} clients"
    opens = result.get("settings", {}).get("protect", {}).get("opens")
    protect = f"{result['protect']} --opens {opens}" if opens else result["protect"]
    facts = (clients, result["partition"], protect, f"seed {result['seed']}")
    title = f"{result['method']} on {data}, {', '.join(str(fact) for fact in facts if fact)}"
    seen = saw(result["exposure"]) if "exposure" in result else result["promises"]["sees"]["coordinator"]
    told = Text.assemble(("the coordinator saw  ", "cyan"), (seen, "yellow"))
    scores = _scores(result) if result.get("scores") else Text(NO_SCORES, style="dim")
    about = [f"rows to learn from: {plain_text(result['sites'])}"] if result.get("sites") else []
    about += [note["text"] for note in result.get("notes", ()) if note["about"] == "data"]
    about[7:] = [f"and {len(about) - 7} more notes, in the report"] if len(about) > 7 else []
    head = [Text(title, style="bold"), *(Text(line, style="dim") for line in about)]
    return Group(*head, scores, Text(), _costs(result), told)


def plan_table(found: Mapping[str, Any]) -> RenderableType:
    """Lay out what a run will cost, and who will see what."""
    held = f"{found['clients']:,} clients, {found['rows']:,} rows"
    title = Text(f"{found['method']} under {found['protect']}, {held}", style="bold")
    if not found["fits"]:
        return Group(title, Text("it does not fit", style="red"))
    how = "" if found["exact"] else ", estimated"
    rounds = f"{found['rounds']} rounds, " if found["rounds"] else ""
    spent = found["privacy"] or {}
    forms, settings = found["bytes_by_form"], found["settings"]
    parts = ", ".join(f"{size_text(forms[one])} of {words}" for one, words in FORMS.items() if forms.get(one))
    noise = f"about {found['precision']:.2g} of what it hides in each value, if all is spent on one sum"
    error = f"{found['precision']:.2g} of bound × clients"
    facts = {
        "each client sends": size_text(found["bytes_up_per_client"]) + how,
        "each client receives": size_text(found["bytes_down_per_client"]) + how,
        "all traffic": size_text(found["bytes_up"] + found["bytes_down"]) + how,
        "among it": parts or None,
        "with": plain_text({key: value for key, value in settings.items() if value}) or None,
        "messages": f"{found['messages']:,} in {rounds}{found['waves']} waves",
        "slowest client": f"{time_text(found['cpu_s']['slowest_client'])} of CPU",
        "coordinator": f"{time_text(found['cpu_s']['coordinator'])} of CPU",
        "all CPU time": f"{time_text(found['sum_cpu_s'])}, {energy_text(found['wh'])}",
        "on Flower": f"about {time_text(found['flower_s'])}, most of it waiting for messages",
        "memory": f"{size_text(found['memory_mb'] * 2**20)} here, all parties in one process",
        "noise" if found["adds_noise"] else "largest error": noise if found["adds_noise"] else error,
        "epsilon": f"{decimal(spent['epsilon'])} of {spent['budget']:g}, after all rounds" if spent else None,
        "undone by": found["undone_by"],
    }
    table = pairs_table((name, text) for name, text in facts.items() if text is not None)
    return Group(title, table, *map(Text, found["exposure"]))


FORMS = {"cipher": "ciphertexts", "masked": "masked values", "key": "keys", "public": "public keys"}
FORMS |= {"sealed": "sealed messages", "share": "shares"}  # in which bytes travel, in words
ABOUT = {
    "each client": "each",
    "another client": "another",
    "all clients together": "all",
    "the keys": "keys",
}


def exposure_table(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """List who saw what, worst first; what was never a secret in one line."""
    table = make_table(("who", "what", "about", "class"), ("over", "times", "bytes", "open"))
    for row in rows:
        if row["class"] != "public":
            words = (row["who"], row["what"], ABOUT.get(row["about"], row["about"]), row["class"])
            cells = map(Text, (*words, *exposure_cells(row)))
            table.add_row(*cells, style="yellow" if exposes_one(row) else None)
    public = ", ".join(dict.fromkeys(row["what"] for row in rows if row["class"] == "public"))
    return Group(table, Text(f"\npublic: {public}", style="dim")) if public else table


def _scores(result: Mapping[str, Any]) -> Table:
    scores, measures = result["scores"], CLASSIFICATION if result.get("r2") is None else REGRESSION
    table = make_table(("model",), measures.values())
    rows = {words: scores[key] for key, words in MODELS.items() if key in scores}
    if constant := next((found["baseline"] for found in scores.values() if found.get("baseline")), None):
        rows["majority class" if "accuracy" in constant else "mean of the targets"] = constant
    for words, found in rows.items():
        table.add_row(words, *(decimal(found.get(name), 4) for name in measures))
    return table


def _costs(result: Mapping[str, Any]) -> Table:
    table = Table.grid("", "", "", padding=(0, 2, 0, 0))
    table.columns[0].style, table.columns[1].justify, table.columns[2].style = "cyan", "right", "dim"
    for fact in (*traffic_facts(result), *time_facts(result)):
        table.add_row(*fact)
    if result["failures"]:
        table.add_row("failed clients", str(len(result["failures"])), result["failures"][0]["reason"])
    return table
