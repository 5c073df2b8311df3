"""FedHEONN: the optimal one-layer network in closed form, from one round.

O. Fontenla-Romero, B. Guijarro-Berdiñas, E. Hernández-Pereira, B. Pérez-Sánchez, "FedHEONN: Federated
and homomorphically encrypted learning method for one-layer neural networks", Future Generation
Computer Systems, 2023.

The paper's symbols, with samples as its columns and ours as rows (X is the transpose of theirs):

    X, d    inputs with a leading one for the bias, desired outputs
    f       invertible activation; d̄ = f⁻¹(d)
    F       diag f'(d̄): the error is measured before the activation, and weighted by its slope
    U S     factor of a client, from the economy-sized SVD of (F X)ᵀ
    m       (F X)ᵀ (F d̄), the right-hand side
    λ       ridge penalty, ``lam``

Minimising ½‖F(d̄ - Xw)‖² + ½λ‖w‖² (eq. 1) asks for (XᵀFFX + λI) w = m (eq. 2), solved by
w = U (S² + λI)⁻¹ Uᵀ m (eq. 4). Factors of several clients merge: the SVD of [U₁S₁ | U₂S₂ | …] has the U
and S of all their rows together (eq. 5), and m is a sum (eq. 6-8); so who holds which rows makes no
difference to w.

A classifier's targets are 0.05 and 0.95. For the logistic function f' is the same at both, and for the
linear one it is 1 everywhere: then one factor serves all outputs, computed and sent once.
The factors travel in the clear here and reveal XᵀFFX of every client; see docs/fedheonn.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.desk import Desk
from tacit.core.errors import ConfigError, DataError
from tacit.core.layout import Field, Layout
from tacit.core.parts import apply, contribution
from tacit.core.party import Party
from tacit.core.shared import Shared, Total
from tacit.data.preparation import Inputs
from tacit.data.schema import Schema
from tacit.data.table import Table
from tacit.methods.base import Method
from tacit.models.activations import ACTIVATIONS, ActivationName
from tacit.models.onelayer import OneLayer

Matrix = NDArray[np.float64]
LARGEST = 1e150  # of a factor's entries: beyond, their squares overflow
LOW, HIGH = 0.05, 0.95  # a classifier's targets, inside the range of the logistic function


def factor(A: Matrix) -> Matrix:
    """U S of Aᵀ = U S Vᵀ for rows A, without ever forming V (eq. 4); rank many columns.

    >>> A = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> US = factor(A)
    >>> np.allclose(US @ US.T, A.T @ A)
    True
    """
    # R of A = QR has the same U and S as A, and is small.
    small = np.asarray(np.linalg.qr(A, mode="r")) if A.shape[0] > A.shape[1] else A
    U, S, _ = np.linalg.svd(small.T, full_matrices=False)
    kept = max(1, int(np.count_nonzero(_meaningful(S, max(A.shape)))))
    product: Matrix = U[:, :kept] * S[:kept]
    return product


def merge(factors: Sequence[Matrix]) -> Matrix:
    """U S of all rows from the factors of parts of them (eq. 5)."""
    return factor(np.concatenate([US.T for US in factors]))


def solve(US: Matrix, m: Matrix, lam: float) -> Matrix:
    """w = U (S² + λI)⁻¹ Uᵀ m (eq. 4); with λ = 0 the solution of least norm.

    >>> A, y = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]]), np.array([3.0, 5.0, 7.0])
    >>> solve(factor(A), A.T @ y, 0.0).round(9).tolist()
    [1.0, 2.0]
    """
    U, S, _ = np.linalg.svd(US, full_matrices=False)
    kept = _meaningful(S, max(US.shape)) if lam == 0 else np.ones(len(S), dtype=bool)
    U, S = U[:, kept], S[kept]
    projected = U.T @ m
    scale = S**2 + lam
    solution: Matrix = U @ (projected / (scale[:, None] if m.ndim == 2 else scale))
    return solution


def _meaningful(S: Matrix, size: int) -> NDArray[np.bool_]:
    """Which singular values are more than rounding."""
    rounding = S.max(initial=0.0) * size * np.finfo(np.float64).eps
    return np.asarray(S > rounding)


@dataclass(frozen=True)
class FedHEONN(Method):
    """One-layer network in closed form from one round (Fontenla-Romero et al., 2023).

    Parameters
    ----------
    lam : float
        Ridge penalty λ of eq. 1, at least 0.
    activation : {"logistic", "softplus", "linear"}
        Activation f of the outputs; softplus is the smooth form of what the paper calls relu.

    Examples
    --------
    >>> import tacit
    >>> federation = tacit.Federation.embedded("digits", clients=20, partition="label-sorted")
    >>> model = tacit.FedHEONN().fit(federation)
    >>> model.score(federation.test.values, federation.test.target) > 0.9
    True
    """

    name = "fedheonn"
    closed_form = True
    paper = (
        "Fontenla-Romero, Guijarro-Berdiñas, Hernández-Pereira and Pérez-Sánchez, FedHEONN: Federated and "
        "homomorphically encrypted learning method for one-layer neural networks, 2023"
    )

    lam: float = 1e-3
    activation: ActivationName = "logistic"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.lam) and self.lam >= 0):
            raise ConfigError(f"lam is {self.lam}, it must be at least 0: 0.001 is the paper's choice")
        if self.activation not in ACTIVATIONS:
            raise ConfigError(f"activation '{self.activation}' is not one of {', '.join(ACTIVATIONS)}")

    def train(self, desk: Desk) -> None:
        """One round: every client's factor and right-hand side, then the solution."""
        desk.round(self.terms, self.solve)

    # -- client ------------------------------------------------------------------------------------

    def _terms_layout(self, schema: Schema) -> Layout:
        return Layout(
            Field("m", (schema.features + 1, schema.outputs)),
            Field("factor", None, clear=True),
        )

    @contribution(_terms_layout)
    def terms(self, party: Party, shared: Shared) -> dict[str, Any]:
        """U S and m of this client's rows (algorithm 1 of the paper)."""
        table: Table = party.data
        inputs = Inputs.of(shared).matrix(table)
        X = np.concatenate([np.ones((len(inputs), 1)), inputs], axis=1)
        d = self.targets(table, shared.schema)
        f = ACTIVATIONS[self.activation]
        d_bar, slope = f.inverse(d), f.slope_at_target(d)
        if self.constant_slope(shared.schema):
            factors = slope[0, 0] * factor(X)[None]
        else:
            each = [factor(X * slope[:, [output]]) for output in range(d.shape[1])]
            factors = np.stack([_widened(US, max(US.shape[1] for US in each)) for US in each])
        return {"m": X.T @ (slope**2 * d_bar), "factor": factors}

    def constant_slope(self, schema: Schema) -> bool:
        """Whether F is one number times I, so that one factor serves all outputs."""
        return self.activation == "linear" or (
            self.activation == "logistic" and schema.task == "classification"
        )

    def targets(self, table: Table, schema: Schema) -> Matrix:
        """Desired outputs d: 0.05 and 0.95 by class, or the targets within the activation's range."""
        if schema.task == "classification":
            return np.where(schema.labels(table)[:, None] == np.arange(schema.outputs), HIGH, LOW)
        f = ACTIVATIONS[self.activation]
        if not np.all((table.target > f.low) & (table.target < f.high)):
            raise DataError(
                f"a target lies outside ({f.low:g}, {f.high:g}), the range of {self.activation}: "
                "rescale the target, or use activation = 'linear'"
            )
        return table.target

    # -- whoever opens the total -------------------------------------------------------------------

    def flaw(self, name: str, piece: Any, schema: Schema) -> str | None:
        """Refuse a factor of another width than the agreed features."""
        factors = 1 if self.constant_slope(schema) else schema.outputs
        if piece.ndim != 3 or piece.shape[:2] != (factors, schema.features + 1):
            return f"has shape {piece.shape}, agreed was ({factors}, {schema.features + 1}, rank)"
        if np.abs(piece).max(initial=0.0) > LARGEST:
            return f"holds absurd values (beyond {LARGEST:g})"
        return None

    def fold(self, name: str, pieces: Sequence[Any]) -> Any:
        """Merge many clients' factors at once, output by output."""
        merged = [merge([piece[output] for piece in pieces]) for output in range(len(pieces[0]))]
        return np.stack([_widened(US, max(US.shape[1] for US in merged)) for US in merged])

    @apply
    def solve(self, total: Total, shared: Shared) -> Shared:
        """Weights of all outputs; what earlier clients brought is kept and added to (eq. 7)."""
        m, factors = total["m"], np.asarray(total["factor"])
        if "m" in shared:
            m = m + shared["m"]
            factors = self.fold("factor", [shared["factor"], factors])
        if len(factors) == 1:
            weights = solve(factors[0], m, self.lam)
        else:
            weights = np.stack([solve(US, m[:, o], self.lam) for o, US in enumerate(factors)], axis=1)
        return shared | {"weights": weights, "m": m, "factor": factors}

    def view(self, shared: Shared) -> Mapping[str, Any]:
        """Clients need the scale and the weights, not what they were made of."""
        return {name: value for name, value in shared.items() if name not in ("m", "factor")}

    def model(self, shared: Shared) -> OneLayer:
        """Make the network from the weights."""
        return OneLayer(shared["weights"], self.activation, Inputs.of(shared))


def _widened(US: Matrix, columns: int) -> Matrix:
    """Pad a factor with zero columns, which change nothing."""
    return np.pad(US, ((0, 0), (0, columns - US.shape[1])))
