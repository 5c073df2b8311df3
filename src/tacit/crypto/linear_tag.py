"""Linear tags: one field element beside a vector, by which a sum shows whose vectors it is the sum of.

Those who hold a key give each vector x of integers a tag in the field of p = 2^61 - 1 elements,

    t = ⟨β, x⟩ + r    modulo p,

where the weights β follow from the key and from what the sum is (its *place*), and the pad r from the key,
the place and a label that says whose vector it is. Tags add up as the vectors do. Who holds the key accepts
a total X with tag T only if T = ⟨β, X⟩ + Σ r over the labels that are said to be in it. Who adds without the
key sees t, which is uniform because r is, and so learns nothing of x or β. A total that is shifted, forged,
of another place, or over other labels passes with a probability of at most 2/p, about 2^-60, at each try, as
in the authentication of Wegman and Carter (1981) and the linear one of the SPDZ protocols. Two vectors must
never get the same pad.

β is an outer product: value number 256 i + j of a vector has the weight u_i v_j, with u and v uniform. That
costs the second p in 2/p (⟨β, X⟩ is a polynomial of degree two in them) and makes tagging a matrix product
with v, which BLAS does. A second vector of the same length, such as the noise of an encryption, goes into the
same tag as f ⟨β, e⟩, with f uniform; that makes it 3/p, below 2^-59.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from operator import mul

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from tacit.core.errors import DataError
from tacit.core.secret import Secret
from tacit.crypto.channel import bound
from tacit.crypto.field import PRIME, Integers, Ring, add_rows, multiply
from tacit.crypto.masking import expand, spare_number

VALUE_BITS = 60  # of a tagged integer, its sign apart: what differs, differs modulo p
TAG_BYTES = 8
LABEL_BYTES = 16

_WIDTH = 256  # values of a row, which share one u
_DIGIT_BITS, _DIGITS = 13, 5  # of an element of v: 256 products of a digit with 32 bits are exact in float64
_BLOCK = 64  # rows at a time: they stay in the L2 cache
_OFFSET = 1 << VALUE_BITS  # makes values positive, so that their halves are plain words
_3 = np.uint64(3)


class Weights:
    """The weights β of one place, for vectors of one length."""

    def __init__(self, seed: Secret, size: int) -> None:
        self._size = size
        rows = -(-size // _WIDTH)
        elements = expand(seed, rows + _WIDTH) >> _3
        self._u, v = elements[:rows], elements[rows:]
        # Of a short vector each product by itself is quicker than a matrix of them.
        self._few = [int(self._u[0]) * int(weight) % PRIME for weight in v[:size]] if rows == 1 else []
        digits = [(v >> np.uint64(_DIGIT_BITS * place)) & np.uint64(0x1FFF) for place in range(_DIGITS)]
        self._digits = np.stack(digits, axis=1).astype(np.float64)
        # Of the offset, which is added to every value, those of the last row that are not there among them.
        self._excess = _OFFSET * _sum(self._u) * _sum(v)

    def product(self, integers: Integers) -> int:
        """Return ⟨β, x⟩ modulo p.

        Raises
        ------
        DataError
            If there are more or fewer values than agreed, or one needs more than 60 bits and its sign.
        """
        values = np.ascontiguousarray(integers, np.int64)
        if values.shape != (self._size,):
            raise DataError(f"{values.size} values to tag, agreed were {self._size}")
        if values.size and not (-_OFFSET < values.min() and values.max() < _OFFSET):
            raise DataError(f"a value needs more than {VALUE_BITS} bits and its sign: use fewer bits")
        if self._few:
            products: Iterable[int] = map(mul, self._few, values.tolist())
            return sum(products) % PRIME
        halves = np.empty((2, len(self._u), _DIGITS))
        for first in range(0, len(self._u), _BLOCK):
            part = values[first * _WIDTH : (first + _BLOCK) * _WIDTH]
            if short := -len(part) % _WIDTH:
                part = np.concatenate([part, np.zeros(short, np.int64)])
            words = (part + _OFFSET).astype("<i8", copy=False).view("<u4").reshape(-1, _WIDTH, 2)
            for half in (0, 1):
                found = words[:, :, half].astype(np.float64) @ self._digits
                halves[half, first : first + _BLOCK] = found
        # Σ u_i (low + 2^32 high), and digit k of v counts 2^13k.
        sums = add_rows(multiply(self._u[:, None], np.hstack(list(halves)).astype(np.uint64)))
        shifts = [32 * half + _DIGIT_BITS * place for half in (0, 1) for place in range(_DIGITS)]
        whole = sum(int(value) << shift for value, shift in zip(sums, shifts, strict=True))
        return (whole - self._excess) % PRIME


class TagKey:
    """Makes the weights and pads of every place from a key that the adder must not have.

    Examples
    --------
    >>> key, place = TagKey(Secret(bytes(32))), b"run 1, sum 1"
    >>> weights = key.weights(place, 3)
    >>> vectors = {"ann": np.array([1, -2, 3]), "bob": np.array([7, 0, -1])}
    >>> pads = key.pads(place, label_digests([b"ann", b"bob"]))
    >>> tags = [weights.product(x) + int(pad) for x, pad in zip(vectors.values(), pads)]
    >>> sum(tags) % PRIME == (weights.product(vectors["ann"] + vectors["bob"]) + add_pads(pads)) % PRIME
    True
    """

    def __init__(self, secret: Secret) -> None:
        self._key = hmac.digest(secret.reveal(), b"tacit linear tags", "sha256")
        self.id = self._derive("id", b"")[:16]  # for caches: tells nothing of the key

    def _derive(self, purpose: str, place: bytes) -> bytes:
        return hmac.digest(self._key, bound(purpose, place), "sha256")

    def weights(self, place: bytes, size: int) -> Weights:
        """Return the weights of a place for vectors of that length."""
        return Weights(Secret(self._derive("weights", place)), size)

    def factor(self, place: bytes) -> int:
        """Return by what the product of a second vector counts, so that one tag is that of both."""
        return int.from_bytes(self._derive("factor", place), "little") % PRIME

    def seed(self, place: bytes, label: str, integers: Integers) -> Secret:
        """Return randomness that is the same for the same vector under a label, and for no other."""
        return Secret(self._derive("seed", bound(place, label, hashlib.sha256(integers.data).digest())))

    def pads(self, place: bytes, labels: bytes) -> Ring:
        """Return the pads of many labels, given by their digests."""
        return label_words(self._derive("pads", place), labels) >> _3


def label_digests(labels: Iterable[bytes]) -> bytes:
    """Return what stands for labels when pads are made: a digest of each, one after the other."""
    return b"".join([hashlib.sha256(label).digest()[:LABEL_BYTES] for label in labels])


def label_words(key: bytes, labels: bytes) -> Ring:
    """Return 64 bits for each of many labels, given by their digests: AES of these under the key.

    Each digest occurs once: this is a pseudorandom function, not the encryption of a text.
    """
    blocks = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(labels)
    return np.frombuffer(blocks, "<u8")[::2].astype(np.uint64)


def add_pads(pads: Ring, counts: NDArray[np.uint64] | None = None) -> int:
    """Return the sum of pads modulo p, each as often as ``counts`` says (once, if left out)."""
    return _sum(pads if counts is None else multiply(pads, counts))


def mask_tag(tag: int, masks: Iterable[tuple[Secret, int]]) -> int:
    """Add masks to a tag, seeds with their signs, in the field: their sum leaves that of the tags alone.

    In digits that are masked each by itself, the sums of digits would say with which carries tags were added,
    and who has the key could tell which of some values of a single vector fit.
    """
    return (tag + sum(sign * spare_number(seed) for seed, sign in masks)) % PRIME


def _sum(elements: Ring) -> int:
    return int(add_rows(elements[:, None])[0])
