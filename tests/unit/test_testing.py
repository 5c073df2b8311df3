"""A method or a protection that breaks a promise is found out by the checks for plug-ins."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.core.message import Message
from tacit.data.inputs import Inputs
from tacit.methods.base import Method
from tacit.models.onelayer import OneLayer
from tacit.protections.plain import Plain, PlainClient, PlainCoordinator
from tacit.testing import check_method, check_protection


class Forgetful(PlainClient):
    def protect(self, ticket, vector, layout):
        return Message(vector=vector * 0)


class Hasty(PlainCoordinator):
    def add(self, total, more):
        return more


@dataclass(frozen=True)
class Broken(Plain):
    """A plain sum that breaks a promise.

    Parameters
    ----------
    flaw : str
        Which one.
    """

    flaw: str = ""

    @property
    def promises(self):
        changed = {
            "silent": {"sees": {"coordinator": "all"}},
            "empty": {"collusion": ""},
            "unwarned": {"warnings": ()},
            "elsewhere": {"opens": "clients"},
            "alone": {"single": False},
            "coarse": {"precision": 0.5},
        }
        return replace(super().promises, **changed.get(self.flaw, {}))

    def min_contributions(self, agreed):
        return 1 if self.flaw == "alone" else super().min_contributions(agreed)

    def at_client(self, party):
        return (Forgetful if self.flaw == "forgets" else PlainClient)(party)

    def at_coordinator(self, link):
        return (Hasty if self.flaw == "hasty" else PlainCoordinator)(link)


@pytest.mark.parametrize(
    ("flaw", "text"),
    [
        ("silent", "what do coordinator and client see"),
        ("empty", "a promise is empty"),
        ("unwarned", "no warning of what is in the clear"),
        ("elsewhere", "where do totals open"),
        ("alone", "a single contribution"),
        ("coarse", "a precision without sense"),
        ("forgets", "a total is wrong by"),
        ("hasty", "a restored coordinator: a total is wrong by"),
    ],
)
def test_a_protection_that_breaks_a_promise(flaw: str, text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        check_protection(Broken(flaw=flaw))


def test_settings_without_a_description() -> None:
    @dataclass(frozen=True)
    class Undescribed(Plain):
        """A plain sum."""

        level: int = 1

    with pytest.raises(AssertionError, match="'level' is not described"):
        check_protection(Undescribed())


@dataclass(frozen=True)
class Means(Method):
    """Learns the mean row of each class, with a flaw.

    Parameters
    ----------
    flaw : str
        Which one.
    """

    paper = "none"
    tasks = ("classification",)
    closed_form = True

    flaw: str = ""

    def train(self, coordinator):
        coordinator.round(self.sums_by_class, self.average)

    @contribution(lambda self, schema: Layout(Field("sums", (schema.features + 1, schema.outputs))))
    def sums_by_class(self, party, shared):
        if self.flaw == "changes rows":
            party.data.values[0, 0] += 1.0
        rows = Inputs.of(shared).matrix(party.data, bias=True)
        sums = rows.T @ np.eye(shared.schema.outputs)[shared.schema.labels(party.data)]
        return {"sums": sums * (0.5 if self.flaw == "weighs" and party.id.endswith("6") else 1.0)}

    @apply
    def average(self, total, shared):
        means = total["sums"][1:] / np.maximum(total["sums"][0], 1.0)
        noise = int.from_bytes(os.urandom(4)) if self.flaw == "draws" else 0
        means = means * (self.flaw != "guesses") + 1e-12 * noise
        return shared | {"weights": np.vstack([-(means**2).sum(axis=0) / 2, means])}

    def check_task(self, task):
        if self.flaw != "learns anything":
            super().check_task(task)

    def model(self, shared):
        return OneLayer(shared["weights"], "logistic", Inputs.of(shared))


def test_a_method_that_keeps_its_promises() -> None:
    check_method(Means())


@pytest.mark.parametrize(
    ("flaw", "text"),
    [
        ("learns anything", "regression is not refused"),
        ("guesses", "no better than a guess"),
        ("draws", "one seed, another model"),
        ("changes rows", "it changes the rows"),
        ("weighs", "which a closed form does not"),
    ],
)
def test_a_method_that_breaks_a_promise(flaw: str, text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        check_method(Means(flaw))
