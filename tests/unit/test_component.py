"""Components: settings that check themselves, names that are found, and functions that may be called."""

from dataclasses import dataclass, field
from typing import Literal

import pytest

from tacit.core.component import Component, Registry
from tacit.core.errors import ConfigError
from tacit.core.marks import apply, contribution, find_marked, step
from tacit.core.settings_group import SettingsGroup
from tacit.data.preparation import Preparation
from tacit.methods import METHODS
from tacit.methods.averaging.aggregation import Weighting
from tacit.methods.ensemble import FedHEONNEnsemble
from tacit.methods.fedavg import FedAvg
from tacit.methods.fedheonn import FedHEONN
from tacit.protections import PROTECTIONS
from tacit.protections.plain import Plain


@dataclass(frozen=True)
class Sample(Component):
    """A part with one setting of each type.

    Parameters
    ----------
    rounds : int
        How often.
    rate : float
        How fast,
        in words of two lines.
    kind : {"a", "b"}
    """

    rounds: int = 3
    rate: float = 0.5
    kind: Literal["a", "b"] = "a"
    on: bool = False

    @step
    def greet(self, party, message, shared):
        return message

    @contribution(lambda self, schema: ("layout", schema))
    def term(self, party, shared):
        return {}

    @apply
    def take(self, total, shared):
        return shared

    def fit(self):
        raise AssertionError("nobody may call this from outside")

    @property
    def danger(self):
        return len


@dataclass(frozen=True)
class Named(Sample):
    name = "named"


@dataclass(frozen=True)
class Heir(Named):
    """A subclass that did not take a name of its own."""


class TestMarked:
    @pytest.mark.parametrize(
        ("name", "kind"), [("greet", "step"), ("term", "contribution"), ("take", "apply")]
    )
    def test_a_marked_function_is_found_under_its_kind_only(self, name, kind):
        function, mark = find_marked(Sample(), name, kind)
        assert function.__name__ == name
        assert mark.kind == kind
        for other in {"step", "contribution", "apply"} - {kind}:
            with pytest.raises(ConfigError, match=f"no {other} '{name}'"):
                find_marked(Sample(), name, other)

    @pytest.mark.parametrize(
        "name",
        [
            "fit",
            "danger",
            "rounds",
            "config",
            "from_config",
            "__class__",
            "__init__",
            "__dict__",
            "",
            "nothing",
        ],
    )
    def test_nothing_unmarked_can_be_called(self, name):
        for kind in ("step", "contribution", "apply"):
            with pytest.raises(ConfigError, match=f"Sample has no {kind} '{name}'"):
                find_marked(Sample(), name, kind)

    def test_a_typo_gets_the_nearest_name(self):
        with pytest.raises(ConfigError, match="did you mean 'greet'"):
            find_marked(Sample(), "gret", "step")

    def test_a_part_that_is_not_there_has_no_functions(self):
        with pytest.raises(ConfigError, match="NoneType has no step"):
            find_marked(None, "greet", "step")

    def test_a_mark_carries_the_layout(self):
        _, mark = find_marked(Sample(), "term", "contribution")
        assert mark.layout(Sample(), "schema") == ("layout", "schema")


class TestConfig:
    def test_settings_round_trip(self):
        part = Sample(rounds=5, rate=0.25, kind="b", on=True)
        assert Sample.from_config(part.config()) == part

    def test_a_typo_gets_the_nearest_option(self):
        with pytest.raises(ConfigError, match="no option 'rouns': did you mean 'rounds'"):
            Sample.from_config({"rouns": 3})

    @pytest.mark.parametrize(
        ("key", "value"),
        [("rounds", "many"), ("rounds", 1.5), ("rate", "fast"), ("kind", "c"), ("on", "perhaps")],
    )
    def test_a_wrong_type_says_which_option(self, key, value):
        with pytest.raises(ConfigError, match=f"option {key} = "):
            Sample.from_config({key: value})

    def test_text_from_a_command_line_becomes_a_number(self):
        assert Sample.from_config({"rounds": "7", "rate": "1e-3", "on": "true"}) == Sample(7, 0.001, on=True)

    def test_values_out_of_range_are_refused_by_the_part(self):
        with pytest.raises(ConfigError, match="lam is -1"):
            FedHEONN.from_config({"lam": -1})

    def test_options_tell_type_default_and_description(self):
        options = {option.name: option for option in Sample.options()}
        assert options["rounds"].default == 3
        assert options["rounds"].doc == "How often."
        assert options["rate"].doc == "How fast, in words of two lines."
        assert options["on"].doc == ""

    def test_summary_is_the_first_line(self):
        assert Sample.summary() == "A part with one setting of each type."


@dataclass(frozen=True)
class Pace(SettingsGroup):
    """How fast.

    Parameters
    ----------
    steps : int
        How many.
    kind : {"slow", "fast"}
        Which.
    """

    steps: int = 2
    kind: Literal["slow", "fast"] = "slow"

    def rules(self):
        return (("steps", self.steps >= 1, "give at least 1"),)


@dataclass(frozen=True)
class Noise(SettingsGroup):
    prefix = "noise_"

    size: float = 0.0


@dataclass(frozen=True)
class Grouped(Component):
    name = "grouped"

    rounds: int = 3
    pace: Pace = field(default_factory=lambda: Pace(steps=5))
    noise: Noise = field(default_factory=Noise)


class TestGroups:
    def test_settings_of_groups_are_flat_wherever_they_are_written(self):
        part = Grouped(rounds=4, pace=Pace(7, "fast"), noise=Noise(0.5))
        assert part.config() == {"rounds": 4, "steps": 7, "kind": "fast", "noise_size": 0.5}
        assert Grouped.from_config(part.config()) == part

    def test_a_component_may_have_its_own_defaults_for_a_group(self):
        assert Grouped.from_config({"kind": "fast"}) == Grouped(pace=Pace(5, "fast"))
        assert [(o.name, o.default, o.doc) for o in Grouped.options()][1:3] == [
            ("steps", 5, "How many."),
            ("kind", "slow", "Which."),
        ]

    def test_what_cannot_work_is_refused_by_its_flat_name(self):
        with pytest.raises(ConfigError, match="no option 'step': did you mean 'steps'"):
            Grouped.from_config({"step": 3})
        with pytest.raises(ConfigError, match="grouped: option kind = 'fst': did you mean 'fast'"):
            Grouped.from_config({"kind": "fst"})
        with pytest.raises(ConfigError, match="steps is 0: give at least 1"):
            Grouped.from_config({"steps": 0})
        with pytest.raises(ConfigError, match="Pace: option kind = 'fst': did you mean 'fast'"):
            Pace(kind="fst")

    def test_a_flat_keyword_in_python_is_told_its_group(self):
        said = r"write Grouped\(noise=Noise\(size=1\), pace=Pace\(kind='fast', steps=3\)\)"
        with pytest.raises(ConfigError, match=said):
            Grouped(rounds=1, steps=3, kind="fast", noise_size=1)
        with pytest.raises(ConfigError, match=r"write FedAvg\(local=LocalTraining\(epochs=5\)\)"):
            FedAvg(epochs=5)
        with pytest.raises(ConfigError, match=r"weighting is 'equal': give weighting=Weighting\(…\)"):
            FedAvg(weighting="equal")
        with pytest.raises(TypeError, match="unexpected keyword argument 'epoch'"):
            FedAvg(epoch=5)

    def test_a_group_of_another_component_is_refused(self):
        with pytest.raises(ConfigError, match=r"grouped: pace is Noise\(size=0.0\): give pace=Pace\(…\)"):
            Grouped(pace=Noise())

    def test_two_settings_of_one_name_are_refused(self):
        @dataclass(frozen=True)
        class Twice(Component):
            steps: int = 1
            pace: Pace = field(default_factory=Pace)

        with pytest.raises(TypeError, match=r"two settings called \['steps'\]"):
            Twice.options()


@dataclass(frozen=True)
class Strict(Sample):
    """Checks its own settings, without asking its base."""

    maybe: Literal["x", "y"] | None = None

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ConfigError(f"rounds is {self.rounds}: give at least 1")


class TestWords:
    @pytest.mark.parametrize("part", [Sample, Named, Strict])
    def test_a_misspelt_word_is_refused_however_the_part_is_built(self, part):
        with pytest.raises(ConfigError, match=r"option kind = 'A': did you mean 'a'\? Valid: a, b"):
            part(kind="A")
        with pytest.raises(ConfigError, match="option kind = 'A'"):
            part.from_config({"kind": "A"})
        with pytest.raises(ConfigError, match="option kind = None"):
            part(kind=None)

    def test_an_optional_word_may_be_left_out(self):
        assert Strict(maybe="x").maybe == "x"
        assert Strict().maybe is None
        with pytest.raises(ConfigError, match="option maybe = 'z'"):
            Strict(maybe="z")

    def test_words_are_checked_before_the_parts_own_rules(self):
        with pytest.raises(ConfigError, match="option kind"):
            Strict(kind="c", rounds=0)
        with pytest.raises(ConfigError, match="rounds is 0"):
            Strict(rounds=0)

    def test_types_that_cannot_be_read_here_are_left_to_the_part(self):
        @dataclass(frozen=True)
        class Local(Component):
            kind: "Nowhere" = "a"  # type: ignore[name-defined]  # noqa: F821

        assert Local(kind="b").kind == "b"

    @pytest.mark.parametrize(
        ("kind", "settings", "said"),
        [
            (FedHEONN, {"mode": "Robust"}, "did you mean 'robust'"),
            (FedHEONN, {"layer": "foo"}, "valid: fourier, tanh"),
            (FedHEONN, {"activation": "logistics"}, "did you mean 'logistic'"),
            (FedHEONNEnsemble, {"vote": "foo"}, "valid: majority, mean"),
            (FedHEONNEnsemble, {"mode": "Paper"}, "did you mean 'paper'"),
            (Preparation, {"scale": "Standard"}, "did you mean 'standard'"),
            (Plain, {"opens": "client"}, "did you mean 'clients'"),
            (Weighting, {"weighting": "row"}, "did you mean 'rows'"),
        ],
        ids=str,
    )
    def test_tacits_own_parts_refuse_what_is_misspelt(self, kind, settings, said):
        with pytest.raises(ConfigError, match=said):
            kind(**settings)


class TestNames:
    def test_a_part_without_a_name_is_known_by_module_and_class(self):
        assert Sample.registered_name() == f"{Sample.__module__}:Sample"

    def test_a_name_is_not_inherited(self):
        assert Named.registered_name() == "named"
        assert Heir.registered_name() == f"{Heir.__module__}:Heir"


class TestRegistry:
    def test_every_registered_name_gives_a_class_of_that_name(self):
        for registry in (METHODS, PROTECTIONS):
            assert len(registry.names()) >= 1
            for name in registry:
                assert registry.get(name).registered_name() == name

    def test_an_unknown_name_gets_the_nearest(self):
        with pytest.raises(ConfigError, match="unknown method 'fedheon': did you mean 'fedheonn'"):
            METHODS.get("fedheon")

    def test_building_takes_settings(self):
        assert PROTECTIONS.build("plain", {"opens": "clients"}) == Plain(opens="clients")

    def test_module_and_class_name_an_installed_class(self):
        assert METHODS.get("tacit.methods.fedheonn:FedHEONN") is FedHEONN

    @pytest.mark.parametrize(
        "name",
        [
            "no.such.module:Class",
            "tacit.methods.fedheonn:Nothing",
            ":Class",
            ".relative:Class",
            "tacit:",
            ":",
        ],
    )
    def test_what_cannot_be_imported_is_a_config_error(self, name):
        with pytest.raises(ConfigError, match="cannot be imported here"):
            METHODS.get(name)

    @pytest.mark.parametrize(
        "name", ["os:system", "subprocess:Popen", "builtins:eval", "tacit:Federation", "json:decoder"]
    )
    def test_what_is_no_part_is_refused(self, name):
        with pytest.raises(ConfigError, match="no part of a federation"):
            METHODS.get(name)

    def test_names_are_listed_without_importing(self):
        registry = Registry("method", {"broken": "no.such.module:Class"}, "tacit.none")
        assert list(registry) == ["broken"]
