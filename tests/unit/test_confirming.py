"""Locks on what clients of masked sums give: they open with enough confirmations, and with no fewer."""

import os

import pytest

from tacit.protections.masked.confirming import (
    CONFIRM,
    confirmations,
    lock,
    unlock,
)

HOLDERS = ["ann", "bob", "eve", "joe", "sue"]


def pads_of(raw):
    return {index: raw[CONFIRM * index : CONFIRM * (index + 1)] for index in range(len(raw) // CONFIRM)}


@pytest.mark.parametrize("threshold", [1, 2, 3, 5])
@pytest.mark.parametrize("given", range(6))
def test_it_takes_as_many_pads_as_agreed(threshold, given):
    raw = os.urandom(CONFIRM * 5)
    locked = lock(b"shares", raw, threshold, b"here")
    pads = dict(list(pads_of(raw).items())[5 - given :])
    assert unlock(locked, 5, pads, threshold, b"here") == (b"shares" if given >= threshold else None)


def test_one_wrong_pad_is_left_out_if_there_is_one_to_spare():
    raw = os.urandom(CONFIRM * 5)
    locked, pads = lock(b"shares", raw, 4, b"here"), pads_of(raw) | {2: os.urandom(CONFIRM)}
    assert unlock(locked, 5, pads, 4, b"here") == b"shares"
    assert unlock(locked, 5, pads, 5, b"here") is None
    assert unlock(lock(b"shares", raw, 5, b"here"), 5, pads, 5, b"here") is None


def test_it_opens_only_where_it_belongs():
    raw = os.urandom(CONFIRM * 3)
    assert unlock(lock(b"shares", raw, 2, b"here"), 3, pads_of(raw), 2, b"there") is None


def test_two_clients_compute_the_same_confirmation_and_nobody_another():
    def given(link, slot, text, own, other):
        pads = confirmations(link, slot, text, own, sorted([own, other]), {own, other})[0]
        return pads[CONFIRM:] if own < other else pads[:CONFIRM]

    found = given(bytes(32), 1, b"list", "ann", "bob")
    assert found == given(bytes(32), 1, b"list", "ann", "bob")
    others = [(1, b"list", "bob", "ann"), (2, b"list", "ann", "bob"), (1, b"other", "ann", "bob")]
    assert found not in {given(bytes(32), *what) for what in others}
    assert found != given(bytes(31) + b"1", 1, b"list", "ann", "bob")


def test_a_client_confirms_to_those_that_arrived_and_expects_it_of_all():
    links = [os.urandom(32) for _ in range(4)]  # with all but bob
    given, taken = confirmations(b"".join(links), 7, b"list", "bob", HOLDERS, {"ann", "bob", "eve"})
    none = bytes(CONFIRM)
    assert [pad == none for pad in pads_of(given).values()] == [False, True, False, True, True]
    assert [pad == none for pad in pads_of(taken).values()] == [False, True, False, False, False]
    back = confirmations(links[1], 7, b"list", "eve", ["bob", "eve"], {"bob", "eve"})
    assert pads_of(back[0])[0] == pads_of(taken)[2]
    assert pads_of(back[1])[0] == pads_of(given)[2]
