"""The ``tacit`` command."""


def main() -> None:
    """Run the command."""
    from tacit.cli.app import app

    app()
