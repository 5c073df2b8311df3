"""What a standing federation has to keep under every protection that it can stand on."""

import numpy as np
import pytest

from tacit.core.errors import OpeningError
from tacit.federation import Federation
from tacit.methods import METHODS
from tacit.methods.fedheonn import FedHEONN
from tacit.protections import PROTECTIONS
from tacit.standing import Standing

# Weights of a model that never saw a client: to rounding, or under CKKS to what FedHEONN promises of weights.
TOLERANCE = {"ckks": 1e-6}
QUICK = {
    "plain": {},
    "plain-clients": {"opens": "clients"},
    "bfv": {},
    "ckks": {},
    "masked": {},
    "shares": {"opens": "coordinator"},
    "committee": {"opens": "coordinator"},
}
SLOW = {"paillier": {"key_bits": 2048}, "ring": {"key_bits": 2048}}


def protection(name):
    return PROTECTIONS.build(name.partition("-")[0], {**QUICK, **SLOW}[name])


@pytest.fixture(params=[*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def protect(request):
    return protection(request.param)


@pytest.fixture(scope="module")
def federation():
    return Federation.embedded(
        "wine", clients=10, partition="label-sorted", seed=3, classes=["class_0", "class_1", "class_2"]
    )


@pytest.fixture(scope="module")
def names(federation):
    return list(federation.holdings.names)


def tolerance(protect):
    return TOLERANCE.get(protect.name, 1e-8)


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS.get(name).tiny().standing])
def test_every_method_that_can_stand_forgets(name, federation, names, tmp_path):
    method, found = METHODS.get(name).tiny(), []
    for path, withdrawn in (("with", names[2:4]), ("without", [])):
        with Standing.start(tmp_path / path, federation, method=method, protect="plain") as standing:
            standing.add([name for name in names[:8] if withdrawn or name not in names[2:4]])
            if withdrawn:
                standing.withdraw(withdrawn)
            found.append(standing.weights().weights)
    assert np.abs(found[0] - found[1]).max() <= 1e-8


class TestEveryProtection:
    def test_a_withdrawn_client_leaves_no_trace(self, protect, federation, names, tmp_path):
        """Contract: the model equals one never trained on it, on the scale that was settled at the start."""
        with Standing.start(tmp_path / "with", federation, protect=protect, founders=8) as standing:
            standing.add(names[:8])
        with Standing.open(tmp_path / "with", federation) as standing:
            standing.withdraw(names[1:4])
            found = standing.weights().weights
        with Standing.start(tmp_path / "without", federation, protect=protect, founders=8) as standing:
            standing.add([names[0], *names[4:8]])
            expected = standing.weights().weights
        assert np.abs(found - expected).max() <= tolerance(protect)
        with Standing.start(tmp_path / "all", federation, protect=protect, founders=8) as standing:
            standing.add(names[:8])
            assert np.abs(found - standing.weights().weights).max() > 1e-3  # they did matter

    def test_it_learns_what_one_training_learns(self, protect, federation, names, tmp_path):
        whole = federation.train(FedHEONN(), protect="plain").model.weights
        with Standing.start(tmp_path, federation, protect=protect) as standing:
            standing.add(names[6:])
            standing.add(names[:6])
            assert np.abs(standing.weights().weights - whole).max() <= tolerance(protect)

    def test_groups_merge_into_one(self, protect, federation, names, tmp_path):
        """Eq. 5 over groups: a tree of coordinators gives the weights of a single one."""
        paths = [tmp_path / name for name in ("root", "left", "right", "single")]
        with Standing.start(paths[0], federation, protect=protect, founders=7) as root:
            root.branch(paths[1])
            root.branch(paths[2])
            with Standing.open(paths[1], federation) as left:
                left.add(names[:3])
                with Standing.open(paths[2], federation) as right:
                    right.add(names[3:7])
                assert left.merge(paths[2]) == 4
            root.add(names[7:])
            assert root.merge(paths[1]) == 7
            assert root.merge(paths[1]) == 0  # acknowledged, not added
            found = root.weights().weights
            root.withdraw(names[2:5])  # clients of both groups
            fewer = root.weights().weights
        for rest, seen in ((names, found), ([*names[:2], *names[5:]], fewer)):
            path = tmp_path / f"single-{len(rest)}"
            with Standing.start(path, federation, protect=protect, founders=7) as single:
                single.add(rest)
                assert np.abs(single.weights().weights - seen).max() <= tolerance(protect)

    def test_no_opening_shows_a_few_clients(self, protect, federation, names, tmp_path):
        with Standing.start(tmp_path, federation, protect=protect, min_clients=3) as standing:
            if protect.incremental:
                standing.add(names[:2])
                with pytest.raises(OpeningError, match="2 clients contribute"):
                    standing.weights()
                standing.add(names[2:6])
            else:
                with pytest.raises(OpeningError, match="differ by 2 clients"):
                    standing.add(names[:2])
                standing.add(names[:6])
            first = standing.weights().weights
            assert np.array_equal(standing.weights().weights, first)  # the same total again tells nothing
            with pytest.raises(OpeningError, match="differ by 1 client"):
                standing.withdraw(names[:1])
                standing.weights()
            if protect.incremental:
                standing.change(add=names[6:7], withdraw=names[1:2])
            else:
                standing.change(add=names[6:7], withdraw=names[:2])
            assert standing.weights().weights.shape == first.shape
