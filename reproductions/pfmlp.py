"""PFMLP: accuracy with and without encryption, and stock beside improved Paillier.

Published: accuracy is within 1 % of training without encryption, and the improved Paillier, with a short
α, is 25 to 28 % faster than the stock one.
"""

import secrets
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal
from warnings import catch_warnings, simplefilter

import gmpy2
import numpy as np
from numpy.typing import NDArray

from reproductions._harness import Experiment, grid
from reproductions._lines import plot
from reproductions._trainings import score
from tacit.checkout import load_file
from tacit.crypto.paillier import Packing, make_keys
from tacit.crypto.paillier.numbers import random_prime
from tacit.federation import Federation
from tacit.methods.presets import PFMLP
from tacit.protections.paillier import Paillier

DATA, CLIENTS = "digits", 5
TRAINING = {"hidden": "32", "rounds": 10, "epochs": 5, "rate": 0.3}
PROTECTIONS = ("plain", "2048 bits", "3072 bits")
KEY_BITS = (1024, 2048, 3072)
PACKING = Packing(value_bits=32, guard_bits=8)
Randomness = Literal["djn", "plain", "short-alpha"]
Work = Callable[[NDArray[np.int64]], object]
# Randomness of the keys, and how many values share a ciphertext.
WAYS: dict[str, tuple[Randomness | None, bool]] = {
    "stock": (None, False),
    "improved": ("short-alpha", False),
    "ours, short α": ("short-alpha", True),
    "ours": ("djn", True),
}


def accuracy(protect: str, seed: int) -> float:
    """Return the accuracy (%) with keys of so many bits, each made by the client whose turn it is."""
    federation = Federation.embedded(DATA, clients=CLIENTS, seed=seed)
    protection = "plain" if protect == "plain" else Paillier("in-turn", key_bits=int(protect.split()[0]))
    scores = score(federation, PFMLP.from_config(TRAINING), protection, min_count=1)  # encryption alone
    return 100.0 * float(scores["accuracy"])


def stock(key_bits: int) -> Work:
    """Return what encrypts and decrypts a number as Paillier published it: rⁿ, λ, modulo n² only."""
    p, q = random_prime(key_bits // 2), random_prime(key_bits // 2)
    n, square, order = p * q, (p * q) ** 2, gmpy2.lcm(p - 1, q - 1)
    inverse = gmpy2.invert(order, n)

    def there_and_back(values: NDArray[np.int64]) -> None:
        (value,) = values.tolist()
        ciphertext = (1 + value * n) * gmpy2.powmod(secrets.randbelow(int(n)), n, square) % square
        assert (gmpy2.powmod(ciphertext, order, square) - 1) // n * inverse % n == value

    return there_and_back


def prepared(key_bits: int, randomness: Randomness) -> Work:
    """Return what encrypts and decrypts a vector with a key of ours."""
    with catch_warnings():
        simplefilter("ignore")  # of a short key, and of a short α
        key = make_keys(key_bits, randomness=randomness, allow_short=key_bits < 2048)
    return lambda values: key.decrypt(key.public.encrypt(values, PACKING))


def spent(paillier: str, key_bits: int, seed: int) -> float:
    """Return the microseconds of CPU for encrypting and decrypting one value, without making keys."""
    randomness, packed = WAYS[paillier]
    count = 50 * PACKING.slots(key_bits) if packed else 8
    values = np.random.default_rng(seed).integers(1, PACKING.largest, count)
    there_and_back = stock(key_bits) if randomness is None else prepared(key_bits, randomness)
    pieces = [values] if packed else values[:, None]
    (seconds,) = load_file("benchmarks", "_harness").cpu(
        lambda: [there_and_back(piece) for piece in pieces], repeats=3
    )
    return float(seconds) / count * 1e6


def experiments() -> Iterator[Experiment]:
    """Yield the tables of accuracy and of times."""
    table = partial(Experiment, paper=PFMLP.paper, settings={"data": DATA, "clients": CLIENTS, **TRAINING})
    yield table(
        name="pfmlp-accuracy",
        title="PFMLP: accuracy with and without encryption",
        quantity="test accuracy, per cent",
        seeds=3,
        cells=grid(accuracy, {"protect": PROTECTIONS}, slow=lambda protect: protect == PROTECTIONS[-1]),
        remarks="Sums are exact to the last digits, so predictions are the same. 1024 bits are refused.",
    )
    yield table(
        name="pfmlp-time",
        title="Stock and improved Paillier: encrypting and decrypting a value",
        quantity="microseconds of CPU a value, without making keys",
        settings={"value bits": PACKING.value_bits},
        seeds=1,
        cells=grid(spent, {"paillier": WAYS, "key bits": KEY_BITS}),
        remarks=(
            "The paper's improved Paillier is 1.25 to 1.28 times as fast as its stock one. Ours of that name "
            "also has tables of powers, and decrypts modulo p² and q². Both encrypt one value at a time."
        ),
        drawings=plot("microseconds a value", "µs", "key bits", "paillier", log="y"),
    )
