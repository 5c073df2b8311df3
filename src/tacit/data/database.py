"""Rows from a site's own database, by a query: PostgreSQL, SQLite and DuckDB, through ADBC.

An address holds no password. PostgreSQL's own means carry it (``PGPASSWORD``, ``~/.pgpass``, a service
file), or the whole address is the value of an environment variable, ``env:NAME``.
"""

from __future__ import annotations

import os
import re
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tacit.core.errors import ConfigError, DataError, UnavailableError

SCHEMES = ("postgresql", "postgres", "sqlite", "duckdb")
VARIABLE = "env:"
_BATCH = 1 << 30  # rows from which SQLite's driver learns the type of a column: all of them
# What drivers say of a query itself. Anything else may quote a value, and is not repeated.
_HARMLESS = re.compile(
    r"(syntax error|no such (table|column|function)|(relation|column|function) .* does not exist"
    r"|permission denied|read-?\s?only|(Catalog|Parser|Binder) Error).*"
)


def is_database(source: str | Path) -> bool:
    """Return whether this is the address of a database.

    >>> is_database("postgresql://localhost/ward"), is_database("ward.csv"), is_database("env:WARD")
    (True, False, True)
    """
    return str(source).startswith((VARIABLE, *(f"{scheme}://" for scheme in SCHEMES)))


def check_address(source: str) -> None:
    """Refuse an address with a password in it, which settings, commands and run folders would show."""
    if is_database(source) and _password_in(source):
        raise ConfigError(
            "the database's address holds a password, which settings and run folders would show: leave it "
            "out, and put it into PGPASSWORD or ~/.pgpass, or the whole address into a variable: env:NAME"
        )


def title_of(source: str) -> str:
    """Return a short name of a database: the last part of its path, or its variable."""
    return Path(urlsplit(source).path).stem or urlsplit(source).hostname or "database"


def read_query(source: str, query: str | None) -> Any:
    """Return the answer to a query as an Arrow table, in an order that depends on its rows only."""
    check_address(source)
    if not query:
        raise ConfigError(f"{source} is a database: say which rows with query (--query 'SELECT …')")
    address = source
    if source.startswith(VARIABLE):
        address = os.environ.get(source.removeprefix(VARIABLE), "")
        if not is_database(address):
            raise ConfigError(
                f"{source} names a variable that holds no address: set it to postgresql://…, sqlite:///… or "
                "duckdb:///…"
            )
    try:
        connection = _connect(address)
    except ImportError:
        raise UnavailableError(f"reading {source} needs drivers: pip install 'tacit-fl[sql]'") from None
    except Exception as error:  # each driver has its own
        said = "" if _password_in(address) else f": {str(error).strip().splitlines()[0]}"
        raise UnavailableError(f"{source} cannot be opened{said}; check address, user and password") from None
    with closing(connection), closing(connection.cursor()) as cursor:
        try:
            if address.startswith("postgres"):
                cursor.execute("SET TRANSACTION READ ONLY")
            elif address.startswith("sqlite"):
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": _BATCH})
            cursor.execute(query)
            data = cursor.fetch_arrow_table()
        except Exception as error:
            said = _HARMLESS.search(str(error))
            code = f", SQLSTATE {state}" if (state := getattr(error, "sqlstate", None)) else ""
            raise DataError(
                f"{source} cannot answer the query ({said[0] if said else type(error).__name__}{code}): "
                "correct it, and try it in the database's own shell"
            ) from None
    return _sorted(_plain(data))


def _connect(address: str) -> Any:
    """Open a database for reading only, as far as its driver can."""
    scheme, path = address.split(":", 1)[0], address.partition("://")[2].removeprefix("/")
    if scheme == "duckdb":
        import adbc_driver_duckdb
        from adbc_driver_manager import dbapi

        known = {"path": path, "access_mode": "READ_ONLY"}
        return dbapi.connect(
            driver=adbc_driver_duckdb.driver_path(), entrypoint="duckdb_adbc_init", db_kwargs=known
        )
    if scheme == "sqlite":
        from adbc_driver_sqlite import dbapi as sqlite

        return sqlite.connect(f"{Path(path).absolute().as_uri()}?mode=ro")
    from adbc_driver_postgresql import dbapi as postgresql

    return postgresql.connect(address)


def _password_in(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.password is not None or any("password" in key for key in parse_qs(parts.query))
    except ValueError:
        return True


def _plain(data: Any) -> Any:
    """Turn PostgreSQL's ``numeric``, which comes as text, into numbers, and its enumerations into text."""
    import pyarrow as pa

    columns = []
    for field, column in zip(data.schema, data.columns, strict=True):
        if isinstance(field.type, pa.OpaqueType) and field.type.storage_type == pa.string():
            column = column.cast(pa.string())
            column = column.cast(pa.float64()) if field.type.type_name == "numeric" else column
        columns.append(column)
    return pa.Table.from_arrays(columns, names=data.column_names)


def _sorted(data: Any) -> Any:
    """Order rows by their values: a database gives them in any order, and a site's hold-out must not change."""
    from pyarrow import types

    awkward = (types.is_nested, types.is_interval, lambda kind: hasattr(kind, "extension_name"))
    keys = [field.name for field in data.schema if not any(test(field.type) for test in awkward)]
    doubled = {name for name in keys if data.column_names.count(name) > 1}
    order = [(name, "ascending") for name in keys if name not in doubled]
    return data.sort_by(order) if order else data
