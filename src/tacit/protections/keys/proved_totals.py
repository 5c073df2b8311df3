"""Totals that prove themselves to the clients that open them, where clients share a key.

Beside its protected vector a client sends a linear tag of it, in the clear (:mod:`tacit.crypto.linear_tag`
has the mathematics): of the vector's integers or, where whether a ciphertext decrypts well tells of the key,
of the ciphertext's residues, so that a total is checked before it is decrypted. The coordinator adds the tags
of the contributions that it adds, and a client that opens the total checks the tag against all that the total
claims: docs/bfv.md says what that keeps a coordinator from. A wrong tag stops the run.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tacit.core.claims import HISTORY, Claim, Term, recent
from tacit.core.errors import ConfigError, ProtectionError, ReplayError
from tacit.core.layout import Layout
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.values import Blob
from tacit.crypto.channel import bound
from tacit.crypto.field import PRIME, Integers, Ring
from tacit.crypto.linear_tag import TAG_BYTES, VALUE_BITS, TagKey, add_pads, copies, label_digests
from tacit.protections.keys.authenticated import manifest_digest_of
from tacit.protections.keys.shared_key import SharedKey

TAG = "tag"  # the field that carries it
TAG_NAMES = {TAG: "tag of the contribution, one number that looks random"}
LAST = "tagged/sum"  # the last sum that a party contributed to
TAGGED = "tagged/sent"  # what it sent for it
STANDING_TAGS = "standing/tagged/"  # and for each change of a total that stands, by label
FINGERPRINT = "fingerprint"  # of the vector that it was made of

TAGS_KEPT = 32  # weights that are kept in memory: several for each ciphertext

Vectors = Mapping[int, Integers] | Mapping[int, Ring]  # what is tagged, by the modulus in which it is summed
Encrypt = Callable[[], tuple[bytes, Vectors]]

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
        tag = write_tag(self.tag_once(ticket["term"], layout, ticket["summands"], integers))
        self._once(ticket["term"], tag.data, dict)
        return tag

    def tag_ciphertext(
        self, ticket: Mapping[str, Any], layout: Layout, integers: Integers, encrypt: Encrypt
    ) -> Message:
        """Encrypt this client's vector and tag the ciphertext, which ``encrypt`` returns with its residues.

        Whoever is asked again for the same term sends the very same ciphertext: two of them under one pad
        would let the coordinator add their difference to a total. Another vector is refused.
        """
        term: Term = ticket["term"]
        place = self._place(term, layout, ticket["summands"])
        fingerprint = self._key.cached("tags", TagKey).fingerprint(place, integers)

        def fields() -> dict[str, Blob]:
            blob, residues = encrypt()
            tags = self._tags(term, place, residues)
            return {"cipher": Blob("cipher", blob), TAG: write_tag(*tags)}

        return Message(self._once(term, fingerprint, fields))

    def tag_once(
        self, term: Term, layout: Layout, summands: int, integers: Integers, attempt: bytes = b""
    ) -> int:
        """Return the tag of a vector for an attempt at its sum, which no other vector of this client has."""
        [tag] = self._tags(term, self._place(term, layout, summands, attempt), {PRIME: integers})
        return tag

    def _tags(self, term: Term, place: bytes, vectors: Vectors) -> list[int]:
        key, labels, tags = self._key.cached("tags", TagKey), label_digests([term.label.encode()]), []
        for modulus, part in _places(place, vectors):
            pad = add_pads(key.pads(part, labels), modulus=modulus)
            tags.append((self._product(key, part, modulus, vectors[modulus]) + pad) % modulus)
        return tags

    def check(
        self,
        total: Mapping[str, Any],
        layout: Layout,
        summands: int,
        vectors: Vectors,
        age: int = 0,
        attempt: bytes = b"",
    ) -> None:
        """Refuse a total whose tag is not that of the contributions it claims.

        ``vectors`` are what was tagged, by the modulus in which it is summed: the integers of an opened total
        modulo the field's prime, or the residues of a ciphertext that is still closed. ``age`` is that of the
        key under which the total was formed, 0 for the newest; ``attempt`` at the sum as :meth:`tag_once` had
        it.
        """
        claim = claim_of(total)
        if claim.counts.sum() > summands:  # which would wrap around
            raise ProtectionError("a total of more contributions than it has room for")
        key, cache = self._key.cached("tags", TagKey, age), self._party.cache
        place = self._place(claim, layout, summands, attempt)

        def pads() -> list[int]:
            labels, source = claim.labels, claim.source
            digests = recent(cache, "labels", source, lambda: label_digests([*map(str.encode, labels)]))
            return [
                add_pads(key.pads(part, digests), claim.counts, modulus)
                for modulus, part in _places(place, vectors)
            ]

        expected = recent(cache, "pads", (key.id, place, tuple(vectors), claim.source), pads)
        parts = zip(_places(place, vectors), expected, read_tag(total, vectors), strict=True)
        for (modulus, part), pad, tag in parts:
            if (self._product(key, part, modulus, vectors[modulus]) + pad - tag) % modulus:
                raise ProtectionError("a total is not the sum of what its named contributors sent")

    def _place(self, what: Term | Claim, layout: Layout, summands: int, attempt: bytes = b"") -> bytes:
        run, state = manifest_digest_of(self._party), self._party.state
        stands = what.number is None
        number, history = ("standing", "") if stands else (str(what.number), state.get(HISTORY, ""))
        agreed = hashlib.sha256(state["schema"]).digest(), history, attempt
        return bound(run, what.contribution, number, str(summands), _text_of(layout), *agreed)

    def _product(self, key: TagKey, place: bytes, modulus: int, vector: Integers | Ring) -> int:
        size, cache = vector.size, self._party.cache
        weights = recent(
            cache, "weights", (key.id, place, size), lambda: key.weights(place, size, modulus), TAGS_KEPT
        )
        return weights.product(vector)

    def _once(self, term: Term, fingerprint: bytes, make: Callable[[], dict[str, Blob]]) -> dict[str, Blob]:
        """Return what is made for a term, once; refuse two vectors for one, whose tags would have one pad."""
        own, place = self._party, TAGGED
        if term.number is None:
            place = f"{STANDING_TAGS}{term.label}"
            again, older = place in own.state, False
            refusal = "contributed other values under this name: choose another name"
        else:
            last: int = own.state.get(LAST, 0)
            again, older = 0 < term.number == last, term.number < last
            refusal = f"contributed to sum {last}, and is asked for another contribution to sum {term.number}"
        sent = dict(Message.decode(own.state[place])) if again else {}
        if older or sent.pop(FINGERPRINT, fingerprint) != fingerprint:
            raise ReplayError(f"{own.id} {refusal}")
        if not again:
            sent = make()
            own.state[place] = Message({FINGERPRINT: fingerprint, **sent}).encode()
            own.state.update({} if term.number is None else {LAST: term.number})
        return sent


def claim_of(total: Mapping[str, Any]) -> Claim:
    """Return what a total says of itself, or refuse it."""
    if not isinstance(claim := total.get("claim"), Claim):
        raise ProtectionError("a total that does not say whose contributions it is the sum of")
    return claim


@lru_cache(maxsize=8)  # clients of one process share layouts
def _text_of(layout: Layout) -> str:
    return repr(layout.fields)


def _places(place: bytes, moduli: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """Return the modulus of each number of a tag, and what its weights and pads are made for."""
    for modulus in moduli:
        for copy in range(copies(modulus)):
            yield modulus, bound(place, str(modulus), str(copy))


def read_tag(fields: Mapping[str, Any], moduli: Iterable[int] = (PRIME,)) -> list[int]:
    """Return the numbers of the tag in a message or a total, or refuse it."""
    blob, limits = fields.get(TAG), [modulus for modulus in moduli for _ in range(copies(modulus))]
    if not isinstance(blob, Blob) or (blob.kind, len(blob.data)) != ("public", TAG_BYTES * len(limits)):
        raise ProtectionError("no tag of the contribution where one was agreed")
    tags: list[int] = np.frombuffer(blob.data, "<u8").tolist()
    if any(tag >= limit for tag, limit in zip(tags, limits, strict=True)):
        raise ProtectionError("a contribution's tag is no element of the field")
    return tags


def add_tags(*parts: Mapping[str, Any], moduli: Sequence[int] = (PRIME,)) -> Blob:
    """Return the tag of a total, from the parts that it is the sum of."""
    limits = [modulus for modulus in moduli for _ in range(copies(modulus))]
    found = zip(limits, *(read_tag(part, moduli) for part in parts), strict=True)
    return write_tag(*(sum(tags) % limit for limit, *tags in found))


def write_tag(*tags: int) -> Blob:
    """Return the numbers of a tag as a field."""
    return Blob("public", b"".join(tag.to_bytes(TAG_BYTES, "little") for tag in tags))


def check_room(bits: int, guard_bits: int, summands: int) -> None:
    """Refuse integers whose totals a tag cannot tell apart."""
    if (needed := bits - 1 + guard_bits) > VALUE_BITS:
        raise ConfigError(
            f"{bits} bits a value and {summands:,} summands need {needed} bits and a sign, the field holds "
            f"{VALUE_BITS}: use at most {VALUE_BITS + 1 - guard_bits} bits"
        )
