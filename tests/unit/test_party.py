"""Parties: what they remember is message values, and a step commits all of it or nothing."""

import numpy as np
import pytest

from tacit.core.errors import ConfigError, MessageError, StepTimeoutError
from tacit.core.party import Party, State
from tacit.core.secret import Secret
from tacit.core.values import Blob


@pytest.fixture
def party():
    made = Party("north", lambda: "rows", Secret(b"own"), cache={"shared": "by all"})
    made.state["count"] = 1
    made.vault["key"] = Secret(b"old")
    return made


def change(party):
    party.state["count"] = 2
    party.state["new"] = np.zeros(3)
    del party.state["count"]
    party.vault["key"] = Secret(b"new")
    party.vault["other"] = Secret(b"x")
    party.note("something happened")


class TestTransaction:
    def test_all_is_kept_if_the_block_ends_well(self, party):
        with party.transaction():
            change(party)
        assert dict(party.state).keys() == {"new"}
        assert party.vault["key"].reveal() == b"new"
        assert [note.text for note in party.notes] == ["something happened"]

    @pytest.mark.parametrize(
        "error", [ValueError, StepTimeoutError, KeyboardInterrupt, SystemExit, MemoryError]
    )
    def test_nothing_is_kept_if_it_raises(self, party, error):
        with pytest.raises(error), party.transaction():
            change(party)
            raise error("half-way")
        assert dict(party.state) == {"count": 1}
        assert list(party.vault) == ["key"]
        assert party.vault["key"].reveal() == b"old"
        assert party.notes == []

    def test_an_inner_one_that_ended_well_is_undone_with_the_outer_one(self, party):
        with pytest.raises(ValueError, match="late"), party.transaction():
            with party.transaction():
                change(party)
            raise ValueError("late")
        assert dict(party.state) == {"count": 1}

    def test_an_array_in_the_state_cannot_be_changed_in_place_around_it(self, party):
        party.state["weights"] = np.zeros(3)
        with pytest.raises(ValueError, match="read-only"):
            party.state["weights"] += 1


class TestState:
    def test_it_survives_being_written_out(self):
        state = State()
        state.update(
            {"a": np.arange(3), "b": b"raw", "c": Blob("share", b"s"), "d": {"k": [1, None]}, "e": 2.5}
        )
        back = State.from_bytes(state.to_bytes())
        assert back.to_bytes() == state.to_bytes()
        assert back["d"] == {"k": (1, None)}

    def test_it_takes_a_copy_of_what_it_is_given(self):
        state, source = State(), np.zeros(2)
        state["a"] = source
        source[0] = 1
        assert state["a"][0] == 0

    @pytest.mark.parametrize("value", [object(), {1, 2}, len, np.array([None])])
    def test_only_message_values_go_in(self, value):
        with pytest.raises(MessageError):
            State()["a"] = value


class TestCool:
    def test_state_and_secrets_are_the_same_and_the_cache_is_gone(self, party):
        party.state["weights"] = np.arange(4.0)
        before, cache = party.state.to_bytes(), party.cache
        party.cool()
        assert party.state.to_bytes() == before
        assert party.vault["key"] == Secret(b"old")
        assert party.cache == {}
        assert cache == {"shared": "by all"}


def test_rows_kept_aside_must_have_been_asked_for(party):
    assert party.data == "rows"
    with pytest.raises(ConfigError, match="keeps no rows aside"):
        _ = party.holdout
