"""One message, one encoding; and whatever bytes arrive, either they are that encoding or they are refused."""

import string
import struct

import msgspec
import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tacit.core.errors import MessageError
from tacit.core.message import Message
from tacit.core.values import MAX_DEPTH, Blob
from tests.quick import examples

DTYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
KINDS = ("public", "cipher", "sealed", "masked", "share")

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
names = st.one_of(texts.filter(bool), st.text(string.ascii_lowercase, min_size=1, max_size=3))
shapes = st.one_of(st.just(()), npst.array_shapes(min_dims=1, max_dims=8, min_side=0, max_side=3))
arrays = st.sampled_from(DTYPES).flatmap(lambda dtype: npst.arrays(np.dtype(dtype), shapes))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    texts,
)
plains = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4), st.tuples(inner)
    ),
    max_leaves=12,
)


def depth(value) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else None
    return 0 if inner is None else 1 + max((depth(item) for item in inner), default=0)


values = st.one_of(
    arrays,
    st.binary(max_size=40),
    st.builds(Blob, st.sampled_from(KINDS), st.binary(max_size=40)),
    plains.filter(lambda value: depth(value) <= MAX_DEPTH),
)
fields = st.dictionaries(names, values, max_size=6)


def plain(value):
    """The form in which a plain value arrives."""
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    return {key: plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def same(one, other) -> bool:
    """Equality of plain values in which NaN equals NaN and True is not 1."""
    if type(one) is not type(other):
        return (
            isinstance(one, dict) and one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
        )
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other) or (one != one and other != other)
    return one == other


@given(fields)
@settings(max_examples=examples(150), deadline=None)
def test_what_is_decoded_is_what_was_encoded(given_fields):
    back = Message.decode(Message(given_fields).encode())
    assert back.keys() == given_fields.keys()
    for name, value in given_fields.items():
        arrived = back[name]
        if isinstance(value, np.ndarray):
            assert arrived.dtype == value.dtype
            assert arrived.shape == value.shape
            assert arrived.tobytes() == value.tobytes()
        elif isinstance(value, bytes | Blob):
            assert arrived == value
        else:
            assert same(plain(value), arrived)


@given(fields, st.randoms())
@settings(max_examples=examples(60), deadline=None)
def test_equal_messages_are_equal_bytes_in_whatever_order_they_were_written(given_fields, random):
    shuffled = list(given_fields.items())
    random.shuffle(shuffled)

    def turned(value):
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(value)}
        return list(value) if isinstance(value, tuple) else value

    one, other = Message(given_fields), Message({name: turned(value) for name, value in shuffled})
    assert one.encode() == other.encode()
    assert one == other
    assert one.digest() == other.digest()


def decoded_or_refused(raw: bytes) -> None:
    """Either exactly one encoding of a message, or a MessageError; nothing else may happen."""
    try:
        message = Message.decode(raw)
    except MessageError:
        return
    assert message.encode() == raw


@given(fields, st.data())
@settings(max_examples=examples(300), deadline=None)
def test_a_message_that_was_tampered_with_is_refused_or_is_another_whole_message(given_fields, data):
    raw = bytearray(Message(given_fields).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, max(0, len(raw) - 1)))
        match data.draw(st.sampled_from(("flip", "cut", "insert", "append", "remove"))):
            case "flip" if raw:
                raw[position] ^= data.draw(st.integers(1, 255))
            case "cut":
                del raw[position:]
            case "insert":
                raw[position:position] = data.draw(st.binary(min_size=1, max_size=9))
            case "append":
                raw += data.draw(st.binary(min_size=1, max_size=9))
            case "remove":
                del raw[position : position + data.draw(st.integers(1, 9))]
    decoded_or_refused(bytes(raw))


lengths = st.one_of(
    st.integers(0, 4), st.integers(-(2**63), 2**64 - 1), st.booleans(), st.floats(), st.none(), st.text()
)
entries = st.one_of(
    st.tuples(names, plains),
    st.tuples(names, st.sampled_from(("bytes", *KINDS)), lengths),
    st.tuples(
        names,
        st.just("array"),
        st.sampled_from(("b1", "f8", "u1", "i2", "O", "")),
        st.lists(lengths, max_size=9),
    ),
    st.tuples(names, st.one_of(st.just("array"), plains), plains, plains),
    st.lists(plains, max_size=5),
)


@given(st.lists(entries, max_size=4), st.booleans(), st.integers(0, 6))
@example([("a", None, 5)], False, 0)
@example([("a", "array", "f8", [0, 2**39, 2**39])], False, 0)
@settings(max_examples=examples(300), deadline=None)
def test_a_header_that_an_enemy_wrote_is_refused_or_is_a_whole_message(listed, ordered, words):
    if ordered:
        listed = sorted(listed, key=lambda entry: str(entry[0]) if entry else "")
    header = msgspec.msgpack.encode(listed, order="deterministic")
    raw = struct.pack("<3sBI", b"TCT", 1, len(header)) + header
    decoded_or_refused(raw + b"\0" * (-len(raw) % 8) + b"\0" * (8 * words))


@given(st.binary(max_size=60))
@settings(max_examples=examples(300), deadline=None)
def test_any_bytes_behind_the_right_beginning_are_refused_or_are_a_whole_message(noise):
    decoded_or_refused(noise)
    decoded_or_refused(b"TCT\x01" + noise)
    raw = struct.pack("<3sBI", b"TCT", 1, len(noise)) + noise
    decoded_or_refused(raw + b"\0" * (-len(raw) % 8))
