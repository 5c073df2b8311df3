"""Readers of bytes that strangers may have written, each with genuine bytes and with what must always hold.

Whatever bytes a reader is given, it returns or raises an error of ours. What it accepts is held against an
invariant: there is one encoding of everything, and nothing passes for authentic but the genuine bytes.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tacit.core.engine import read_reply
from tacit.core.errors import TacitError
from tacit.core.manifest import Manifest
from tacit.core.message import Message
from tacit.core.party import Party, State, identity_of
from tacit.core.secret import Secret
from tacit.core.tags import ask_context, untagged
from tacit.crypto import bfv
from tacit.crypto.bfv import Parameters
from tacit.crypto.channel import checked_key, identity_public, place, unseal
from tacit.crypto.paillier.blob import read_ciphertexts, read_header
from tacit.crypto.paillier.keys import PublicKey
from tacit.crypto.seal import blob as seal_blob
from tacit.crypto.seal.adder import Adder
from tacit.deploy.bundles import read_bundle, read_request, read_roster
from tacit.deploy.provision import Operator
from tacit.engines.sitefolder import SiteFolder
from tacit.engines.store import PartyStore
from tacit.runs.checkpoint import MARK, read_checkpoint
from tacit.runs.transcript import read_transcript
from tacit.standing.book import Book

CORPUS = Path(__file__).parents[1] / "corpus"
KEY = Secret(b"k" * 32)
IDENTITY = identity_of(KEY)
LARGEST = 1 << 16  # bytes of a mutated input


class Target(NamedTuple):
    """A reader, and the share of all mutations that it gets."""

    read: Callable[[bytes], None]
    share: float = 1.0
    refused: tuple[type[Exception], ...] = (TacitError,)


def holds(claim: bool, what: str) -> None:
    """Fail, whatever the optimisation of the interpreter, if something does not hold."""
    if not claim:
        raise AssertionError(what)


@cache
def genuine(name: str) -> bytes:
    """Return the genuine bytes of a target, as they are kept in the corpus."""
    return (CORPUS / name / "genuine").read_bytes()


def _only_genuine(name: str, raw: bytes) -> None:
    holds(raw == genuine(name), f"{name}: changed bytes were taken for authentic")


# -- what travels --------------------------------------------------------------------------------------


def _message(raw: bytes) -> None:
    message = Message.decode(raw)
    holds(message.encode() == raw, "a message with two encodings")
    repr(message), message.digest()


def _reply(raw: bytes) -> None:
    read_reply("north", raw, 0, limit=LARGEST)


def _manifest(raw: bytes) -> None:
    found = Manifest.from_message(Message.decode(raw))
    again = Manifest.from_message(found.to_message())
    holds(again.digest == found.digest, "a manifest that has another digest once it was read")


def _tagged(raw: bytes) -> None:
    untagged(Message.decode(raw), KEY, *ask_context(7, "north", b"digest of the call"))
    _only_genuine("tagged", raw)


def _signed(raw: bytes) -> None:
    checked_key(raw, identity_public(IDENTITY), "exchange", "coordinator", "run")
    _only_genuine("signed", raw)


def _sealed(raw: bytes) -> None:
    unseal(KEY, raw, place("run", 3, "protection.deal", "north", "south"))
    _only_genuine("sealed", raw)


# -- ciphertexts ---------------------------------------------------------------------------------------


@cache
def _paillier_key() -> PublicKey:
    return PublicKey.from_bytes(genuine("paillier_key"))


def _read_paillier(raw: bytes) -> None:
    key = _paillier_key()
    header = read_header(key, raw)
    numbers = read_ciphertexts(key, raw)
    holds(header.key_id == key.key_id and 0 < len(numbers) * key.ciphertext_bytes <= len(raw), "its length")


def _paillier(raw: bytes) -> None:
    """As it came; and with the checksum that it should have, so that all that comes after is read as well."""
    _each(_read_paillier, raw, raw[:-32] + hashlib.sha256(raw[:-32]).digest())


def _paillier_key_of(raw: bytes) -> None:
    holds(PublicKey.from_bytes(raw).to_bytes() == raw, "a key with two encodings")


@cache
def _bfv() -> tuple[Parameters, bytes]:
    return Parameters.holding(values=4, plain_bits=20, summands=3), bfv.Cipher(KEY).key_id


def _read_bfv(raw: bytes) -> None:
    parameters, key_id = _bfv()
    adder = Adder(bfv.ring_of(parameters), key_id, bfv.INTEGERS)
    adder.add(raw)
    holds(bfv.read(parameters, key_id, adder.total()).count >= 1, "a total that cannot be read")


def _bfv_blob(raw: bytes) -> None:
    end = len(raw) - seal_blob.CHECKSUM_BYTES
    start = seal_blob._HEADER.size
    mended = raw[:end] + seal_blob.checksum(raw[:end], start) if end > start else raw
    _each(_read_bfv, raw, mended)


def _each(read: Callable[[bytes], None], *raws: bytes) -> None:
    """Read each; a refusal of one does not keep the others from being read."""
    for raw in raws:
        try:
            read(raw)
        except TacitError:
            continue


# -- files ---------------------------------------------------------------------------------------------


@cache
def _folder() -> Path:
    """Return a folder in memory, if there is one, that ends with this process."""
    memory = Path("/dev/shm")
    made = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None, prefix="tacit-hostile-")
    _KEEP.append(made)
    return Path(made.name)


_KEEP: list[Any] = []


def _written(raw: bytes, name: str) -> Path:
    path = _folder() / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
        file.write(raw)
    return path


def _state(raw: bytes) -> None:
    holds(State.from_bytes(raw).to_bytes() == raw, "a state with two encodings")


def _state_db(raw: bytes) -> None:
    path = _written(raw, "state.db")
    for more in ("-journal", "-wal", "-shm"):
        path.with_name(path.name + more).unlink(missing_ok=True)
    store = PartyStore(path, KEY)
    for run in store.runs():
        party = store.recalled(run, Party("north", dict, KEY))
        if party is not None and run == "run-1":
            secret = party.vault.get("channel")
            holds(secret is None or secret.reveal() == b"channel key", "another secret from a changed file")


def _book(raw: bytes) -> None:
    path = _written(raw, "coordinator.db")
    with closing(Book(path)) as book:
        list(book.contributions())


def _checkpoint(raw: bytes) -> None:
    """As it is; and with the digest that it should have."""
    body = raw[len(MARK) + 32 :]
    _each(_read_checkpoint, raw, MARK + hashlib.sha256(body).digest() + body)


def _read_checkpoint(raw: bytes) -> None:
    read_checkpoint(str(_written(raw, "run/checkpoint.bin").parent))


def _secret_key(raw: bytes) -> None:
    path = _site()
    (path / "secret.key").write_bytes(raw)
    SiteFolder(path).secret  # noqa: B018  # opens it
    _only_genuine("secret_key", raw)


def _site() -> Path:
    if not (_folder() / "site").is_dir():
        _written(b"u" * 64, "site/unlock")
        _written(b'name = "north"\nunlock = "unlock"\n', "site/site.toml")
    return _folder() / "site"


def _site_toml(raw: bytes) -> None:
    _written(raw, "other/site.toml")
    SiteFolder(_folder() / "other").policy.to_toml()


def _roster_toml(raw: bytes) -> None:
    _written(b'name = "north"\n', "roster/site.toml")
    _written(raw, "roster/roster.toml")
    found = SiteFolder(_folder() / "roster").roster
    for name in (*found.clients, *found.services, "coordinator"):
        try:
            found.pinned(name)
        except TacitError:
            continue


def _signed_roster(raw: bytes) -> None:
    found, revision = read_roster(raw, identity_public(IDENTITY).hex())
    told, number = read_roster(genuine("signed_roster"), identity_public(IDENTITY).hex())
    holds((found, revision) == (told, number), "another roster under the coordinator's signature")


def _request(raw: bytes) -> None:
    found = read_request(_written(raw, "request"))
    told = read_request(_written(genuine("request"), "request"))
    own = found.identity.lower() == told.identity.lower()
    holds(not own or found._content() == told._content(), "another request under a site's signature")


def _bundle(raw: bytes) -> None:
    found = read_bundle(_written(raw, "bundle"))
    holds(not any("/" in name or ".." in name for name in found.keys), "a bundle that writes elsewhere")


def _federation_json(raw: bytes) -> None:
    _written(raw, "fed/federation.json")
    found = Operator(_folder() / "fed")
    found.state.members  # noqa: B018


def _transcript(raw: bytes) -> None:
    list(read_transcript(_written(raw, "transcript.bin")))


TARGETS = {
    "message": Target(_message, 6),
    "reply": Target(_reply, 4),
    "manifest": Target(_manifest, 4),
    "tagged": Target(_tagged, 4),
    "signed": Target(_signed, 2),
    "sealed": Target(_sealed, 2),
    "paillier": Target(_paillier, 2),
    "paillier_key": Target(_paillier_key_of, 0.2),
    "bfv": Target(_bfv_blob, 1),
    "state": Target(_state, 2),
    "state_db": Target(_state_db, 0.2),
    "book": Target(_book, 0.2),
    "checkpoint": Target(_checkpoint, 0.5),
    "secret_key": Target(_secret_key, 1),
    "site_toml": Target(_site_toml, 0.5),
    "roster_toml": Target(_roster_toml, 0.5),
    "signed_roster": Target(_signed_roster, 1),
    "request": Target(_request, 1),
    "bundle": Target(_bundle, 0.5),
    "federation_json": Target(_federation_json, 1),
    "transcript": Target(_transcript, 0.5),
}


def try_one(name: str, raw: bytes) -> bool:
    """Give bytes to a reader; return whether it accepted them. Anything but a refusal of ours is raised."""
    try:
        TARGETS[name].read(raw)
    except TARGETS[name].refused:
        return False
    return True
