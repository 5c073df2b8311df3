"""Choosing a penalty, a width and a scale from fold-wise sums: cross-validation without another round.

Clients send the sums of each fold of their rows once. Whoever opens them has, for any candidate, the
solution of all folds but one and its error on that one: the weighted squared error before the activation,

    Σ f'² (d̄ - x w)² = wᵀ G w - 2 wᵀ m + Σ f'² d̄²,

is a function of the sums alone. No row is touched again, and the test set is never seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
FLATTEST = 1e-12  # spread over energy, below which sums cannot tell


@dataclass(frozen=True)
class Candidate:
    """One setting, and its cross-validated error as a share of Σ f'² d̄²."""

    scale: int
    width: int
    lam: float
    error: float


@dataclass(frozen=True)
class Sums:
    """Sums of every fold: there is one Gram matrix for all outputs, or one for each.

    ``gram`` is (folds, scales, grams, size, size), ``m`` (folds, scales, size, outputs), ``energy``
    (folds, outputs).
    """

    gram: Matrix
    m: Matrix
    energy: Matrix


def evened(sums: Sums) -> Sums:
    """The same with every target divided by its spread, so that none decides by its unit.

    The first column is that of the ones: Σ f'² (d̄ - mean)² follows from the sums, too. Of a target whose
    mean is so far beyond its spread that the sums cannot tell, a millionth of its length is taken.
    """
    count, pull = sums.gram[:, 0, :, 0, 0].sum(axis=0), sums.m[:, 0, 0].sum(axis=0)
    energy = sums.energy.sum(axis=0)
    spread = energy - pull**2 / np.where(count > 0, count, 1.0)
    least = np.maximum(spread, FLATTEST * energy)
    unit = np.sqrt(np.where(least > 0, least, 1.0))
    return Sums(sums.gram, sums.m / unit, sums.energy / unit**2)


def ranked(sums: Sums, widths: Sequence[int], lams: Sequence[float]) -> list[Candidate]:
    """All candidates, the best first; of equals the one with fewer units and the larger penalty.

    Widths count units without the bias, which comes first.
    """
    found = []
    for scale in range(sums.gram.shape[1]):
        for width in widths:
            errors = _errors(sums, scale, width + 1, np.array(lams))
            found += [
                Candidate(scale, width, lam, err) for lam, err in zip(lams, errors.tolist(), strict=True)
            ]
    return sorted(found, key=lambda candidate: (candidate.error, candidate.width, -candidate.lam))


def _errors(sums: Sums, scale: int, size: int, lams: Matrix) -> Matrix:
    """Cross-validated error of each penalty at one scale and width: one decomposition serves them all."""
    folds, grams = len(sums.gram), sums.gram.shape[2]
    errors = np.zeros(len(lams))
    for fold in range(folds):
        others = [index for index in range(folds) if index != fold]
        for which in range(grams):
            columns = slice(None) if grams == 1 else slice(which, which + 1)
            held, m_held = sums.gram[fold, scale, which, :size, :size], sums.m[fold, scale, :size, columns]
            learnt = sums.gram[others, scale, which, :size, :size].sum(axis=0)
            m_learnt = sums.m[others, scale, :size, columns].sum(axis=0)
            values, vectors = np.linalg.eigh(learnt)
            values = np.maximum(values, values[-1] * size * np.finfo(np.float64).eps)
            projected = vectors.T @ m_learnt
            # (size, penalties, outputs): weights for every penalty at once
            w = np.tensordot(vectors, projected[:, None, :] / (values[:, None] + lams)[:, :, None], axes=1)
            flat = w.reshape(size, -1)
            quadratic = np.sum(flat * (held @ flat), axis=0).reshape(len(lams), -1).sum(axis=1)
            linear = np.einsum("slo,so->l", w, m_held)
            errors += quadratic - 2 * linear
    energy = sums.energy.sum()
    return np.asarray(1.0 + errors / energy if energy > 0 else errors)  # of targets that are all 0
