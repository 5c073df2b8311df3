"""The ``tacit`` command as a function, and small files to feed it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit.cli.app import app
from tests.conftest import quick_keys
from tests.quick import Mode

# Under `python -c` the program has no name of its own; completion asks for it.
MAIN = "import sys; sys.argv[0] = 'tacit'; from tacit.cli import main; main()"


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Exactly one JSON object, and never NaN or Infinity."""
        assert self.out.count("\n") == 1, self.out
        found = json.loads(self.out, parse_constant=_refuse)
        assert isinstance(found, dict)
        return found


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} in JSON")


Tacit = Callable[..., Said]


@pytest.fixture
def tacit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tacit:
    """Call the command in this process, in an empty folder; in the quick session keys are made once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: object) -> Said:
        with quick_keys() if Mode.quick else nullcontext():
            result = CliRunner().invoke(app, [str(word) for word in words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Said(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.fixture
def process(tmp_path: Path) -> Tacit:
    """Call the command as a process of its own, in an empty folder."""

    def call(*words: object, **variables: str) -> Said:
        done = subprocess.run(
            [sys.executable, "-c", MAIN, *map(str, words)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, **variables},
            timeout=60,
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def csv(tmp_path: Path) -> Callable[..., Path]:
    """Write a CSV of 60 rows, with some lines replaced."""

    def write(name: str = "mine.csv", head: str = "a,b,c,target", label: str = "{t}", **lines: str) -> Path:
        rng = np.random.default_rng(0)
        rows = []
        for index, (a, b, c) in enumerate(rng.normal(size=(60, 3))):
            facts = {"a": a, "b": b, "c": c, "t": int(a > 0), "y": 2 * a - b + 0.1 * c, "i": index}
            rows.append(f"{a:.3f},{b:.3f},{c:.3f}," + label.format(**facts, word="xyz"[index % 3]))
        for number, line in lines.items():
            rows[int(number.removeprefix("line"))] = line
        path = tmp_path / name
        path.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
        return path

    return write


def runs(folder: Path) -> list[Path]:
    """Run folders in a folder."""
    return sorted((folder / "runs").glob("*")) if (folder / "runs").is_dir() else []
