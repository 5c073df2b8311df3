"""Commands of those who operate a federation: provision it, run coordinator and sites, look after them."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from tacit.cli.federations import Folder, federation_app, site_app
from tacit.cli.flags import GIVEN, ReadingCommand
from tacit.cli.output import Json, Quiet, listing, say, stderr
from tacit.core.errors import ConfigError, UnavailableError

coordinator_app = typer.Typer(no_args_is_help=True, help="The coordinator of a federation on Flower.")

UPDATE = "send {roster} to all others, who take it over with: tacit site update FOLDER roster.json"
Metrics = Annotated[
    str | None, typer.Option(help="Port, or host:port, for /metrics and /health; on loopback by default.")
]
JsonLog = Annotated[bool, typer.Option("--json-log", help="Write logs as JSON lines to stdout.")]
Systemd = Annotated[bool, typer.Option("--systemd", help="Print a systemd unit instead of running.")]


def _tell_nodes(folder: Path) -> dict[str, Any]:
    from tacit.deploy.operate import register_nodes
    from tacit.deploy.provision import Operator

    try:
        register_nodes(Operator(folder))
    except UnavailableError:
        return {"notes": ["the coordinator does not run: it is told which nodes may connect when it starts"]}
    return {"notes": []}


def _tell(text: str) -> None:
    stderr.print(Text(text), soft_wrap=True)


@contextmanager
def _watched(folder: Path, metrics: str | None, json_log: bool) -> Iterator[None]:
    from tacit.deploy.logs import json_lines

    with ExitStack() as stack:
        if metrics is not None:
            if find_spec("prometheus_client") is None:
                raise UnavailableError("metrics need prometheus-client: pip install 'tacit-fl[metrics]'")
            from tacit.deploy.monitor import serve_metrics

            port = stack.enter_context(serve_metrics(folder, metrics))
            _tell(f"/metrics and /health at port {port}")
        if json_log:
            stack.enter_context(json_lines(folder, sys.stdout))
        yield


@federation_app.command("init")
def init_federation(
    folder: Folder,
    sites: Annotated[
        list[str] | None, typer.Option("--site", help="A site whose keys are made here.")
    ] = None,
    address: Annotated[str, typer.Option(help="Where sites reach the SuperLink.")] = "127.0.0.1:8000",
    ca: Annotated[Path | None, typer.Option(help="Certificate of an authority of yours.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="Its certificate for the address.")] = None,
    key: Annotated[Path | None, typer.Option(help="The private key of that certificate.")] = None,
    as_json: Json = False,
) -> None:
    """Make a federation: certificates, the coordinator's keys, and a bundle for each site."""
    from tacit.deploy.provision import init

    own = [each for each in (ca, certificate, key) if each is not None]
    if own and len(own) < 3:
        raise ConfigError("--ca, --certificate and --key go together: give all three, or none")
    found = init(folder, sites or [], address, own)
    lines = [f"send {path} to {name}, by a private way" for name, path in found["bundles"].items()]
    say(as_json, found, f"{folder}: a federation of {len(found['sites'])} sites at {address}", *lines)


@federation_app.command("add-site")
def add_site(
    folder: Folder,
    name: Annotated[str | None, typer.Argument(help="Name of a site; its keys are made here.")] = None,
    request: Annotated[Path | None, typer.Option(help="Request of a site that made its own keys.")] = None,
    as_json: Json = False,
) -> None:
    """Add a site; the others take over the new roster with `tacit site update`."""
    from tacit.deploy.provision import add_sites

    if name is None and request is None:
        raise ConfigError("give the site's name, or --request with the file that it sent")
    found = add_sites(folder, [name] if name else [], [request] if request else []) | _tell_nodes(folder)
    lines = [f"send {path} to {site}" for site, path in found["bundles"].items()]
    say(as_json, found, *lines, UPDATE.format(**found), *found["notes"])


@federation_app.command("revoke-site")
def revoke(
    folder: Folder, name: Annotated[str, typer.Argument(help="The site.")], as_json: Json = False
) -> None:
    """Take a site out of the roster and, if the coordinator runs, of the nodes that may connect."""
    from tacit.deploy.provision import revoke_site

    found = revoke_site(folder, name) | _tell_nodes(folder)
    say(as_json, found, f"{name} is out", UPDATE.format(**found), *found["notes"])


@federation_app.command("rotate")
def rotate_certificate(folder: Folder, as_json: Json = False) -> None:
    """Make a new certificate for the SuperLink, by the same authority."""
    from tacit.deploy.provision import rotate

    found = rotate(folder)
    say(as_json, found, f"{found['certificate']}: new; start the coordinator again")


@federation_app.command("status")
def show_status(folder: Folder, as_json: Json = False) -> None:
    """Show who takes part, who is connected, and what sites told of their rows and policy."""
    from tacit.deploy.operate import status

    found = status(folder)
    running = "running" if found["running"] else "not running"
    columns = ("site", "state", "since", "identity", "schema", "policy")
    table = [listing(found["sites"], columns)] if found["sites"] else []
    say(as_json, found, *table, f"SuperLink at {found['address']}: {running}")


@federation_app.command("stop")
def stop_folder(folder: Folder, as_json: Json = False) -> None:
    """Stop the coordinator, or the site, that runs from a folder."""
    from tacit.deploy.operate import end

    end(folder)
    say(as_json, {"stopped": str(folder)}, f"{folder}: stopped")


@federation_app.command("logs")
def show_logs(
    folder: Folder,
    lines: Annotated[int, typer.Option(help="How many of the last lines.")] = 40,
    as_json: Json = False,
) -> None:
    """Show the last lines of what Flower's program wrote."""
    for name in ("superlink.log", "supernode.log"):
        if (folder / name).is_file():
            text = (folder / name).read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
            say(as_json, {"log": str(folder / name), "lines": text}, *map(Text, text))
            return
    raise ConfigError(f"{folder} has no log: nothing was started from it")


def doctor(folder: Folder, as_json: Json = False) -> None:
    """Look at certificates, clock, port, versions, disk, keys and rows; say how to mend what is wrong."""
    from tacit.deploy.doctor import examine

    found = [finding._asdict() for finding in examine(folder)]
    fine = all(row["fine"] for row in found)
    verdicts = {True: ("ok    ", "green"), False: ("wrong ", "red")}
    marks = [
        Text.assemble(verdicts[row["fine"]], (f"{row['what']:<12}", "cyan"), row["text"]) for row in found
    ]
    say(as_json, {"fine": fine, "findings": found}, *marks)
    if not fine:
        raise typer.Exit(2)


@coordinator_app.command("start")
def start_coordinator(
    folder: Folder,
    bind: Annotated[str | None, typer.Option(help="Address to listen at, if not the federation's.")] = None,
    metrics: Metrics = None,
    json_log: JsonLog = False,
    systemd: Systemd = False,
) -> None:
    """Run the SuperLink, with the sites' nodes registered, until it is stopped."""
    from tacit.deploy.operate import serve_coordinator, unit

    if systemd:
        typer.echo(unit("the coordinator", ["coordinator", "start", str(folder.absolute())], folder))
        return
    with _watched(folder, metrics, json_log):
        serve_coordinator(folder, _tell, bind)


@site_app.command("start")
def start_site(
    folder: Folder, metrics: Metrics = None, json_log: JsonLog = False, systemd: Systemd = False
) -> None:
    """Run a site's SuperNode until it is stopped."""
    from tacit.deploy.operate import serve_site, unit

    if systemd:
        typer.echo(unit(f"site {folder.name}", ["site", "start", str(folder.absolute())], folder))
        return
    with _watched(folder, metrics, json_log):
        serve_site(folder, _tell)


@site_app.command("request")
def request_site(
    folder: Annotated[Path, typer.Argument(help="Folder to make.")],
    name: Annotated[str, typer.Option(help="The site's name in the federation.")],
    as_json: Json = False,
) -> None:
    """Make a site's keys here, and a request for the operator; nobody else ever has the keys."""
    from tacit.deploy.provision import request

    path = request(folder, name)
    found = {"request": str(path), "folder": str(folder)}
    say(as_json, found, f"send {path} to the operator; it is not secret")


@site_app.command("join", cls=ReadingCommand)
def join_site(
    context: typer.Context,
    bundle: Annotated[Path, typer.Argument(help="Bundle from the operator.")],
    data: Annotated[str | None, typer.Option(help="File with the site's rows, or its database.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Folder of the site; else named as the site.")] = None,
    start: Annotated[bool, typer.Option("--start", help="Also run it, until it is stopped.")] = False,
    as_json: Json = False,
) -> None:
    """Make a site's folder of a bundle, with the rows that it brings; start it with `tacit site start`."""
    from tacit.core.component import from_plain
    from tacit.data.files import absolute, load
    from tacit.deploy.provision import join
    from tacit.engines.sitefolder import SiteSettings

    given: dict[str, Any] = {"name": "site", **context.meta[GIVEN].get("data", {})}
    settings = from_plain(SiteSettings, given | ({"data": data} if data else {}), "site")
    if data is not None:
        load(data, **settings.choices())  # refused here, before anything is written
        settings = SiteSettings(**{**vars(settings), "data": absolute(data)})
    site = join(bundle, folder, settings)
    found = {"folder": str(site.path), "name": site.name, "identity": site.identity}
    advice = "" if start else f"; start it with: tacit site start {site.path}"
    say(as_json, found, f"{site.path}: {site.name}{advice}")
    if start:
        start_site(site.path)


@site_app.command("update")
def update_site(
    folder: Folder, roster: Annotated[Path, typer.Argument(help="The signed roster.")], as_json: Json = False
) -> None:
    """Take over who takes part from now on, as the operator has signed it."""
    from tacit.deploy.provision import update

    found, revision = update(folder, roster)
    told = {"revision": revision, "sites": [*found.clients]}
    say(as_json, told, f"revision {revision}: {', '.join(found.clients)}")


def submit(
    folder: Folder,
    file: Annotated[
        Path | None, typer.Argument(help="TOML file of settings; else the folder's run.toml.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train on a provisioned federation, with the settings of a TOML file."""
    from tacit.cli.running import perform
    from tacit.deploy.provision import run_tables
    from tacit.runs.settings import Settings, read_toml

    tables = read_toml(file or folder / "run.toml")
    perform(Settings.from_tables(run_tables(folder, tables)), None, as_json, quiet)
