"""Commands of a standing federation: start it, add, withdraw, ask for weights, merge."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from rich.text import Text

from tacit.cli.flags import EXTRA, GIVEN, SettingsCommand, read_tables
from tacit.cli.output import Json, check_absent, say, stderr
from tacit.core.errors import ConfigError, UnavailableError

if TYPE_CHECKING:
    from tacit.core.events import Events
    from tacit.federation import Federation
    from tacit.runs.keys import Key
    from tacit.runs.settings import Settings
    from tacit.standing import Receipt, Standing

fedheonn_app = typer.Typer(
    help="A FedHEONN federation that stands: clients come, add rows and withdraw; weights at any time.",
    no_args_is_help=True,
)

State = Annotated[Path, typer.Argument(help="Folder of the standing federation.")]


FLAGS = (
    *("data", "target", "test", "clients", "partition", "protect", "scale", "missing"),
    *("min-clients", "seed", "features", "drop", "categorical", "numeric", "date", "query"),
)


class StartCommand(SettingsCommand):
    """`tacit fedheonn start`: settings that a standing federation has."""

    base: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "partition": {"name": "iid", "clients": 20},
        "method": {"name": "fedheonn"},
        "protect": {"name": "bfv"},  # masks go with each batch, and totals that clients open would not stand
    }

    def has(self, key: "Key") -> bool:
        return key.flag in FLAGS


@fedheonn_app.command(cls=StartCommand, context_settings=EXTRA)
def start(
    context: typer.Context,
    state: State,
    founders: Annotated[int | None, typer.Option(help="Clients that settle schema and scale; all.")] = None,
    capacity: Annotated[int | None, typer.Option(help="Changes that an encrypted total can take.")] = None,
    federation: Annotated[
        Path | None, typer.Option(help="Folder of a provisioned federation: its sites, with their own rows.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Settle schema, scale and keys with the first clients; nothing is learnt yet.

    Options of method, protection and partition are flags as well: --lam 0.01, --alpha 0.3.
    """
    from tacit.runs.settings import Settings
    from tacit.standing import Standing, read

    given = read_tables(context, StartCommand.base, context.args)
    if federation is not None:
        given = _at_sites(federation, given, {*context.meta[GIVEN]})
    settings = Settings.from_tables(given)
    tables = settings.as_tables() if federation is not None else _lasting(settings)
    with (
        _connected(tables, as_json) as (parties, events),
        Standing.start(
            state,
            parties,
            **settings.training(),
            founders=founders,
            capacity=capacity,
            settings=tables,
            events=events,
        ) as standing,
    ):
        for warning in standing.components.protection.promises.warnings if federation is None else ():
            stderr.print(f"warning: {warning}", soft_wrap=True)
    say(as_json, read(state)[0], f"{state}: the federation stands; add clients to it")


@fedheonn_app.command()
def add(
    state: State,
    clients: Annotated[list[str] | None, typer.Argument(help="Clients that contribute.")] = None,
    everyone: Annotated[bool, typer.Option("--all", help="All clients that have not withdrawn.")] = False,
    rows: Annotated[str | None, typer.Option(help="Part of their rows, such as 0:100.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the contribution.")] = None,
    more: Annotated[
        bool, typer.Option("--more", help="Rows that sites have now and had not before.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Let clients contribute; a repeat is acknowledged and not added."""
    with _opened(state, as_json) as standing:
        chosen = standing.willing() if everyone else (clients or [])
        if not chosen or (name and len(chosen) > 1):
            raise ConfigError("name the clients that contribute, or --all; a --name is for one of them")
        receipts = standing.add(chosen, rows=_rows(rows), name=name, more=more)
    _say_receipts(as_json, receipts)


@fedheonn_app.command()
def withdraw(
    state: State,
    given: Annotated[list[str], typer.Argument(metavar="NAMES", help="Contributions, or clients.")],
    also: Annotated[
        list[str] | None, typer.Option("--add", help="Client that contributes in the same batch.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Take contributions back: the model becomes one that never saw them."""
    with _opened(state, as_json) as standing:
        receipts = standing.change(withdraw=given, add=also or ())
    _say_receipts(as_json, receipts)


@fedheonn_app.command()
def weights(
    state: State,
    to: Annotated[Path | None, typer.Option("--to", help="Also write the model.")] = None,
    as_json: Json = False,
) -> None:
    """Open the total of all contributions, and show the model."""
    from tacit.models.predictor import kind_of
    from tacit.standing import Standing, read

    tables = read(state)[1]
    if tables["run"]["engine"] == "flower":
        if to is not None:
            raise ConfigError("the model is at the sites: leave --to out, and export it there")
        _open_at_sites(state, as_json)
        return
    if to is not None:  # refused before anything opens
        if kind_of(to) == "xgboost":
            raise ConfigError(
                f"{to.name}: a FedHEONN model has no trees: end its name in .safetensors or .onnx"
            )
        if kind_of(to) == "onnx" and not find_spec("onnx"):
            raise UnavailableError("onnx is not installed: pip install 'tacit-fl[onnx]'")
        check_absent(to)
        if not to.absolute().parent.is_dir():
            raise ConfigError(f"{to.parent} is no folder: choose another place with --to")
    federation = _federation(tables)
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
def status(state: State, as_json: Json = False) -> None:
    """Show where the federation stands."""
    from tacit.standing import read

    found = read(state)[0]
    say(as_json, found, "\n".join(f"{key.replace('_', ' ')}: {value}" for key, value in found.items()))


@fedheonn_app.command()
def branch(state: State, new: Annotated[Path, typer.Argument()], as_json: Json = False) -> None:
    """Make a coordinator for a group of clients of the same federation."""
    with _opened(state, as_json, connect=False) as standing:
        standing.branch(new)
    say(as_json, {"state": str(new)}, f"{new}: add this group's clients there, then merge it")


@fedheonn_app.command()
def merge(state: State, other: Annotated[Path, typer.Argument()], as_json: Json = False) -> None:
    """Take over all that another coordinator of the same federation holds."""
    with _opened(state, as_json, connect=False) as standing:
        count = standing.merge(other)
        say(as_json, standing.status() | {"merged": count}, f"{count} contributions taken over")


@fedheonn_app.command()
def end(state: State, as_json: Json = False) -> None:
    """Accept no more changes; weights can still be asked for."""
    with _opened(state, as_json, connect=False) as standing:
        standing.end()
        say(as_json, standing.status(), f"{state}: no more changes are accepted")


def _open_at_sites(state: Path, as_json: bool) -> None:
    with _opened(state, as_json) as standing:
        found, shown = standing.open_at_sites(), standing.status()
    for site, reason in found.failures.items():
        stderr.print(Text(f"warning: {site} has no model of this total: {reason}"), soft_wrap=True)
    shown |= {"model": found.digest, "holders": found.holders, "failures": found.failures}
    told = f"model {found.digest[:16]} from {shown['clients']} clients, at {', '.join(found.holders)}"
    say(as_json, shown, f"{told}: each takes it out with `tacit site export`")


@contextmanager
def _opened(state: Path, as_json: bool, *, connect: bool = True) -> "Iterator[Standing]":
    from tacit.standing import Standing, read

    with (
        _connected(read(state)[1], as_json, connect=connect) as (federation, events),
        Standing.open(state, federation, events) as standing,
    ):
        yield standing


@contextmanager
def _connected(
    tables: dict[str, Any], as_json: bool, *, connect: bool = True
) -> "Iterator[tuple[Federation, Events]]":
    from tacit.core.events import Events

    if tables["run"]["engine"] != "flower":
        yield _federation(tables), Events()
        return
    from tacit.cli.progress import ProgressBars
    from tacit.deploy.launch import DeployedFederation, leading
    from tacit.engines.sitefolder import SiteFolder
    from tacit.runs.settings import Settings

    settings = Settings.from_tables(tables)
    if not connect:
        yield DeployedFederation(settings, SiteFolder(settings.flower.coordinator)), Events()
        return
    with ProgressBars(as_json and not stderr.is_terminal) as bars, leading(settings) as found:
        yield found, Events(bars)


def _at_sites(folder: Path, given: dict[str, Any], tables: set[str]) -> dict[str, Any]:
    from tacit.deploy.provision import Operator, run_tables

    if odd := sorted(tables & {"data", "partition"}):
        raise ConfigError(
            f"flags of [{odd[0]}] say which rows are divided here, and sites bring their own: leave out "
            "these, or --federation"
        )
    Operator(folder)  # refuses what is no federation's folder
    return run_tables(
        folder, {name: table for name, table in given.items() if name not in ("data", "partition")}
    )


def _lasting(settings: "Settings") -> dict[str, Any]:
    """Return settings by which the same rows are found from another folder, too."""
    from tacit.data.files import absolute, is_path
    from tacit.runs.settings import merged

    named = (settings.data.name,) if isinstance(settings.data.name, str) else settings.data.name
    lasting = [absolute(each) if is_path(each) or Path(each).is_dir() else each for each in named]
    return merged(settings.as_tables(), {"data": {"name": lasting if len(lasting) > 1 else lasting[0]}})


def _federation(tables: dict[str, Any]) -> "Federation":
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


def _say_receipts(as_json: bool, receipts: "list[Receipt]") -> None:
    words = ["withdrawn" if each.withdrawn else "added" if each.new else "there already" for each in receipts]
    text = "\n".join(f"{each.id}: {word}" for each, word in zip(receipts, words, strict=True))
    say(as_json, {"receipts": [each._asdict() for each in receipts]}, text)
