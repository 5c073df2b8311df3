"""Rows from a site's own database, by a query: PostgreSQL, SQLite and DuckDB, through ADBC.

An address holds no password: PostgreSQL's own means carry it (``PGPASSWORD``, ``~/.pgpass``, a service file).
"""

import re
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tacit.core.errors import ConfigError, DataError, UnavailableError

SCHEMES = ("postgresql://", "postgres://", "sqlite://", "duckdb://")
_BATCH = 1 << 30  # rows from which SQLite's driver learns the type of a column: all of them
# What drivers say of a query itself. Anything else may quote a value, and is not repeated.
_HARMLESS = re.compile(
    r"(syntax error|no such (table|column|function)|(relation|column|function) .* does not exist"
    r"|permission denied|read-?\s?only|(Catalog|Parser|Binder) Error).*"
)


def is_database(source: str | Path) -> bool:
    """Return whether this is the address of a database."""
    return str(source).startswith(SCHEMES)


def check_address(source: str) -> None:
    """Refuse an address, of whatever scheme, with a password that settings, errors or folders would show."""
    if "://" not in source:
        return
    try:
        parts = urlsplit(source)
        secret = parts.password is not None or "password" in unquote(parts.query)
    except ValueError:
        secret = True
    if secret:
        raise ConfigError(
            "the database's address holds a password, which settings and run folders would show: leave it "
            "out, and put it into PGPASSWORD or ~/.pgpass"
        )


def read_query(source: str, query: str | None) -> Any:
    """Return the answer to a query as an Arrow table, in an order that depends on its rows only."""
    check_address(source)
    if not query:
        raise ConfigError(f"{source} is a database: say which rows with query (--query 'SELECT …')")
    try:
        from adbc_driver_manager import Error

        connection = _connect(source)
    except ImportError:
        raise UnavailableError(f"reading {source} needs drivers: pip install 'tacit-fl[sql]'") from None
    except Error as error:
        said = str(error).strip().splitlines()[0]
        raise UnavailableError(f"{source} cannot be opened ({said}): check address and password") from None
    with closing(connection), closing(connection.cursor()) as cursor:
        try:
            if source.startswith("postgres"):
                cursor.execute("SET TRANSACTION READ ONLY")
            elif source.startswith("sqlite"):
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": _BATCH})
            cursor.execute(query)
            return _plain(cursor.fetch_arrow_table())
        except (Error, OSError) as error:
            words = _HARMLESS.search(str(error)) or [getattr(error, "sqlstate", None) or type(error).__name__]
            raise DataError(
                f"{source} cannot answer the query ({words[0]}): try it in the database's own shell"
            ) from None


def _connect(address: str) -> Any:
    path = address.partition("://")[2].removeprefix("/")
    if not address.startswith("postgres") and not Path(path).is_file():
        raise UnavailableError(f"{address} cannot be opened, for there is no file {path}: give another")
    if address.startswith("duckdb"):
        from adbc_driver_duckdb import driver_path
        from adbc_driver_manager import dbapi

        known = {"path": path, "access_mode": "READ_ONLY"}
        return dbapi.connect(driver=driver_path(), entrypoint="duckdb_adbc_init", db_kwargs=known)
    if address.startswith("sqlite"):
        from adbc_driver_sqlite import dbapi as sqlite

        return sqlite.connect(f"{Path(path).absolute().as_uri()}?mode=ro")
    from adbc_driver_postgresql import dbapi as postgresql

    return postgresql.connect(address)


def _plain(data: Any) -> Any:
    """Make PostgreSQL's ``numeric``, which comes as text, a number, and order rows by their values.

    A database gives rows in any order, and a site's hold-out must not change from step to step.
    """
    import pyarrow as pa

    keys = []
    for index, (name, kind) in enumerate(zip(data.column_names, data.schema.types, strict=True)):
        if isinstance(kind, pa.OpaqueType) and kind.storage_type == pa.string():
            text = data[index].cast(pa.string())
            number = kind.type_name == "numeric"
            data = data.set_column(index, name, text.cast(pa.float64()) if number else text)
        elif isinstance(kind, pa.BaseExtensionType) or pa.types.is_nested(kind) or pa.types.is_interval(kind):
            continue  # which have no order
        if data.column_names.count(name) == 1:
            keys.append((name, "ascending"))
    return data.sort_by(keys) if keys else data
