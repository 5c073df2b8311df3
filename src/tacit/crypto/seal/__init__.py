"""Microsoft SEAL through ``tenseal.sealapi``: what BFV and CKKS have in common.

All encryption, decryption and multiplication of ciphertexts is SEAL's. Ours is what lies around it: how
secrets become keys of SEAL's (:mod:`~tacit.crypto.seal.ring`), which bytes of its ciphertexts travel
(:mod:`~tacit.crypto.seal.blob`, :mod:`~tacit.crypto.seal.residues`), and the addition of many
(:mod:`~tacit.crypto.seal.adder`).
"""

from importlib import import_module
from typing import Any


class _Library:
    """Loads SEAL when it is first used, for those who only read what protections promise."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("tenseal.sealapi"), name)


seal: Any = _Library()
