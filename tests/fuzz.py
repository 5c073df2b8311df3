"""A coverage-guided fuzzer (atheris) on every reader of foreign bytes.

python -m tests.fuzz TARGET RUNS [FOLDER]   mutate; FOLDER keeps what reaches new lines
python -m tests.fuzz genuine                write the genuine bytes of every target into tests/corpus
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

SLOWEST = 10  # seconds for one input
MOST_MEMORY = 2048  # MB of the process
SEED = 1


def fuzz(target: str, runs: int, folder: Path) -> None:
    """Mutate a corpus so many times; the process ends with a crash, a hang or a forgery, or in order."""
    import atheris

    with atheris.instrument_imports(include=["tacit"]):
        from tests.helpers.hostile import CORPUS, LARGEST, try_one

    def one(raw: bytes) -> None:
        try_one(target, raw)

    flags = [
        *(f"-runs={runs}", f"-seed={SEED}", f"-max_len={LARGEST}", f"-timeout={SLOWEST}"),
        *(f"-rss_limit_mb={MOST_MEMORY}", f"-artifact_prefix={folder}/", "-close_fd_mask=1"),
    ]
    atheris.Setup([sys.argv[0], *flags, str(folder), str(CORPUS / target)], one)
    atheris.Fuzz()


def write_genuine() -> None:
    """Write the bytes from which mutations start; keys and tags are those that the readers know."""
    from tests.helpers.hostile import CORPUS
    from tests.helpers.hostile_corpus import make_genuine

    for name, raw in make_genuine().items():
        (CORPUS / name).mkdir(parents=True, exist_ok=True)
        (CORPUS / name / "genuine").write_bytes(raw)


if __name__ == "__main__":
    if sys.argv[1] == "genuine":
        write_genuine()
    else:
        where = Path(sys.argv[3]) if len(sys.argv) > 3 else Path(tempfile.mkdtemp(prefix="tacit-fuzz-"))
        fuzz(sys.argv[1], int(sys.argv[2]), where)
