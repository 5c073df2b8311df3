"""BFV by Microsoft SEAL: encrypted vectors of integers that add up exactly, without the key.

Key holders encrypt and decrypt (:class:`Cipher`), the coordinator adds (:class:`Adder`). Encryption is
symmetric and seeded: the second polynomial of a ciphertext is pseudorandom, and its seed travels instead.
Integers lie in the coefficients of the plaintext, and of the first polynomial only those coefficients travel
that hold one. Totals come out exactly: an honest sum cannot exceed its noise budget
(:mod:`tacit.crypto.bfv.parameters` bounds it), so that what is opened tells nothing of noise or key.

**Security** rests on ring learning with errors, at parameters that SEAL checks against the table of the
Homomorphic Encryption Standard for 128 bits: degree 4096 with at most 109 bits of modulus, or 2048 with 54;
ours have at most 109 and 52. BFV does not stand up to ciphertexts that are made to be decrypted: key holders
decrypt only what came through an authentic channel, and protections have totals prove whose sum they are.

Reference: Fan, Vercauteren, "Somewhat practical fully homomorphic encryption", 2012; Bajard, Eynard, Hasan,
Zucca, "A full RNS variant of FV like somewhat homomorphic encryption schemes", 2016, which SEAL implements.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, MessageError
from tacit.core.secret import Secret
from tacit.crypto.bfv.parameters import Parameters, ring_of
from tacit.crypto.seal import adder, blob, seal
from tacit.crypto.seal.blob import Form, Header, all_residues, ciphertexts_of, write_encrypted
from tacit.crypto.seal.residues import Residues, plain_from_seal, plain_to_seal
from tacit.crypto.seal.ring import Expanded, expand, new_secret

__all__ = ["Adder", "Cipher", "Parameters", "make_key", "read"]

Integers = NDArray[np.int64]

_NAMED = Parameters(2048, 52, 32)  # whichever rings are used, keys are named by this one's


INTEGERS = Form(
    code=4,
    chunks=lambda ring, header: -(-header.rows // ring.degree),
    kept=lambda ring, header: -(-header.rows // 8) * 8,
    sound=lambda ring, header: (header.outputs, header.bound, header.factor) == (1, 1.0, 1.0),
)


def make_key() -> tuple[Secret, bytes]:
    """Draw a key: a secret for the key holders, and its id, which tells nothing of it, for everyone."""
    secret = new_secret()
    return secret, expand(ring_of(_NAMED), secret).key_id


class Cipher:
    """Encrypts and decrypts for those who hold the key.

    Examples
    --------
    >>> secret, key_id = make_key()
    >>> chosen = Parameters.holding(values=2, plain_bits=20, summands=3)
    >>> cipher, adder = Cipher(secret), Adder(chosen, key_id)
    >>> for client in range(3):
    ...     adder.add(cipher.encrypt(np.array([1_000, -client]), chosen, summands=3))
    >>> cipher.decrypt(adder.total(), chosen)
    array([3000,   -3])
    >>> cipher
    Cipher(BFV)
    """

    def __init__(self, secret: Secret) -> None:
        self._secret = secret
        self._keys: dict[Parameters, Expanded] = {}
        self.key_id = self._expanded(_NAMED).key_id

    def __repr__(self) -> str:
        return "Cipher(BFV)"

    def _expanded(self, parameters: Parameters) -> Expanded:
        if parameters not in self._keys:
            self._keys[parameters] = expand(ring_of(parameters), self._secret)
        return self._keys[parameters]

    def encrypt(self, integers: Integers, parameters: Parameters, summands: int) -> bytes:
        """Encrypt integers that will be added to others, ``summands`` vectors of them at the most.

        Their total is known modulo ``2 ** parameters.plain_bits``, around zero.
        """
        parameters.check(summands)
        values = np.asarray(integers)
        if values.ndim != 1 or not values.size or values.dtype != np.int64:
            raise ConfigError(
                f"{values.dtype} of shape {values.shape} to encrypt: give int64s in one dimension"
            )
        top = 1 << (parameters.plain_bits - 1)
        if values.min() < -top or values.max() >= top:
            raise MessageError(
                f"an integer to encrypt needs more than the {parameters.plain_bits} bits of its ring, its "
                "sign included: take a larger plain modulus"
            )
        ring, encryptor = ring_of(parameters), self._expanded(parameters).encryptor
        header = Header(INTEGERS, True, self.key_id, values.size, 1, 1, summands)
        words = (values & ((1 << parameters.plain_bits) - 1)).view(np.uint64)
        starts = range(0, values.size, ring.degree)
        plains = (plain_to_seal(ring, words[first : first + ring.degree]) for first in starts)
        return write_encrypted(ring, header, encryptor, plains)

    def decrypt(self, encrypted: bytes, parameters: Parameters) -> Integers:
        """Decrypt a sum, exactly."""
        header = read(parameters, self.key_id, encrypted)
        return self.open(header, all_residues(ring_of(parameters), header, encrypted), parameters)

    def open(self, header: Header, residues: Mapping[int, Residues], parameters: Parameters) -> Integers:
        """Decrypt the residues of a sum that was read and checked."""
        ring, decryptor = ring_of(parameters), self._expanded(parameters).decryptor
        words, plain = np.zeros(header.rows, np.uint64), seal.Plaintext()
        for number, ciphertext in enumerate(ciphertexts_of(ring, header, residues)):
            decryptor.decrypt(ciphertext, plain)
            chunk = words[ring.degree * number : ring.degree * (number + 1)]
            if plain.coeff_count() > chunk.size:  # what lies beyond means nothing
                plain.resize(chunk.size)
            coefficients = plain_from_seal(plain)  # without zeros at its end
            chunk[: coefficients.size] = coefficients
        unused = 64 - parameters.plain_bits
        return (words << np.uint64(unused)).view(np.int64) >> unused


class Adder(adder.Adder):
    """Adds encrypted vectors without any key."""

    def __init__(self, parameters: Parameters, key_id: bytes) -> None:
        super().__init__(ring_of(parameters), key_id, INTEGERS)


def read(parameters: Parameters, key_id: bytes, encrypted: bytes) -> Header:
    """Check a blob, and that its ring has room for the summands that it declares; return its header."""
    header = blob.read(ring_of(parameters), key_id, encrypted, INTEGERS)
    parameters.check(header.summands)
    return header
