"""The wheel in a bare environment: from the frames of three hospitals to a prediction on new rows."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BEGIN = "## The same in Python\n"


def quick_start() -> str:
    """The Python block of the tutorial."""
    text = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```", text[text.index(BEGIN) :], re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_quick_start_is_short_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    assert len([line for line in quick_start().splitlines() if line.strip()]) <= 12
    write_hospitals(tmp_path)
    exec(compile(quick_start(), "quickstart.md", "exec"), {})
    assert "probability of " in capsys.readouterr().out


def write_hospitals(folder: Path) -> None:
    """Write three hospitals' rows and new ones, as the quick start reads them."""
    from sklearn.datasets import load_breast_cancer

    rows = load_breast_cancer(as_frame=True)
    frame = rows.data.iloc[:, :6].assign(outcome=rows.target_names[rows.target])
    for place, name in enumerate(("north", "south", "west", "new")):
        part = frame.iloc[place::4]
        (part.drop(columns="outcome").head(5) if name == "new" else part).to_csv(
            folder / f"{name}.csv", index=False
        )


@pytest.mark.slow
def test_the_wheel_works_in_a_bare_environment(tmp_path: Path) -> None:
    """Needs a package index, or pip's own cache."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "tacit/py.typed" in names and not any(name.startswith("tests/") for name in names)
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", bare], check=True)
    python = bare / "bin" / "python"
    done = subprocess.run(
        [python, *pip[1:], "install", "-q", wheel, "pandas", "-c", ROOT / "constraints.txt"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and re.search(
        r"No matching distribution|Max retries|Could not find a version", done.stderr
    ):
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    write_hospitals(tmp_path)
    found = subprocess.run(
        [python, "-W", "error", "-c", quick_start()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.count("benign") + found.stdout.count("malignant") >= 6
