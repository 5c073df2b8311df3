"""The catalogue: what is known of every public data set, and how its content is recognised.

The facts live in ``catalog.toml``. ``sha256`` is that of the parquet file as distributed among developers. A
parquet that Tacit writes itself from a download holds the same rows but other bytes, and is recognised by
``content``, the digest of the parsed table (:func:`content_digest`). Sets that were never at hand have
neither: ``reproductions/_originals.py`` says how those are checked.
"""

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.data.table import Table, Task

_BLOCK = 65_536  # rows that are hashed at a time: the float32 copy stays small


@dataclass(frozen=True)
class DataSet:
    """What the catalogue knows of one data set; empty where nobody has published it."""

    name: str
    title: str
    rows: int
    features: int
    licence: str
    citation: str
    source: str = ""
    notes: str = ""
    caution: str = ""
    task: Task = "classification"
    classes: Mapping[str, int] = field(default_factory=dict)  # the rows of each, by the label as text
    targets: tuple[str, ...] = ("target",)
    groups: tuple[str, ...] = ()
    sha256: str = ""
    content: str = ""
    urls: tuple[str, ...] = ()  # from which `tacit data fetch` can get it
    archives: tuple[str, ...] = ()  # SHA-256 of the files at these addresses
    original: str = ""  # their format, a name in reproductions/_formats.py
    size: str = ""  # how much there is to download


@cache
def catalog() -> Mapping[str, DataSet]:
    """Read all entries, by name."""
    text = resources.files("tacit.data").joinpath("catalog.toml").read_text(encoding="utf-8")
    found = {name: {"name": name, **facts} for name, facts in tomllib.loads(text).items()}
    return MappingProxyType(msgspec.convert(found, dict[str, DataSet]))


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pinned_digest(path: Path) -> str | None:
    """Return the digest that was written beside a file once it had passed all checks."""
    pin = path.with_name(f"{path.name}.sha256")
    return pin.read_text().split()[0] if pin.is_file() else None


def content_digest(table: Table) -> str:
    """Compute a digest of what a table says, whatever the file, the column types or the vocabularies' order.

    SHA-256 over the column names and kinds, all values row by row as little-endian float32 (missing
    as one fixed NaN, categories as their rank in the sorted vocabulary in use), the vocabularies,
    the targets, and the groups.
    """
    digest = hashlib.sha256()
    ranks: dict[int, NDArray[np.float32]] = {}
    for index, column in enumerate(table.columns):
        words: list[str] = []
        if column.kind == "category":
            ranks[index], words = _ranked(table.values[:, index], column.categories)
        _say(digest, column.name, column.kind, *words)
    for start in range(0, table.rows, _BLOCK):
        block = table.values[start : start + _BLOCK].astype("<f4")
        for index, rank in ranks.items():
            block[:, index] = rank[start : start + _BLOCK]
        block[np.isnan(block)] = np.nan  # one bit pattern for every NaN
        digest.update(block.tobytes())
    _say(digest, table.task, *table.target_names)
    if table.task == "classification":
        rank, words = _ranked(table.target, tuple(str(label) for label in table.classes))
        _say(digest, *words)
        digest.update(rank.tobytes())
    else:
        digest.update(table.target.astype("<f4").tobytes())
    for name in sorted(table.groups):
        values, codes = np.unique(table.groups[name].astype(str), return_inverse=True)
        _say(digest, name, *values.tolist())
        digest.update(codes.astype("<f4").tobytes())
    return digest.hexdigest()


def _ranked(codes: NDArray[Any], words: tuple[str, ...]) -> tuple[NDArray[np.float32], list[str]]:
    present = codes[~np.isnan(codes)].astype(np.int64)
    used = sorted({words[code] for code in np.unique(present)})
    place = {word: rank for rank, word in enumerate(used)}
    lookup = np.array([place.get(word, np.nan) for word in words] + [np.nan], dtype="<f4")
    return lookup[np.where(np.isnan(codes), len(words), codes).astype(np.int64)], used


def _say(digest: Any, *words: str) -> None:
    """Feed words with their lengths, so that no two lists of words read the same."""
    for word in words:
        data = word.encode()
        digest.update(len(data).to_bytes(4, "little") + data)
    digest.update(b"\xff\xff\xff\xff")
