"""The notebooks of the docs run, and show what they say in few words."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MOST = 60_000  # characters of a notebook: a picture or two, and no pages of output


def test_there_are_three_executed_notebooks_with_short_outputs() -> None:
    nbformat = pytest.importorskip("nbformat")
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        cells = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
        assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), path.name
        outputs = [output for cell in cells for output in cell.outputs]
        assert outputs and all(output.output_type != "error" for output in outputs)
        assert len(path.read_text(encoding="utf-8")) < MOST


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path) -> None:
    """An error in a cell is raised here; what is shown once is shown again, kind by kind."""
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    execute = runpy.run_path(str(FOLDER / "execute.py"))["execute"]

    def kinds(notebook) -> list[list[str]]:
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        return [[output.output_type for output in cell.outputs] for cell in code]

    assert kinds(execute(path)) == kinds(nbformat.read(path, as_version=4))
