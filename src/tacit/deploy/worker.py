"""The process in which a site performs its steps: ``python -m tacit.deploy.worker FOLDER``."""

import sys
from pathlib import Path

from tacit.core.errors import TacitError
from tacit.core.parallel import one_thread
from tacit.deploy.answer import answer, refusal
from tacit.engines.frames import serve_frames
from tacit.engines.sitefolder import SiteFolder


def perform(site: Path, settings: str, call: bytes, job: bytes, timeout: float | None) -> bytes:
    """Answer one ask of a run, whose settings are those that it says of itself."""
    try:
        with one_thread():
            return answer(SiteFolder(site), settings, call, job, timeout)
    except TacitError as error:
        return refusal(type(error).__name__, error.public)


def _answer(ask: list[bytes]) -> list[bytes]:
    settings, call, job, seconds = ask
    return [perform(Path(sys.argv[1]), settings.decode(), call, job, float(seconds) or None)]


if __name__ == "__main__":
    serve_frames(_answer)
