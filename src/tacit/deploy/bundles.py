"""Bundles, requests and signed rosters: the files that an operator and the sites send each other.

A site joins with a *bundle*, which has its keys if the operator made them; one that makes its own sends a
*request* first. A *signed roster* tells all sites who takes part from now on.
"""

import json
import re
from pathlib import Path

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from tacit.core.component import from_plain
from tacit.core.errors import ConfigError, ProtectionError
from tacit.core.exposure import COORDINATOR
from tacit.core.party import identity_of
from tacit.core.secret import Secret
from tacit.crypto.channel import checked_key, sign_key
from tacit.engines.sitefolder import Roster

FORMAT = 1
KEYS = ("secret.key", "unlock", "node", "node.pub")  # of a site that has not made its own
LIMIT = 1 << 20  # bytes of a file that somebody sent


class Request(msgspec.Struct, frozen=True):
    """A site that wants to take part: its name and the public halves of its keys, signed by its identity."""

    name: str
    identity: str
    exchange: str
    node: str
    signature: str = ""

    def _content(self) -> bytes:
        return msgspec.json.encode((FORMAT, self.name, self.identity, self.exchange, self.node))

    def sign(self, secret: Secret) -> "Request":
        """Return the request, signed."""
        signed = sign_key(identity_of(secret), "request", self.name, "federation", self._content())
        return msgspec.structs.replace(self, signature=signed.hex())

    def check(self) -> None:
        """Refuse a request whose signature is not by the identity that it names."""
        try:
            signature, identity = bytes.fromhex(self.signature), bytes.fromhex(self.identity)
            told = checked_key(signature, identity, "request", self.name, "federation")
        except ValueError:
            told = b""
        if told != self._content():
            raise ProtectionError(f"the request of {self.name} was changed on its way: ask for it again")
        # They go into everybody's roster, and the node's key to the SuperLink.
        try:
            node = load_ssh_public_key(self.node.encode())
        except (ValueError, UnsupportedAlgorithm):
            node = None
        keys = all(re.fullmatch("[0-9a-f]{64}", key) for key in (self.identity, self.exchange))
        if not keys or not isinstance(node, ec.EllipticCurvePublicKey):
            raise ConfigError(f"the request of {self.name[:64]!r} has keys that are none: make another")


def read_small(path: Path, what: str) -> bytes:
    """Read a file that somebody sent, unless it is too large for what it is said to be."""
    try:
        if path.stat().st_size > LIMIT:
            raise ConfigError(
                f"{path} has {path.stat().st_size:,} bytes, {what} at most {LIMIT:,}: it is none"
            )
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}: give {what}") from None


def read_request(path: Path) -> Request:
    """Read and check a request."""
    try:
        found = msgspec.json.decode(read_small(path, "a site's request"), type=Request)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ConfigError(f"{path} is no request of a site: make one with `tacit site request`") from None
    found.check()
    return found


def sign_roster(roster: Roster, revision: int, secret: Secret) -> bytes:
    """Return a roster as a file that sites take over, signed by the coordinator."""
    content = json.dumps({"format": FORMAT, "revision": revision, "roster": vars(roster)})
    signed = sign_key(identity_of(secret), "roster", COORDINATOR, "federation", content.encode())
    return json.dumps({"signed": signed.hex()}).encode()


def read_roster(raw: bytes, coordinator: str) -> tuple[Roster, int]:
    """Return a signed roster and its revision, if the coordinator that this site has pinned signed it."""
    try:
        signed, identity = bytes.fromhex(json.loads(raw)["signed"]), bytes.fromhex(coordinator)
        told = json.loads(checked_key(signed, identity, "roster", COORDINATOR, "federation"))
        roster, revision = from_plain(Roster, told["roster"], "roster"), told["revision"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError("this is no signed roster: get it from the operator again") from None
    if roster.coordinator != coordinator or type(revision) is not int:
        raise ProtectionError("the roster names another coordinator than the one that this site has pinned")
    return roster, revision


class Bundle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a site joins with."""

    name: str
    address: str
    coordinator: str  # its identity
    certificate: bytes  # of the authority
    roster: bytes  # signed
    keys: dict[str, bytes] = {}  # files of a site that has not made its own
    format: int = FORMAT


def read_bundle(path: Path) -> Bundle:
    """Read a bundle; nothing else than the files that belong into one is in it."""
    try:
        found = msgspec.json.decode(read_small(path, "a site's bundle"), type=Bundle)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ConfigError(f"{path} is no bundle of a site: get it from the operator again") from None
    if odd := {*found.keys} - {*KEYS}:
        raise ConfigError(f"{path} holds '{min(odd)[:80]}', which belongs into no bundle")
    if found.format != FORMAT:
        raise ConfigError(f"{path} is of format {found.format}, this release reads {FORMAT}")
    return found
