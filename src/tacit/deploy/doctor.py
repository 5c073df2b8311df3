"""What is wrong with an operator's or a site's folder, and how to mend it."""

import datetime
import email.utils
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from cryptography import x509

import tacit
from tacit.core.errors import ConfigError, TacitError
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.data.files import load
from tacit.data.schema import Schema
from tacit.deploy.connection import Connection, probe
from tacit.deploy.operate import connection_of
from tacit.deploy.provision import Operator
from tacit.deploy.records import told_by_sites
from tacit.engines.audit import AuditLog
from tacit.engines.sitefolder import SiteFolder

SOON = 30  # days before a certificate expires
LEAST_FREE = 1 << 30  # bytes on the disk
CLOCK = 60.0  # seconds by which clocks may differ
FLOWER = "1.41.0"
PRIVATE = ("secret.key", "unlock", "node", "ca.key", "server.key", "coordinator.unlock")


class Finding(NamedTuple):
    """What was looked at, whether it is fine, and what to do if not."""

    what: str
    fine: bool
    text: str


def examine(folder: Path) -> list[Finding]:
    """Look at a folder of an operator, or of a site."""
    own = list(_operator(folder) if (folder / "federation.json").is_file() else _site(folder))
    return [*_common(folder), *own]


def _common(folder: Path) -> Iterator[Finding]:
    yield Finding("tacit", True, f"version {tacit.__version__}")
    try:
        version = metadata.version("flwr")
        text = f"version {version}" + ("" if version == FLOWER else f": install {FLOWER}, as all others")
        yield Finding("flower", version == FLOWER, text)
    except metadata.PackageNotFoundError:
        yield Finding("flower", False, "not installed: pip install 'tacit-fl[flower]'")
    yield from health(folder)
    for path in (each for each in sorted(folder.rglob("*")) if each.name in PRIVATE):
        private = not path.stat().st_mode & 0o077
        text = "is private" if private else "can be read by others: chmod 600 it"
        yield Finding("keys", private, f"{path.name} {text}")


def health(folder: Path) -> Iterator[Finding]:
    """Look at what a coordinator or a site cannot answer without."""
    free = shutil.disk_usage(folder).free
    room = "" if free >= LEAST_FREE else ": steps are written down before they are answered, make room"
    yield Finding("disk", not room, f"{free / 1e9:.1f} GB are free{room}")
    log = AuditLog(folder)
    try:
        if log.path.is_file() or log.head.is_file():
            log.check_end()
        yield Finding("audit log", True, "goes on" if log.path.is_file() else "begins with the first ask")
    except TacitError as error:
        yield Finding("audit log", False, str(error))


def certificate_of(path: Path) -> Finding:
    """Look at how long a certificate is valid."""
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        return Finding("certificate", False, f"{path.name} cannot be read: {error}")
    now = datetime.datetime.now(datetime.UTC)
    if now < found.not_valid_before_utc:
        return Finding("certificate", False, f"{path.name} is not valid yet: set this machine's clock")
    days = (found.not_valid_after_utc - now).days
    if days < SOON:
        fix = "`tacit federation rotate` makes a new one; then start the coordinator again"
        text = "has expired" if days < 0 else f"expires in {days} days"
        return Finding("certificate", False, f"{path.name} {text}: {fix}")
    return Finding("certificate", True, f"{path.name} is valid for {days} days")


def _operator(folder: Path) -> Iterator[Finding]:
    operator = Operator(folder)
    yield certificate_of(folder / "ca.crt")
    yield certificate_of(folder / "server.pem")
    active = [name for name, member in operator.state.members.items() if member.active]
    few = "" if len(active) >= 3 else ": most protections open no total over fewer than 3"
    yield Finding("sites", not few, f"{len(active)} sites{few}")
    try:
        told = told_by_sites(AuditLog(folder))
    except TacitError:  # what is wrong with the log is a finding of its own
        told = {}
    schemas = {name: told[name]["schema"] for name in active if "schema" in told.get(name, {})}
    usual = "".join(text for text, _ in Counter(schemas.values()).most_common(1))
    odd = [f"{name} has {text}" for name, text in schemas.items() if text != usual]
    fix = f"{'; '.join(odd)}, others {usual}: bring the same columns" if odd else ""
    same = f"{len(schemas)} sites have told theirs, all the same" if schemas else "no site has told its yet"
    yield Finding("schema", not odd, fix or same)
    yield from _reach(operator.link)
    yield _locked(operator.coordinator)


def _site(folder: Path) -> Iterator[Finding]:
    site = SiteFolder(folder)
    yield _locked(site)
    try:
        pinned = site.roster.pinned(site.name).hex() == site.identity
        many = f"names {len(site.roster.clients)} sites"
        yield Finding("roster", pinned, many if pinned else "has another identity for this site")
    except TacitError as error:
        yield Finding("roster", False, str(error))
    try:
        if site.settings.data is not None:
            table = load(site.settings.data, **site.settings.choices())
            about = f"{table.rows} rows, {len(table.columns)} columns, target {table.target_names[0]}"
            yield Finding("rows", True, about)
            yield _schema(site, {column.name for column in table.columns})
        elif site.name in site.roster.services:
            yield Finding("rows", True, "it is a service, which brings none")
        else:
            raise ConfigError("no file or database is named: add data to site.toml")
    except TacitError as error:
        yield Finding("rows", False, str(error))
    yield _epsilon(site)
    if (folder / "ca.crt").is_file():
        yield certificate_of(folder / "ca.crt")
    try:
        yield from _reach(connection_of(folder))
    except TacitError as error:
        yield Finding("address", False, str(error))


def _schema(site: SiteFolder, columns: set[str]) -> Finding:
    for run in site.store.runs() if (site.path / "state.db").is_file() else ():
        known = site.store.recalled(run, Party(site.name, dict, site.secret))
        if known is not None and (raw := known.state.get("schema")) is not None:
            agreed = {column.name for column in Schema.from_message(Message.decode(raw)).columns}
            missing = sorted(agreed - columns)
            text = f"has all {len(agreed)} columns of the last run"
            if missing:
                text = f"the last run agreed on '{missing[0]}', which the rows lack: bring the same columns"
            return Finding("schema", not missing, text)
    return Finding("schema", True, "none was agreed on yet")


def _epsilon(site: SiteFolder) -> Finding:
    """Compare the account of epsilon with the audit log, which is written after it."""
    lost: Counter[str] = Counter()
    try:
        for record in site.audit_log.records() if site.audit_log.path.is_file() else ():
            lost[record.get("run", "")] += sum(each["releases"] for each in record.get("charges", ()))
    except TacitError:
        return Finding("epsilon", False, "cannot be compared with the audit log: see there")
    for each in site.ledger.list():
        lost[each.run] -= each.releases
    if run := next(iter(+lost), None):
        text = f"epsilon.db lacks what run {run} cost: it is an old copy, put the newer one back"
        return Finding("epsilon", False, text)
    return Finding("epsilon", True, f"{site.ledger.total():.4g} is spent, as the audit log says")


def _locked(site: SiteFolder) -> Finding:
    try:
        return Finding("secrets", True, f"open, identity {site.identity[:16]}…")
    except TacitError as error:
        return Finding("secrets", False, str(error))


def _reach(connection: Connection) -> Iterator[Finding]:
    try:
        told = probe(connection)
    except TacitError as error:
        yield Finding("superlink", False, str(error))
        return
    yield Finding("superlink", True, f"answers at {connection.address}")
    with suppress(ValueError, TypeError, OverflowError):  # of what is no time, or of no zone
        now = datetime.datetime.now(datetime.UTC)
        away = abs((email.utils.parsedate_to_datetime(told or "") - now).total_seconds())
        fix = ": let both machines follow a time server" if away > CLOCK else ""
        yield Finding("clock", not fix, f"{away:.0f} s from the SuperLink's{fix}")
