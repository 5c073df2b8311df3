"""The ``tacit`` command."""
