"""Settings from words alone: any setting of a run by its flag, for commands that are not `tacit run`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.cli.options import extra_flags, file_among, literal, part_options, switches, unexpected
from tacit.core.errors import ConfigError
from tacit.data.preparation import Preparation
from tacit.runs.settings import (
    DataSettings,
    RunSettings,
    Settings,
    merged,
    read_toml,
    usual_protection,
)

PARTS = ("method", "protect", "partition")


def settings_of(words: Sequence[str]) -> Settings:
    """Read settings from a TOML file and flags among the words; flags override the file.

    >>> settings = settings_of(["--data", "wine", "--clients", "5", "--lam", "0.01"])
    >>> settings.data.name, settings.partition["clients"], settings.method["lam"]
    ('wine', 5, 0.01)
    """
    homes = _homes()
    own = [name for name, kind in RunSettings.__annotations__.items() if kind == "bool"]
    file = file_among(words, own)
    tables = read_toml(Path(file)) if file else {}
    given = _sorted(extra_flags(words, [*switches(), *own])[0], homes)
    over = merged(tables, {name: table for name, table in given.items() if table})
    for name in PARTS:
        if not isinstance(over.setdefault(name, {}), dict):
            raise ConfigError(f"[{name}] is {over[name]!r}: write it as a table with keys")
    defaults = vars(Settings()) | {"protect": usual_protection(over["method"])}
    chosen = {name: str({**defaults[name], **over[name]}["name"]) for name in PARTS}
    pairs, left = extra_flags(words, [*switches(chosen), *own])
    if odd := [word for word in left if word != file]:
        raise unexpected(odd[0])
    rest = [(key, text) for key, text in pairs if key not in homes]
    return Settings.from_tables(merged(over, part_options(rest, chosen, list(homes))))


def _homes() -> dict[str, tuple[str, str]]:
    """Table and key of every flag that is not an option of a part."""
    found = {"clients": ("partition", "clients"), **{part: (part, "name") for part in PARTS}}
    for section, kind in (("data", DataSettings), ("run", RunSettings), ("prepare", Preparation)):
        for field in dataclasses.fields(kind):
            found[section if field.name == "name" else field.name] = (section, field.name)
    return found


def _sorted(pairs: Sequence[tuple[str, str]], homes: dict[str, tuple[str, str]]) -> dict[str, dict[str, Any]]:
    tables: dict[str, dict[str, Any]] = {}
    for key, text in pairs:
        if key in homes:
            section, name = homes[key]
            value: Any = (
                [literal(word.strip()) for word in text.split(",")] if key == "classes" else literal(text)
            )
            tables.setdefault(section, {})[name] = value
    return tables
