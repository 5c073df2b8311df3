"""A generator of rows: SuffiAE, whose summaries follow Gaussian mixtures, one for each class."""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, nearest
from tacit.models.mlp import SuffiAE
from tacit.models.network import Matrix, Targets
from tacit.models.neural import Neural

MIXTURE = "mixture."  # of the arrays of accepted mixtures, in shared values and in files
TINY = 1e-9  # so that no share of a component is nothing


class Mixtures(NamedTuple):
    """Gaussian mixtures with K components in d dimensions: any number of them, in the leading axes."""

    shares: NDArray[np.float64]  # (..., K)
    means: NDArray[np.float64]  # (..., K, d)
    factors: NDArray[np.float64]  # (..., K, d, d): each covariance is its factor times the transposed one

    def propose(self, strength: float, rng: np.random.Generator) -> Self:
        """Draw a mixture around each: shares by Dirichlet, the rest by normal-inverse-Wishart.

        The larger the strength, the nearer. Covariances are drawn by Bartlett's decomposition.
        """
        shares = rng.standard_gamma(strength * self.shares * self.shares.shape[-1] + TINY) + TINY
        size = self.means.shape[-1]
        lower = np.tril(rng.normal(size=self.factors.shape), -1)
        freedom = size + 1 + strength - np.arange(size)
        lower[..., range(size), range(size)] = np.sqrt(rng.chisquare(freedom, size=self.means.shape))
        factors = strength**0.5 * self.factors @ np.linalg.inv(lower).swapaxes(-1, -2)
        steps = np.einsum("...ij,...j->...i", factors, rng.normal(size=self.means.shape))
        return type(self)(shares / shares.sum(-1, keepdims=True), self.means + steps / strength**0.5, factors)

    def choose(self, *index: Any) -> Self:
        """Return some of the mixtures."""
        return type(self)(*(values[index] for values in self))

    def points(self, number: int, rng: np.random.Generator, *, alike: bool = False) -> Any:
        """Return points of each mixture, within the cube; ``alike``: by the same random numbers."""
        shape = number if alike else (*self.shares.shape[:-1], number)
        chances, normals = rng.random(shape), rng.normal(size=(*np.atleast_1d(shape), self.means.shape[-1]))
        component = (np.cumsum(self.shares, axis=-1)[..., None, :-1] < chances[..., None]).sum(-1)
        each = self.means[..., None, :] + normals[..., None, :, :] @ self.factors.swapaxes(-1, -2)
        found = np.take_along_axis(each, component[..., None, :, None], -3)[..., 0, :, :]
        return np.clip(found, -1.0, 1.0)


class Generator(Neural):
    """SuffiAE with the mixtures that were accepted for each class: predicts labels, and generates rows."""

    FORMAT = "tacit-generator-1"

    def generate(self, rows: int, rng: np.random.Generator, label: Any = None) -> tuple[Targets, Matrix]:
        """Return codes of labels, and rows as they are prepared; the labels as often as the clients had them.

        A row is the decoded point of an accepted mixture, plus noise as large as what SuffiAE leaves out.
        """
        if MIXTURE + "means" not in self.arrays:
            raise ConfigError("the model has no mixtures yet: its training has not come so far")
        shares = self.arrays[MIXTURE + "classes"] / self.arrays[MIXTURE + "classes"].sum()
        codes = {str(word): code for code, word in enumerate(self.schema.classes) if shares[code]}
        if label is not None and str(label) not in codes:
            raise ConfigError(f"no rows were of a class '{label}': {nearest(str(label), codes)}")
        labels = (
            rng.choice(len(shares), rows, p=shares) if label is None else np.full(rows, codes[str(label)])
        )
        accepted = Mixtures(*(self.arrays[MIXTURE + name] for name in Mixtures._fields))
        drawn = accepted.choose(rng.integers(len(accepted.means), size=rows), labels)
        network = self.network
        assert isinstance(network, SuffiAE)
        X = network.decode(network.flat(self.arrays), drawn.points(1, rng)[:, 0])
        return labels, X + rng.normal(size=X.shape) * self.arrays[MIXTURE + "noise"]

    def sample(self, rows: int, label: Any = None, seed: int = 0) -> Any:
        """Return generated rows with their labels as an Arrow table, in the units and words of the data.

        A column that training left out is empty, and no row has a category that counted as "other".
        """
        import pyarrow as pa

        if rows < 1:
            raise ConfigError(f"rows is {rows}: give a whole number of at least 1")
        labels, X = self.generate(rows, np.random.default_rng(seed), label)
        if "centre" in self.inputs.values:
            X[:, self.inputs.values["constant"]] = 0.0
            X = X * self.inputs.values["spread"] + self.inputs.values["centre"]
        X[:, self.inputs.recoding.moved] = -np.inf  # the model was never told these
        columns = dict[str, Any]()
        for column in self.schema.columns:
            own, X = np.split(X, [max(1, len(column.categories))], axis=1)
            words = np.array(column.categories)
            values = words[own.argmax(axis=1)] if len(words) else own[:, 0]
            columns[column.name] = pa.array(values, mask=np.isneginf(own.max(axis=1)))
        return pa.table({**columns, self.schema.target_names[0]: self.classes_[labels]})

    def to_bytes(self, kind: str) -> bytes:
        plain = Neural(self.arrays, {**self.settings, "network": "mlp"}, self.inputs)
        return plain.to_bytes(kind) if kind == "onnx" else super().to_bytes(kind)
