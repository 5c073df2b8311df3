"""What a method has clients keep for themselves, such as control variates, in a run that was stopped.

A deployed site finds it in its own store, under the manifest of the earlier attempt. Where clients vanish
with their process, which is for experiments, the experimenter reads it after each round and hands it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.client import add_prefix, manifest_of, strip_prefix
from tacit.core.errors import ConfigError
from tacit.core.manifest import Components
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.shared import Shared

if TYPE_CHECKING:
    from tacit.core.coordinator import Coordinator

STATE = "state/"


def write_states(states: Mapping[str, bytes]) -> dict[str, Any]:
    """Return what clients keep in three buffers: a message has no room for thousands of names.

    >>> split_states(write_states({"ann": b"12", "bob": b"3"}))
    {'ann': b'12', 'bob': b'3'}
    """
    lengths = np.array([len(raw) for raw in states.values()], dtype=np.int64)
    return {"names": "\n".join(states).encode(), "lengths": lengths, "states": b"".join(states.values())}


def split_states(fields: Mapping[str, Any]) -> dict[str, bytes]:
    """Return what :func:`write_states` wrote, by the names of the clients."""
    raw, ends = fields["states"], np.cumsum(fields["lengths"]).tolist()
    pieces = [raw[start:end] for start, end in pairwise([0, *ends])]
    return dict(zip(fields["names"].decode().split("\n"), pieces, strict=False))  # of nobody, one empty name


def read_states(coordinator: Coordinator) -> dict[str, bytes]:
    """Return what clients keep for themselves, where nobody else would remember it."""
    transport = coordinator.link.transport
    if transport.engine.persistent or not coordinator.components.method.client_state:
        return {}
    with transport.unrecorded():  # the experimenter's reading is no traffic of the federation
        replies = list(transport.wave("client.show_state", coordinator.parties, {}, failures={}))
    return {reply.party: Message(strip_prefix(STATE, reply.message)).encode() for reply in replies}


def restore_states(coordinator: Coordinator, states: Mapping[str, bytes]) -> None:
    """Hand back to the clients what they had kept for themselves."""
    jobs = {n: add_prefix(STATE, Message.decode(states[n])) for n in coordinator.parties if n in states}
    failures, wave = coordinator.failures, coordinator.link.wave
    list(wave("client.restore_state", tuple(jobs), {}, jobs, failures=failures) if jobs else ())


def show_state(party: Party, message: Message, components: Components, shared: Shared) -> Message:
    """Show the experimenter what the method has this party keep for itself."""
    return Message(add_prefix(STATE, _choose(party, components, party.state)))


def restore_state(party: Party, message: Message, components: Components, shared: Shared) -> Message:
    """Take up, in experiments, what the method had this party keep for itself."""
    party.state.update(_choose(party, components, strip_prefix(STATE, message)))
    return Message()


def _choose(party: Party, components: Components, values: Mapping[str, Any]) -> dict[str, Any]:
    if not manifest_of(party).experiment:
        raise ConfigError(f"{party.id} keeps its own state at its site: it is shown in experiments only")
    return {name: values[name] for name in components.method.client_state if name in values}
