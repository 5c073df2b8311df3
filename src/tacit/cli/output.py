"""What the command says: one JSON object or tables on stdout, everything else on stderr."""

import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import typer
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.text import Text
from typer.core import TyperGroup

from tacit.core.errors import TacitError
from tacit.core.text import visible

UNSAFE = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
UsageError: Any = typer.BadParameter.__bases__[0]  # of whichever click typer brings along


class SafeConsole(Console):
    """A console to which text can do nothing: no markup is read, no control character is written.

    Names, labels, notes and reasons of failures come from other parties.
    """

    def render_str(self, text: str, **settings: Any) -> Text:
        """Take a text as it is."""
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
        """Run the command that these words (or those of the process) call."""
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
        """Read the flags of a command and run it; end with the exit code of the error that stops it."""
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
    """Rewrite what typer says of a mistake, without the variable that no flag has, and with a way out."""
    text = text.replace(" (env var: 'None')", "").rstrip()
    path = error.ctx.command_path.split()[1:] if error.ctx else ()  # its first word is however it was called
    return f"{text}{'' if text.endswith(('.', '?')) else '.'} See `{' '.join(['tacit', *path])} --help`"
