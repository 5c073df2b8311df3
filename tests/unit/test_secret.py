"""Every way out of a Secret is closed but the one that can be searched for."""

import copy
import json
import pickle

import msgspec
import numpy as np
import pytest

from tacit.core.errors import MessageError, SecretError
from tacit.core.message import Message
from tacit.core.party import Party, State, Vault
from tacit.core.secret import Secret

VALUE = b"correct horse battery staple"


@pytest.fixture
def secret():
    return Secret(VALUE)


def test_reveal_gives_the_value(secret):
    assert secret.reveal() == VALUE


@pytest.mark.parametrize(
    "show", [repr, str, format, "{}".format, "%s".__mod__, ascii, lambda s: f"{s!r:>40}"]
)
def test_no_way_of_showing_it_shows_the_value(secret, show):
    assert "horse" not in show(secret)
    assert "hidden" in show(secret)


@pytest.mark.parametrize(
    "take",
    [
        copy.copy,
        copy.deepcopy,
        lambda s: copy.deepcopy({"nested": [s]}),
        pickle.dumps,
        lambda s: pickle.dumps([s], protocol=0),
        lambda s: s.__getstate__(),
        bytes,
        iter,
        list,
        len,
        np.asarray,
        lambda s: np.frombuffer(np.asarray(s)),
    ],
)
def test_every_way_of_copying_it_is_refused(secret, take):
    with pytest.raises(SecretError, match="keep it in the party's vault"):
        take(secret)


@pytest.mark.parametrize(
    "write",
    [
        json.dumps,
        lambda s: json.dumps({"key": s}),
        msgspec.json.encode,
        msgspec.msgpack.encode,
        msgspec.to_builtins,
        hash,
        memoryview,
        lambda s: {s},
        lambda s: s[0],
        vars,
    ],
)
def test_no_serialiser_takes_it(secret, write):
    with pytest.raises((TypeError, SecretError)) as caught:
        write(secret)
    assert "horse" not in str(caught.value)


@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: [s], lambda s: {"k": {"k": [s]}}, lambda s: (1, s)])
def test_neither_message_nor_state_takes_it(secret, wrap):
    with pytest.raises(SecretError, match="'note' holds a Secret"):
        Message(note=wrap(secret))
    state = State()
    with pytest.raises(SecretError, match="'note' holds a Secret"):
        state["note"] = wrap(secret)
    assert "note" not in state


def test_an_array_of_secrets_is_refused(secret):
    array = np.empty(1, dtype=object)
    array[0] = secret
    with pytest.raises(MessageError, match="do not travel"):
        Message(note=array)
    with pytest.raises(SecretError):
        np.array([secret])


def test_only_bytes_become_a_secret():
    for value in ("text", 5, bytearray(b"x"), None):
        with pytest.raises(TypeError, match="holds bytes"):
            Secret(value)


def test_equality_is_by_value_and_only_with_secrets(secret):
    assert secret == Secret(VALUE)
    assert secret != Secret(VALUE + b"!")
    assert secret != VALUE


class TestVault:
    def test_representation_says_how_many_and_nothing_else(self, secret):
        vault = Vault({"the name": secret})
        assert repr(vault) == "Vault(1 secrets, hidden)"
        assert "horse" not in f"{vault}"

    def test_only_secrets_go_in(self):
        vault = Vault()
        with pytest.raises(SecretError, match="only a Secret goes in"):
            vault["key"] = VALUE
        with pytest.raises(SecretError, match="only a Secret goes in"):
            Vault({"key": VALUE})
        assert len(vault) == 0

    def test_a_vault_is_no_field_of_a_message(self, secret):
        with pytest.raises(SecretError):
            Message(vault=Vault({"key": secret}))

    def test_a_vault_is_not_copied_deeply(self, secret):
        with pytest.raises(SecretError):
            copy.deepcopy(Vault({"key": secret}))

    def test_it_is_a_mapping_of_names_to_secrets(self, secret):
        vault = Vault({"a": secret})
        vault["b"] = Secret(b"other")
        del vault["a"]
        assert list(vault) == ["b"]
        assert vault["b"].reveal() == b"other"


def test_a_party_shows_only_its_name(secret):
    party = Party("north", lambda: None, secret)
    party.vault["key"] = secret
    assert repr(party) == "Party(north)"
