"""Sealed channels: what the relay may do, and what it then finds."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.errors import ProtectionError
from tacit.core.secret import Secret
from tacit.crypto import channel
from tacit.crypto.channel import (
    checked_key,
    derive_key,
    identity_public,
    new_exchange,
    pair_key,
    place,
    seal,
    sign_key,
    unseal,
)

HOSPITAL, BANK = Secret(b"h" * 32), Secret(b"b" * 32)
WHERE = place("run-1", 3, "hop", "a", "b")


def key() -> Secret:
    (private, _), (_, public) = new_exchange(), new_exchange()
    return pair_key(private, public, "seal", "run-1")


def test_both_ends_derive_the_same_key_and_nobody_else_does():
    (a, public_a), (b, public_b), (c, _) = new_exchange(), new_exchange(), new_exchange()
    assert pair_key(a, public_b, "seal", "r") == pair_key(b, public_a, "seal", "r")
    assert pair_key(c, public_b, "seal", "r") != pair_key(a, public_b, "seal", "r")
    assert pair_key(a, public_b, "mac", "r") != pair_key(a, public_b, "seal", "r")


def test_sealed_bytes_open_only_where_they_belong():
    shared = key()
    sealed = seal(shared, b"running sum", WHERE)
    assert unseal(shared, sealed, WHERE) == b"running sum"
    for other in (
        place("run-2", 3, "hop", "a", "b"),
        place("run-1", 4, "hop", "a", "b"),
        place("run-1", 3, "key", "a", "b"),
        place("run-1", 3, "hop", "c", "b"),
        place("run-1", 3, "hop", "a", "c"),
    ):
        with pytest.raises(ProtectionError, match="does not open"):
            unseal(shared, sealed, other)


@given(st.integers(0, 8 * 39 - 1))
@settings(max_examples=60, deadline=None)
def test_any_flipped_bit_is_noticed(bit):
    shared = key()
    sealed = bytearray(seal(shared, b"running sum", WHERE))
    sealed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ProtectionError):
        unseal(shared, bytes(sealed), WHERE)


@pytest.mark.parametrize("cut", [0, 1, 11, 12, 27])
def test_truncated_bytes_are_refused(cut):
    shared = key()
    with pytest.raises(ProtectionError):
        unseal(shared, seal(shared, b"running sum", WHERE)[:cut], WHERE)


def test_the_relay_cannot_swap_an_exchange_key():
    _, public = new_exchange()
    signed = sign_key(HOSPITAL, "exchange", "hospital", "run-1", public)
    pinned = identity_public(HOSPITAL)
    assert checked_key(signed, pinned, "exchange", "hospital", "run-1") == public
    _, swapped = new_exchange()
    for forged, owner, run in (
        (signed[:64] + swapped, "hospital", "run-1"),  # another key under the old signature
        (sign_key(BANK, "exchange", "hospital", "run-1", swapped), "hospital", "run-1"),  # by a stranger
        (sign_key(HOSPITAL, "paillier", "hospital", "run-1", public), "hospital", "run-1"),  # other purpose
        (signed, "bank", "run-1"),  # passed off as somebody else's
        (signed, "hospital", "run-2"),  # replayed from another run
        (signed[:-1], "hospital", "run-1"),
        (b"", "hospital", "run-1"),
    ):
        with pytest.raises(ProtectionError, match="not signed by its pinned identity"):
            checked_key(forged, pinned, "exchange", owner, run)


def test_a_point_of_small_order_is_refused():
    private, _ = new_exchange()
    with pytest.raises(ProtectionError, match="small order"):
        pair_key(private, bytes(32), "seal", "run-1")


def test_two_seals_of_the_same_bytes_differ():
    shared = key()
    assert seal(shared, b"x", WHERE) != seal(shared, b"x", WHERE)


# RFC 8032, section 7.1, tests 1 and 3: seed, public key, message, signature.
VECTORS = (
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
        "d25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc659"
        "4a7c15e9716ed28dc027beceea1ec40a",
    ),
)


@pytest.mark.parametrize(("seed", "public", "message", "signature"), VECTORS)
def test_signatures_are_those_of_rfc_8032(seed, public, message, signature, monkeypatch):
    monkeypatch.setattr(channel, "bound", lambda *pieces: bytes.fromhex(message))
    raw = bytes.fromhex(signature)
    assert identity_public(Secret(bytes.fromhex(seed))).hex() == public
    assert sign_key(Secret(bytes.fromhex(seed)), "", "", "", b"")[:64] == raw
    assert checked_key(raw + b"key", bytes.fromhex(public), "", "", "") == b"key"
    with pytest.raises(ProtectionError, match="not signed by its pinned identity"):
        checked_key(raw[:-1] + b"\x00key", bytes.fromhex(public), "", "", "")


@pytest.mark.parametrize("length", [0, 32, 64, 100])
def test_keys_are_derived_by_hkdf(length):
    secret, info = bytes(range(length)), b"purpose"
    expected = HKDF(SHA256(), length=32, salt=None, info=info).derive(secret)
    assert derive_key(secret, info) == expected
