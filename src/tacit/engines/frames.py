"""Worker processes of ours, and how byte strings cross the pipes to them."""

import os
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import BinaryIO, cast

from tacit.core.parallel import SINGLE

_COUNT = struct.Struct("<I")


def write_frames(stream: BinaryIO, pieces: Sequence[bytes]) -> None:
    """Write a batch of byte strings: their number, their lengths, then themselves."""
    lengths = struct.pack(f"<{len(pieces)}Q", *map(len, pieces))
    stream.write(b"".join((_COUNT.pack(len(pieces)), lengths, *pieces)))
    stream.flush()


def read_frames(stream: BinaryIO) -> list[bytes] | None:
    """Read a batch; None if the other end is gone."""
    try:
        (count,) = _COUNT.unpack(stream.read(_COUNT.size))
        lengths = struct.unpack(f"<{count}Q", stream.read(8 * count))
    except struct.error:  # fewer bytes came
        return None
    pieces = [stream.read(length) for length in lengths]
    return pieces if tuple(map(len, pieces)) == lengths else None


class WorkerProcess:
    """A process that runs one of our modules, is asked in frames and replies in frames."""

    def __init__(self, module: str, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **SINGLE},
            start_new_session=True,  # Ctrl-C is the parent's affair, which then ends it
        )
        self.asks = cast(BinaryIO, self.process.stdin)
        self.replies = cast(BinaryIO, self.process.stdout)


def serve_frames(answer: Callable[[list[bytes]], list[bytes]]) -> None:
    """Answer in a worker process, until its parent closes the pipe."""
    # Whatever a library prints must not end up among the replies.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while (ask := read_frames(sys.stdin.buffer)) is not None:
        write_frames(replies, answer(ask))
