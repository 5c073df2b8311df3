"""What repeats a run: its command, and its settings as a file."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from tacit.runs.settings import Settings
from tacit.runs.tables import DataSettings, FlowerSettings, RunSettings


def command(settings: Settings) -> str:
    """Write the command that repeats a run."""
    words = ["tacit", "run"]
    for section, table, default in (
        ("data", settings.data, DataSettings()),
        ("run", settings.run, RunSettings()),
        ("flower", settings.flower, FlowerSettings()),
    ):
        for key, value in vars(table).items():
            if value != getattr(default, key) or key in ("name", "seed"):
                words += _flag(section if key == "name" else key, value)
    for section in ("method", "partition", "protect"):
        options: Mapping[str, Any] = getattr(settings, section)
        words += _flag(section, options["name"])
        for key, value in options.items():
            if key != "name" and value is not None:
                words += [f"--{key.replace('_', '-')}", _text(value)]
    for key, value in settings.prepare.items():
        words += _flag(key, value)
    return shlex.join(words)


def _flag(key: str, value: Any) -> list[str]:
    flag = f"--{key.replace('_', '-')}"
    if value is True:
        return [flag]
    if value is False:
        return [f"--no-{key.replace('_', '-')}"]
    return [flag, _text(value)]


def _text(value: Any) -> str:
    """Write a value as the command reads it."""
    if isinstance(value, tuple | list):
        return ",".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def toml(tables: Mapping[str, Any]) -> str:
    """Write tables of plain values as TOML; what is None is left out.

    >>> print(toml({"method": {"name": "fedheonn", "rank": None, "scales": [1.0, 2.0]}}))
    [method]
    name = "fedheonn"
    scales = [1.0, 2.0]
    <BLANKLINE>
    """
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
