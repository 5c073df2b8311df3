"""The rings that SEAL is given: what breaking them would take, by our own estimate beside SEAL's table."""

from __future__ import annotations

import pytest

from tacit.core.errors import ConfigError
from tacit.crypto.bfv import PRIMES, SMALL, SMALL_BITS, USUAL
from tacit.crypto.ckks.rings import COLUMNS, DEGREE, SUMS
from tests.attacks.lattice import primal

NOISE = 3.2  # standard deviation of SEAL's noise
RINGS = {
    **{f"bfv-{bits}": (USUAL, sum(primes)) for bits, primes in PRIMES.items()},
    "bfv-small": (SMALL, SMALL_BITS),
    **{f"ckks-{chosen.name}": (DEGREE, sum(chosen.prime_bits)) for chosen in (SUMS, COLUMNS)},
}


class TestEstimate:
    @pytest.mark.parametrize(("degree", "bits"), [(1024, 27), (2048, 54), (4096, 109), (8192, 218)])
    def test_the_standards_table_comes_out(self, degree, bits):
        assert 126 <= primal(degree, bits, NOISE).standard <= 134

    @pytest.mark.parametrize(("degree", "bits"), RINGS.values(), ids=RINGS)
    def test_ours_are_at_128_bits(self, degree, bits):
        assert primal(degree, bits, NOISE).standard >= 127

    def test_more_noise_or_a_smaller_modulus_is_harder(self):
        usual = primal(2048, 64, 3.2).standard
        assert primal(2048, 64, 10.0).standard > usual
        assert primal(2048, 50, 3.2).standard > usual
        assert primal(4096, 64, 3.2).standard > usual

    def test_what_is_no_ring(self):
        with pytest.raises(ConfigError, match="above 0"):
            primal(0, 64, 3.2)
