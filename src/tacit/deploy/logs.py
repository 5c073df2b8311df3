"""Structured logs: what Flower's program writes, and each record of the audit log, as JSON lines."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import TextIO

from tacit.core.errors import TacitError
from tacit.engines.audit import AuditLog, now

NAMES = ("superlink.log", "supernode.log")
LOOK = 0.5  # seconds between looks
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
LEVEL = re.compile(r"^(DEBUG|INFO|WARNING|ERROR|CRITICAL)\s*:?\s*")


@contextmanager
def json_lines(folder: Path, to: TextIO) -> Iterator[None]:
    """Write what is added to the folder's logs within the block, each entry as one JSON object on a line."""
    log, over = AuditLog(folder), Event()
    places = {name: path.stat().st_size if (path := folder / name).is_file() else 0 for name in NAMES}
    last = max((record["number"] for record in log.records()), default=0) if log.path.is_file() else 0

    def write_new() -> None:
        nonlocal last
        for name in NAMES:
            if (folder / name).is_file():
                with (folder / name).open("rb") as file:
                    if file.seek(0, os.SEEK_END) < places[name]:
                        places[name] = 0  # it was rotated
                    file.seek(places[name])
                    whole = file.read().rpartition(b"\n")[0]
                places[name] += len(whole) + bool(whole)
                for line in whole.decode(errors="replace").splitlines():
                    write(_entry(name.removesuffix(".log"), line))
        with suppress(TacitError):  # of a log that cannot be read, health and doctor tell
            for record in log.records(last) if log.path.is_file() else ():
                last = record["number"]
                write({"level": "info", "program": "audit", **record})

    def write(entry: dict[str, object]) -> None:
        to.write(json.dumps(entry) + "\n")
        to.flush()

    def follow() -> None:
        while not over.wait(LOOK):
            write_new()

    thread = Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        write_new()


def _entry(program: str, line: str) -> dict[str, object]:
    """Return a line of a log as an object.

    >>> {**_entry("superlink", "\\x1b[92mINFO \\x1b[0m:      Starting"), "at": ""}
    {'at': '', 'level': 'info', 'program': 'superlink', 'text': 'Starting'}
    """
    text = COLOURS.sub("", line)
    level = found[1].lower() if (found := LEVEL.match(text)) else "info"
    return {"at": now(), "level": level, "program": program, "text": LEVEL.sub("", text)}
