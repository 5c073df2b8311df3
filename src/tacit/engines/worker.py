"""A worker process of the embedded engine: ``python -m tacit.engines.worker``."""

import sys

from tacit.core.message import Message
from tacit.engines.assembly import assemble
from tacit.engines.frames import read_frames, serve_frames
from tacit.engines.holdings import read_holdings
from tacit.engines.sites import Sites


def main() -> None:
    """Serve until the parent closes the pipe."""
    if (first := read_frames(sys.stdin.buffer)) is None:
        return
    settings = Message.decode(first[0])
    sites = Sites(read_holdings(first[1:]), assemble, **settings)
    call = Message()

    def answer(batch: list[bytes]) -> list[bytes]:
        nonlocal call
        head, names, *jobs = batch
        if head:
            call = Message.decode(head, settings["limit"])
        asked = zip(names.decode().split("\n"), jobs, strict=True)
        return [sites.perform(name, call, job) for name, job in asked]

    serve_frames(answer)


if __name__ == "__main__":
    main()
