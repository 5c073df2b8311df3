"""Commands about federations: start one, try one out on Flower, the folder of a site, its log and backups."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from tacit.cli.models import Kind, write_model
from tacit.cli.output import Json, listing, plain_text, say, stderr
from tacit.core.errors import ConfigError

federation_app = typer.Typer(no_args_is_help=True, help="Federations of real machines, on Flower.")
site_app = typer.Typer(no_args_is_help=True, help="A site of such a federation.")
audit_app = typer.Typer(
    no_args_is_help=True, help="What a site or a coordinator was asked, and what left it."
)
Folder = Annotated[Path, typer.Argument(help="Folder of the federation, or of the site.")]
FEW = ("number", "at", "event", "run")  # facts of a record that have a column of their own


def new(
    folder: Annotated[Path, typer.Argument(help="Folder for federation.toml.")], as_json: Json = False
) -> None:
    """Start a federation: write a commented TOML file."""
    from tacit.runs.folder import RunFolder, writing
    from tacit.runs.keys import template

    path = folder / "federation.toml"
    if path.exists():
        raise ConfigError(f"{path} is there already: edit it, or choose another folder")
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
    RunFolder(folder).write(path.name, template().encode())
    say(as_json, {"path": str(path)}, f"{path}\nrun it with: tacit run {path}")


@site_app.command("budget")
def site_budget(folder: Folder, as_json: Json = False) -> None:
    """Show what noise has cost a site's rows, run by run and in all."""
    from tacit.engines.sitefolder import SiteFolder

    site = SiteFolder(folder)
    spent, limit = site.ledger.list(), site.policy.epsilon_total
    total = {"epsilon": sum(each.epsilon for each in spent), "delta": sum(each.delta for each in spent)}
    rest = "no limit is set" if limit is None else f"{limit:g} is the limit over all runs"
    told = f"epsilon {total['epsilon']:.4g} at delta {total['delta']:.3g} in all; {rest}"
    runs = [vars(each) for each in spent]
    columns = ("run", "unit", "noise", "sampling", "releases", "delta", "epsilon")
    found = {"site": site.name, **total, "limit": limit, "runs": runs}
    say(as_json, found, *([listing(runs, columns)] if runs else []), told)


@site_app.command("export")
def export_site(
    folder: Folder,
    to: Annotated[Path, typer.Option(help="File for the model.")] = Path("model.safetensors"),
    kind: Kind = None,
    run: Annotated[str, typer.Option(help="Id of a run; 'latest' is the newest.")] = "latest",
    as_json: Json = False,
) -> None:
    """Take out the model that a site has learnt; where sites open totals, nobody else has it."""
    from tacit.deploy.site import learnt
    from tacit.engines.sitefolder import SiteFolder

    chosen, model = learnt(SiteFolder(folder), run)
    facts = write_model(model, to, kind)
    say(as_json, {"run": chosen, **facts}, Text(f"{to}: the model of run {chosen}, as {facts['format']}"))


@audit_app.command("show")
def show_log(
    folder: Folder,
    run: Annotated[str | None, typer.Option(help="Only records of this run.")] = None,
    event: Annotated[str | None, typer.Option(help="Only records of this kind, such as refused.")] = None,
    last: Annotated[int, typer.Option(help="How many of the last records; 0 for all.")] = 40,
    as_json: Json = False,
) -> None:
    """Show records: who asked what, what left, under which protection, and by which policy."""
    from tacit.engines.audit import AuditLog

    if last < 0:
        raise ConfigError(f"--last is {last}: give how many records to show, or 0 for all")
    found = [
        record
        for record in AuditLog(folder).records()
        if run in (None, record.get("run")) and event in (None, record.get("event"))
    ][-last:]
    rows = [
        {**record, "facts": plain_text({k: v for k, v in record.items() if k not in FEW})} for record in found
    ]
    say(as_json, {"folder": str(folder), "records": found}, listing(rows, (*FEW, "facts")))


@audit_app.command("verify")
def verify_log(
    folder: Folder,
    noted: Annotated[
        str | None,
        typer.Option(help="NUMBER:DIGEST that this command printed before."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check that no record was changed, moved, cut off or put back; print the end, to note it elsewhere."""
    from tacit.engines.audit import AuditLog, End

    before = None
    if noted is not None:
        number, _, digest = noted.partition(":")
        if not number.isdigit() or len(digest) != 64:
            raise ConfigError(f"--noted is '{noted}': give NUMBER:DIGEST, as this command printed it")
        before = End(int(number), digest)
    end = AuditLog(folder).verify(before)
    found = {"folder": str(folder), "whole": True, "records": end.number, "end": f"{end.number}:{end.digest}"}
    say(as_json, found, f"records: {end.number}, whole", Text(f"note elsewhere: {found['end']}"))


def backup(
    folder: Folder,
    to: Annotated[Path, typer.Option(help="File to write; it must not be there.")],
    as_json: Json = False,
) -> None:
    """Write a coordinator's or a site's folder into one file, also while it runs; its key is left out."""
    from tacit.deploy.backup import back_up

    found = back_up(folder, to)
    away = f"keep {found['unlock']}, which unlocks it, elsewhere: it is not in the backup"
    say(as_json, found, f"{to}: {found['files']} files, {found['bytes']:,} bytes", away)


def restore(
    file: Annotated[Path, typer.Argument(help="Backup to restore.")],
    to: Annotated[Path, typer.Option(help="Folder to make; it must not be there.")],
    unlock: Annotated[Path | None, typer.Option(help="File with its key; else TACIT_UNLOCK.")] = None,
    as_json: Json = False,
) -> None:
    """Make a coordinator's or a site's folder of a backup; nothing is overwritten."""
    from tacit.deploy.backup import restore as put_back

    found = put_back(file, to, unlock)
    say(as_json, found, f"{to}: {found['files']} files, as of {found['made']}")
    for text in () if as_json else found["warnings"]:
        stderr.print(Text(f"warning: {text}"), soft_wrap=True)
