"""Every setting of a run, with its key and its flag: the command's flags, the commented file and the docs.

Also what repeats a run: its command, and its settings as a file.
"""

import dataclasses
import json
import re
import shlex
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from tacit.core.component import Option, list_options
from tacit.data.partition import CLIENTS, PARTITIONERS, options_of
from tacit.data.preparation import Preparation
from tacit.methods import METHODS
from tacit.protections import PROTECTIONS
from tacit.runs.settings import METHOD, Settings
from tacit.runs.tables import DataSettings, FlowerSettings, RunSettings

NAMED = ("method", "partition", "protect")
TABLES = {"data": DataSettings, "prepare": Preparation, "run": RunSettings, "flower": FlowerSettings}
NAMES: Mapping[str, Iterable[str]] = {"partition": PARTITIONERS, "method": METHODS, "protect": PROTECTIONS}
HEAD = """\
# A federation for Tacit. Run it with:  tacit run federation.toml
# Keys show their defaults, those that are commented out too; flags of `tacit run` override this file.
"""
WIDTH = 100


def command(settings: Settings) -> str:
    """Write the command that repeats a run: what differs from the defaults, and what was chosen by name."""
    words, tables, defaults = ["tacit", "run"], settings.as_tables(), Settings().as_tables()
    for section in ("data", "run", "flower", "method", "partition", "protect", "prepare"):
        if section == "partition" and settings.brings_own_rows:
            continue
        for key, value in tables[section].items():
            known = section in ("data", "run", "flower") and key not in ("name", "seed")
            if value is None or (known and value == defaults[section][key]):
                continue
            flag = (section if key == "name" else key).replace("_", "-")
            if section in NAMED and key in tables["data"] and key != "name":
                flag = f"{section}.{flag}"  # --features are columns, unless the method's are meant
            if section == "run" and isinstance(value, bool):
                words.append(f"--{flag}" if value else f"--no-{flag}")
            elif key == "name" and isinstance(value, tuple | list):
                words += [f"--{flag}", *value]
            else:
                words += [f"--{flag}", flag_text(value)]
    return shlex.join(words)


def flag_text(value: Any) -> str:
    """Write a value as the command reads it."""
    if isinstance(value, tuple | list):
        return ",".join(map(flag_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def toml(tables: Mapping[str, Any]) -> str:
    """Write tables of plain values as TOML; what is None is left out."""
    lines = []
    for name, table in tables.items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {toml_value(value)}" for key, value in table.items() if value is not None]
        lines.append("")
    return "\n".join(lines)


def toml_value(value: Any) -> str:
    """Write a plain value as TOML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml_value(v)}" for key, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return msgspec.json.encode(value).decode()


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
    """Return what an option means, with the words that it may be unless they are named."""
    words = choices(option)
    if all(word in option.doc for word in words):
        return option.doc
    first, dot, rest = option.doc.partition(". ")
    return f"{first.removesuffix('.')} ({', '.join(words[:-1])} or {words[-1]}){dot or '.'}{rest}"


def choices(option: Option) -> list[str]:
    """Return the words that an option may be; none for other types."""
    return re.findall(r"['\"]([^'\"]+)['\"]", option.type) if option.type.startswith("Literal") else []


def list_keys(base: Mapping[str, Mapping[str, Any]] | None = None) -> list[Key]:
    """Return the settings that every run has, in the order of their tables; ``base`` has other defaults."""
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
    """Return the options of all components of a kind, those that are alike once, with who has them."""
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
            usual = METHODS.get(METHOD).default_settings if table == "protect" else {}
            for who, option in group_options(table):
                taken = option.name in usual and METHODS.get(METHOD).default_protection in who
                shown = replace(option, default=usual[option.name]) if taken else option
                lines.append(_entry(shown, ", ".join(who), active=taken))
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def _entry(option: Option, who: str = "", *, active: bool = True) -> str:
    doc = describe(option).replace("``", "`")
    lines = textwrap.wrap(f"{who}: {doc}" if who else doc, WIDTH, initial_indent="# ", subsequent_indent="# ")
    empty: Any = {"int": 0, "float": 0.0, "tuple": []}.get(re.split(r"\W", option.type)[0], "")
    value = empty if option.default is None else option.default
    mark = "" if active and option.default is not None else "#"
    return "\n".join([*lines, f"{mark}{option.name} = {toml_value(value)}"])
