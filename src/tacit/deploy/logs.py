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

LOOK = 0.5  # seconds between looks
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
LEVEL = re.compile(r"^(DEBUG|INFO|WARNING|ERROR|CRITICAL)\s*:?\s*")


@contextmanager
def json_lines(folder: Path, to: TextIO) -> Iterator[None]:
    """Write what is added to the folder's logs within the block, each entry as one JSON object on a line."""
    log, over = AuditLog(folder), Event()
    program = "superlink" if (folder / "federation.json").is_file() else "supernode"
    last = max((record["number"] for record in log.records()), default=0) if log.path.is_file() else 0

    def write_new() -> None:
        nonlocal last
        place = added.tell()
        added.seek(place if added.seek(0, os.SEEK_END) >= place else 0)  # it may have been rotated
        while (line := added.readline()).endswith(b"\n"):
            text = COLOURS.sub("", line.decode(errors="replace").rstrip())
            level = found[1].lower() if (found := LEVEL.match(text)) else "info"
            write({"at": now(), "level": level, "program": program, "text": LEVEL.sub("", text)})
        added.seek(-len(line), os.SEEK_CUR)  # what is not whole yet
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

    with (folder / f"{program}.log").open("a+b") as added:
        thread = Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            write_new()
