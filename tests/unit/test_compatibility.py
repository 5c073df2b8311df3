"""One check of what goes together, and declarations instead of names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tacit
from tacit.core.errors import ConfigError
from tacit.core.protection import Protection
from tacit.methods import METHODS
from tacit.methods.compatibility import check_compatibility, min_clients_of
from tacit.methods.fedavg import FedAvg
from tacit.methods.fedheonn import FedHEONN
from tacit.protections import PROTECTIONS
from tacit.protections.ckks import CKKS
from tacit.protections.noised import Noised
from tacit.protections.plain import Plain
from tacit.protections.ring import LONG_RING, Ring

ROOMS = Path(tacit.__file__).parent


@pytest.mark.parametrize("name", PROTECTIONS.names())
def test_the_fewest_contributions_are_those_of_the_promise(name: str) -> None:
    protection = PROTECTIONS.build(name)
    least = min_clients_of(protection)
    assert least == (1 if protection.promises.single else 3)
    assert min_clients_of(protection, 7) == 7
    assert protection.min_contributions(least) == least


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"clients": 2}, "ckks hides a client among others, and there are 2 clients"),
        ({"clients": 2, "standing": True}, "too few with 2 founders"),
        ({"min_clients": 1}, "min_clients is 1, but a total over one client is what ckks hides"),
        ({"clients": 5, "min_clients": 6}, "min_clients is 6, but there are 5 clients"),
        ({"task": "ranking"}, "fedheonn cannot learn ranking"),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_compatibility(FedHEONN(), CKKS(), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "protection", "said"),
    [
        (FedHEONN(mode="robust"), CKKS(), "ckks cannot protect fedheonn: mode 'robust' shows"),
        (FedAvg(), Noised(), "noised cannot protect fedavg: clients count by weights"),
        (FedHEONN(mode="paper"), Noised(), "noised cannot protect fedheonn: mode 'paper' shows"),
        (
            FedAvg(),
            Noised(unit="row"),
            "noised cannot protect fedavg: nothing bounds what a single row brings",
        ),
    ],
)
def test_both_sides_are_asked(method: FedHEONN, protection: Protection, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        check_compatibility(method, protection)


@pytest.mark.parametrize(
    ("method", "protection", "said"),
    [
        (FedAvg(), CKKS(), "does not learn from one sum"),
        (FedHEONN(), Noised(), "spends its budget"),
        (FedHEONN(), CKKS(rotate_every=2), "rotate_every"),
        (FedHEONN(), PROTECTIONS.build("shares"), "open them at the coordinator"),
    ],
)
def test_what_cannot_stand_is_refused(method: FedHEONN, protection: Protection, said: str) -> None:
    check_compatibility(FedHEONN(), CKKS(), 3, standing=True)
    with pytest.raises(ConfigError, match=said):
        check_compatibility(method, protection, 9, standing=True)


def test_components_warn_of_what_is_better_known_before() -> None:
    private = FedAvg.from_config({"example_noise": 1.0})
    assert "does not cover the sums" in private.warnings_for(True)[0]
    assert not private.warnings_for(False) and not FedAvg().warnings_for(True)
    assert not Noised().warnings_for(9, True)
    assert not Plain().warnings_for(10**6, True) and not Ring().warnings_for(LONG_RING, True)
    around = Noised(inner="ring", where="distributed")
    assert len(around.warnings_for(LONG_RING + 1, True)) == 1


@pytest.mark.parametrize(
    "room", ["core", "ledger", "methods", "runs", "standing", "estimators.py", "federation.py"]
)
def test_no_room_asks_for_the_name_of_a_protection(room: str) -> None:
    found = re.compile(rf"(==|!=|\bin\b) *\(?['\"]({'|'.join(PROTECTIONS)})['\"]|protect\[\"name\"\] *[!=]=")
    for path in [ROOMS / room, *(ROOMS / room).rglob("*.py")]:
        if path.is_file():
            # The exposure classes "plain" and "masked" are called as two protections are.
            lines = [line for line in path.read_text("utf-8").splitlines() if "kind" not in line]
            assert not [line for line in lines if found.search(line) and '"class"' not in line], path


def test_every_class_in_the_registries_is_a_name_of_the_package() -> None:
    for registry in (METHODS, PROTECTIONS):
        for name in registry:
            kind = registry.get(name)
            assert kind.registered_name() == name
            assert getattr(tacit, kind.__name__) is kind
    assert {"FedHEONN", "LocalTraining", "Masked", "Federation"} <= {*dir(tacit)} & {*tacit.__all__}
