"""Weighted least squares from pieces: factors that merge, Gram matrices that add, triangles that stack.

Rows A stand for F X, right-hand sides b for F d̄; all three ways give the w that minimises
‖b - A w‖² + λ‖w‖². What differs is what a piece reveals, what it costs, and how it rounds: a Gram matrix
squares the condition number, factors and triangles do not.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtri

from tacit.core.errors import DataError

Matrix = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)
WANTED = 1e-6  # relative error of weights that Gram arithmetic must promise


def factor(A: Matrix) -> Matrix:
    """Return U S of Aᵀ = U S Vᵀ for rows A, without ever forming V; rank many columns."""
    # R of A = QR has the same U and S as A, and is small.
    small = np.asarray(np.linalg.qr(A, mode="r")) if A.shape[0] > A.shape[1] else A
    U, S, _ = np.linalg.svd(small.T, full_matrices=False)
    kept = max(1, int(np.count_nonzero(meaningful(S, A))))
    return np.asarray(U[:, :kept] * S[:kept])


def merge(factors: Sequence[Matrix], rank: int | None = None) -> Matrix:
    """Return U S of all rows from the factors of parts of them; the ``rank`` largest directions, or all."""
    return factor(np.concatenate([US.T for US in factors]))[:, :rank]


def operator(US: Matrix, lam: float) -> Matrix:
    """Return U (S² + λI)⁻¹ Uᵀ, to multiply the right-hand side by; with λ = 0 the pseudo-inverse."""
    U, S, _ = np.linalg.svd(US, full_matrices=False)
    kept = meaningful(S, US) if lam == 0 else np.ones(len(S), dtype=bool)
    return np.asarray((U[:, kept] / (S[kept] ** 2 + lam)) @ U[:, kept].T)


def solve(US: Matrix, m: Matrix, lam: float) -> Matrix:
    """Solve for w = U (S² + λI)⁻¹ Uᵀ m; with λ = 0 the solution of least norm."""
    U, S, _ = np.linalg.svd(US, full_matrices=False)
    kept = meaningful(S, US) if lam == 0 else np.ones(len(S), dtype=bool)
    return np.asarray(U[:, kept] @ ((U[:, kept].T @ m) / (S[kept, None] ** 2 + lam)))


def meaningful(S: Matrix, A: Matrix) -> NDArray[np.bool_]:
    """Return which singular values of a matrix are more than rounding."""
    return np.asarray(S > S.max(initial=0.0) * max(A.shape) * EPS)


@lru_cache(maxsize=16)
def _upper_places(size: int) -> NDArray[np.int64]:
    """Return the upper triangle's places in the flat matrix: all clients of a process ask for the same."""
    rows, columns = np.triu_indices(size)
    return rows * size + columns


def upper(gram: Matrix) -> Matrix:
    """Return the upper triangle of a symmetric matrix, as a vector."""
    return gram.reshape(-1)[_upper_places(len(gram))]


def symmetric(triangle: Matrix, size: int) -> Matrix:
    """Return the symmetric matrix of an upper triangle."""
    gram = np.zeros((size, size))
    gram.reshape(-1)[_upper_places(size)] = triangle
    return np.asarray(gram + np.triu(gram, 1).T)


def solve_gram(gram: Matrix, m: Matrix, penalty: Matrix, error: float) -> Matrix:
    """Solve (G + diag(penalty)) v = m for an equilibrated Gram matrix; refused if its digits do not suffice.

    Entries lie in [-1, 1] and have a typical ``error``. The columns of constant features are zero, and get
    the weight zero.
    """
    used = np.diag(gram) > 0
    system = gram[np.ix_(used, used)] + np.diag(penalty[used])
    # Random errors of that size make a matrix of spectral norm 2 √n error; so much does the least
    # eigenvalue move.
    doubt = 2 * np.sqrt(len(system)) * (error + EPS)
    solution = np.zeros_like(m)
    if (inverse := _inverse_root(system, doubt / WANTED)) is not None:
        solution[used] = inverse.T @ (inverse @ m[used])
        return solution
    values, vectors = np.linalg.eigh(system)
    # Where the penalty, not the rows, makes up an eigenvalue, as where the columns of a category repeat one
    # another, outputs of rows hardly depend on the weights: a hundredth of those will do.
    idle = (vectors * (gram[np.ix_(used, used)] @ vectors)).sum(axis=0) < values / 2
    if not (values * np.where(idle, 0.01, WANTED) > doubt).all():
        raise DataError(
            f"the least eigenvalue of the Gram matrix, exact to {doubt:.0e}, is too small for weights to "
            f"{WANTED:g}: raise lam, drop features that repeat others, give the protection more bits, or, "
            "where the coordinator is trusted, set mode = 'robust'",
            private=f"it is {max(values[0], 0.0):.1e}",
        )
    solution[used] = vectors @ ((vectors.T @ m[used]) / values[:, None])
    return solution


def _inverse_root(system: Matrix, least: float) -> Matrix | None:
    """Return K, KᵀK the inverse, if all eigenvalues surely exceed a limit: none is below 1 over its trace."""
    try:
        root: Matrix = dtrtri(np.linalg.cholesky(system), lower=1)[0]
    except np.linalg.LinAlgError:
        return None
    return root if np.vdot(root, root) * least < 1 else None


def triangle(A: Matrix, b: Matrix) -> Matrix:
    """Return R of [A | b] = QR: all that least squares needs of the rows, at their own condition number."""
    return np.asarray(np.linalg.qr(np.concatenate([A, b], axis=1), mode="r"))


def stack(triangles: Sequence[Matrix]) -> Matrix:
    """Return the triangle of all rows from the triangles of parts of them (TSQR)."""
    return np.asarray(np.linalg.qr(np.concatenate(triangles), mode="r"))


def solve_triangle(R: Matrix, outputs: int, lam: float) -> Matrix:
    """Solve least squares from a triangle; with λ = 0 the solution of least norm."""
    width = R.shape[1] - outputs
    A, b = R[:, :width], R[:, width:]
    if lam > 0:
        A = np.concatenate([A, np.sqrt(lam) * np.eye(width)])
        b = np.concatenate([b, np.zeros((width, outputs))])
    # Columns of one length: else those in small units would be taken for rounding.
    lengths = np.linalg.norm(A, axis=0)
    lengths[lengths == 0] = 1.0
    found, _, rank, _ = np.linalg.lstsq(A / lengths, b, rcond=None)
    if rank < width:  # of many solutions the one of least norm, which is one of weights as they are
        return np.asarray(np.linalg.lstsq(A, b, rcond=None)[0], dtype=np.float64)
    return np.asarray(found / lengths[:, None], dtype=np.float64)
