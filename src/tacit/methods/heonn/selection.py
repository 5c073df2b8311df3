"""Model selection: by cross-validation from fold-wise sums, and between finalists by one more sum.

Each client splits its rows into folds and sends the sums of every fold. Whoever opens them has, for any
candidate, the solution of all folds but one and its error on that one: the weighted squared error before
the activation,

    Σ f'² (d̄ - x w)² = wᵀ G w - 2 wᵀ m + Σ f'² d̄²,

is a function of the sums alone. So it takes the best, without another round; or it keeps some finalists,
learnt without the first fold, and lets the clients count how often each is right on theirs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve

from tacit.core.errors import DataError
from tacit.core.method import CLASS_WEIGHTS
from tacit.core.party import Party
from tacit.core.shared import Shared, Total
from tacit.methods.heonn.exchange import Units
from tacit.models.leastsquares import Matrix, solve_gram, symmetric

PENALTIES = tuple(10.0**power for power in range(-5, 2))  # tried with a random layer
MIN_SPREAD = 1e-12  # of a target, over its energy: the sums cannot tell smaller ones from rounding
COMPARED = ("finalists", "tried", "finals")  # shared values that only the comparison of finalists needs


class Candidate(NamedTuple):
    """One setting, shared as an array of its first three values, and its cross-validated error."""

    scale: int
    width: int
    lam: float
    error: float = 0.0  # as a share of Σ f'² d̄²


class Sums(NamedTuple):
    """Sums of every fold: there is one Gram matrix for all outputs, or one for each."""

    gram: Matrix  # (folds, scales, grams, size, size)
    m: Matrix  # (folds, scales, size, outputs)
    energy: Matrix  # (folds, outputs)


@dataclass(frozen=True)
class Selection:
    """The settings of :class:`tacit.FedHEONN` that say what is chosen from, with ``folds`` settled."""

    lam: float
    lams: tuple[float, ...]
    folds: int
    finalists: int
    hidden: int

    # -- at the clients ----------------------------------------------------------------------------

    def split_rows(self, party: Party) -> Sequence[Any]:
        """Return which of its rows a client puts into which fold: evenly, by its own randomness."""
        if not self.folds:
            return [slice(None)]
        rng = party.rng("folds")
        order = (rng.permutation(party.data.rows) + int(rng.integers(self.folds))) % self.folds
        return [np.flatnonzero(order == fold) for fold in range(self.folds)]

    # -- where totals open -------------------------------------------------------------------------

    def select(self, total: Total, units: Units) -> dict[str, Any]:
        """Return the best candidate with its weights and sums, or the finalists with the sums of all."""
        if not self.finalists:
            best, weights = next(self._solve_ranked(total, units, slice(None)))
            gram, m = _add_folds(total, slice(None), best)
            return {"weights": weights, "gram": gram, "m": m, "chosen": np.array(best[:3])}
        first_held_out = self._solve_ranked(total, units, slice(1, None))
        finalists, tried = zip(*islice(first_held_out, self.finalists), strict=True)
        every, size = slice(None), len(units.lengths)
        finals = [solve_sums(*_add_folds(total, every, one), units, one, total.error) for one in finalists]
        return {
            "finalists": np.array([one[:3] for one in finalists]),
            "tried": _pad_rows(tried, size),
            "finals": _pad_rows(finals, size),
            "gram": total["gram"].sum(axis=0),
            "m": total["m"].sum(axis=0),
        }

    def choose_finalist(self, right: Matrix, shared: Shared) -> dict[str, Any]:
        """Return the finalist that was right most often."""
        right = right[: len(shared["finalists"])]
        scores = right if CLASS_WEIGHTS in shared else np.rint(right)  # else they are counts
        best = int(np.argmax(scores))  # of equals the one that cross-validation preferred
        chosen = shared["finalists"][best]
        scale, width = int(chosen[0]), int(chosen[1])
        sums = {"gram": shared["gram"][scale], "m": shared["m"][scale]}
        return {"weights": shared["finals"][best][: width + 1], "chosen": chosen, **sums}

    def _solve_ranked(self, total: Total, units: Units, folds: slice) -> Iterator[tuple[Candidate, Matrix]]:
        """Yield candidates with their weights, the best first, if the digits of this sum suffice for them.

        Units of a wide random layer nearly repeat each other, so that small penalties may ask for more
        digits than there are; the next best is then taken. If none is left, the first says why.
        """
        failed, first, found = dict[tuple[int, int], float](), list[DataError](), False
        for candidate in self._rank(total, units):
            place = candidate.scale, candidate.width
            if candidate.lam <= failed.get(place, -1.0):
                continue  # an even smaller penalty
            try:
                weights = solve_sums(*_add_folds(total, folds, candidate), units, candidate, total.error)
            except DataError as refused:
                failed[place] = candidate.lam
                first.append(refused)
                continue
            found = True
            yield candidate, weights
        if first and not found:
            raise first[0]

    def _rank(self, total: Total, units: Units) -> list[Candidate]:
        size = len(units.lengths)
        gram_unit = np.outer(units.lengths, units.lengths) * units.slope**2
        gram = np.apply_along_axis(symmetric, -1, total["gram"], size) * gram_unit
        m = total["m"] * units.lengths[:, None] * (units.slope * units.target_unit)
        sums = Sums(gram, m, total["energy"] * units.target_unit**2)
        if units.target_length is None:  # targets of a regression, each in a unit of its own
            sums = standardise_targets(sums)
        widths = sorted({max(1, self.hidden // part) for part in (4, 2, 1)}) if self.hidden else [size - 1]
        return rank_candidates(sums, widths, self.lams or (PENALTIES if self.hidden else (self.lam,)))


def standardise_targets(sums: Sums) -> Sums:
    """Return the sums with every target divided by its spread, so that none decides by its unit.

    The first column is that of the ones, so Σ f'² (d̄ - mean)² follows from the sums. Of a target whose
    mean is so far beyond its spread that the sums cannot tell, a millionth of its length is taken.
    """
    count, mean = sums.gram[:, 0, :, 0, 0].sum(axis=0), sums.m[:, 0, 0].sum(axis=0)
    energy = sums.energy.sum(axis=0)
    spread = energy - mean**2 / np.where(count > 0, count, 1.0)
    least = np.maximum(spread, MIN_SPREAD * energy)
    unit = np.sqrt(np.where(least > 0, least, 1.0))
    return Sums(sums.gram, sums.m / unit, sums.energy / unit**2)


def rank_candidates(sums: Sums, widths: Sequence[int], lams: Sequence[float]) -> list[Candidate]:
    """Return all candidates, the best first; of equals the one with fewer units and the larger penalty."""
    found = []
    for scale in range(sums.gram.shape[1]):
        errors = _validation_errors(sums, scale, widths, lams).tolist()
        pairs = product(zip(widths, errors, strict=True), range(len(lams)))
        found += [Candidate(scale, width, lams[each], own[each]) for (width, own), each in pairs]
    return sorted(found, key=lambda candidate: (candidate.error, candidate.width, -candidate.lam))


def _validation_errors(sums: Sums, scale: int, widths: Sequence[int], lams: Sequence[float]) -> Matrix:
    """Return the error of each width and penalty; of one for which digits do not suffice it is infinite.

    The Cholesky factor of fewer units is a part of that of all.
    """
    folds, grams = len(sums.gram), sums.gram.shape[2]
    errors = np.zeros((len(widths), len(lams)))
    for fold, which in product(range(folds), range(grams)):
        columns = slice(None) if grams == 1 else slice(which, which + 1)
        gram, m = sums.gram[:, scale, which], sums.m[:, scale, :, columns]
        others = np.arange(folds) != fold
        learnt, m_learnt = gram[others].sum(axis=0), m[others].sum(axis=0)
        used = np.flatnonzero(np.diag(learnt) > 0)  # columns of constant features are zero
        for each, lam in enumerate(lams):
            try:
                root = np.linalg.cholesky(learnt[np.ix_(used, used)] + lam * np.eye(len(used)))
            except np.linalg.LinAlgError:
                errors[:, each] = np.inf
                continue
            for row, width in enumerate(widths):
                part = used[used <= width]
                w = cho_solve((root[: len(part), : len(part)], True), m_learnt[part], check_finite=False)
                errors[row, each] += np.vdot(w, gram[fold][np.ix_(part, part)] @ w - 2 * m[fold, part])
    energy = sums.energy.sum()
    return np.asarray(1.0 + errors / energy if energy > 0 else errors)  # if targets are all 0


def solve_sums(gram: Matrix, m: Matrix, units: Units, candidate: Candidate, error: float) -> Matrix:
    """Return the weights for a candidate's width and penalty; one Gram matrix, or one for each output."""
    size, full = candidate.width + 1, len(units.lengths)
    part = replace(units, lengths=units.lengths[:size])
    penalty = candidate.lam / (part.slope * part.lengths) ** 2  # λ of eq. 2 in these units
    pairs = zip(gram, np.split(m[:size], len(gram), axis=1), strict=True)
    each = [solve_gram(symmetric(G, full)[:size, :size], own, penalty, error) for G, own in pairs]
    return np.concatenate(each, axis=1) * (part.target_unit / part.slope) / part.lengths[:, None]


def _add_folds(total: Mapping[str, Any], folds: slice, candidate: Candidate) -> tuple[Matrix, Matrix]:
    gram, m = (total[name][folds, candidate.scale].sum(axis=0) for name in ("gram", "m"))
    return gram, m


def _pad_rows(weights: Sequence[Matrix], rows: int) -> Matrix:
    return np.stack([np.pad(one, ((0, rows - len(one)), (0, 0))) for one in weights])
