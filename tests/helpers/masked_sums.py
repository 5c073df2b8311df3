"""Rows that clients sum under masks, and what their total must be."""

import numpy as np

from tacit.crypto.fixedpoint import FixedPoint


def rows_of(clients, size=5):
    rows = np.random.default_rng(clients).uniform(-1, 1, size=(clients, size))
    return {f"client-{index + 1}": row for index, row in enumerate(rows)}


def some(*numbers):
    return {f"client-{number}" for number in numbers}


def assert_exact(scene, total, without=()):
    """The sum of what clients rounded to, to the last bit."""
    rows = [row for name, row in scene.rows.items() if name not in without]
    code = FixedPoint(np.ones(len(rows[0])), scene.protection.bits, len(scene.rows))
    assert total.contributors == len(rows)
    assert total["vector"].tobytes() == code.decode(sum(map(code.encode, rows))).tobytes()
