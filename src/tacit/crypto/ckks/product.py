"""A plain matrix times encrypted columns: ``[[w]] = A [[m]]`` for all outputs at once.

A rotation by ``k * columns`` slots is cyclic in the features for every output (see
:mod:`tacit.crypto.ckks.packing`), and the product is the sum over k of the k-th diagonal times the columns
rotated k steps (Halevi and Shoup, CRYPTO 2014). Baby steps and giant steps take 2 √n rotations instead of n.
Diagonals are taken modulo the padded size n, a power of two: that is the period of the rotations.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.core.errors import ConfigError
from tacit.crypto.ckks.keys import load_rotations
from tacit.crypto.ckks.packing import COLUMNS, PRODUCT, columns, padded, places
from tacit.crypto.ckks.parameters import ParameterSet, ring_of
from tacit.crypto.seal import seal
from tacit.crypto.seal.blob import LEAST, MOST, all_residues, ciphertexts_of, read, write
from tacit.crypto.seal.residues import from_seal

Floats = NDArray[np.float64]
Diagonals = list[list[Any]]  # encoded, by giant and baby step; None where all elements are zero


def rotations_for(parameters: ParameterSet, features: int) -> tuple[int, ...]:
    """Return the steps that a product over so many features rotates by, and needs keys for.

    >>> from tacit.crypto.ckks.parameters import parameter_set
    >>> len(rotations_for(parameter_set("product"), 51)), rotations_for(parameter_set("product"), 1)
    (14, ())
    """
    if not 1 <= features <= parameters.slots:
        raise ConfigError(
            f"{features:,} features: a ciphertext of set '{parameters.name}' holds 1 to {parameters.slots:,}"
        )
    width = columns(parameters.slots, features)
    baby, giant = _steps(features)
    small = (step * width for step in range(1, baby))
    return (*small, *(step * baby * width for step in range(1, giant)))


class Product:
    """Multiplies encrypted columns by a plain matrix, with rotation keys but without the secret.

    ``evaluation`` are the rotation keys, made for :func:`rotations_for` the features.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.crypto.ckks import Cipher, make_keys, parameter_set
    >>> chosen = parameter_set("product-small")
    >>> keys = make_keys(chosen, rotations_for(chosen, 2))
    >>> cipher, product = Cipher(chosen, keys.secret), Product(chosen, keys.evaluation, keys.key_id)
    >>> blob = cipher.encrypt_columns(np.array([[1.0], [2.0]]), bound=2.0, summands=1)
    >>> cipher.decrypt_columns(product.apply(np.array([[0.0, 1.0], [1.0, 1.0]]), blob)).round(2)
    array([[2.], [3.]])
    """

    def __init__(self, parameters: ParameterSet, evaluation: bytes, key_id: bytes) -> None:
        parameters.column_amplification(1)  # refuses a set that does not multiply
        self._ring = ring_of(parameters)
        self._key_id = key_id
        self._keys, self._steps = load_rotations(self._ring, evaluation, key_id)

    def apply(self, matrix: ArrayLike, blob: bytes) -> bytes:
        """Multiply: one matrix (features × features) for all outputs, or a stack: one per output, or
        one for every few outputs that stand together.
        """
        ring, parameters = self._ring, self._ring.parameters
        header = read(ring, self._key_id, blob, COLUMNS)
        values = _checked(np.asarray(matrix, dtype=np.float64), header.rows, header.outputs)
        missing = set(rotations_for(parameters, header.rows)) - self._steps
        if missing:
            raise ConfigError(
                f"{len(missing)} rotation keys are missing for {header.rows:,} features: make keys with "
                f"rotations_for(parameters, {header.rows})"
            )
        # Rows add up to the reach at most, so no total of declared summands can leave the headroom.
        factor = float(np.abs(values).sum(axis=-1).max())
        scaled = values * (parameters.matrix_reach(header.summands) / factor)
        chunks = ciphertexts_of(ring, header, all_residues(ring, header, blob))
        diagonals = self._diagonals(scaled, len(chunks))
        found = []
        for index, chunk in enumerate(chunks):
            result = self._multiply(chunk, diagonals[index % len(diagonals)], header.rows)
            found.append(from_seal(ring, len(ring.primes) - 1, result)[0])
        made = replace(header, form=PRODUCT, seeded=False, factor=factor)
        # First all first polynomials, then all second ones.
        return write(ring, made, [np.stack([residues[:, 0] for residues in found], axis=1)])

    def _multiply(self, chunk: Any, diagonals: Diagonals, features: int) -> Any:
        evaluator = self._ring.evaluator
        width = columns(self._ring.parameters.slots, features)
        baby, _ = _steps(features)
        rotated = [chunk]
        for step in range(1, baby):
            rotated.append(seal.Ciphertext())
            evaluator.rotate_vector(chunk, step * width, self._keys, rotated[-1])
        total: Any = None
        for giant, row in enumerate(diagonals):
            inner: Any = None
            for source, diagonal in zip(rotated, row, strict=True):
                if diagonal is None:
                    continue
                term = seal.Ciphertext()
                evaluator.multiply_plain(source, diagonal, term)
                inner = _added(evaluator, inner, term)
            if inner is not None:
                if giant:
                    evaluator.rotate_vector_inplace(inner, giant * baby * width, self._keys)
                total = _added(evaluator, total, inner)
        if total is None:
            raise ConfigError("the matrices of some outputs hold nothing but zeros: leave these outputs out")
        evaluator.rescale_to_next_inplace(total)
        return total

    def _diagonals(self, matrix: Floats, chunks: int) -> list[Diagonals]:
        """Encode the diagonals of one matrix for all chunks, or of the matrices of each."""
        if matrix.ndim == 2:
            return [self._encode(matrix[None])]
        each = -(-len(matrix) // chunks)
        return [self._encode(matrix[at * each : (at + 1) * each]) for at in range(chunks)]

    def _encode(self, matrices: Floats) -> Diagonals:
        ring, slots = self._ring, self._ring.parameters.slots
        features = matrices.shape[-1]
        size, width = padded(features), columns(slots, features)
        baby, giants = _steps(features)
        square = np.zeros((len(matrices), size, size))
        square[:, :features, :features] = matrices
        order, _ = places(slots, features)
        rows = np.arange(size)
        packed = np.zeros((size, width))
        encoded: Diagonals = []
        for giant in range(giants):
            encoded.append([])
            shifted = (rows - giant * baby) % size  # undone by the giant step's rotation
            for step in range(baby):
                diagonal = square[:, shifted, (rows + step) % size].T
                if len(matrices) == 1:
                    packed[:] = diagonal  # one matrix serves every output
                else:
                    packed[:, order[: len(matrices)]] = diagonal
                plain = seal.Plaintext()
                ring.encoder.encode(packed.reshape(-1).tolist(), ring.scale(len(ring.primes)), plain)
                encoded[-1].append(None if plain.is_zero() else plain)
        return encoded


def _steps(features: int) -> tuple[int, int]:
    """Return the numbers of baby and giant steps, whose product is the padded size."""
    bits = padded(features).bit_length() - 1
    return 1 << (bits + 1) // 2, 1 << bits // 2


def _added(evaluator: Any, total: Any, term: Any) -> Any:
    if total is None:
        return term
    evaluator.add_inplace(total, term)
    return total


def _checked(matrix: Floats, features: int, outputs: int) -> Floats:
    square = (features, features)
    groups = len(matrix) if matrix.ndim == 3 else 0
    if groups and matrix.shape[1:] == square and outputs % groups == 0:
        matrix = np.repeat(matrix, outputs // groups, axis=0)
    elif matrix.shape != square:
        raise ConfigError(
            f"matrix of shape {matrix.shape} for {features} features and {outputs} outputs: give {square}, "
            f"or one per output as {(outputs, *square)}, or one for every few"
        )
    if not LEAST * features < np.abs(matrix).max() < MOST / features:
        raise ConfigError("the matrix of a product holds NaN or infinity, or nothing but zeros")
    return matrix
