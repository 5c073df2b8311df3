"""Commands of those who answer for a site or a coordinator: its audit log, backups."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from tacit.cli.common import Json
from tacit.cli.output import say, stderr
from tacit.core.errors import ConfigError

audit_app = typer.Typer(
    no_args_is_help=True, help="What a site or a coordinator was asked, and what left it."
)

Folder = Annotated[Path, typer.Argument(help="Folder of the federation, or of the site.")]
FEW = ("number", "at", "event", "run")  # facts of a record that have a column of their own


@audit_app.command("show")
def show_log(
    folder: Folder,
    run: Annotated[str | None, typer.Option(help="Only records of this run.")] = None,
    event: Annotated[str | None, typer.Option(help="Only records of this kind, such as refused.")] = None,
    last: Annotated[int, typer.Option(help="How many of the last records; 0 for all.")] = 40,
    as_json: Json = False,
) -> None:
    """Show records: who asked what, what left, under which protection, and by which policy."""
    from tacit.cli.tables import listing, plain_text
    from tacit.engines.audit import AuditLog

    if last < 0:
        raise ConfigError(f"--last is {last}: give how many records to show, or 0 for all")
    wanted = {"run": run, "event": event}
    given = {name: value for name, value in wanted.items() if value is not None}
    found = [
        record
        for record in AuditLog(folder).records()
        if all(record.get(name) == value for name, value in given.items())
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
