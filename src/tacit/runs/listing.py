"""The runs of a folder: list them, choose among them, delete some."""

import shutil
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
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
    asked = {key: value for key, value in {"state": state, **wanted}.items() if value is not None}
    chosen = [row for row in found if row["run"].startswith(tuple(names) or "")]
    return [row for row in chosen if all(str(row[key]) == value for key, value in asked.items())]


def _facts(folder: RunFolder) -> dict[str, Any]:
    try:
        result = {} if folder.is_unfinished else folder.result()
        state = "unfinished" if not result else "failed" if "error" in result else "done"
    except ConfigError:
        result, state = {}, "failed"
    if state == "failed" and (folder.path / CHECKPOINT).is_file():
        state = "stopped"
    measure = next((name for name in BEST if result.get(name) is not None), "")
    facts = {name: result.get(name) for name in FACTS}
    score = {"measure": measure or None, "score": result.get(measure)}
    return {"run": folder.path.name, "state": state, **facts, **score, "folder": str(folder.path)}


def delete_runs(rows: Iterable[dict[str, Any]]) -> None:
    """Delete runs as :func:`list_runs` gives them; none while a process still works on one of them."""
    folders = [RunFolder(Path(row["folder"])) for row in rows]
    with ExitStack() as claims:
        for folder in folders:
            claims.enter_context(folder.claimed())
        for folder in folders:
            try:
                shutil.rmtree(folder.path)
            except OSError as error:
                raise cannot_write(folder.path, error) from None
