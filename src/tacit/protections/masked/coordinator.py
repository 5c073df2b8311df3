"""Masked sums: every upload is noise, and only the sum of those that arrived can be cleared of it.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning" (2017), on the sparse
graph of Bell et al., "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead" (2020). Client u
uploads, modulo a power of two,

    y_u = x_u + PRG(b_u) + Σ_{v > u} PRG(s_uv) - Σ_{v < u} PRG(s_uv)          over its neighbours v.

Two waves (``offer``, ``deal``) prepare any number of sums: every client shows a public key for each of them
and deals Shamir shares of the private keys and of the seeds b to its neighbours, sealed against the
coordinator with keys into which both clients' pinned identities and all that each showed have gone. After
the uploads one wave (``unmask``) collects shares of b_u for those that arrived and of the private key for
those that vanished: never both, or x_u lies open. Keys serve one sum, so that the key of a client that
vanishes in sum 9 says nothing of sums 1 to 8. Seeds s_uv are bound to the digest of what was asked: if
clients were told different models, their masks do not cancel and the total is noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from tacit.core.errors import OpeningError, ProtectionError
from tacit.core.events import Noted
from tacit.core.layout import Layout
from tacit.core.protection import Place, Promises, Sum, Vector
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.field import PRIME
from tacit.crypto.fixedpoint import FixedPoint
from tacit.crypto.masking import Words, add_masks, sign_for
from tacit.crypto.neighbours import COMPLETE_BELOW
from tacit.crypto.sharing import Share
from tacit.protections.masked.client import MaskedClient
from tacit.protections.masked.keys import Agreement, worth
from tacit.protections.masked.wire import (
    ELEMENTS,
    HASH,
    SHARE,
    Batch,
    Encoding,
    Jobs,
    chunks,
    commitment,
    listed,
    mask_seeds,
    public_of,
    recovered,
    to_flags,
)

LAZY_SUMS = 8  # prepared at most when more are summed than were announced
STREAMS = 64  # masks expanded side by side


@dataclass(frozen=True)
class Masked(MaskedClient):
    """Masks that cancel in the sum: the coordinator sees noise, and the total of those that arrived.

    Parameters
    ----------
    bits : int
        Bits of a value in fixed point, its sign included. With up to 256 clients a value travels in
        5 bytes at 32 bits, in 4 at 24 (and in half the time), in 3 at 16.
    clip : bool
        Cut values at their bound instead of refusing them.
    neighbours : int or None
        With how many others a client masks, rounded up to an even number. None: with all others below 64
        clients; above that with as few, of the order of log n, as keep the promised probabilities.
    corrupt_share : float
        Share of the clients that may collude with the coordinator.
    dropout_share : float
        Share of the clients that may vanish during a sum.
    active : bool
        Withstand a coordinator that tells one client that a neighbour arrived and another that it
        vanished: the threshold t rises until 2t exceeds all holders and the corrupt ones again, so that
        both kinds of shares never come together. Fewer clients may vanish then.

    Examples
    --------
    >>> Masked().sizing(10), Masked().sizing(1000), Masked(neighbours=5).sizing(1000)
    ((9, 6), (46, 27), (6, 4))
    """

    name = "masked"

    @property
    def opens(self) -> Place:
        """At the coordinator, which unmasks the total."""
        return "coordinator"

    @property
    def promises(self) -> Promises:
        """What is promised; thresholds follow from the number of clients (``sizing``)."""
        return Promises(
            opens="coordinator",
            keys={
                "client": "a key and a seed of its own for each sum, and shares of its neighbours'",
                "coordinator": "no key but those of clients that vanished, each for the one sum they missed",
            },
            sees={
                "coordinator": "vectors of uniform noise, and the total",
                "client": "what is made of the total",
                "outsider": "nothing",
            },
            collusion="the coordinator with t of the clients that hold shares of one client's secrets open "
            "that client's vector, t being over half of them; with fewer it learns nothing"
            + (
                ", also if it lies about who vanished"
                if self.active
                else ". If it lies about who vanished, 2t - holders of them suffice: active=True mends that"
            )
            + ("" if self.neighbours is not None else f". From {COMPLETE_BELOW} clients on {self._sparse()}"),
            dropout="the sum goes on without clients that vanish at any step; if more than half around one "
            "client do before the upload, it starts again with fresh keys, down to the quorum; if as many do "
            "between upload and unmasking, it stays shut",
            precision=2.0 ** -(self.bits - 1),
            bytes_per_value=float(ceil((self.bits + 8) / 8)),
            warnings=() if self.neighbours is None else (self._by_hand(),),
        )

    def _by_hand(self) -> str:
        return (
            f"each client masks with {self.neighbours} others, a number set by hand: what that is worth "
            "depends on the number of clients and is told when keys are agreed; leave neighbours out"
        )

    def _sparse(self) -> str:
        """What masking with some others only means; true from so many clients on, and told of no fewer."""
        return (
            f"each masks with some others only: if up to {self.corrupt_share:.0%} collude with the "
            f"coordinator and {self.dropout_share:.0%} vanish, somebody is exposed with a probability of at "
            "most 2^-40; but a coordinator that chooses who vanishes once it knows the graph can cut it "
            "(neighbours as large as the federation: none can)"
        )

    # -- keys ------------------------------------------------------------------------------------------------

    def welcome(self, coordinator: Any, party: str, fields: Mapping[str, Any]) -> None:
        """Keep the party's commitment for the draw."""
        super().welcome(coordinator, party, fields)
        draw = fields.get("draw")
        if not isinstance(draw, bytes) or len(draw) != HASH:
            raise ProtectionError(f"{party} committed to no number for the draw of neighbours")
        coordinator.memory.setdefault("draws", {})[party] = draw

    def prepare(self, coordinator: Any, sums: int) -> None:
        """Let clients agree on masks for that many sums, in two waves."""
        memory, clients = coordinator.memory, len(coordinator.parties)
        memory.update(run=coordinator.manifest.digest, quorum=coordinator.manifest.quorum, sums=max(1, sums))
        count, threshold = self.sizing(clients)
        if count < clients - 1:
            bits = worth(self, clients)
            text = f"each of {clients} clients masks with {count} others, {threshold} shares open a mask: "
            text += f"some client is exposed with a probability of at most 2^-{bits:.0f}"
            coordinator.events.emit(Noted("protection", text, "warning" if bits < 40 else "info"))
            if self.neighbours is None:
                text = f"from {COMPLETE_BELOW} clients on {self._sparse()}"
                coordinator.events.emit(Noted("protection", text, "warning"))
        if clients >= self.min_contributions(
            coordinator.manifest.min_clients
        ):  # or the first sum says why it cannot be
            agreement = Agreement(self, coordinator.ask, coordinator.failures.__setitem__, memory)
            memory["batch"] = agreement.reach(coordinator.parties, memory["sums"])

    def admit(self, coordinator: Any, names: Sequence[str]) -> None:
        """Let all agree on masks anew, for the sums that are left."""
        memory, batch = coordinator.memory, coordinator.memory.get("batch")
        left = memory["sums"] if batch is None else max(1, batch.count - batch.used)
        agreement = Agreement(self, coordinator.ask, coordinator.failures.__setitem__, memory)
        memory["batch"] = agreement.reach((*coordinator.parties, *names), left)

    # -- the sum ---------------------------------------------------------------------------------------------

    def gather(self, pending: Sum) -> dict[str, Any]:
        """Add up what arrives, and clear the sum of its masks; begin again if too few are left for that."""
        while True:
            batch, asked = self._ready(pending)
            slot = batch.first + batch.used
            batch.used += 1
            encoding = self.encoding(pending.layout, batch.clients)
            total, arrived = self._collect(pending, batch, slot, asked, encoding)
            pending.check()
            if batch.holds(asked, list(arrived)):
                break
            # Nothing of this sum was opened, and with the next batch clients forget its secrets.
            pending.memory["batch"] = None
            pending.restart()
        self._clear(pending, batch, slot, asked, arrived, total)
        return {"integers": encoding.decode(total, len(arrived)), "summands": batch.clients}

    def _ready(self, pending: Sum) -> tuple[Batch, list[str]]:
        """A batch with sums left whose graph joins the parties asked, and those of them that are in it."""
        memory = pending.memory
        if "run" not in memory:
            raise ProtectionError("masks were not agreed on: prepare the protection before the first sum")
        willing = [party for party in pending.parties if party not in pending.failures]
        batch: Batch | None = memory.get("batch")
        if batch is None or not self._serves(batch, willing, len(pending.parties) * memory["quorum"]):
            pending.check(willing)
            whole = batch is not None and batch.used == batch.count
            count = min(memory["sums"], LAZY_SUMS) if whole else 1
            agreement = Agreement(self, pending.ask, pending.refuse, memory)
            batch = memory["batch"] = agreement.reach(willing, count)
        asked = [] if batch is None else batch.joined(willing)
        for party in willing:
            if party not in asked and party not in pending.failures:
                why = f": {pending.lost[party]}" if party in pending.lost else ""
                pending.refuse(party, f"it took no part when masks were agreed on{why}")
        if batch is None:
            pending.check(asked)
            raise OpeningError("too few clients are left to agree on masks: wait for more")
        return batch, asked

    @staticmethod
    def _serves(batch: Batch, willing: Sequence[str], needed: float) -> bool:
        asked = batch.joined(willing)
        return batch.used < batch.count and len(asked) >= needed and batch.holds(asked, asked)

    def _collect(
        self, pending: Sum, batch: Batch, slot: int, asked: Sequence[str], encoding: Encoding
    ) -> tuple[Words, dict[str, bytes]]:
        """Add uploads; give also who arrived, with the digest of what each was asked."""
        members, total, arrived = set(asked), np.zeros(encoding.words, encoding.kind), {}
        tickets: dict[str, dict[str, Any]] = {}
        for party in asked:
            order = batch.order[party]
            tickets[party] = {"partners": to_flags([name in members for name in order])}
            if (sealed := batch.sealed.get(party)) is not None:
                dealt = [name == party or name in sealed for name in order]
                blob = Blob("sealed", b"".join(sealed[name] for name in order if name in sealed))
                tickets[party] |= {"dealt": to_flags(dealt), "shares": blob}
                for name, raw in sealed.items():
                    pending.relayed(name, party, len(raw))
        for party, message in pending.contributions(tickets, {"slot": slot}, asked):
            batch.sealed.pop(party, None)
            try:
                words, arrived[party] = encoding.read(message.get("masked"), batch.run, slot)
            except ProtectionError as error:
                pending.refuse(party, str(error))
                continue
            total += words
        if len(set(arrived.values())) > 1:
            raise ProtectionError(
                f"clients were asked different things in sum {slot}, by the digests in their uploads: their "
                "masks do not cancel, and nothing is opened"
            )
        return total, arrived

    def _clear(
        self,
        pending: Sum,
        batch: Batch,
        slot: int,
        asked: Sequence[str],
        arrived: Mapping[str, bytes],
        total: Words,
    ) -> None:
        """Take the masks off the total, in place."""
        shares = self._shares(pending, batch, slot, asked, arrived)
        call, members = next(iter(arrived.values())), set(arrived)

        def masks() -> Iterator[tuple[Secret, int]]:
            for owner in asked:
                around = members.intersection(batch.order[owner])
                if not around:  # it vanished, and so did all that masked with it
                    continue
                right = self._right(batch, slot, owner, members)
                secret = recovered(shares[owner], batch.threshold, right, owner)
                if owner in members:
                    yield secret, -1
                    continue
                publics = {name: batch.piece(batch.publics, name, slot) for name in around}
                seeds = mask_seeds(secret, publics, batch.run, call, slot, owner)
                yield from ((seed, sign_for(owner, name)) for name, seed in seeds.items())

        for part in chunks(masks(), STREAMS):
            add_masks(total, part)

    @staticmethod
    def _right(batch: Batch, slot: int, owner: str, arrived: set[str]) -> Callable[[Secret], bool]:
        """How to recognise a client's seed, or its key."""
        if owner in arrived:
            commit = batch.piece(batch.commits, owner, slot)
            return lambda seed: commitment("self", batch.run, owner, slot, seed.reveal()) == commit
        public = batch.piece(batch.publics, owner, slot)
        return lambda key: public_of(key) == public

    def _shares(
        self, pending: Sum, batch: Batch, slot: int, asked: Sequence[str], arrived: Mapping[str, bytes]
    ) -> dict[str, list[Share]]:
        """Last wave: one share for each neighbour, of its seed or of its key, from all that arrived."""
        common = {"slot": slot, "survivors": len(arrived), "list": listed(list(arrived))}
        jobs = Jobs(
            list(arrived), lambda party: {"alive": to_flags([name in arrived for name in batch.order[party]])}
        )
        members, found = set(asked), {name: list[Share]() for name in asked}
        for party, reply in pending.ask(self.unmask, common, jobs, list(arrived)):
            owners = [name for name in batch.order[party] if name in members]
            blob = reply.get("shares")
            if not isinstance(blob, Blob) or blob.kind != "share" or len(blob.data) != SHARE * len(owners):
                continue  # as if it had vanished: others hold shares, too
            rows = np.frombuffer(blob.data, "<u8").astype(np.uint64).reshape(-1, ELEMENTS)
            for owner, row in zip(owners, rows, strict=True):
                if row.max() < PRIME:
                    found[owner].append(Share(batch.order[owner].index(party) + 1, row))
        return found

    def open(self, holder: Any, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Turn the integers of a total that is unmasked already into values."""
        return FixedPoint.of(layout, self.bits, total["summands"], self.clip).decode(total["integers"])
