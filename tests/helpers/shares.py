"""Shares with their points, as tests hand them around."""

from __future__ import annotations

from typing import NamedTuple

from tacit.crypto import sharing
from tacit.crypto.field import Ring


class Share(NamedTuple):
    """What one holder has."""

    point: int
    values: Ring


def share_vector(values: Ring, parties: int, threshold: int) -> list[Share]:
    return [Share(at, row) for at, row in enumerate(sharing.share_rows(values, parties, threshold), start=1)]


def recover_vector(shares: list[Share], threshold: int) -> Ring:
    return sharing.recover([share.values for share in shares], [share.point for share in shares], threshold)
