"""What the federation shares: the agreed schema and the values learnt so far."""

from collections import UserDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit.core.message import Message


class Shared(Message):
    """Values that whoever opens totals holds, with the agreed schema; never changed in place."""

    __slots__ = ("_digest", "schema")

    def __init__(self, schema: Any, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.schema, self._digest = schema, ""

    def __or__(self, new: Mapping[str, Any]) -> "Shared":
        return Shared(self.schema, super().__or__(new))

    def digest(self) -> str:
        """Return the SHA-256 over the values: equal replicas have equal digests."""
        self._digest = self._digest or super().digest()  # clients of one process ask for it in turn
        return self._digest


@dataclass(eq=False, repr=False)
class Total(UserDict[str, Any]):
    """An opened total: summed and folded fields by name, over how many contributions, and how exact."""

    data: dict[str, Any]
    contributors: int
    error: float = 0.0  # typical error of a summed value, as a share of its bound
    multiplied: bool = False  # the coordinator has multiplied it, encrypted, by the method's matrix
    exact: bool = False  # nothing but floating point has rounded it
    noise: float = 0.0  # standard deviation of the noise in each value
