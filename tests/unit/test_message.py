"""The codec at its edges: what is refused, what is copied, what is shown, and what a few bytes may cost."""

import enum
import struct
import tracemalloc

import msgspec
import numpy as np
import pytest

from tacit.core.errors import MessageError, SecretError
from tacit.core.message import MAX_HEADER, Message
from tacit.core.secret import Secret
from tacit.core.values import MAX_DEPTH, MAX_DIMENSIONS, Blob


def raw_of(header, tail=b"", *, magic=b"TCT", version=1, length=None):
    """Bytes with a header of our making, padded as the codec does."""
    packed = header if isinstance(header, bytes) else msgspec.msgpack.encode(header)
    raw = struct.pack("<3sBI", magic, version, len(packed) if length is None else length) + packed
    return raw + b"\0" * (-len(raw) % 8) + tail


def refused(raw, match=None):
    with pytest.raises(MessageError, match=match):
        Message.decode(raw)


class TestRefusedOnArrival:
    def test_wrong_magic(self):
        refused(raw_of([], magic=b"TCX"), "not a Tacit message")

    @pytest.mark.parametrize("version", [0, 2, 255])
    def test_other_version(self, version):
        refused(raw_of([], version=version), f"version {version}.*same release")

    @pytest.mark.parametrize("size", range(9))
    def test_fewer_bytes_than_any_message(self, size):
        refused(raw_of([])[:size])

    def test_header_that_is_announced_longer_than_64_kilobytes_even_if_it_is_there(self):
        refused(raw_of(b"\xc0" * (MAX_HEADER + 1)), "header of 65,537 bytes announced")

    def test_header_longer_than_the_message(self):
        refused(raw_of([], length=100), "truncated")

    def test_header_shorter_than_written(self):
        refused(raw_of([["a", 1]], length=3))

    @pytest.mark.parametrize("header", [5, None, "text", {"a": 1}, [5], ["a"], [None], [{}]])
    def test_header_that_is_no_list_of_lists(self, header):
        refused(raw_of(header))

    @pytest.mark.parametrize("entry", [[], ["a"], [5, 1], [None, 1], [b"a", 1], ["", 1], [["a"], 1]])
    def test_entry_without_a_name(self, entry):
        refused(raw_of([entry]))

    def test_repeated_name(self):
        refused(raw_of([["a", 1], ["a", 1]]), "repeated")

    def test_names_out_of_order(self):
        refused(raw_of([["b", 1], ["a", 1]]), "out of order")

    def test_truncation_anywhere(self):
        raw = Message(a=np.arange(3.0), b=b"12345", c=Blob("cipher", b"xyz"), d=[1, "two"]).encode()
        for size in range(len(raw)):
            refused(raw[:size])

    def test_trailing_bytes(self):
        raw = Message(a=np.arange(3.0)).encode()
        for extra in (b"\0", b"\0" * 8, b"x" * 64):
            refused(raw + extra)

    @pytest.mark.parametrize("count", range(1, 8))
    def test_padding_that_is_not_zero(self, count):
        raw = bytearray(Message(a=b"x" * (8 - count)).encode())
        for position in range(1, count + 1):
            changed = bytearray(raw)
            changed[-position] = 1
            refused(bytes(changed), "padding")

    def test_padding_after_the_header_that_is_not_zero(self):
        raw = bytearray(Message(a=1).encode())
        raw[-1] = 7
        refused(bytes(raw), "padding")

    def test_truth_value_of_two(self):
        raw = bytearray(Message(a=np.array([True, False])).encode())
        raw[raw.rindex(b"\x01\x00")] = 2
        refused(bytes(raw), "truth value")

    @pytest.mark.parametrize(
        "code", ["O", "<f8", "f16", "c16", "S4", "U4", "M8[s]", "V8", "", 8, None, ["f8"]]
    )
    def test_dtype_that_does_not_travel(self, code):
        refused(raw_of([["a", "array", code, [1]]], b"\0" * 16), "dtype")

    @pytest.mark.parametrize(
        "shape", [[-1], [True], [1.0], ["1"], [None], [[1]], [2**40], [2**64 - 1], 1, "1", {"0": 1}, None]
    )
    def test_impossible_shape(self, shape):
        refused(raw_of([["a", "array", "u1", shape]], b"\0" * 8), "impossible shape")

    def test_nine_dimensions(self):
        refused(raw_of([["a", "array", "u1", [1] * (MAX_DIMENSIONS + 1)]], b"\0" * 8), "impossible shape")

    def test_empty_array_whose_strides_overflow(self):
        refused(raw_of([["a", "array", "f8", [0, 2**39, 2**39]]]), "impossible shape")

    @pytest.mark.parametrize("kind", ["bytes", "public", "cipher", "sealed", "masked", "share"])
    @pytest.mark.parametrize("length", [-1, True, 8.0, "8", None, [8], 2**40])
    def test_impossible_length(self, kind, length):
        refused(raw_of([["a", kind, length]], b"\0" * 8))

    @pytest.mark.parametrize("kind", ["array", "Bytes", "secret", "", 5, None, [], {}, True])
    def test_unknown_kind_of_field(self, kind):
        refused(raw_of([["a", kind, 0]]))

    @pytest.mark.parametrize("tail", [["f8"], ["f8", [1], 1], [], ["f8", [1], None, None]])
    def test_array_entry_of_another_length(self, tail):
        refused(raw_of([["a", "array", *tail]], b"\0" * 8))

    @pytest.mark.parametrize(
        "value",
        [
            b"\xcc\x01",  # 1 as uint8
            b"\xcd\x00\x01",  # 1 as uint16
            b"\xd3" + b"\0" * 7 + b"\x01",  # 1 as int64
            b"\xca\x3f\x80\x00\x00",  # 1.0 as float32
            b"\xd9\x01x",  # short text with a long head
            b"\xdc\x00\x01\x01",  # short list with a long head
            b"\xde\x00\x01\xa1b\x01",  # short mapping with a long head
            b"\x82\xa1b\x01\xa1a\x01",  # unsorted keys
            b"\x82\xa1a\x01\xa1a\x01",  # repeated keys
        ],
    )
    def test_second_spelling_of_a_plain_value(self, value):
        refused(raw_of(b"\x91\x92\xa1a" + value))

    @pytest.mark.parametrize(
        "value",
        [
            b"\xc4\x01x",  # bytes among the plain values
            b"\xd4\x05x",  # an extension type
            b"\xd6\xff\x00\x00\x00\x00",  # a timestamp
            b"\xc7\x0c\xff" + b"\xff" * 12,  # an impossible timestamp
            b"\x81\x01\x01",  # a number as a key
            b"\x81\x91\x01\x01",  # a list as a key
            b"\x81\x80\x01",  # a mapping as a key
            b"\xa1\xff",  # text that is not UTF-8
            b"\xa3\xed\xa0\x80",  # a lone surrogate
            b"\xc1",  # never used
        ],
    )
    def test_value_that_no_message_carries(self, value):
        refused(raw_of(b"\x91\x92\xa1a" + value))

    def test_nesting_one_level_too_deep(self):
        value = 1
        for _ in range(MAX_DEPTH):
            value = [value]
        assert Message.decode(raw_of([["a", value]])).encode() == raw_of([["a", value]])
        refused(raw_of([["a", [value]]]), "nested deeper")

    @pytest.mark.parametrize("opener", [b"\x91", b"\x81\xa1a", b"\xdc\xff\xff", b"\xdd\xff\xff\xff\xff"])
    def test_nesting_without_end(self, opener):
        refused(raw_of(b"\x91\x92\xa1a" + opener * (60_000 // len(opener))))

    def test_more_than_the_limit(self):
        message = Message(a=np.zeros(100))
        raw = message.encode()
        assert Message.decode(raw, limit=len(raw)) == message
        with pytest.raises(MessageError, match=f"limit is {len(raw) - 1}"):
            Message.decode(raw, limit=len(raw) - 1)


@pytest.mark.parametrize(
    "header",
    [
        [["a", "array", "f8", [2**37]]],
        [["a", "array", "f8", [2**20, 2**20]]],
        [["a", "array", "u1", [2**39] * 8]],
        [["a", "array", "f8", [0, 2**39]]],
        [["a", "array", "f8", [0, 2**39, 2**39]]],
        [["a", "bytes", 2**39]],
        [["a", "cipher", 2**39]],
        b"\xdd\xff\xff\xff\xff",
        b"\x91\xdd\xff\xff\xff\xff",
        b"\x91\x92\xa1a\xdd\xff\xff\xff\xff",
        b"\x91\x92\xa1a\xdf\xff\xff\xff\xff",
        b"\x91\x92\xa1a\xc6\xff\xff\xff\xff",
        b"\x91\x92\xa1a\xdb\xff\xff\xff\xff",
        b"\x91\x92\xa1a" + b"\xdc\xff\xff" * 20_000,
        b"\x91\x92\xa1a" + b"\xdd\x7f\xff\xff\xff" * 900,
    ],
)
def test_bytes_that_announce_terabytes_cost_less_than_a_megabyte(header):
    raw = raw_of(header)
    tracemalloc.start()
    try:
        Message.decode(raw)
    except MessageError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 1_000_000


class TestRefusedOnConstruction:
    @pytest.mark.parametrize(
        "array",
        [
            np.array([object()]),
            np.array(["text"]),
            np.array([b"bytes"]),
            np.array([1j]),
            np.array(["2020-01-01"], dtype="M8[s]"),
            np.zeros(1, dtype=[("a", "f8")]),
            np.zeros(1, dtype=np.longdouble),
        ],
        ids=lambda array: str(array.dtype),
    )
    def test_array_of_another_kind(self, array):
        with pytest.raises(MessageError, match=r"'a': arrays of .* do not travel"):
            Message(a=array)

    def test_array_of_nine_dimensions(self):
        with pytest.raises(MessageError, match="9 dimensions, the limit is 8"):
            Message(a=np.zeros((1,) * 9))

    @pytest.mark.parametrize(
        "value",
        [
            {1, 2},
            frozenset(),
            len,
            1j,
            object(),
            b"x".__iter__(),
            range(3),
            np.longdouble(1),
            np.complex128(1),
            np.datetime64("2020-01-01", "ns"),
            enum.Enum("E", "A").A,
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_value_of_another_kind_alone_or_nested(self, value):
        for holder in (value, [value], {"key": (value,)}):
            with pytest.raises(MessageError, match="field 'a' holds"):
                Message(a=holder)

    @pytest.mark.parametrize("value", [b"x", np.zeros(1), Blob("public", b"")])
    def test_buffers_inside_a_list(self, value):
        with pytest.raises(MessageError, match="field 'a' holds"):
            Message(a=[value])

    def test_secret_alone_or_nested(self):
        secret = Secret(b"key")
        for value in (secret, [secret], {"k": secret}, {"k": [(secret,)]}):
            with pytest.raises(SecretError, match="never travel"):
                Message(a=value)

    @pytest.mark.parametrize("name", ["", 5, None, b"a", ("a",)])
    def test_name_that_is_no_text(self, name):
        with pytest.raises(MessageError, match="names are text"):
            Message({name: 1})

    def test_key_that_is_no_text(self):
        with pytest.raises(MessageError, match="keys of a mapping must be text"):
            Message(a={1: 2})

    def test_list_that_contains_itself(self):
        loop = []
        loop.append(loop)
        with pytest.raises(MessageError, match="nested deeper"):
            Message(a=loop)

    @pytest.mark.parametrize("value", [2**64, -(2**63) - 1, "\ud800", ["\ud800"], {"\ud800": 1}])
    def test_value_without_an_encoding(self, value):
        with pytest.raises(MessageError, match="cannot be encoded"):
            Message(a=value).encode()

    def test_long_list_is_told_to_become_an_array(self):
        with pytest.raises(MessageError, match="send long lists as arrays"):
            Message(a=list(range(50_000))).encode()

    def test_blob_of_unknown_kind_or_without_bytes(self):
        with pytest.raises(MessageError, match="blob kind 'plain' is unknown"):
            Blob("plain", b"")
        with pytest.raises(MessageError, match="holds bytes, not str"):
            Blob("public", "text")


class TestFrozen:
    def test_the_source_array_may_change(self):
        source = np.arange(3.0)
        message = Message(a=source)
        before = message.encode()
        source[0] = 99.0
        assert message.encode() == before

    def test_the_source_array_may_change_behind_a_read_only_view(self):
        source = np.arange(3.0)
        view = source.view()
        view.flags.writeable = False
        message = Message(a=view)
        source[0] = 99.0
        assert message["a"][0] == 0.0

    def test_a_bytearray_may_change(self):
        source = bytearray(b"abc")
        message = Message(a=source, b=memoryview(source))
        source[0] = 0
        assert message["a"] == message["b"] == b"abc"

    def test_lists_and_mappings_may_change(self):
        inner = {"k": [1]}
        message = Message(a=inner)
        inner["k"].append(2)
        inner["new"] = 3
        assert message["a"] == {"k": (1,)}

    def test_nothing_inside_can_be_assigned(self):
        message = Message(a=np.zeros(2), b={"k": 1}, c=[1])
        with pytest.raises(ValueError, match="read-only"):
            message["a"][0] = 1.0
        with pytest.raises(TypeError):
            message["b"]["k"] = 2
        with pytest.raises(TypeError):
            message["c"][0] = 2
        with pytest.raises(TypeError):
            message["d"] = 1

    def test_an_array_that_is_frozen_already_is_not_copied(self):
        message = Message(a=np.zeros(1000))
        assert np.shares_memory(Message(b=message["a"])["b"], message["a"])

    def test_masked_arrays_lose_their_mask_and_become_plain_arrays(self):
        masked = np.ma.masked_array([1.0, 2.0], [True, False])
        masked.flags.writeable = False
        assert type(Message(a=masked)["a"]) is np.ndarray


class TestDecodedInPlace:
    def test_arrays_are_read_only_views_into_the_bytes(self):
        raw = Message(a=np.arange(100.0), b=np.arange(7, dtype="i2"), c=np.ones(3, bool)).encode()
        whole = np.frombuffer(raw, np.uint8)
        message = Message.decode(raw)
        for name in "abc":
            assert np.shares_memory(message[name], whole)
            assert not message[name].flags.writeable
            assert message[name].flags.aligned

    def test_a_view_cannot_be_made_writeable(self):
        array = Message.decode(Message(a=np.zeros(3)).encode())["a"]
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True

    def test_decoding_megabytes_allocates_next_to_nothing(self):
        raw = Message(a=np.zeros(1_000_000)).encode()
        tracemalloc.start()
        Message.decode(raw)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 100_000


class TestPlainValues:
    @pytest.mark.parametrize(
        ("given", "arrives"),
        [
            (np.float64(1.5), 1.5),
            (np.float32(0.5), 0.5),
            (np.int32(7), 7),
            (np.bool_(True), True),
            (np.str_("text"), "text"),
            (enum.IntEnum("Colour", "RED").RED, 1),
            (enum.StrEnum("Word", "YES").YES, "yes"),
            ([np.float64(0.25), np.int8(-1)], (0.25, -1)),
        ],
    )
    def test_scalars_of_other_libraries_become_plain(self, given, arrives):
        value = Message.decode(Message(a=given).encode())["a"]
        assert value == arrives
        assert type(value) is type(arrives)

    @pytest.mark.parametrize("value", [0, -1, 2**63, -(2**63), 2**64 - 1, 0.0, 5e-324, "", "\0", None, True])
    def test_extreme_values_arrive_as_they_are(self, value):
        back = Message.decode(Message(a=value).encode())["a"]
        assert back == value
        assert type(back) is type(value)

    def test_true_one_and_one_point_zero_are_three_messages(self):
        assert len({Message(a=True).digest(), Message(a=1).digest(), Message(a=1.0).digest()}) == 3

    def test_minus_zero_and_nan_keep_their_bits(self):
        raw = Message(a=-0.0, b=float("nan"), c=np.array([-0.0, np.nan])).encode()
        assert Message.decode(raw).encode() == raw
        assert str(Message.decode(raw)["a"]) == "-0.0"


def test_representation_shows_names_and_kinds_but_no_values():
    message = Message(
        weights=np.array([123.456]),
        text="patient 4711",
        count=4711,
        rows=[4711],
        key=b"4711",
        blob=Blob("cipher", b"4711"),
    )
    shown = repr(message) + repr(message["blob"])
    assert "4711" not in shown
    assert "123" not in shown
    assert "weights=float64[1]" in shown
    assert "Blob(cipher, 4 bytes)" in shown


def test_messages_are_equal_only_to_messages():
    assert Message(a=1) == Message({"a": 1})
    assert Message(a=1) != {"a": 1}
    assert hash(Message(a=[1])) == hash(Message(a=(1,)))


def test_big_endian_and_strided_arrays_have_the_same_bytes_as_plain_ones():
    plain = np.arange(12, dtype="<i4").reshape(3, 4)
    digest = Message(a=plain).digest()
    assert Message(a=plain.astype(">i4")).digest() == digest
    assert Message(a=np.asfortranarray(plain)).digest() == digest
    assert Message(a=np.repeat(plain, 2, axis=1)[:, ::2]).digest() == digest
