"""Exposure in plain sentences: what the rows of the exposure ledger mean to people."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

INTRODUCTION = "introduction: "
STEPS = {  # what parties are asked for, where its name does not say it
    **{"show_model": "read the model", "restore": "go on from before", "deal": "share mask seeds"},
    **{"serve_key": "make keys", "offer": "exchange keys", "unmask": "take off masks"},
    **{"hold": "add up shares", "reveal": "draw the committee"},
}
PAST = ("was told", "saw", "received", "relayed")
FUTURE = ("will be told", "will see", "will receive", "will relay")
HIDDEN = {"cipher": "ciphertexts", "masked": "masked vectors", "share": "single shares"}


def sentences(rows: Iterable[Row], planned: bool = False) -> list[str]:
    """Write one sentence for rows of the same kind, in the order of the rows: worst first.

    Of a run that is only planned they say what will be seen.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        over = row["over"] if row["class"] == "aggregate" else 1
        who = row["who"] if row["who"].startswith("leader ") else row["who"].replace("-", " ")
        subject = "Clients" if who == "clients" else f"The {who}"
        key = (subject, row["class"], row["about"], row["openable"], over)
        groups.setdefault((*key, row["what"].startswith(INTRODUCTION)), []).append(row)
    verbs = FUTURE if planned else PAST
    told = [_sentence(subject, kind, group, verbs) for (subject, kind, *_), group in groups.items()]
    return [text for text in told if text]


def step_words(step: object) -> str:
    """Return a step's name as people read it."""
    name = str(step).rpartition(".")[2]
    return STEPS.get(name) or name.replace("_", " ")


def exposes_one(row: Row) -> bool:
    """Return whether a row tells its receiver of single clients."""
    readable = row["openable"] and row["over"] == 1 and row["class"] != "public"
    return bool(readable and row["about"] in ("each client", "another client", "all clients together"))


def _sentence(subject: str, kind: str, rows: Sequence[Row], verbs: tuple[str, ...]) -> str:
    told, seen, received, relayed = verbs
    first = rows[0]
    things = _listed([phrase(row["what"]) for row in rows])
    if first["what"].startswith(INTRODUCTION):
        return f"{subject} {told} at enrolment, by every single client: {things}."
    if kind == "plain" or (kind == "aggregate" and first["over"] == 1):
        return f"{subject} {seen} in the clear, of every single client: {things}."
    if kind == "aggregate" and not first["over"]:
        earlier = "what clients had learnt together before this run began or went on"
        return f"{subject} {seen} {earlier}: {things}."
    if kind == "aggregate":
        return f"{subject} {seen}, of {first['over']:,} clients together: {things}."
    if kind == "public":
        return ""
    if first["openable"]:
        if first["about"] == "the keys":
            return f"{subject} {received} {things}, sealed for each of them."
        return f"{subject} {received} ciphertexts of single clients under a key that it holds: {things}."
    if kind == "sealed" and subject != "Clients":
        messages, size = sum(row["times"] for row in rows), sum(row["bytes"] for row in rows)
        # The figures of a rehearsal are not those of the run.
        counted = "" if verbs is FUTURE else f": {messages:,} messages, {size:,} bytes"
        return f"{subject} {relayed} sealed bytes it cannot read{counted}."
    if kind == "sealed":
        return f"{subject} {received}, sealed by another client, what opens nothing by itself: {things}."
    return f"{subject} {received} {HIDDEN.get(kind, kind)} of every client, which it cannot open: {things}."


def phrase(what: str) -> str:
    """Turn a row's name round."""
    name, colon, part = what.partition(": ")
    if not colon:
        return what
    if what.startswith(INTRODUCTION) or part == "vector":
        return part if what.startswith(INTRODUCTION) else name
    return f"{name} of {part}" if name == "totals" else f"{part} of {name}"


def _listed(words: Iterable[str]) -> str:
    *first, last = dict.fromkeys(words)
    if any(" and " in word for word in (*first, last)):
        return ", ".join([*first, last])
    return f"{', '.join(first)} and {last}" if first else last


def saw(rows: Iterable[Row], who: str = "coordinator") -> str:
    """Say in one line what a party saw."""
    own = [row for row in rows if row["who"] == who]
    kinds = {row["class"] for row in own}
    clear = [row for row in own if row["class"] == "plain"]
    if any(row["what"].endswith(": vector") for row in clear):
        return "every client's contribution, in the clear"
    if any(row["class"] == "cipher" and row["openable"] for row in own):
        return "every client's contribution, under a key that it holds"
    parts = [f"{words} it cannot open" for kind, words in HIDDEN.items() if kind in kinds]
    # Keys are sealed in many protections; that is worth a word only where nothing else is hidden.
    if "sealed" in kinds and not parts:
        parts.append("sealed bytes it cannot read")
    if totals := sorted({row["over"] for row in own if row["class"] == "aggregate"}):
        parts.append(
            f"totals over {' to '.join(f'{over:,}' for over in (totals[0], totals[-1])[: len(totals)])}"
        )
        parts[-1] += " clients" if totals[-1] > 1 else " client"
    things = [_owned(row["what"]) for row in clear]
    if things := [thing for thing in things if thing]:
        parts.append(f"every client's {_listed(things)} in the clear")
    return "; ".join(parts) if parts else "nothing"


def _owned(what: str) -> str:
    if what.startswith(INTRODUCTION):
        return "labels and categories" if "labels" in what else ""
    return what.partition(": ")[2] or what
