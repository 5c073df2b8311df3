"""Words of the command, of settings and of the exposure report: each what it says, in small cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.cli import options
from tacit.cli.output import plain_text
from tacit.cli.promises import variants
from tacit.cli.running import _axis
from tacit.core.component import Option
from tacit.core.errors import ConfigError
from tacit.core.message import Message
from tacit.ledger.cost import CostLedger
from tacit.ledger.sentences import _listed, _owned, phrase, saw, step_words
from tacit.protections.plain import Plain
from tacit.runs import keys, settings
from tacit.runs.survey import front, list_cells
from tacit.runs.transcript import Frame, TranscriptFolder, read_transcript
from tacit.runs.tune import Range, grid


def test_extra_flags_are_paired_with_their_values() -> None:
    words = ["--lam", "0.01", "federation.toml", "--alpha=0.3"]
    assert options.extra_flags(words) == ([("lam", "0.01"), ("alpha", "0.3")], ["federation.toml"])
    assert options.extra_flags(["--clip", "f.toml"], ["clip"]) == ([("clip", "true")], ["f.toml"])
    assert options.extra_flags(["--no-clip"], ["clip"]) == ([("clip", "false")], [])
    assert options.switches({"method": "fedheonn", "protect": "ring"}) == ["clip"]
    assert options.switches({"protect": "noised"}) == []


def test_files_are_found_among_flags() -> None:
    spread = ["--data", "north.csv", "--data", "south.csv", "--seed", "1"]
    assert options.spread_data(["--data", "north.csv", "south.csv", "--seed", "1"]) == spread
    assert options.file_among(["--clip", "2.0", "noised.toml"]) == "noised.toml"
    assert options.file_among(["--clip", "ring.toml"]) == "ring.toml"


def test_flags_belong_to_the_component_that_has_them() -> None:
    chosen = {"method": "fedheonn", "protect": "plain", "partition": "dirichlet"}
    found = options.part_options([("lam", "0.01"), ("alpha", "0.3")], chosen, [])
    assert found == {"method": {"lam": 0.01}, "partition": {"alpha": 0.3}}
    assert options.part_options([("lams", "0.01,1")], chosen, []) == {"method": {"lams": [0.01, 1]}}
    # A layer's name may be a number.
    assert options.part_options([("cut", "0")], {"method": "splitfed"}, []) == {"method": {"cut": "0"}}
    assert [*map(options.literal, ("3", "1e-3", "true", "sealed"))] == [3, 0.001, True, "sealed"]


def test_axes_of_a_search() -> None:
    assert _axis("lam=0.1,1") == ("lam", [0.1, 1])
    assert _axis("scales=1;1,2") == ("scales", [[1], [1, 2]])
    assert _axis("lam=0.001..1") == ("lam", Range(0.001, 1))
    assert [*grid({"lam": [0.1, 1.0], "rank": [2]})] == [{"lam": 0.1, "rank": 2}, {"lam": 1.0, "rank": 2}]


def test_values_as_people_read_them() -> None:
    values = (True, 13611, 47.44441, {"no": 1000, "yes": 2})
    assert [*map(plain_text, values)] == ["yes", "13,611", "47.44", "no: 1,000, yes: 2"]


def test_options_that_change_what_is_promised() -> None:
    assert [given for given, _ in variants(Plain)] == [{"opens": "coordinator"}, {"opens": "clients"}]


def test_keys_and_their_flags() -> None:
    assert [key.flag for key in keys.list_keys() if key.table == "partition"] == ["partition", "clients"]
    holder = Option("holder", "Literal['server', 'clients']", "server", "Who holds the key.")
    assert keys.describe(holder) == "Who holds the key (server or clients)."
    first, second, *_ = keys.group_options("partition")
    assert first[0] == ["majority-even", "majority", "pick-two"]
    assert (second[0], second[1].name) == (["dirichlet"], "alpha")
    tables = {"method": {"name": "fedheonn", "rank": None, "scales": [1.0, 2.0]}}
    assert keys.toml(tables) == '[method]\nname = "fedheonn"\nscales = [1.0, 2.0]\n'


def test_what_is_usual() -> None:
    assert settings.usual_partition({"data": {"name": ["north.csv", "south.csv"]}}) == {"name": "by-file"}
    assert settings.usual_protection({"name": "fedheonn"}) == {"name": "masked", "opens": "clients"}
    in_turn = {"name": "paillier", "holder": "in-turn", "bits": 24}
    assert settings.usual_protection({"name": "pfmlp"}, {"bits": 24}) == in_turn
    chosen = {"method": "fedavg", "protect": "masked", "partition": "label-sorted"}
    assert settings.chosen_components({"method": {"name": "fedavg"}}) == chosen
    with pytest.raises(
        ConfigError, match=r"\[run\] has no key 'sed': did you mean 'seed'\? Valid: baselines"
    ):
        settings.Settings.from_tables({"run": {"sed": 1}})


def test_cells_of_a_survey_and_their_front() -> None:
    cells = list_cells({}, "fedavg,fedheonn", "default", {})
    assert [cell["method"]["name"] for cell in cells] == ["fedavg", "fedheonn"]
    rows = [{"score": 0.9, "wh": 2.0}, {"score": 0.8, "wh": 1.0}, {"score": 0.7, "wh": 3.0}]
    assert [row["score"] for row in front(rows, "wh")] == [0.8, 0.9]


def test_a_transcript_is_read_back(tmp_path: Path) -> None:
    transcript = TranscriptFolder(tmp_path / "transcript")
    transcript("client-1", "coordinator", "client.enrol", b"hello")
    frame = Frame("coordinator", "client.enrol", b"hello")
    assert [*read_transcript(transcript.file("client-1"))] == [frame]
    raw = Message(sum=1).encode()
    assert [dict(each) for each in Frame("a", "b", raw + raw).messages()] == [{"sum": 1}, {"sum": 1}]


def test_exposure_in_words() -> None:
    assert (_owned("terms: factor"), _owned("introduction: columns")) == ("factor", "")
    assert saw([]) == "nothing"
    assert _listed(["a", "b", "a", "c"]) == "a, b and c"
    assert phrase("terms: factor") == "factor of terms"
    assert phrase("moments: vector") == "moments"
    assert phrase("totals: moments, terms") == "totals of moments, terms"
    assert step_words("protection.unmask") == "take off masks"
    assert step_words("method.draw_trees") == "draw trees"


def test_a_ledger_of_nothing() -> None:
    routes = CostLedger().summary()["messages_by_route"]
    assert routes == {"coordinator→client": 0, "client→coordinator": 0, "client→client": 0}
    with pytest.raises(
        ConfigError, match="watts is 0: give a processor's nominal power, above 0, such as 65"
    ):
        CostLedger().summary(watts=0)
