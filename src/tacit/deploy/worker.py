"""The process in which a site performs its steps: ``python -m tacit.deploy.worker FOLDER``.

It stays between messages, with all imports done, and has no connection: asks and replies cross its standard
streams. What arrives are bytes of our own codec; every part is built from what is installed.
"""

import os
import sys
from pathlib import Path

from tacit.core.errors import TacitError
from tacit.core.parallel import one_thread
from tacit.deploy.answer import answer, refusal
from tacit.engines.frames import read_frames, write_frames
from tacit.engines.sitefolder import SiteFolder


def perform(site: Path, settings: str, call: bytes, job: bytes, timeout: float | None) -> bytes:
    """Answer one ask of a run, whose settings are those that it says of itself."""
    try:
        with one_thread():
            return answer(SiteFolder(site), {"settings": settings}, call, job, timeout)
    except TacitError as error:
        return refusal(type(error).__name__, error.public)


def main() -> None:
    """Answer until the parent closes the pipe."""
    # Whatever a library prints must not end up among the replies.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    site = Path(sys.argv[1])
    while (ask := read_frames(sys.stdin.buffer)) is not None:
        settings, call, job, seconds = ask
        raw = perform(site, settings.decode(), call, job, float(seconds) or None)
        write_frames(replies, [raw])


if __name__ == "__main__":
    main()
