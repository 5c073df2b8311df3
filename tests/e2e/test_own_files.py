"""The command on files of one's own: a client for each, columns chosen by flags, and what is said of it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.runs.keys import toml

QUICK = ("--no-baselines", "--protect", "plain")


@pytest.fixture
def wards(tmp_path: Path) -> list[str]:
    random = np.random.default_rng(3)
    order = ["id", "age", "bmi", "day", "ill"]
    for name in ("north", "south", "west"):
        order.reverse()
        lines = [";".join(order)]
        for i in range(60):
            age = int(random.integers(20, 90))
            row = {"id": f"P{name}{i}", "age": age, "bmi": f"{random.normal(25, 4):.1f}".replace(".", ",")}
            row |= {"day": f"{i % 28 + 1:02}.03.2026", "ill": "yes" if age > 55 else "no"}
            lines.append(";".join(str(row[word]) for word in order))
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return ["north.csv", "south.csv", "west.csv"]


def test_each_file_is_a_client_under_its_name(tacit: Any, wards: list[str], tmp_path: Path) -> None:
    flags = ("--target", "ill", "--drop", "id", "--date", "day", "--cyclic", "week")
    said = tacit("run", "--data", *wards, *flags, *QUICK)
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0] == "fedheonn on north.csv, south.csv, west.csv, 3 clients, by-file, plain, seed 0"
    assert lines[1].startswith("rows to learn from: north: ")
    assert lines[2] == "north.csv: read with separator ';', decimal ','"
    found = tacit("show", "--json").json
    assert [*found["sites"]] == ["north", "south", "west"] and sum(found["sites"].values()) == 126
    assert (found["features"], found["partition"]) == (5, "by-file") and found["accuracy"] > 0.9
    report = (Path(found["folder"]) / "report.html").read_text()
    assert all(f'<th scope="row">{name}</th>' in report for name in found["sites"])
    again = tacit(*shlex.split(found["command"])[1:], "--json", "--quiet").json
    assert (again["model"], again["settings"]["data"]) == (found["model"], found["settings"]["data"])


def test_a_value_that_cannot_be_learnt_from_is_told_of_its_file(tacit: Any, wards: list[str]) -> None:
    lines = Path("south.csv").read_text().splitlines()
    place = lines[0].split(";").index("bmi")
    cells = lines[7].split(";")
    for value, what in (("inf", "infinite values"), ("", "missing values")):
        lines[7] = ";".join([*cells[:place], value, *cells[place + 1 :]])
        Path("south.csv").write_text("\n".join(lines))
        said = tacit("run", "--data", *wards, "--target", "ill", "--features", "age,bmi", *QUICK)
        assert said.code == 3
        told = " ".join(said.err.split())
        assert f"south: column 'bmi' holds {what}" in told and "1 of 60 rows, the first is row 7" in told


def test_a_folder_and_a_file_of_settings_say_the_same(tacit: Any, wards: list[str], tmp_path: Path) -> None:
    tables = {"data": {"name": wards, "target": "ill", "features": ["age", "bmi"], "na_values": ["-1"]}}
    (tmp_path / "f.toml").write_text(toml(tables))
    from_file = tacit("run", "f.toml", *QUICK, "--json", "-q").json
    flags = ("--target", "ill", "--features", "age,bmi", "--na-values", "-1")
    folder = tacit("run", "--data", tmp_path, *flags, *QUICK, "--json", "-q").json
    assert (from_file["model"], from_file["sites"]) == (folder["model"], folder["sites"])
    refused = tacit("run", "--data", *wards, "--clients", 5, *flags, "--json", "-q")
    assert refused.code == 2 and "leave clients out" in refused.err


def test_one_file_of_ones_own_goes_to_ten_clients_at_random(tacit: Any, wards: list[str]) -> None:
    flags = ("--data", "north.csv", "--target", "ill", "--features", "age,bmi", *QUICK)
    said = tacit("run", *flags)
    assert "10 clients, iid" in said.out and "rows go to 10 clients at random: give a file" in said.out
    named = tacit("run", *flags, "--partition", "dirichlet", "--clients", 4)
    assert "4 clients, dirichlet" in named.out and "at random" not in named.out
    asked = tacit("run", "--data", "north.csv", "--target", "Ill", *QUICK)
    assert asked.code == 2 and "did you mean 'ill'" in asked.err


def test_describe_reads_as_a_run_does(tacit: Any, wards: list[str]) -> None:
    found = tacit("data", "describe", "north.csv", "--target", "ill", "--drop", "id,day", "--json").json
    assert (found["features"], found["rows"], found["categorical"]) == (2, 60, [])
    assert found["classes"].keys() == {"yes", "no"}


def test_a_site_keeps_how_its_rows_are_read(tacit: Any, wards: list[str], tmp_path: Path) -> None:
    flags = ("--target", "ill", "--drop", "id,day", "--decimal", ",")
    assert tacit("federation", "init", "fed", "--site", "north", "--site", "south").code == 0
    said = tacit("site", "join", "fed/bundles/north.bundle", "--data", "north.csv", *flags, "--json")
    assert said.code == 0
    written = (tmp_path / "north" / "site.toml").read_text()
    assert 'drop = ["id", "day"]' in written and f'data = "{tmp_path}/north.csv"' in written
    words = ("--data", "south.csv", "--drop", "Id", "--json")
    refused = tacit("site", "join", "fed/bundles/south.bundle", *words)
    assert refused.code == 2 and not (tmp_path / "south").exists()
