"""Standing federations: durable, incremental and reversible sums (see docs/standing.md)."""

from tacit.standing.standing import Receipt, Standing

__all__ = ["Receipt", "Standing"]
