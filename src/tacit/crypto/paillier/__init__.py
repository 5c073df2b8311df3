"""Paillier encryption of whole vectors: encrypted sums that are exact, at ten bytes a value.

What it promises: single vectors stay hidden from whoever lacks the private key, and a total is exact or
refused. What it does not: blobs can be altered on purpose (add a seal or a signature), their length,
packing and number of summands are in the clear, and the key holder can open every blob it gets.
"""

import secrets

from gmpy2 import mpz

from tacit.core.errors import ProtectionError
from tacit.core.secret import Secret
from tacit.crypto.paillier import blob as blobs
from tacit.crypto.paillier.blob import Header, Packing, read_ciphertexts, read_header
from tacit.crypto.paillier.keys import PublicKey, ShortKeyWarning
from tacit.crypto.paillier.private import PrivateKey, make_keys

__all__ = [
    "Adder",
    "Packing",
    "PrivateKey",
    "PublicKey",
    "ShortKeyWarning",
    "add_blobs",
    "blind",
    "make_keys",
    "read_header",
    "unblind",
]


class Adder:
    """Adds encrypted vectors one after the other, without any secret.

    The total is a function of its summands: who saw those can recognise it. All blobs must be under ``key``,
    and packed as ``packing`` says, or as the first one is.
    """

    def __init__(self, key: PublicKey, *, packing: Packing | None = None) -> None:
        self._key, self._packing = key, packing
        self._header: Header | None = None
        self._totals: list[mpz] = []

    def add(self, blob: bytes) -> None:
        """Add a blob; one that is refused leaves the total as it was."""
        key, so_far = self._key, self._header
        header = read_header(key, blob, so_far.packing if so_far else self._packing)
        if so_far is None:
            self._totals, self._header = read_ciphertexts(key, blob), header
            return
        if header.count != so_far.count:
            raise ProtectionError(
                f"encrypted vector of {header.count:,} values, the total has {so_far.count:,}: "
                "all parties must send the same layout"
            )
        summands = header.packing.check_summands(so_far.summands + header.summands)
        square, numbers = key.modulus_squared, read_ciphertexts(key, blob)
        self._totals = [total * number % square for total, number in zip(self._totals, numbers, strict=True)]
        self._header = Header(key.key_id, header.packing, header.count, summands)

    def total(self) -> bytes:
        """Return the encrypted total so far; more may be added afterwards."""
        if self._header is None:
            raise ProtectionError("nothing was added: there is no total to give")
        # A total is invertible only if all its summands are: one look for all that came in.
        blobs.check_invertible(self._key, self._totals)
        return blobs.write_blob(self._key, self._header, self._totals)


def add_blobs(key: PublicKey, first: bytes, second: bytes) -> bytes:
    """Add two encrypted vectors."""
    adder = Adder(key)
    adder.add(first)
    adder.add(second)
    return adder.total()


def blind(key: PublicKey, blob: bytes) -> tuple[bytes, Secret]:
    """Return a blob that opens to something uniform, and what takes that off again.

    A ciphertext of m times 1 + n R is one of m + R modulo n, since (1 + n)^R = 1 + n R modulo n². With R
    uniform below n, m + R is uniform as well, and tells not even the key holder anything of m.
    """
    header, numbers = read_header(key, blob), read_ciphertexts(key, blob)
    randoms = [secrets.randbelow(int(key.modulus)) for _ in numbers]
    raw = b"".join(random.to_bytes(key.ciphertext_bytes, "little") for random in randoms)
    return blobs.write_blob(key, header, _multiplied(key, numbers, randoms)), Secret(raw)


def unblind(key: PublicKey, blob: bytes, blinding: Secret) -> bytes:
    """Return a blob, or what was added to it since, without its blinding."""
    header, numbers = read_header(key, blob), read_ciphertexts(key, blob)
    size, raw = key.ciphertext_bytes, blinding.reveal()
    if len(raw) != size * len(numbers):
        raise ProtectionError(f"a blinding of {len(raw) // size} ciphertexts, these are {len(numbers)}")
    randoms = [-int.from_bytes(raw[at : at + size], "little") for at in range(0, len(raw), size)]
    return blobs.write_blob(key, header, _multiplied(key, numbers, randoms))


def _multiplied(key: PublicKey, numbers: list[mpz], randoms: list[int]) -> list[mpz]:
    modulus, square = key.modulus, key.modulus_squared
    pairs = zip(numbers, randoms, strict=True)
    return [number * (1 + modulus * random) % square for number, random in pairs]
