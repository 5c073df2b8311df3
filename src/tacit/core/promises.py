"""What a protection promises, as data: docs, exposure report and contract tests read the same."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Place = Literal["coordinator", "clients"]
Opening = Literal["coordinator", "clients", "leader"]  # the last: one client alone, drawn by all
MODELS: Mapping[Opening, str] = {
    "coordinator": "the coordinator, which sends it: crafted weights can make a total of gradients show rows",
    "clients": "each client by itself, from the totals; it takes none from the coordinator",
    "leader": "the leader, from the totals; the coordinator passes it on, and could send another",
}


@dataclass(frozen=True)
class Promises:
    """What a protection promises, as data."""

    opens: Opening  # where totals open, and so where a method's ``apply`` runs
    keys: Mapping[str, str]  # who holds which key
    sees: Mapping[str, str]  # what each kind of party sees of a single client's contribution
    collusion: str  # which parties together undo it
    dropout: str  # what happens when a client vanishes
    # Largest error of a total, as a share of bound × contributions; 0 is exact up to float rounding.
    # Values without a bound are exact to 2⁻⁶⁰.
    precision: float
    bytes_per_value: float  # upload of one client for one value of the vector, for long vectors
    per_client: bool = False  # whether that is for each client that takes part: all are sent a vector
    single: bool = False  # whether one client alone may be summed
    warnings: tuple[str, ...] = ()  # unsafe choices, said aloud in log and report
    proof: str = ""  # what a total proves of itself to the clients that open it; empty where they do not

    def as_dict(self) -> dict[str, Any]:
        """Return the promises as plain values, and who computes the model, which follows from them."""
        return asdict(self) | {"model": MODELS[self.opens]}
