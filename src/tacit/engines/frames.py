"""Frames: how byte strings cross the pipe to a worker process."""

import struct
from collections.abc import Sequence
from typing import BinaryIO

_COUNT = struct.Struct("<I")


def write_frames(stream: BinaryIO, pieces: Sequence[bytes]) -> None:
    """Write a batch of byte strings: their number, their lengths, then themselves."""
    lengths = struct.pack(f"<{len(pieces)}Q", *map(len, pieces))
    stream.write(b"".join((_COUNT.pack(len(pieces)), lengths, *pieces)))
    stream.flush()


def read_frames(stream: BinaryIO) -> list[bytes] | None:
    """Read a batch; None if the other end is gone.

    >>> import io
    >>> pipe = io.BytesIO()
    >>> write_frames(pipe, [b"one", b"", b"three"])
    >>> _ = pipe.seek(0)
    >>> read_frames(pipe), read_frames(pipe)
    ([b'one', b'', b'three'], None)
    """
    head = stream.read(_COUNT.size)
    if len(head) < _COUNT.size:
        return None
    (count,) = _COUNT.unpack(head)
    raw = stream.read(8 * count)
    if len(raw) < 8 * count:
        return None
    lengths = struct.unpack(f"<{count}Q", raw)
    pieces = [stream.read(length) for length in lengths]
    whole = all(len(piece) == length for piece, length in zip(pieces, lengths, strict=True))
    return pieces if whole else None
