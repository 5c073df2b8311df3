"""Labels and categories tell who holds what: a clinic with a case of a rare disease, a ward's only name.

The attacker is whoever receives messages, the coordinator or another client, and keeps to the protocol. Under
plain sums it is told every client's words; with a least count nobody is, and rare words stay where they are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit import federation as federations
from tacit.core import coordinator as coordinators
from tacit.core.differencing import OpenedTotals
from tacit.core.engine import Reply
from tacit.core.errors import DataError, DifferencingError, QuorumError, SchemaError
from tacit.core.manifest import Components
from tacit.core.message import Message
from tacit.core.shared import Shared
from tacit.data import words
from tacit.data.agreement import SOUGHT
from tacit.data.preparation import Preparation
from tacit.data.schema import OTHER
from tacit.data.table import Column, Table
from tacit.engines.embedded import EmbeddedEngine
from tacit.federation import Federation
from tacit.methods.fedheonn import FedHEONN
from tacit.protections.masked import Masked
from tests.helpers.deployed import coordinator_at, make_sites

RARE = "Mrs Quill of Elm Street"
LABELS = ["no", "yes"]
SITES = ("north", "south", "east", "west")


def site(index: int, wards: tuple[str, ...], rows: int = 60) -> Table:
    rng = np.random.default_rng(index)
    x, ward = rng.normal(size=rows), np.arange(rows) % len(wards)
    columns = (Column("x"), Column("ward", "category", categories=wards))
    target = (x + 0.3 * (ward == 0) > 0).astype(np.int64)
    return Table(SITES[index], columns, np.column_stack([x, ward]), target, classes=("no", "yes"))


def tables() -> dict[str, Table]:
    """Four hospitals; one of them has a ward of its own, and in it once the name of a patient."""
    found = {name: site(index, ("medical", "surgical")) for index, name in enumerate(SITES)}
    odd = site(3, ("burns", "medical", RARE))
    values = odd.values.copy()
    values[3:, 1] = np.arange(57) % 2
    return {**found, "west": replace(odd, values=values)}


def heard(protect: str, **settings: Any) -> tuple[Any, dict[tuple[str, str], bytes]]:
    """Train, and return the training with all that each party received from each other."""
    seen: dict[tuple[str, str], bytes] = {}

    def note(receiver: str, sender: str, step: str, raw: bytes) -> None:
        seen[receiver, sender] = seen.get((receiver, sender), b"") + raw

    training = Federation.of(tables()).train("fedheonn", protect=protect, transcript=note, **settings)
    return training, seen


def test_under_plain_sums_everybodys_words_are_told() -> None:
    training, seen = heard("plain")
    assert RARE.encode() in seen["coordinator", "west"] and RARE.encode() in seen["north", "coordinator"]
    assert b"burns" in seen["coordinator", "west"] and b"burns" not in seen["coordinator", "north"]
    assert RARE in training.schema.columns[1].categories


@pytest.mark.parametrize("protect", ["masked", "ckks"])
def test_with_a_least_count_nobody_learns_who_holds_which(protect: str) -> None:
    training, seen = heard(protect)
    assert training.schema.columns[1].categories == ("burns", "medical", "surgical", OTHER)
    assert training.schema.classes == ("no", "yes")
    assert not any(RARE.encode() in raw for raw in seen.values())
    for name in SITES:  # agreed words come from the coordinator, who has them from no single client
        for word in (b"burns", b"medical", b'"yes"'):
            assert word not in seen["coordinator", name]
        assert b"burns" in seen[name, "coordinator"]


@pytest.fixture
def rows_in_burns(monkeypatch) -> dict[str, int]:
    """Lose a client once words are agreed; how many rows of its ward totals show, up to five of a client."""
    engines, found = [], {}

    class Leaving(EmbeddedEngine):
        def __init__(self, *given: Any, **settings: Any) -> None:
            super().__init__(*given, **settings)
            engines.append(self)

        def ask(self, *given: Any) -> Any:
            for reply in super().ask(*given):
                lost = reply.party == "west" and len(engines) > 1
                yield Reply("west", Message(), "StepError: it did not answer", 0, 0) if lost else reply

    opener = coordinators.open_entry

    def opened(components: Any, half: Any, layout: Any, entry: Any) -> Any:
        total = opener(components, half, layout, entry)
        if entry["contribution"] == "word_counts":
            place = words._bucket(b'[1,"burns"]', Shared(None, {"attempt": 0}))
            found["words"] = round(5 * total["counts"][place])
        elif entry["contribution"] == "cell_counts":
            found["cells"] = round(5 * total["categories"][0])
        return total

    monkeypatch.setattr(federations, "EmbeddedEngine", Leaving)
    monkeypatch.setattr(coordinators, "open_entry", opened)
    return found


def test_without_the_rule_a_dropout_shows_which_words_it_took_with_it(rows_in_burns, monkeypatch) -> None:
    monkeypatch.setattr(OpenedTotals, "check", lambda *_: None)
    Federation.of(tables(), quorum=0.5).train("fedheonn", protect="masked")
    assert rows_in_burns == {"words": 5, "cells": 0}


def test_sums_of_words_are_compared_with_those_of_the_run(rows_in_burns) -> None:
    with pytest.raises(DifferencingError, match=r"cell_counts: .* differ by 1 client .*\(missing: west\)"):
        Federation.of(tables(), quorum=0.5).train("fedheonn", protect="masked")
    assert rows_in_burns == {"words": 5}


def test_a_word_that_nobody_agreed_on_counts_as_other() -> None:
    model = heard("masked")[0].model
    rows = np.array([[0.5, RARE], [0.5, "never seen"], [0.5, OTHER]], dtype=object)
    assert np.ptp(model.predict_proba(rows), axis=0).max() == 0


def test_the_words_are_those_that_plain_sums_agree_on_but_for_rare_ones() -> None:
    common = {name: site(index, ("medical", "surgical")) for index, name in enumerate(SITES)}
    protected = Federation.of(common).train("fedheonn", protect="masked").schema
    plain = Federation.of(common).train("fedheonn", protect="plain").schema
    assert protected == replace(plain, min_count=protected.min_count)


def test_a_class_that_few_rows_have_ends_the_run_without_its_name() -> None:
    odd = tables()
    target = odd["north"].target.copy()
    target[0] = 2
    odd["north"] = replace(odd["north"], target=target, classes=("no", "yes", "rare disease"))
    with pytest.raises(DataError, match="a class occurs in fewer than min_count = 5 rows of all") as told:
        Federation.of(odd).train("fedheonn", protect="masked")
    assert "rare disease" not in str(told.value)


def test_many_words_are_spelt_in_several_sums_and_apart_where_hashes_meet(monkeypatch) -> None:
    monkeypatch.setattr(words, "BUCKETS", 64)
    names = tuple(f"ward {chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(30))
    many = {name: site(index, names, rows=600) for index, name in enumerate(SITES)}
    schema = Federation.of(many).train("fedheonn", protect="masked").schema
    assert schema.columns[1].categories == names


def test_where_no_hash_tells_words_apart_they_have_to_be_declared(monkeypatch) -> None:
    monkeypatch.setattr(words, "BUCKETS", 1)
    with pytest.raises(SchemaError, match="cannot be told apart in 8 attempts: declare them"):
        Federation.of(tables()).train("fedheonn", protect="masked")
    declared = {"classes": ["no", "yes"], "categories": {"ward": ["burns", "medical", "surgical", OTHER]}}
    assert Federation.of(tables(), declared=declared).train("fedheonn", protect="masked").trained


def test_in_other_runs_a_client_spells_nothing(coordinator_of) -> None:
    coordinator = coordinator_of(min_count=5)
    coordinator.enrol()
    coordinator.shared = coordinator.shared | {"attempt": 0}
    preparation = coordinator.components.preparation
    with pytest.raises(QuorumError, match="agreed to no run that seeks words: it contributes none"):
        coordinator.round(preparation.word_counts, preparation.keep_frequent)
    assert not coordinator.manifest.declared.get(SOUGHT)


def test_a_word_that_is_too_long_is_refused_by_its_column() -> None:
    long = {name: site(index, ("a" * 70, "b")) for index, name in enumerate(SITES)}
    with pytest.raises(QuorumError, match="a word of 76 bytes in column 'ward': at most 60 are agreed"):
        Federation.of(long).train("fedheonn", protect="masked")


def test_deployed_sites_agree_on_words_too(tmp_path) -> None:
    """Each ask is a new process there, under a manifest that the coordinator has signed."""
    rng = np.random.default_rng(0)
    rows = {
        name: (
            [[round(x, 3), ward] for x, ward in zip(rng.normal(size=12), wards * 6, strict=True)],
            LABELS * 6,
        )
        for name, wards in (("north", ["a", "b"]), ("south", ["a", "b"]), ("west", ["a", "c"]))
    }
    rows["west"][0][0][1] = RARE
    parts = Components(FedHEONN(), Masked(), Preparation())
    coordinator = coordinator_at(
        make_sites(tmp_path, rows), parts, min_clients=3, min_count=5, declared={SOUGHT: True}
    )
    found = words.agree_on_words(coordinator)
    assert found == {"classes": LABELS, "categories": {"x1": ["a", "b", "c", OTHER]}}
