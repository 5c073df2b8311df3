"""What commands have in common: what they say, some arguments, and what a shell may complete.

One JSON object or tables go to stdout, everything else to stderr.
"""

import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from tacit.core.errors import ConfigError, TacitError
from tacit.core.text import visible

UNSAFE = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
UsageError: Any = typer.BadParameter.__bases__[0]  # of whichever click typer brings along


class SafeConsole(Console):
    """A console to which text can do nothing: no markup is read, no control character is written.

    Names, labels, notes and reasons of failures come from other parties.
    """

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(text, **{**settings, "markup": False, "emoji": False})

    def render(self, renderable: RenderableType, options: Any = None) -> Iterator[Segment]:
        """Write what is drawn, control characters within text replaced; colours and bars are none."""
        for segment in super().render(renderable, options):
            harmless = segment.control or visible(segment.text, keep="\n") == segment.text
            yield segment if harmless else segment._replace(text=visible(segment.text, keep="\n"))

    def on_broken_pipe(self) -> None:
        """End as if all was read: whoever reads, such as ``head``, has seen enough."""
        with suppress(SystemExit):
            super().on_broken_pipe()
        raise SystemExit(0)


stdout = SafeConsole()
stderr = SafeConsole(stderr=True, highlight=False)


def say_json(value: Any) -> None:
    """Write exactly one JSON object to stdout."""
    text = msgspec.json.encode(value).decode()
    # JSON lets these through, and terminals take some of them for commands.
    text = UNSAFE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
    sys.stdout.buffer.write(text.encode() + b"\n")
    sys.stdout.flush()


def say(as_json: bool, value: Any, *shown: RenderableType) -> None:
    """Write a result: with --json as JSON, else as people read it."""
    if as_json:
        say_json(value)
        return
    for part in shown:
        stdout.print(part, soft_wrap=isinstance(part, str | Text), highlight=False)


def make_table(words: Iterable[str], numbers: Iterable[str] = ()) -> Table:
    """Make a table whose first columns hold words, and the others numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for place, heading in enumerate(words):
        style = None if place else "cyan"
        table.add_column(heading, style=style, overflow="fold", no_wrap=heading in ("run", "who"))
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def listing(rows: Iterable[Mapping[str, Any]], columns: Iterable[str] | Mapping[str, str]) -> Table:
    """Make a plain table of mappings; columns are keys, with headings if they are others."""
    heads = columns if isinstance(columns, Mapping) else {key: key for key in columns}
    table = make_table(heads.values())
    table.show_header = any(heads.values())
    for row in rows:
        cells = (row.get(key) for key in heads)
        table.add_row(*(Text("–", "dim") if cell is None else Text(plain_text(cell)) for cell in cells))
    return table


def pairs_table(pairs: Iterable[tuple[str, Any]]) -> Table:
    """Set names beside what they stand for, without a heading."""
    return listing([{"key": key, "value": value} for key, value in pairs], {"key": "", "value": ""})


def plain_text(value: Any) -> str:
    """Write a value as people read it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {plain_text(part)}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(plain_text, value))
    return str(value)


def tell(kind: str, text: str, code: int, *, as_json: bool) -> int:
    """Tell an error on stderr and, with --json, as JSON; return its exit code."""
    if as_json:
        say_json({"error": {"type": kind, "text": text, "exit_code": code}})
    # One line, however long: whoever reads stderr by program finds the whole sentence.
    stderr.print(Text.assemble((kind, "bold red"), ": ", text), soft_wrap=True)
    return code


class Commands(TyperGroup):
    """The commands; whatever stops one is told alike, on stderr and, with --json, as JSON too."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **settings: Any) -> Any:
        as_json = "--json" in (sys.argv[1:] if args is None else args)
        try:
            code = super().main(args, *more, **{**settings, "standalone_mode": False, "obj": as_json})
        except UsageError as error:
            code = error.exit_code
            if text := error.format_message():  # none: the command was named alone, and its help is shown
                tell("ConfigError", _in_our_words(text, error), code, as_json=as_json)
        except typer.Abort:
            code = 1
        sys.exit(code or 0)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TacitError as error:
            code = tell(type(error).__name__, str(error), error.exit_code, as_json=ctx.obj)
        except KeyboardInterrupt as error:
            text = "; ".join(["stopped by the user", *getattr(error, "__notes__", ())])
            code = tell("Interrupted", text, 130, as_json=ctx.obj)
        except BrokenPipeError:
            raise BrokenPipeError from None  # without the number, by which click would exit with 1
        except (typer.Exit, typer.Abort, UsageError):
            raise
        except Exception as error:  # noqa: BLE001  # a fault of ours: say so, with all there is to know
            stderr.print(traceback.format_exc(), markup=False)
            text = f"unexpected {type(error).__name__}: {error}. This is a fault of Tacit: please report it"
            code = tell("InternalError", text, 1, as_json=ctx.obj)
        raise typer.Exit(code)


def _in_our_words(text: str, error: Any) -> str:
    text = text.replace(" (env var: 'None')", "").rstrip()
    path = error.ctx.command_path.split()[1:] if error.ctx else ()  # its first word is however it was called
    return f"{text}{'' if text.endswith(('.', '?')) else '.'} See `{' '.join(['tacit', *path])} --help`"


def complete_data() -> list[str]:
    """Return the names of data sets; of these, the shell offers those that begin as was typed."""
    from tacit.data.files import available

    return [known.name for known in available()]


def complete_run() -> list[str]:
    """Return the names of the runs in the usual folder."""
    return ["latest", *sorted(path.parent.name for path in Path("runs").glob("*/result.json"))]


Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars, no warnings.")]
RunName = Annotated[
    str, typer.Argument(help="Id or folder of a run; 'latest' is the newest.", autocompletion=complete_run)
]
Out = Annotated[str, typer.Option(help="Folder of run folders.")]
PLOTS = ("skew", "rounds", "curves", "residuals")


def check_absent(file: Path | None) -> None:
    """Refuse to write over a file that is there."""
    if file is not None and file.exists():
        raise ConfigError(f"{file} is there already: choose another file with --to")


def brief(result: dict[str, Any]) -> dict[str, Any]:
    """Leave out of a result what only plots need."""
    short = {key: value for key, value in result.items() if key not in PLOTS}
    if "ledger" in short:
        short["ledger"] = {key: value for key, value in short["ledger"].items() if key != "per_client"}
    return short
