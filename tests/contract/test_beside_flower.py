"""Where Flower's SecAgg+ (1.41) falls, ours stands: each point on ours, and where it is quick on Flower's.

Flower's workflow and client mod are driven as in the bench. If Flower is not installed, or a later one has
mended a point, ours must stand all the same: the two are separate tests.
"""

import importlib.util
import logging
import os
import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tacit.core.errors import ConfigError, OpeningError, QuorumError
from tacit.core.secret import Secret
from tacit.crypto.channel import NONCE
from tacit.crypto.fixedpoint import FixedPoint
from tacit.crypto.masking import add_masks, advance_chains, bind_seeds, expand, sign_for
from tacit.protections.masked import Masked
from tacit.protections.masked import client as masked_client
from tacit.protections.masked.client import MaskedClient
from tacit.protections.masked.wire import SHARE, TAG, Encoding, digest_names, pack_flags

STEPS = OFFER, DEAL, CONTRIBUTE, UNMASK = (
    "protection.offer",
    "protection.deal",
    "client.contribute",
    "protection.unmask",
)


@pytest.fixture(scope="module")
def flower():
    pytest.importorskip("flwr")
    path = Path(__file__).parents[2] / "benchmarks" / "_secaggplus.py"
    spec = importlib.util.spec_from_file_location("secaggplus", path)
    module = importlib.util.module_from_spec(spec)
    before = dict(os.environ)
    spec.loader.exec_module(module)
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    yield module
    os.environ.clear()
    os.environ.update(before)


def rows_of(clients, size=3):
    rows = np.random.default_rng(clients).uniform(-1, 1, size=(clients, size))
    return {f"client-{index + 1}": row for index, row in enumerate(rows)}


def assert_exact(scene, total, without=()):
    rows = [row for name, row in scene.rows.items() if name not in without]
    code = FixedPoint(np.ones(len(rows[0])), scene.protection.bits, len(scene.rows))
    assert total.contributors == len(rows)
    assert total["vector"].tobytes() == code.decode(sum(map(code.encode, rows))).tobytes()


# -- seeds -----------------------------------------------------------------------------------------------


def same_by_xor(seed):
    """Another seed whose words of 32 bits have the same exclusive or."""
    words = np.frombuffer(seed, "<u4").copy()
    words[:2] ^= np.uint32(0x5EED)
    return words.tobytes()


def test_seeds_have_256_bits_and_masks_are_a_cryptographic_key_stream(scene_of, monkeypatch):
    used = []

    def noted(vector, masks):
        masks = list(masks)
        used.extend(seed.reveal() for seed, _ in masks)
        add_masks(vector, masks)

    monkeypatch.setattr(masked_client, "add_masks", noted)
    scene = scene_of(Masked(neighbours=4), rows_of(40)).begin()
    assert_exact(scene, scene.total())
    assert {len(seed) for seed in used} == {32}
    assert len({*used}) == 40 + 40 * 4 // 2  # one of each client, and one of each pair at both its ends
    bits = np.unpackbits(np.frombuffer(b"".join({*used}), np.uint8).reshape(-1, 32), axis=1)
    assert (np.abs(bits.mean(axis=0) - 0.5) < 6 * 0.5 / np.sqrt(len(bits))).all()  # no bit is fixed
    start = modes.CTR(bytes(15) + b"\x02")  # GCM counts from 2 on
    stream = Cipher(algorithms.AES(used[0]), start).encryptor().update(bytes(64))
    assert expand(Secret(used[0]), 8).tobytes() == stream


def test_every_bit_of_a_seed_counts():
    seed = bytes(range(32))
    flipped = [
        bytes(np.frombuffer(seed, np.uint8) ^ row) for row in np.packbits(np.eye(256, dtype=bool), axis=1)
    ]
    masks = {expand(Secret(raw), 4).tobytes() for raw in (seed, same_by_xor(seed), *flipped)}
    assert len(masks) == 258


def test_flower_folds_its_seeds_to_32_bits(flower):
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

    seed = bytes(range(32))
    one, other = (pseudo_rand_gen(raw, 1 << 32, [(1000,)])[0] for raw in (seed, same_by_xor(seed)))
    assert np.array_equal(one, other)


# -- late uploads, and both kinds of shares ----------------------------------------------------------------


def unmask(scene, party, vanished=()):
    """Ask one client to unmask, as a coordinator would that says who vanished."""
    order = scene.coordinator.protection.batch.holders[party]
    arrived = sorted(set(order) - set(vanished))
    common = {"slot": 1, "survivors": len(arrived), "list": digest_names(arrived)}
    jobs = {party: {"alive": pack_flags([name not in vanished for name in order])}}
    return dict(scene.coordinator.ask(MaskedClient.unmask, common, jobs))


def signed(words):
    """Values of words of 5 bytes, without the last, which counts contributions."""
    return (words[:-1] << np.uint64(24)).view(np.int64) >> np.int64(24)


def test_a_late_upload_after_its_pairwise_masks_were_removed_stays_closed(scene_of):
    scene, late = scene_of(Masked(), rows_of(5), quorum=0.5).begin(), {}

    def too_late(name, party, message):
        if (name, party) != (CONTRIBUTE, "client-1"):
            return None
        late["upload"] = message["masked"]
        return "StepTimeoutError: too late"

    scene.tap.rewrite = too_late
    own = scene.site("client-1").vault
    given, seed = advance_chains(own["mask/links"].reveal())[1], own["mask/own/1"]  # the first is given away
    assert_exact(scene, scene.coordinator.reveal(scene.components.method.vector), {"client-1"})
    batch, code = scene.coordinator.protection.batch, FixedPoint(np.ones(3), 32, 5)
    words, call = Encoding(code).read(late["upload"], batch.run, 1)
    seeds = dict(zip(batch.neighbours("client-1"), bind_seeds(given, call), strict=True))
    add_masks(words, [(found, -sign_for("client-1", name)) for name, found in seeds.items()])
    truth = code.encode(scene.rows["client-1"])
    assert not (signed(words) == truth).any()  # its own mask is still on
    add_masks(words, [(seed, -1)])
    assert (signed(words) == truth).all()  # and that was all that kept it closed
    for party in sorted({*scene.rows} - {"client-1"}):
        with pytest.raises(QuorumError, match="gave its shares of it already"):
            unmask(scene, party)


def test_both_kinds_of_shares_for_one_client_are_never_released(scene_of):
    scene = scene_of(Masked(), rows_of(5), quorum=0.5).begin()
    scene.tap.lose = lambda name, party: name == UNMASK
    with pytest.raises(OpeningError):
        scene.coordinator.reveal(scene.components.method.vector)
    scene.tap.lose = lambda name, party: False
    for party, first, then in (("client-1", (), {"client-2"}), ("client-3", {"client-2"}, ())):
        (reply,) = unmask(scene, party, first).values()
        # One share for each of five clients, sealed, after a part of the lock for one holder beyond four.
        assert len(reply["shares"].data) == (5 - 4) * SHARE + NONCE + 5 * SHARE + TAG
        with pytest.raises(QuorumError, match="gave its shares of it already"):
            unmask(scene, party, then)


def test_flower_releases_both_kinds_of_shares(flower):
    released = []

    class Greedy(flower.Grid):
        def _asked(self, message):
            config = next(iter(message.content.config_records.values()))
            if self.stage == 3:
                lists = {key: value for key, value in config.items() if isinstance(value, list)}
                active = max(lists.values(), key=len)
                for key in lists:
                    config[key] = list(active)  # everybody arrived, and everybody vanished
                reply = flower.secaggplus_mod(message, self.contexts[message.metadata.dst_node_id], self._fit)
                released.append(next(iter(reply.content.config_records.values())))
                return reply
            return super()._asked(message)

    with suppress(Exception):  # what it makes of them is no matter
        flower.run(5, 0, 3, 5, 3, grid=Greedy)
    shares = [value for record in released for value in record.values() if isinstance(value[0], bytes)]
    assert shares
    assert all(len(found) == len({*found}) == 10 for found in shares)  # two for each of five clients


# -- dropouts, neighbours, and many clients ----------------------------------------------------------------


@pytest.mark.parametrize("where", STEPS)
@pytest.mark.parametrize("neighbours", [None, 4])
def test_a_dropout_at_any_step(scene_of, where, neighbours):
    scene = scene_of(Masked(neighbours=neighbours), rows_of(9), quorum=0.5)
    scene.tap.lose = lambda name, party: (name, party) == (where, "client-4")
    scene.begin()
    total = scene.coordinator.reveal(scene.components.method.vector)
    assert_exact(scene, total, () if where == UNMASK else {"client-4"})


@pytest.mark.parametrize("stage", [0, 1])
def test_flower_fails_when_a_client_drops_in_its_first_two_stages(flower, stage):
    with pytest.raises(KeyError):
        flower.run(9, 1, 3, 5, 3, when=stage)


@pytest.mark.parametrize("neighbours", [2, 4, 6, 20, 5])
def test_an_even_number_of_neighbours_and_an_odd_one(scene_of, neighbours):
    scene = scene_of(Masked(neighbours=neighbours), rows_of(30), quorum=0.5).begin()
    assert_exact(scene, scene.total({"client-7"}), {"client-7"})
    assert len(scene.coordinator.protection.batch.neighbours("client-1")) == neighbours + neighbours % 2


def test_flower_crashes_for_an_even_number_of_shares(flower):
    with pytest.raises(IndexError):
        flower.run(9, 0, 3, 4, 2)


@pytest.mark.slow
def test_the_sum_of_2200_clients_at_their_bounds_is_exact(scene_of):
    rows = {f"client-{index}": np.array([1.0, -1.0, 0.5]) for index in range(2200)}
    scene = scene_of(Masked(bits=24, neighbours=4), rows).begin()
    assert_exact(scene, scene.total())


def test_more_clients_than_a_sum_has_room_for_are_refused_by_name():
    layout = np.ones(3)
    assert FixedPoint(layout, 50, 2200).guard_bits == 12
    with pytest.raises(ConfigError, match=re.escape("50 bits a value and 15 guard bits for 20,000 summands")):
        FixedPoint(layout, 50, 20_000)


@pytest.mark.slow
def test_flower_overflows_silently_with_2200_clients(flower):
    with pytest.raises(ArithmeticError, match="average is wrong"):
        flower.run(2200, 0, 3, 3, 2)
