"""What protections promise, as the command lists it and the docs show it (docs/generate.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tacit.core.promises import Promises
from tacit.core.protection import Protection
from tacit.protections import PROTECTIONS

NOISE = 0.01  # a precision from here on is no error of fixed point: noise is added on purpose


def variants(kind: type[Protection]) -> Iterator[tuple[dict[str, Any], Promises]]:
    """Yield options that change what is promised to whom, the defaults first, with the promises.

    >>> from tacit.protections.plain import Plain
    >>> [options for options, _ in variants(Plain)]
    [{'opens': 'coordinator'}, {'opens': 'clients'}]
    """
    default = kind()
    found: dict[str, list[Any]] = {}
    for name, hint in get_type_hints(kind).items():
        if get_origin(hint) is not Literal or name not in default.config():
            continue
        others = [value for value in get_args(hint) if value != getattr(default, name)]
        changed = [
            value for value in others if _who(kind(**{name: value}).promises) != _who(default.promises)
        ]
        if changed:
            found[name] = changed
    yield {name: getattr(default, name) for name in found}, default.promises
    for name, values in found.items():
        for value in values:
            yield {name: value}, kind(**{name: value}).promises


def _who(promises: Promises) -> tuple[Any, ...]:
    return promises.opens, dict(promises.keys), dict(promises.sees), promises.collusion


def described(names: Iterable[str] = PROTECTIONS) -> list[dict[str, Any]]:
    """Return protections, all if none is named, with promises, options and variants, as plain values."""
    found = []
    for name in names:
        kind = PROTECTIONS.get(name)
        (options, default), *others = variants(kind)
        promises = default.as_dict()
        found.append(
            {
                "name": name,
                "summary": kind.summary(),
                **promises,
                "coordinator": promises["sees"].get("coordinator"),
                "options": kind.options(),
                "settings": options,
                "variants": [{"settings": given, **other.as_dict()} for given, other in others],
            }
        )
    return found


def lines(promises: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return promises as pairs of words, in the order in which one asks for them.

    >>> from tacit.protections.plain import Plain
    >>> lines(Plain().promises.as_dict())[0]
    ('totals open at', 'the coordinator')
    """
    holds = [(f"held by {who.replace('-', ' ')}", what) for who, what in promises["keys"].items()]
    sees = [(f"{who.replace('-', ' ')} sees", what) for who, what in promises["sees"].items()]
    precision = promises["precision"]
    hidden = "clip (with unit row: what one row may bring)"
    noise = f"about {precision:.1f} × {hidden} in each value if a run has one sum; more with more"
    error = f"{precision:.1e} of bound × clients" if precision else "none but float rounding"
    return [
        ("totals open at", "the coordinator" if promises["opens"] == "coordinator" else "the clients"),
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


def changed(promises: Mapping[str, Any], default: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the lines that differ from those of the default options."""
    known = lines(default)
    return [line for line in lines(promises) if line not in known]
