"""What a protection promises, as data: docs, exposure report and contract tests read the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Place = Literal["coordinator", "clients"]
MODELS: Mapping[Place, str] = {
    "coordinator": "the coordinator, which sends it: crafted weights can make a total of gradients show rows",
    "clients": "each client by itself, from the totals; it takes none from the coordinator",
}


@dataclass(frozen=True)
class Promises:
    """What a protection promises, as data.

    Parameters
    ----------
    opens : {"coordinator", "clients"}
        Where totals open, and so where a method's ``apply`` runs.
    keys : mapping
        Who holds which key.
    sees : mapping
        What each kind of party sees of a single client's contribution.
    collusion : str
        Which parties together undo it.
    dropout : str
        What happens when a client vanishes.
    precision : float
        Largest error of a total, as a share of bound × contributions; 0 is exact up to float rounding.
        Values without a bound are exact to 2⁻⁶⁰.
    bytes_per_value : float
        Upload of one client for one value of the vector, for long vectors.
    per_client : bool
        Whether that is for each client that takes part: all of them are sent a vector.
    single : bool
        Whether one client alone may be summed.
    warnings : tuple of str
        Unsafe choices, said aloud in log and report.
    proof : str
        What a total proves of itself to the clients that open it; empty where they do not.
    model : str
        Who computes the model; follows from ``opens``.
    """

    opens: Place
    keys: Mapping[str, str]
    sees: Mapping[str, str]
    collusion: str
    dropout: str
    precision: float
    bytes_per_value: float
    per_client: bool = False
    single: bool = False
    warnings: tuple[str, ...] = ()
    proof: str = ""
    model: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", MODELS[self.opens])

    def as_dict(self) -> dict[str, Any]:
        """Return the promises as plain values."""
        return asdict(self)
