"""Whatever is wrong with the input: one clear sentence, the right exit code, and nothing left behind."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Tacit = Callable[..., Any]
Csv = Callable[..., Path]


def refused(said: Any, code: int, *words: str) -> None:
    """Check that a command ended with a code and one sentence that holds the words."""
    assert said.code == code, (said.code, said.err)
    error = said.json["error"]
    assert (error["exit_code"], error["type"] + ": " + error["text"]) == (code, said.err.strip())
    assert "\n" not in said.err.strip()
    for word in words:
        assert word in error["text"], error["text"]


@pytest.fixture
def empty_after(tmp_path: Path) -> Any:
    """Nothing may be computed or left: not even the folder of runs is there afterwards."""
    yield
    assert not (tmp_path / "runs").exists()


SETTINGS = [
    ("--clients 0", "clients is 0", "at least 1"),
    ("--clients -1", "clients is -1", "at least 1"),
    ("--clients 1259", "1,259 clients", "1,257 rows", "at most 1,257", "(--repeat)"),
    ("--clients many", "Invalid value for '--clients': 'many' is not", "run --help"),
    ("--clients", "--clients"),
    ("--test 1.5", "test is 1.5", "below, 1"),
    ("--test nan", "test is nan"),
    ("--test spilt", "test is 'spilt'", "or 'split'"),
    ("--test split", "digits has no column 'split'", "0.3"),
    ("--holdout 1", "holdout is 1.0", "below, 1"),
    ("--holdout -0.1", "holdout is -0.1"),
    ("--quorum 0", "quorum is 0.0", "above 0, at most 1"),
    ("--quorum 2", "quorum is 2.0"),
    ("--quorum nan", "quorum is nan"),
    ("--workers -1", "workers is -1"),
    ("--workers 500", "workers is 500", "64"),
    ("--watts 0", "watts is 0.0", "65"),
    ("--watts nan", "watts is nan"),
    ("--watts inf", "watts is inf"),
    ("--timeout 0", "timeout is 0.0", "above 0"),
    ("--timeout inf", "timeout is inf"),
    ("--seed -1", "seed is -1"),
    ("--seed 9223372036854775808", "2⁶³ − 1"),
    ("--min-clients 0", "min_clients is 0"),
    ("--min-clients 101", "min_clients is 101", "100 clients"),
    ("--lam -1", "lam is -1", "at least 0"),
    ("--lam nan", "lam is nan"),
    ("--lam much", "lam = 'much'"),
    ("--lam", "--lam needs a value"),
    ("--activation logistik", "'logistik'", "did you mean 'logistic'?"),
    ("--scale standart", "did you mean 'standard'?"),
    ("--missing men", "did you mean 'mean'?"),
    ("--protect plain --opens client", "did you mean 'clients'?"),
    ("--task clasification", "did you mean 'classification'?"),
    ("--method fedheon", "unknown method 'fedheon'", "did you mean 'fedheonn'?"),
    ("--protect plane", "unknown protection 'plane'", "did you mean 'plain'?"),
    ("--partition idd", "unknown partition 'idd'", "did you mean 'iid'?"),
    ("--data digit", "no data set 'digit'", "did you mean 'digits'?"),
    ("--sed 3", "no such option --sed", "did you mean '--seed'?"),
    ("--cleints=3", "did you mean '--clients'?"),
    ("-x", "no such option -x"),
    ("--protect ckks --clients 1", "ckks hides a client among others", "one client", "at least 3"),
    ("--protect ring --clients 2", "there are 2 clients", "min_clients = 2"),
    ("--protect paillier --min-clients 1", "min_clients is 1", "at least 2"),
    ("--protect paillier --key-bits 1024", "key_bits is 1024", "2048", "published with 1024"),
    ("--protect ring --key-bits 3000", "key_bits is 3000", "4096"),
    ("--protect paillier --key-bits long", "key_bits = 'long'", "int"),
    ("--protect paillier --bits 7", "bits is 7", "8 to 50"),
    ("--protect ring --bits 51", "bits is 51", "8 to 50"),
    ("--protect paillier --bits 50 --clients 20000", "15 guard bits", "at most 48 bits"),
    ("--protect paillier --clip maybe.toml", "no file maybe.toml"),
    ("--protect paillier --clip=maybe", "clip = 'maybe'", "bool"),
    ("--protect paillier --holder client", "did you mean 'clients'?"),
    ("--protect paillier --randomness none", "randomness = 'none'", "djn"),
    ("--protect ckks --opens coordinator", "--opens", "--protect plain"),
    ("--holder clients", "--holder is an option of --protect paillier"),
    ("--partition dirichlet --alpha 0", "alpha is 0", "above 0"),
    ("--partition dirichlet --alfa 1", "no such option --alfa", "did you mean '--alpha'?"),
    ("--alpha 1", "--partition dirichlet"),
    ("--partition majority --share 2", "share is 2", "at most 1"),
    ("--partition by-column", "needs the option column"),
    ("--rows 0", "rows is 0"),
    ("--rows 1798", "1,797 rows", "1,798"),
    ("--repeat 0", "repeat is 0"),
    ("--classes 3", "classes are 3", "at least two"),
    ("--classes 0,0,1", "each once"),
    ("--categories ward", "categories are ward", "as in ward=north|south"),
    ("--categories ward=,sex=f|m", "each column once"),
    ("--target pixel_0_0", "digits comes with its target"),
    ("nowhere.toml", "there is no file nowhere.toml", "tacit new"),
    ("one.toml two.toml", "'two.toml'", "one TOML file"),
    ("one.csv two.csv", "'two.csv'", "data with --data two.csv"),
    ("mine.csv", "mine.csv is no file of settings", "give data with --data mine.csv"),
    ("mine.PARQUET", "give data with --data mine.PARQUET"),
    ("--out=", "[run] out is empty", "name the folder"),
    ("--data nowhere.csv", "no file nowhere.csv"),
    ("--data mine.xlsx/", "no file"),
]


@pytest.mark.parametrize("case", SETTINGS, ids=lambda case: case[0])
@pytest.mark.usefixtures("empty_after")
def test_settings_that_cannot_work(tacit: Tacit, case: tuple[str, ...]) -> None:
    command, *words = case
    refused(tacit("run", *command.split(), "--json"), 2, *words)


TOML = [
    ('data = "iris"', "[data] is 'iris'", "table with keys"),
    ("partition = 3", "[partition] is 3"),
    ('[dat]\nname = "iris"', "no table [dat]", "did you mean 'data'?"),
    ('[data]\nnam = "iris"', "[data] has no key 'nam'", "did you mean 'name'?"),
    ('[run]\nsed = "iris"', "[run] has no key 'sed'", "did you mean 'seed'?"),
    ("[method]\nlamm = 1", "fedheonn has no option 'lamm'", "did you mean 'lam'?"),
    ('[protect]\nname = "plain"\nopen = "clients"', "plain has no option 'open'", "did you mean 'opens'?"),
    ('[protect]\nname = "paillier"\nholders = "clients"', "paillier has no option 'holders'", "'holder'?"),
    ('[protect]\nname = "paillier"\nkey_bits = "long"', "key_bits = 'long'", "int"),
    ('[protect]\nname = "ring"\nkey_bits = 1024', "key_bits is 1024", "2048"),
    ('[run]\ntranscript = "where"', "transcript = 'where'", "bool"),
    ('[prepare]\nscal = "none"', "did you mean 'scale'?"),
    ('[partition]\nname = "dirichlet"\nalfa = 1', "did you mean 'alpha'?"),
    ('[data\nname = "iris"', "not valid TOML", "line 1"),
    ("[data]\nname = 3", "name = 3", "str"),
    ('[run]\nseed = "x"', "seed = 'x'", "int"),
    ('[run]\nbaselines = "maybe"', "baselines = 'maybe'", "bool"),
    ("[run]\nseed = 1.5", "seed = 1.5", "int"),
    ('[data]\nclasses = "a"', "classes = 'a'"),
    ("[method]\nlam = [1]", "lam = [1]", "float"),
    ("[method]\nname = 3", "3"),
    ('[partition]\nname = ["iid"]', "iid"),
    ('[partition]\nclients = "many"', "clients is 'many'"),
    ("[partition]\nclients = true", "clients is True"),
    ("[partition]\nclients = 2.5", "clients is 2.5"),
]


@pytest.mark.parametrize("case", TOML, ids=lambda case: case[0].replace("\n", " "))
@pytest.mark.usefixtures("empty_after")
def test_files_of_settings_that_cannot_work(tacit: Tacit, tmp_path: Path, case: tuple[str, ...]) -> None:
    text, *words = case
    (tmp_path / "f.toml").write_text(text, encoding="utf-8")
    refused(tacit("run", "f.toml", "--json"), 2, *words)
    # A flag for the same table does not hide the mistake.
    assert tacit("run", "f.toml", "--json", "--watts", 50, "--repeat", 1, "--scale", "none").code == 2


@pytest.mark.usefixtures("empty_after")
def test_a_file_of_settings_that_is_no_text(tacit: Tacit, tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_bytes(b"\xff\xfe\x00")
    refused(tacit("run", "f.toml", "--json"), 2, "cannot be read")
    (tmp_path / "folder.toml").mkdir()
    refused(tacit("run", "folder.toml", "--json"), 2, "cannot be read")


DATA = {
    "missing number": ({"line5": ",1,2,1"}, (), 3, ("column 'a'", "missing", "missing = 'mean'", "1 of 60")),
    "nan": ({"line5": "nan,1,2,1"}, (), 3, ("column 'a'", "missing")),
    "infinite": ({"line5": "inf,1,2,1"}, ("--missing", "mean"), 3, ("column 'a'", "infinite", "1 of 60")),
    "missing label": ({"line5": "1,1,2,"}, (), 3, ("target 'target'", "1 of 60", "row 6")),
    "no target": ({"head": "a,b,c,outcome"}, (), 2, ("no column called 'target'", "(--target)", "outcome")),
    "mistyped target": ({}, ("--target", "targt"), 2, ("'targt'", "did you mean 'target'?")),
    "mistyped column": (
        {},
        ("--partition", "by-column", "--column", "bb"),
        3,
        ("no column 'bb'", "did you mean 'b'?"),
    ),
    "one class": ({"label": "7"}, (), 3, ("class '7'", "needs two")),
    "a class for every row": (
        {"label": "id{i}"},
        (),
        3,
        ("target 'target' has 60 classes in 60 rows", "name another"),
    ),
    "short line": ({"line5": "1,2,3"}, (), 3, ("Expected 4 columns, got 3",)),
    "long line": ({"line5": "1,2,3,1,5,6"}, (), 3, ("Expected 4 columns, got 6",)),
    "two columns of one name": ({"head": "a,a,c,target"}, (), 3, ("'a'", "more than once")),
    "undeclared class": ({"label": "s{t}"}, ("--classes", "s0,s2"), 3, ("class 's1'", "not declared")),
    "categories of no such column": (
        {"head": "a,b,c,kind,target", "label": "{word},{t}"},
        ("--categories", "kimd=x|y|z"),
        2,
        ("no column of categories 'kimd'", "did you mean 'kind'?"),
    ),
    "undeclared category": (
        {"head": "a,b,c,kind,target", "label": "{word},{t}"},
        ("--clients", 4, "--categories", "kind=x|y"),
        3,
        ("a category of column 'kind' that nobody agreed on",),
    ),
    "classes of a regression": ({"label": "{y}"}, ("--classes", "0,1"), 2, ("regression",)),
    "too many clients": ({}, ("--clients", 43), 2, ("43 clients", "42 rows")),
    "clients beside by-column": (
        {"label": "{t}"},
        ("--partition", "by-column", "--column", "a", "--clients", 2),
        2,
        ("leave clients out",),
    ),
}


@pytest.mark.parametrize("case", DATA.values(), ids=DATA)
@pytest.mark.usefixtures("empty_after")
def test_rows_that_cannot_be_learnt_from(tacit: Tacit, csv: Csv, case: tuple[Any, ...]) -> None:
    file, flags, code, words = case
    clients = () if "--partition" in flags or "--clients" in flags else ("--clients", 4)
    refused(tacit("run", "--data", csv(**file), *clients, *flags, "--json"), code, *words)


@pytest.mark.usefixtures("empty_after")
def test_files_that_are_no_tables(tacit: Tacit, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").touch()
    (tmp_path / "head.csv").write_text("a,b,target\n")
    (tmp_path / "only.csv").write_text("target\n1\n0\n")
    (tmp_path / "junk.csv").write_bytes(np.random.default_rng(0).bytes(3000))
    (tmp_path / "junk.parquet").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "empty.parquet").touch()
    (tmp_path / "notes.txt").write_text("a,target\n1,2\n")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "tiny.csv").write_text("a,target\n1,0\n2,1\n")
    for name, code, word in (
        ("empty.csv", 3, "cannot be read as CSV"),
        ("head.csv", 3, "no rows"),
        ("only.csv", 3, "no feature"),
        ("junk.csv", 3, "UTF-8"),
        ("junk.parquet", 3, "cannot be read as parquet"),
        ("empty.parquet", 3, "cannot be read as parquet"),
        ("./notes.txt", 2, "ends in '.txt'"),
        ("folder.csv", 2, "folder.csv is a directory"),
        ("tiny.csv", 3, "all 2 classes have a single row"),
    ):
        refused(tacit("run", "--data", name, "--clients", 1, "--json"), code, word)
        assert tacit("data", "check", name).code == (code if name != "tiny.csv" else 3)


@pytest.mark.usefixtures("empty_after")
def test_ids_as_classes_or_categories(tacit: Tacit, tmp_path: Path) -> None:
    rows = "".join(f"{i % 7},person{i // 2},{i % 2}\n" for i in range(4100))
    (tmp_path / "ids.csv").write_text(f"a,who,target\n{rows}")
    refused(tacit("run", "--data", "ids.csv", "--json"), 3, "column 'who'", "2,050", "2,000")
    refused(tacit("run", "--data", "ids.csv", "--target", "who", "--json"), 3, "2,050 classes", "regression")


@pytest.mark.usefixtures("empty_after")
def test_a_known_set_that_is_not_here(tacit: Tacit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "none"))
    monkeypatch.setattr("tacit.data.files.cache_folder", lambda: tmp_path / "cache")
    refused(tacit("run", "--data", "dry_bean", "--json"), 6, "tacit data fetch dry_bean", "TACIT_DATA")


@pytest.mark.usefixtures("empty_after")
def test_an_empty_file_of_data_does_not_start_the_main_job(tacit: Tacit, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").touch()
    for command in ("run", "tune"):
        refused(tacit(command, "mine.csv", "--json"), 2, "give data with --data mine.csv")


def test_a_file_where_the_folder_of_runs_should_be(tacit: Tacit, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    refused(tacit("run", "--data", "iris", "--out", "taken", "--json", "-q"), 6, "taken", "--out")
    assert (tmp_path / "taken").read_text() == "mine"
    refused(tacit("new", "taken", "--json"), 6, "taken", "choose another")
    refused(tacit("reproduce", "fedheonn", "--out", "taken", "--json", "-q"), 6, "taken")


def test_a_run_that_fails_keeps_its_events_and_says_why(tacit: Tacit, csv: Csv, tmp_path: Path) -> None:
    path = csv(label="{y}")  # the logistic function never reaches such targets
    said = tacit("run", "--data", path, "--clients", 4, "--activation", "logistic", "--json", "-q")
    assert said.code in (3, 4)
    assert "activation = 'linear'" in said.json["error"]["text"]
    (folder,) = (tmp_path / "runs").iterdir()
    assert {path.name for path in folder.iterdir()} == {"events.jsonl", "result.json"}
    result = json.loads((folder / "result.json").read_text())
    assert result["error"] == said.json["error"]
    assert result["settings"]["method"]["name"] == "fedheonn"
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert events[-1]["event"] == "RunEnded"
    assert "activation = 'linear'" in events[-1]["error"]
    assert "stopped" in tacit("show").out
    refused(tacit("export", "--json"), 2, "holds no model")


def test_show_and_export_what_is_not_there(tacit: Tacit, tmp_path: Path) -> None:
    refused(tacit("show", "--json"), 2, "there are none yet", "tacit run")
    run = tacit("run", "--data", "iris", "--clients", 3, "--json", "-q", "--no-baselines").json["run"]
    refused(tacit("show", run[:-1] + "z", "--json"), 2, f"did you mean '{run}'?")
    refused(tacit("export", "x", "--json"), 2, "no run 'x'")
    (tmp_path / "mine.onnx").write_text("mine")
    refused(tacit("export", "--to", "mine.onnx", "--json"), 2, "mine.onnx is there already", "--to")
    assert (tmp_path / "mine.onnx").read_text() == "mine"
    refused(tacit("export", "--to", "no/where.safetensors", "--json"), 6, "no/where.safetensors")
    refused(tacit("export", "--format", "onx", "--json"), 2, "did you mean 'onnx'?")
    refused(tacit("exposure", "x", "--json"), 2, "no run 'x'")
    result = tmp_path / "runs" / run / "result.json"
    older = {key: value for key, value in json.loads(result.read_text()).items() if key != "exposure"}
    result.write_text(json.dumps(older))
    refused(tacit("exposure", "--json"), 2, "older version")
    assert "the coordinator saw  vectors of uniform noise, and totals under pads" in tacit("show").out
    for text in ("{", "[1,2]", "{}", '{"run":"x","method":"fedheonn","protect":"plain"}', '{"error":{}}'):
        (tmp_path / "runs" / run / "result.json").write_text(text)
        for command in ("show", "exposure"):
            refused(tacit(command, "--json"), 2, "result.json cannot be read")
    (tmp_path / "runs" / run / "model.safetensors").write_text("{")
    refused(tacit("export", run, "--json"), 3, "not a model")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("bench", "engin"), "did you mean 'engine'?"),
        (("reproduce", "fedheon"), "did you mean 'fedheonn'?"),
        (("reproduce", "fedheonn", "--seeds", "0"), "at least one"),
        (("data", "describe", "irsi"), "did you mean 'iris'?"),
        (("data", "fetch", "dry_bea"), "did you mean 'dry_bean'?"),
        (("data", "check", "nowhere.csv"), "no file"),
        (("data", "describe"), "argument"),
        (("methods", "--jsn"), "--json"),
        (("rnu",), "run"),
        (("data", "lst"), "lst"),
    ],
    ids=" ".join,
)
def test_other_commands(tacit: Tacit, words: tuple[str, ...], hint: str) -> None:
    refused(tacit(*words, "--json"), 2, hint)


def test_json_before_the_word_is_not_lost(tacit: Tacit) -> None:
    refused(tacit("data", "--json", "describe", "iris"), 2, "--json at the end")


def test_new_does_not_overwrite(tacit: Tacit, tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text("mine")
    refused(tacit("new", ".", "--json"), 2, "is there already")
    assert (tmp_path / "federation.toml").read_text() == "mine"


@pytest.mark.parametrize("words", ["run --clients 0", "run --clients ten", "show --bogus", "rnu"])
def test_an_error_without_json_leaves_stdout_empty(process: Tacit, words: str) -> None:
    said = process(*words.split(), COLUMNS="40")
    assert (said.code, said.out) == (2, "")
    assert re.fullmatch(r"ConfigError: .*\n", said.err)
    assert "env var" not in said.err


def test_a_group_of_commands_alone_shows_its_help(process: Tacit) -> None:
    said = process("fedheonn")
    assert (said.code, said.err.strip()) == (2, "")
    assert "withdraw" in said.out


def test_starting_a_standing_federation_offers_all_its_flags(tacit: Tacit) -> None:
    words = ("--data", "--clients", "--protect", "--min-clients", "--lam", "--json")
    refused(tacit("fedheonn", "start", "st", "--method", "fedavg", "--json"), 2, "--method", *words)


def test_a_fault_of_ours_is_told_as_one(
    tacit: Tacit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("tacit.runs.job.render", fault)
    said = tacit("run", "--data", "iris", "--clients", 3, "--json", "-q", "--no-baselines")
    assert said.code == 1
    assert "please report it" in said.json["error"]["text"]
    assert "Traceback" in said.err
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "result.json").read_text())["error"]["type"] == "ZeroDivisionError"


def test_a_column_that_is_text_at_one_place_only(csv: Csv) -> None:
    from tacit import Federation, load
    from tacit.core.errors import QuorumError, SchemaError

    sites = {f"site-{number}": load(csv(f"{number}.csv")) for number in range(3)}
    sites["site-1"] = load(csv("odd.csv", line3="1.0,unknown,2.0,1"))
    with pytest.raises(QuorumError, match=r"site-1: DataError: column 'b' .* numbers, and 1 stray words"):
        Federation.of(sites).train("fedheonn", protect="plain")
    sites["site-1"] = sites["site-1"].take(slice(0, 10))  # too few words for names: the others know better
    with pytest.raises(SchemaError, match="site-1: column 'b' is a category, the others have a number"):
        Federation.of(sites).train("fedheonn", protect="plain")


def test_a_survey_for_a_link_that_is_no_number_is_refused(tacit: Tacit) -> None:
    refused(
        tacit("survey", "--data", "iris", "--link", "nan", "--json"), 2, "--link is nan", "give megabytes"
    )
