"""Who takes part in a federation, and with which rows."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from tacit.core.display import Shown
from tacit.core.engine import Engine
from tacit.core.errors import ConfigError, DataError
from tacit.core.events import Events
from tacit.core.exposure import COORDINATOR
from tacit.core.random import generator
from tacit.core.secret import Secret
from tacit.data.files import load
from tacit.data.partition import BY_FILE, BY_VALUE, read_owners, split
from tacit.data.partition import partition as divide_rows
from tacit.data.reading import Reading
from tacit.data.table import Table
from tacit.engines.holdings import Holdings, SeparateHoldings, holdings_of
from tacit.engines.sites import pinned_identity, site_secret


class Parties(Shown):
    """Parties that hold rows of the same kind: the half of a federation that knows of no method."""

    unlock: Secret | None = None  # under which the coordinator keeps secrets, where it has a key for that
    experiment = True  # all rows belong to one experimenter, who may read a client's replica of the model
    workers_mb = 0.0  # peak memory of worker processes together

    def __init__(
        self,
        holdings: Holdings,
        *,
        test: Table | None = None,
        seed: int = 0,
        workers: int = 0,
        timeout: float | None = None,
        quorum: float = 0.8,
        declared: Mapping[str, Any] | None = None,
        **engine: Any,
    ) -> None:
        if not 0 < quorum <= 1:
            raise ConfigError(
                f"quorum is {quorum}: give the share of clients that must answer, above 0 up to 1"
            )
        self.holdings = holdings
        self.test = test
        self.seed = seed
        self.quorum = quorum
        self.declared = dict(declared or {})
        self._engine_settings = {"workers": workers, "timeout": timeout, **engine}
        self.engine_facts: dict[str, Any] = {"name": "embedded"}
        # What another engine changes: whose keys, who is pinned, who keeps rows aside.
        self.keys: dict[str, Any] = {"secret": site_secret(seed, COORDINATOR)}
        self.keys["pinned"] = partial(pinned_identity, seed)
        self._has_holdouts = bool(holdings.holdout_sizes.any())

    @classmethod
    def embedded(
        cls,
        data: str | Path | Table | Sequence[str | Path],
        *,
        clients: int | None = None,
        partition: str | None = None,
        test: float | str | None = 0.3,
        holdout: float = 0.0,
        seed: int = 0,
        target: str | None = None,
        task: Any = None,
        repeat: int = 1,
        rows: int | None = None,
        workers: int = 0,
        timeout: float | None = None,
        quorum: float = 0.8,
        classes: Sequence[Any] | None = None,
        declared: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Self:
        """Make a federation on this machine from one data set, divided among clients.

        Parameters
        ----------
        data : str, path or Table
            A known data set, a file, a database or a table; or several files, or a folder of them: each is
            a client under its name.
        clients : int, optional
            10, unless the partition says how many there are.
        partition : str, optional
            How rows are divided: ``iid``, or ``by-file`` for several files. Options (``alpha``, ``share``,
            ``column``) are keywords, as are choices of columns (:class:`~tacit.data.reading.Reading`).
        test : float, "split" or None
            Share of the rows, drawn by class as scikit-learn does, that the experimenter keeps for a
            central test; "split" takes the data set's own division.
        holdout : float
            Share of its rows that each client keeps aside for a federated evaluation.
        seed, target, task, repeat, rows
            See :func:`tacit.data.files.load`; the seed also divides rows and draws what parties draw.
        workers : int
            Worker processes; 0 runs all parties in this one.
        timeout : float, optional
            Seconds a client may take for a step.
        quorum : float
            Share of the asked clients that must contribute to every sum.
        classes : sequence, optional
            The classes, declared beforehand; else clients tell which they hold.
        declared : mapping, optional
            The same as ``classes``, and ``categories`` by column.
        """
        table = data
        if not isinstance(table, Table):
            choices = {name: options.pop(name) for name in [*options] if hasattr(Reading, name)}
            table = load(table, target=target, task=task, repeat=repeat, rows=rows, seed=seed, **choices)
        partition = partition or ("by-file" if BY_FILE in table.groups else "iid")
        clients = 10 if clients is None and partition not in BY_VALUE else clients
        apart = table.set_apart(options.get("column"))
        training, testing = split(apart, test, seed)
        draws = generator(b"public", seed, "partition")
        owner = divide_rows(training, partition, clients, seed=draws, **options)
        if partition in BY_VALUE:
            by = options.get("column", BY_FILE)
            words = {column.name: column.categories for column in table.columns}.get(by)
            for lost in np.setdiff1d(read_owners(apart, by), training.group(by)).tolist():
                raise DataError(
                    f"all rows of {by} '{words[int(lost)] if words else lost}' were drawn for the central "
                    "test, and every client needs some: give a smaller test, or leave those rows out"
                )
        names = np.unique(training.group(BY_FILE)).tolist() if partition == "by-file" else None
        held = holdings_of(training, owner, holdout, seed, names)
        said = {**(declared or {}), **({} if classes is None else {"classes": list(classes)})}
        return cls(
            held, test=testing, seed=seed, workers=workers, timeout=timeout, quorum=quorum, declared=said
        )

    @classmethod
    def of(
        cls,
        tables: Mapping[str, Any],
        *,
        target: str | Sequence[str] | None = None,
        task: Any = None,
        test: Any = None,
        **settings: Any,
    ) -> Self:
        """Make a federation of parties whose rows are at hand, each under its name.

        They need not agree in columns: whether they do is found out at enrolment.

        Parameters
        ----------
        tables : mapping
            By party: a DataFrame (pandas, Polars, Arrow), a table, or the path of a file.
        target, task
            See :func:`tacit.data.files.load`; a table brings its own.
        test : optional
            Rows of no party, on which models are scored: the same kinds of table.
        settings
            ``seed``, ``workers``, ``timeout``, ``quorum`` and ``declared``; and choices of columns, such as
            ``drop``, ``categorical`` and ``date`` (:class:`~tacit.data.reading.Reading`).

        Examples
        --------
        >>> import pyarrow as pa
        >>> from tacit import Federation
        >>> ward = pa.table({"age": [31, 47, 58, 64], "ill": ["no", "no", "yes", "yes"]})
        >>> Federation.of({"north": ward, "south": ward}, target="ill")
        Federation(clients north, south, rows 8, columns 1, predicts ill, task classification)
        """
        if not isinstance(tables, Mapping) or not tables:
            raise ConfigError("tables is no dict of parties' names and tables: give {'north': …}")
        said = {"target": target, "task": task}
        said |= {name: settings.pop(name) for name in [*settings] if hasattr(Reading, name)}

        def read(data: Any, name: str) -> Table:
            return data if isinstance(data, Table) else load(data, called=name, **said)

        held = {str(name): read(data, str(name)) for name, data in tables.items()}
        return cls(SeparateHoldings(held), test=None if test is None else read(test, "test"), **settings)

    def lasting_engine(self, names: Sequence[str] = ()) -> Engine | None:
        """Return the engine by which a standing federation reaches these clients; None if they live here."""
        return None

    def record(self, events: Events, run: str = "") -> None:
        """Have events of a run recorded, where there is an audit log."""

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.holdings.names)

    def facts(self) -> dict[str, Any]:
        table, known = self.holdings.table, self.experiment
        return {
            "clients": self.holdings.names if self.clients <= 6 else self.clients,
            "rows": int(self.holdings.offsets[-1]) if known else None,
            "columns": len(table.columns) if known else None,
            "predicts": table.target_names if known else None,
            "task": table.task if known else None,
            "test rows": self.test.rows if self.test is not None else None,
        }
