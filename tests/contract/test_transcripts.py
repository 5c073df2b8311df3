"""Promises on real transcripts: what each party received, opened with every key that it holds.

A run is written down byte by byte. Then each party's messages are searched for the other clients'
vectors in every form they could have, and everything that the party's own keys open is searched as well.
The plain sum is the control: there the same search finds them.
"""

import itertools
import re
import struct
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import msgspec
import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from gmpy2 import invert

from tacit.core.client import layout_of, protection_half, read_log
from tacit.core.coordinator import Coordinator
from tacit.core.errors import MessageError, TacitError
from tacit.core.layout import Field, Layout
from tacit.core.link import Link
from tacit.core.message import Message
from tacit.core.party import Party, Vault
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto import bfv
from tacit.crypto.bfv import ring_of as bfv_ring
from tacit.crypto.channel import SIGNATURE, bound, pair_key, place, unseal
from tacit.crypto.ckks.rings import COLUMN, COLUMNS, PRODUCT, SUM, SUMS
from tacit.crypto.field import from_field
from tacit.crypto.fixedpoint import FixedPoint
from tacit.crypto.masking import GIVEN, add_masks, advance_chains, bind_seeds, cover, sign_for
from tacit.crypto.pads import PadKey
from tacit.crypto.paillier import Packing, PrivateKey, read_header
from tacit.crypto.paillier.blob import read_ciphertexts, write_blob
from tacit.crypto.seal.blob import read, set_of
from tacit.crypto.seal.ring import ring_of as ckks_ring
from tacit.federation import Federation
from tacit.methods.fedheonn import FedHEONN
from tacit.protections.encrypted import Encrypted
from tacit.protections.keys.proved_totals import TAG
from tacit.protections.keys.shared_key import SharedKey
from tacit.protections.masked import Masked
from tacit.protections.masked.confirming import CONFIRM, unlock
from tacit.protections.masked.wire import ELEMENTS, KEY, key_of, share_points
from tacit.protections.noised import Noised
from tacit.protections.paillier import Paillier
from tacit.protections.plain import Plain
from tacit.protections.ring import Ring
from tacit.protections.secret_sharing.settings import SecretSharing
from tacit.protections.secret_sharing.share_round import ShareRound, partial_place, recover_total
from tacit.protections.secret_sharing.wire import names_from_bytes, words_from_bytes
from tests.helpers.shares import Share, recover_vector

COORDINATOR = "coordinator"
KEY_SERVER = "key-server"
CLIENTS = [f"client-{index + 1}" for index in range(4)]
ROWS = dict(zip(CLIENTS, np.random.default_rng(7).uniform(-1, 1, size=(4, 9)), strict=True))
LAYOUT = Layout(Field("vector", (9,), 1.0))
TOTAL = np.sum(list(ROWS.values()), axis=0)


# -- reading a transcript ------------------------------------------------------------------------------


def messages(raw):
    """Messages that some bytes consist of: an ask is what all were asked and what this party was."""
    for at in (0, *_positions(raw, b"TCT\1")):
        with suppress(TacitError):
            yield Message.decode(raw[at:])
        with suppress(TacitError):
            yield Message.decode(raw[:at])


def pieces(raw):
    """Every byte string in a message, however deep."""
    yield raw
    for message in messages(raw):
        for _, entry in read_log(message):
            yield from pieces(entry)
        for value in message.values():
            found = value.data if isinstance(value, Blob) else value
            if isinstance(found, np.ndarray):
                yield found.tobytes()
            elif isinstance(found, bytes):
                yield from pieces(found)
                if len(found) % 60 == 0 and len(found) <= 600:  # sealed content keys, one after the other
                    yield from (found[at : at + 60] for at in range(0, len(found), 60))


def _positions(raw, word):
    at = raw.find(word)
    while at >= 0:
        yield at
        at = raw.find(word, at + 1)


def paillier_blobs(raw, key):
    """Whatever starts like a Paillier blob, wherever it lies, whole or cut short by what follows."""
    for at in _positions(raw, b"TPV\1"):
        with suppress(struct.error, TacitError):
            value_bits, guard_bits, _, count, _ = struct.unpack_from("<BBHQQ", raw, at + 20)
            slots = Packing(value_bits, guard_bits).slots(key.bits)
            yield raw[at : at + 40 + -(-count // slots) * key.ciphertext_bytes + 32]
    yield raw


FORMS = {1: (SUMS, SUM), 5: (COLUMNS, COLUMN), 6: (COLUMNS, PRODUCT)}  # of CKKS, by their code


def decrypted_blobs(raw, cipher):
    """What a key makes of whatever starts like a blob of SEAL's, wherever it lies."""
    for at in _positions(raw, b"TSE1"):
        with suppress(struct.error, TacitError):
            if isinstance(cipher, bfv.Cipher):
                chosen = bfv.Parameters.named(set_of(raw[at:]))
                yield cipher.decrypt(raw[at : at + _length(raw[at:], bfv_ring(chosen), bfv.INTEGERS)], chosen)
            else:
                used, form = FORMS[raw[at + 4]]
                yield cipher.decrypt(raw[at : at + _length(raw[at:], ckks_ring(used), form)])


def _length(blob, ring, form):
    """How long a blob is by its own header."""
    try:
        read(ring, blob[40:56], blob, form, whole=False)
    except MessageError as error:
        if found := re.search(r"its header asks for ([\d,]+)", str(error)):
            return int(found[1].replace(",", ""))
    return len(blob)


# -- what a party makes of it --------------------------------------------------------------------------


@contextmanager
def remembering(world):
    """Take down every secret that any vault ever holds: what a party deletes, a curious one keeps."""
    world.secrets, kept = [], Vault.__setitem__

    def remember(self, name, value):
        kept(self, name, value)
        world.secrets.append((self, name, value))

    with mock.patch.object(Vault, "__setitem__", remember):
        yield


def keys_of(world, who):
    """Every secret a party holds, by name; the federation's own key among them if it has that."""
    if who == COORDINATOR:
        link = world.coordinator.link
        return {**link.vault, **{f"channel/{name}": key for name, key in link.transport.channels.items()}}
    site = world.site(who)
    found = dict(site.vault)
    if "content" in found:
        owners = world.protection.at_client(site).step_owners
        found["federation"] = next(owner for owner in owners if isinstance(owner, SharedKey)).newest()
    return found


def keys_ever(world, *who):
    """Every secret that these parties ever held, by holder and name; of several of a name, all."""
    found = {}
    for holder in who:
        found |= {(holder, name): key for name, key in keys_of(world, holder).items()}
        vault = world.coordinator.link.vault if holder == COORDINATOR else world.site(holder).vault
        own = [(name, key) for place, name, key in world.secrets if place is vault]
        found |= {(holder, name, number): key for number, (name, key) in enumerate(own)}
    return found


def named(keys, wanted):
    """Keys of a name, with their holders."""
    return [(label[0], key) for label, key in keys.items() if label[1] == wanted]


def distinct(secrets):
    return [Secret(raw) for raw in dict.fromkeys(secret.reveal() for secret in secrets)]


def unsealed(world, keys, found):
    """What opens with any 32 bytes that these keys give, tried at every place where a seal could be."""
    run = world.coordinator.manifest.digest
    publics = [signed[SIGNATURE:] for signed in directory_of(world).values()]
    tried = [key for key in keys.values() if len(key.reveal()) == 32]
    tried += [
        pair_key(own, public, use, run)
        for own in distinct(key for _, key in named(keys, "exchange"))
        for public in publics
        for use in ("seal", "channel")
    ]
    tried = distinct(tried)
    steps = [(0, "key")]  # shares have places of their own, see dealt_shares
    if world.protection.name == "ring":
        closed = f"closed by {world.clients[0]}"
        steps += [(number, f"hop, lap {lap}, {closed}") for number in (1, 2, 3) for lap in (1, 2)]
    names = [*world.clients, COORDINATOR]
    places = [b"", run.encode()]
    places += [place(run, *step, *pair) for step in steps for pair in itertools.permutations(names, 2)]
    for piece in found:
        if len(piece) < 28 or piece[:3] in (b"TCT", b"TPV", b"TCK"):
            continue
        for key, where in itertools.product(tried, places):
            with suppress(InvalidTag, ValueError):
                yield ChaCha20Poly1305(key.reveal()).decrypt(piece[:12], piece[12:], where)


def directory_of(world):
    """Signed exchange keys of the parties, where the protection has any."""
    half = world.coordinator.protection
    half = getattr(half, "inner", half)
    return half.directory if hasattr(half, "directory") else {}


def read_by(world, entries, keys):
    """Bytes and numbers that somebody with these keys makes of what was received."""
    raws = list(dict.fromkeys(piece for *_, raw in entries for piece in pieces(raw)))
    raws += unsealed(world, keys, raws)
    numbers = []
    for secret, raw in itertools.product(distinct(keys.values()), raws):
        with suppress(TacitError):
            private = PrivateKey.from_secret(secret)
            for blob in paillier_blobs(raw, private.public):
                with suppress(TacitError):
                    numbers.append(private.decrypt(blob))
        if isinstance(world.protection, Encrypted) and len(secret.reveal()) == 32:
            numbers += decrypted_blobs(raw, world.protection.cipher(secret))
    if isinstance(world.protection, SecretSharing):
        shares = dealt_shares(world, entries, keys)
        raws += [raw for held in shares.values() for raw in held.values()]
        numbers += [*put_together(shares), *opened_partials(world, entries, keys)]
    if isinstance(world.protection, Masked):
        words, opened = unmasked(world, entries, keys)
        raws += [word.tobytes() for word in words]
        numbers += [*opened, *opened_pads(world, entries, keys)]
    return raws, numbers


def fields_of(raw):
    """What an ask or a reply says, all parts of it together."""
    return {name: value for message in messages(raw) for name, value in message.items()}


def dealt_shares(world, entries, keys):
    """Shares that somebody with these keys unseals, by round and dealer and then by the holder's point."""
    run, publics = world.coordinator.manifest.digest, directory_of(world)
    found = {}
    for _, _, step, raw in entries:
        told = fields_of(raw)
        if step != "protection.hold" or not {"dealers", "shares"} <= told.keys():
            continue
        holders, dealers = names_from_bytes(told["holders"]), names_from_bytes(told["dealers"])
        sealed = told["shares"].data
        threshold = world.protection.min_holders(len(holders))
        share_round = ShareRound(world.protection.scheme, told["sum"], told["lap"], tuple(holders), threshold)
        for holder, own in named(keys, "exchange"):
            position = 0
            for dealer in dealers if holder in holders else ():
                if dealer == holder:
                    continue
                size = share_round.sealed_size(dealer, holders.index(holder), told["slots"])
                piece, position = sealed[position : position + size], position + size
                key = pair_key(own, publics[dealer][SIGNATURE:], "seal", run)
                with suppress(TacitError):
                    share = unseal(key, piece, share_round.share_place(run, dealer, holder))
                    found.setdefault((share_round, dealer), {})[holders.index(holder) + 1] = share
    return found


def put_together(shares):
    """Vectors of whose shares there are enough; of additive ones the dealer keeps the last."""
    for (share_round, _), held in shares.items():
        if share_round.scheme == "shamir" and len(held) >= share_round.threshold:
            some = [Share(point, words_from_bytes(raw)) for point, raw in held.items()][
                : share_round.threshold
            ]
            yield from_field(recover_vector(some, share_round.threshold)[:-1])


def opened_partials(world, entries, keys):
    """Totals from partial sums: told to the coordinator, or sealed under the key of all clients."""
    run, scheme, told = world.coordinator.manifest.digest, world.protection.scheme, {}
    for receiver, sender, step, raw in entries:
        for message in (message for piece in pieces(raw) for message in messages(piece)):
            total = {name[6:]: value for name, value in message.items() if name.startswith("total/")}
            if "partials" in total:
                points, sealed = total["points"].tolist(), total["partials"].data
                size = len(sealed) // len(points)
                for _, key in named(keys, "federation"):
                    with suppress(TacitError):
                        rows = [
                            unseal(key, sealed[i * size : (i + 1) * size], partial_place(run, total, point))
                            for i, point in enumerate(points)
                        ]
                        yield recover_total(
                            scheme, points, [*map(words_from_bytes, rows)], total["threshold"]
                        )[0]
        partial = fields_of(raw).get("partial") if receiver == COORDINATOR else None
        if step == "protection.hold" and partial is not None and partial.kind == "share":
            told.setdefault(sender, []).append(words_from_bytes(partial.data))
    holders = [name for name in holders_of(world) if name in told]
    for rows in zip(*(told[name] for name in holders), strict=True):  # nobody vanishes in these runs
        least = world.protection.min_holders(len(holders))
        yield recover_total(scheme, range(1, len(rows) + 1), rows, least)[0]


def holders_of(world):
    half = world.coordinator.protection
    return half.election.members if world.protection.name == "committee" else world.clients


def unmasked(world, entries, keys):  # noqa: C901, PLR0915 -- an attacker follows the protocol step by step
    """Uploads, freed of all masks that somebody with these keys knows; and what has none left."""
    run, order = world.coordinator.manifest.digest, sorted(world.clients)
    threshold = world.protection.sizing(len(order))[1]
    uploads, deposits, shares, answers, given = {}, {}, {}, {}, {}
    batches = offered_batches(entries)
    for receiver, sender, step, raw in entries:
        told = fields_of(raw) if receiver == COORDINATOR else {}
        if "deposits" in told:
            first, sums, _ = batches[sum(1 for name, _ in deposits if name == sender)]
            size = GIVEN * (len(order) - 1)
            for at in range(sums):
                deposits[sender, first + at] = told["deposits"].data[size * at : size * (at + 1)]
        if "masked" in told:
            data = told["masked"].data
            slot, call = struct.unpack_from("<Q", data, 12)[0], data[52:84]
            uploads[slot, sender] = call, data[4], masked_words(data)
        if step == "protection.unmask" and receiver == COORDINATOR:
            slot = sorted(slot for slot, name in uploads if name == sender)[answers.get(sender, 0)]
            answers[sender] = answers.get(sender, 0) + 1
            given.setdefault(slot, {})[sender] = told["shares"].data, told["confirms"].data
    for slot, parts in given.items():
        for sender, (locked, _) in parts.items():
            at = CONFIRM * order.index(sender)
            pads = {order.index(name): raw[at : at + CONFIRM] for name, (_, raw) in parts.items()}
            where = place(run, slot, "release", sender, COORDINATOR)
            rows = np.frombuffer(unlock(locked, len(order), pads, threshold, where), "<u8")
            for owner, row in zip(order, rows.reshape(-1, ELEMENTS), strict=True):
                shares.setdefault((slot, owner, "seed"), {})[point_of(order, owner, sender)] = row
    secrets = {}
    for (holder, name, *_), key in keys.items():
        kind, slot = name.rsplit("/", 1) if name.count("/") == 2 else ("", "0")
        raw = key.reveal()
        if kind == "mask/own":
            secrets[int(slot), holder, "seed"] = raw
        elif kind == "mask/held":
            rows = np.frombuffer(raw, "<u8").reshape(len(order), 2, ELEMENTS)
            for owner, (part, seed) in zip(order, rows, strict=True):
                for what, row in (("key", part), ("seed", seed)):
                    shares.setdefault((int(slot), owner, what), {})[point_of(order, owner, holder)] = row
    for label, held in shares.items():
        if len(held) >= threshold:
            some = [Share(point, row.astype(np.uint64)) for point, row in held.items()][:threshold]
            secrets.setdefault(label, key_of(recover_vector(some, threshold)).reveal())
    pairs_known = known_pairs(order, batches, keys)
    for (owner, slot), raw in deposits.items():
        if (slot, owner, "key") in secrets:
            found = cover(Secret(secrets[slot, owner, "key"]), raw)
            others = [name for name in order if name != owner]
            for at, other in enumerate(others):
                pairs_known[slot, frozenset({owner, other})] = found[GIVEN * at : GIVEN * (at + 1)]
    left, opened, totals, pads = [], [], {}, PadsKnown(world, entries, keys, batches)
    for (slot, owner), (call, bits, words) in uploads.items():
        masks, unknown = [], {(slot, owner, "seed")} - secrets.keys()
        masks += [(Secret(secrets[slot, owner, "seed"]), -1)] if not unknown else []
        pairs = []
        for other in order:
            if other != owner:
                raw = pairs_known.get((slot, frozenset({owner, other})))
                if raw is None:
                    unknown.add((slot, other))
                    continue
                pairs.append((*bind_seeds(raw, call), -sign_for(owner, other)))
        words = words.copy()
        add_masks(words, masks)
        if masks:
            totals.setdefault((slot, bits, call), []).append(words.copy())
        add_masks(words, pairs)
        (left if unknown or pads.on else opened).append(signed(pads.off(words, slot, call, 1, bits), bits))
    for (slot, bits, call), rows in totals.items():
        if len(rows) == len(order):
            found = pads.off(np.sum(rows, axis=0, dtype=rows[0].dtype), slot, call, len(order), bits)
            (left if pads.on else opened).append(signed(found, bits))
    return left, opened


def point_of(order, owner, holder):
    return int(share_points(order.index(owner), np.array(order.index(holder))))


def offered_batches(entries):
    """First slot, number of sums and root of each batch of masks, in order, from what was offered."""
    found = {}
    for receiver, _, _, raw in entries:
        told = fields_of(raw) if receiver == COORDINATOR else {}
        if "offer" in told:
            content = told["offer"].data[SIGNATURE:]
            first, sums = struct.unpack_from("<QI", content, 4 * KEY)
            found[first] = first, sums, content[KEY : 2 * KEY]
    return list(found.values())


def known_pairs(order, batches, keys):
    """Seeds of pair masks, before they are bound to an ask, that clients know from their chains."""
    found = {}
    for own in order:
        ever = [(label, key) for label, key in keys.items() if len(label) == 3]
        links = [key.reveal() for label, key in ever if label[:2] == (own, "mask/links")]
        others = [name for name in order if name != own]
        for first, sums, _ in batches if links else ():
            link, links = links[0], links[1 + sums :]  # as it was dealt, then once after each sum
            for slot in range(first, first + sums):
                link, given = advance_chains(link)
                for at, other in enumerate(others):
                    found[slot, frozenset({own, other})] = given[GIVEN * at : GIVEN * (at + 1)]
    return found


def opened_pads(world, entries, keys):
    """Totals under pads, as they are logged, for whoever has the clients' key."""
    run, tried = world.coordinator.manifest.digest, [PadKey(key) for _, key in named(keys, "federation")]
    for message in (message for *_, raw in entries for piece in pieces(raw) for message in messages(piece)):
        total = {name[6:]: value for name, value in message.items() if name.startswith("total/")}
        if "padded" not in total:
            continue
        name, clients = f"{message['component']}.{message['contribution']}", total["summands"]
        where = bound(run, name, f"{message['sum']} {total['slot']} {clients}", total["root"], total["call"])
        for key in tried:
            layout = layout_of(
                getattr(world.coordinator.components, message["component"]),
                message["contribution"],
                world.coordinator.schema,
            )
            encoding = world.protection.encoding(layout, clients)
            words = encoding.unpack(total["padded"].data, encoding.code.slots)
            pads = key.combine(where, np.array([clients], np.uint64), len(words), words.dtype)
            yield encoding.read_integers(words - pads, clients)


class PadsKnown:
    """Pads of totals that open at the clients, for whoever has the key that they follow from."""

    def __init__(self, world, entries, keys, batches):
        self.clients, self.run = len(world.clients), world.coordinator.manifest.digest
        self.padded = world.protection.opens == "clients"
        self.keys = [PadKey(key) for _, key in named(keys, "federation")]
        self.on = self.padded and not self.keys
        self.roots = {slot: root for first, sums, root in batches for slot in range(first, first + sums)}
        self.asked = {}
        for _, _, _, raw in entries:
            told = fields_of(raw)
            if "ticket/slot" in told:
                name = f"{told['component']}.{told['contribution']}"
                self.asked[told["ticket/slot"]] = name, told["sum"]

    def off(self, words, slot, call, count, bits):
        """Words without pads, if they have any and the key is known; the last one stays."""
        if not self.padded or self.on:
            return words
        name, number = self.asked[slot]
        where = bound(self.run, name, f"{number} {slot} {self.clients}", self.roots[slot], call)
        values = words[:-1]
        pads = self.keys[0].combine(where, np.array([count], np.uint64), len(values), words.dtype)
        spare, shift = np.uint64(64 - bits), np.int64(self.clients.bit_length() - 1)
        integers = ((values - pads).astype(np.uint64) << spare).view(np.int64) >> np.int64(spare)
        return np.append((integers >> shift).view(np.uint64), words[-1:])


def masked_words(data):
    """Words of an upload, as wide as they are while masks are added."""
    bits, count = struct.unpack_from("<BxxxI", data, 4)
    whole, above = divmod(bits, 8)
    raw = np.frombuffer(data, np.uint8, offset=84)
    words = np.zeros((count, 64), np.uint8)  # bits of each, the lowest first
    low = np.unpackbits(raw[: whole * count], bitorder="little")
    words[:, : 8 * whole] = low.reshape(count, -1)
    high = np.unpackbits(raw[whole * count :], count=above * count).reshape(count, above)
    words[:, 8 * whole : bits] = high[:, ::-1]
    found = np.packbits(words, axis=1, bitorder="little").view("<u8")[:, 0]
    return found.astype(np.uint32 if bits <= 32 else np.uint64)


def signed(words, bits):
    """Values of words without masks; the last word counts contributions."""
    spare = np.uint64(64 - bits)
    return ((words.astype(np.uint64) << spare).view(np.int64) >> np.int64(spare))[:-1]


def encodings(protection, vector, layout, clients):
    """A vector as the numbers that the protection works on, and as they are."""
    forms = [vector]
    if isinstance(protection, Masked):
        forms.append(protection.encoding(layout, clients).code.encode(vector))
    elif isinstance(protection, Paillier | Ring | SecretSharing):
        forms.append(FixedPoint.of(layout, protection.bits, clients).encode(vector))
    elif isinstance(protection, Encrypted):
        slots = protection.slots(layout, clients)
        integers = slots.encode(vector)
        forms.append(np.ldexp(integers, slots.unit_bits) if protection.name == "ckks" else integers)
    return forms


def needles(forms):
    """Three values in a row of any form, as bytes of any usual type, and single values as text."""
    found = set()
    for form in forms:
        types = ("<f8", "<f4", ">f8") if form.dtype.kind == "f" else ("<i8", "<i4", ">i8", "<f8")
        for kind in types:
            with np.errstate(all="ignore"):
                cast = form.astype(kind)
            windows = [cast[at : at + 3] for at in range(max(1, len(cast) - 2))]
            # Zeros and very small numbers are in every message.
            found |= {w.tobytes() for w in windows if np.count_nonzero(w) == len(w)}
        for value in form[np.abs(form) > 1e-3].tolist():
            texts = {repr(value), f"{value:.6g}", f"{value:.9e}"}
            found |= {text.encode() for text in texts if len(text.strip("-0.")) >= 6}
    return found


def shows(vector, forms, raws, numbers):
    """Whether a vector can be seen in some bytes, or in numbers that were opened."""
    wanted = needles(forms)
    if any(needle in raw for raw in raws for needle in wanted):
        return True
    for form, array in itertools.product(forms, numbers):
        if array.size >= form.size:
            windows = np.lib.stride_tricks.sliding_window_view(np.asarray(array, dtype=float), form.size)
            if (np.abs(windows - form) <= 1e-4 * np.abs(form).max()).all(axis=1).any():
                return True
    return False


def receivers(world):
    return [COORDINATOR, *world.clients, *world.protection.services]


def heard_by(world, *who):
    return [raw for *_, raw in entries_of(world, *who)]


def entries_of(world, *who):
    return [entry for entry in world.heard if entry[0] in who]


def read_together(world, *who):
    """What some parties read who pool all that they received and every key that they ever held."""
    return read_by(world, entries_of(world, *who), keys_ever(world, *who))


# -- one run of sums under each protection --------------------------------------------------------------


@pytest.fixture(scope="module")
def world(protection, scene_of, keys_once):
    """Two sums, one kept where it opens and one disclosed; every client adopts the result."""
    scene = scene_of(protection, ROWS, min_clients=3)
    scene.clients = CLIENTS
    with remembering(scene):
        scene.begin()
        scene.round()
        scene.opened = scene.total()
        scene.finish()
    with keys_once():
        scene.read = {who: read_together(scene, who) for who in receivers(scene)}
    return scene


def forms_of(world, client):
    return encodings(world.protection, ROWS[client], LAYOUT, len(CLIENTS))


class TestSums:
    def test_the_total_is_right(self, world):
        allowed = 4 * (world.protection.promises.precision + 1e-15)
        assert np.abs(world.opened["vector"] - TOTAL).max() <= allowed

    def test_no_other_party_can_read_a_clients_vector(self, world):
        """The coordinator of a plain sum can: the search finds what there is."""
        seen = {
            (who, client)
            for who in receivers(world)
            for client in CLIENTS
            if who != client and shows(ROWS[client], forms_of(world, client), *world.read[who])
        }
        clear = world.protection.name == "plain"
        assert seen == ({(COORDINATOR, client) for client in CLIENTS} if clear else set())

    def test_bytes_that_were_received_are_searched_as_they_are(self, world):
        """Not only what decodes: the raw bytes of every message, those of the party itself included."""
        for who in receivers(world):
            raw = b"".join(heard_by(world, who))
            wanted = [needle for client in CLIENTS for needle in needles(forms_of(world, client))]
            assert any(needle in raw for needle in wanted) == (
                world.protection.name == "plain" and who == COORDINATOR
            )

    def test_all_that_any_key_opens_are_totals(self, world):
        total = np.sum([forms_of(world, client)[-1] for client in CLIENTS], axis=0)
        for who in receivers(world):
            for array in world.read[who][1]:
                error = np.abs(np.asarray(array, dtype=float) - total).max()
                assert error <= 4 * world.protection.promises.precision, who

    def test_who_opens_totals_is_who_is_promised_to(self, world):
        opens = {who for who in receivers(world) if world.read[who][1]}
        promised = {
            "plain": set(),
            "bfv": set(CLIENTS),
            "ckks": set(CLIENTS),
            "ring": {COORDINATOR},
            "paillier": set(CLIENTS) if world.protection.opens == "clients" else {KEY_SERVER},
        }
        dealt = set(CLIENTS) if world.protection.opens == "clients" else {COORDINATOR}
        assert opens == promised.get(world.protection.name, dealt)

    def test_who_holds_which_key(self, world):
        coordinator = set(keys_of(world, COORDINATOR))
        channels = {f"channel/{name}" for name in (*CLIENTS, *world.protection.services)}
        if world.protection.name == "plain":
            assert not coordinator
            assert not any(keys_of(world, client) for client in CLIENTS)
            return
        own = {"paillier"} if world.protection.name == "ring" else set()
        assert coordinator == {"exchange", *channels, *own}
        shared = {"content", "federation"} if world.protection.opens == "clients" else set()
        # Numbers for the next draw, of neighbours or of a committee: all other keys of a sum are deleted.
        shared |= {"masked": {"mask/number"}, "committee": {"nonce"}}.get(world.protection.name, set())
        for client in CLIENTS:
            assert set(keys_of(world, client)) == {"exchange", "channel", *shared}
        for service in world.protection.services:
            assert set(keys_of(world, service)) == {"exchange", "channel", "paillier"}

    def test_messages_say_what_they_are(self, world):
        """Whatever a client sends for a sum is a tag, or a blob of a class that its receiver cannot read."""
        sent = [
            message
            for receiver, sender, step, raw in world.heard
            if receiver == COORDINATOR and step == "client.contribute"
            for message in messages(raw)
        ]
        assert sent
        for message in sent:
            values = [value for name, value in message.items() if not name.startswith("$") and name != TAG]
            hidden = all(isinstance(value, Blob) and value.kind != "public" for value in values)
            assert hidden == (world.protection.name != "plain")


class TestCollusion:
    """What ``promises.collusion`` says is true: those parties together do open a contribution."""

    def test_together_they_read_a_vector(self, world, keys_once):
        """Coordinator and any one client where clients share a key; coordinator and key server."""
        said = world.protection.promises.collusion
        if "open every contribution" not in said or isinstance(world.protection, SecretSharing | Masked):
            assert "coordinator" in said or "clients" in said
            return
        helper = KEY_SERVER if world.protection.services else "client-3"
        assert helper.replace("-", " ").split(" 3")[0].replace("client", "one client") in said
        with keys_once():
            read = read_together(world, COORDINATOR, helper)
        for client in CLIENTS:
            assert shows(ROWS[client], forms_of(world, client), *read)

    def test_enough_holders_read_a_vector_and_one_fewer_do_not(self, world):
        """Masks and Shamir's shares: t of the holders, with all that the coordinator has, and not t - 1."""
        if getattr(world.protection, "scheme", "") == "additive" or not isinstance(
            world.protection, SecretSharing | Masked
        ):
            return
        said = world.protection.promises.collusion
        if isinstance(world.protection, Masked):
            threshold, holders = world.protection.sizing(4)[1], CLIENTS
            assert "t of the n clients that hold shares" in said
        else:
            holders = list(holders_of(world))
            threshold = world.protection.min_holders(len(holders))
            assert "(t of n) together open every" in said or f"{threshold} of 3 members together open" in said
        assert len(holders) // 2 < threshold < 4
        victim = [client for client in CLIENTS if client not in holders[:threshold]][-1]
        forms = forms_of(world, victim)
        for friends, seen in ((holders[: threshold - 1], False), (holders[:threshold], True)):
            assert shows(ROWS[victim], forms, *read_together(world, COORDINATOR, *friends)) == seen

    def test_of_additive_shares_all_but_one_have_the_last_by_subtraction_only(self, world):
        if getattr(world.protection, "scheme", "") != "additive":
            return
        assert "all asked clients but one together learn" in world.protection.promises.collusion
        others = np.sum([ROWS[client] for client in CLIENTS[:-1]], axis=0)
        assert np.abs(world.opened["vector"] - others - ROWS["client-4"]).max() < 1e-6
        two = read_together(world, COORDINATOR, *CLIENTS[:2])
        assert not any(shows(ROWS[client], forms_of(world, client), *two) for client in CLIENTS[2:])

    def test_of_masked_sums_that_clients_open_one_client_gives_the_coordinator_totals_only(self, world):
        """Both are right: the two of them read the total, and of no other client more than it says."""
        if not isinstance(world.protection, Masked) or world.protection.opens == "coordinator":
            return
        assert (
            "with any one client learns the total, and no contribution" in world.protection.promises.collusion
        )
        raws, numbers = read_together(world, COORDINATOR, "client-3")
        total = np.sum([forms_of(world, client)[-1] for client in CLIENTS], axis=0)
        assert any(np.array_equal(found, total) for found in numbers)
        assert not world.read[COORDINATOR][1]
        for client in ("client-1", "client-2", "client-4"):
            assert not shows(ROWS[client], forms_of(world, client), raws, numbers)

    @pytest.mark.parametrize("inner", ["plain", "masked"])
    def test_noise_hides_as_much_as_what_it_is_around(self, scene_of, inner):
        """Around a plain sum the search still finds each vector, which is not even long enough to clip."""
        scene = scene_of(Noised(inner=inner, epsilon=3.0, clip=4.0), ROWS, min_clients=3)
        with remembering(scene):
            scene.begin().total()
        scene.clients, scene.protection = CLIENTS, scene.protection.inner_protection
        entries = entries_of(scene, COORDINATOR)
        raws, numbers = read_by(scene, entries, keys_ever(scene, COORDINATOR))
        numbers += [np.frombuffer(raw, "<f8") for raw in raws if len(raw) == TOTAL.nbytes]
        for row in ROWS.values():
            assert shows(row, [row], [], numbers) == (inner == "plain")

    def test_in_a_ring_two_neighbours_and_the_coordinator_isolate_a_client(self, scene_of):
        scene = scene_of(Ring(key_bits=2048), ROWS, min_clients=3)
        scene.clients = CLIENTS
        with remembering(scene):
            scene.begin().total()
        assert "before and after one in the ring isolate" in scene.protection.promises.collusion
        private, hops = PrivateKey.from_secret(scene.coordinator.link.vault["paillier"]), {}
        for helper in ("client-2", "client-4"):
            raws, _ = read_by(scene, entries_of(scene, COORDINATOR), keys_ever(scene, helper))
            found = [raw for raw in raws if raw[:3] == b"TPV"]
            hops[helper] = [blob for blob in found if read_header(private.public, blob).summands < 4]
        wanted = encodings(scene.protection, ROWS["client-3"], LAYOUT, 4)[1]

        def isolated(*helpers):
            known = [blob for helper in helpers for blob in hops[helper]]
            known += [quotient(private.public, *pair) for pair in itertools.permutations(known, 2)]
            opened = []
            for blob in known:
                with suppress(TacitError):
                    opened.append(private.decrypt(blob))
            return any((found == wanted).all() for found in opened)

        assert isolated("client-2", "client-4")
        assert not isolated("client-2")
        assert not isolated("client-4")


def quotient(key, one, other):
    """What one ciphertext holds more than another, whatever both are blinded with."""
    pairs = zip(read_ciphertexts(key, one), read_ciphertexts(key, other), strict=True)
    numbers = [a * invert(b, key.modulus_squared) % key.modulus_squared for a, b in pairs]
    return write_blob(key, replace(read_header(key, one), summands=1), numbers)


# -- FedHEONN, from enrolment to the adopted model --------------------------------------------------------


@pytest.fixture(scope="module")
def trained(protection, table_of, keys_once):
    """A whole training on a federation; vectors are taken down as clients hand them to the protection."""
    world = SimpleNamespace(protection=protection, heard=[], told=[], vectors=[], clients=[])

    def noting(party, components):
        half = protection_half(party, components)
        protect = half.protect

        def noted(ticket, vector, layout):
            world.vectors.append((party.id, vector.copy(), layout))
            return protect(ticket, vector, layout)

        half.protect = noted
        return half

    class Kept(Coordinator):
        def __init__(self, *args, **settings):
            super().__init__(*args, **settings)
            world.coordinator = self
            self.events.subscribe(lambda number, event: world.told.append(event))

    federation = Federation.embedded(table_of(rows=60), clients=4, test=None, seed=3)
    with remembering(world), keys_once(), mock.patch("tacit.core.client.protection_half", noting):
        with mock.patch("tacit.federation.Coordinator", Kept):
            world.training = federation.train(
                FedHEONN(), protect=protection, transcript=lambda *received: world.heard.append(received)
            )
        world.site = world.coordinator.link.transport.engine._sites.party
        world.clients = list(world.coordinator.parties)
        world.read = {who: read_together(world, who) for who in receivers(world)}
    return world


class TestTraining:
    def test_no_other_party_can_read_what_a_client_contributed(self, trained):
        assert {party for party, _, _ in trained.vectors} == set(trained.clients)
        clear = trained.protection.name == "plain"
        for party, vector, layout in trained.vectors:
            forms = encodings(trained.protection, vector, layout, len(trained.clients))
            for who in receivers(trained):
                if who != party:
                    seen = shows(vector, forms, *trained.read[who])
                    assert seen == (clear and who == COORDINATOR), (who, party)

    def test_the_coordinator_never_receives_the_model(self, trained, keys_once):
        """It makes the model itself where it opens totals; elsewhere only the experimenter reads it."""
        weights = np.asarray(trained.training.model.weights).reshape(-1)
        steps = {step for receiver, _, step, _ in trained.heard if receiver == COORDINATOR}
        assert ("client.show_model" in steps) == (trained.protection.opens == "clients")
        own = [entry for entry in entries_of(trained, COORDINATOR) if entry[2] != "client.show_model"]
        with keys_once():
            read = read_by(trained, own, keys_ever(trained, COORDINATOR))
        assert not shows(weights, [weights], *read)
        assert shows(weights, [weights], heard_by(trained, COORDINATOR, trained.clients[0]), [])

    def test_it_is_the_model_of_the_plain_sum(self, trained, table_of):
        plain = Federation.embedded(table_of(rows=60), clients=4, test=None, seed=3).train(
            "fedheonn", protect="plain"
        )
        one, other = (np.asarray(run.model.weights) for run in (trained.training, plain))
        assert np.abs(one - other).max() <= 1e-6 * np.abs(other).max()


# -- secrets -------------------------------------------------------------------------------------------


def secrets_of(world):
    """Bytes that must be nowhere: every key of every vault, and the factors of Paillier's modulus."""
    found = {}
    for who in receivers(world):
        for name, secret in keys_of(world, who).items():
            raw = secret.reveal()
            if raw[:3] == b"TPS":  # the public half of the key is in it, and is no secret
                private = PrivateKey.from_secret(secret)
                for which, prime in zip("pq", private._primes, strict=True):
                    for order in ("big", "little"):
                        found[who, name, which, order] = prime.to_bytes(prime.bit_length() // 8, order)
                    found[who, name, which, "text"] = str(prime).encode()
            else:
                found[who, name] = raw
    for who in (COORDINATOR, *world.clients):
        site = world.site(who)
        found[who, "site"], found[who, "identity"] = site.secret.reveal(), site.identity.reveal()
    found |= {(*label, "hex"): raw.hex().encode() for label, raw in found.items()}
    assert all(len(raw) >= 16 for raw in found.values())
    return found


@pytest.mark.parametrize("which", ["world", "trained"])
class TestSecrets:
    @pytest.fixture
    def run(self, which, world, trained):
        return {"world": world, "trained": trained}[which]

    def test_none_is_in_a_message(self, run):
        secrets = secrets_of(run)
        raws = [raw for *_, raw in run.heard]
        if hasattr(run, "tap"):
            raws += [raw for _, raw in run.tap.calls] + [raw for *_, raw in run.tap.jobs]
            raws += [reply.message.encode() for _, reply in run.tap.replies]
        raws += [piece for raw in list(raws) for piece in pieces(raw)]
        everything = b"|".join(dict.fromkeys(raws))
        assert [label for label, raw in secrets.items() if raw in everything] == []

    def test_none_is_in_an_event_or_in_what_is_printed(self, run):
        sites = [run.site(name) for name in (*run.clients, *run.protection.services)]
        shown = [
            *run.told,
            run.coordinator,
            run.protection,
            run.coordinator.link.vault,
            run.coordinator.protection,
            remembered(run),
        ]
        shown += [*sites, *(site.vault for site in sites), *(site.state for site in sites)]
        shown += [dict(site.vault) for site in sites] + [site.cache for site in sites]
        shown += [getattr(run, "training", None)]
        text = "|".join(f"{thing!r}|{thing}" for thing in shown).encode("latin-1", "replace")
        text += b"|".join(msgspec.json.encode(event) for event in run.told)
        for label, raw in secrets_of(run).items():
            assert raw not in text, label
            assert repr(raw)[2:-1].encode() not in text, label

    def test_none_is_in_the_state_of_a_party(self, run):
        """State is what a site writes to disk in the clear; its vault is encrypted there."""
        secrets = secrets_of(run)
        for name in (*run.clients, *run.protection.services):
            raw = run.site(name).state.to_bytes()
            everything = b"|".join(pieces(raw))
            assert [label for label, secret in secrets.items() if secret in everything] == []

    def test_none_is_in_what_the_coordinator_remembers(self, run):
        secrets = secrets_of(run)
        found = [value for value in _leaves(remembered(run)) if not (isinstance(value, str) and not value)]
        assert bool(found) == bool(directory_of(run))
        everything = b"|".join(value for value in found if isinstance(value, bytes))
        assert [label for label, secret in secrets.items() if secret in everything] == []


def remembered(run):
    """All that the protection's half at the coordinator has by itself."""
    return {name: value for name, value in vars(run.coordinator.protection).items() if name != "link"}


def _leaves(value):
    """Everything in nested mappings, sequences and objects of the protections' own."""
    if type(value).__module__.startswith("tacit.protections"):
        value = {name: own for name, own in vars(value).items() if not isinstance(own, Link)}
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from _leaves(item)
    else:
        yield value.data if isinstance(value, Blob) else value


def test_the_search_itself_finds_what_there_is():
    """Each form of a vector, hidden in the middle of other bytes."""
    vector = ROWS["client-1"]
    forms = encodings(Paillier(), vector, LAYOUT, 4)
    dust = np.random.default_rng(0).bytes(999)
    planted = [
        vector.tobytes(),
        vector[3:6].tobytes(),
        vector.astype(np.float32).tobytes(),
        forms[1].tobytes(),
        forms[1].astype(np.int32).tobytes(),
        str(vector.tolist()).encode(),
        ", ".join(f"{value:.6g}" for value in vector).encode(),
    ]
    for raw in planted:
        assert shows(vector, forms, [dust + raw + dust], [])
    assert shows(vector, forms, [], [np.concatenate([TOTAL, vector, TOTAL])])
    assert shows(vector, forms, [], [forms[1]])
    assert not shows(vector, forms, [dust, TOTAL.tobytes()], [TOTAL, forms[1] + 10**6])


def test_a_message_within_a_message_is_read():
    inner = Message(cipher=Blob("cipher", b"the inner one"))
    outer = Message(entry=inner.encode()).encode() + Message(own=b"job").encode()
    assert {b"the inner one", b"job"} <= set(pieces(outer))


def test_a_secret_in_a_state_would_be_found():
    party = Party("client-1", lambda: None, Secret(b"s" * 32))
    party.state["oops"] = b"k" * 32
    assert b"k" * 32 in party.state.to_bytes()
    assert Plain().promises.single
