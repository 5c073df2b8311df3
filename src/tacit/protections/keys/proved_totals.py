"""Totals that prove themselves to the clients that open them, where clients share a key.

Beside its protected vector a client sends a linear tag of it, in the clear (:mod:`tacit.crypto.linear_tag`
has the mathematics). The coordinator adds the tags of the contributions that it adds, and a client that opens
the total checks the tag against the sum's number, the contribution's name and layout, and the names of the
contributors, at least as many as agreed. So the coordinator cannot have a total opened that it shifted,
forged, relabelled, took from an earlier sum, or formed of fewer clients or of one client many times. A
client on the coordinator's side has the key and can help it to all of that; a client that sends a wrong tag
stops the run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from tacit.core.claims import HISTORY, Claim, Term, recent
from tacit.core.errors import ConfigError, ProtectionError, ReplayError
from tacit.core.layout import Layout
from tacit.core.party import Party
from tacit.core.values import Blob
from tacit.crypto.channel import bound
from tacit.crypto.field import PRIME, Integers
from tacit.crypto.linear_tag import TAG_BYTES, VALUE_BITS, TagKey, Weights, add_pads, label_digests
from tacit.protections.keys.authenticated import manifest_digest_of
from tacit.protections.keys.shared_key import SharedKey

TAG = "tag"  # the field that carries it
TAG_NAMES = {TAG: "tag of the contribution, one number that looks random"}
TAGGED = "tagged"  # what a party remembers of the last sum that it contributed to
STANDING_TAGS = "standing/tagged"  # and of each change of a total that stands

PROVED = (
    "that it is the sum of what the named clients, min_clients at the least, each sent for that very sum; "
    "unless the coordinator has a client on its side, which has the key"
)


class ProvedTotals:
    """Tags of one client: it makes them for its own vectors, and checks those of totals."""

    def __init__(self, party: Party, key: SharedKey) -> None:
        self._party, self._key = party, key

    def tag(self, ticket: Mapping[str, Any], layout: Layout, integers: Integers) -> Blob:
        """Return the tag of this client's vector, and refuse to tag another one for the same term."""
        term: Term = ticket["term"]
        key = self._key.cached("tags", TagKey)
        place = self._place(term, layout, ticket["summands"])
        pad = add_pads(key.pads(place, label_digests([term.label.encode()])))
        tag = (self._weights(key, place, integers).product(integers) + pad) % PRIME
        self._remember(term, tag)
        return Blob("public", tag.to_bytes(TAG_BYTES, "little"))

    def check(
        self, total: Mapping[str, Any], layout: Layout, summands: int, integers: Integers, age: int = 0
    ) -> None:
        """Refuse an opened total whose tag is not that of the contributions it claims.

        ``age`` is that of the key under which it was formed, 0 for the newest.
        """
        claim = total.get("claim")
        if not isinstance(claim, Claim):
            raise ProtectionError("a total that does not say whose contributions it is the sum of")
        key, cache = self._key.cached("tags", TagKey, age), self._party.cache
        place = self._place(claim, layout, summands)

        def pads() -> int:
            labels, source = claim.labels, claim.source
            digests = recent(cache, "labels", source, lambda: label_digests([*map(str.encode, labels)]))
            return add_pads(key.pads(place, digests), claim.counts)

        expected = recent(cache, "pads", (key.id, place, claim.source), pads)
        product = self._weights(key, place, integers).product(integers)
        if (product + expected - read_tag(total)) % PRIME:
            raise ProtectionError("a total is not the sum of what its named contributors sent")

    def _place(self, what: Term | Claim, layout: Layout, summands: int) -> bytes:
        """Return all that a tag is bound to, but for whose it is.

        Schema and history are those of the party itself: all in a total have computed from the same.
        """
        run, state = manifest_digest_of(self._party), self._party.state
        number, history = (
            ("standing", "") if what.number is None else (str(what.number), state.get(HISTORY, ""))
        )
        schema = hashlib.sha256(state["schema"]).digest()
        return bound(run, what.contribution, number, str(summands), repr(layout.fields), schema, history)

    def _weights(self, key: TagKey, place: bytes, integers: Integers) -> Weights:
        size = integers.size
        found = (key.id, place, size)
        return recent(self._party.cache, "weights", found, lambda: key.weights(place, size))

    def _remember(self, term: Term, tag: int) -> None:
        """Refuse two vectors for one term: their tags would have the same pad."""
        own = self._party
        if term.number is None:
            sent = own.state.get(STANDING_TAGS, {})
            if sent.get(term.label, tag) != tag:
                raise ReplayError(f"{own.id} contributed other values under this name: choose another name")
            own.state[STANDING_TAGS] = {**sent, term.label: tag}
            return
        last, earlier = own.state.get(TAGGED, (0, 0))
        if term.number < last or (term.number == last and earlier != tag):
            raise ReplayError(
                f"{own.id} contributed to sum {last}, and is asked for another contribution to sum "
                f"{term.number}"
            )
        own.state[TAGGED] = (term.number, tag)


def read_tag(fields: Mapping[str, Any]) -> int:
    """Return the tag in a message or a total, or refuse it."""
    blob = fields.get(TAG)
    if not isinstance(blob, Blob) or (blob.kind, len(blob.data)) != ("public", TAG_BYTES):
        raise ProtectionError("no tag of the contribution where one was agreed")
    if (tag := int.from_bytes(blob.data, "little")) >= PRIME:
        raise ProtectionError("a contribution's tag is no element of the field")
    return tag


def add_tags(*parts: Mapping[str, Any]) -> Blob:
    """Return the tag of a total, from the parts that it is the sum of."""
    tag = sum(map(read_tag, parts)) % PRIME
    return Blob("public", tag.to_bytes(TAG_BYTES, "little"))


def check_room(bits: int, guard_bits: int, summands: int) -> None:
    """Refuse integers whose totals a tag cannot tell apart."""
    if (needed := bits - 1 + guard_bits) > VALUE_BITS:
        raise ConfigError(
            f"{bits} bits a value and {summands:,} summands need {needed} bits and a sign, the field holds "
            f"{VALUE_BITS}: use at most {VALUE_BITS + 1 - guard_bits} bits"
        )
