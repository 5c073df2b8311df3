"""A client's rows while trees grow: their buckets, derivatives, and the node that each has come to.

All of it is kept in the party's cache, and made again from its rows and the shared values if it is not there.
Margins are kept in its state, so that a client is told the trees of the last round only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import StepError
from tacit.core.party import Party
from tacit.methods.boosting import histograms
from tacit.methods.boosting.losses import Matrix, unpack

MARGINS, COUNT = "boosting/margins", "boosting/rounds"  # in a party's state


@dataclass
class PartyRows:
    """One client's rows."""

    bins: NDArray[np.uint8]
    truth: NDArray[Any]
    weights: NDArray[np.float64] | None
    offsets: NDArray[np.int64]
    trees: int = 1  # that will grow from them
    packed: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    at: NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int32))
    drawn: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.uint8))
    places: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, dtype=np.int64))  # of drawn columns
    owners: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # output by node
    round: int = -1  # for which derivatives are known
    step: int = 0  # waves of that round that rows have followed

    def __post_init__(self) -> None:
        if (self.bins.max(axis=0, initial=0) >= np.diff(self.offsets)).any():
            raise StepError("more buckets than were agreed: the cuts were not made by this protocol")
        self._add = histograms.choose_loop(self.bins.size * self.trees)

    def begin(self, number: int, packed: NDArray[np.int64], columns: NDArray[np.intp] | None = None) -> None:
        """Put all rows into the roots of a round's trees, made of these columns (None: all)."""
        self.packed, self.round, self.step, self.owners = packed, number, 0, np.arange(len(packed))
        chosen = np.arange(self.bins.shape[1]) if columns is None else columns
        self.drawn = self.bins if len(chosen) == self.bins.shape[1] else self.bins.take(chosen, axis=1)
        self.places = np.concatenate([[0], np.cumsum(np.diff(self.offsets)[chosen])])
        self.at = np.repeat(np.arange(len(packed), dtype=np.int32)[:, None], packed.shape[1], axis=1)

    def sum_slots(self, record: Mapping[str, Any], step: int, slots: int) -> Matrix:
        """Return the histograms of the nodes that are to be summed, at most so many.

        Rows that have come to a node without children stay there: what is asked twice moves nothing.
        """
        if not 0 <= step <= len(record["feature"]):
            raise StepError(f"step {step} of trees of {len(record['feature'])} nodes: each adds some")
        while self.step < step - 1:  # waves that this client's rows have not followed
            self._advance(record)
        if len(record["slots"]) > slots:
            raise StepError(f"{len(record['slots'])} histograms, agreed were {slots}")
        sums = np.zeros((len(record["slots"]), int(self.places[-1])), dtype=np.int64)
        self._advance(record, sums)
        self.step = step
        return unpack(sums)

    def add_trees(self, record: Mapping[str, Any], margins: Matrix) -> Matrix:
        """Return margins with what the leaves of complete trees add."""
        while (record["feature"][self.at] >= 0).any():
            self._advance(record)
        return np.asarray(margins + record["value"][self.at])

    def _advance(self, record: Mapping[str, Any], sums: NDArray[np.int64] | None = None) -> None:
        nodes = record["feature"], record["left"], np.unpackbits(record["goes"], axis=1)
        self._check(*nodes)
        slots = np.full(len(record["feature"]), -1, dtype=np.int32)
        if sums is not None:
            wanted = record["slots"]
            if wanted.shape != np.unique(wanted).shape or not np.isin(wanted, np.arange(len(slots))).all():
                raise StepError("histograms of nodes that there are not, or twice of one")
            slots[wanted] = np.arange(len(wanted), dtype=np.int32)
        sums = np.zeros((1, 1), dtype=np.int64) if sums is None else sums
        for at, packed in zip(self.at, self.packed, strict=True):
            self._add(self.bins, self.drawn, self.places[:-1], at, packed, nodes, slots, sums)
        self.step += 1

    def _check(self, feature: Any, left: Any, right: Any) -> None:
        """Refuse nodes that lead elsewhere than down, or past an array: compiled loops check nothing.

        A node is of one output's tree for the whole round: else a row would bring what it has of several to
        one histogram, which is more than noise is made for.
        """
        inner = np.flatnonzero(feature >= 0)
        fine = feature.shape == left.shape == (len(right),) and self.at.max(initial=0) < len(right)
        fine = fine and feature.dtype.kind == left.dtype.kind == "i"
        fine = fine and (feature < self.bins.shape[1]).all() and bool((left[inner] > inner).all())
        fine = fine and (left[inner] < len(right) - 1).all()
        if (
            not fine
            or (len(inner) and right.shape[1] <= self.bins.max(initial=0))
            or not self._owns(inner, left)
        ):
            raise StepError("nodes of a tree lead astray: they were not made by this protocol")

    def _owns(self, inner: Any, left: Any) -> bool:
        """Note of which output's tree each child is; return whether none is of two."""
        owners = np.full(len(left), -1)
        kept = self.owners[: len(left)]
        owners[: len(kept)] = kept
        while len(known := inner[owners[inner] >= 0]):
            children, own = left[known][:, None] + [0, 1], owners[known][:, None]
            before = owners[children]
            owners[children] = own
            if ((before >= 0) & (before != own)).any() or (owners[children] != own).any():
                return False
            inner = np.setdiff1d(inner, known)
        self.owners = owners
        return True


def catch_up(
    party: Party,
    rows: PartyRows,
    record: Mapping[str, Any],
    number: int,
    predict: Callable[[], Matrix] | None,
) -> Matrix:
    """Return the margins of a client's rows after so many rounds, outputs × rows, and keep them.

    They follow from those before and ``record``, the trees of the last round, if it is complete; or, for a
    client that does not have them, from all trees (``predict``), if it was told these.
    """
    known, margins = int(party.state.get(COUNT, -1)), party.state.get(MARGINS)
    if known == number - 1 and margins is not None and record["complete"]:
        if rows.round != known:
            rows.begin(known, np.zeros((len(margins), len(rows.bins)), dtype=np.int64))
        margins = rows.add_trees(record, margins)
    elif known != number:
        if predict is None:
            raise StepError(
                f"{party.id} knows {known} rounds of trees, and was told the last of {number} only"
            )
        margins = predict()
    party.state[MARGINS], party.state[COUNT] = margins, number
    return np.asarray(margins)
