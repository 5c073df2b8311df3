"""One module per paper: settings, expected table, measured table."""
