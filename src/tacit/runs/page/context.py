"""Sections around the result: headline, warnings, failures, settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tacit.ledger.sentences import step_words
from tacit.models.scores import warn_of_balance
from tacit.runs.page.markup import definitions, mapping, section, sentence, sequence, table
from tacit.runs.page.scores import AGAINST, BEST, SAME, difference, scores_of, write
from tacit.runs.page.units import count, escape, number

LOUD = {"warning", "unsafe", "error", "critical"}
SHOWN = 40
FACTS = {word.capitalize(): word for word in ("method", "data", "clients", "partition")}
FACTS |= {"Protection": "protect", "Seed": "seed"}


def headline(result: Mapping[str, Any]) -> tuple[str, str]:
    """Say the result in one sentence, and how it compares in another.

    >>> headline({"method": "fedheonn", "data": "dry_bean", "clients": 100, "accuracy": 0.904})
    ('fedheonn learnt dry_bean from 100 clients: accuracy 90.40\\xa0%', '')
    """
    method, data = result.get("method") or "A method", result.get("data") or "the data"
    if result.get("partition", "") is None:
        data = "the sites' own rows"
    clients = number(result.get("clients"))
    among = "" if clients is None else f" from {count(clients)} client{'' if clients == 1 else 's'}"
    ours, found = scores_of(result, "federated"), mapping(mapping(result.get("scores")).get("federated"))
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


def header(result: Mapping[str, Any]) -> str:
    """Set the top of the page: headline, facts and loud notes."""
    claim, compared = headline(result)
    before, mark, after = claim.rpartition(": ")
    title = f"{escape(before)}{mark}<em>{escape(after)}</em>" if mark else escape(claim)
    made = " · ".join(escape(result[key]) for key in ("run", "created") if result.get(key) not in (None, ""))
    facts = {title: result.get(key) for title, key in FACTS.items()}
    if (clients := number(facts["Clients"])) is not None:
        facts["Clients"] = count(clients)
    lead = f'<p class="lead">{escape(compared)}</p>' if compared else ""
    top = f'<p class="over"><b>Tacit run report</b><span>{made}</span></p>'
    return f"{top}<h1>{title}</h1>{lead}{definitions(facts.items(), 'facts')}{_alerts(result)}"


def _notes(result: Mapping[str, Any], loud: bool) -> list[tuple[tuple[str, str, str], int]]:
    notes = [mapping(note) for note in sequence(result.get("notes"))]
    lines = Counter(
        (str(note.get("level") or "info"), str(note.get("about") or ""), str(note.get("text") or ""))
        for note in notes
    )
    return [(line, times) for line, times in lines.items() if (line[0].lower() in LOUD) is loud]


def _alerts(result: Mapping[str, Any]) -> str:
    items = [
        f'<li role="note"><b>{escape(level)}</b> {escape(text)} '
        f"<i>{escape(about)}{f', {count(times)} times' if times > 1 else ''}</i></li>"
        for (level, about, text), times in _notes(result, loud=True)[:SHOWN]
    ]
    return f'<ul class="alerts">{"".join(items)}</ul>' if items else ""


def notes_section(result: Mapping[str, Any]) -> str:
    """Set quiet notes, and failures grouped by step and reason."""
    items = [
        f"<li><b>{escape(about)}</b>{escape(text)}{f' ({count(times)} times)' if times > 1 else ''}</li>"
        for (_, about, text), times in _notes(result, loud=False)[:SHOWN]
    ]
    notes = f'<ul class="plain">{"".join(items)}</ul>' if items else ""
    return section("Notes and failures", notes, _failures(result))


def _failures(result: Mapping[str, Any]) -> str:
    groups: dict[tuple[str, str], list[str]] = {}
    for failure in map(mapping, sequence(mapping(result.get("ledger")).get("failures"))):
        key = str(failure.get("step") or ""), str(failure.get("reason") or "")
        groups.setdefault(key, []).append(str(failure.get("party") or "?"))
    if not groups:
        return ""
    largest = sorted(groups.items(), key=lambda item: -len(item[1]))
    rows = [
        [
            step_words(step),
            reason,
            ", ".join(parties[:4]) + (", …" if len(parties) > 4 else ""),
            count(len(parties)),
        ]
        for (step, reason), parties in largest[:SHOWN]
    ]
    rest = len(groups) - len(rows)
    more = sentence(f"{count(rest)} more kinds of failure are in the run folder.") if rest > 0 else ""
    return table(["step", "reason", "clients", "failures"], rows, words=3) + more


def settings_section(result: Mapping[str, Any]) -> str:
    """Set the settings and the command that repeats the run."""
    command = result.get("command")
    words = " ".join(map(str, sequence(command))) or command
    repeat = f"<h3>To repeat this run</h3><pre><code>{escape(words)}</code></pre>" if words else ""
    flat = list(flat_settings(mapping(result.get("settings"))))
    told = table(["setting", "value"], flat, words=2) if flat else ""
    return section("Settings", told, repeat)


def flat_settings(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield settings with the name of their table before a dot, and their values as text."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from flat_settings(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", _plain(value)


def _plain(value: object, longest: int = 600) -> str:
    """Write any value of the settings or promises as text that fits on a page."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        text = "; ".join(f"{str(key).replace('_', ' ')}: {_plain(part)}" for key, part in value.items())
    elif isinstance(value, list | tuple):
        text = ", ".join(_plain(part) for part in value[:longest])
    else:
        text = str(value)
    return text if len(text) <= longest else text[: longest - 1] + "…"
