"""Rows from a real PostgreSQL server: what is read, what is refused, and where the password does not go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tacit.core.errors import ConfigError, DataError, UnavailableError
from tacit.data.files import load
from tacit.deploy.answer import party_of
from tacit.engines.sitefolder import Roster, SiteFolder, SiteSettings
from tacit.runs.settings import OWN_ROWS, Settings
from tacit.runs.tables import DataSettings
from tests.helpers.deployed import make_folder
from tests.helpers.postgres import PASSWORD, execute, find_server, server

QUERY = "SELECT age, bmi, sex, admitted, outcome FROM visits WHERE age > 20"
CHOICES = {"query": QUERY, "target": "outcome", "date": ["admitted"]}
MAKE = """
CREATE TABLE visits AS SELECT i AS id, 18 + i % 70 AS age, (20 + i % 17 * 0.5)::numeric(5, 1) AS bmi,
  (CASE WHEN i % 3 = 0 THEN 'f' ELSE 'm' END)::varchar(1) AS sex, date '2026-01-01' + i % 300 AS admitted,
  18 + i % 70 > 50 AS outcome, 'Jane Doe ' || i AS name FROM generate_series(1, 300) AS i
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    programs = find_server()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: rows from a real server are not tested")
    with server(programs) as found:
        execute(found, MAKE)
        yield found


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)


def test_a_query_becomes_a_table(address: str) -> None:
    table = load(address, **CHOICES)
    assert (table.name, table.classes, table.target_names) == ("ward", (False, True), ("outcome",))
    kinds = {column.name: column.kind for column in table.columns}
    assert kinds == {"age": "number", "bmi": "number", "sex": "category", "admitted": "number"}
    assert table.rows == 286 and table.values[:, 0].min() == 21  # 14 of 300 are of age 18 to 20
    assert set(table.values[:, 1]) == {20 + i * 0.5 for i in range(17)}
    again = load(address, **{**CHOICES, "query": f"{QUERY} ORDER BY random()"})
    assert again.values.tobytes() == table.values.tobytes()


def test_a_run_on_a_database_shows_its_password_nowhere(address: str, tacit: Any, tmp_path: Path) -> None:
    flags = ["--data", address, "--query", QUERY, "--target", "outcome", "--date", "admitted"]
    said = tacit("run", *flags, "--protect", "plain", "--transcript", "--no-baselines")
    assert said.code == 0 and "10 clients, iid" in said.out
    (folder,) = (tmp_path / "runs").iterdir()
    result = json.loads((folder / "result.json").read_text())
    assert result["accuracy"] > 0.9 and result["settings"]["data"]["query"] == QUERY
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert PASSWORD.encode() not in written and PASSWORD not in said.out + said.err
    refused = tacit("run", "--data", address.replace("@", f":{PASSWORD}@"), "--query", QUERY)
    assert refused.code == 2 and "holds a password" in refused.err
    assert PASSWORD not in refused.out + refused.err


def test_a_wrong_login_is_told_without_the_password(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "wrong-s3cret")
    with pytest.raises(UnavailableError, match=r"cannot be opened .*password authentication") as refused:
        load(address, **CHOICES)
    assert "s3cret" not in str(refused.value)
    with pytest.raises(UnavailableError, match=r"cannot be opened .*[Rr]efused"):
        load("postgresql://127.0.0.1:1/ward", **CHOICES)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM visit", r'relation "visit" does not exist'),
        ("SELECT aged FROM visits", r'column "aged" does not exist'),
        ("SELECT name::int FROM visits", r"cannot answer the query \(22P02\)"),
        ("DELETE FROM visits RETURNING *", "read-only transaction"),
        ("DROP TABLE visits", "read-only transaction"),
    ],
)
def test_a_query_that_fails_repeats_no_row_and_changes_none(address: str, query: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as refused:
        load(address, query=query, target="outcome")
    assert "Jane" not in str(refused.value)
    assert load(address, **CHOICES).rows == 286


def test_a_site_reads_its_database_and_notices_changes(address: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds a password"):
        SiteSettings("north", data=address.replace("@", f":{PASSWORD}@"))
    make_folder(tmp_path / "north", data=address, **CHOICES)
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert PASSWORD.encode() not in kept
    folder = SiteFolder(tmp_path / "north")
    (folder.path / "roster.toml").write_text(Roster("aa", {"north": folder.identity}).to_toml())
    assert folder.settings.query == QUERY and folder.settings.date == ("admitted",)
    settings = Settings(DataSettings(name=OWN_ROWS))
    first = party_of(folder, settings)
    assert first.data.rows == 286
    execute(address, "INSERT INTO visits SELECT 0, 44, 25, 'f', date '2026-02-01', true, 'Jim'")
    try:
        later = party_of(folder, settings)
        later.state.update(first.state)
        with pytest.raises(DataError, match="the rows of north changed during the run"):
            later.data  # noqa: B018
        assert party_of(folder, settings).data.rows == 287
    finally:
        execute(address, "DELETE FROM visits WHERE id = 0")
