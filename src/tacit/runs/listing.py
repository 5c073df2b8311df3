"""The runs of a folder: list them, choose among them, delete some."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tacit.core.errors import ConfigError, nearest
from tacit.runs.folder import CHECKPOINT, EVENTS, RESULT, RunFolder, cannot_write
from tacit.runs.page.scores import BEST

STATES = ("done", "failed", "stopped", "unfinished")
FACTS = ("created", "method", "data", "clients", "protect", "partition", "seed", "training_s")


def list_runs(
    out: str = "runs", names: Sequence[str] = (), *, state: str | None = None, **wanted: str | None
) -> list[dict[str, Any]]:
    """Return the runs in a folder, the newest first, as plain values.

    ``names`` are ids or how they begin. ``state`` is one of ``STATES``: a stopped run can be resumed, an
    unfinished one left no result. ``wanted`` are facts such as ``method="fedavg"``; None wants any.
    """
    if state not in (None, *STATES):
        raise ConfigError(f"unknown state '{state}': {nearest(str(state), STATES)}")
    parents = {path.parent for name in (RESULT, EVENTS, CHECKPOINT) for path in Path(out).glob(f"*/{name}")}
    found = [_facts(RunFolder(path)) for path in sorted(parents, reverse=True)]
    for name in names:
        if not any(row["run"].startswith(name) for row in found):
            raise ConfigError(f"no run '{name}' in {out}/: {nearest(name, [row['run'] for row in found])}")
    asked = {"state": state, **wanted}
    return [
        row
        for row in found
        if (not names or row["run"].startswith(tuple(names)))
        and all(value is None or str(row[key]) == value for key, value in asked.items())
    ]


def _facts(folder: RunFolder) -> dict[str, Any]:
    try:
        result = folder.result() if not folder.is_unfinished else {}
        state = "unfinished" if not result else "done" if "error" not in result else "failed"
    except ConfigError:
        result, state = {}, "failed"
    if state == "failed" and (folder.path / CHECKPOINT).is_file():
        state = "stopped"
    measure = next((name for name in BEST if result.get(name) is not None), None)
    return {
        "run": folder.path.name,
        "state": state,
        **{name: result.get(name) for name in FACTS},
        "measure": measure,
        "score": result.get(measure) if measure else None,
        "folder": str(folder.path),
    }


def delete_runs(rows: Iterable[dict[str, Any]]) -> None:
    """Delete runs as :func:`list_runs` gives them; one that a process still works on is refused."""
    folders = [RunFolder(Path(row["folder"])) for row in rows]
    for folder in folders:
        with folder.claimed():
            pass  # all are free before the first one goes
    for folder in folders:
        with folder.claimed():
            try:
                shutil.rmtree(folder.path)
            except OSError as error:
                raise cannot_write(folder.path, error) from None
