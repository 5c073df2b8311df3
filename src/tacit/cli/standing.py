"""Commands of a standing federation: start it, add, withdraw, ask for weights, merge."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from tacit.cli.common import Json
from tacit.cli.flags import EXTRA, SettingsCommand, read_tables
from tacit.cli.output import exit_with_error_code, say, stderr
from tacit.core.errors import ConfigError

if TYPE_CHECKING:
    from tacit.federation import Federation
    from tacit.standing import Receipt, Standing

fedheonn_app = typer.Typer(
    help="A FedHEONN federation that stands: clients come, add rows and withdraw; weights at any time.",
    no_args_is_help=True,
)

State = Annotated[Path, typer.Argument(help="Folder of the standing federation.")]


class StartCommand(SettingsCommand):
    """`tacit fedheonn start`: settings that a standing federation has."""

    base: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "partition": {"name": "iid", "clients": 20},
        "method": {"name": "fedheonn"},
    }
    flags = (
        *("data", "target", "test", "clients", "partition", "protect", "scale", "missing"),
        *("min-clients", "seed", "features", "drop", "categorical", "numeric", "date", "query"),
    )


@fedheonn_app.command(cls=StartCommand, context_settings=EXTRA)
@exit_with_error_code
def start(
    context: typer.Context,
    state: State,
    founders: Annotated[int | None, typer.Option(help="Clients that settle schema and scale; all.")] = None,
    capacity: Annotated[int | None, typer.Option(help="Changes that an encrypted total can take.")] = None,
    as_json: Json = False,
) -> None:
    """Settle schema, scale and keys with the first clients; nothing is learnt yet.

    Options of method, protection and partition are flags as well: --lam 0.01, --alpha 0.3.
    """
    from tacit.data.files import absolute, is_path
    from tacit.runs.settings import Settings, merged
    from tacit.standing import Standing, read

    settings = Settings.from_tables(read_tables(context, StartCommand.base, context.args))
    named = (settings.data.name,) if isinstance(settings.data.name, str) else settings.data.name
    lasting = [absolute(each) if is_path(each) or Path(each).is_dir() else each for each in named]
    tables = merged(settings.as_tables(), {"data": {"name": lasting if len(lasting) > 1 else lasting[0]}})
    with Standing.start(
        state,
        _federation(tables),
        method=settings.build_method(),
        protect=settings.build_protection(),
        preparation=settings.build_preparation(),
        min_clients=settings.run.min_clients,
        min_count=settings.run.min_count,
        founders=founders,
        capacity=capacity,
        settings=tables,
    ) as standing:
        for warning in standing.components.protection.promises.warnings:
            stderr.print(f"warning: {warning}", soft_wrap=True)
    say(as_json, read(state)[0], f"{state}: the federation stands; add clients to it")


@fedheonn_app.command()
@exit_with_error_code
def add(
    state: State,
    clients: Annotated[list[str] | None, typer.Argument(help="Clients that contribute.")] = None,
    everyone: Annotated[bool, typer.Option("--all", help="All clients that have not withdrawn.")] = False,
    rows: Annotated[str | None, typer.Option(help="Part of their rows, such as 0:100.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the contribution.")] = None,
    as_json: Json = False,
) -> None:
    """Let clients contribute; a repeat is acknowledged and not added."""
    with _opened(state) as standing:
        chosen = standing.willing() if everyone else (clients or [])
        if not chosen or (name and len(chosen) > 1):
            raise ConfigError("name the clients that contribute, or --all; a --name is for one of them")
        _say_receipts(as_json, standing.add(chosen, rows=_rows(rows), name=name))


@fedheonn_app.command()
@exit_with_error_code
def withdraw(
    state: State,
    given: Annotated[list[str], typer.Argument(metavar="NAMES", help="Contributions, or clients.")],
    also: Annotated[
        list[str] | None, typer.Option("--add", help="Client that contributes in the same batch.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Take contributions back: the model becomes one that never saw them."""
    with _opened(state) as standing:
        _say_receipts(as_json, standing.change(withdraw=given, add=also or ()))


@fedheonn_app.command()
@exit_with_error_code
def weights(
    state: State,
    to: Annotated[Path | None, typer.Option("--to", help="Also write the model.")] = None,
    as_json: Json = False,
) -> None:
    """Open the total of all contributions, and show the model."""
    from tacit.models.predictor import kind_of
    from tacit.standing import Standing, read

    if to is not None:
        kind_of(to)  # refused before anything opens
    if to is not None and to.exists():
        raise ConfigError(f"{to} is there already: choose another file with --to")
    if to is not None and not to.absolute().parent.is_dir():
        raise ConfigError(f"{to.parent} is no folder: choose another place with --to")
    federation = _federation(read(state)[1])
    with Standing.open(state, federation) as standing:
        model: Any = standing.weights()
        shown: dict[str, Any] = standing.status()
    scores = {} if federation.test is None else model.scores(federation.test)
    kept = {key: scores[key] for key in ("accuracy", "r2") if key in scores}
    shown |= {"scores": kept, "weights": model.weights.tolist()}
    if to is not None:
        shown["path"] = str(model.export(to))
    rows, columns = model.weights.shape
    told = "".join(f", {key} on the central test {value:.4f}" for key, value in kept.items())
    say(as_json, shown, f"weights {rows} × {columns} from {shown['clients']} clients{told}")


@fedheonn_app.command()
@exit_with_error_code
def status(state: State, as_json: Json = False) -> None:
    """Show where the federation stands."""
    from tacit.standing import read

    found = read(state)[0]
    say(as_json, found, "\n".join(f"{key.replace('_', ' ')}: {value}" for key, value in found.items()))


@fedheonn_app.command()
@exit_with_error_code
def branch(state: State, new: Annotated[Path, typer.Argument()], as_json: Json = False) -> None:
    """Make a coordinator for a group of clients of the same federation."""
    with _opened(state) as standing:
        standing.branch(new)
    say(as_json, {"state": str(new)}, f"{new}: add this group's clients there, then merge it")


@fedheonn_app.command()
@exit_with_error_code
def merge(state: State, other: Annotated[Path, typer.Argument()], as_json: Json = False) -> None:
    """Take over all that another coordinator of the same federation holds."""
    with _opened(state) as standing:
        count = standing.merge(other)
        say(as_json, standing.status() | {"merged": count}, f"{count} contributions taken over")


@fedheonn_app.command()
@exit_with_error_code
def end(state: State, as_json: Json = False) -> None:
    """Accept no more changes; weights can still be asked for."""
    with _opened(state) as standing:
        standing.end()
        say(as_json, standing.status(), f"{state}: no more changes are accepted")


def _opened(state: Path) -> Standing:
    from tacit.standing import Standing, read

    return Standing.open(state, _federation(read(state)[1]))


def _federation(tables: dict[str, Any]) -> Federation:
    from tacit.runs.experiment import build_federation
    from tacit.runs.settings import Settings

    return build_federation(Settings.from_tables(tables))


def _rows(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, colon, last = text.partition(":")
    if not colon or not first.isdecimal() or not last.isdecimal():
        raise ConfigError(f"rows are '{text}': give the first and the one after the last, such as 0:100")
    if max(len(first), len(last)) > 18:
        raise ConfigError(f"rows are '{text}': no client holds so many")
    return int(first), int(last)


def _say_receipts(as_json: bool, receipts: list[Receipt]) -> None:
    words = ["withdrawn" if each.withdrawn else "added" if each.new else "there already" for each in receipts]
    text = "\n".join(f"{each.id}: {word}" for each, word in zip(receipts, words, strict=True))
    say(as_json, {"receipts": [each._asdict() for each in receipts]}, text)
