"""Standing federations: durable, incremental and reversible sums (docs/standing.md)."""

from tacit.standing.opening import read
from tacit.standing.standing import Receipt, Standing

__all__ = ["Receipt", "Standing", "read"]
