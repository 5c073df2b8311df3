"""What the command says: one JSON object or tables on stdout, everything else on stderr."""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import typer
from rich.console import Console

from tacit.core.errors import TacitError

Command = TypeVar("Command", bound=Callable[..., Any])

stdout = Console()
stderr = Console(stderr=True, highlight=False)


def say_json(value: Any) -> None:
    """Write exactly one JSON object to stdout."""
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.flush()


def guarded(command: Command) -> Command:
    """End a command with the exit code of its error, told on stderr and, with --json, as JSON."""

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except TacitError as error:
            fail(type(error).__name__, str(error), error.exit_code, as_json=bool(kwargs.get("as_json")))
        except KeyboardInterrupt:
            fail("Interrupted", "stopped by the user", 130, as_json=bool(kwargs.get("as_json")))
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:  # noqa: BLE001  # a fault of ours: say so, with all there is to know
            stderr.print(traceback.format_exc(), markup=False)
            text = f"unexpected {type(error).__name__}: {error}. This is a fault of Tacit: please report it"
            fail("InternalError", text, 1, as_json=bool(kwargs.get("as_json")))

    return wrapper  # type: ignore[return-value]


def fail(kind: str, text: str, code: int, *, as_json: bool) -> None:
    """Tell an error and exit."""
    if as_json:
        say_json({"error": {"type": kind, "text": text, "exit_code": code}})
    stderr.print(f"[bold red]{kind}[/]", end=": ")
    stderr.print(text, markup=False)
    raise typer.Exit(code)
