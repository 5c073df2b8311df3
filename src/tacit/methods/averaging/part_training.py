"""Training of one part of a network that is cut, in the state of whoever holds it, and letters about it.

Letters between clients and a service of a method are sealed: the coordinator relays and cannot read them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.client import manifest_of
from tacit.core.errors import DataError, StepError, TacitError
from tacit.core.fields import add_prefix, strip_prefix
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto import channel
from tacit.crypto.noise import add_noise, clip_l2
from tacit.methods.averaging.local_training import LocalTraining, shorten
from tacit.models.network import Network

KEY = "letters"  # in a party's vault, and what its key is signed for
ROUND, OWN = "split_round", "split/"  # in a party's state: number of the round, and what belongs to it
DONE = OWN + "done/"
Array = NDArray[Any]


def show_letter_key(party: Party) -> Blob:
    """Return this party's signed key for letters, made once in a run."""
    party.vault.setdefault(KEY, channel.new_exchange()[0])
    public, run = channel.exchange_public(party.vault[KEY]), manifest_of(party).digest
    return Blob("public", channel.sign_key(party.identity, KEY, party.id, run, public))


def write_letter(party: Party, other: str, signed: bytes, about: str, fields: Mapping[str, Any]) -> Blob:
    """Seal a letter for another party, whose signed key was relayed."""
    where = channel.place(manifest_of(party).digest, 0, about, party.id, other)
    return Blob("sealed", channel.seal(_key(party, other, signed), Message(fields).encode(), where))


def read_letter(party: Party, other: str, signed: bytes, about: str, letter: Blob) -> Message:
    """Open a letter of another party; refuse one that is about something else."""
    where = channel.place(manifest_of(party).digest, 0, about, other, party.id)
    return Message.decode(channel.unseal(_key(party, other, signed), letter.data, where))


def _key(party: Party, other: str, signed: bytes) -> Secret:
    run = manifest_of(party).digest
    peer = channel.checked_key(signed, party.pinned(other), KEY, other, run)
    return channel.pair_key(party.vault[KEY], peer, KEY, run)


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
    bounded: bool,
) -> Array:
    """Take a step from the gradient by a part's outputs, shortened if ``bounded``; return that by inputs."""
    state, weights = party.state, party.state[name].copy()
    part.reseed(party.rng("layers", state[ROUND], batch, name))
    gradient, inputs = part.pull(weights, X, slope)
    steps, memory = state.get(f"{name} steps", 0) + 1, strip_prefix(f"{name} memory/", state)
    if bounded and not np.isfinite(gradient).all():
        raise DataError("values whose gradient overflows")
    change, kept = local.follow(shorten(gradient) if bounded else gradient, memory, steps)
    weights[: part.trained] -= change
    state.update({name: weights, f"{name} steps": steps, **add_prefix(f"{name} memory/", kept)})
    return inputs


def answer_each(party: Party, batch: int, names: Iterable[str], make: Callable[[str], Any]) -> dict[str, Any]:
    """Return what is made for each client; who sends nonsense gets no answer."""
    found = {}
    for name in names:
        try:
            with np.errstate(all="ignore"):  # what overflows is refused
                found[name] = make(name)
        except (TacitError, LookupError, ValueError, RuntimeError, TypeError) as error:
            party.note(f"{name} gets no answer for batch {batch + 1}: {type(error).__name__}", "warning")
    return found


def read_letters(party: Party, batch: int, keys: Message, letters: Message, kind: str) -> dict[str, Any]:
    """Return the contents of clients' letters, in an order that is drawn; to close a round there are none."""
    closes, about = kind == "close", f"{kind} {party.state[ROUND]} {batch}"
    turns = manifest_of(party).rng("turns", party.state[ROUND], batch)
    order = turns.permutation([*(keys if closes else letters)]).tolist()

    def read(name: str) -> Message:
        return keys if closes else read_letter(party, name, keys[name].data, about, letters[name])

    return answer_each(party, batch, order, read)


def most_sent(name: str, contents: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return under this name the weights that most letters have, if any: no client alone chooses them."""
    arrays = [content["weights"] for content in contents if "weights" in content]
    sent = [np.asarray(each).tobytes() for each in arrays]
    return {name: arrays[sent.index(Counter(sent).most_common(1)[0][0])]} if sent else {}


def cover(values: Array, clip: float, noise: float) -> Array:
    """Return what is sent of some rows: as it is, or with noise, and each shortened before."""
    if not noise:
        return values
    rows = np.concatenate([clip_l2(row.reshape(-1), clip) for row in values])
    return add_noise(rows, clip, noise).reshape(values.shape).astype(values.dtype)
