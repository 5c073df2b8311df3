"""Encrypted vectors: how values are packed into big integers, and the bytes that travel.

**Packing**: many signed integers in one big one, such that adding the big ones adds each of them. A vector v
becomes M = Σ vᵢ·2^(width·i), itself a signed integer: a negative slot borrows from the next. Sums and integer
multiples of such M stay of this form as long as every slot total Sᵢ is shorter than its slot, that is, below
2^(width-1) in size. Then all digits of M + Σ 2^(width-1)·2^(width·i) are in range, and each is
Sᵢ + 2^(width-1): no summand needs an offset of its own and no count is needed to decode.

**Bytes**, little-endian throughout:

    b"TPV" version | key id | value bits | guard bits | 2 zeros | count, uint64 | summands, uint64
    | ciphertexts, each as long as n² | SHA-256 of all that

The checksum tells damage from a foreign key; it proves nothing about who sent the bytes, which is for the
channel that carries them. ``summands`` counts what was added, each with its weight, so that the guard bits
cannot overflow unnoticed.
"""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import ArrayLike, NDArray

from tacit.core.errors import ConfigError, MessageError, ProtectionError

if TYPE_CHECKING:
    from tacit.crypto.paillier.keys import PublicKey

MARGIN = 2  # bits of the modulus left free: every packed total is below a half of it


@dataclass(frozen=True)
class Packing:
    """How values are laid side by side: bits for a value, and bits for the growth of its sum.

    Parameters
    ----------
    value_bits : int
        Values are signed, ``|v| < 2**(value_bits - 1)``; 2 to 64.
    guard_bits : int
        Up to ``2**guard_bits`` summands may be added; 0 to 63.
    """

    value_bits: int = 24
    guard_bits: int = 16

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("value_bits", self.value_bits, 2, 64),
            ("guard_bits", self.guard_bits, 0, 63),
        ):
            if type(value) is not int or not least <= value <= most:
                raise ConfigError(f"{name} is {value!r}: it must be a whole number from {least} to {most}")

    @property
    def width(self) -> int:
        """Bits per slot."""
        return self.value_bits + self.guard_bits

    @property
    def largest(self) -> int:
        """Largest magnitude of a value."""
        return (1 << (self.value_bits - 1)) - 1

    @property
    def max_summands(self) -> int:
        """Largest number of summands that the guard bits have room for."""
        return 1 << self.guard_bits

    def slots(self, modulus_bits: int) -> int:
        """Return how many values one ciphertext holds."""
        return (modulus_bits - MARGIN) // self.width

    def check_summands(self, summands: int) -> int:
        """Return the number of summands, or refuse what the guard bits cannot hold."""
        if summands > self.max_summands:
            raise ProtectionError(
                f"{summands:,} summands (weights count) and {self.guard_bits} guard bits hold "
                f"{self.max_summands:,}: raise guard_bits, or use smaller weights"
            )
        return summands

    def pack(self, values: ArrayLike, modulus_bits: int) -> list[mpz]:
        """Pack a vector into signed integers; the last one is filled up with zeros."""
        half, slots = 1 << (self.width - 1), self.slots(modulus_bits)
        offset = self._offset(slots)
        digits = [value + half for value in self._checked(values).tolist()]
        digits += [half] * (-len(digits) % slots)
        starts = range(0, len(digits), slots)
        return [gmpy2.pack(digits[start : start + slots], self.width) - offset for start in starts]

    def unpack(self, totals: Sequence[int], count: int, modulus: int, summands: int) -> NDArray[Any]:
        """Return the exact slot totals of ``count`` values: int64, or Python integers if wider than 64 bits.

        A total larger than ``summands`` values can make it is refused: some summand was not in range, and
        may have spilled over into its neighbour.
        """
        slots = self.slots(int(modulus).bit_length())
        half, offset, sums = 1 << (self.width - 1), self._offset(slots), list[int]()
        for total in totals:
            digits = gmpy2.unpack((total + offset) % modulus, self.width)  # without zeros at their end
            sums += [int(digit) - half for digit in digits] + [-half] * (slots - len(digits))
        bound = self.largest * summands
        spilled = len(sums) > slots * len(totals) or any(sums[count:])
        if spilled or max(sums, default=0) > bound or min(sums, default=0) < -bound:
            raise ProtectionError(
                "a slot total is larger than its summands allow: a contribution was made with other "
                "settings or values out of range, and its neighbours cannot be trusted; drop it and sum again"
            )
        return np.array(sums[:count], np.int64 if self.width <= 64 else object)

    def _checked(self, values: ArrayLike) -> NDArray[np.int64]:
        """Check that values are whole numbers of one axis and in range; the value refused stays private."""
        numbers = np.asarray(values)
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            raise ConfigError(
                f"values are {numbers.dtype}{list(numbers.shape)}: pass whole numbers of one axis "
                "(scale and round floats first)"
            )
        if numbers.size:
            low, high = int(numbers.min()), int(numbers.max())
            if max(-low, high) > self.largest:
                raise ProtectionError(
                    f"a value exceeds ±{self.largest:,}, the largest of {self.value_bits} value bits: "
                    "clip it, or raise value_bits",
                    private=f"values reach from {low:,} to {high:,}",
                )
        return numbers.astype(np.int64)

    def _offset(self, slots: int) -> int:
        """Return Σ 2^(width-1)·2^(width·i), which makes every digit non-negative."""
        ones = ((1 << (slots * self.width)) - 1) // ((1 << self.width) - 1)
        return ones << (self.width - 1)


MAGIC, VERSION = b"TPV", 1
_HEADER = struct.Struct("<3sB16sBBHQQ")
_CHECKSUM = 32


@dataclass(frozen=True)
class Header:
    """What a blob says of itself: under which key, how packed, how many values, how many summands."""

    key_id: bytes
    packing: Packing
    count: int
    summands: int


def write_blob(key: "PublicKey", header: Header, ciphertexts: Sequence[mpz]) -> bytes:
    """Encode a header and its ciphertexts."""
    packing = header.packing
    bits = (packing.value_bits, packing.guard_bits)
    head = _HEADER.pack(MAGIC, VERSION, header.key_id, *bits, 0, header.count, header.summands)
    size = key.ciphertext_bytes
    body = b"".join([head, *(number.to_bytes(size, "little") for number in ciphertexts)])
    return body + hashlib.sha256(body).digest()


def read_header(key: "PublicKey", blob: bytes, packing: Packing | None = None) -> Header:
    """Read and check everything but the ciphertexts' values, before anything is allocated."""
    if not isinstance(blob, bytes):
        raise MessageError(f"an encrypted vector is bytes, not {type(blob).__name__}")
    if len(blob) < _HEADER.size + _CHECKSUM:
        raise MessageError(
            f"encrypted vector is truncated: {len(blob)} bytes, it has {_HEADER.size + _CHECKSUM} at least"
        )
    magic, version, key_id, value_bits, guard_bits, zeros, count, summands = _HEADER.unpack_from(blob)
    if magic != MAGIC or version != VERSION or zeros:
        raise MessageError(f"not an encrypted vector of version {VERSION}: it starts with {blob[:4]!r}")
    try:
        found = Packing(value_bits, guard_bits)
    except ConfigError as error:
        raise MessageError(f"encrypted vector with an impossible packing: {error.public}") from None
    # A foreign key may have another length: intact bytes are told apart by key before their length is judged.
    intact = hashlib.sha256(memoryview(blob)[:-_CHECKSUM]).digest() == blob[-_CHECKSUM:]
    if key_id != key.key_id and intact:
        raise ProtectionError(
            f"encrypted under key {key_id.hex()}, this is key {key.key_id.hex()}: "
            "use the key of this federation, or ask the sender to encrypt again"
        )
    expected = _HEADER.size + -(-count // found.slots(key.bits)) * key.ciphertext_bytes + _CHECKSUM
    if len(blob) != expected:
        raise MessageError(
            f"encrypted vector is {'truncated' if len(blob) < expected else 'too long'}: "
            f"{len(blob):,} bytes, {count:,} values take {expected:,}"
        )
    if not intact:
        raise MessageError("encrypted vector is damaged: its checksum does not fit; ask for it again")
    if packing is not None and packing != found:
        raise ProtectionError(
            f"encrypted vector is packed as {found.value_bits}+{found.guard_bits} bits, expected "
            f"{packing.value_bits}+{packing.guard_bits}: all parties must use the same packing"
        )
    if not 1 <= summands <= found.max_summands:
        raise MessageError(f"encrypted vector of {summands:,} summands: 1 to {found.max_summands:,} fit")
    return Header(key_id, found, count, summands)


def read_ciphertexts(key: "PublicKey", blob: bytes) -> list[mpz]:
    """Read the ciphertexts of a blob whose header was read: each in range and none a multiple of n.

    A number that shares only one of the primes with n would pass; making it takes the factors of n.
    :func:`check_invertible` finds that too.
    """
    size, read = key.ciphertext_bytes, mpz.from_bytes
    body = memoryview(blob)[_HEADER.size : -_CHECKSUM]
    numbers = [read(body[start : start + size], "little") for start in range(0, len(body), size)]
    if numbers and max(numbers) >= key.modulus_squared:
        raise MessageError(
            f"ciphertext {numbers.index(max(numbers))} is n² or more: it was not made with this key"
        )
    modulus, divisible = key.modulus, gmpy2.is_divisible
    for index, number in enumerate(numbers):
        if divisible(number, modulus):
            raise MessageError(f"ciphertext {index} is zero or a multiple of n: no encryption gives that")
    return numbers


def check_invertible(key: "PublicKey", numbers: Sequence[mpz]) -> None:
    """Refuse ciphertexts that are not invertible; a product is invertible if all its factors are."""
    modulus, product = key.modulus, mpz(1)
    for number in numbers:
        product = product * number % modulus
    if gmpy2.gcd(product, modulus) != 1:
        raise MessageError("a ciphertext is not invertible modulo n: no encryption gives that")
