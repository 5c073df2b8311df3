"""A method whose clients misbehave by name; a module of its own, so that workers can import it."""

import os
import time
from dataclasses import dataclass

import numpy as np

from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution, step
from tacit.core.message import Message
from tacit.methods.base import Method


@dataclass(frozen=True)
class Moody(Method):
    """Adds up rows, unless a client is one of the named.

    Parameters
    ----------
    sleepy, dying, deaf : tuples of str
        Clients that sleep in their step, end their process, or sleep whatever alarm rings.
    seconds : float
        How long they sleep.
    """

    sleepy: tuple[str, ...] = ()
    dying: tuple[str, ...] = ()
    deaf: tuple[str, ...] = ()
    seconds: float = 30.0

    def _layout(self, schema):
        return Layout(Field("sum", (schema.features,)), Field("count", ()))

    def _misbehave(self, party):
        party.state["begun"] = True
        if party.id in self.dying:
            os._exit(1)
        if party.id in self.sleepy:
            time.sleep(self.seconds)
        if party.id in self.deaf:
            until = time.monotonic() + self.seconds
            while time.monotonic() < until:
                try:
                    time.sleep(self.seconds)
                except Exception:  # noqa: BLE001  # such code exists, and must not pass for quick
                    continue

    @contribution(_layout)
    def rows(self, party, shared):
        self._misbehave(party)
        return {"sum": party.data.values.sum(axis=0), "count": len(party.data.values)}

    @apply
    def take(self, total, shared):
        return shared | {"sum": total["sum"] + shared.get("sum", 0.0), "count": total["count"]}

    @step
    def echo(self, party, message, shared):
        self._misbehave(party)
        party.state["echoes"] = party.state.get("echoes", 0) + 1
        return Message(
            word=f"{party.id}:{message.get('word', '')}{message.get('own', '')}",
            echoes=party.state["echoes"],
            drawn=party.rng("echo").integers(10**9),
        )

    @step
    def swell(self, party, message, shared):
        return Message(array=np.zeros(message["size"]))
