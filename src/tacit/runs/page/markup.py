"""Small pieces of HTML. Whatever comes from data is escaped here, once, and nowhere else."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tacit.runs.page.units import escape

_RIGHT = ' class="n"'


def part(result: Mapping[str, Any], *names: str) -> Any:
    """Return what a result holds under names one within the other; an empty mapping where nothing is."""
    for name in names:
        result = result.get(name) or {}
    return result


def cards(items: Iterable[tuple[str, str, str]], kind: str = "card") -> str:
    """Set numbers in large type side by side, each with its name above and a remark, if any, below."""
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
    """Set parts side by side, in ``two`` or ``three`` columns."""
    filled = "".join(parts)
    return f'<div class="{columns}">{filled}</div>' if filled else ""


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], *, words: int = 1) -> str:
    """Set a table, or nothing without rows: the first ``words`` columns hold words, the others numbers."""
    right = ["" if place < words else _RIGHT for place in range(len(heads))]
    head = "".join(
        f'<th scope="col"{side}>{escape(name)}</th>' for side, name in zip(right, heads, strict=True)
    )
    body = ""
    for first, *others in rows:
        cells = zip(right[1:], others, strict=True)
        told = "".join(f"<td{side}>{escape(value)}</td>" for side, value in cells)
        body += f'<tr><th scope="row">{escape(first)}</th>{told}</tr>'
    whole = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll">{whole}</div>' if body else ""


def definitions(pairs: Iterable[tuple[str, object]], kind: str = "words") -> str:
    """Set names with what they stand for; pairs without a value are left out."""
    made = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in pairs
        if value not in (None, "")
    )
    return f'<dl class="{kind}">{made}</dl>' if made else ""


def section(title: str, *parts: str) -> str:
    """Set a part of the report; one without content is left out."""
    content = "".join(parts)
    return f"<section><h2>{escape(title)}</h2><div>{content}</div></section>" if content else ""


def sentence(text: str) -> str:
    """Set a paragraph."""
    return f"<p>{escape(text)}</p>" if text else ""
