"""Totals of masked sums that only clients open: what a coordinator makes of pads, and of tags.

It takes the masks off, holds totals under pads, and has no key. With one pad for everybody the low bits of a
total would show, and of two totals of a sum their difference; with the key and a tag in the clear, a client's
value. Each control is that attack where nothing keeps it out.
"""

from __future__ import annotations

import numpy as np
import pytest

from tacit.core.layout import Field, Layout
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.field import PRIME
from tacit.crypto.linear_tag import TagKey, add_pads, label_digests
from tacit.crypto.masking import new_seed
from tacit.crypto.pads import COINS, MOST_TOTALS, PadKey
from tacit.protections.keys.proved_totals import TAG, read_tag
from tacit.protections.masked import Masked
from tacit.protections.masked.coordinator import MaskedSum
from tacit.protections.paillier import Paillier
from tacit.protections.secret_sharing.shares import Shares
from tests.attacks.malicious import REFUSED, unchecked
from tests.conftest import quick_keys

PLACE = b"sum 1"


def total_of(key, vectors, chosen, shift=0):
    """What the coordinator holds of vectors under pads, by the digests of their names, or one pad each."""
    total = np.zeros(len(vectors[0]), np.uint64)
    for vector, name in zip(vectors, chosen, strict=True):
        words = vector.astype(np.uint64) << np.uint64(shift)
        counts = np.ones(1, np.uint64) if name is None else key.choose(PLACE, label_digests([name]))
        key.add(words, PLACE, counts)
        total += words
    return total


class TestLowBits:
    """n times a pad is a multiple of the powers of two in n."""

    @pytest.mark.parametrize("clients", [2, 4, 6, 12, 64])
    def test_control_without_a_shift_they_show(self, clients):
        vectors = np.random.default_rng(clients).integers(-1000, 1000, (clients, 50))
        total = total_of(PadKey(new_seed()), vectors, [None] * clients)
        open_bits = np.uint64((clients & -clients) - 1)
        assert ((total & open_bits) == (vectors.sum(axis=0).astype(np.uint64) & open_bits)).all()

    @pytest.mark.parametrize("clients", [2, 4, 6, 12, 64])
    def test_with_it_they_hold_nothing(self, clients):
        vectors = np.random.default_rng(clients).integers(-1000, 1000, (clients, 50))
        layout = Layout(Field("vector", (50,), 1.0))
        shift = Masked(opens="clients", neighbours=clients).encoding(layout, clients).shift
        total = total_of(PadKey(new_seed()), vectors, [None] * clients, shift)
        open_bits = (clients & -clients) - 1
        assert not (total & np.uint64(open_bits)).any()
        assert shift >= open_bits.bit_length()
        assert not ((total >> np.uint64(shift)) == vectors.sum(axis=0).astype(np.uint64)).any()


class TestTwoTotals:
    """A coordinator that lies on a sparse graph has totals of disjoint sets of clients, of the same sum."""

    def totals(self, key, coins):
        vectors = np.random.default_rng(3).integers(-1000, 1000, (2, 30, 50))
        names = [[f"client-{part}-{i}".encode() if coins else None for i in range(30)] for part in (0, 1)]
        return vectors.sum(axis=1), [total_of(key, *both) for both in zip(vectors, names, strict=True)]

    def test_control_of_one_pad_for_all_their_difference_shows(self):
        truth, (one, other) = self.totals(PadKey(new_seed()), coins=False)
        assert ((one - other).view(np.int64) == truth[0] - truth[1]).all()

    def test_with_coins_no_combination_of_them_shows(self):
        truth, (one, other) = self.totals(PadKey(new_seed()), coins=True)
        for a in range(-40, 41):
            for b in range(-40, 41):
                found = (one * np.int64(a).view(np.uint64) + other * np.int64(b).view(np.uint64)).view(
                    np.int64
                )
                assert (a, b) == (0, 0) or not (found == a * truth[0] + b * truth[1]).any()

    def test_as_many_totals_as_are_said_are_independent(self):
        """Their coins have full rank modulo 2; of more than there are pads a combination shows."""
        rng = np.random.default_rng(5)
        for sets, rank in ((MOST_TOTALS, MOST_TOTALS), (COINS + 6, COINS)):
            key = PadKey(Secret(rng.bytes(32)))
            labels = [label_digests([f"{part} {i}".encode() for i in range(11)]) for part in range(sets)]
            rows = [int("".join(str(int(n) % 2) for n in key.choose(PLACE, names)), 2) for names in labels]
            assert rank_of(rows) <= rank
            assert rank_of(rows[:MOST_TOTALS]) == MOST_TOTALS

    @pytest.mark.parametrize("clients", [64, 70, 100, 300, 1_000, 3_000, 20_000, 100_000])
    def test_no_more_of_them_can_be_had_than_pads_hide(self, clients):
        Masked(opens="clients").check_totals(clients)


def rank_of(rows):
    """Rank modulo 2 of rows that are given as numbers."""
    rank, rows = 0, list(rows)
    while rows:
        pivot = rows.pop()
        if pivot:
            rank += 1
            low = pivot & -pivot
            rows = [row ^ pivot if row & low else row for row in rows]
    return rank


class TestForgedTotals:
    def test_none_opens_but_the_true_one(self, malicious):
        attack = malicious(Masked(opens="clients"))
        entry, _ = attack.gathered("scores")
        raw = entry["total/padded"].data
        forged = [
            {"total/padded": Blob("cipher", bytes([raw[0] ^ 8, *raw[1:]]))},  # one unit more or less
            {"total/padded": Blob("cipher", bytes([raw[0] ^ 1, *raw[1:]]))},  # in a bit that holds nothing
            {"total/padded": Blob("cipher", bytes(len(raw)))},
            {"total/padded": Blob("cipher", raw[:-1])},
            {"total/tag": Blob("public", bytes(8))},
            {"total/slot": 2},
            {"total/root": bytes(32)},
            {"total/call": bytes(32)},
            {"total/summands": 6},
            {"contribution": "scores", "sum": entry["sum"] + 1},
            attack.named("client-1", "client-2", "client-3"),
        ]
        answers = [attack.disclosed({**entry, **change}) for change in forged[:-2]]
        answers += [attack.disclosed({**entry, **forged[-1]})]
        assert all(REFUSED in answer for answer in answers)
        assert len({answer.replace("its 3", "its 5") for answer in answers}) == 1
        expected = sum(attack.rows.values()) / 2
        assert np.abs(attack.disclosed(entry) - expected).max() < 1e-8

    def test_control_without_the_tag_it_opens_what_was_shifted(self, malicious):
        attack = malicious(Masked(opens="clients"))
        entry, _ = attack.gathered("scores")
        raw = entry["total/padded"].data
        shifted = Blob("cipher", bytes([raw[0] ^ 8, *raw[1:]]))
        with unchecked():
            found = attack.disclosed({**entry, "total/padded": shifted})
        assert 0 < np.abs(found - sum(attack.rows.values()) / 2)[0] < 1e-7


class TestTagOfOne:
    """Coordinator and one client: the key, and what the others sent."""

    def test_control_a_tag_in_the_clear_tells_a_single_value(self, scene_of):
        """⟨β, x⟩ + r with one value x: the key gives β and r."""
        rows = {f"client-{i}": np.array([i / 10]) for i in (1, 2, 3, 4)}
        scene = scene_of(Paillier(holder="clients", key_bits=2048), rows)
        with quick_keys():
            scene.begin()
        places = []
        with pytest.MonkeyPatch.context() as patch, quick_keys():
            pads = TagKey.pads
            patch.setattr(TagKey, "pads", lambda *args: places.append(args[1]) or pads(*args))
            scene.total()
        sent = {
            reply.party: reply.message for step, reply in scene.tap.replies if step == "client.contribute"
        }
        friend = scene.protection.at_client(scene.site("client-2"))
        key = friend.key.cached("tags", TagKey)
        pad = add_pads(key.pads(places[0], label_digests([b"client-1"])))
        weight = key.weights(places[0], 1).product(np.array([1]))
        [tag] = read_tag(sent["client-1"])
        value = (tag - pad) * pow(weight, -1, PRIME) % PRIME
        assert abs(value / (2**31 - 1) - 0.1) < 1e-9

    @pytest.mark.parametrize(
        ("protection", "sent"),
        [(Masked(opens="clients"), {"masked": "masked", TAG: "masked"}), (Shares(), {"shares": "sealed"})],
        ids=["masked", "shares"],
    )
    def test_under_masks_and_in_shares_it_looks_random(self, scene_of, protection, sent):
        rows = {f"client-{i}": np.array([i / 10]) for i in (1, 2, 3, 4)}
        scene = scene_of(protection, rows).begin()
        scene.total()
        found = [reply.message for step, reply in scene.tap.replies if step == "client.contribute"]
        assert len(found) == 4
        for message in found:
            assert {name: message[name].kind for name in message if name[0] != "$"} == sent


class TestCarries:
    """Coordinator and one of three clients: one of the other two has a 1, and the total does not say which.

    With the key both cases can be worked out. Tags that travelled in digits under masks, as they once did,
    fit one of them only: sums of digits say where tags carried.
    """

    CASES = (0, 1)

    def tags_of(self, scene, place, case):
        """What the tags are if that one of the two has the 1."""
        key = scene.protection.at_client(scene.site("client-3")).key.cached("tags", TagKey)
        code = scene.protection.encoding(Layout(Field("vector", (1,), 1.0)), 3).code
        weights, found = key.weights(place, 1), []
        for index, name in enumerate(scene.rows):
            pad = add_pads(key.pads(place, label_digests([name.encode()])))
            found.append((weights.product(code.encode(np.array([float(index == case)]))) + pad) % PRIME)
        return found

    def sums(self, scene_of, bits, case):
        """The scene, where its tags belong, and the tag of its total before it is reduced any further."""
        rows = {f"client-{i + 1}": np.array([float(i == case)]) for i in range(3)}
        scene = scene_of(Masked(opens="clients", bits=bits), rows).begin()
        places, tags, pads = [], [], TagKey.pads
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TagKey, "pads", lambda *args: places.append(args[1]) or pads(*args))
            unmasked = MaskedSum.remove_masks
            patch.setattr(MaskedSum, "remove_masks", lambda *args: tags.append(unmasked(*args)) or tags[0])
            scene.total()
        return scene, places[0], tags[0]

    def test_control_sums_of_digits_tell_which(self, scene_of):
        scene, place, _ = self.sums(scene_of, 8, 1)

        def digits(case, number):
            tags = self.tags_of(scene, place + bytes([number]), case)
            return [sum(tag >> 7 * at & 127 for tag in tags) for at in range(9)]

        # Of one sum they tell in all but a few of 100 cases; here are as many sums as a short run has.
        assert any(digits(0, number) != digits(1, number) for number in range(20))

    @pytest.mark.parametrize("bits", [8, 32])
    def test_a_sum_in_the_field_fits_both(self, scene_of, bits):
        scene, place, tag = self.sums(scene_of, bits, 1)
        assert [sum(self.tags_of(scene, place, case)) % PRIME for case in self.CASES] == [tag, tag]

    def test_whatever_else_it_receives_is_masked(self, scene_of):
        """What each client sent, less the masks that the coordinator takes off, is no client's tag."""
        scene, place, _ = self.sums(scene_of, 32, 1)
        sent = [reply.message for step, reply in scene.tap.replies if step == "client.contribute"]
        shown = {int.from_bytes(message[TAG].data, "little") for message in sent}
        assert not shown & {tag for case in self.CASES for tag in self.tags_of(scene, place, case)}
