"""Makes a coordinator's process lie: the file that TACIT_LIE names has the name of a ``tests.helpers.lies``.

Python imports this module when it starts, if its folder is on PYTHONPATH. Once the Flower engine is imported,
its asks go through the lie. The installed package is not touched, and neither is any site.
"""

import importlib.util
import os
import sys
from pathlib import Path

ENGINE = "tacit.engines.flower"
LIE = Path(os.environ.get("TACIT_LIE", ""))


class Liar:
    """Finds the engine's module, once, and has it changed after it was loaded."""

    def find_spec(self, name, path, target=None):
        """Return the usual module, with one thing more to do."""
        if name != ENGINE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            from tests.helpers.lies import install

            install(module.FlowerEngine, LIE.read_text())

        spec.loader.exec_module = exec_module
        return spec


if LIE.is_file():
    sys.meta_path.insert(0, Liar())
