"""The ``tacit`` command."""

import os
import sys


def main() -> None:
    """Run the command."""
    # Most of the first second goes into imports, and Ctrl-C may come then as well.
    try:
        from tacit.cli.app import app

        app()
    except KeyboardInterrupt:  # told as by every command, with what any interpreter has at hand
        if "--json" in sys.argv[1:]:
            print('{"error":{"type":"Interrupted","text":"stopped by the user","exit_code":130}}')  # noqa: T201
        print("Interrupted: stopped by the user", file=sys.stderr)  # noqa: T201
        sys.exit(130)
    except BrokenPipeError:
        # As with `| head`: what is still in memory goes nowhere, so that Python's end does not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
