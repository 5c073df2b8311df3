"""A worker process of the embedded engine: ``python -m tacit.engines.worker``.

It reads its parties' rows, then answers batches of asks, all over its standard streams. What arrives is
only bytes of our own codec; parts are built from what is installed, as on a deployed site.
"""

import os
import sys

from tacit.core.message import Message
from tacit.engines.assembly import assemble
from tacit.engines.frames import read_frames, write_frames
from tacit.engines.holdings import read_holdings
from tacit.engines.sites import Sites


def main() -> None:
    """Serve until the parent closes the pipe."""
    # Whatever a library prints must not end up among the replies.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    asks = sys.stdin.buffer
    first = read_frames(asks)
    if first is None:
        return
    settings = Message.decode(first[0])
    sites = Sites(read_holdings(first[1:]), assemble, **settings)
    call = Message()
    while (batch := read_frames(asks)) is not None:
        head, seconds, names, *jobs = batch
        if head:
            call = Message.decode(head, settings["limit"])
        timeout = float(seconds) if seconds else None
        asked = zip(names.decode().split("\n"), jobs, strict=True)
        write_frames(replies, [sites.perform(name, call, job, timeout) for name, job in asked])


if __name__ == "__main__":
    main()
