"""What repeats a run: its command, and its settings as a file."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from tacit.runs.settings import Settings

NAMED = ("method", "partition", "protect")


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
