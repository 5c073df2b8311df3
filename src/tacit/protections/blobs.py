"""Ciphertexts and other blobs in messages."""

from collections.abc import Mapping
from typing import Any

from tacit.core.errors import ProtectionError
from tacit.core.values import Blob


def cipher_of(fields: Mapping[str, Any]) -> bytes:
    """Return the ciphertext in a message, or refuse it."""
    return read_blob(fields, "cipher", "cipher", "ciphertext")


def read_blob(fields: Mapping[str, Any], name: str, kind: str, what: str = "") -> bytes:
    """Return the bytes of a blob that was agreed, or refuse the message."""
    blob = fields.get(name)
    if not isinstance(blob, Blob) or blob.kind != kind:
        raise ProtectionError(f"no {what or f'{name} of that kind'} where one was agreed")
    return blob.data
