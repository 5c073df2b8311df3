"""An experiment's federation: one data set, divided among clients on this machine."""

import numpy as np

from tacit.core.errors import ConfigError, DataError, nearest
from tacit.data.agreement import check_declared, check_rows
from tacit.data.files import load
from tacit.data.findings import check_words, words_by_column
from tacit.data.skew import sites_of
from tacit.data.table import Label, Table
from tacit.federation import Federation
from tacit.runs.settings import Settings


def build_federation(settings: Settings) -> Federation:
    """Load the data and divide it, as the settings say; refuse what no client could learn from."""
    data, run = settings.data, settings.run
    table = load(data.name, repeat=data.repeat, rows=data.rows, seed=run.seed, **data.choices())
    for name, own in (sites_of(table) or {table.name: table}).items():
        check_rows(own, name, settings.build_preparation().missing)
    declared, words = data.declared, words_by_column(table)
    for name, known in declared.get("categories", {}).items():
        if name not in words:
            raise ConfigError(f"{table.name} has no column of categories '{name}': {nearest(name, words)}")
        check_declared(words[name], known, f"category of column '{name}'")
    check_words(table, declared.get("categories", {}))
    kinds = set(table.groups["split"].astype(str)) if "split" in table.groups else set()
    if data.test == "split" and not {"train", "test"} <= kinds:
        raise ConfigError(
            f"test = 'split', but {table.name} has no column 'split' that says train and test: "
            "give a share such as 0.3"
        )
    options = {"clients": None, **settings.partition_options()}
    if data.classes is not None:
        declared["classes"] = _declared(table, data.classes)
    federation = Federation.embedded(
        table,
        test=data.test,
        holdout=data.holdout,
        declared=declared,
        partition=settings.partition["name"],
        seed=run.seed,
        workers=run.workers,
        timeout=run.timeout,
        quorum=run.quorum,
        **options,
    )
    if table.task == "classification" and data.classes is None:
        _check_classes(table, federation)
    settings.check_compatibility(federation.clients, table.task)
    return federation


def _declared(table: Table, classes: tuple[Label, ...]) -> list[Label]:
    if table.task != "classification":
        raise ConfigError(f"classes are declared, but {table.name} is a regression: leave them out")
    own = {str(label): label for label in table.classes}
    words = [str(label) for label in classes]
    for code in np.unique(table.target):
        if (word := str(table.classes[code])) not in words:
            raise DataError(
                f"{table.name} has rows of class '{word}', which is not declared: {nearest(word, words)}"
            )
    return [own.get(word, label) for word, label in zip(words, classes, strict=True)]


def _check_classes(table: Table, federation: Federation) -> None:
    known = np.unique(federation.holdings.table.target)
    if len(known) < 2:
        raise DataError(
            f"all rows of {table.name} that clients hold are of class '{table.classes[known[0]]}': "
            "a classifier needs two; check the target column"
        )
    if federation.test is not None:
        unknown = np.setdiff1d(federation.test.target, known)
        if len(unknown):
            raise DataError(
                f"{len(unknown)} of {len(known) + len(unknown)} classes of {table.name} have test rows only, "
                f"such as '{table.classes[unknown[0]]}': join rare classes, declare the classes, or use "
                "task = 'regression' if the target is a quantity"
            )
