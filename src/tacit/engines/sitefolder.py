"""A site's folder: who it is, whom it knows, and where its rows are."""

import json
import os
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tacit.core.component import from_plain
from tacit.core.errors import ConfigError, ProtectionError, nearest
from tacit.core.exposure import COORDINATOR
from tacit.core.party import identity_of
from tacit.core.random import derive
from tacit.core.secret import Secret
from tacit.crypto.channel import exchange_public, identity_public, seal, unseal
from tacit.data.database import check_address
from tacit.data.reading import Reading
from tacit.engines.audit import AuditLog
from tacit.engines.epsilon import EpsilonLedger
from tacit.engines.policy import Policy
from tacit.engines.store import PartyStore

UNLOCK = "TACIT_UNLOCK"  # environment variable with the key that unlocks a site's secrets
PLACE = b"tacit site secret"  # to which a sealed secret is bound
SHORTEST = 32  # characters of that key: it is not stretched, so it must be random


@dataclass(frozen=True)
class SiteSettings(Reading):
    """Who a site is, and where its rows are; the keys of ``site.toml``.

    Parameters
    ----------
    name : str
        Its name in the federation.
    data : str, optional
        File with the site's own rows, or the address of its database.
    experiment : bool
        Whether this site plays a part in experiments: then a run may name public data of which the site takes
        its share, and may read the model that it has learnt. No site with rows of its own should.
    unlock : str, optional
        File with the key that unlocks this site's secrets; else the environment holds it (``TACIT_UNLOCK``).
    tell : bool
        Whether the coordinator is told, when the site enrols, how many columns it has, which target, and what
        its policy accepts.
    """

    name: str = ""
    data: str | None = None
    experiment: bool = False
    unlock: str | None = None
    tell: bool = True

    def __post_init__(self) -> None:
        check_address(self.data or "")
        self.kinds()


@dataclass(frozen=True)
class Roster:
    """Who takes part, with the identity that everybody has pinned for each; ``roster.toml``."""

    coordinator: str = ""
    clients: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)
    exchanges: Mapping[str, str] = field(default_factory=dict)

    def pinned(self, name: str) -> bytes:
        """Return the identity key that is pinned for a party."""
        return _key_of(name, {COORDINATOR: self.coordinator, **self.clients, **self.services}, "identity")

    def exchange(self, name: str) -> bytes:
        """Return the standing exchange key pinned for a client; with all of them a run takes a wave less."""
        return _key_of(name, self.exchanges, "exchange key")

    def to_toml(self) -> str:
        """Write the roster as TOML."""
        lines = [f"coordinator = {_toml(self.coordinator)}"]
        for section in ("clients", "services", "exchanges"):
            if named := getattr(self, section):
                pairs = (f"{_toml(name)} = {_toml(key)}" for name, key in named.items())
                lines += ["", f"[{section}]", *pairs]
        return "\n".join(lines) + "\n"


def _key_of(name: str, known: Mapping[str, str], what: str) -> bytes:
    if name not in known:
        raise ConfigError(f"no {what} is pinned for '{name}': {nearest(name, known)}")
    try:
        return bytes.fromhex(known[name])
    except ValueError:
        raise ConfigError(f"the {what} of '{name}' in the roster is not hexadecimal") from None


class SiteFolder:
    """The folder of a site, or of the coordinator."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if not (self.path / "site.toml").is_file():
            raise ConfigError(
                f"{self.path} is no site's folder, it has no site.toml: make one with `tacit site join`"
            )
        tables = _read_toml(self.path / "site.toml")
        accept = tables.pop("accept", {})
        if not isinstance(accept, Mapping):
            raise ConfigError(f"accept is {accept!r} in {self.path}/site.toml: write it as a table, [accept]")
        self.settings = from_plain(SiteSettings, tables, "site.toml")
        self.policy = from_plain(Policy, accept, "[accept] in site.toml")
        if not self.settings.name:
            raise ConfigError(f"{self.path}/site.toml does not say who this is: give a name")

    @classmethod
    def create(
        cls, path: Path, settings: SiteSettings, key: Secret, policy: Policy | None = None
    ) -> "SiteFolder":
        """Make a site's folder with a new secret; its roster is written once all identities are known."""
        path.mkdir(parents=True, mode=0o700)
        (path / "site.toml").write_text(cls.text_of(settings, policy), encoding="utf-8")
        write_private(path / "secret.key", seal(_sealing_key(key), secrets.token_bytes(32), PLACE))
        return cls(path)

    @staticmethod
    def text_of(settings: SiteSettings, policy: Policy | None = None) -> str:
        """Return what ``site.toml`` holds."""
        lines = [f"{name} = {_toml(value)}" for name, value in vars(settings).items() if value is not None]
        return "\n".join(lines) + "\n\n" + (policy or Policy()).to_toml()

    @property
    def name(self) -> str:
        """The party's name in the federation."""
        return self.settings.name

    @cached_property
    def roster(self) -> Roster:
        """Whom this site knows, as it was pinned here."""
        path = self.path / "roster.toml"
        if not path.is_file():
            raise ConfigError(f"{self.path} has no roster.toml: put the federation's roster there")
        found = from_plain(Roster, _read_toml(path), "roster.toml")
        if not found.clients:
            raise ConfigError(f"{path} names no clients")
        return found

    @cached_property
    def unlock(self) -> Secret:
        """Key that unlocks this site's secrets."""
        named = self.settings.unlock
        if named is None:
            text = os.environ.get(UNLOCK, "")
            if not text:
                raise ConfigError(
                    f"the secrets of {self.name} are locked: set {UNLOCK} in the environment, or name the "
                    "key's file as `unlock` in site.toml"
                )
            return _long_enough(text.encode(), UNLOCK)
        path = self.path / named
        try:
            if path.stat().st_mode & 0o077:
                raise ProtectionError(f"{path} can be read by others: chmod 600 it, and think of a new key")
            return _long_enough(path.read_bytes(), str(path))
        except OSError as error:
            raise ConfigError(f"the key file {path} cannot be read: {error.strerror}") from None

    @cached_property
    def secret(self) -> Secret:
        """The site's own secret."""
        key = _sealing_key(self.unlock)
        try:
            return Secret(unseal(key, (self.path / "secret.key").read_bytes(), PLACE))
        except OSError as error:
            raise ConfigError(f"{self.path}/secret.key cannot be read: {error.strerror}") from None
        except ProtectionError:
            raise ProtectionError(
                f"{self.path}/secret.key does not open with this site's key: it is another's, or was changed"
            ) from None

    @property
    def identity(self) -> str:
        """Public half of the site's signing key, for the roster."""
        return identity_public(identity_of(self.secret)).hex()

    @property
    def exchange(self) -> str:
        """Public half of the site's standing exchange key, for a roster that is to hold them."""
        return exchange_public(self._exchange).hex()

    @property
    def _exchange(self) -> Secret:
        return Secret(derive(self.secret.reveal(), ("exchange",)))

    def preshared_keys(self, name: str) -> tuple[Secret, bytes]:
        """Return the site's standing exchange key, and the public one of another party."""
        return self._exchange, self.roster.exchange(name)

    @cached_property
    def store(self) -> PartyStore:
        """What this site remembers between steps."""
        return PartyStore(self.path / "state.db", self.unlock)

    @property
    def ledger(self) -> EpsilonLedger:
        """What noise has cost this site's rows, over all runs."""
        return EpsilonLedger(self.path / "epsilon.db")

    @property
    def audit_log(self) -> AuditLog:
        """What this site was asked, and what left it."""
        return AuditLog(self.path)


def new_unlock() -> str:
    """Make a key that unlocks a site's secrets, as text."""
    return secrets.token_hex(32)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, and return once it is on disk."""
    with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)  # also one that was there
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _long_enough(raw: bytes, where: str) -> Secret:
    if len(raw.strip()) < SHORTEST:
        raise ConfigError(f"the key in {where} is short: use {SHORTEST} random characters or more")
    return Secret(raw.strip())


def _sealing_key(unlock: Secret) -> Secret:
    return Secret(derive(unlock.reveal(), ("site secret",)))


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)  # of such values JSON is TOML


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
