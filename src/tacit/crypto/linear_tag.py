"""Linear tags: one field element beside a vector, by which a sum shows whose vectors it is the sum of.

Those who hold a key give each vector x of integers a tag in the field of p elements,

    t = ⟨β, x⟩ + r    modulo p,

where the weights β follow from the key and from what the sum is (its *place*), and the pad r from the key,
the place and a label that says whose vector it is. Tags add up as the vectors do. Who holds the key accepts
a total X with tag T only if T = ⟨β, X⟩ + Σ r over the labels that are said to be in it. Who adds without the
key sees t, which is uniform because r is, and so learns nothing of x or β. A total that is shifted, forged,
of another place, or over other labels passes with a probability of at most 2/p at each try, as in the
authentication of Wegman and Carter (1981) and the linear one of the SPDZ protocols. Two vectors must never
get the same pad.

Integers are tagged modulo p = 2^61 - 1. Residues modulo a smaller prime, which are added modulo that prime,
are tagged modulo that very prime, by several independent tags if it is small (:func:`copies`): a forgery then
passes with 2^-40 at the most, and each try is an ask that a client refuses.

β is an outer product: value number 256 i + j of a vector has the weight u_i v_j, with u and v uniform. That
costs the second p in 2/p (⟨β, X⟩ is a polynomial of degree two in them) and makes tagging a matrix product
with v, which BLAS does.
"""

import hashlib
import hmac
from collections.abc import Iterable
from functools import lru_cache
from math import ceil, log2
from operator import lshift, mul

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from tacit.core.errors import DataError, ProtectionError
from tacit.core.secret import Secret
from tacit.crypto.channel import bound
from tacit.crypto.field import PRIME, Integers, Ring
from tacit.crypto.masking import expand

VALUE_BITS = 60  # of a tagged integer, its sign apart: what differs, differs modulo p
FORGERY_BITS = 40  # a forgery passes with at most 2 to the minus this
TAG_BYTES = 8
LABEL_BYTES = 16

Blocks = NDArray[np.uint32]  # pads: 128 bits each, as four words

_WIDTH = 256  # values of a row, which share one u
_DIGIT_BITS = 13  # of an element: 256 products of a digit with 32 bits are exact in float64
_BLOCK = 64  # rows at a time: they stay in the L2 cache, and 64 products of a digit with 32 bits are exact
_OFFSET = 1 << VALUE_BITS  # makes values positive, so that their halves are plain words


def copies(modulus: int) -> int:
    """Return how many independent tags modulo this prime it takes, so that no forgery passes."""
    return ceil(FORGERY_BITS / (log2(modulus) - 1))


class Weights:
    """The weights β of one place, for vectors of one length."""

    def __init__(self, seed: Secret, size: int, modulus: int = PRIME) -> None:
        self._size, self._modulus = size, modulus
        rows = -(-size // _WIDTH)
        # 61 bits modulo p: no element is likelier than 1/p + 2^-61, which is all that a forger can gain.
        elements = (expand(seed, rows + _WIDTH) >> np.uint64(3)) % np.uint64(modulus)
        u, v = elements[:rows], elements[rows:]
        # Of a short vector each product by itself is quicker than a matrix of them.
        self._few = [int(u[0]) * int(weight) % modulus for weight in v[:size]] if rows == 1 else []
        self._u, self._v = _digits(u, modulus), _digits(v, modulus)
        # Of the offset, which is added to every value, those of the last row that are not there among them.
        self._excess = _OFFSET * sum(u.tolist()) * sum(v.tolist())

    def product(self, integers: Integers | Ring) -> int:
        """Return ⟨β, x⟩ modulo p; refuse other than the agreed number of values, or one beyond 60 bits."""
        values = np.ascontiguousarray(integers, np.int64)
        if values.shape != (self._size,):
            raise DataError(f"{values.size} values to tag, agreed were {self._size}")
        if values.size and not (-_OFFSET < values.min() and values.max() < _OFFSET):
            raise DataError(f"a value needs more than {VALUE_BITS} bits and its sign: use fewer bits")
        if self._few:
            products: Iterable[int] = map(mul, self._few, values.tolist())
            return sum(products) % self._modulus
        found = np.zeros((2, 2, self._u.shape[1], 2 * self._v.shape[1]), np.uint64)
        for first in range(0, len(self._u), _BLOCK):
            part = values[first * _WIDTH : (first + _BLOCK) * _WIDTH]
            if short := -len(part) % _WIDTH:
                part = np.concatenate([part, np.zeros(short, np.int64)])
            words = (part + _OFFSET).astype("<i8", copy=False).view("<u4").reshape(-1, _WIDTH, 2)
            # Digit k of an element counts 2^13k, and the upper half of a word or a product 2^32.
            low, high = (words[:, :, half].astype(np.float64) @ self._v for half in (0, 1))
            rows = np.hstack([low, high]).astype(np.uint64)
            for half, digits in enumerate(_halves(rows)):
                sums = self._u[first : first + _BLOCK].T @ digits.astype(np.float64)
                found[half] += _halves(sums.astype(np.uint64))
        rest: int = (_whole(found) - self._excess) % self._modulus
        return rest


def _digits(elements: Ring, modulus: int) -> NDArray[np.float64]:
    shifts = np.arange(0, modulus.bit_length(), _DIGIT_BITS, dtype=np.uint64)
    return ((elements[:, None] >> shifts) & np.uint64((1 << _DIGIT_BITS) - 1)).astype(np.float64)


def _halves(words: Ring) -> tuple[Ring, Ring]:
    return words & np.uint64(0xFFFFFFFF), words >> np.uint64(32)


def _whole(found: Ring) -> int:
    """Put together sums: by halves of products and of sums, digits of u, halves and digits of values."""
    shifts, places = _places_of(found.shape[2], found.shape[3] // 2)
    # Numbers of one place are added first: their sums are exact, far below 2^53.
    sums = np.bincount(places, found.reshape(-1).astype(np.float64)).astype(np.uint64)
    return sum(map(lshift, sums.tolist(), shifts))


@lru_cache(maxsize=16)
def _places_of(u_digits: int, v_digits: int) -> tuple[list[int], NDArray[np.intp]]:
    """Return the powers of two that occur, and which of them each number counts by."""
    halves, digits = np.arange(2) * 32, np.arange(max(u_digits, v_digits)) * _DIGIT_BITS
    value = (halves[:, None] + digits[:v_digits]).reshape(-1)
    whole = halves[:, None, None, None] + halves[:, None, None] + digits[:u_digits, None] + value
    shifts, places = np.unique(whole.reshape(-1), return_inverse=True)
    return shifts.tolist(), places


class DerivedKey:
    """A key from which others follow, one for each purpose and place."""

    def __init__(self, secret: Secret, kind: bytes) -> None:
        self._key = hmac.digest(secret.reveal(), kind, "sha256")
        self.id = self.derive("id", b"")[:16]  # for caches: tells nothing of the key

    def derive(self, purpose: str, place: bytes) -> bytes:
        """Return the key of 32 bytes for a purpose at a place."""
        return hmac.digest(self._key, bound(purpose, place), "sha256")


class TagKey(DerivedKey):
    """Makes the weights and pads of every place from a key that the adder must not have."""

    def __init__(self, secret: Secret) -> None:
        super().__init__(secret, b"tacit linear tags")

    def weights(self, place: bytes, size: int, modulus: int = PRIME) -> Weights:
        """Return the weights of a place for vectors of that length."""
        return Weights(Secret(self.derive("weights", place)), size, modulus)

    def fingerprint(self, place: bytes, integers: Integers) -> bytes:
        """Return what tells a vector from others, and nothing of it without the key."""
        return hmac.digest(self.derive("fingerprint", place), integers.tobytes(), "sha256")

    def pads(self, place: bytes, labels: bytes) -> Blocks:
        """Return the pads of many labels, given by their digests."""
        return label_blocks(self.derive("pads", place), labels)


def label_digests(labels: Iterable[bytes]) -> bytes:
    """Return what stands for labels when pads are made: a digest of each, one after the other."""
    return b"".join([hashlib.sha256(label).digest()[:LABEL_BYTES] for label in labels])


def label_blocks(key: bytes, labels: bytes) -> Blocks:
    """Return 128 bits for each label's digest: AES under the key, as a pseudorandom function."""
    blocks = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(labels)
    return np.frombuffer(blocks, "<u4").reshape(-1, 4)


def add_pads(pads: Blocks, counts: NDArray[np.uint64] | None = None, modulus: int = PRIME) -> int:
    """Return the sum of pads, each as often as ``counts`` says, modulo p: uniform but for 2^-67."""
    often = np.ones(len(pads), np.uint64) if counts is None else counts
    if sum(often.tolist()) >= 1 << 32:
        raise ProtectionError("a total in which contributions count billions of times")
    sums = (pads * often[:, None]).sum(axis=0, dtype=np.uint64)
    return sum(int(word) << (32 * place) for place, word in enumerate(sums)) % modulus
