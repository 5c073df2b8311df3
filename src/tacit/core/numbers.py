"""Whole numbers that came from outside, read strictly before anything is compared with them."""

from collections.abc import Mapping
from typing import Any

from tacit.core.errors import MessageError

MOST = 1 << 62  # no counter of a run comes near to it
MOST_CLIENTS = 1 << 20  # of a federation; what is computed from their number takes memory for each
MOST_SUMMANDS = 1 << 32  # contributions to one total


def read_integer(fields: Mapping[str, Any], name: str, least: int = 0, most: int = MOST) -> int:
    """Return a whole number of a message, within limits that are part of what was agreed.

    A check such as ``number <= last`` lets NaN pass, which is never less than anything, and True, which is 1.
    Whoever compares a number that came by wire reads it here first.
    """
    value = fields.get(name)
    if type(value) is not int:
        raise MessageError(
            f"'{name}' is {'missing' if value is None else f'a {type(value).__name__}'}, not a whole number: "
            "this is no genuine message"
        )
    if not least <= value <= most:
        raise MessageError(f"'{name}' is {value}, outside of {least} to {most}: this is no genuine message")
    return value
