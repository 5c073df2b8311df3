"""Small pieces of HTML. Whatever comes from data is escaped here, once, and nowhere else."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tacit.runs.page.units import escape

_RIGHT = ' class="n"'


def part(result: Mapping[str, Any], *names: str) -> Any:
    """Return what a result holds under names one within the other; where there is nothing, an empty mapping.

    >>> part({"scores": {"federated": None}}, "scores", "federated"), part({"rounds": [1]}, "rounds")
    ({}, [1])
    """
    for name in names:
        result = result.get(name) or {}
    return result


def cards(items: Iterable[tuple[str, str, str]], kind: str = "card") -> str:
    """Set numbers in large type side by side, each with its name above and a remark, if any, below.

    >>> cards([("accuracy", "90.4 %", "")])
    '<div class="cards"><div class="card"><span>Accuracy</span><strong>90.4 %</strong></div></div>'
    """
    made = ""
    for name, value, remark in items:
        below = f"<small>{escape(remark)}</small>" if remark else ""
        told = f"<span>{escape(name[0].upper() + name[1:])}</span><strong>{escape(value)}</strong>{below}"
        made += f'<div class="{kind}">{told}</div>'
    return f'<div class="cards">{made}</div>' if made else ""


def figure(svg: str, caption: str) -> str:
    """Set a drawing, which is HTML already, with its caption, which is text."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def grid(columns: str, *parts: str) -> str:
    """Set parts side by side, in ``two`` or ``three`` columns; a single one stands alone."""
    filled = "".join(parts)
    return f'<div class="{columns}">{filled}</div>' if filled else ""


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], *, words: int = 1) -> str:
    """Set a table, or nothing without rows: the first ``words`` columns hold words, the others numbers.

    >>> '<th scope="row">&lt;gram&gt;</th><td class="n">1 kB</td>' in table(["", ""], [["<gram>", "1 kB"]])
    True
    """

    def cell(place: int, value: object) -> str:
        if place == 0:
            return f'<th scope="row">{escape(value)}</th>'
        return f"<td{'' if place < words else _RIGHT}>{escape(value)}</td>"

    head = "".join(
        f'<th scope="col"{"" if i < words else _RIGHT}>{escape(name)}</th>' for i, name in enumerate(heads)
    )
    body = "".join(f"<tr>{''.join(cell(i, value) for i, value in enumerate(row))}</tr>" for row in rows)
    whole = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll">{whole}</div>' if body else ""


def definitions(pairs: Iterable[tuple[str, object]], kind: str) -> str:
    """Set names with what they stand for; pairs without a value are left out."""
    made = [
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs if value not in (None, "")
    ]
    wrapped = "".join(f"<div>{item}</div>" for item in made) if kind == "facts" else "".join(made)
    return f'<dl class="{kind}">{wrapped}</dl>' if made else ""


def section(title: str, *parts: str) -> str:
    """Set a part of the report; one without content is left out.

    >>> section("Empty", "", "")
    ''
    """
    content = "".join(parts)
    return f"<section><h2>{escape(title)}</h2><div>{content}</div></section>" if content else ""


def sentence(text: str) -> str:
    """Set a paragraph."""
    return f"<p>{escape(text)}</p>" if text else ""
