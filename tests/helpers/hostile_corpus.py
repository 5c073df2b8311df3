"""Genuine bytes of everything that :mod:`tests.helpers.hostile` reads, made by the code that writes them."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import chdir
from pathlib import Path

import msgspec
import numpy as np

from tacit.core.manifest import Components, Manifest
from tacit.core.message import Message
from tacit.core.party import Party, State
from tacit.core.secret import Secret
from tacit.core.tags import ask_context, tagged
from tacit.core.values import Blob
from tacit.crypto import bfv
from tacit.crypto.channel import exchange_public, identity_public, place, seal, sign_key
from tacit.crypto.paillier.blob import Packing
from tacit.crypto.paillier.private import make_keys
from tacit.data.preparation import Preparation
from tacit.deploy.bundles import Request, sign_roster
from tacit.deploy.certificates import write_node_key
from tacit.deploy.provision import init
from tacit.engines.sitefolder import Roster, SiteFolder, SiteSettings
from tacit.engines.store import PartyStore
from tacit.methods.fedheonn import FedHEONN
from tacit.protections.bfv import BFV
from tacit.runs.job import execute
from tacit.runs.settings import Settings
from tacit.runs.transcript import TranscriptFolder
from tacit.standing.book import Book
from tests.helpers.hostile import IDENTITY, KEY, _bfv

MESSAGE = Message(
    weights=np.arange(6.0).reshape(2, 3),
    empty=np.zeros((0, 2), np.int64),
    flags=np.array([True, False]),
    sealed=Blob("sealed", bytes(40)),
    raw=b"bytes",
    round=2,
    rate=0.5,
    labels=("no", "yes"),
    nested={"a": {"b": (1, None)}},
)


def make_genuine() -> dict[str, bytes]:
    """Return genuine bytes by the name of their target."""
    found = _travelling() | _ciphertexts()
    with tempfile.TemporaryDirectory() as folder:
        return found | _files(Path(folder))


def _travelling() -> dict[str, bytes]:
    components = Components(FedHEONN(), BFV(), Preparation())
    manifest = Manifest.of("20260101-000000-abcdef", components, min_clients=3, declared={"holdout": 0.2})
    context = ask_context(7, "north", b"digest of the call")
    reply = Message({"$cpu": 0.25, "$notes": (("a note", "warning"),), "total": np.arange(3.0)})
    public = exchange_public(KEY)
    return {
        "message": MESSAGE.encode(),
        "reply": reply.encode(),
        "manifest": manifest.to_message().encode(),
        "tagged": tagged(MESSAGE, KEY, *context).encode(),
        "signed": sign_key(IDENTITY, "exchange", "coordinator", "run", public),
        "sealed": seal(KEY, b"a share", place("run", 3, "protection.deal", "north", "south")),
    }


def _ciphertexts() -> dict[str, bytes]:
    key = make_keys(2048).public
    parameters, _ = _bfv()
    blob = bfv.Cipher(KEY).encrypt(np.array([1, -2, 3, 4]), parameters, summands=3)
    return {
        "paillier_key": key.to_bytes(),
        "paillier": key.encrypt(np.arange(5), Packing(32, 8)),
        "bfv": blob,
    }


def _files(folder: Path) -> dict[str, bytes]:
    store = PartyStore(folder / "state.db", KEY)
    with store.step("run-1", Party("north", dict, KEY)) as party:
        party.state["seen"] = 1
        party.vault["channel"] = Secret(b"channel key")
    Book(folder / "coordinator.db", new=True).close()
    transcript = TranscriptFolder(folder / "transcript")
    transcript("north", "coordinator", "client.enrol", MESSAGE.encode())
    init(folder / "fed", ["north"], "127.0.0.1:21999")
    unlock = Secret(b"u" * 64)
    site = SiteFolder.create(folder / "site", SiteSettings("north", unlock="unlock"), unlock)
    identity, exchange = identity_public(IDENTITY).hex(), exchange_public(KEY).hex()
    roster = Roster(identity, {"north": identity, "south": identity}, {}, {"north": exchange})
    node = write_node_key(folder / "node").read_text(encoding="utf-8").strip()
    request = Request("north", identity, exchange, node).sign(KEY)
    names = ("federation.json", "bundles/north.bundle")
    federation, bundle = ((folder / "fed" / name).read_bytes() for name in names)
    return {
        "state": State(MESSAGE).to_bytes(),
        "state_db": (folder / "state.db").read_bytes(),
        "book": (folder / "coordinator.db").read_bytes(),
        "transcript": transcript.file("north").read_bytes(),
        "secret_key": (site.path / "secret.key").read_bytes(),
        "site_toml": (site.path / "site.toml").read_bytes(),
        "roster_toml": roster.to_toml().encode(),
        "signed_roster": sign_roster(roster, 2, KEY),
        "request": msgspec.json.encode(request),
        "bundle": bundle,
        "federation_json": federation,
        "checkpoint": _checkpoint(folder),
    }


def _checkpoint(folder: Path) -> bytes:
    """Keep the first checkpoint of a small run."""
    kept = folder / "kept.bin"

    def keep(number: int, event: object) -> None:
        for path in folder.glob("runs/*/checkpoint.bin"):
            if not kept.exists():
                shutil.copy(path, kept)

    tables = {
        "method": {"name": "fedavg", "rounds": 2, "hidden": 2},
        "data": {"name": "iris"},
        "partition": {"name": "iid", "clients": 3},
        "protect": {"name": "plain"},
        "run": {"baselines": False, "out": "runs"},  # the path of a machine is not for the corpus
    }
    with chdir(folder):
        execute(Settings.from_tables(tables), keep)
    return kept.read_bytes()
