"""Ciphertexts in messages."""

from collections.abc import Mapping
from typing import Any

from tacit.core.errors import ProtectionError
from tacit.core.values import Blob


def cipher_of(fields: Mapping[str, Any]) -> bytes:
    """Return the ciphertext in a message, or refuse it."""
    blob = fields.get("cipher")
    if not isinstance(blob, Blob) or blob.kind != "cipher":
        raise ProtectionError("no ciphertext where one was agreed")
    return blob.data
