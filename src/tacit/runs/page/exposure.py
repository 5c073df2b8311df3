"""The section "Who saw what": sentences, the table behind them, and what the protection promised."""

from collections.abc import Mapping
from typing import Any

from tacit.ledger.sentences import exposes_one, sentences
from tacit.runs.page.markup import definitions, part, section, table
from tacit.runs.page.units import count, escape, size_text

MOST_WORDS = 200  # of a kind that the page shows
NOISE = 0.01  # a precision from here on is no error of fixed point: noise is added on purpose
HEADS = ["who", "what", "about", "class", "can read it", "over", "times", "bytes"]


def exposure_section(result: Mapping[str, Any]) -> str:
    """Set who saw what, worst first, and what was promised."""
    rows = part(result, "exposure")
    loud = set(sentences(row for row in rows if exposes_one(row)))
    texts = ((escape(text), text in loud) for text in sentences(rows))
    told = "".join(f"<li>{f'<b>{text}</b>' if weighty else text}</li>" for text, weighty in texts)
    lines = [
        [
            *(row[key] for key in ("who", "what", "about", "class")),
            "yes" if row["openable"] else "no",
            *(count(row[key]) for key in ("over", "times")),
            size_text(row["bytes"]),
        ]
        for row in rows
    ]
    promises = part(result, "promises")
    pairs = [("protection", promises["name"]), *promise_lines(promises)] if promises else []
    return section(
        "Who saw what",
        f'<ul class="plain">{told}</ul>' if told else "",
        table(HEADS, lines, words=5),
        _titled("Words that left a site", _told(part(result, "told"))),
        _titled("What the method shows, whatever protects its sums", seen_by(part(result, "reveals"))),
        _titled("What the protection promises", pairs),
    )


def _titled(title: str, pairs: list[tuple[str, str]]) -> str:
    return f"<h3>{title}</h3>{definitions(pairs, 'words')}" if pairs else ""


def _told(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return every word that left a site: names of columns, labels and categories."""
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
    """Return what a protection promises as pairs of words, in the order in which one asks for them.

    >>> from tacit.protections.plain import Plain
    >>> promise_lines(Plain().promises.as_dict())[0]
    ('totals open at', 'the coordinator')
    """
    holds = [(f"held by {who.replace('-', ' ')}", what) for who, what in promises["keys"].items()]
    sees = seen_by(promises["sees"])
    precision = promises["precision"]
    hidden = "clip (with unit row: what one row may bring)"
    noise = f"about {precision:.1f} × {hidden} in each value if a run has one sum; more with more"
    error = f"{precision:.1e} of bound × clients" if precision else "none but float rounding"
    return [
        ("totals open at", f"the {promises['opens']}"),
        *holds,
        *sees,
        *([("a total proves", promises["proof"])] if promises["proof"] else []),
        ("the model is computed by", promises["model"]),
        ("undone by", promises["collusion"]),
        ("if a client vanishes", promises["dropout"]),
        ("noise", noise) if precision >= NOISE else ("largest error", error),
        ("bytes per value", f"{promises['bytes_per_value']:g}" + " × clients" * promises["per_client"]),
        *(("warning", text) for text in promises["warnings"]),
    ]
