"""The section "Who saw what": sentences, the table behind them, and what the protection promised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.ledger.sentences import exposes_one, sentences
from tacit.runs.page.markup import definitions, mapping, section, sequence, table
from tacit.runs.page.units import count, escape, number, significant, size_text

WORDS = ("who", "what", "about", "class")
KEYS = (*WORDS, "over", "times", "bytes", "openable")
MOST_WORDS = 200  # of a kind that the page shows
HEADS = ["who", "what", "about", "class", "can read it", "over", "times", "bytes"]


def exposure_section(result: Mapping[str, Any]) -> str:
    """Set who saw what, worst first, and what was promised."""
    rows = [row for row in map(mapping, sequence(result.get("exposure"))) if all(key in row for key in KEYS)]
    sound = [row for row in rows if _is_sound(row)]
    loud = set(sentences(row for row in sound if exposes_one(row)))
    texts = ((escape(text), text in loud) for text in sentences(sound))
    told = "".join(f"<li>{f'<b>{text}</b>' if weighty else text}</li>" for text, weighty in texts)
    lines = [
        [
            *(row[key] for key in WORDS),
            "yes" if row["openable"] else "no",
            *(count(number(row[key])) for key in ("over", "times")),
            size_text(number(row["bytes"])),
        ]
        for row in rows
    ]
    return section(
        "Who saw what",
        f'<ul class="plain">{told}</ul>' if told else "",
        table(HEADS, lines, words=5) if lines else "",
        _told(mapping(result.get("told"))),
        _promises(mapping(result.get("promises"))),
    )


def _told(told: Mapping[str, Any]) -> str:
    """Set every word that left a site: names of columns, labels and categories."""
    words = {"columns": told.get("columns"), "labels": told.get("classes")}
    words |= {f"categories of {name}": known for name, known in mapping(told.get("categories")).items()}
    pairs = []
    for title, known in words.items():
        shown = [str(word) for word in sequence(known)]
        more = f", and {len(shown) - MOST_WORDS:,} more in result.json" if len(shown) > MOST_WORDS else ""
        pairs.append((title, ", ".join(shown[:MOST_WORDS]) + more or None))
    listed = definitions(pairs, "words") if told else ""
    return f"<h3>Words that left a site</h3>{listed}" if listed else ""


def _is_sound(row: Mapping[str, Any]) -> bool:
    counted = all(number(row[key]) is not None for key in ("over", "times", "bytes"))
    return counted and all(isinstance(row[key], str) for key in WORDS)


def _promises(promises: Mapping[str, Any]) -> str:
    """Set what the protection promised, as far as the result holds it."""
    pairs: list[tuple[str, object]] = [("protection", promises.get("name"))]
    pairs.append(("totals open at", promises.get("opens")))
    for title, words in (("keys", "key at {}"), ("sees", "{} may see")):
        told = mapping(promises.get(title))
        pairs += [(words.format(str(who).replace("-", " ")), what) for who, what in told.items()]
    pairs += [("a total proves", promises.get("proof") or None)]
    pairs += [("the model is computed by", promises.get("model"))]
    pairs += [("undone by", promises.get("collusion")), ("if a client vanishes", promises.get("dropout"))]
    error = number(promises.get("precision"))
    if error is not None:
        noise = f"about {significant(error)} × clip (or what one row may bring) in each value of a single sum"
        exact = f"{significant(error)} of bound × clients" if error else "none"
        pairs.append(("noise", noise) if error >= 0.01 else ("largest error", exact))
    size = number(promises.get("bytes_per_value"))
    times = " × clients" if promises.get("per_client") else ""
    pairs.append(("bytes per value", None if size is None else f"{size:g}{times}"))
    listed = definitions(pairs, "words") if promises else ""
    return f"<h3>What the protection promises</h3>{listed}" if listed else ""
