"""Sealed letters between clients and a service of a method, which the coordinator relays and cannot read."""

from collections.abc import Mapping
from typing import Any

from tacit.core.client import manifest_of
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto import channel

KEY = "letters"  # in a party's vault, and what its key is signed for


def show_letter_key(party: Party) -> Blob:
    """Return this party's signed key for letters, made once in a run."""
    party.vault.setdefault(KEY, channel.new_exchange()[0])
    public, run = channel.exchange_public(party.vault[KEY]), manifest_of(party).digest
    return Blob("public", channel.sign_key(party.identity, KEY, party.id, run, public))


def write_letter(party: Party, other: str, signed: bytes, about: str, fields: Mapping[str, Any]) -> Blob:
    """Seal a letter for another party, whose signed key was relayed."""
    where = channel.place(manifest_of(party).digest, 0, about, party.id, other)
    return Blob("sealed", channel.seal(_key(party, other, signed), Message(fields).encode(), where))


def read_letter(party: Party, other: str, signed: bytes, about: str, letter: Blob) -> Message:
    """Open a letter of another party; refuse one that is about something else."""
    where = channel.place(manifest_of(party).digest, 0, about, other, party.id)
    return Message.decode(channel.unseal(_key(party, other, signed), letter.data, where))


def _key(party: Party, other: str, signed: bytes) -> Secret:
    run = manifest_of(party).digest
    peer = channel.checked_key(signed, party.pinned(other), KEY, other, run)
    return channel.pair_key(party.vault[KEY], peer, KEY, run)
