"""Confirmations: what a client gives can be read only if enough others gave theirs for the same list.

Each two neighbours have a chain of keys (``tacit.crypto.masking``). When a client gives its shares, it also
hands the coordinator, for every neighbour that it takes to have arrived, a value that only the two can
compute from the newest link and from what is confirmed. The shares are encrypted under a key that is cut
into Shamir's shares, one for each holder. Those of the first t holders are what follows from the values by
which these would confirm (and so is the key); those of the others travel, each padded with what follows from
the value by which its holder would confirm.
So the coordinator reads the shares if, and only if, t holders have confirmed, the client itself among them.
"""

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from hashlib import blake2b

import numpy as np

from tacit.core.errors import ProtectionError
from tacit.crypto.channel import seal, unseal
from tacit.crypto.field import PRIME, Ring
from tacit.crypto.sharing import evaluate, interpolate
from tacit.protections.masked.wire import ELEMENTS, KEY, SHARE, key_of, windows

CONFIRM = 16  # bytes of a confirmation: 128 bits, from which a share of a lock's key, or its pad, follows

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


def _pads_of(confirms: Sequence[bytes]) -> Ring:
    """Return the elements of the field that follow from confirmations; zeros from those of whoever locks."""
    found = [
        bytes(SHARE) if one == _NONE else blake2b(one, digest_size=SHARE, person=b"tacit pad").digest()
        for one in confirms
    ]
    return np.frombuffer(b"".join(found), "<u8").reshape(-1, ELEMENTS) % np.uint64(PRIME)


def lock(raw: bytes, confirms: bytes, threshold: int, where: bytes) -> bytes:
    """Encrypt bytes so that they open with ``threshold`` of the confirmations, one for each holder.

    Zeros for one of them leave its share of the key readable: that of whoever locks.
    """
    holders = len(confirms) // CONFIRM
    pads = _pads_of([confirms[CONFIRM * at : CONFIRM * (at + 1)] for at in range(holders)])
    points = tuple(range(1, threshold + 1))
    key, *shares = evaluate(pads[:threshold], points, (0, *range(threshold + 1, holders + 1)))
    padded = [(share ^ pad).astype("<u8") for share, pad in zip(shares, pads[threshold:], strict=True)]
    return b"".join([share.tobytes() for share in padded]) + seal(key_of(key), raw, where)


def unlock(
    locked: bytes, holders: int, confirms: Mapping[int, bytes], threshold: int, where: bytes
) -> bytes | None:
    """Return what was locked, given confirmations by the index of their holder; None if too few are right."""
    if len(locked) < (size := (holders - threshold) * SHARE):
        return None
    padded = np.zeros((holders, ELEMENTS), np.uint64)
    padded[threshold:] = np.frombuffer(locked[:size], "<u8").reshape(-1, ELEMENTS)
    places = np.array(list(confirms), np.intp)
    points, rows = places + 1, _pads_of(list(confirms.values())) ^ padded[places]
    for some in windows(len(points), threshold):
        with suppress(ProtectionError):
            key = key_of(interpolate(rows[some], tuple(points[some].tolist())))
            return unseal(key, locked[size:], where)
    return None
