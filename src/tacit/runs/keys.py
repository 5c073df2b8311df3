"""Every setting of a run, with its key and its flag: the command's flags, the commented file and the docs.

A setting is described once, in the docstring of the class that has it.
"""

import dataclasses
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tacit.core.component import Option, list_options
from tacit.data.partition import CLIENTS, PARTITIONERS, options_of
from tacit.data.preparation import Preparation
from tacit.methods import METHODS
from tacit.protections import PROTECTIONS
from tacit.runs.repeat import toml_value
from tacit.runs.settings import METHOD, Settings
from tacit.runs.tables import DataSettings, FlowerSettings, RunSettings

TABLES = {"data": DataSettings, "prepare": Preparation, "run": RunSettings, "flower": FlowerSettings}
NAMES: Mapping[str, Iterable[str]] = {"partition": PARTITIONERS, "method": METHODS, "protect": PROTECTIONS}
HEAD = """\
# A federation for Tacit. Run it with:  tacit run federation.toml
# Keys show their defaults, those that are commented out too; flags of `tacit run` override this file.
"""
WIDTH = 100


class Key(NamedTuple):
    """A setting that every run has: its table in a file, and what it is."""

    table: str
    option: Option

    @property
    def flag(self) -> str:
        """The flag of the command."""
        return flag_of(self.table if self.option.name == "name" else self.option.name)


def flag_of(name: str) -> str:
    """Return the flag of a setting, without the dashes before it."""
    return name.replace("_", "-")


def describe(option: Option) -> str:
    """Return what an option means, with the words that it may be unless they are named.

    >>> describe(Option("holder", "Literal['server', 'clients']", "server", "Who holds the key."))
    'Who holds the key (server or clients).'
    """
    words = choices(option)
    if all(word in option.doc for word in words):
        return option.doc
    first, dot, rest = option.doc.partition(". ")
    return f"{first.removesuffix('.')} ({', '.join(words[:-1])} or {words[-1]}){dot or '.'}{rest}"


def choices(option: Option) -> list[str]:
    """Return the words that an option may be; none for other types."""
    return re.findall(r"['\"]([^'\"]+)['\"]", option.type) if option.type.startswith("Literal") else []


def list_keys(base: Mapping[str, Mapping[str, Any]] | None = None) -> list[Key]:
    """Return the settings that every run has, in the order of their tables; ``base`` has other defaults.

    >>> [key.flag for key in list_keys() if key.table == "partition"]
    ['partition', 'clients']
    """
    default, keys = Settings(), []
    for each in list_options(Settings):
        table = each.name
        if table in TABLES:
            options = sorted(list_options(TABLES[table]), key=lambda option: option.name != "name")
        else:
            options = [
                Option("name", f"Literal{list(NAMES[table])}", getattr(default, table)["name"], each.doc)
            ]
            options += [CLIENTS] if table == "partition" else []
        other = (base or {}).get(table, {})
        keys += [
            Key(table, dataclasses.replace(option, default=other.get(option.name, option.default)))
            for option in options
        ]
    return keys


def options_in(table: str, name: str) -> Sequence[Option]:
    """Return the options of a partition, a method or a protection, beside those that all have."""
    if table == "partition":
        options_of(name)  # refuses an unknown one
        return PARTITIONERS[name].options
    return (METHODS if table == "method" else PROTECTIONS).get(name).options()


def group_options(table: str) -> list[tuple[list[str], Option]]:
    """Return the options of all components of a kind, those that are alike once, with who has them.

    >>> [(who, option.name) for who, option in group_options("partition")][:2]
    [(['majority-even', 'majority', 'pick-two'], 'share'), (['dirichlet'], 'alpha')]
    """
    found: list[tuple[list[str], Option]] = []
    for component in NAMES[table]:
        for option in options_in(table, component):
            alike = [who for who, known in found if known == option] or [[]]
            if not alike[0]:
                found.append((alike[0], option))
            alike[0].append(component)
    names = [option.name for _, option in found]
    return sorted(found, key=lambda pair: names.index(pair[1].name))


def template() -> str:
    """Return a commented file of settings, in which every key has its default."""
    blocks = [HEAD]
    for table in dict.fromkeys(key.table for key in list_keys()):
        known = table != "partition"  # whose default depends on the data
        lines = [f"[{table}]", *(_entry(k.option, active=known) for k in list_keys() if k.table == table)]
        if table == "method":
            lines += [_entry(option) for option in options_in(table, METHOD)]
        elif table in NAMES:
            lines += [_entry(option, ", ".join(who), active=False) for who, option in group_options(table)]
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def _entry(option: Option, who: str = "", *, active: bool = True) -> str:
    """Write a key under its description; one without a default, or of other components, commented out."""
    doc = describe(option).replace("``", "`")
    lines = textwrap.wrap(f"{who}: {doc}" if who else doc, WIDTH, initial_indent="# ", subsequent_indent="# ")
    empty: Any = {"int": 0, "float": 0.0, "tuple": []}.get(re.split(r"\W", option.type)[0], "")
    value = empty if option.default is None else option.default
    mark = "" if active and option.default is not None else "#"
    return "\n".join([*lines, f"{mark}{option.name} = {toml_value(value)}"])
