"""Settings that no component has: data, run and Flower; each key is described here and nowhere else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tacit.core.errors import ConfigError
from tacit.data.database import check_address
from tacit.data.reading import Reading


@dataclass(frozen=True)
class DataSettings(Reading):
    """Which rows.

    Parameters
    ----------
    name : str or list
        A data set of ``tacit data``, the path of a CSV, TSV, Excel or parquet file, or a database; several
        files, or a folder of them: each is a client. On Flower also ``sites``: each site brings its own rows.
    repeat : int
        Use all rows this many times.
    rows : int, optional
        Take that many rows at random; for synthetic sets, how many to make.
    test : float or "split"
        Share of the rows kept for a central test, drawn by class; ``split`` takes the set's own division, 0
        keeps none.
    holdout : float
        Share of its rows that each client keeps aside for a federated evaluation.
    classes : list, optional
        The classes, declared beforehand: a list, or separated by commas; else clients tell which they hold.
    categories : list, optional
        Categories of columns, declared beforehand, each column as ``ward=north|south``.
    """

    name: str | tuple[str, ...] = "digits"
    repeat: int = 1
    rows: int | None = None
    test: float | str = 0.3
    holdout: float = 0.0
    classes: tuple[str | int | float | bool, ...] | None = None
    categories: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for source in (self.name,) if isinstance(self.name, str) else self.name:
            check_address(source)
        self.kinds()
        _ = self.declared

    @property
    def declared(self) -> dict[str, Any]:
        """What the federation need not find out: classes, and categories by column."""
        pairs = [text.partition("=")[::2] for text in self.categories or ()]
        found = {column.strip(): words.split("|") for column, words in pairs}
        if len(found) < len(pairs) or not all(map(all, found.values())):
            told = ", ".join(self.categories or ())
            raise ConfigError(f"[data] categories are {told}: give each column once, as in ward=north|south")
        classes = {} if self.classes is None else {"classes": list(self.classes)}
        return classes | ({"categories": found} if found else {})

    @property
    def title(self) -> str:
        """What was named, in one line."""
        return self.name if isinstance(self.name, str) else ", ".join(self.name)


@dataclass(frozen=True)
class RunSettings:
    """How to run.

    Parameters
    ----------
    seed : int
        Source of all public randomness: same seed, same model.
    workers : int
        Worker processes; 0 runs all clients in this one. The model is the same to the last byte.
    timeout : float, optional
        Seconds that a client may take for a step.
    quorum : float
        Share of the clients that must contribute to each sum.
    min_clients : int, optional
        No total over fewer contributions is opened, and no two that differ by fewer; left out, 1 where the
        protection hides nothing, else 3.
    min_count : int, optional
        No class, category or column is learnt from in which fewer rows of all clients stand apart: rarer
        categories become "other", a rarer class ends the run. 1 counts nothing; left out, 1 where the
        protection hides nothing or adds noise, else 5.
    watts : float
        Nominal power of a device's CPU, for the energy account.
    grid : float, optional
        Grams of CO2 for a kilowatt-hour of the grid, to account for the emissions as well.
    baselines : bool
        Also train centrally and at (up to 100) clients alone, for comparison.
    repeats : int
        Train so many times, from this seed on, for the confidence intervals of the scores; each has its own
        test rows and division. With 1 they are found by bootstrap.
    transcript : bool
        Keep every byte that each party received, in the run folder.
    sinks : list
        Where else scores and costs go: mlflow, tensorboard or wandb, each an extra of that name.
    out : str
        Folder for run folders.
    engine : {"embedded", "flower"}
        Where the clients are: ``embedded`` on this machine, or ``flower``: at SuperNodes.
    """

    seed: int = 0
    workers: int = 0
    timeout: float | None = None
    quorum: float = 0.8
    min_clients: int | None = None
    min_count: int | None = None
    watts: float = 65.0
    grid: float | None = None
    baselines: bool = True
    repeats: int = 1
    transcript: bool = False
    sinks: tuple[str, ...] = ()
    out: str = "runs"
    engine: Literal["embedded", "flower"] = "embedded"


@dataclass(frozen=True)
class FlowerSettings:
    """Which Flower federation.

    Parameters
    ----------
    coordinator : str
        Folder with the coordinator's keys and the roster, beside which the SuperLink was started.
    wait : float
        Seconds to wait for sites that are not connected yet.
    """

    coordinator: str = "coordinator"
    wait: float = 60.0


@dataclass(frozen=True)
class SurveySettings:
    """The table [survey] of a file: names, as a list or separated by commas, and options by method."""

    methods: str | tuple[str, ...] = "all"
    protect: str | tuple[str, ...] = "default"
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
