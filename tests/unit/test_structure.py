"""Rules for the source itself: short files, shallow classes, nothing that only tests call."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType

import tacit

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "src" / "tacit").rglob("*.py"), *(ROOT / "reproductions").glob("*.py")])
MOST_LINES = 300
DEEPEST = 4  # classes of ours from `object` down, the class itself among them
NAMED = 60  # characters up to which a text may name a function, as in getattr or a table of steps

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def test_no_file_is_long() -> None:
    sizes = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("\n") for path in SOURCES}
    long = {place: lines for place, lines in sizes.items() if lines > MOST_LINES}
    assert not long, f"files of more than {MOST_LINES} lines: split them"


def classes_of_ours() -> Iterator[type]:
    """All classes that our modules define."""
    for module in pkgutil.walk_packages(tacit.__path__, "tacit."):
        for found in vars(importlib.import_module(module.name)).values():
            if isinstance(found, type) and found.__module__ == module.name:
                yield found


def test_no_class_is_deep() -> None:
    deep = {}
    for found in classes_of_ours():
        ours = [base.__name__ for base in found.__mro__ if base.__module__.startswith("tacit.")]
        if len(ours) > DEEPEST:
            deep[found.__qualname__] = ours
    assert not deep, f"more than {DEEPEST} classes deep: let them have parts instead of ancestors"


def test_methods_are_described_where_they_are_first_defined() -> None:
    """An override has the docstring of what it overrides, here as in the pages that Sphinx makes."""
    silent = [
        f"{found.__module__}.{found.__qualname__}.{name}"
        for found in classes_of_ours()
        for name, member in vars(found).items()
        if isinstance(member, FunctionType | property | classmethod | staticmethod)
        if not (found.__name__.startswith("_") or name.startswith("_"))
        if "<locals>" not in getattr(member, "__qualname__", "")  # else a function made it
        if not inspect.getdoc(getattr(found, name))
    ]
    assert not silent


@dataclass
class Defined:
    """A function, method or class, and the names that its own body uses."""

    name: str
    place: str
    uses: set[str] = field(default_factory=set)


def is_used(entry: Defined, used: set[str]) -> bool:
    """Whether its name is used, or Python calls it, or a base class from elsewhere that it extends."""
    return entry.name in used or entry.name.startswith("__") or f"super().{entry.name}" in entry.uses


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def used_in(node: ast.AST) -> set[str]:
    """Names by which a node of the syntax tree may mean a function, a method or a class."""
    match node:
        case ast.Name(id=name):
            return {name}
        case ast.Attribute(attr=name, value=ast.Call(func=ast.Name(id="super"))):
            return {name, f"super().{name}"}
        case ast.Attribute(attr=name):
            return {name}
        case ast.Constant(value=str(text)) if len(text) < NAMED:
            return words(text)
    return set()


def is_command(node: Definition) -> bool:
    """Whether a decorator makes it a command of the command line."""
    return any(
        ".command" in ast.unparse(found) or ".callback" in ast.unparse(found) for found in node.decorator_list
    )


def read_definitions(node: ast.AST, place: str, uses: set[str], found: list[Defined]) -> None:
    """Add what is defined inside a node to ``found``, and what its remaining code uses to ``uses``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            inner = Defined(child.name, f"{place}:{child.lineno}")
            if is_command(child):
                uses.add(child.name)
            found.append(inner)
            read_definitions(child, place, inner.uses, found)
        else:
            uses |= used_in(child)
            read_definitions(child, place, uses, found)


def test_nothing_is_there_for_tests_alone() -> None:
    """Whatever is defined is used by other code that is used, or is in the docs, an example or a benchmark.

    Names are compared, not objects: two methods of one name count as used if one of them is. What is found
    is unused for certain; it goes, or moves to the tests.
    """
    found: list[Defined] = []
    used: set[str] = set()
    for source in SOURCES:
        tree = ast.parse(source.read_text(encoding="utf-8"))
        read_definitions(tree, str(source.relative_to(ROOT)), used, found)
    outside = [*ROOT.glob("*.md"), ROOT / "pyproject.toml"]
    for folder, pattern in (("docs", "*.md"), ("examples", "*.py"), ("benchmarks", "*.py")):
        outside += (ROOT / folder).rglob(pattern)
    for page in outside:
        used |= words(page.read_text(encoding="utf-8"))
    unused = found
    while reached := [entry for entry in unused if is_used(entry, used)]:
        unused = [entry for entry in unused if not is_used(entry, used)]
        for entry in reached:
            used |= entry.uses
    assert not [f"{e.name} ({e.place})" for e in unused]
