"""A coordinator of FederBoost crafts the trees that clients follow with their rows.

With many rows their loops are compiled, and check no bounds: a child far away would be read, and a histogram
beyond the last one written, in the client's memory. A node below itself would be followed for ever.
"""

import numpy as np
import pytest

from tacit import Federation
from tacit.core.errors import QuorumError, StepError
from tacit.methods.boosting import histograms
from tacit.methods.boosting.rows import PartyRows
from tacit.methods.federboost import FederBoost

BINS = np.array([[0, 1], [2, 0], [3, 1]], dtype=np.uint8)
OFFSETS = np.array([0, 4, 6])


def rows() -> PartyRows:
    found = PartyRows(BINS, np.zeros(3), None, OFFSETS)
    found.begin(0, np.ones((1, 3), dtype=np.int64))
    return found


def record(**changes):
    goes = np.packbits(np.array([[0, 0, 1, 1], *[[0] * 4] * 2], np.uint8), axis=1)
    ints = {"feature": [0, -1, -1], "left": [1, -1, -1], "slots": [1]}
    return {name: np.array(value, np.int32) for name, value in ints.items()} | {"goes": goes} | changes


def ints(*values):
    return np.array(values, np.int32)


def test_control_an_honest_record_is_followed():
    sums = rows().sum_slots(record(), 1, 1)
    assert sums[0, :, 1].tolist() == [1, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    "changes",
    [
        {"left": ints(2**30, -1, -1)},
        {"left": ints(2**31 - 1, -1, -1)},
        {"left": ints(-5, -1, -1)},
        {"left": ints(2, -1, -1)},  # its right child is none
        {"left": ints(0, -1, -1)},  # for ever
        {"left": ints(1)},
        {"left": np.array([1.0, -1.0, -1.0])},  # cut to whole numbers, two may be one
        {"feature": ints(7, -1, -1)},
        {"slots": ints(1, 2, 1, 2)},  # histograms that were not agreed
        {"slots": ints(3)},
        {"slots": ints(-1)},
        {"slots": np.array([[1, 2]], np.int32)},  # both in one: a row of the two brings more than its share
        {"goes": np.zeros((3, 0), np.uint8)},
        {name: value[:0] for name, value in record().items()},
    ],
)
def test_nodes_that_lead_astray_are_refused_before_any_row_follows(changes, monkeypatch):
    monkeypatch.setattr(histograms, "add_rows", lambda *given: pytest.fail("followed"))
    with pytest.raises(StepError):
        rows().sum_slots(record(**changes), 1, 1)
    if "slots" not in changes:
        with pytest.raises(StepError):
            rows().add_trees(
                record(value=np.zeros(3), **{"feature": ints(0, 0, 0)} | changes), np.zeros((1, 3))
            )


@pytest.mark.parametrize(
    ("left", "slots"), [((2, 2, -1, -1), (2,)), ((2, 3, -1, -1, -1), (2, 3)), ((1, 2, -1, -1), (1,))]
)
def test_trees_of_several_outputs_do_not_meet(left, slots):
    """A row would bring what it has of both outputs to one histogram, more than noise is made for."""
    found = rows()
    found.begin(0, np.ones((2, 3), dtype=np.int64))
    nodes = len(left)
    feature = np.where(np.array(left) < 0, -1, 0).astype(np.int32)
    crafted = {"feature": feature, "left": ints(*left), "slots": ints(*slots)}
    crafted["goes"] = np.zeros((nodes, 1), np.uint8)
    with pytest.raises(StepError, match="lead astray"):
        found.sum_slots(crafted, 1, 2)
    crafted |= {"left": ints(2, 4, *[-1] * 4), "feature": ints(0, 0, *[-1] * 4), "slots": ints(2, 4)}
    assert found.sum_slots(crafted | {"goes": np.zeros((6, 1), np.uint8)}, 1, 2)[:, :, 1].sum() == 12


def test_trees_of_several_outputs_do_not_meet_in_two_steps():
    """Each record is sound: the first output's rows go to node 2, and in the next one the second's follow."""
    found = rows()
    found.begin(0, np.ones((2, 3), dtype=np.int64))
    goes = np.zeros((4, 1), np.uint8)
    first = {"feature": ints(0, -1, -1, -1), "left": ints(2, -1, -1, -1), "slots": ints(2), "goes": goes}
    assert found.sum_slots(first, 1, 2)[:, :, 1].sum() == 6
    second = {"feature": ints(-1, 0, -1, -1), "left": ints(-1, 2, -1, -1), "slots": ints(2), "goes": goes}
    with pytest.raises(StepError, match="lead astray"):
        found.sum_slots(second, 2, 2)


@pytest.mark.parametrize("step", [2**40, -(2**40)])
def test_a_step_that_no_tree_has_is_refused(step):
    """After one that lies far back, the next would have a client follow all between them."""
    with pytest.raises(StepError, match="each adds some"):
        rows().sum_slots(record(), step, 1)


def test_cuts_that_give_more_buckets_than_agreed_are_refused():
    with pytest.raises(StepError, match="more buckets than were agreed"):
        PartyRows(np.array([[0, 2]], np.uint8), np.zeros(1), None, OFFSETS)


@pytest.mark.parametrize("cuts", [np.zeros((4, 400)), np.zeros((9, 6))])
def test_cuts_of_another_shape_than_agreed_are_refused(cuts):
    federation = Federation.embedded("iris", clients=3)
    method = FederBoost(trees=1, depth=2, buckets=8)
    find = FederBoost._find_rows

    def crafted(self, party, shared):
        return find(self, party, shared | {"cuts": cuts.astype(np.float32)})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FederBoost, "_find_rows", crafted)
        with pytest.raises(QuorumError, match="more buckets than were agreed"):
            federation.train(method, protect="plain")
