"""Loading data by name or path, listing what is there, and looking a data set over.

A name is looked for, in order, among the built-in sets of scikit-learn, the synthetic sets, and the
parquet files in ``$TACIT_DATA``, in ``./data`` and in the user's cache, where ``tacit data fetch`` puts
what it downloads. In these files the features come first; ``split`` and ``subject`` are groups, by which
rows may be divided, and never features; ``target`` is predicted.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from tacit.core.errors import ConfigError, UnavailableError, nearest
from tacit.data import synthetic
from tacit.data.arrow import read_csv, read_parquet, to_table
from tacit.data.catalog import catalog
from tacit.data.table import Column, Table, Task

BUILT_IN = {
    "breast_cancer": "Breast Cancer Wisconsin (diagnostic)",
    "digits": "Handwritten digits, 8 × 8 pixels (test part of optdigits)",
    "iris": "Iris flowers",
    "wine": "Wine recognition",
}
_TEXT = (".csv", ".tsv")


@dataclass(frozen=True)
class Known:
    """A data set that can be named: what it is and where it comes from."""

    name: str
    kind: Literal["built-in", "file", "downloadable", "absent", "synthetic"]
    where: str
    title: str


def load(
    name_or_path: str | Path,
    *,
    target: str | Sequence[str] | None = None,
    task: Task | None = None,
    groups: Sequence[str] | None = None,
    repeat: int = 1,
    rows: int | None = None,
    seed: int = 0,
) -> Table:
    """Load a data set by its name, or a CSV, TSV or parquet file by its path.

    Parameters
    ----------
    name_or_path : str or Path
        Anything that ends in ``.csv``, ``.tsv`` or ``.parquet`` or holds a path separator is a path.
    target : str or list of str, optional
        The column to predict ("a,b,c" for several quantities), unless it is called ``target``.
    task : {"classification", "regression"}, optional
        Guessed if not given: text, truth values, and whole numbers of at most 50 distinct values (stored
        as integers or as floats) are classes; anything else is a quantity.
    groups : list of str, optional
        Columns of a file that are neither feature nor target: ``split`` and ``subject`` if not given.
    repeat : int
        Use every row this many times.
    rows : int, optional
        Take this many rows, at random by ``seed`` and in the file's order. For a synthetic set, its size.
    seed : int

    Examples
    --------
    >>> table = load("iris", rows=30)
    >>> table.rows, table.classes
    (30, ('setosa', 'versicolor', 'virginica'))
    >>> load("irsi")
    Traceback (most recent call last):
    tacit.core.errors.ConfigError: no data set 'irsi': did you mean 'iris'? ...
    """
    if task is not None and task not in get_args(Task):
        raise ConfigError(f"task is '{task}': {nearest(str(task), get_args(Task))}")
    for word, number in (("repeat", repeat), ("rows", rows)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise ConfigError(f"{word} is {number!r}: give a whole number of at least 1")
    if not isinstance(name_or_path, str | Path):  # whose text may be rows
        raise ConfigError(f"a {type(name_or_path).__name__} is no name or path of data: give one of these")
    name = str(name_or_path)
    if name in BUILT_IN or name in synthetic.SHAPES:
        if target is not None or groups is not None or task == "regression":
            raise ConfigError(f"{name} comes with its target and task: leave out target, groups and task")
        wanted = None if rows is None else -(-rows // repeat)
        table = _built_in(name) if name in BUILT_IN else synthetic.generate(name, rows=wanted, seed=seed)
        return _choose(table, repeat, rows, seed)
    path = locate(name_or_path)
    data = read_csv(path) if path.suffix.lower() in _TEXT else read_parquet(path)
    if target is None and name in catalog():
        target = catalog()[name].targets
    table = to_table(data, path.stem, target=target, task=task, groups=groups)
    if name in catalog():  # its columns are known to be what they are
        table = replace(table, chosen=tuple(column.name for column in table.columns))
    return _choose(table, repeat, rows, seed)


def locate(name_or_path: str | Path) -> Path:
    """Find the file of a data set, or say how to get it."""
    name = str(name_or_path)
    if is_path(name_or_path):
        path = Path(name_or_path).expanduser()
        if path.is_dir():
            raise ConfigError(f"{path} is a directory: give the path of a CSV, TSV or parquet file")
        if not path.is_file():
            raise ConfigError(f"no file {path}: give the path of a CSV, TSV or parquet file")
        if not is_data(path):
            raise ConfigError(f"{path} ends in '{path.suffix}': give a .csv, .tsv or .parquet file")
        return path
    for folder in folders():
        if (folder / f"{name}.parquet").is_file():
            return folder / f"{name}.parquet"
    if name in catalog():
        fetch = f"run `tacit data fetch {name}`, or " if catalog()[name].downloadable else ""
        raise UnavailableError(
            f"the data set '{name}' is not on this machine: {fetch}put {name}.parquet into the folder that "
            f"TACIT_DATA names (looked in {', '.join(str(folder) for folder in folders())})"
        )
    raise ConfigError(f"no data set '{name}': {nearest(name, [known.name for known in available()])}")


def is_data(name_or_path: str | Path) -> bool:
    """Return whether this ends as files of data do.

    >>> is_data("mine.csv"), is_data("federation.toml")
    (True, False)
    """
    return Path(name_or_path).suffix.lower() in (*_TEXT, ".parquet")


def is_path(name_or_path: str | Path) -> bool:
    """Return whether this is meant as a path and not as a name.

    >>> is_path("adult"), is_path("adult.csv"), is_path("mine/adult")
    (False, True, True)
    """
    text = str(name_or_path)
    separators = {os.sep, os.altsep, "/"} - {None}
    return isinstance(name_or_path, Path) or is_data(text) or any(str(one) in text for one in separators)


def cache_folder() -> Path:
    """Return the folder in which downloads are kept."""
    from platformdirs import user_cache_path

    return user_cache_path("tacit") / "data"


def folders() -> list[Path]:
    """Return the folders in which parquet files are looked for, the first one first."""
    own = os.environ.get("TACIT_DATA")
    return [*([Path(own).expanduser()] if own else []), Path("data"), cache_folder()]


def available() -> list[Known]:
    """List every name that :func:`load` knows, and where each comes from.

    >>> [known.kind for known in available() if known.name == "digits"]
    ['built-in']
    """
    found = {name: Known(name, "built-in", "scikit-learn", title) for name, title in BUILT_IN.items()}
    for name, shape in synthetic.SHAPES.items():
        title = f"SYNTHETIC, {shape.rows:,} × {shape.features}, in the size of {shape.like}"
        found[name] = Known(name, "synthetic", "generated", title)
    for folder in folders():
        for path in sorted(folder.glob("*.parquet")) if folder.is_dir() else ():
            title = catalog()[path.stem].title if path.stem in catalog() else ""
            found.setdefault(path.stem, Known(path.stem, "file", str(path), title))
    for name, facts in catalog().items():
        kind: Literal["downloadable", "absent"] = "downloadable" if facts.downloadable else "absent"
        where = f"{facts.urls[0]} ({facts.size})" if facts.urls else f"put {name}.parquet into TACIT_DATA"
        found.setdefault(name, Known(name, kind, where, facts.title))
    return sorted(found.values(), key=lambda known: known.name)


def _built_in(name: str) -> Table:
    from sklearn import datasets

    bunch: Any = getattr(datasets, f"load_{name}")()
    # The pixels of digits are counts from 0 to 16; everything else is measured.
    values = bunch.data.astype(np.uint8) if name == "digits" else bunch.data
    columns = tuple(Column(str(word), dtype=str(values.dtype)) for word in bunch.feature_names)
    labels = range(10) if name == "digits" else bunch.target_names.tolist()
    return Table(name, columns, values, bunch.target.astype(np.int64), "classification", tuple(labels))


def _choose(table: Table, repeat: int, rows: int | None, seed: int) -> Table:
    """Repeat the rows, then keep some of them."""
    total = table.rows * repeat
    if rows is not None and rows > total:
        raise ConfigError(
            f"{table.name} has {total:,} rows{f' ({repeat} times {table.rows:,})' if repeat > 1 else ''}, "
            f"{rows:,} were asked for: lower rows or raise repeat"
        )
    if repeat > 1:
        table = replace(table, name=f"{table.name}×{repeat}")
    if rows is None or rows == total:
        return table if repeat == 1 else table.take(np.tile(np.arange(table.rows), repeat))
    chosen = np.sort(np.random.default_rng(seed).choice(total, rows, replace=False))
    return table.take(chosen % table.rows)
