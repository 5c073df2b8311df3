"""The paper of a method: as its module cites it, unless its class says otherwise."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType

import pytest

from tacit.methods import METHODS
from tacit.methods.base import Method
from tacit.methods.fedavg import FedAvg

PLUGIN = """{docstring}
from dataclasses import dataclass
from tacit.methods.base import Method
from tacit.methods.fedavg import FedAvg

@dataclass(frozen=True)
class Own(Method):
    name = "own"

@dataclass(frozen=True)
class Better(FedAvg):
    name = "better"

@dataclass(frozen=True)
class Said(FedAvg):
    name, paper = "said", "Li, Else, 2024"
"""
CITED = '"""A plug-in.\n\nA. B. Ng, C. Ünal, "On\nSums",\nProc. X 12, 2021: it adds.\n"""'


@pytest.mark.parametrize("name", sorted(METHODS.names()))
def test_every_method_has_its_own_citation(name: str) -> None:
    paper = METHODS.get(name).paper
    assert paper[-4:].isdigit() and paper.count(", ") >= 2, paper
    first = paper.split(" and ")[0].split(", ")[0]
    assert first in (sys.modules[METHODS.get(name).__module__].__doc__ or "")


@pytest.mark.parametrize(
    ("docstring", "own", "better"),
    [
        (CITED, "Ng and Ünal, On Sums, 2021", "Ng and Ünal, On Sums, 2021"),
        ('"""A plug-in that cites nothing (2021)."""', "", FedAvg.paper),
        ("", "", FedAvg.paper),  # as under python -OO, and in a notebook
    ],
)
@pytest.mark.parametrize("module", ["plugin_of_another_package", "__main__"])
def test_a_plug_in_is_cited_as_its_module_says(docstring, own, better, module, monkeypatch):
    place = ModuleType(module)
    monkeypatch.setitem(sys.modules, module, place)
    exec(PLUGIN.format(docstring=docstring), place.__dict__)
    assert (place.Own.paper, place.Better.paper, place.Said.paper) == (own, better, "Li, Else, 2024")


def test_a_class_of_no_module_has_no_paper_of_its_own():
    @dataclass(frozen=True)
    class Made(Method):
        __module__ = "nowhere"
        name = "made"

    assert Made.paper == ""
