"""Marks: which functions of a component a party may be asked to run. None without a mark can be."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeVar, overload

from tacit.core.errors import ConfigError, nearest

Function = TypeVar("Function", bound=Callable[..., Any])
# Statistics of a client's rows; the count of its small cells, which is one too; statistics of those that it
# keeps aside, and scores of a model on the latter.
Family = Literal["rows", "cells", "holdout", "scores"]


@dataclass(frozen=True)
class Mark:
    """What a marked function of a part is for."""

    kind: str
    layout: Callable[..., Any] | None = None
    replies: str = ""  # "aggregate": of a step whose replies are aggregates
    family: Family | None = None
    revealed: bool = False  # whether a contribution's total may be handed to the coordinator


def _mark(function: Function, mark: Mark) -> Function:
    function.__dict__["tacit"] = mark
    return function


@overload
def step(function: Function) -> Function: ...
@overload
def step(*, replies: Literal["aggregate"]) -> Callable[[Function], Function]: ...
def step(function: Any = None, *, replies: str = "") -> Any:
    """Mark a function that a party runs on request; ``replies`` says that its replies are aggregates.

    It is ``(self, party, message, shared) -> message`` on a method or the preparation, and ``(self, message)
    -> message`` on the client half of a protection, which holds its party.
    """
    if function is None:
        return lambda each: _mark(each, Mark("step", replies=replies))
    return _mark(function, Mark("step"))


def contribution(
    layout: Callable[..., Any], family: Family | None = "rows", *, revealed: bool = False
) -> Callable[[Function], Function]:
    """Mark a pure function ``(self, party, shared) -> named arrays`` that computes a client's term of a sum.

    It is laid out by ``layout(self, schema)``, and the coordinator gets its total only if it is ``revealed``.
    Totals of one ``family`` tell of the same rows, and their differences of single clients
    (:mod:`tacit.core.differencing`). None is for what has no statistic in common with other totals, such as
    gradients of a model that each round changes.
    """
    return lambda function: _mark(function, Mark("contribution", layout, family=family, revealed=revealed))


def apply(function: Function) -> Function:
    """Mark a pure function ``(self, total, shared) -> shared`` that makes new shared values of a total."""
    return _mark(function, Mark("apply"))


def find_marked(part: object, name: str, kind: str) -> tuple[Callable[..., Any], Mark]:
    """Find a marked function of a part by name, or refuse: nothing else can be called from outside."""
    function = getattr(part, name, None)
    mark = getattr(function, "tacit", None)
    if function is None or not isinstance(mark, Mark) or mark.kind != kind:
        owner: Any = type(part)
        raise ConfigError(f"{owner.__name__} has no {kind} '{name}': {nearest(name, marks_of(owner, kind))}")
    return function, mark


@lru_cache(maxsize=64)  # every client that enrols asks for them
def marks_of(owner: Any, kind: str) -> dict[str, Mark]:
    """Return the marks of a class's functions of a kind, by their names in order."""
    found = {name: getattr(getattr(owner, name, None), "tacit", None) for name in dir(owner)}
    return {name: mark for name, mark in found.items() if isinstance(mark, Mark) and mark.kind == kind}
