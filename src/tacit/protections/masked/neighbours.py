"""The draw of neighbours in masked sums: who sits where on the circle, and how a client checks it.

Each client's place on the circle is a hash of the batch's root and of a number to which it
committed at enrolment or in the batch before. The root covers all commitments: whoever changes one moves
everybody, and a client that is left out later moves nobody else. But a coordinator that knows the numbers of
its friends may try many roots, by what these commit to and by whom it asks, until they sit side by side. So
places follow from a root by many hashes: the 2^40 tries that the sizing allows for cost 2^59.

A client sees its neighbours' numbers, each with a proof of O(log n) hashes that it was committed to, and
checks that the arcs to its furthest neighbours are no longer, each and both together, than chance and the
agreed share of dropouts explain: a coordinator that shows only its friends has to reach far.
"""

from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from hashlib import pbkdf2_hmac, sha256
from itertools import compress
from typing import NamedTuple

from tacit.core.errors import OpeningError, ProtectionError
from tacit.core.exposure import COORDINATOR
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.crypto.channel import hash_pieces
from tacit.crypto.neighbours import longest_arc
from tacit.protections.keys.authenticated import manifest_digest_of
from tacit.protections.masked import Masked, wire
from tacit.protections.masked.rules import Rules

GRINDING = 1 << 18  # of two hashes each: about 0.05 s once in a batch


class MerkleTree:
    """A hash tree over named commitments: one root for all, and a short proof for each."""

    def __init__(self, leaves: Mapping[str, bytes]) -> None:
        self._index = {name: index for index, name in enumerate(sorted(leaves))}
        level = [hash_pieces(b"leaf", name.encode(), leaves[name]) for name in self._index]
        level += [bytes(wire.HASH)] * ((1 << _depth(len(level))) - len(level))
        self._levels = [level]
        while len(level) > 1:
            level = [sha256(b"node" + level[i] + level[i + 1]).digest() for i in range(0, len(level), 2)]
            self._levels.append(level)
        self.root = hash_pieces(b"root", len(leaves).to_bytes(8, "little"), level[0])

    def prove(self, name: str) -> bytes:
        """Return position and siblings of a leaf, from the bottom up."""
        index = self._index[name]
        siblings = [level[(index >> height) ^ 1] for height, level in enumerate(self._levels[:-1])]
        return index.to_bytes(4, "little") + b"".join(siblings)


def verify_proof(
    root: bytes, size: int, name: str, leaf: bytes, proof: bytes, known: dict[int, bytes] | None = None
) -> bool:
    """Return whether a named commitment belongs to the tree of that root and size.

    ``known`` are nodes that earlier proofs in the same tree led through, by their number (1 is the top): a
    proof is right as soon as it meets one.
    """
    index, depth, nodes = int.from_bytes(proof[:4], "little"), _depth(size), {} if known is None else known
    if len(proof) != proof_length(size) or index >> depth:
        return False
    number, node, found = index + (1 << depth), hash_pieces(b"leaf", name.encode(), leaf), dict[int, bytes]()
    for start in range(4, len(proof), wire.HASH):
        if nodes.get(number) == node:
            break
        found[number] = node
        sibling = proof[start : start + wire.HASH]
        node = sha256(b"node" + (sibling + node if number & 1 else node + sibling)).digest()
        number >>= 1
    if number == 1 and hash_pieces(b"root", size.to_bytes(8, "little"), node) != root:
        return False
    nodes |= found
    return True


def proof_length(size: int) -> int:
    """Return the length of a proof in a tree of that size."""
    return 4 + wire.HASH * _depth(size)


def _depth(size: int) -> int:
    return max(size - 1, 0).bit_length()


def find_place(root: bytes, number: bytes) -> int:
    """Return the place on the circle, below 2^64, of the client that committed to this number."""
    return int.from_bytes(hash_pieces(b"place", _slow(root), number)[:8], "little")


@lru_cache(maxsize=8)
def _slow(root: bytes) -> bytes:
    return pbkdf2_hmac("sha256", root, b"tacit places", GRINDING)


def assign_holders(places: Mapping[str, int], count: int) -> dict[str, tuple[str, ...]]:
    """Return, for each client, itself and its neighbours, half of them on either side, in order of names."""
    ring = sorted(places, key=lambda name: (places[name], name))
    size, half = len(ring), count // 2
    if count >= size - 1:
        everyone = tuple(sorted(ring))
        return dict.fromkeys(ring, everyone)
    return {
        name: tuple(sorted(ring[(index + step) % size] for step in range(-half, half + 1)))
        for index, name in enumerate(ring)
    }


def is_plausible_draw(own: int, others: Sequence[int], clients: int, missing: float) -> bool:
    """Return whether these may be the nearest on either side, of clients of whom a share is missing."""
    half = len(others) // 2
    ahead = sorted((other - own) % (1 << 64) for other in others)
    sides = ahead[half - 1], (1 << 64) - ahead[half]
    reach, both = (longest_arc(count, clients, missing) * 2.0**64 for count in (half, 2 * half))
    return max(sides) <= reach and sum(sides) <= both


class Neighbourhood(NamedTuple):
    """What a client knows of a batch; the n-th of ``holders``, itself among them, has the n-th share."""

    first: int
    sums: int
    clients: int
    root: bytes
    neighbours: list[str]
    holders: list[str]

    @classmethod
    def of(cls, party: Party, names: bytes) -> "Neighbourhood":
        """Return what a party has agreed to offer keys for, with the neighbours that it is told of."""
        first, sums, clients, root = (party.state[f"mask/{name}"] for name in cls._fields[:4])
        neighbours = names.decode().split("\n")
        return cls(first, sums, clients, root, neighbours, sorted([party.id, *neighbours]))

    def select(self, flags: wire.Flags) -> Set[str]:
        """Return the holders for which a flag is set."""
        return set(compress(self.holders, flags.tolist()))


def check_members(settings: Masked, party: Party, message: Message, clients: int) -> bytes:
    """Return the names of all that may take part, where all mask with all; keys are bound to these."""
    if not settings.rules(clients).complete:
        return b""  # the root is that of the draw, and neighbours come with proofs
    members = message["members"]
    names = members.decode().split("\n")
    if len(names) != clients or names != sorted(set(names)) or party.id not in names:
        raise ProtectionError(
            f"a list of {len(names)} members for {clients} clients: each stands there once, in order, and "
            f"{party.id} among them"
        )
    if wire.digest_members(members) != message["root"]:
        raise ProtectionError("the list of members is another than the one that keys are bound to")
    return bytes(members)


def _check_names(rules: Rules, party: Party, around: Neighbourhood) -> None:
    found, wanted = len(around.neighbours), rules.neighbours
    if around.neighbours != sorted({*around.neighbours} - {party.id, COORDINATOR}):
        raise ProtectionError("neighbours that are not others, each of them once and in order")
    # Where all mask with all, some may have vanished; on the circle others take their places.
    fewest = rules.partners - 1 if rules.complete else wanted
    if not fewest <= found <= wanted:
        raise OpeningError(
            f"{found} neighbours among {around.clients} clients, agreed were {wanted} and at least "
            f"{fewest} of them: {party.id} deals nothing"
        )
    # Thresholds count on all clients around anyone being of one federation.
    if rules.complete and not {*around.neighbours} <= {*party.state["mask/members"].decode().split("\n")}:
        raise ProtectionError(f"{party.id} was shown clients that are not on the list of members")


def check_neighbours(
    settings: Masked, party: Party, around: Neighbourhood, message: Message
) -> dict[str, wire.Offer]:
    """Return the neighbours' offers, once they are known to be drawn rather than chosen."""
    rules, found = settings.rules(around.clients), len(around.neighbours)
    sparse = not rules.complete
    _check_names(rules, party, around)
    raw: bytes = message["offers"]
    if found < 1 or len(raw) != found * wire.SIGNED_OFFER:
        raise ProtectionError(f"offers of {len(raw)} bytes are not {found} of {wire.SIGNED_OFFER} bytes")
    proofs, length = message.get("proofs", b""), proof_length(around.clients)
    if len(proofs) != found * length * sparse:
        raise ProtectionError(f"proofs of {len(proofs)} bytes: they are missing or too many")
    run, batch, offers = manifest_digest_of(party), (around.root, around.first, around.sums), {}
    nodes = dict[int, bytes]()
    for index, name in enumerate(around.neighbours):
        signed = raw[wire.SIGNED_OFFER * index : wire.SIGNED_OFFER * (index + 1)]
        offers[name] = offer = wire.Offer.from_signed(signed, party.pinned(name), name, run, batch)
        if not sparse:
            continue
        leaf = wire.commit("draw", run, name, 0, offer.number)
        proof = proofs[length * index : length * (index + 1)]
        if not verify_proof(around.root, around.clients, name, leaf, proof, nodes):
            raise ProtectionError(f"{name} took no part in the draw with the number that it shows")
    if sparse:
        own = find_place(around.root, party.state["mask/revealed"])
        places = [find_place(around.root, offer.number) for offer in offers.values()]
        if not is_plausible_draw(own, places, around.clients, settings.dropout_share):
            raise ProtectionError(
                f"the neighbours of {party.id} sit further away than chance explains: others were left out"
            )
    return offers
