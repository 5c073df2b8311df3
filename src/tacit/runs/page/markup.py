"""Small pieces of HTML. Whatever comes from data is escaped here, once, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tacit.runs.page.units import escape


class Card(NamedTuple):
    """One number in large type, with its name above and a remark below."""

    name: str
    value: str
    remark: str = ""
    kind: str = ""


def cards(items: Iterable[Card]) -> str:
    """Set numbers side by side.

    >>> cards([Card("Accuracy", "90.4 %")])
    '<div class="cards"><div class="card"><span>Accuracy</span><strong>90.4 %</strong></div></div>'
    """
    made = ""
    for card in items:
        kind = escape(f"card {card.kind}".strip())
        remark = f"<small>{escape(card.remark)}</small>" if card.remark else ""
        told = f"<span>{escape(card.name)}</span><strong>{escape(card.value)}</strong>{remark}"
        made += f'<div class="{kind}">{told}</div>'
    return f'<div class="cards">{made}</div>' if made else ""


def figure(svg: str, caption: str) -> str:
    """Set a drawing, which is HTML already, with its caption, which is text."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def grid(columns: str, *parts: str) -> str:
    """Set parts side by side, in ``two`` or ``three`` columns; a single one stands alone."""
    filled = [part for part in parts if part]
    return f'<div class="{columns}">{"".join(filled)}</div>' if filled else ""


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], *, words: int = 1) -> str:
    """Set a table: the first ``words`` columns hold words, the others numbers.

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
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


_RIGHT = ' class="n"'


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


def mapping(value: object) -> Mapping[str, Any]:
    """Return a mapping as it is, and anything else as an empty one."""
    return value if isinstance(value, Mapping) else {}


def sequence(value: object) -> Sequence[Any]:
    """Return a list or tuple as it is, and anything else as an empty one."""
    return value if isinstance(value, list | tuple) else []
