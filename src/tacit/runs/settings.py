"""Settings of a run: one frozen record, from flags, a TOML file or keywords, checked before anything runs."""

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Self

import msgspec

from tacit.core.component import from_plain
from tacit.core.errors import ConfigError, nearest
from tacit.core.manifest import MOST_COUNT
from tacit.core.protection import Protection
from tacit.data.files import is_path, list_parts
from tacit.data.partition import BY_VALUE, CLIENTS, options_of
from tacit.data.preparation import Preparation
from tacit.data.sources import is_data
from tacit.methods import METHODS
from tacit.methods.base import Method
from tacit.methods.compatibility import check_compatibility, check_summands, min_count_of
from tacit.protections import PROTECTIONS
from tacit.runs.tables import DataSettings, FlowerSettings, RunSettings

SHARE = "give a share from 0 up to, but below, 1"
SECONDS = "give the seconds a client may take, above 0, or leave it out"
METHOD = "fedheonn"  # unless another is named
OWN_ROWS = "sites"  # as the data's name: every site brings its own rows
OWN_FILE = {"name": "iid", "clients": 10}  # how the rows of an own file are divided
WORKERS = 64  # starting one costs a second of CPU: more help nobody, and a typing error hangs the machine


@dataclass(frozen=True)
class Settings:
    """All settings of a run, table by table.

    Parameters
    ----------
    partition : mapping
        How rows are divided among clients. Left out, several files are a client each, and the rows of an own
        file are divided among 10 clients at random.
    method : mapping
        What is learnt.
    protect : mapping
        How sums are protected. Left out, as the method usually is.
    """

    data: DataSettings = field(default_factory=DataSettings)
    partition: Mapping[str, Any] = field(
        default_factory=lambda: {"name": "label-sorted", "clients": CLIENTS.default}
    )
    method: Mapping[str, Any] = field(default_factory=lambda: {"name": METHOD})
    protect: Mapping[str, Any] = field(default_factory=lambda: usual_protection({"name": METHOD}))
    prepare: Mapping[str, Any] = field(default_factory=dict)
    run: RunSettings = field(default_factory=RunSettings)
    flower: FlowerSettings = field(default_factory=FlowerSettings)

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any]) -> Self:
        """Read nested tables, as a TOML file has them."""
        known = [f.name for f in dataclasses.fields(cls)]
        for name in tables:
            if name not in known:
                raise ConfigError(f"there is no table [{name}]: {nearest(name, known)}")
            table_of(tables, name)
        settings = cls(
            from_plain(DataSettings, tables.get("data", {}), "[data]"),
            **_components(tables),
            prepare=dict(tables.get("prepare", {})),
            run=from_plain(RunSettings, tables.get("run", {}), "[run]"),
            flower=from_plain(FlowerSettings, tables.get("flower", {}), "[flower]"),
        )
        settings.check()
        return settings

    def check(self) -> None:
        """Refuse what cannot work, before anything is loaded or sent."""
        self.build_preparation()
        clients = self.partition_options().get("clients", 1)
        if isinstance(clients, bool) or not isinstance(clients, int) or clients < 1:
            raise ConfigError(f"[partition] clients is {clients!r}: give a whole number of at least 1")
        data, run, fewest, rows = self.data, self.run, self.run.min_clients, self.run.min_count
        if isinstance(data.test, str) and data.test != "split":
            raise ConfigError(f"[data] test is '{data.test}': give a share such as 0.3, or 'split'")
        for section, name, value, fine, way_out in (
            ("data", "test", data.test, isinstance(data.test, str) or 0 <= data.test < 1, SHARE),
            ("data", "holdout", data.holdout, 0 <= data.holdout < 1, SHARE),
            ("run", "seed", run.seed, 0 <= run.seed < 2**63, "give a whole number from 0 to 2⁶³ − 1"),
            ("run", "workers", run.workers, 0 <= run.workers <= WORKERS, f"give 0 to {WORKERS} processes"),
            ("run", "quorum", run.quorum, 0 < run.quorum <= 1, "give a share above 0, at most 1"),
            ("run", "watts", run.watts, 0 < run.watts < inf, "give a CPU's nominal power, such as 65"),
            ("run", "grid", run.grid, run.grid is None or 0 <= run.grid < inf, "give grams, such as 250"),
            ("run", "timeout", run.timeout, run.timeout is None or 0 < run.timeout < inf, SECONDS),
            ("run", "repeats", run.repeats, run.repeats > 0, "give a whole number of at least 1"),
            ("flower", "wait", self.flower.wait, 0 <= self.flower.wait < inf, "give seconds, 0 or more"),
            ("run", "min_clients", fewest, fewest is None or fewest > 0, "give at least 1"),
            ("run", "min_count", rows, rows is None or 1 <= rows <= MOST_COUNT, f"give 1 to {MOST_COUNT}"),
            ("run", "out", "empty", bool(run.out.strip()), "name the folder for run folders, such as runs"),
        ):
            if not fine:
                raise ConfigError(f"[{section}] {name} is {value}: {way_out}")
        if data.classes is not None:
            names = [str(label) for label in data.classes]
            if len(names) < 2 or len(set(names)) < len(names):
                raise ConfigError(
                    f"[data] classes are {', '.join(names) or 'none'}: declare at least two, each once"
                )
        if run.repeats > 1 and (run.engine != "embedded" or not (data.test or data.holdout)):
            raise ConfigError(
                f"[run] repeats is {run.repeats}, for runs on this machine that score rows: on Flower, or "
                "without test and holdout, leave it at 1"
            )
        check_summands(self.build_protection(), clients)
        min_count_of(self.build_protection(), rows)
        self.check_compatibility()

    def check_compatibility(self, clients: int | None = None, task: str | None = None) -> None:
        """Refuse a method, a protection and a number of clients that do not go together."""
        check_compatibility(
            self.build_method(), self.build_protection(), clients, min_clients=self.run.min_clients, task=task
        )

    def build_method(self) -> Method:
        """Build the method."""
        return METHODS.build(*_named("method", self.method))

    def build_protection(self) -> Protection:
        """Build the protection."""
        return PROTECTIONS.build(*_named("protect", self.protect))

    def build_preparation(self) -> Preparation:
        """Build the preparation."""
        return Preparation.from_config(self.prepare)

    def training(self) -> dict[str, Any]:
        """Return what ``Federation.train`` takes of the settings."""
        built = {"method": self.build_method(), "protect": self.build_protection()}
        least = {"min_clients": self.run.min_clients, "min_count": self.run.min_count}
        return {**built, "preparation": self.build_preparation(), **least}

    def partition_options(self) -> dict[str, Any]:
        """Return the options of the partition, checked by name."""
        name, options = _named("partition", self.partition)
        valid = {"clients", *options_of(name)}
        for key in options:
            if key not in valid:
                raise ConfigError(f"partition {name} has no option '{key}': {nearest(key, valid)}")
        return options

    @property
    def brings_own_rows(self) -> bool:
        """Whether every site brings its own rows, so that none are divided."""
        return self.data.name == OWN_ROWS

    def as_tables(self) -> dict[str, Any]:
        """Return the settings as nested tables of plain values."""
        tables: dict[str, Any] = msgspec.to_builtins(self)
        return tables


def usual_partition(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return how rows are divided if it is not said: own files as real data are, named sets as is hard."""
    given = table_of(tables, "data").get("name", DataSettings.name)
    data = from_plain(DataSettings, {"name": given}, "[data]").name
    own = not isinstance(data, str) or is_path(data)
    usual = "by-file" if list_parts(data) is not None else "iid" if own else "label-sorted"
    clients = OWN_FILE["clients"] if own else CLIENTS.default
    named = table_of(tables, "partition").get("name", usual)
    return {"name": usual} | ({} if named in BY_VALUE else {"clients": clients})


def usual_protection(method: Mapping[str, Any], protect: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a table of a protection, filled up with what a method takes if it names none."""
    chosen, given = METHODS.get(str(method["name"])), protect or {}
    settings = {} if "name" in given else chosen.default_settings
    return {"name": chosen.default_protection, **settings, **given}


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file of settings."""
    if is_data(path):
        raise ConfigError(f"{path} is no file of settings, which ends in .toml: give data with --data {path}")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}: make one with `tacit new {path.parent}`") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def table_of(tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a table of settings, empty if there is none; refuse a value that stands in its place."""
    table = tables.get(name, {})
    if not isinstance(table, Mapping):
        raise ConfigError(f"[{name}] is {table!r}: write it as a table with keys")
    return table


def merged(tables: Mapping[str, Any], over: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Put settings over others, key by key; another name drops the options of the one before."""
    result = {name: dict(table) if isinstance(table, Mapping) else table for name, table in tables.items()}
    for name, table in over.items():
        below = table_of(result, name)
        if "name" in table and name != "data" and table["name"] != below.get("name"):
            kept = () if table["name"] in BY_VALUE else ("clients",)
            below = {key: value for key, value in below.items() if key in kept}
        result[name] = {**below, **table}
    return result


def chosen_components(tables: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of method, protection and partition that tables choose, by default or in words."""
    return {kind: str(table["name"]) for kind, table in _components(tables).items()}


def _components(tables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    method = {"name": METHOD, **table_of(tables, "method")}
    return {
        "method": method,
        "protect": usual_protection(method, table_of(tables, "protect")),
        "partition": {**usual_partition(tables), **table_of(tables, "partition")},
    }


def _named(section: str, table: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    options = dict(table)
    name = options.pop("name")
    if not isinstance(name, str):
        raise ConfigError(f"[{section}] name is {name!r}: give its name as text")
    return name, options
