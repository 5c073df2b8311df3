"""Rows that an experimenter keeps for a central test."""

from contextlib import suppress

import numpy as np

from tacit.core.errors import ConfigError, DataError
from tacit.data.table import Table


def split(table: Table, test: float | str | None, seed: int) -> tuple[Table, Table | None]:
    """Keep rows for a central test: a share drawn by class, or the data set's own division."""
    if test is None or test == 0:
        return table, None
    if isinstance(test, str):
        if test != "split":
            raise ConfigError(f"test = '{test}': give a share such as 0.3, or 'split'")
        kind = table.group("split").astype(str)
        return table.take(kind == "train"), table.take(kind == "test")
    if not 0 < test < 1:
        raise ConfigError(f"test is {test}: give a share between 0 and 1, 'split', or 0 for none")
    from sklearn.model_selection import train_test_split

    # The split that everybody knows, so that anyone can repeat a figure outside Tacit. A class of a
    # single row stays in training.
    codes = table.target if table.task == "classification" else np.zeros(table.rows, dtype=np.int64)
    rows = np.flatnonzero(np.bincount(codes)[codes] > 1) if table.rows else codes
    if table.rows and not len(rows):
        raise DataError(
            f"all {len(table.classes)} classes have a single row, so none can be learnt and tested: "
            "join classes, or check the target column"
        )
    for classes in (codes[rows], None):  # by class, unless there are fewer test rows than classes
        with suppress(ValueError):
            _, chosen = train_test_split(rows, test_size=test, stratify=classes, random_state=seed % 2**32)
            break
    else:
        raise DataError(
            f"{table.rows} rows cannot be divided into {test:.0%} test and the rest: use more rows"
        )
    testing = np.zeros(table.rows, dtype=bool)
    testing[chosen] = True
    return table.take(~testing), table.take(testing)
