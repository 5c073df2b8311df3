"""What protections promise, as the command lists it and the docs show it (docs/generate.py)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tacit.core.promises import Promises
from tacit.core.protection import Protection
from tacit.protections import PROTECTIONS
from tacit.runs.page.context import promise_lines


def variants(kind: type[Protection]) -> Iterator[tuple[dict[str, Any], Promises]]:
    """Yield options that change what is promised to whom, the defaults first, with the promises."""
    default = kind()
    usual = _who(default.promises)
    found = {
        name: [each for each in get_args(hint) if _who(kind(**{name: each}).promises) != usual]
        for name, hint in get_type_hints(kind).items()
        if get_origin(hint) is Literal and name in default.config()
    }
    yield {name: getattr(default, name) for name, others in found.items() if others}, default.promises
    for name, others in found.items():
        for value in others:
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


def changed(promises: Mapping[str, Any], default: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the lines that differ from those of the default options."""
    known = promise_lines(default)
    return [line for line in promise_lines(promises) if line not in known]
