"""What a checkout has beside the package: papers in ``reproductions/``, benches in ``benchmarks/``.

Each is a file ``NAME.py``. Files that others import begin with ``_``: the ``_harness`` runs the others.
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from tacit.core.errors import ConfigError, nearest

UNKNOWN = {"reproductions": "nothing to reproduce is called", "benchmarks": "unknown bench"}


def folders_of(kind: str) -> list[Path]:
    """Find a folder of a checkout: where ``$TACIT_KIND`` says, here, and beside the source tree."""
    own = os.environ.get(variable := f"TACIT_{kind.upper()}")
    places = (Path(own) if own else None, Path(kind), Path(__file__).parents[2] / kind)
    if found := [place.resolve() for place in places if place is not None and place.is_dir()]:
        return found
    raise ConfigError(f"no {kind}/ folder here: run this in a checkout of Tacit, or set {variable}")


def list_files(kind: str, name: str = "all") -> list[str]:
    """Return the paper or bench of that name, or every one for "all"."""
    stems = sorted(path.stem for path in folders_of(kind)[0].glob("*.py") if not path.stem.startswith("_"))
    known = [stem.replace("_", "-") for stem in stems]
    if name != "all" and name not in known:
        raise ConfigError(f"{UNKNOWN[kind]} '{name}': {nearest(name, [*known, 'all'])}")
    return known if name == "all" else [name]


def load_file(kind: str, name: str) -> ModuleType:
    """Import a file of a folder as a module of the package that is named as the folder."""
    folders, package = folders_of(kind), sys.modules.setdefault(kind, ModuleType(kind))
    package.__path__ = [str(folder) for folder in folders]
    files = (name, name.replace("-", "_"))
    if not (
        found := [file for file in files if any((folder / f"{file}.py").is_file() for folder in folders)]
    ):
        raise ConfigError(f"{folders[0]} has no {name}.py: run this in a checkout of Tacit")
    return import_module(f"{kind}.{found[0]}")
