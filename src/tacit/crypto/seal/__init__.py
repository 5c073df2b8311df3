"""Microsoft SEAL through ``tenseal.sealapi``: keys, bytes and sums are ours, all other operations SEAL's."""

from importlib import import_module
from typing import Any


class _Library:
    """Loads SEAL when it is first used, for those who only read what protections promise."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("tenseal.sealapi"), name)


seal: Any = _Library()
