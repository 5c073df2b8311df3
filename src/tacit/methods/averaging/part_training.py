"""Training of one part of a network that is cut, in the state of whoever holds it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import StepError
from tacit.core.fields import add_prefix, strip_prefix
from tacit.core.party import Party
from tacit.crypto.noise import add_noise, clip_l2
from tacit.methods.averaging.local_training import LocalTraining, shorten
from tacit.models.network import Network

ROUND, OWN = "split_round", "split/"  # in a party's state: number of the round, and what belongs to it
DONE = OWN + "done/"
Array = NDArray[Any]


def begins(party: Party, number: int) -> bool:
    """Return whether a round begins for a party, which then forgets what belongs to an earlier one."""
    if (known := party.state.get(ROUND, -1)) == number:
        return False
    if known > number:
        raise StepError(f"{party.id} has begun round {known + 1}, and is asked for round {number + 1}")
    for name in [name for name in party.state if name.startswith(OWN)]:
        del party.state[name]
    party.state[ROUND] = number
    return True


def claim(party: Party, what: str, batch: int) -> int:
    """Return the number of a batch, once for each use: whoever asks twice would learn more of its rows."""
    if batch < party.state.get(DONE + what, 0):
        raise StepError(f"{party.id} has dealt with batch {batch + 1} of this round before")
    party.state[DONE + what] = batch + 1
    return batch


def learn_part(
    local: LocalTraining,
    party: Party,
    name: str,
    part: Network,
    X: Array,
    slope: Array,
    batch: int,
    squares: bool,
) -> Array:
    """Take a step from the gradient by a part's outputs, and return that by its inputs.

    What the optimiser remembers lasts for the round. ``squares``: the loss is of squared errors.
    """
    state, weights = party.state, party.state[name].copy()
    part.reseed(party.rng("layers", state[ROUND], batch, name))
    gradient, inputs = part.pull(weights, X, slope)
    steps, memory = state.get(f"{name} steps", 0) + 1, strip_prefix(f"{name} memory/", state)
    change, kept = local.follow(shorten(gradient) if squares else gradient, memory, steps)
    weights[: part.trained] -= change
    state.update({name: weights, f"{name} steps": steps, **add_prefix(f"{name} memory/", kept)})
    return inputs


def cover(values: Array, clip: float, noise: float) -> Array:
    """Return what is sent of some rows: as it is, or with noise, and each shortened before."""
    if not noise:
        return values
    rows = np.concatenate([clip_l2(row.reshape(-1), clip) for row in values])
    return add_noise(rows, clip, noise).reshape(values.shape).astype(values.dtype)
