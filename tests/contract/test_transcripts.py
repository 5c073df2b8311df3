"""Promises on real transcripts: what each party received, opened with every key that it holds.

A run is written down byte by byte. Then each party's messages are searched for the other clients'
vectors in every form they could have, and everything that the party's own keys open is searched as well.
The plain sum is the control: there the same search finds them.
"""

import itertools
import struct
from contextlib import suppress
from types import SimpleNamespace
from unittest import mock

import msgspec
import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from tacit.core.desk import Desk
from tacit.core.errors import TacitError
from tacit.core.layout import Field, Layout
from tacit.core.message import Blob, Message
from tacit.core.party import Party
from tacit.core.replica import read_log
from tacit.core.secret import Secret
from tacit.crypto.channel import SIGNATURE, pair_key, place
from tacit.crypto.ckks import Cipher, parameter_set
from tacit.crypto.fixedpoint import FixedPoint
from tacit.crypto.paillier import Packing, PrivateKey
from tacit.federation import Federation
from tacit.methods.fedheonn import FedHEONN
from tacit.sums.paillier import Paillier
from tacit.sums.plain import Plain
from tacit.sums.ring import Ring

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
                if len(found) % 60 == 0:  # sealed content keys, one after the other
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


def ckks_blobs(raw):
    yield from (raw[at:] for at in _positions(raw, b"TCK1"))
    yield raw


# -- what a party makes of it --------------------------------------------------------------------------


def keys_of(world, who):
    """Every secret a party holds, by name; the federation's own key among them if it has that."""
    if who == COORDINATOR:
        return dict(world.desk.vault)
    site = world.site(who)
    found = dict(site.vault)
    if "content" in found:
        found["federation"] = world.protection.unlocked(site)
    return found


def unsealed(world, keys, found):
    """What opens with any 32 bytes that these keys give, tried at every place where a seal could be."""
    run = world.desk.manifest.digest
    publics = [signed[SIGNATURE:] for signed in world.desk.directory.values()]
    tried = [key for key in keys.values() if len(key.reveal()) == 32]
    if "exchange" in keys:
        tried += [
            pair_key(keys["exchange"], public, use, run) for public in publics for use in ("seal", "channel")
        ]
    steps = [(0, "key"), *((number, f"hop, lap {lap}") for number in (1, 2, 3) for lap in (1, 2))]
    names = [*world.clients, COORDINATOR]
    places = [b"", run.encode()]
    places += [place(run, *step, *pair) for step in steps for pair in itertools.permutations(names, 2)]
    for piece in found:
        if len(piece) < 28 or piece[:3] in (b"TCT", b"TPV", b"TCK"):
            continue
        for key, where in itertools.product(tried, places):
            with suppress(InvalidTag, ValueError):
                yield ChaCha20Poly1305(key.reveal()).decrypt(piece[:12], piece[12:], where)


def read_by(world, received, keys):
    """Bytes and numbers that somebody with these keys makes of what was received."""
    raws = list(dict.fromkeys(piece for raw in received for piece in pieces(raw)))
    raws += unsealed(world, keys, raws)
    numbers = []
    for name, raw in itertools.product(keys, raws):
        with suppress(TacitError):
            private = PrivateKey.from_secret(keys[name])
            for blob in paillier_blobs(raw, private.public):
                with suppress(TacitError):
                    numbers.append(private.decrypt(blob))
        if world.protection.name == "ckks" and len(keys[name].reveal()) == 32:
            cipher = Cipher(parameter_set(world.protection.parameters), keys[name])
            for blob in ckks_blobs(raw):
                with suppress(TacitError):
                    numbers.append(cipher.decrypt(blob))
    return raws, numbers


def encodings(protection, vector, layout, clients):
    """A vector as the numbers that the protection works on, and as they are."""
    forms = [vector]
    if isinstance(protection, Paillier | Ring):
        forms.append(FixedPoint(layout.bounds, protection.bits, clients).encode(vector))
    elif protection.name == "ckks":
        forms.append(protection._slots(vector, layout))
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
    return [raw for receiver, _, _, raw in world.heard if receiver in who]


# -- one run of sums under each protection --------------------------------------------------------------


@pytest.fixture(scope="module")
def world(protection, scene_of, keys_once):
    """Two sums, one kept where it opens and one disclosed; every client adopts the result."""
    scene = scene_of(protection, ROWS, min_clients=3)
    scene.clients = CLIENTS
    scene.begin()
    scene.round()
    scene.opened = scene.total()
    scene.finish()
    with keys_once():
        scene.read = {
            who: read_by(scene, heard_by(scene, who), keys_of(scene, who)) for who in receivers(scene)
        }
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
            "ckks": set(CLIENTS),
            "ring": {COORDINATOR},
            "paillier": set(CLIENTS) if world.protection.opens == "clients" else {KEY_SERVER},
        }
        assert opens == promised[world.protection.name]

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
        for client in CLIENTS:
            assert set(keys_of(world, client)) == {"exchange", "channel", *shared}
        for service in world.protection.services:
            assert set(keys_of(world, service)) == {"exchange", "channel", "paillier"}

    def test_messages_say_what_they_are(self, world):
        """Whatever a client sends for a sum is a blob of a class that its receiver cannot read."""
        sent = [
            message
            for receiver, sender, step, raw in world.heard
            if receiver == COORDINATOR and step == "desk.contribute"
            for message in messages(raw)
        ]
        assert sent
        for message in sent:
            values = [value for name, value in message.items() if not name.startswith("$")]
            hidden = all(isinstance(value, Blob) and value.kind != "public" for value in values)
            assert hidden == (world.protection.name != "plain")


class TestCollusion:
    """What ``promises.collusion`` says is true: those parties together do open a contribution."""

    def test_together_they_read_a_vector(self, world, keys_once):
        """Coordinator and any one client where clients share a key; coordinator and key server."""
        if world.protection.name in ("plain", "ring"):
            assert "coordinator" in world.protection.promises.collusion
            return
        helper = KEY_SERVER if world.protection.services else "client-3"
        said = world.protection.promises.collusion
        assert "open every contribution" in said
        assert helper.replace("-", " ").split(" 3")[0].replace("client", "one client") in said
        keys = keys_of(world, COORDINATOR) | keys_of(world, helper)
        with keys_once():
            read = read_by(world, heard_by(world, COORDINATOR, helper), keys)
        for client in CLIENTS:
            assert shows(ROWS[client], forms_of(world, client), *read)

    def test_in_a_ring_two_neighbours_and_the_coordinator_isolate_a_client(self, scene_of, keys_once):
        scene = scene_of(Ring(key_bits=2048), ROWS, min_clients=3)
        scene.clients = CLIENTS
        scene.begin().total()
        assert "before and after one in the ring isolate" in scene.protection.promises.collusion
        sums = {}
        with keys_once():
            for helpers in (("client-1",), ("client-3",), ("client-1", "client-3")):
                found = []
                for helper in helpers:
                    keys = keys_of(scene, helper) | {"paillier": scene.desk.vault["paillier"]}
                    found += read_by(scene, heard_by(scene, COORDINATOR), keys)[1]
                sums[helpers] = [np.asarray(array) for array in found]
        wanted = encodings(scene.protection, ROWS["client-2"], LAYOUT, 4)[1]

        def differences(arrays):
            return [one - other for one, other in itertools.permutations(arrays, 2)]

        assert any((found == wanted).all() for found in differences(sums["client-1", "client-3"]))
        for alone in (("client-1",), ("client-3",)):
            assert not any((found == wanted).all() for found in [*differences(sums[alone]), *sums[alone]])


# -- FedHEONN, from enrolment to the adopted model --------------------------------------------------------


@pytest.fixture(scope="module")
def trained(protection, table_of, keys_once):
    """A whole training on a federation; vectors are taken down as clients hand them to the protection."""
    world = SimpleNamespace(protection=protection, heard=[], told=[], vectors=[], clients=[])
    protect = type(protection).protect

    def noting(self, party, ticket, vector, layout):
        world.vectors.append((party.id, vector.copy(), layout))
        return protect(self, party, ticket, vector, layout)

    class Kept(Desk):
        def __init__(self, *args, **settings):
            super().__init__(*args, **settings)
            world.desk = self
            self.events.subscribe(lambda number, event: world.told.append(event))

    federation = Federation.embedded(table_of(rows=60), clients=4, test=None, seed=3)
    with keys_once(), mock.patch.object(type(protection), "protect", noting):
        with mock.patch("tacit.federation.Desk", Kept):
            world.training = federation.train(
                FedHEONN(), protect=protection, transcript=lambda *received: world.heard.append(received)
            )
        world.site = world.desk.engine._sites.party
        world.clients = list(world.desk.parties)
        world.read = {
            who: read_by(world, heard_by(world, who), keys_of(world, who)) for who in receivers(world)
        }
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
        assert ("desk.hand_over" in steps) == (trained.protection.opens == "clients")
        own = [
            raw
            for receiver, _, step, raw in trained.heard
            if receiver == COORDINATOR and step != "desk.hand_over"
        ]
        with keys_once():
            read = read_by(trained, own, keys_of(trained, COORDINATOR))
        assert not shows(weights, [weights], *read)
        assert shows(weights, [weights], heard_by(trained, COORDINATOR, trained.clients[0]), [])

    def test_it_is_the_model_of_the_plain_sum(self, trained, table_of):
        plain = Federation.embedded(table_of(rows=60), clients=4, test=None, seed=3).train("fedheonn")
        one, other = (np.asarray(run.model.weights) for run in (trained.training, plain))
        compact = getattr(trained.protection, "parameters", "") == "sum-compact"
        assert np.abs(one - other).max() <= (1e-4 if compact else 1e-6) * np.abs(other).max()


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
        found[who, "site"], found[who, "identity"] = site._secret.reveal(), site.identity.reveal()
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
        shown = [*run.told, run.desk, run.protection, run.desk.vault, run.desk.memory, run.desk.directory]
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
        values = [value.data if isinstance(value, Blob) else value for value in _leaves(run.desk.memory)]
        everything = b"|".join(value for value in values if isinstance(value, bytes))
        assert [label for label, secret in secrets.items() if secret in everything] == []


def _leaves(value):
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    else:
        yield value


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
