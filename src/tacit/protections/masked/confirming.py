"""Confirmations: what a client gives can be read only if enough others gave theirs for the same list.

Each two neighbours have a chain of keys (``tacit.crypto.masking``). When a client gives its shares, it also
hands the coordinator, for every neighbour that it takes to have arrived, a value that only the two can
compute from the newest link and from what is confirmed. The shares are encrypted under a fresh key, that key
is cut into Shamir's shares, one for each holder, and each of these is padded with the value by which that
holder would confirm.
So the coordinator reads the shares if, and only if, t holders have confirmed, the client itself among them.
This is the consistency round of Bonawitz et al. without signatures, and without a wave of its own.
"""

from collections.abc import Mapping, Sequence, Set
from hashlib import blake2b

import numpy as np

from tacit.core.errors import ProtectionError
from tacit.crypto.channel import seal, unseal
from tacit.crypto.field import PRIME, random_elements
from tacit.crypto.sharing import interpolate, share_rows
from tacit.protections.masked.wire import ELEMENTS, KEY, SHARE, key_of, windows

CONFIRM = SHARE  # bytes of a confirmation: it covers a share of a lock's key

_NONE = bytes(CONFIRM)


def confirmations(
    links: bytes, slot: int, text: bytes, own: str, holders: Sequence[str], alive: Set[str]
) -> tuple[bytes, bytes]:
    """Return what a client gives for each holder that arrived, and what each would give for it.

    Only the two of them can compute either: from the link of their chain, of which ``links`` has one for each
    holder but the client itself. Both are in the holders' order, with zeros for the client itself; for one
    that vanished it gives zeros.
    """
    text = slot.to_bytes(8, "little") + text
    given, taken, at = [], [], 0
    for name in holders:
        if name == own:
            given.append(_NONE)
            taken.append(_NONE)
            continue
        # The first half is what the one of the two whose name comes first gives.
        pair = blake2b(text, key=links[at : at + KEY], digest_size=2 * CONFIRM, person=b"tacit confirm")
        first, second = pair.digest()[:CONFIRM], pair.digest()[CONFIRM:]
        mine, theirs = (first, second) if own < name else (second, first)
        given.append(mine if name in alive else _NONE)
        taken.append(theirs)
        at += KEY
    return b"".join(given), b"".join(taken)


def lock(raw: bytes, pads: bytes, threshold: int, where: bytes) -> bytes:
    """Encrypt bytes so that they open with ``threshold`` of the pads, one for each holder.

    A pad of zeros leaves its share of the key readable: that of whoever locks.
    """
    key = random_elements(ELEMENTS)
    holders = len(pads) // CONFIRM
    shares = share_rows(key, holders, threshold)
    padded: bytes = (shares ^ np.frombuffer(pads, "<u8").reshape(holders, ELEMENTS)).astype("<u8").tobytes()
    return padded + seal(key_of(key), raw, where)


def unlock(
    locked: bytes, holders: int, pads: Mapping[int, bytes], threshold: int, where: bytes
) -> bytes | None:
    """Return what was locked, given pads by the index of their holder; None if they are too few or wrong."""
    padded = np.frombuffer(locked, "<u8", count=holders * ELEMENTS).reshape(holders, ELEMENTS)
    rows = padded[list(pads)] ^ np.frombuffer(b"".join(pads.values()), "<u8").reshape(-1, ELEMENTS)
    # A wrong pad mostly gives what is no element of the field; one that does is left out by some window.
    fits = (rows < PRIME).all(axis=1)
    points, rows = np.array(list(pads), np.intp)[fits] + 1, rows[fits]
    for some in windows(len(points), threshold):
        try:
            key = key_of(interpolate(rows[some], tuple(points[some].tolist())))
            return unseal(key, locked[holders * CONFIRM :], where)
        except ProtectionError:
            continue
    return None
