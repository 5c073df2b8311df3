"""Pages, by the templates beside this file. Whatever comes from data is escaped there, and nowhere else."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tacit.core.text import visible


def part(result: Mapping[str, Any], *names: str) -> Any:
    """Return what a result holds under names one within the other; an empty mapping where nothing is."""
    for name in names:
        result = result.get(name) or {}
    return result


@cache
def templates() -> Environment:
    """Return the templates; what they are given loses what turns the writing, and is escaped."""
    return Environment(
        loader=PackageLoader("tacit.runs", "page"),
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else visible(str(value), keep="\n\t"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def pieces() -> Any:
    """Return the pieces of pages as functions: ``table``, ``figure``, ``sentence`` and so on."""
    return templates().get_template("pieces.html").module
