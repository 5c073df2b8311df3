"""Sections around the result: headline, warnings, failures, settings, who saw what."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tacit.ledger.sentences import exposes_one, sentences, step_words
from tacit.models.scores import warn_of_balance
from tacit.runs.page.scores import AGAINST, BEST, SAME, difference, scores_of, write
from tacit.runs.page.units import count, part, size_text

SHOWN = 40
FACTS = {word.capitalize(): word for word in ("method", "data", "clients", "partition")}
FACTS |= {"Protection": "protect", "Seed": "seed"}
MOST_WORDS = 200  # of a kind that the page shows
NOISE = 0.01  # a precision from here on is no error of fixed point: noise is added on purpose
HEADS = ["who", "what", "about", "class", "over", "times", "bytes", "can read it"]


def headline(result: Mapping[str, Any]) -> tuple[str, str]:
    """Say the result in one sentence, and how it compares in another."""
    method, data = result.get("method") or "A method", result.get("data") or "the data"
    if result.get("partition", "") is None:
        data = "the sites' own rows"
    clients = result.get("clients")
    among = "" if clients is None else f" from {count(clients)} client{'' if clients == 1 else 's'}"
    ours, found = scores_of(result, "federated"), part(result, "scores", "federated")
    if warn_of_balance(found):
        score = f"balanced accuracy {write('balanced_accuracy', found['balanced_accuracy'])}"
        return f"{method} learnt {data}{among}: {score}", "Accuracy says little here: see the warnings."
    best = next((name for name in BEST if name in ours), None)
    if best is None:
        return f"{method} on {data}{among}: no scores", ""
    score = f"{BEST[best]} {write(best, ours[best])}"
    return f"{method} learnt {data}{among}: {score}", _comparison(result, best)


def _comparison(result: Mapping[str, Any], name: str) -> str:
    ours = scores_of(result, "federated")[name]
    pooled, alone = (scores_of(result, way).get(name) for way in ("centralised", "local"))
    parts = []
    if pooled is not None:
        gap = difference(name, ours, pooled)
        same = "the same, " if gap == SAME else ""
        against = "" if same else f" ({gap.removesuffix(AGAINST)} for the federation)"
        parts.append(f"Training on pooled data gives {same}{write(name, pooled)}{against}")
    if alone is not None:
        article = "a" if parts else "A"
        parts.append(f"{article} client that learns alone reaches {write(name, alone)} on average")
    return "; ".join(parts) + "." if parts else ""


def read_top(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the headline, of which the last words are stressed, and the facts of a run."""
    title, compared = headline(result)
    before, _, after = title.rpartition(": ")
    facts = {name: result.get(key) for name, key in FACTS.items()}
    facts["Clients"] = facts["Clients"] and count(facts["Clients"])
    made = " · ".join(str(result[key]) for key in ("run", "created") if result.get(key))
    words = {"title": title, "before": before, "after": after, "lead": compared, "made": made}
    return words | {"facts": list(facts.items())}


def read_notes(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return warnings and quiet notes, and failures grouped by step and reason."""
    lines = Counter((note["level"], note["about"], note["text"]) for note in part(result, "notes"))
    loud, quiet = (
        [
            (about, f"{text} ({count(times)} times)" if times > 1 else text)
            for (level, about, text), times in lines.items()
            if (level == "warning") is warns
        ][:SHOWN]
        for warns in (True, False)
    )
    groups: dict[tuple[str, str], list[str]] = {}
    for failure in part(result, "ledger", "failures"):
        groups.setdefault((failure["step"], failure["reason"]), []).append(failure["party"])
    largest = sorted(groups.items(), key=lambda item: -len(item[1]))
    rows = [
        [step_words(step), reason, ", ".join(who[:4]) + ", …" * (len(who) > 4), count(len(who))]
        for (step, reason), who in largest[:SHOWN]
    ]
    rest = len(groups) - len(rows)
    more = f"{count(rest)} more kinds of failure are in the run folder." if rest else ""
    return {"loud": loud, "quiet": quiet, "failures": rows, "more": more}


def read_settings(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings and the command that repeats the run."""
    return {"rows": list(flat_settings(part(result, "settings"))), "command": result.get("command")}


def flat_settings(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield settings with the name of their table before a dot, and their values as text."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from flat_settings(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", _plain(value)


def _plain(value: object, longest: int = 600) -> str:
    """Write a value of the settings as text that fits on a page."""
    if value is None or value in ("", {}):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = ", ".join(map(_plain, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def read_exposure(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return who saw what, worst first, and what was promised."""
    rows = part(result, "exposure")
    loud = set(sentences(row for row in rows if exposes_one(row)))
    promises = part(result, "promises")
    promised = [("protection", promises["name"]), *promise_lines(promises)] if promises else []
    return {
        "sentences": [(text, text in loud) for text in sentences(rows)],
        "heads": HEADS,
        "rows": [[*map(row.get, HEADS[:4]), *exposure_cells(row)] for row in rows],
        "told": {
            "Words that left a site": _told(part(result, "told")),
            "What the method shows, whatever protects its sums": seen_by(part(result, "reveals")),
            "What the protection promises": promised,
        },
    }


def exposure_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return over how many a row of the exposure is, how often, its bytes, and whether it can be read."""
    readable = "yes" if row["openable"] else "no"
    return count(row["over"]), count(row["times"]), size_text(row["bytes"]), readable


def _told(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    words = {"columns": part(told, "columns"), "labels": part(told, "classes")}
    words |= {f"categories of {name}": known for name, known in part(told, "categories").items()}
    pairs = []
    for title, known in words.items():
        shown = [str(word) for word in known]
        more = f", and {len(shown) - MOST_WORDS:,} more in result.json" if len(shown) > MOST_WORDS else ""
        pairs.append((title, ", ".join(shown[:MOST_WORDS]) + more))
    return pairs if told else []


def seen_by(words: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return who sees what, as pairs of words."""
    return [(f"{who.replace('-', ' ')} sees", what) for who, what in words.items()]


def promise_lines(promises: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a protection promises as pairs of words, in the order in which one asks for them."""
    precision = promises["precision"]
    hidden = "clip (with unit row: what one row may bring)"
    noise = f"about {precision:.1f} × {hidden} in each value if a run has one sum; more with more"
    error = f"{precision:.1e} of bound × clients" if precision else "none but float rounding"
    return [
        ("totals open at", f"the {promises['opens']}"),
        *((f"held by {who.replace('-', ' ')}", what) for who, what in promises["keys"].items()),
        *seen_by(promises["sees"]),
        *([("a total proves", promises["proof"])] if promises["proof"] else []),
        ("the model is computed by", promises["model"]),
        ("undone by", promises["collusion"]),
        ("if a client vanishes", promises["dropout"]),
        ("noise", noise) if precision >= NOISE else ("largest error", error),
        ("bytes per value", f"{promises['bytes_per_value']:g}" + " × clients" * promises["per_client"]),
        *(("warning", text) for text in promises["warnings"]),
    ]
