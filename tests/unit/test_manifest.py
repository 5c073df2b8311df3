"""The manifest: its digest names everything that was agreed."""

import dataclasses

import pytest

from tacit.core.errors import ConfigError, MessageError
from tacit.core.manifest import Components, Manifest
from tacit.core.message import Message
from tacit.data.preparation import Preparation
from tacit.engines.assembly import assemble
from tacit.methods.fedheonn import FedHEONN
from tacit.protections.plain import Plain

PARTS = Components(FedHEONN(lam=0.5), Plain(opens="clients"), Preparation(scale="minmax"))


@pytest.fixture
def manifest():
    return Manifest.of("run-1", PARTS, seed=4, min_clients=3, declared={"classes": ["a", "b"]})


def test_it_survives_its_message(manifest):
    back = Manifest.from_message(Message.decode(manifest.to_message().encode()))
    assert back.digest == manifest.digest
    assert back.to_message() == manifest.to_message()


def test_the_parts_it_names_are_built_as_they_were(manifest):
    back = Manifest.from_message(Message.decode(manifest.to_message().encode()))
    assert assemble(back) == PARTS


@pytest.mark.parametrize(
    "change",
    [
        {"run": "run-2"},
        {"seed": 5},
        {"min_clients": 2},
        {"quorum": 0.5},
        {"experiment": True},
        {"declared": {}},
        {"components": Manifest.of("r", PARTS._replace(method=FedHEONN(lam=0.6))).components},
        {"components": Manifest.of("r", PARTS._replace(protection=Plain())).components},
        {"components": Manifest.of("r", PARTS._replace(preparation=Preparation())).components},
    ],
    ids=lambda change: next(iter(change)),
)
def test_any_other_agreement_has_another_digest(manifest, change):
    assert dataclasses.replace(manifest, **change).digest != manifest.digest


@pytest.mark.parametrize("change", [{"extra": 1}, {"seed": None}])
def test_unknown_and_missing_fields_are_refused(manifest, change):
    fields = {**manifest.to_message(), **change}
    fields = {name: value for name, value in fields.items() if value is not None}
    with pytest.raises(MessageError, match=r"unknown or missing: install the same release"):
        Manifest.from_message(Message(fields))


def test_a_part_that_is_not_installed_here_is_refused(manifest):
    components = {**manifest.components, "method": {"name": "elsewhere", "config": {}}}
    with pytest.raises(ConfigError, match="unknown method 'elsewhere'"):
        assemble(dataclasses.replace(manifest, components=components))


def test_an_option_that_this_release_does_not_know_is_refused(manifest):
    components = {**manifest.components, "method": {"name": "fedheonn", "config": {"lamda": 1.0}}}
    with pytest.raises(ConfigError, match="did you mean 'lam'"):
        assemble(dataclasses.replace(manifest, components=components))
