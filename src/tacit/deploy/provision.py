"""What an operator keeps of a federation: authority, own keys, who takes part, and a bundle for each site."""

import json
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from tacit.core.errors import ConfigError, nearest
from tacit.core.exposure import COORDINATOR
from tacit.core.secret import Secret
from tacit.deploy import bundles
from tacit.deploy.certificates import write_certificates, write_node_key, write_server
from tacit.deploy.connection import Connection
from tacit.deploy.records import user
from tacit.engines.audit import AuditLog
from tacit.engines.policy import Policy
from tacit.engines.sitefolder import Roster, SiteFolder, SiteSettings, new_unlock, write_private
from tacit.runs.folder import cannot_write
from tacit.runs.keys import toml

ADDRESS = "127.0.0.1:8000"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
LINK = "bundle.json"  # in a site's folder: the SuperLink's address
SERVICES = ("key-server", "main-server")  # members of these names are services: they bring no rows


class Member(msgspec.Struct):
    """A site of the federation: its public keys, and whether it still takes part."""

    identity: str
    exchange: str
    node: str
    active: bool = True
    number: str = ""  # by which the SuperLink knows its node


class State(msgspec.Struct):
    """What ``federation.json`` holds."""

    address: str
    members: dict[str, Member]
    revision: int = 1
    format: int = bundles.FORMAT


class Operator:
    """The folder of a federation's operator."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            self.state = msgspec.json.decode((self.path / "federation.json").read_bytes(), type=State)
        except FileNotFoundError:
            raise ConfigError(
                f"{self.path} is no federation's folder: make one with `tacit federation init`"
            ) from None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path}/federation.json cannot be read: {error}") from None

    @property
    def coordinator(self) -> SiteFolder:
        """The coordinator's folder."""
        return SiteFolder(self.path / COORDINATOR)

    @property
    def roster(self) -> Roster:
        """Who takes part now."""
        active = {name: each for name, each in self.state.members.items() if each.active}
        services = {name: active.pop(name).identity for name in SERVICES if name in active}
        identities = {name: each.identity for name, each in active.items()}
        exchanges = {name: each.exchange for name, each in active.items()}
        return Roster(self.coordinator.identity, identities, services, exchanges)

    @property
    def link(self) -> Connection:
        """The way by which sites reach the SuperLink."""
        return Connection.at(self.state.address, self.path / "ca.crt", self.path / "federation.json")

    def save_state(self) -> None:
        """Write the members, for this operator's own commands."""
        write_private(self.path / "federation.json", msgspec.json.encode(self.state))

    def save(self) -> None:
        """Write who takes part, for the coordinator and, signed, for the sites."""
        roster, revision = self.roster, self.state.revision
        AuditLog(self.path).add("roster", who=user(), revision=revision, sites=[*roster.clients])
        (self.path / COORDINATOR / "roster.toml").write_text(roster.to_toml(), encoding="utf-8")
        signed = bundles.sign_roster(roster, revision, self.coordinator.secret)
        (self.path / "roster.json").write_bytes(signed)
        self.save_state()
        for path in (self.path / "bundles").glob("*.bundle"):  # who has not joined yet gets the newest
            write_private(
                path, msgspec.json.encode(msgspec.structs.replace(bundles.read_bundle(path), roster=signed))
            )

    def write_bundle(self, name: str, keys: dict[str, bytes] | None = None) -> Path:
        """Write the bundle of a site; with its keys, if they were made here."""
        certificate, roster = ((self.path / file).read_bytes() for file in ("ca.crt", "roster.json"))
        identity, target = self.coordinator.identity, self.path / "bundles" / f"{name}.bundle"
        bundle = bundles.Bundle(name, self.state.address, identity, certificate, roster, keys or {})
        write_private(target, msgspec.json.encode(bundle))
        return target


def check_name(name: str) -> str:
    """Refuse a name that could not stand in file names, rosters and commands."""
    if name == COORDINATOR or not NAME.fullmatch(name):
        raise ConfigError(f"'{name}' cannot be a site's name: use small letters, digits, dots and hyphens")
    return name


def _make_member(path: Path, name: str) -> tuple[Member, dict[str, bytes]]:
    unlock = new_unlock().encode()
    site = SiteFolder.create(path, SiteSettings(name, unlock="unlock"), Secret(unlock))
    write_private(path / "unlock", unlock)
    public = write_node_key(path / "node")
    files = {each: (path / each).read_bytes() for each in bundles.KEYS}
    return Member(site.identity, site.exchange, public.read_text(encoding="utf-8").strip()), files


def init(
    path: Path, sites: Sequence[str], address: str = ADDRESS, own: Sequence[Path] = ()
) -> dict[str, Any]:
    """Make a federation: authority, certificate, coordinator, and a bundle with keys for each named site.

    ``own`` are the files of an own authority's certificate, a certificate for the address, and its key.
    """
    if (path / "federation.json").exists():
        raise ConfigError(
            f"{path} is a federation's folder already: add sites with `tacit federation add-site`"
        )
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"--address is {address}: give host:port, as sites reach it, such as 10.0.0.5:8000")
    names = [check_name(name) for name in sites]
    if len(set(names)) < len(names):
        raise ConfigError(f"a site is named twice among {', '.join(names)}: each has a name of its own")
    try:
        (path / "bundles").mkdir(parents=True, exist_ok=True, mode=0o700)
        (path / "flower").mkdir(exist_ok=True)
        path.chmod(0o700)
        if own:
            for name, source in zip(("ca.crt", "server.pem", "server.key"), own, strict=True):
                write_private(path / name, bundles.read_small(source, "a certificate or its key"))
        else:
            write_certificates(path, host.strip("[]"))
        unlock = new_unlock().encode()
        write_private(path / "coordinator.unlock", unlock)
        settings = SiteSettings(COORDINATOR, unlock="../coordinator.unlock")
        SiteFolder.create(path / COORDINATOR, settings, Secret(unlock))
        write_private(path / "federation.json", msgspec.json.encode(State(address, {})))
        first = {"data": {"name": "sites", "holdout": 0.2}, "method": {"name": "fedheonn"}}
        (path / "run.toml").write_text(toml(first), encoding="utf-8")
    except OSError as error:
        raise cannot_write(path, error) from None
    return add_sites(path, names)


def run_tables(path: Path, tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run on this federation: its own SuperLink, and rows of the sites."""
    run = {"engine": "flower", "out": str((path / "runs").absolute()), **tables.get("run", {})}
    flower = {"coordinator": str((path / COORDINATOR).absolute())}
    data = {"name": "sites", **tables.get("data", {})}
    return {**tables, "data": data, "run": run, "flower": {**flower, **tables.get("flower", {})}}


def add_sites(path: Path, names: Iterable[str] = (), requests: Iterable[Path] = ()) -> dict[str, Any]:
    """Add sites, by name with keys made here, or by their own requests, which are of the names given."""
    operator, made, names = Operator(path), dict[str, dict[str, bytes]](), [*names]
    known, added = operator.state.members, dict[str, Member]()
    for request in map(bundles.read_request, requests):
        name = check_name(request.name)
        if name not in names and (names or name in SERVICES):  # a site could ask for a service's keys
            raise ConfigError(
                f"the request is of '{name}': if that is meant, type `add-site {path} {name} --request FILE`"
            )
        added[name] = Member(request.identity, request.exchange, request.node)
    for name in (each for each in names if each not in added):
        with tempfile.TemporaryDirectory(dir=path / "bundles") as work:
            added[name], made[name] = _make_member(Path(work, check_name(name)), name)
    for name, member in added.items():
        if name in known:
            raise ConfigError(f"there is a site '{name}' already: revoke it first, or choose another name")
        keys = member.identity, member.node
        if alike := [other for other, each in known.items() if each.identity in keys or each.node in keys]:
            raise ConfigError(f"'{name}' has the keys of '{alike[0]}': each site needs keys of its own")
        known[name] = member
    operator.state.revision += bool(added)
    operator.save()
    made_for = {name: str(operator.write_bundle(name, made.get(name))) for name in added}
    found = {"folder": str(path), "address": operator.state.address, "sites": [*known], "bundles": made_for}
    return {**found, "roster": str(path / "roster.json"), "revision": operator.state.revision}


def revoke_site(path: Path, name: str) -> dict[str, Any]:
    """Take a site out: of the roster that all others take over, and of the nodes that may connect."""
    operator = Operator(path)
    if name not in operator.state.members:
        raise ConfigError(f"there is no site '{name}': {nearest(name, operator.state.members)}")
    operator.state.members[name].active = False
    operator.state.revision += 1
    operator.save()
    (path / "bundles" / f"{name}.bundle").unlink(missing_ok=True)
    left = [site for site, each in operator.state.members.items() if each.active]
    return {"revoked": name, "sites": left, "roster": str(path / "roster.json")}


def rotate(path: Path) -> dict[str, Any]:
    """Make a new certificate for the SuperLink, by the same authority; sites need nothing new."""
    operator = Operator(path)
    if not (path / "ca.key").is_file():
        raise ConfigError(f"{path} has no ca.key, its authority is another's: get a new certificate there")
    write_server(path, operator.link.host)
    return {"certificate": str(path / "server.pem")}


def request(folder: Path, name: str) -> Path:
    """Make a site's folder with keys of its own, and return the request that goes to the operator."""
    if folder.exists():
        raise ConfigError(f"{folder} is there already: choose another folder")
    try:
        member, _ = _make_member(folder, check_name(name))
        asked = bundles.Request(name, member.identity, member.exchange, member.node).sign(
            SiteFolder(folder).secret
        )
        path = folder.with_name(f"{folder.name}.request")
        path.write_bytes(msgspec.json.encode(asked))
    except OSError as error:
        raise cannot_write(folder, error) from None
    return path


def join(
    bundle: Path, folder: Path | None, settings: SiteSettings, policy: Policy | None = None
) -> SiteFolder:
    """Make a site's folder of a bundle, or complete the one that the request came from; add its rows."""
    found = bundles.read_bundle(bundle)
    path = folder or Path(check_name(found.name))
    own = (path / "secret.key").is_file()
    if own and found.keys:
        raise ConfigError(f"{path} has keys, and {bundle} brings others: choose another folder with --folder")
    if not own and found.keys.keys() != {*bundles.KEYS}:
        raise ConfigError(f"{bundle} has no keys, as the site made its own: name its folder with --folder")
    roster, _ = bundles.read_roster(found.roster, found.coordinator)
    if (path / "roster.toml").is_file():
        raise ConfigError(f"{path} has joined already: take over a newer roster with `tacit site update`")
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        named = replace(settings, name=found.name, unlock="unlock")
        texts = {"site.toml": SiteFolder.text_of(named, policy), "roster.toml": roster.to_toml()}
        texts[LINK] = json.dumps({"address": found.address})
        files = {"ca.crt": found.certificate, "roster.json": found.roster, **found.keys}
        for name, content in {**files, **{name: text.encode() for name, text in texts.items()}}.items():
            write_private(path / name, content)
    except OSError as error:
        raise cannot_write(path, error) from None
    site = SiteFolder(path)
    if {**roster.clients, **roster.services}.get(site.name) != site.identity:
        raise ConfigError(f"the roster of {bundle} has another identity for '{site.name}': it is another's")
    return site


def update(folder: Path, roster: Path) -> tuple[Roster, int]:
    """Take over a newer roster that the pinned coordinator has signed; an older one is refused."""
    site = SiteFolder(folder)
    pinned = site.roster.coordinator
    found, revision = bundles.read_roster(bundles.read_small(roster, "a signed roster"), pinned)
    kept = site.path / "roster.json"
    known, before = bundles.read_roster(kept.read_bytes(), pinned) if kept.is_file() else (site.roster, 0)
    if revision < before:
        raise ConfigError(f"{roster} is revision {revision}, this site has {before}: get the newest")
    if revision == before and found != known:
        told = f"{roster} is revision {revision} as this site's roster is, with other sites in it"
        raise ConfigError(f"{told}: ask the operator, who signed two, which is the right one")
    kinds = ((vars(site.roster)[kind], vars(found)[kind]) for kind in ("clients", "services", "exchanges"))
    if changed := [name for old, new in kinds for name, key in new.items() if old.get(name, key) != key]:
        raise ConfigError(f"the roster has another key for {changed[0]}: ask that site by another way first")
    (site.path / "roster.toml").write_text(found.to_toml(), encoding="utf-8")
    (part := kept.with_suffix(".part")).write_bytes(roster.read_bytes())
    part.replace(kept)
    return found, revision
