"""Masked totals that only clients open: they carry pads from a key that all clients share.

The coordinator takes the masks off as always, and holds a total under pads (:mod:`tacit.crypto.pads`), on a
sparse graph at most ``Rules.most_totals`` of a sum. A tag proves the total to the clients; it travels under
masks from the same seeds, as one element of its own field (docs/masked.md says why).
"""

from collections.abc import Mapping
from itertools import compress
from typing import Any

import numpy as np

from tacit.core.claims import Claim, Term, recent
from tacit.core.client import check_opening
from tacit.core.errors import ProtectionError
from tacit.core.fields import MOST_CLIENTS, read_integer
from tacit.core.layout import Layout
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.protection import Vector
from tacit.core.values import Blob
from tacit.crypto.channel import bound
from tacit.crypto.field import PRIME, Integers
from tacit.crypto.linear_tag import TAG_BYTES, label_digests
from tacit.crypto.masking import Words
from tacit.crypto.pads import PadKey
from tacit.protections.keys.authenticated import manifest_digest_of, read_blob
from tacit.protections.keys.proved_totals import TAG, ProvedTotals, claim_of
from tacit.protections.keys.shared_key import SharedKey
from tacit.protections.masked import Masked
from tacit.protections.masked.wire import Encoding


class PaddedTotals:
    """Pads and tags of one client: it puts them on its own vectors, and takes them off totals."""

    def __init__(self, settings: Masked, party: Party, key: SharedKey) -> None:
        self._settings, self._party, self._key = settings, party, key
        self._proved = ProvedTotals(party, key)

    def write_words(
        self, term: Term, integers: Integers, layout: Layout, encoding: Encoding, where: Mapping[str, Any]
    ) -> tuple[Words, int]:
        """Return the words of this client's vector, under the pads of ``where``, and their tag."""
        place, summands = self._place(term, where), where["summands"]
        words = encoding.write_words(integers)
        key, chosen = self._key.cached("pads", PadKey), np.ones(1, np.uint64)
        if not self._settings.rules(summands).complete:
            chosen = key.choose(place, label_digests([term.label.encode()]))
        key.add(words[: encoding.code.slots], place, chosen)
        return words, self._proved.tag_once(term, layout, summands, integers, attempt=place)

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Take the pads off, and check whose contributions the total is of."""
        claim = claim_of(total)
        contributions = int(claim.counts.sum())
        check_opening(self._party, self._settings, contributions)
        summands = read_integer(total, "summands", 2, MOST_CLIENTS)
        encoding = self._settings.encoding(layout, summands)
        words = encoding.unpack(total["padded"].data, encoding.code.slots)
        place = self._place(claim, total)
        integers = encoding.read_integers(words - self._pads_of(claim, place, encoding), contributions)
        self._proved.check(total, layout, summands, {PRIME: integers}, attempt=place)
        return encoding.code.decode(integers)

    def _pads_of(self, claim: Claim, place: bytes, encoding: Encoding) -> Words:
        key = self._key.cached("pads", PadKey)
        size, kind = encoding.code.slots, encoding.kind
        if self._settings.rules(encoding.code.summands).complete:
            return key.combine(place, claim.counts.sum(keepdims=True), size, kind)

        def combine() -> Words:
            names = compress(claim.labels, claim.counts.tolist())
            counts = key.choose(place, label_digests([name.encode() for name in names]))
            return key.combine(place, counts, size, kind)

        return recent(self._party.cache, "padded", (key.id, place, claim.source), combine)

    def _place(self, what: Term | Claim, where: Mapping[str, Any]) -> bytes:
        """Return all by which one sum differs from another, and each attempt at it: masks serve one alone."""
        numbers = f"{what.number} {where['slot']} {where['summands']}"
        return bound(
            manifest_digest_of(self._party), what.contribution, numbers, where["root"], where["call"]
        )


def write_total(encoding: Encoding, values: Words, tag: int, where: Mapping[str, Any]) -> dict[str, Any]:
    """Return what clients open: a total without masks, under pads, with its tag and where it belongs."""
    written = tag.to_bytes(TAG_BYTES, "little")
    return {"padded": Blob("cipher", encoding.pack(values)), TAG: Blob("public", written), **where}


def write_tag(tag: int) -> dict[str, Blob]:
    """Return the field that carries a tag under masks."""
    return {TAG: Blob("masked", tag.to_bytes(TAG_BYTES, "little"))}


def read_tag(reply: Message) -> int:
    """Return the tag under masks that came with an upload, or refuse the reply."""
    if len(raw := read_blob(reply, TAG, "masked")) != TAG_BYTES:
        raise ProtectionError(f"a tag of {len(raw)} bytes, agreed were {TAG_BYTES}")
    return int.from_bytes(raw, "little")
