"""The ring of our own encryption: what breaking it would take, and that smaller ones do break."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from tacit.core.errors import ConfigError
from tacit.core.secret import Secret
from tacit.crypto.rlwe.blob import DEGREE, NOISE
from tacit.crypto.rlwe.columns_blob import WORDS
from tacit.crypto.rlwe.ring import back, noise, secret_polynomial
from tests.attacks.lattice import TERNARY, primal


class TestEstimate:
    @pytest.mark.parametrize(("degree", "bits"), [(1024, 27), (2048, 54), (4096, 109), (8192, 218)])
    def test_the_standards_table_comes_out(self, degree, bits):
        assert 126 <= primal(degree, bits, 3.2).standard <= 134

    @pytest.mark.parametrize(
        ("bits", "core", "standard"), [(64, 190, 220), (32 * WORDS, 110, 140)], ids=["sums", "products"]
    )
    def test_ours_is_above_128_bits_with_room(self, bits, core, standard):
        cost = primal(DEGREE, bits, NOISE)
        assert cost.core > core
        assert cost.standard > standard > 128

    def test_more_noise_or_a_smaller_modulus_is_harder(self):
        usual = primal(2048, 64, 3.2).standard
        assert primal(2048, 64, 10.0).standard > usual
        assert primal(2048, 50, 3.2).standard > usual
        assert primal(4096, 64, 3.2).standard > usual

    def test_what_is_no_ring(self):
        with pytest.raises(ConfigError, match="above 0"):
            primal(0, 64, 3.2)


class TestParameters:
    """What the estimate assumes is what the code draws."""

    def test_noise_has_its_deviation(self):
        drawn = noise(200_000)
        assert drawn.std() == pytest.approx(NOISE, rel=0.01)
        assert abs(drawn.mean()) < 5 * NOISE / sqrt(len(drawn))

    def test_the_secret_is_ternary_and_even(self):
        drawn = back(secret_polynomial(Secret(bytes(32)), b"label"))
        assert set(drawn.tolist()) == {-1, 0, 1}
        assert drawn.std() == pytest.approx(TERNARY, rel=0.05)


class TestAttack:
    """The same equations at a degree where lattice reduction is easy."""

    @pytest.mark.parametrize("degree", [4, 8])
    def test_a_small_ring_gives_up_its_secret(self, degree):
        pytest.importorskip("sympy")
        rng = np.random.default_rng(degree)
        a, s, e, b = _encryption_of_zero(degree, rng)
        assert primal(degree, 64, NOISE).block <= 50  # the least that is ever claimed
        assert _reduced(a, b) == s
        assert any(e)

    def test_a_wrong_equation_gives_up_nothing(self):
        pytest.importorskip("sympy")
        a, s, _, _ = _encryption_of_zero(8, np.random.default_rng(1))
        noise_only = [int(word) for word in np.random.default_rng(2).integers(1 << 63, size=8)]
        assert _reduced(a, noise_only) != s


def _encryption_of_zero(degree, rng):
    """Give a, s, e and b = e - a·s modulo X^degree + 1 and 2⁶⁴, as whole numbers."""
    a = [int(word) for word in rng.integers(1 << 63, size=degree)]
    s = [int(value) for value in rng.integers(-1, 2, size=degree)]
    e = [int(value) for value in noise(degree)]
    product = [sum(_entry(a, i, j) * s[j] for j in range(degree)) for i in range(degree)]
    return a, s, e, [(one - other) % (1 << 64) for one, other in zip(e, product, strict=True)]


def _entry(a, row, column):
    """Give an entry of the matrix that multiplies by a."""
    return a[row - column] if row >= column else -a[row - column]


def _reduced(a, b):
    """Secret by LLL: (e, s, 1) is the shortest vector of this lattice."""
    from sympy import ZZ
    from sympy.polys.matrices import DomainMatrix

    degree = len(a)
    size = 2 * degree + 1
    basis = [[0] * size for _ in range(size)]
    for i in range(degree):
        basis[i][i] = 1 << 64
        basis[degree + i][:degree] = [_entry(a, row, i) for row in range(degree)]
        basis[degree + i][degree + i] = 1
        basis[-1][i] = b[i]
    basis[-1][-1] = 1
    matrix = DomainMatrix([[ZZ(value) for value in row] for row in basis], (size, size), ZZ)
    short = min(matrix.lll().to_Matrix().tolist(), key=lambda row: sum(value * value for value in row))
    found = [int(value) for value in short]
    return [value * found[-1] for value in found[degree:-1]]
