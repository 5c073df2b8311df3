"""Loading data by name or path, listing what is there, and looking a data set over.

docs/data.md says where a name is looked for. In parquet files under a name the features come first; ``split``
and ``subject`` are groups, by which rows may be divided, and never features; ``target`` is predicted.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from tacit.core.component import from_plain
from tacit.core.errors import ConfigError, SchemaError, UnavailableError, nearest
from tacit.data import synthetic
from tacit.data.agreement import Agreement, signature_of
from tacit.data.catalog import catalog
from tacit.data.database import check_address, is_database
from tacit.data.partition import BY_FILE
from tacit.data.reading import Reading
from tacit.data.sources import ONE_OF, is_data, read_source, stem_of
from tacit.data.table import Column, Table, Task, is_frame, joined

BUILT_IN = {
    "breast_cancer": "Breast Cancer Wisconsin (diagnostic)",
    "digits": "Handwritten digits, 8 × 8 pixels (test part of optdigits)",
    "iris": "Iris flowers",
    "wine": "Wine recognition",
}


@dataclass(frozen=True)
class Known:
    """A data set that can be named: what it is and where it comes from."""

    name: str
    kind: Literal["built-in", "file", "downloadable", "absent", "synthetic"]
    where: str
    title: str


def load(
    name_or_path: str | Path | Sequence[str | Path] | Any,
    *,
    target: str | Sequence[str] | None = None,
    task: Task | None = None,
    groups: Sequence[str] | None = None,
    repeat: int = 1,
    rows: int | None = None,
    seed: int = 0,
    called: str = "table",
    **choices: Any,
) -> Table:
    """Load a data set by its name, a file by its path, a DataFrame, or the answer of a database to a query.

    A path ends in ``.csv``, ``.tsv``, ``.csv.gz``, ``.xlsx`` or ``.parquet``, or holds a path separator;
    a database is ``postgresql://…``, ``sqlite:///…`` or ``duckdb:///…``. Of several files, or of a folder
    of files, all rows are loaded, and the group ``file`` says from which each is. A DataFrame is one of
    pandas, Polars, Arrow or the like, which messages call as ``called`` says.

    ``target`` is the column to predict ("a,b,c" for several quantities), unless it is called ``target``.
    If no ``task`` is given, text, truth values, and whole numbers of at most 50 distinct values are
    classes, anything else is a quantity. ``groups`` are neither feature nor target: ``split`` and
    ``subject`` if not given. Every row is used ``repeat`` times, then so many ``rows`` are taken, at
    random by ``seed`` and in the file's order; of a synthetic set that is the size. Other ``choices`` say
    which columns, of which kind, and how the file is written: ``features``, ``drop``, ``date`` and more,
    see :class:`~tacit.data.reading.Reading`.

    >>> table = load("iris", rows=30)
    >>> table.rows, table.classes
    (30, ('setosa', 'versicolor', 'virginica'))
    """
    if task is not None and task not in get_args(Task):
        raise ConfigError(f"task is '{task}': {nearest(str(task), get_args(Task))}")
    for word, number in (("repeat", repeat), ("rows", rows)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise ConfigError(f"{word} is {number!r}: give a whole number of at least 1")
    said = {"target": target, "task": task, "groups": groups, **choices}
    listed = name_or_path if isinstance(name_or_path, list | tuple) else [name_or_path]
    if is_frame(name_or_path):
        from tacit.data.arrow import to_arrow, to_table

        table = to_table(to_arrow(name_or_path, called), called, **said)
    elif not all(isinstance(one, str | Path) for one in listed):
        raise ConfigError(f"{called} is a {type(name_or_path).__name__}: give a name, a path or a DataFrame")
    elif (parts := list_parts(name_or_path)) is not None:
        table = _joined({name: _load_one(path, said) for name, path in parts.items()})
    elif (name := str(name_or_path)) in synthetic.SHAPES:
        _check_known(name, said)
        table = synthetic.generate(name, rows=None if rows is None else -(-rows // repeat), seed=seed)
    else:
        assert isinstance(name_or_path, str | Path)
        table = _load_one(name_or_path, said)
    return _choose(table, repeat, rows, seed)


def _load_one(source: str | Path, said: Mapping[str, Any]) -> Table:
    from tacit.data.arrow import to_table

    if (name := str(source)) in BUILT_IN:
        _check_known(name, said)
        return _built_in(name)
    place = locate(source)
    choices = {key: value for key, value in said.items() if key not in ("target", "task", "groups")}
    data, notes = read_source(place, from_plain(Reading, choices, "load", "argument"))
    usual = catalog()[name].targets if name in catalog() else None
    table = to_table(data, stem_of(place), **{**said, "target": said["target"] or usual}, notes=notes)
    if name in catalog():  # its columns are known to be what they are
        return replace(table, chosen=tuple(column.name for column in table.columns))
    return table


def _check_known(name: str, said: Mapping[str, Any]) -> None:
    if odd := [
        key for key in said if said[key] is not None and (key, said[key]) != ("task", "classification")
    ]:
        raise ConfigError(f"{name} comes with its target, task and columns: leave out {', '.join(odd)}")


def list_parts(source: str | Path | Sequence[str | Path]) -> dict[str, str | Path] | None:
    """Return the files of a list or a folder, each under the name of its client; None of a single source."""
    paths: Sequence[str | Path]
    if isinstance(source, str | Path):
        folder = Path(source).expanduser()
        if is_database(source) or source in BUILT_IN or source in catalog() or not folder.is_dir():
            return None
        paths = sorted(path for path in folder.iterdir() if is_data(path) and path.name[0] not in ".~")
        if not paths:
            raise ConfigError(f"{folder} is a directory without data: put in {ONE_OF} for each client")
    else:
        paths = source
    names = [stem_of(path) for path in paths]
    if len(set(names)) < len(names):  # one folder for each site, perhaps
        names = [f"{Path(path).parent.name}-{name}" for path, name in zip(paths, names, strict=True)]
    if len(set(names)) < len(names) or not names:
        raise ConfigError("two files have one name, and each is a client under its name: rename one")
    return dict(zip(names, paths, strict=True))


def _joined(tables: Mapping[str, Table]) -> Table:
    agreement = Agreement({})
    for name, table in tables.items():
        agreement.add(name, {"signature": signature_of(table), "vocabulary": b"{}"})
    for difference in agreement.outvoted().values():
        raise SchemaError(difference)
    pooled = joined([*tables.values()])
    client = np.repeat(list(tables), [table.rows for table in tables.values()])
    return replace(pooled, name=", ".join(tables), groups={**pooled.groups, BY_FILE: client})


def read_rows(source: str | Path, **choices: Any) -> Any:
    """Read a file or a query as an Arrow table with all its columns, of the kinds that were said."""
    from tacit.data.arrow import convert

    reading, place = from_plain(Reading, choices, "rows", "argument"), locate(source)
    return convert(read_source(place, reading)[0], reading, stem_of(place))


def locate(name_or_path: str | Path) -> str | Path:
    """Find the file of a data set, or say how to get it; a database is where it says."""
    name = str(name_or_path)
    check_address(name)
    if is_database(name):
        return name
    if is_path(name_or_path):
        path = Path(name_or_path).expanduser()
        if path.is_dir():
            raise ConfigError(f"{path} is a directory: give the path of {ONE_OF}")
        if not path.is_file():
            raise ConfigError(f"no file {path}: give the path of {ONE_OF}")
        if not is_data(path):
            raise ConfigError(f"{path} ends in '{path.suffix}': give {ONE_OF}")
        return path
    for folder in folders():
        if (path := folder / f"{name}.parquet").is_file():
            return path
    if name in catalog():
        fetch = f"run `tacit data fetch {name}`, or " if catalog()[name].urls else ""
        raise UnavailableError(
            f"the data set '{name}' is not on this machine: {fetch}put {name}.parquet into the folder that "
            f"TACIT_DATA names (looked in {', '.join(str(folder) for folder in folders())})"
        )
    raise ConfigError(f"no data set '{name}': {nearest(name, [known.name for known in available()])}")


def absolute(source: str, folder: Path = Path()) -> str:
    """Return the place of a file or a database so that it holds from every folder."""
    scheme, slashes, path = source.partition(":///")
    if slashes:
        return f"{scheme}:///{(folder / path).absolute()}"
    return source if is_database(source) else str((folder / source).expanduser().absolute())


def is_path(name_or_path: str | Path) -> bool:
    """Return whether this is meant as a path and not as a name."""
    text = str(name_or_path)
    return isinstance(name_or_path, Path) or is_data(text) or any(mark in text for mark in {os.sep, "/"})


def cache_folder() -> Path:
    """Return the folder in which downloads are kept."""
    from platformdirs import user_cache_path

    return user_cache_path("tacit") / "data"


def folders() -> list[Path]:
    """Return the folders in which parquet files are looked for, the first one first."""
    own = os.environ.get("TACIT_DATA")
    return [*([Path(own).expanduser()] if own else []), Path("data"), cache_folder()]


def available() -> list[Known]:
    """List every name that :func:`load` knows, and where each comes from."""
    found = {name: Known(name, "built-in", "scikit-learn", title) for name, title in BUILT_IN.items()}
    for name, shape in synthetic.SHAPES.items():
        title = f"SYNTHETIC, {shape.rows:,} × {shape.features}, in the size of {shape.like}"
        found[name] = Known(name, "synthetic", "generated", title)
    for folder in folders():
        for path in sorted(folder.glob("*.parquet")) if folder.is_dir() else ():
            title = catalog()[path.stem].title if path.stem in catalog() else ""
            found.setdefault(path.stem, Known(path.stem, "file", str(path), title))
    for name, facts in catalog().items():
        kind: Literal["downloadable", "absent"] = "downloadable" if facts.urls else "absent"
        where = f"{facts.urls[0]} ({facts.size})" if facts.urls else f"put {name}.parquet into TACIT_DATA"
        found.setdefault(name, Known(name, kind, where, facts.title))
    return sorted(found.values(), key=lambda known: known.name)


def _built_in(name: str) -> Table:
    from sklearn import datasets

    bunch: Any = getattr(datasets, f"load_{name}")()
    # The pixels of digits are counts from 0 to 16; everything else is measured.
    values = bunch.data.astype(np.uint8) if name == "digits" else bunch.data
    columns = tuple(Column(str(word)) for word in bunch.feature_names)
    labels = range(10) if name == "digits" else bunch.target_names.tolist()
    return Table(name, columns, values, bunch.target.astype(np.int64), "classification", tuple(labels))


def _choose(table: Table, repeat: int, rows: int | None, seed: int) -> Table:
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
