"""Transcripts: every byte that each party of an experiment received, one file for each party.

A file is the line ``tacit transcript 1`` and then frames: the lengths of sender's name, step's name and
what was received, then these three. An ask is two messages: what all were asked, and what only this party was
told.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from tacit.core.errors import DataError, MessageError, UnavailableError
from tacit.core.message import Message
from tacit.runs.folder import writing

MAGIC = b"tacit transcript 1\n"
START = b"TCT"
_LENGTHS = struct.Struct("<HHQ")


class Frame(NamedTuple):
    """One thing that a party received."""

    sender: str
    step: str
    raw: bytes

    def messages(self) -> tuple[Message, ...]:
        """Decode what was received: one message, or the two of an ask."""
        place = 0
        while (place := self.raw.find(START, place + 1)) > 0:
            with suppress(MessageError):  # those three letters within a message
                return Message.decode(self.raw[:place]), Message.decode(self.raw[place:])
        return (Message.decode(self.raw),)


class TranscriptFolder:
    """Writes what each party received; hand it to ``Federation.train`` as its ``transcript``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with writing(path):
            path.mkdir(mode=0o700)

    def file(self, party: str) -> Path:
        """Return the path of a party's transcript."""
        return self.path / f"{quote(party, safe=' ')}.bin"

    def __call__(self, receiver: str, sender: str, step: str, raw: bytes) -> None:
        names = sender.encode(), step.encode()
        path = self.file(receiver)
        # Opened for each frame: 20,000 parties are more than a process may keep open.
        with writing(path), open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            if not file.tell():
                file.write(MAGIC)
            file.write(b"".join([_LENGTHS.pack(*map(len, names), len(raw)), *names, raw]))


def read_transcript(path: Path | str) -> Iterator[Frame]:
    """Read what a party received, frame by frame; refuse what is no transcript, or ends within a frame."""
    if not Path(path).is_file():
        raise UnavailableError(f"no transcript {path}: keep one with `tacit run --transcript`")
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if file.read(len(MAGIC)) != MAGIC:
            raise DataError(f"{path} is not a transcript of this version: it starts with other bytes")
        while head := file.read(_LENGTHS.size):
            if len(head) < _LENGTHS.size or sum(_LENGTHS.unpack(head)) > size - file.tell():
                raise DataError(f"{path} ends within a frame")
            sender, step, raw = (file.read(length) for length in _LENGTHS.unpack(head))
            yield Frame(sender.decode(errors="replace"), step.decode(errors="replace"), raw)
