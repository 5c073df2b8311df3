"""What the federation shares: the agreed schema and the values learnt so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tacit.core.message import Message


class Shared(Mapping[str, Any]):
    """Values that whoever opens totals holds, with the agreed schema; never changed in place."""

    __slots__ = ("_digest", "_message", "schema")

    def __init__(self, schema: Any, values: Mapping[str, Any]) -> None:
        self.schema = schema
        self._message = values if isinstance(values, Message) else Message(values)
        self._digest = ""

    def __getitem__(self, name: str) -> Any:
        return self._message[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._message)

    def __len__(self) -> int:
        return len(self._message)

    def __or__(self, new: Mapping[str, Any]) -> Shared:
        return Shared(self.schema, Message({**self._message, **new}))

    def digest(self) -> str:
        """Return the SHA-256 over the values: equal replicas have equal digests."""
        self._digest = self._digest or self._message.digest()  # clients of one process ask for it in turn
        return self._digest


class Total(dict[str, Any]):
    """An opened total: summed and folded fields by name, over how many contributions, and how exact.

    ``error`` is the typical error of a summed value as a share of its bound; ``multiplied`` says that the
    coordinator has multiplied the encrypted total by the matrix that the method gave it, ``exact`` that
    nothing but floating point has rounded it. ``noise`` is the standard deviation of the noise in each value.
    """

    def __init__(
        self,
        fields: Mapping[str, Any],
        contributors: int,
        error: float = 0.0,
        multiplied: bool = False,
        exact: bool = False,
        noise: float = 0.0,
    ) -> None:
        super().__init__(fields)
        self.contributors = contributors
        self.error = error
        self.multiplied = multiplied
        self.exact = exact
        self.noise = noise
