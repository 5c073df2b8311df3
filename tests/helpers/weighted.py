"""Paillier vectors times a whole number: many summands at once, to test the limits of packing."""

from __future__ import annotations

from dataclasses import replace

import gmpy2

from tacit.crypto.paillier import PublicKey, read_header
from tacit.crypto.paillier.blob import read_ciphertexts, write_blob


def multiply(key: PublicKey, blob: bytes, weight: int) -> bytes:
    """Return the encrypted vector times a weight other than 0, which counts as so many summands."""
    header = read_header(key, blob)
    summands = header.packing.check_summands(header.summands * abs(int(weight)))
    powers = [
        gmpy2.powmod(number, int(weight), key.modulus_squared) for number in read_ciphertexts(key, blob)
    ]
    return write_blob(key, replace(header, summands=summands), powers)
