"""Sums under attack: whatever is damaged, foreign, repeated or made up is refused, and the rest goes on."""

import itertools
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.differencing import OpenedTotals
from tacit.core.engine import Reply
from tacit.core.errors import FederationError, ProtectionError, QuorumError
from tacit.core.events import Noted, TotalOpened
from tacit.core.layout import Layout
from tacit.core.message import Message
from tacit.core.pending_sum import PendingSum
from tacit.core.secret import Secret
from tacit.core.tags import reply_context, tagged
from tacit.core.values import Blob
from tacit.crypto import bfv, ckks
from tacit.crypto.bfv import Parameters
from tacit.crypto.channel import new_exchange, pair_key, place, seal, sign_key
from tacit.crypto.fixedpoint import FixedPoint
from tacit.crypto.paillier import Packing, add_blobs
from tacit.crypto.seal.ring import new_secret
from tacit.protections.bfv import BFV
from tacit.protections.ckks import CKKS
from tacit.protections.keys.shared_key import SharedKey
from tacit.protections.paillier import Paillier
from tacit.protections.paillier.halves import KEY_SERVER, KeyServer
from tacit.protections.ring import Ring, RingClient
from tests.quick import examples, representatives

CLIENTS = [f"client-{index + 1}" for index in range(5)]
ROWS = dict(zip(CLIENTS, np.random.default_rng(3).uniform(-1, 1, size=(5, 6)), strict=True))
NOT_AUTHENTIC = "not authentic"
HOP = "hop, lap 1, closed by client-1"
SHARED = [BFV(), CKKS(), Paillier(holder="clients", key_bits=2048)]
SERVED = Paillier(key_bits=2048)

every_shared_key = pytest.mark.parametrize("protection", SHARED, ids=["bfv", "ckks", "paillier"])


@pytest.fixture(scope="module")
def lasting(guarded, scene_of):
    """A federation that is used again and again; every test leaves its wires as they were."""
    return scene_of(guarded, ROWS, quorum=0.5, min_clients=2).begin()


@pytest.fixture
def scene(lasting):
    lasting.coordinator.failures.clear()
    lasting.told.clear()
    yield lasting
    unwired(lasting)


def unwired(scene):
    tap = scene.tap
    tap.rewrite = lambda step, party, message: None
    tap.recall = lambda step, party, call, job: None
    tap.lose = lambda step, party: False
    tap.sort = None


def made(scene_of, protection, **settings):
    return scene_of(protection, ROWS, **{"quorum": 0.5, "min_clients": 2, **settings}).begin()


def assert_without(scene, *refused, reason=""):
    """The sum is that of the others, and who was refused is named with a reason that tells."""
    total = scene.total()
    assert set(scene.coordinator.failures) == set(refused)
    for name in refused:
        assert reason in scene.coordinator.failures[name]
    assert total.contributors == len(CLIENTS) - len(refused)
    allowed = 5 * (scene.protection.promises.precision + 1e-14)
    assert np.abs(total["vector"] - scene.expected(without=refused)).max() <= allowed


def forged(scene, party, fields):
    """A reply by a client that holds its channel key and says what it likes."""
    key = scene.site(party).vault.get("channel")
    message = Message({"$cpu": 0.0, **fields})
    if key is None:
        return message
    return tagged(message, key, *reply_context(scene.coordinator.link.transport.serial, party))


def lying(scene, party, change):
    """Let one client say something else whenever it contributes."""

    def rewrite(step, name, message):
        if step != "client.contribute" or name != party:
            return None
        fields = {key: value for key, value in message.items() if key[0] != "$"}
        return forged(scene, party, change(fields))

    scene.tap.rewrite = rewrite


def asked(scene, party, ticket, common=None, number=None):
    """One crafted ask of a coordinator that does not follow the protocol: the reply, or why not."""
    pending = PendingSum(
        scene.coordinator.link,
        number or scene.coordinator.sums + 1,
        "method",
        "vector",
        layout_of(scene),
        tuple(CLIENTS),
    )
    found = dict(pending.contributions({party: ticket}, common, [party]))
    return found.get(party), pending.failures.get(party, "")


def layout_of(scene):
    return scene.components.method._layout(None)


# -- values ------------------------------------------------------------------------------------------


class TestValues:
    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (lambda row: np.where(np.arange(6) == 2, np.nan, row), "holds NaN or infinite values"),
            (lambda row: np.where(np.arange(6) == 2, -np.inf, row), "holds NaN or infinite values"),
            (lambda row: row + 3.0, "exceeds its bound of 1"),
            (lambda row: row[:5], "has shape (5,), agreed was (6,)"),
            (lambda row: np.append(row, 0.0), "has shape (7,), agreed was (6,)"),
        ],
        ids=["nan", "infinity", "range", "short", "long"],
    )
    @pytest.mark.parametrize("culprit", representatives(["client-1", "client-3", "client-5"], "client-3"))
    def test_a_client_with_bad_values_refuses_itself(self, protection, scene_of, change, reason, culprit):
        scene = made(scene_of, protection)
        good, bad = ROWS[culprit], change(ROWS[culprit])
        with mock.patch.dict(scene.rows, {culprit: bad}), mock.patch.object(scene, "expected") as expected:
            expected.return_value = np.sum([row for name, row in ROWS.items() if name != culprit], axis=0)
            kind = "TooLargeError" if np.isinf(bad).any() else "DataError"
            assert_without(scene, culprit, reason=f"{kind}: 'vector' {reason}")
        assert str(good[2]) not in scene.coordinator.failures[culprit]

    @pytest.mark.parametrize("value", [np.nan, np.inf, 1.5], ids=["nan", "infinity", "range"])
    def test_what_the_layout_lets_through_the_protection_refuses(self, guarded, scene_of, value):
        scene = made(scene_of, guarded)
        pack, culprit = Layout.pack, ROWS["client-2"]

        def careless(self, components):
            vector = pack(self, components)
            return np.full(6, value) if np.array_equal(vector, culprit) else vector

        with mock.patch.object(Layout, "pack", careless):
            assert_without(scene, "client-2", reason="Error: ")
        assert any(word in scene.coordinator.failures["client-2"] for word in ("NaN", "bound"))


# -- what a client with a valid channel may say --------------------------------------------------------


def client_cipher(scene):
    """What a client encrypts with under CKKS."""
    client = scene.protection.at_client(scene.site("client-1"))
    return client.key.cached("cipher", scene.protection.cipher)


def ckks_blob(scene, values, **settings):
    cipher = client_cipher(scene)
    return cipher.encrypt(values, **{"bound": 1.0, "summands": 5, **settings})


def paillier_key(scene):
    from tacit.crypto.paillier import PublicKey

    return PublicKey.from_bytes(scene.coordinator.protection.public)


def paillier_blob(scene, values, bits=32, guard=3, key=None):
    return (key or paillier_key(scene)).encrypt(np.asarray(values, dtype=np.int64), Packing(bits, guard))


def own_cipher(blob):
    return lambda fields: {**fields, "cipher": Blob("cipher", blob)}


@pytest.mark.parametrize("culprit", representatives(["client-1", "client-4"], "client-1"))
class TestCiphertexts:
    """The first client is no exception: it must not set the terms for the others."""

    @pytest.mark.parametrize(
        ("make", "reason"),
        [
            (lambda scene: foreign_ckks(np.zeros(6)), "in use is"),
            (lambda scene: foreign_ckks(np.zeros((6, 1))), "in use"),
            (lambda scene: ckks_blob(scene, np.zeros(5)), "5 values as 1 of 5 contributions"),
            (lambda scene: ckks_blob(scene, np.zeros(4000)), "4000 values"),
            (lambda scene: ckks_blob(scene, np.zeros(6), summands=50), "1 of 50 contributions"),
            (lambda scene: ckks_blob(scene, np.zeros(6), bound=64.0), "of up to 64"),
            (lambda scene: several_ckks(scene), "2 of 5 contributions"),
            (lambda scene: ckks_blob(scene, np.zeros(6))[:-1], "bytes"),
            (lambda scene: b"", "shorter than its header"),
        ],
        ids=["key", "parameters", "short", "long", "summands", "bound", "several", "cut", "empty"],
    )
    def test_ckks(self, scene_of, make, reason, culprit):
        scene = made(scene_of, CKKS())
        scene.total()
        lying(scene, culprit, own_cipher(make(scene)))
        assert_without(scene, culprit, reason=reason)

    @pytest.mark.parametrize(
        ("make", "reason"),
        [
            (lambda scene: foreign_bfv(), "in use is"),
            (lambda scene: bfv_blob(scene, bits=33), "parameters '2048-44-36' where '2048-44-35' is in use"),
            (lambda scene: bfv_blob(scene, 5), "5 values as 1 of 5 contributions"),
            (lambda scene: bfv_blob(scene, 2000), "2000 values"),
            (lambda scene: bfv_blob(scene, bits=28, summands=50), "parameters"),
            (lambda scene: added_twice(scene, bfv_blob(scene)), "2 of 5 contributions"),
            (lambda scene: bfv_blob(scene)[:-1], "its header asks for"),
            (lambda scene: bfv_blob(scene) + b"0", "its header asks for"),
            (lambda scene: bfv_blob(scene)[:-1] + b"0", "its checksum does not match"),
            (lambda scene: foreign_ckks(np.zeros(6)), "parameters 'sum-57' where"),
            (lambda scene: b"", "shorter than its header"),
        ],
        ids=[
            "key",
            "parameters",
            "short",
            "long",
            "summands",
            "several",
            "cut",
            "longer",
            "changed",
            "ckks",
            "empty",
        ],
    )
    def test_bfv(self, scene_of, make, reason, culprit):
        scene = made(scene_of, BFV())
        scene.total()
        lying(scene, culprit, own_cipher(make(scene)))
        assert_without(scene, culprit, reason=reason)

    @pytest.mark.parametrize("holder", ["clients", "key-server"])
    @pytest.mark.parametrize(
        ("make", "reason"),
        [
            (lambda scene: paillier_blob(scene, np.zeros(6), key=foreign_paillier()), "encrypted under key"),
            (lambda scene: paillier_blob(scene, np.zeros(5)), "5 values as 1 contributions"),
            (lambda scene: paillier_blob(scene, np.zeros(600)), "600 values as 1 contributions"),
            (lambda scene: paillier_blob(scene, np.zeros(6), guard=8), "packed as 32+8 bits, expected 32+3"),
            (lambda scene: several_paillier(scene), "6 values as 2 contributions"),
            (lambda scene: paillier_blob(scene, np.zeros(6))[:-1], "truncated"),
            (lambda scene: b"", "truncated"),
        ],
        ids=["key", "short", "long", "packing", "several", "cut", "empty"],
    )
    def test_paillier(self, scene_of, holder, make, reason, culprit):
        scene = made(scene_of, Paillier(holder=holder, key_bits=2048))
        lying(scene, culprit, own_cipher(make(scene)))
        assert_without(scene, culprit, reason=reason)

    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"cipher": np.zeros(6)},
            {"cipher": b"bytes"},
            {"cipher": Blob("public", b"x"), "hop": Blob("public", b"x")},
            {"hop": b"bytes"},
            {"vector": np.zeros(6)},
        ],
        ids=["nothing", "array", "bytes", "public", "hop", "plaintext"],
    )
    def test_something_else_where_a_ciphertext_was_agreed(self, guarded, scene_of, fields, culprit):
        scene = made(scene_of, guarded)
        lying(scene, culprit, lambda own: fields)
        assert_without(scene, culprit, reason="where one was agreed")


def foreign_ckks(values):
    return ckks.Cipher(new_secret()).encrypt(values, bound=1.0, summands=5)


def several_ckks(scene):
    return added_twice(scene, ckks_blob(scene, np.zeros(6)))


def added_twice(scene, blob):
    adder = scene.protection.adder(scene.coordinator.protection.key_id, blob)
    adder.add(blob)
    adder.add(blob)
    return adder.total()


def bfv_blob(scene, count=6, bits=32, summands=5, cipher=None):
    """Zeros as a client encrypts them under BFV, of that many bits for that many clients."""
    plain_bits = 1 + (summands << (bits - 1)).bit_length()
    values, chosen = np.zeros(count, np.int64), Parameters.holding(count, plain_bits, summands)
    return (cipher or client_cipher(scene)).encrypt(values, chosen, summands)


def foreign_bfv():
    return bfv_blob(None, cipher=bfv.Cipher(new_secret()))


def several_paillier(scene):
    blob = paillier_blob(scene, np.zeros(6))
    return add_blobs(paillier_key(scene), blob, blob)


_FOREIGN = []


def foreign_paillier():
    from tacit.crypto.paillier.private import make_keys as make

    if not _FOREIGN:
        _FOREIGN.append(make(2048).public)
    return _FOREIGN[0]


class TestRing:
    def test_a_total_of_too_few_or_many_is_refused(self, scene_of):
        scene = made(scene_of, Ring(key_bits=2048))
        one = Message(cipher=Blob("cipher", paillier_blob(scene, np.zeros(6))))
        scene.tap.rewrite = lambda step, party, message: (
            forged(scene, party, one) if step == "protection.hand_over" else None
        )
        with pytest.raises(QuorumError, match="a total of 1 contributions after 5 hops"):
            scene.total()

    def test_the_ring_goes_on_without_a_closer_that_never_began(self, scene_of):
        scene = made(scene_of, Ring(key_bits=2048))
        lying(scene, "client-1", lambda own: {"hop": b"bytes"})
        assert_without(scene, "client-1", reason="no sealed hop")

    @pytest.mark.parametrize("step", ["client.contribute", "protection.hand_over"])
    def test_a_closer_that_vanishes_stops_the_sum(self, scene_of, step):
        """Nobody else hands over a total: there could be two of them."""
        scene = made(scene_of, Ring(key_bits=2048))
        seen = []

        def lose(asked, party):
            seen.append((asked, party))
            again = seen.count((asked, party)) > 1
            return ((again or asked != "client.contribute") and party == "client-1" and asked == step) or (
                party == "client-4" and step == "client.contribute"
            )

        scene.tap.lose = lose
        scene.coordinator.link.opened_totals = OpenedTotals()
        with pytest.raises(QuorumError, match="client-1 began the ring and did not hand over its total"):
            scene.coordinator.reveal(scene.components.method.vector)

    def test_a_hop_that_does_not_open_ends_at_the_next_client(self, scene_of):
        """Which of two neighbours lied cannot be told: the ring goes on without the one that complains."""
        scene = made(scene_of, Ring(key_bits=2048))
        calls = itertools.count()

        def once(own):
            return own if next(calls) else {"hop": Blob("sealed", bytes(1000))}

        lying(scene, "client-2", once)
        assert_without(scene, "client-3", reason="does not open")

    def test_a_foreign_key_in_the_running_sum_is_noticed(self, scene_of):
        scene = made(scene_of, Ring(key_bits=2048))
        coordinator, site = scene.coordinator, scene.site("client-2")

        def foreign(own):
            key = pair_key(
                site.vault["exchange"],
                coordinator.protection.directory["client-3"][64:],
                "seal",
                coordinator.manifest.digest,
            )
            where = place(coordinator.manifest.digest, coordinator.sums, HOP, "client-2", "client-3")
            blob = paillier_blob(scene, np.zeros(6), key=foreign_paillier())
            return {"hop": Blob("sealed", seal(key, blob, where))} if "hop" in own else own

        lying(scene, "client-2", foreign)
        with pytest.raises(QuorumError):  # in every lap it kills its neighbour
            scene.total()
        assert "encrypted under key" in coordinator.failures["client-3"]


# -- the wire ------------------------------------------------------------------------------------------


def flipped(raw, where, bit):
    """One bit turned over: counted from the start, or as a share of the length."""
    at = where if isinstance(where, int) else int(where * (len(raw) - 1))
    at = min(at, len(raw) - 1)
    return raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :]


positions = st.one_of(st.integers(0, 400), st.floats(0, 1))
bits = st.integers(0, 7)


class TestFlippedBits:
    @given(where=positions, bit=bits, victim=st.sampled_from(CLIENTS))
    @settings(max_examples=examples(25), deadline=None)
    def test_in_a_contribution(self, lasting, where, bit, victim):
        lasting.coordinator.failures.clear()

        def rewrite(step, party, message):
            if step == "client.contribute" and party == victim:
                return flipped(message.encode(), where, bit)
            return None

        lasting.tap.rewrite = rewrite
        assert_without(lasting, victim)
        failure = lasting.coordinator.failures[victim]
        assert NOT_AUTHENTIC in failure or failure.startswith("MessageError")
        unwired(lasting)

    @given(where=positions, bit=bits, victim=st.sampled_from(CLIENTS), job=st.booleans())
    @settings(max_examples=examples(25), deadline=None)
    def test_in_an_ask(self, lasting, where, bit, victim, job):
        lasting.coordinator.failures.clear()

        def recall(step, party, call, own):
            if step == "client.contribute" and party == victim:
                return (call, flipped(own, where, bit)) if job else (flipped(call, where, bit), own)
            return None

        lasting.tap.recall = recall
        assert_without(lasting, victim)
        failure = lasting.coordinator.failures[victim]
        assert NOT_AUTHENTIC in failure or "MessageError" in failure or "in the client's step" in failure
        unwired(lasting)

    @given(where=positions, bit=bits, ask=st.booleans())
    @settings(max_examples=examples(25), deadline=None)
    def test_at_enrolment(self, guarded, scene_of, where, bit, ask):
        """No key is shared yet: the signature under the manifest's digest holds it all together."""
        scene = scene_of(guarded, ROWS, quorum=0.5, min_clients=2)
        if ask:
            scene.tap.recall = lambda step, party, call, job: (
                (flipped(call, where, bit), job) if step == "client.enrol" and party == "client-2" else None
            )
        else:
            scene.tap.rewrite = lambda step, party, message: (
                flipped(message.encode(), where, bit)
                if step == "client.enrol" and party == "client-2"
                else None
            )
        scene.begin()
        unwired(scene)
        if "client-2" in scene.coordinator.parties:  # a bit that an enrolment does not use
            assert ask
            scene.coordinator.failures.clear()
            assert_without(scene)
            return
        assert set(scene.coordinator.parties) == set(CLIENTS) - {"client-2"}
        assert "client-2" in scene.coordinator.failures

    @given(where=positions, bit=bits)
    @settings(max_examples=examples(15), deadline=None)
    def test_in_a_disclosed_total(self, lasting, where, bit):
        """Another client discloses it."""
        if lasting.protection.opens != "clients":
            return
        lasting.coordinator.failures.clear()
        lasting.tap.rewrite = lambda step, party, message: (
            flipped(message.encode(), where, bit)
            if (step, party) == ("client.disclose_total", "client-1")
            else None
        )
        total = lasting.total()
        assert set(lasting.coordinator.failures) == {"client-1"}
        assert np.abs(total["vector"] - lasting.expected()).max() < 1e-4
        unwired(lasting)

    @given(where=positions, bit=bits)
    @settings(max_examples=examples(15), deadline=None)
    def test_in_what_the_key_server_opened(self, scene_of, where, bit):
        scene = made(scene_of, SERVED)
        scene.tap.rewrite = lambda step, party, message: (
            flipped(message.encode(), where, bit) if step == "protection.open_total" else None
        )
        with pytest.raises(QuorumError, match=r"authentic|MessageError"):
            scene.total()
        assert not scene.told_of(TotalOpened)


class TestReplays:
    def test_the_reply_of_another_sum(self, scene):
        kept = {}

        def keep(step, party, message):
            kept.setdefault((step, party), message)

        scene.tap.rewrite = keep
        scene.total()
        scene.tap.rewrite = lambda step, party, message: (
            kept[step, party] if (step, party) == ("client.contribute", "client-2") else None
        )
        assert_without(scene, "client-2", reason=NOT_AUTHENTIC)

    def test_the_ask_of_another_sum(self, scene):
        kept = {}
        scene.tap.recall = lambda step, party, call, job: kept.setdefault((step, party), (call, job))
        scene.total()
        scene.coordinator.failures.clear()
        scene.tap.recall = lambda step, party, call, job: (
            kept[step, party] if (step, party) == ("client.contribute", "client-2") else None
        )
        assert_without(scene, "client-2", reason="replay")

    def test_a_contribution_that_comes_twice_counts_once(self, protection, scene_of):
        scene = made(scene_of, protection)
        scene.tap.sort = lambda step, replies: [*replies, *replies, *replies[:1]]
        assert_without(scene)
        assert any("nobody waits for" in note.text for note in scene.told_of(Noted))

    def test_a_reply_of_somebody_who_was_not_asked_is_ignored(self, protection, scene_of):
        scene = made(scene_of, protection)
        scene.tap.sort = lambda step, replies: [
            *(replace(reply, party="mallory") for reply in replies),
            *replies,
        ]
        assert_without(scene)

    def test_a_reply_that_never_comes_is_a_failure(self, protection, scene_of):
        scene = made(scene_of, protection)
        scene.tap.sort = lambda step, replies: [reply for reply in replies if reply.party != "client-4"]
        assert_without(scene, "client-4", reason="no reply came")

    def test_two_clients_that_take_each_others_name(self, guarded, scene_of):
        scene = made(scene_of, guarded)
        other = {"client-2": "client-3", "client-3": "client-2"}

        def swap(step, replies):
            if step != "client.contribute" or len(replies) < 2:
                return replies
            found = {reply.party: reply for reply in replies}
            return [replace(found[other.get(name, name)], party=name) for name in found]

        scene.tap.sort = swap
        if guarded.name == "ring":  # one is asked at a time: replies of an earlier sum take their place
            kept = {}
            scene.tap.rewrite = lambda step, party, message: kept.__setitem__(party, message)
            scene.total()
            scene.tap.rewrite = lambda step, party, message: kept.get(other.get(party))
        assert_without(scene, "client-2", "client-3", reason=NOT_AUTHENTIC)

    def test_a_failure_that_nobody_signed_is_told_as_such(self, scene):
        scene.tap.sort = lambda step, replies: [
            Reply(reply.party, message, message["$failure"], 1, 1)
            if (message := Message({"$failure": "StepError: I am tired", "$cpu": 0.0}))
            and reply.party == "client-2"
            else reply
            for reply in replies
        ]
        assert_without(scene, "client-2", reason="I am tired (unconfirmed")

    def test_a_failure_of_the_client_itself_is_confirmed(self, scene):
        with mock.patch.dict(scene.rows, {"client-2": np.full(6, np.nan)}):
            scene.total()
        assert "unconfirmed" not in scene.coordinator.failures["client-2"]

    def test_notes_of_a_reply_that_is_not_authentic_are_not_told(self, scene):
        scene.tap.rewrite = lambda step, party, message: (
            Message({**message, "$notes": [("all is well", "info")]})
            if (step, party) == ("client.contribute", "client-2")
            else None
        )
        assert_without(scene, "client-2", reason=NOT_AUTHENTIC)
        assert "all is well" not in [note.text for note in scene.told_of(Noted)]


# -- keys that were swapped ----------------------------------------------------------------------------


def stranger(scene, owner):
    """An exchange key signed by somebody whom nobody has pinned."""
    _, public = new_exchange()
    return sign_key(Secret(b"s" * 32), "exchange", owner, scene.coordinator.manifest.digest, public)


class TestSwappedKeys:
    @pytest.mark.parametrize("how", ["stranger", "another client", "missing", "no bytes"])
    def test_a_clients_exchange_key_at_enrolment(self, guarded, scene_of, how):
        scene = scene_of(guarded, ROWS, quorum=0.5, min_clients=2)
        shown = {}

        def rewrite(step, party, message):
            if step != "client.enrol":
                return None
            shown[party] = message["protection/exchange"]
            if party != "client-2":
                return None
            swapped = {"stranger": stranger(scene, "client-2"), "another client": shown["client-1"]}
            fields = dict(message) | {"protection/exchange": swapped.get(how, 7)}
            if how == "missing":
                del fields["protection/exchange"]
            return Message(fields)

        scene.tap.rewrite = rewrite
        scene.begin()
        unwired(scene)
        telling = (
            "not signed by its pinned identity" if how in ("stranger", "another client") else "showed no"
        )
        assert telling in scene.coordinator.failures["client-2"]
        assert scene.coordinator.parties == tuple(name for name in CLIENTS if name != "client-2")
        assert scene.total().contributors == 4

    def test_the_coordinators_own_at_enrolment(self, guarded, scene_of):
        scene = scene_of(guarded, ROWS, quorum=0.5, min_clients=2)

        def recall(step, party, call, job):
            if step != "client.enrol" or party != "client-2":
                return None
            fields = dict(Message.decode(call)) | {"protection/exchange": stranger(scene, "coordinator")}
            return Message(fields).encode(), job

        scene.tap.recall = recall
        scene.begin()
        assert "not signed by its pinned identity" in scene.coordinator.failures["client-2"]
        assert "channel" not in scene.site("client-2").vault

    def test_another_manifest_under_the_same_signature(self, guarded, scene_of):
        """Nobody can lower what was agreed on the way: the signature is over the manifest's digest."""
        scene = scene_of(guarded, ROWS, quorum=0.5, min_clients=3)
        weaker = replace(scene.coordinator.manifest, min_clients=1).to_message().encode()
        scene.tap.recall = lambda step, party, call, job: (
            (Message(dict(Message.decode(call)) | {"manifest": weaker}).encode(), job)
            if step == "client.enrol" and party == "client-2"
            else None
        )
        scene.begin()
        assert "not signed by its pinned identity" in scene.coordinator.failures["client-2"]

    @every_shared_key
    def test_a_relayed_exchange_key_that_the_maker_of_keys_gets(self, protection, scene_of):
        scene = scene_of(protection, ROWS, quorum=1.0, min_clients=2)
        scene.coordinator.enrol()
        scene.coordinator.protection.directory["client-3"] = stranger(scene, "client-3")
        with pytest.raises(QuorumError, match="exchange key of client-3 is not signed"):
            scene.coordinator.protection.prepare(1)

    def test_a_relayed_exchange_key_in_a_ring(self, scene_of):
        scene = made(scene_of, Ring(key_bits=2048), quorum=0.4)
        scene.coordinator.protection.directory["client-3"] = stranger(scene, "client-3")
        # The one before it refuses; then the one that began the ring does, and nobody may take its place.
        with pytest.raises(QuorumError, match="exchange key of client-3 is not signed"):
            scene.total()
        assert set(scene.coordinator.failures) == {"client-1", "client-2"}

    def test_the_key_servers_public_key_on_its_way_to_the_coordinator(self, scene_of):
        scene = scene_of(SERVED, ROWS, min_clients=2)
        signed = sign_key(Secret(b"s" * 32), "paillier", KEY_SERVER, "run", foreign_paillier().to_bytes())
        scene.tap.rewrite = lambda step, party, message: (
            Message(dict(message) | {"public": Blob("public", signed)})
            if step == "protection.serve_key"
            else None
        )
        with pytest.raises(QuorumError, match=NOT_AUTHENTIC):
            scene.begin()

    def test_the_key_servers_public_key_by_the_coordinator(self, scene_of):
        """It makes a key of its own, with which it could open every contribution."""
        scene = made(scene_of, SERVED, quorum=0.2)
        coordinator = scene.coordinator
        for signer in (coordinator.link.identity, Secret(b"s" * 32)):
            signed = sign_key(
                signer, "paillier", KEY_SERVER, coordinator.manifest.digest, foreign_paillier().to_bytes()
            )
            coordinator.protection.signed = signed
            with pytest.raises(QuorumError, match="paillier key of key-server is not signed"):
                scene.total()
        assert not any(b"TPV" in raw for raw in scene.received("coordinator"))

    @every_shared_key
    @pytest.mark.parametrize("what", ["wrap", "somebody's wrap", "cut wrap", "bundle", "cut bundle"])
    def test_the_federations_key_on_its_way_to_a_client(self, protection, scene_of, what):
        scene = made(scene_of, protection)
        key = scene.coordinator.protection.relay.key
        wraps, bundle = key.wraps, key.bundle.data
        if "wrap" in what:
            changed = {
                "wrap": flipped(wraps["client-2"].data, 30, 3),
                "somebody's wrap": wraps["client-3"].data,
                "cut wrap": wraps["client-2"].data[:20],
            }
            wraps["client-2"] = Blob("sealed", changed[what])
            assert_without(scene, "client-2", reason="does not open")
            return
        raw = flipped(bundle, 0.5, 2) if what == "bundle" else bundle[:5]
        key.bundle = Blob("sealed", raw)
        with pytest.raises(QuorumError, match="key does not open: it was changed"):
            scene.total()
        assert "content" not in scene.site("client-2").vault  # what failed left nothing behind

    @every_shared_key
    @pytest.mark.parametrize("what", ["bundle", "wraps", "public"])
    def test_keys_that_are_not_what_was_agreed(self, protection, scene_of, what):
        """The next client makes the key instead."""
        scene = scene_of(protection, ROWS, quorum=0.5, min_clients=2)

        def rewrite(step, party, message):
            if step != "protection.make_keys" or party != "client-1":
                return None
            fields = {name: value for name, value in message.items() if name[0] != "$"}
            return forged(scene, party, fields | {what: Blob("sealed", b"") if what == "wraps" else 7})

        scene.tap.rewrite = rewrite
        scene.begin()
        assert scene.coordinator.protection.relay.key.maker == "client-2"
        unwired(scene)
        scene.coordinator.failures.clear()
        assert_without(scene)

    @every_shared_key
    def test_a_maker_of_keys_that_vanishes_is_replaced(self, protection, scene_of):
        scene = scene_of(protection, ROWS, quorum=0.5, min_clients=2)
        scene.tap.lose = lambda step, party: step == "protection.make_keys" and party != "client-3"
        scene.begin()
        assert scene.coordinator.protection.relay.key.maker == "client-3"
        scene.coordinator.failures.clear()
        assert_without(scene)

    @every_shared_key
    def test_if_no_client_makes_keys_the_run_ends(self, protection, scene_of):
        scene = scene_of(protection, ROWS, quorum=0.5, min_clients=2)
        scene.tap.lose = lambda step, party: step == "protection.make_keys"
        with pytest.raises(QuorumError, match="make_keys"):
            scene.begin()
        asked_for = [party for step, party, _ in scene.tap.jobs if step == "protection.make_keys"]
        assert asked_for == CLIENTS[:3]  # with four gone the quorum would be, too


# -- a coordinator that does not follow the protocol -----------------------------------------------------


def hop_common(scene, lap=1, closer="client-1"):
    return {"public": scene.coordinator.protection.public, "summands": 5, "lap": lap, "closer": closer}


def handed_over(scene, party, ticket, number=1):
    """Ask a client for the total of a ring that it began: the reply, or why not."""
    failures = {}
    fields = {**hop_common(scene, closer=party), "sum": number, **ticket}
    found = dict(scene.coordinator.link.ask(RingClient.hand_over, fields, {party: {}}, failures=failures))
    return found.get(party), failures.get(party, "")


def sealed_by_coordinator(scene, party, summands=3):
    """A running sum of zeros that the coordinator made up, sealed with its own exchange key."""
    coordinator = scene.coordinator
    run, number = coordinator.manifest.digest, coordinator.sums + 1
    blob = paillier_blob(scene, np.zeros(6))
    for _ in range(summands - 1):
        blob = add_blobs(paillier_key(scene), blob, paillier_blob(scene, np.zeros(6)))
    key = pair_key(
        coordinator.link.vault["exchange"], coordinator.protection.directory[party][64:], "seal", run
    )
    return Blob("sealed", seal(key, blob, place(run, number, HOP, "coordinator", party)))


def own_exchange(scene):
    """The coordinator's signed exchange key, as it showed it at enrolment."""
    return Message.decode(scene.tap.calls[0][1])["protection/exchange"]


class TestDishonestCoordinator:
    def hop(self, scene, before, own, after, running=None):
        """Have a client take its turn between two others."""
        directory = scene.coordinator.protection.directory
        ticket = {"next": after, "next_exchange": directory[after]}
        if running is not None:
            ticket |= {"incoming": running["hop"], **self.came_from(scene, before)}
        return asked(scene, own, ticket, hop_common(scene))

    def came_from(self, scene, before):
        exchange = scene.coordinator.protection.directory[before]
        return {"previous": before, "previous_exchange": exchange}

    def test_the_ring_is_closed_too_early(self, scene_of):
        scene = made(scene_of, Ring(key_bits=2048), min_clients=4)
        first, _ = self.hop(scene, "", "client-1", "client-2")
        second, _ = self.hop(scene, "client-1", "client-2", "client-3", first)
        third, _ = self.hop(scene, "client-2", "client-3", "client-1", second)
        ticket = {"incoming": third["hop"], **self.came_from(scene, "client-3")}
        reply, failure = handed_over(scene, "client-1", ticket)
        assert reply is None
        assert "OpeningError: total over 3 contributions, agreed were at least 4" in failure
        reply, failure = handed_over(scene, "client-2", ticket)
        assert reply is None
        assert "client-2 did not begin lap 1 of sum 1" in failure

    def test_it_names_itself_as_the_next_hop(self, scene_of):
        scene = made(scene_of, Ring(key_bits=2048))
        ticket = {"next": "coordinator", "next_exchange": own_exchange(scene)}
        reply, failure = asked(scene, "client-1", ticket, hop_common(scene))
        assert reply is None
        assert "told to seal for coordinator" in failure

    def test_it_names_itself_as_the_hop_before(self, scene_of):
        """It would know all but one of the contributions in the total."""
        scene = made(scene_of, Ring(key_bits=2048))
        ticket = {
            "incoming": sealed_by_coordinator(scene, "client-2"),
            "previous": "coordinator",
            "previous_exchange": own_exchange(scene),
            "next": "client-3",
            "next_exchange": scene.coordinator.protection.directory["client-3"],
        }
        reply, failure = asked(scene, "client-2", ticket, hop_common(scene))
        assert reply is None
        assert "told to seal for coordinator" in failure

    def test_it_sends_the_ring_through_one_client_again_and_again(self, scene_of):
        scene = made(scene_of, Ring(key_bits=2048))
        mine = scene.coordinator.protection.directory["client-1"]
        reply, failure = asked(
            scene, "client-1", {"next": "client-1", "next_exchange": mine}, hop_common(scene)
        )
        assert reply is None
        assert "told to seal for client-1" in failure

    def test_it_sends_the_ring_back_and_forth(self, scene_of):
        """Two clients that count as four would tell each other's vectors."""
        scene = made(scene_of, Ring(key_bits=2048), min_clients=3)
        first, _ = self.hop(scene, "", "client-1", "client-2")
        reply, failure = self.hop(scene, "client-1", "client-2", "client-1", first)
        assert reply is None
        assert "client-2 was told that client-1 is before and after it" in failure

    def test_it_sends_the_ring_to_a_client_again(self, scene_of):
        scene = made(scene_of, Ring(key_bits=2048), min_clients=3)
        first, _ = self.hop(scene, "", "client-1", "client-2")
        second, _ = self.hop(scene, "client-1", "client-2", "client-3", first)
        third, _ = self.hop(scene, "client-2", "client-3", "client-1", second)
        reply, failure = self.hop(scene, "client-3", "client-1", "client-2", third)
        assert reply is None
        assert "client-1 took its turn in lap 1 of sum 1 already" in failure

    def test_an_old_hop_does_not_open_in_another_lap_or_sum(self, scene_of):
        scene = made(scene_of, Ring(key_bits=2048))
        directory = scene.coordinator.protection.directory
        first, _ = asked(
            scene, "client-1", {"next": "client-2", "next_exchange": directory["client-2"]}, hop_common(scene)
        )
        ticket = {
            "incoming": first["hop"],
            "previous": "client-1",
            "previous_exchange": directory["client-1"],
            "next": "client-3",
            "next_exchange": directory["client-3"],
        }
        for number, lap in ((1, 2), (2, 1)):
            reply, failure = asked(scene, "client-2", ticket, hop_common(scene, lap), number)
            assert reply is None
            assert "does not open" in failure

    def test_the_key_server_is_asked_to_open_one_contribution(self, scene_of):
        scene = made(scene_of, SERVED, min_clients=3)
        scene.total()
        single = next(
            reply.message["cipher"] for step, reply in scene.tap.replies if step == "client.contribute"
        )
        with pytest.raises(FederationError, match="total over 1 contributions, agreed were at least 3"):
            list(scene.coordinator.ask(KeyServer.open_total, {"cipher": single}, parties=[KEY_SERVER]))

    @every_shared_key
    def test_a_client_is_asked_to_disclose_one_contribution(self, protection, scene_of):
        """Whatever the ask says of it: the ciphertext itself is no total."""
        scene = made(scene_of, protection, min_clients=3)
        scene.total()
        entry = next(
            dict(Message.decode(raw)) for step, raw in scene.tap.calls if step == "client.disclose_total"
        )
        fields = {name: value for name, value in entry.items() if name[0] != "$"}
        single = next(
            reply.message["cipher"] for step, reply in scene.tap.replies if step == "client.contribute"
        )
        for contributors, reason in ((1, "agreed were at least 3"), (5, "does not open this total")):
            failures = {}
            asks = {**fields, "total/cipher": single, "contributors": contributors}
            assert not list(
                scene.coordinator.link.wave(
                    "client.disclose_total", ("client-2",), asks, {}, failures=failures
                )
            )
            assert reason in failures["client-2"]

    @every_shared_key
    def test_a_client_is_handed_one_contribution_as_a_total_to_apply(self, protection, scene_of):
        scene = made(scene_of, protection, min_clients=3, quorum=0.2)
        scene.round()
        single = next(
            reply.message["cipher"] for step, reply in scene.tap.replies if step == "client.contribute"
        )
        entry = dict(Message.decode(scene.coordinator.link.briefing.log[0])) | {"total/cipher": single}
        scene.coordinator.link.briefing.log[0] = Message(entry).encode()
        with pytest.raises(QuorumError, match="does not open this total of vector"):
            scene.finish()

    @every_shared_key
    def test_it_wants_the_federations_key_sealed_for_itself(self, protection, scene_of):
        scene = scene_of(protection, ROWS, min_clients=2)
        scene.coordinator.enrol()
        signed = np.frombuffer(own_exchange(scene), dtype=np.uint8)[None]
        with pytest.raises(QuorumError, match="told to seal for coordinator"):
            list(
                scene.coordinator.ask(
                    SharedKey.make_keys,
                    {"names": b"coordinator", "exchanges": signed},
                    parties=["client-1"],
                )
            )

    @every_shared_key
    def test_it_hands_out_a_key_of_its_own(self, protection, scene_of):
        scene = made(scene_of, protection, quorum=0.2)
        coordinator = scene.coordinator
        run = coordinator.manifest.digest
        key = pair_key(
            coordinator.link.vault["exchange"],
            coordinator.protection.directory["client-2"][64:],
            "seal",
            run,
        )
        wrap = seal(key, b"c" * 32, place(run, 0, "key", "coordinator", "client-2"))
        ticket = {
            "wrap": Blob("sealed", wrap),
            "bundle": coordinator.protection.relay.key.bundle,
            "maker": "coordinator",
            "exchange": own_exchange(scene),
        }
        reply, failure = asked(scene, "client-2", ticket, {"summands": 5})
        assert reply is None
        assert "told to seal for coordinator" in failure
        assert "content" not in scene.site("client-2").vault

    @pytest.mark.parametrize("clients", [1, 2])
    def test_an_agreement_on_one_contribution_counts_as_two(self, guarded, scene_of, clients):
        """A manifest may say min_clients = 1; one alone is opened by no protection that hides it."""
        rows = {name: ROWS[name] for name in CLIENTS[:clients]}
        scene = scene_of(guarded, rows, min_clients=1, quorum=0.1)
        with pytest.raises((ProtectionError, QuorumError)):
            scene.begin().total(lost=("client-2",))
        assert not scene.told_of(TotalOpened)

    def test_a_step_without_a_tag_is_not_taken(self, scene):
        """Whoever reaches a site's port without the channel key gets nothing done."""
        scene.tap.recall = lambda step, party, call, job: (
            (call, Message.decode(job).without("$tag").encode()) if party == "client-2" else None
        )
        assert_without(scene, "client-2", reason=NOT_AUTHENTIC)


def test_fixed_point_of_the_tests_is_that_of_the_protection():
    """Packing 32+3 above is what five clients give."""
    assert FixedPoint(np.ones(6), 32, 5).guard_bits == 3
