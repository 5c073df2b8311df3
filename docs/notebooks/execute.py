"""Execute the notebooks of this folder and write them back with what they show: ``make notebooks``."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent


def execute(path: Path) -> nbformat.NotebookNode:
    """Run a notebook in a kernel of its own; an error in a cell is an error here."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False).execute()
    return notebook


if __name__ == "__main__":
    for each in sorted(HERE.glob("*.ipynb")):
        nbformat.write(execute(each), each)
        sys.stdout.write(f"{each.name}\n")
