"""A client's rows, recovered from what the coordinator saw: in mode ``paper`` they are, in ``sealed`` not.

The control is sealed mode without protection, where the same attack on the same contribution succeeds.
"""

import itertools
from functools import cache
from itertools import permutations

import numpy as np
import pytest

from tacit import Federation, FedHEONN, Preparation, Table
from tacit.core.errors import ConfigError, DataError, TacitError
from tacit.core.message import Message
from tacit.core.values import Blob
from tacit.data.files import load
from tacit.models.leastsquares import symmetric
from tests.attacks.reconstruction import (
    count_rows,
    gram_of_factor,
    integer_rows,
    one_or_two_rows,
    seen_fields,
    unscaled,
)

CLIENTS = 6
SLOPE = 0.05 * 0.95  # of the logistic function at a classifier's targets


@cache
def run(rows, mode, protect, scale="standard"):
    """Train on digits with so many rows a client; gives the rows by client, what was heard, and the scale."""
    digits = load("digits")
    order = np.random.default_rng(rows).permutation(digits.rows)[: rows * CLIENTS]
    table = Table.of(digits.values[order], digits.target[order] % 2)
    held = {f"client-{i + 1}": table.take(slice(i * rows, (i + 1) * rows)) for i in range(CLIENTS)}
    heard = []
    training = Federation.of(held, declared={"classes": [0, 1]}).train(
        FedHEONN(mode=mode),
        protect=protect,
        preparation=Preparation(scale=scale),
        min_count=1,  # few rows are what this is about
        transcript=lambda *received: heard.append(received),
    )
    return {name: part.values for name, part in held.items()}, heard, training.outcome.shared


def recovered(gram):
    return one_or_two_rows(gram) if count_rows(gram) <= 2 else integer_rows(gram, 0, 16)


def off(found, rows):
    """Largest difference from the true rows, in the order that suits best."""
    if found.shape != rows.shape:
        return np.inf
    truth = rows.astype(np.float64)
    return min(np.abs(found[list(order)] - truth).max() for order in permutations(range(len(truth))))


@pytest.mark.parametrize("rows", [1, 2, 4])
class TestPaper:
    def test_encrypting_m_does_not_hide_the_rows(self, rows):
        """As published: m under CKKS, factors in the clear."""
        held, heard, _ = run(rows, "paper", "ckks", scale="none")
        factors = seen_fields(heard, "coordinator", "clear/factor")
        assert factors.keys() == held.keys()
        for name, factor in factors.items():
            found = recovered(gram_of_factor(factor[0], SLOPE))
            assert off(found, held[name]) < (1e-9 if rows <= 2 else 1e-12), name

    def test_standardising_does_not_hide_them_from_who_knows_the_scale(self, rows):
        held, heard, shared = run(rows, "paper", "masked")
        scale = (shared["centre"], shared["spread"], shared["constant"])
        for name, factor in seen_fields(heard, "coordinator", "clear/factor").items():
            gram = unscaled(gram_of_factor(factor[0], SLOPE), *scale)
            assert off(recovered(gram), held[name]) < 1e-9, name


def readings(value):
    """An array as it is; a blob as the numbers of each kind that its bytes could be."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, Blob):
        for kind in (np.int32, np.uint32, np.int64):
            size = np.dtype(kind).itemsize
            whole = np.frombuffer(value.data[: len(value.data) // size * size], kind)
            yield whole / 2.0 ** (8 * size)


def guesses(heard, shared, count, size=65):
    """What the attack makes of every array of a client that the coordinator can read as numbers."""
    triangle = size * (size + 1) // 2
    units = np.sqrt(16.0 * np.where(shared["norms"] > 0, shared["norms"], 1.0))
    for receiver, sender, step, raw in heard:
        if receiver != "coordinator" or step != "client.contribute":
            continue
        for value in itertools.chain.from_iterable(map(readings, Message.decode(raw).values())):
            if value.size < triangle:
                continue
            raw = symmetric(value[:triangle], size)
            scaled = raw * np.outer(units, units)
            scaled *= count / scaled[0, 0]  # how many rows a client has may be known
            # Sums of rows as they are, or of standardised ones.
            for gram in (raw, unscaled(scaled, shared["centre"], shared["spread"], shared["constant"])):
                with np.errstate(all="ignore"):
                    try:
                        yield sender, recovered(gram)
                    except (TacitError, ValueError, OverflowError, np.linalg.LinAlgError):
                        yield sender, np.empty((0, 0))


@pytest.mark.parametrize("rows", [1, 2, 4])
class TestSealed:
    def test_without_a_protection_the_same_attack_succeeds(self, rows):
        held, heard, shared = run(rows, "sealed", "plain")
        found = [off(guess, held[name]) for name, guess in guesses(heard, shared, rows)]
        assert sum(error < 1e-6 for error in found) == CLIENTS

    @pytest.mark.parametrize("protect", ["ckks", "masked", "shares"])
    def test_with_one_it_does_not(self, rows, protect):
        held, heard, shared = run(rows, "sealed", protect)
        assert not seen_fields(heard, "coordinator", "clear/factor")
        known = shared if shared is not None else run(rows, "sealed", "plain")[2]  # even with the scale
        tried = [off(guess, held[name]) for name, guess in guesses(heard, known, rows)]
        assert len(tried) >= CLIENTS
        assert min(tried) > 0.5

    def test_nor_is_the_total_anybodys_row(self, rows):
        held, _, shared = run(rows, "sealed", "masked")
        gram = symmetric(np.asarray(shared["gram"])[0], 65)
        units = np.sqrt(16.0 * np.where(shared["norms"] > 0, shared["norms"], 1.0))
        total = unscaled(
            gram * np.outer(units, units), shared["centre"], shared["spread"], shared["constant"]
        )
        assert count_rows(total) == rows * CLIENTS
        with pytest.raises(ConfigError):
            recovered(total)
        mean = total[0, 1:] / total[0, 0]
        assert min(np.abs(mean - row).max() for part in held.values() for row in part) > 1


def gram(*rows):
    X = np.column_stack([np.ones(len(rows)), np.array(rows, dtype=float)])
    return X.T @ X


def test_whole_numbers_are_found_up_to_five_rows():
    rng = np.random.default_rng(2)
    for count in (3, 5):
        rows = rng.integers(0, 10, size=(count, 12))
        assert off(integer_rows(gram(*rows), 0, 9), rows.astype(float)) == 0


def test_equal_rows_are_found_too():
    rows = np.array([[3.0, 1.0, 4.0], [3.0, 1.0, 4.0], [0.0, 5.0, 9.0]])
    assert off(integer_rows(gram(*rows), 0, 9), rows) == 0


def test_what_cannot_be_found_is_said():
    with pytest.raises(DataError, match="not whole numbers"):
        integer_rows(gram([0.5, 1.2], [3.0, 4.0]), 0, 9)
    with pytest.raises(DataError, match="no whole numbers from 0 to 3"):
        integer_rows(gram([1, 9], [3, 4]), 0, 3)
    with pytest.raises(ConfigError, match="too many columns"):
        integer_rows(gram(*np.zeros((6, 2))), 0, 9)
    with pytest.raises(ConfigError, match="take integer_rows"):
        one_or_two_rows(gram([1, 2], [3, 4], [5, 7]))
