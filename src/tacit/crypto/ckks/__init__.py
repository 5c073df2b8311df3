"""CKKS by Microsoft SEAL: encrypted vectors that add up without the key, and are multiplied by a matrix once.

Here values lie in slots: key holders encrypt and decrypt (:class:`Cipher`), the coordinator adds
(:class:`Adder`) and multiplies (:class:`Product`). :mod:`tacit.crypto.ckks.columns` multiplies small matrices
with values in coefficients. Encryption is symmetric and seeded: half of a ciphertext is a
pseudorandom polynomial, and its seed travels instead. Decryptions are rounded to a unit above the noise,
because noise tells of the key (Li and Micciancio, EUROCRYPT 2021). That is meant for a coordinator that
follows the protocol: CKKS does not stand up to ciphertexts made to be decrypted, so key holders
decrypt only what came through an authentic channel.

Reference: Cheon, Kim, Kim, Song, "Homomorphic encryption for arithmetic of approximate numbers", 2017.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.core.errors import ConfigError, MessageError
from tacit.core.secret import Secret
from tacit.crypto.ckks.keys import Keys, make_keys
from tacit.crypto.ckks.packing import COLUMNS, PRODUCT, SUM, gathering, pack_columns, unpack_columns
from tacit.crypto.ckks.parameters import PARAMETERS, ParameterSet, parameter_set, ring_of
from tacit.crypto.ckks.product import Product, rotations_for
from tacit.crypto.seal import adder, seal
from tacit.crypto.seal.blob import Header, all_residues, ciphertexts_of, read, refuse_overrun, write_encrypted
from tacit.crypto.seal.residues import Residues
from tacit.crypto.seal.ring import expand

__all__ = [
    "PARAMETERS",
    "Adder",
    "Cipher",
    "Keys",
    "ParameterSet",
    "Product",
    "column_unit",
    "make_keys",
    "parameter_set",
    "rotations_for",
]

Floats = NDArray[np.float64]


class Cipher:
    """Encrypts and decrypts for those who hold the key.

    Examples
    --------
    >>> import numpy as np
    >>> chosen = parameter_set("sum")
    >>> keys = make_keys(chosen)
    >>> cipher, adder = Cipher(chosen, keys.secret), Adder(chosen, keys.key_id)
    >>> for client in range(3):
    ...     adder.add(cipher.encrypt(np.array([0.5, -client]), bound=2.0, summands=10))
    >>> cipher.decrypt(adder.total())
    array([ 1.5, -3. ])
    >>> cipher
    Cipher(sum)
    """

    def __init__(self, parameters: ParameterSet, secret: Secret) -> None:
        self._ring = ring_of(parameters)
        self._expanded = expand(self._ring, secret)
        self.parameters = parameters
        self.key_id = self._expanded.key_id

    def __repr__(self) -> str:
        return f"Cipher({self.parameters.name})"

    def encrypt(self, vector: ArrayLike, *, bound: float, summands: int, total: float | None = None) -> bytes:
        """Encrypt a vector of any length, with values of at most ``bound``, to be added to its like.

        ``summands`` of them at the most are added up, and the absolute values of their total are ``total`` at
        most: where that is less than ``bound * summands``, the room goes to precision. All three are public.
        """
        share = bound if total is None else total / summands  # of each summand, on average
        power = self.parameters.amplification(share, summands)
        values = _checked(np.asarray(vector, dtype=np.float64), bound, 1)
        slots = self.parameters.slots
        header = Header(SUM, True, self.key_id, values.size, 1, 1, summands, float(share))
        amplified = np.ldexp(values, power)
        return self._encrypt(header, [amplified[at : at + slots] for at in range(0, values.size, slots)])

    def encrypt_columns(
        self, matrix: ArrayLike, *, bound: float, summands: int, total: float | None = None
    ) -> bytes:
        """Encrypt a matrix (features × outputs) that will be added up and multiplied from the left."""
        share = bound if total is None else total / summands  # of each summand, on average
        power = self.parameters.column_amplification(summands)
        self.parameters.check_declared(share, summands)
        values = _checked(np.asarray(matrix, dtype=np.float64), bound, 2)
        rows, outputs = values.shape
        if rows > self.parameters.slots:
            raise ConfigError(
                f"{rows:,} features do not fit into one ciphertext of set '{self.parameters.name}', which "
                f"holds {self.parameters.slots:,}: use a larger ring or fewer features"
            )
        header = Header(COLUMNS, True, self.key_id, rows, outputs, 1, summands, float(share))
        packed = pack_columns(values * (math.ldexp(1.0, power) / share), self.parameters.slots)
        return self._encrypt(header, packed)

    def decrypt(self, blob: bytes) -> Floats:
        """Decrypt a sum, rounded to the unit that its parameters promise for its bound and summands."""
        header = read(self._ring, self.key_id, blob, SUM)
        return self.open(header, all_residues(self._ring, header, blob))

    def open(self, header: Header, residues: Mapping[int, Residues]) -> Floats:
        """Decrypt the residues of a sum that was read and checked."""
        power = self.parameters.amplification(header.bound, header.summands)
        limit = math.ldexp(header.bound * header.summands, power)
        values = np.ldexp(self._decrypt(header, residues, limit).reshape(-1)[: header.rows], -power)
        return _rounded(values, self.parameters.rounding_unit(header.bound, header.summands))

    def decrypt_columns(self, encrypted: bytes) -> Floats:
        """Decrypt a matrix (features × outputs): a sum of columns, or its product with a matrix."""
        header = read(self._ring, self.key_id, encrypted, COLUMNS, PRODUCT)
        unit, back = _column_units(self.parameters, header)
        if header.form is PRODUCT:
            limit = self.parameters.product_headroom
        else:
            limit = math.ldexp(header.summands, self.parameters.column_amplification(header.summands))
        slots = self._decrypt(header, all_residues(self._ring, header, encrypted), limit)
        return _rounded(unpack_columns(slots, header.rows, header.outputs), unit) * back

    def _encrypt(self, header: Header, chunks: Iterable[Floats]) -> bytes:
        ring, plain = self._ring, seal.Plaintext()

        def encoded() -> Iterator[Any]:
            for chunk in chunks:
                ring.encoder.encode(chunk.tolist(), ring.scale(len(ring.primes)), plain)
                yield plain

        return write_encrypted(ring, header, self._expanded.encryptor, encoded())

    def _decrypt(self, header: Header, residues: Mapping[int, Residues], limit: float) -> Floats:
        """Decrypt the slots of each chunk; none may be larger than honest summands can make them."""
        plain, slots = seal.Plaintext(), []
        for ciphertext in ciphertexts_of(self._ring, header, residues):
            self._expanded.decryptor.decrypt(ciphertext, plain)
            slots.append(np.array(self._ring.encoder.decode_double(plain)))
        values = np.stack(slots)
        if not np.abs(values).max() <= 1.001 * limit:  # a test for nonsense, which is larger by far
            refuse_overrun(header.summands, header.bound)
        return values


class Adder(adder.Adder):
    """Adds encrypted vectors, or columns, without any key."""

    def __init__(self, parameters: ParameterSet, key_id: bytes) -> None:
        super().__init__(ring_of(parameters), key_id, SUM, COLUMNS)


def column_unit(parameters: ParameterSet, header: Header) -> float:
    """Return the rounding unit of decrypted columns or of their product, whose error is at most one."""
    unit, back = _column_units(parameters, header)
    return unit * back


def _column_units(parameters: ParameterSet, header: Header) -> tuple[float, float]:
    """Return the rounding unit in the slots, and by what they are scaled back."""
    back = math.ldexp(header.bound, -parameters.column_amplification(header.summands))
    if header.form is not PRODUCT:
        return parameters.slot_unit(header.summands), back
    gathered = gathering(parameters.slots, header.rows, header.outputs)
    unit = parameters.product_unit(header.summands, gathered)
    return unit, back * header.factor / parameters.matrix_reach(header.summands)


def _checked(values: Floats, bound: float, dimensions: int) -> Floats:
    if values.ndim != dimensions or not values.size:
        raise ConfigError(f"values of shape {values.shape}: {dimensions} dimensions and one value at least")
    largest = np.abs(values).max()
    if not np.isfinite(largest):
        raise MessageError("values to encrypt hold NaN or infinity: clean them first")
    if largest > bound:
        raise MessageError(
            f"a value to encrypt is beyond the declared bound {bound:g}: clip it, or declare a larger bound",
            private=f"the largest is {largest:g}",
        )
    return values


def _rounded(values: Floats, unit: float) -> Floats:
    return np.rint(values / unit) * unit + 0.0  # no negative zeros
