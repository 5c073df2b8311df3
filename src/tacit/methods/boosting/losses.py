"""What trees are to predict: derivatives of a loss in the margins of each row, as whole numbers.

Each row's derivatives are rounded to whole multiples of a unit before anything is summed. Sums of whole
numbers are exact in any order, so that it makes no difference who holds which rows. Units are powers of two,
such that no sum over all rows reaches 2³¹.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError
from tacit.core.party import Party
from tacit.core.shared import Total
from tacit.data.schema import Schema

Matrix = NDArray[np.float64]
WHOLE = 2.0**31 - 1  # largest sum over all rows
ROOM = 8.0  # by how much Poisson's derivatives may outgrow the sum of all targets
LEAST_MEAN = 1e-6  # of a Poisson target
FLOOR = 0.02  # of second derivatives where rows are counted by them: those of sure rows count too
HIGHEST = {"logistic": 0.25, "softmax": 0.5, "squared": 1.0}  # second derivative of a row


def choose(loss: str, schema: Schema) -> str:
    """Return the loss that suits a task, if none is named."""
    if loss != "auto":
        return loss
    return "squared" if schema.task == "regression" else "logistic" if schema.outputs == 2 else "softmax"


def count_outputs(loss: str, schema: Schema) -> int:
    """Return how many margins a row has: one tree is grown for each in a round."""
    return 1 if loss == "logistic" else schema.outputs


def derive(loss: str, margins: Matrix, truth: NDArray[Any]) -> tuple[Matrix, Matrix]:
    """Return first and second derivatives, outputs × rows; labels are codes, targets rows × outputs."""
    if loss == "logistic":
        p = 1 / (1 + np.exp(-margins))
        return p - truth, p * (1 - p)
    if loss == "softmax":
        p = np.exp(margins - margins.max(axis=0))
        p /= p.sum(axis=0)
        # Twice the second derivative, as XGBoost has it: margins of all classes move at once.
        return p - (np.arange(len(p))[:, None] == truth), 2 * p * (1 - p)
    if loss == "squared":
        return margins - truth.T, np.ones_like(margins)
    p = np.exp(margins)
    return p - truth.T, p


def read_truth(loss: str, party: Party, schema: Schema) -> Any:
    """Return a party's labels, or its targets; refuse those that the loss is not defined for."""
    if schema.task == "classification":
        return schema.labels(party.data)
    truth = np.asarray(party.data.target, dtype=np.float64).reshape(party.data.rows, -1)
    if loss == "poisson" and (truth < 0).any():
        raise DataError(
            f"{party.id}: the target holds negative values, and loss = 'poisson' is for counts, 0 or more: "
            "use loss = 'squared'",
            private=f"the least is {truth.min():g}, in row {int(np.argmin(truth.min(axis=1))) + 1}",
        )
    return truth


def start(loss: str, total: Total, weights: NDArray[Any] | None) -> tuple[Matrix, Matrix]:
    """Return the margins before any tree, and for each the units of first and second derivatives.

    ``weights`` has how much a row of each class counts.
    """
    rows = max(float(np.rint(total["rows"])), 1.0)
    if "classes" in total:
        counts = np.rint(np.asarray(total["classes"])) * (1.0 if weights is None else weights)
        shares = (counts + 1e-9) / (counts + 1e-9).sum()
        base = np.log(shares[1:] / shares[:1]) if loss == "logistic" else np.log(shares)
        first, second = counts.sum(), counts.sum() * HIGHEST[loss]
    else:
        mean = np.asarray(total["sum"]) / rows
        if loss == "poisson":
            base = np.log(np.maximum(mean, LEAST_MEAN))
            first = second = ROOM * max(float(np.max(total["sum"])), 1.0)
        else:
            variance = np.asarray(total["square"]) / rows - mean**2
            # Of a target that is constant, the rounding of its mean is left.
            spread = np.sqrt(np.maximum(variance, (1e-6 * mean) ** 2 + 1e-200))
            # No sum of differences exceeds √(rows · Σ squares), which each tree makes smaller.
            base, first, second = mean, 2 * rows * spread, rows
    bounds = np.stack(np.broadcast_arrays(first, second, base)[:2], axis=-1)
    units = 2.0 ** np.floor(np.log2((WHOLE - rows) / bounds))
    return base.astype(np.float32).astype(np.float64), units


def pack(first: Matrix, second: Matrix, units: Matrix) -> NDArray[np.int64]:
    """Return both derivatives of each row in one whole number, of which sums can be taken apart again."""
    g, h = np.rint(first * units[:, :1]), np.rint(second * units[:, 1:])
    if max(np.abs(g).sum(axis=1).max(initial=0), h.sum(axis=1).max(initial=0)) > WHOLE:
        raise DataError(
            "derivatives of the loss have outgrown their sums: training runs away, lower the rate"
        )
    return np.asarray((g.astype(np.int64) << 32) + h.astype(np.int64))


def unpack(sums: NDArray[np.int64]) -> Matrix:
    """Return the two parts of packed sums, in a last dimension."""
    found = np.empty((*sums.shape, 2))
    found[..., 0], found[..., 1] = sums >> 32, sums & 0xFFFFFFFF
    return found
