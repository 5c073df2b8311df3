"""Backup and restore of a coordinator's or a site's folder, as one file.

All is sealed under the folder's key, which is left out: a backup alone shows nothing, and cannot be changed.
"""

import io
import os
import shutil
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

import tacit
from tacit.core.errors import ConfigError, ProtectionError, UnavailableError
from tacit.core.party import Party
from tacit.core.random import derive
from tacit.core.secret import Secret
from tacit.crypto.channel import seal, unseal
from tacit.deploy.provision import Operator
from tacit.deploy.records import user
from tacit.engines.audit import now
from tacit.engines.sitefolder import UNLOCK, SiteFolder, write_private

MAGIC = b"tacit backup 2\n"
FACTS = "backup.json"
LEFT_OUT = ("-journal", "-wal", "-shm", ".log", ".part", ".pid", "superlink.db")
FIRST = ("state.db", "epsilon.db")  # what was spent, and what was recorded, is never older than the state
SQLITE = b"SQLite format 3\0"
PATHS = ("site.toml", "coordinator/site.toml")  # files that may name the folder itself


class Facts(msgspec.Struct):
    """What a backup says of itself."""

    version: str
    made: str
    folder: str
    unlock: str | None  # where the folder has the key that unlocks it, if it is in there


def back_up(folder: Path, to: Path) -> dict[str, Any]:
    """Write a folder into a file that is not there yet, readable by its owner only."""
    if to.exists():
        raise ConfigError(f"{to} is there already: choose another file with --to")
    if not to.parent.is_dir():
        raise ConfigError(f"{to.parent} is no folder: make it, or choose another file with --to")
    site = _party(folder)
    key = Path(os.path.normpath(site.path / (site.settings.unlock or "")))
    rows = site.path / (site.settings.data or "")
    unlock = os.path.relpath(key, folder) if key.resolve().is_relative_to(folder.resolve()) else None
    facts = Facts(tacit.__version__, now(), str(folder.absolute()), unlock)
    paths = list(_files(folder, {key.resolve(), rows.resolve()}))
    packed, part = io.BytesIO(), to.with_name(f"{to.name}.part")
    try:
        with tarfile.open(fileobj=packed, mode="w") as archive:
            _add(archive, FACTS, msgspec.json.encode(facts))
            for path in paths:
                _add(archive, path.relative_to(folder).as_posix(), _content(path))
        write_private(part, MAGIC + seal(_sealing_key(site.unlock), packed.getvalue(), MAGIC))
        part.replace(to)
    except OverflowError:
        raise UnavailableError(f"{folder} has over 2 GiB, the most of a backup: move old runs away") from None
    except (OSError, sqlite3.Error) as error:
        part.unlink(missing_ok=True)
        raise UnavailableError(f"{to} cannot be written: {error}: make room, or try again later") from None
    found = {"backup": str(to), "folder": str(folder), "files": len(paths), "bytes": to.stat().st_size}
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
        facts, files = _extract(file, to, key)
        if facts.unlock:
            write_private(to / facts.unlock, key.reveal())
        for path in (to / name for name in PATHS if (to / name).is_file()):
            path.write_text(path.read_text().replace(f"{facts.folder}/", f"{to.absolute()}/"))
        site = _party(to)
        site.secret  # noqa: B018  # else it could be used by nobody
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
    return {"folder": str(to), "made": facts.made, "files": files, "warnings": warnings}


def _party(folder: Path) -> SiteFolder:
    return Operator(folder).coordinator if (folder / "federation.json").is_file() else SiteFolder(folder)


def _files(folder: Path, but: set[Path]) -> Iterator[Path]:
    found = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    for path in sorted(found, key=lambda each: (each.name not in FIRST, each.suffix != ".head", each)):
        flower = path.relative_to(folder).parts[0] == "flower"  # made anew when the coordinator starts
        if not flower and not path.name.endswith(LEFT_OUT) and path.resolve() not in but:
            yield path


def _content(path: Path) -> bytes:
    if not (raw := path.read_bytes()).startswith(SQLITE):
        return raw
    address = f"{path.absolute().as_uri()}?mode=rw"  # what a killed process began is taken back first
    with closing(sqlite3.connect(address, uri=True)) as source, closing(sqlite3.connect(":memory:")) as copy:
        source.backup(copy)
        return copy.serialize()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o600
    archive.addfile(entry, io.BytesIO(content))


def _extract(file: Path, to: Path, key: Secret) -> tuple[Facts, int]:
    if not (raw := file.read_bytes()).startswith(MAGIC):
        raise ConfigError(f"{file} is no backup of this release's format: take another file")
    try:
        plain = unseal(_sealing_key(key), raw[len(MAGIC) :], MAGIC)
    except ProtectionError:
        raise ProtectionError(
            f"{file} does not open: it was changed or cut off, or this is not the folder's key"
        ) from None
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        archive.extractall(to, filter="data")  # nothing outside of the folder, no links out of it
    facts = msgspec.json.decode((to / FACTS).read_bytes(), type=Facts)
    (to / FACTS).unlink()
    if facts.unlock and not (to / facts.unlock).resolve().is_relative_to(to.resolve()):
        raise ProtectionError(f"{file} would write its key out of the folder, to {facts.unlock}")
    found = [path for path in to.rglob("*") if path.is_file()]
    for path in found:
        path.chmod(0o600)
    return facts, len(found)


def _sealing_key(unlock: Secret) -> Secret:
    return Secret(derive(unlock.reveal(), ("backup",)))


def _unlock_key(unlock: Path | None) -> Secret:
    try:
        text = unlock.read_text(errors="replace") if unlock else os.environ.get(UNLOCK, "")
    except OSError as error:
        raise ConfigError(f"the key file {unlock} cannot be read: {error.strerror}") from None
    if not text.strip():
        raise ConfigError(f"a backup does not hold the key that unlocks it: give --unlock, or set {UNLOCK}")
    return Secret(text.strip().encode())
