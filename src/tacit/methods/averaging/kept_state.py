"""What clients keep for themselves from round to round, such as a head, if a run is stopped and goes on.

Clients of an experiment end with its process, so its checkpoint holds their state too. Deployed sites keep
theirs in a store of their own, which nobody reads or sets.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tacit.core.client import manifest_of
from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError
from tacit.core.message import Message
from tacit.core.party import Party


def read_kept(coordinator: Coordinator, show: Callable[..., Any], names: Sequence[str]) -> dict[str, Any]:
    """Return what clients show of these names, to be written down with a round; nothing if sites keep it."""
    transport = coordinator.link.transport
    if transport.engine.persistent or coordinator.keep is None:
        return {}
    with transport.unrecorded():  # the experimenter's reading is no traffic of the federation
        wave = transport.wave(f"method.{show.__name__}", coordinator.parties, {}, failures={})
        replies = [reply for reply in wave if names[0] in reply.message]
    found = {name: np.array([one.message[name] for one in replies]) for name in names}
    return {**found, "names": "\n".join(one.party for one in replies).encode()}


def find_kept(coordinator: Coordinator, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what was written down of each client before a run was stopped, to give it back."""
    columns = [coordinator.progress.get(name, ()) for name in names]
    clients = coordinator.progress.get("names", b"").decode().split("\n")
    return {one: dict(zip(names, row, strict=True)) for one, *row in zip(clients, *columns, strict=False)}


def swap_kept(party: Party, message: Message, names: Sequence[str], what: str) -> Message:
    """Take back what the experimenter gives of what this client keeps, and show what it has."""
    if not manifest_of(party).experiment:
        raise ConfigError(f"{party.id} keeps its {what} at its site: only experiments show or set it")
    party.state.update({name: message[name] for name in names if name in message})
    return Message({name: party.state[name] for name in names if name in party.state})
