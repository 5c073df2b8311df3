"""Backup and restore of a coordinator's or a site's folder, as one file.

Databases are copied as they were at one moment, also while the folder is in use. Keys that lie in the folder
in the clear are sealed under the key that unlocks the folder, and that key itself is left out: a backup alone
opens nothing. It has the digest of every file, and a tag of these under that key: whoever keeps it can change
nothing.
"""

import hashlib
import hmac
import os
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

import tacit
from tacit.core.errors import ConfigError, ProtectionError, UnavailableError
from tacit.core.party import Party
from tacit.core.random import derive
from tacit.core.secret import Secret
from tacit.deploy.provision import Operator
from tacit.deploy.records import user
from tacit.engines.audit import now
from tacit.engines.sitefolder import NONCE, UNLOCK, SiteFolder, write_private

FORMAT = 1
FACTS = "backup.json"
PLAIN_KEYS = ("node", "ca.key", "server.key")  # not encrypted where they lie; bundles hold such keys, too
LEFT_OUT = ("-journal", "-wal", "-shm", ".log", ".part", ".pid")
FIRST = ("state.db", "epsilon.db")  # what was spent, and what was recorded, is never older than the state
SQLITE = b"SQLite format 3\0"
PATHS = ("site.toml", "coordinator/site.toml")  # files that name the folder itself


class Facts(msgspec.Struct):
    """What a backup says of itself."""

    format: int
    version: str
    made: str
    folder: str
    unlock: str | None  # where the folder has the key that unlocks it, if it is in there
    files: dict[str, str]  # name -> digest
    tag: str = ""  # of all of this under the key that unlocks the folder

    def tag_by(self, key: Secret) -> str:
        """Return the tag that these facts have under a key."""
        told = msgspec.json.encode(msgspec.structs.replace(self, tag=""), order="sorted")
        return hmac.digest(derive(key.reveal(), ("backup facts",)), told, "sha256").hex()


def back_up(folder: Path, to: Path) -> dict[str, Any]:
    """Write a folder into a file that is not there yet, readable by its owner only."""
    if to.exists():
        raise ConfigError(f"{to} is there already: choose another file with --to")
    if not to.parent.is_dir():
        raise ConfigError(f"{to.parent} is no folder: make it, or choose another file with --to")
    site = _party(folder)
    key = site.path / (site.settings.unlock or "")
    unlock = os.path.relpath(key, folder) if key.resolve().is_relative_to(folder.resolve()) else None
    facts = Facts(FORMAT, tacit.__version__, now(), str(folder.absolute()), unlock, {})
    part = to.with_name(f"{to.name}.part")
    try:
        with tempfile.TemporaryDirectory(dir=to.parent) as work:
            rows = site.path / (site.settings.data or "")
            for path in _files(folder, {key.resolve(), rows.resolve()}):
                name = path.relative_to(folder).as_posix()
                copy = Path(work, name)
                copy.parent.mkdir(parents=True, exist_ok=True)
                _copy(path, copy, site.unlock if _holds_keys(path) else None, name)
                facts.files[name] = _digest(copy)
            facts.tag = facts.tag_by(site.unlock)
            Path(work, FACTS).write_bytes(msgspec.json.encode(facts))
            write_private(part, b"")
            with tarfile.open(part, "w") as archive:
                archive.add(work, "")
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(to)
    except (OSError, sqlite3.Error) as error:
        part.unlink(missing_ok=True)
        raise UnavailableError(f"{to} cannot be written: {error}: make room, or try again later") from None
    found = {"backup": str(to), "folder": str(folder), "files": len(facts.files), "bytes": to.stat().st_size}
    return {**found, "unlock": str(key) if site.settings.unlock else UNLOCK}


def restore(file: Path, to: Path, unlock: Path | None = None) -> dict[str, Any]:
    """Write a backup into a folder that is not there yet; ``unlock`` is the file with its key.

    Runs that the site remembers are not gone on with, since it may have answered more than it knows.
    """
    if not file.is_file():
        raise ConfigError(f"there is no file {file}: give one that `tacit backup` wrote")
    if to.exists():
        raise ConfigError(f"{to} is there already: choose another folder with --to, nothing is overwritten")
    key = _unlock_key(unlock)
    try:
        to.mkdir(parents=True, mode=0o700)
        facts = _extract(file, to, key)
        if facts.unlock:
            write_private(to / facts.unlock, key.reveal())
        for path in (to / name for name in PATHS if (to / name).is_file()):
            path.write_text(path.read_text().replace(f"{facts.folder}/", f"{to.absolute()}/"))
        site = _party(to)
        site.secret  # noqa: B018  # with another key, nothing opens
        for run in site.store.runs() if (site.path / "state.db").is_file() else ():
            with site.store.step(run, Party(site.name, dict, site.secret)) as party:
                party.vault.pop("channel", None)  # without it, no ask of that run is answered
        site.audit_log.add("restored", who=user(), made=facts.made)
    except BaseException as error:
        shutil.rmtree(to, ignore_errors=True)
        if isinstance(error, OSError | tarfile.TarError):
            raise UnavailableError(f"{file} cannot be restored to {to}: {error}") from None
        raise
    warnings = [f"all is as of {facts.made}: what was answered since is in no record here"]
    if site.ledger.path.is_file():
        warnings.append(
            f"epsilon.db is as of {facts.made}, with {site.ledger.total():.4g} spent: what was spent since "
            "is forgotten, and could be spent twice. If runs were answered since, put the newer file back, "
            "or lower [accept] epsilon_total by what they cost"
        )
    return {"folder": str(to), "made": facts.made, "files": len(facts.files), "warnings": warnings}


def _party(folder: Path) -> SiteFolder:
    """Return the site of a folder, or an operator's coordinator."""
    return Operator(folder).coordinator if (folder / "federation.json").is_file() else SiteFolder(folder)


def _files(folder: Path, but: set[Path]) -> Iterator[Path]:
    """Yield what belongs into a backup, in an order in which nothing is newer than what vouches for it."""
    found = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    for path in sorted(found, key=lambda each: (each.name not in FIRST, each.suffix != ".head", each)):
        flower = path.relative_to(folder).parts[0] == "flower"  # made anew when the coordinator starts
        if not flower and not path.name.endswith(LEFT_OUT) and path.resolve() not in but:
            yield path


def _holds_keys(path: Path) -> bool:
    return path.name in PLAIN_KEYS or path.suffix == ".bundle"


def _copy(path: Path, to: Path, key: Secret | None, name: str) -> None:
    """Copy a file, sealed if there is a key to seal it with; a database as it is at one moment."""
    with path.open("rb") as file:
        database = file.read(len(SQLITE)) == SQLITE
    if key is not None:
        nonce = os.urandom(NONCE)
        to.write_bytes(nonce + _cipher(key).encrypt(nonce, path.read_bytes(), name.encode()))
    elif database:
        address = f"{path.absolute().as_uri()}?mode=rw"  # what a killed process began is taken back first
        with closing(sqlite3.connect(address, uri=True)) as source, closing(sqlite3.connect(to)) as target:
            source.backup(target)
    else:
        shutil.copyfile(path, to)


def _extract(file: Path, to: Path, key: Secret) -> Facts:
    """Write a backup's files, once each is known to be what was saved."""
    try:
        with tarfile.open(file, "r:") as archive:
            archive.extractall(to, filter="data")  # nothing outside of the folder, no links out of it
        facts = msgspec.json.decode((to / FACTS).read_bytes(), type=Facts)
        (to / FACTS).unlink()
    except (FileNotFoundError, tarfile.ReadError, msgspec.DecodeError):
        raise ConfigError(f"{file} is no backup, or was cut off: take another copy") from None
    if facts.format != FORMAT:
        raise ConfigError(f"{file} is of format {facts.format}, this release reads {FORMAT}")
    if not hmac.compare_digest(facts.tag, facts.tag_by(key)):
        raise ProtectionError(f"{file} does not open: it was changed, or this is not the folder's key")
    found = {path.relative_to(to).as_posix(): path for path in to.rglob("*") if not path.is_dir()}
    damaged = found.keys() ^ facts.files.keys()
    damaged |= {name for name in found.keys() - damaged if _digest(found[name]) != facts.files[name]}
    if damaged or (facts.unlock and not (to / facts.unlock).resolve().is_relative_to(to.resolve())):
        raise ProtectionError(f"'{min(damaged, default=FACTS)}' is damaged in {file}: take another copy")
    for name, path in found.items():
        raw = path.read_bytes() if _holds_keys(path) else b""
        path.chmod(0o600)
        try:
            if raw:
                path.write_bytes(_cipher(key).decrypt(raw[:NONCE], raw[NONCE:], name.encode()))
        except InvalidTag:
            raise ProtectionError(f"'{name}' does not open: this is not the folder's key") from None
    return facts


def _cipher(key: Secret) -> ChaCha20Poly1305:
    return ChaCha20Poly1305(derive(key.reveal(), ("backup",)))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unlock_key(unlock: Path | None) -> Secret:
    try:
        text = unlock.read_text(errors="replace") if unlock else os.environ.get(UNLOCK, "")
    except OSError as error:
        raise ConfigError(f"the key file {unlock} cannot be read: {error.strerror}") from None
    if not text.strip():
        raise ConfigError(f"a backup does not hold the key that unlocks it: give --unlock, or set {UNLOCK}")
    return Secret(text.strip().encode())
