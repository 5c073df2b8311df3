"""The ``tacit`` command as people and programs use it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tacit.core.party import Charge
from tacit.engines.epsilon import EpsilonLedger
from tests.e2e.conftest import MAIN
from tests.quick import representatives

Tacit = Callable[..., Any]
QUICK = ("--no-baselines", "--quiet")
PLAIN = ("--protect", "plain")  # bit for bit the same every time, and for a single client too

KEYS = {
    *("method", "data", "clients", "partition", "protect", "seed"),
    *("accuracy", "f1", "auc", "loss", "mse", "rmse", "mae", "r2"),
    *("bytes_up", "bytes_down", "messages", "cpu_s", "training_s", "wh", "run"),
}


def weights(folder: str) -> dict[str, Any]:
    return load_file(Path(folder) / "model.safetensors")


def named(found: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (one,) = (each for each in found if each["name"] == name)
    return one


def at_hand(name: str) -> str:
    if not Path(os.environ.get("TACIT_DATA", "nowhere"), f"{name}.parquet").is_file():
        pytest.skip(f"TACIT_DATA has no {name}.parquet")
    return name


# -- tacit run -------------------------------------------------------------------------------------


@pytest.mark.draws
def test_the_main_job_federates_compares_and_reports(tacit: Tacit, tmp_path: Path) -> None:
    said = tacit("run")
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0] == "fedheonn on digits, 100 clients, label-sorted, masked --opens clients, seed 0"
    scores = {line[:22].strip(): float(line[22:].split()[0]) for line in lines[2:5]}
    assert scores["federated"] == scores["centralised"] > 0.9
    assert scores["mean of local models"] < 0.2
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    # Of clients with one class, which rows tie is a matter of the last bit: their AUC is not compared.
    assert "\n".join(line.rstrip() for line in lines[:4]) in readme
    assert lines[4][:40].rstrip() in readme
    assert "the coordinator saw  masked vectors it cannot open; single shares it cannot open" in said.out
    (folder,) = (tmp_path / "runs").iterdir()
    assert {path.name for path in folder.iterdir()} == {
        *("report.html", "events.jsonl", "result.json", "model.safetensors")
    }
    assert folder.name in said.err


def test_json_of_a_run_is_one_object_with_all_keys(process: Tacit, tmp_path: Path) -> None:
    said = process("run", "--data", "iris", "--clients", 4, "--json")
    found = said.json
    assert said.code == 0
    assert found.keys() >= KEYS
    assert found["cpu_s"].keys() == {"slowest_client", "clients", "coordinator", "services"}
    assert (found["method"], found["data"], found["clients"], found["seed"]) == ("fedheonn", "iris", 4, 0)
    assert (found["partition"], found["protect"]) == ("label-sorted", "masked")
    assert found["wh"] > 0
    assert found["r2"] is None
    stored = json.loads((tmp_path / "runs" / found["run"] / "result.json").read_text())
    assert {key: stored[key] for key in KEYS} == {key: found[key] for key in KEYS}
    pages = Path(__file__).parents[2] / "docs"
    told, costs = ((pages / page).read_text(encoding="utf-8") for page in ("cli.md", "ledger.md"))
    assert not [key for key in stored if f"`{key}`" not in told]
    table = costs.partition("## All keys of the summary")[2]
    assert not [key for key in (*stored["ledger"], *stored["cpu_s"]) if f"`{key}`" not in table]


def test_events_are_numbered_lines_of_json(tacit: Tacit) -> None:
    folder = tacit("run", "--data", "iris", "--clients", 5, "--json", *QUICK).json["folder"]
    events = [json.loads(line) for line in Path(folder, "events.jsonl").read_text().splitlines()]
    assert [event["n"] for event in events] == list(range(len(events)))
    kinds = [event["event"] for event in events]
    assert kinds[0] == "RunStarted"
    assert "RunEnded" in kinds
    assert kinds.count("Replied") == 5 * 10 + 2  # the key, and the experimenter


def test_report_needs_no_network_and_no_script(tacit: Tacit) -> None:
    found = tacit("run", "--data", "wine", "--clients", 3, "--json", *QUICK).json
    page = Path(found["folder"], "report.html").read_text(encoding="utf-8")
    assert "wine" in page
    assert "<script" not in page
    assert not re.search(r"""(src|href)=["']?https?:""", page)


def test_who_holds_which_rows_makes_no_difference(tacit: Tacit) -> None:
    found = [
        tacit("run", "--clients", clients, "--partition", partition, "--json", *PLAIN, *QUICK).json
        for clients, partition in ((1, "iid"), (100, "label-sorted"), (100, "iid"), (7, "dirichlet"))
    ]
    assert len({run["accuracy"] for run in found}) == 1
    first, *others = (weights(run["folder"]) for run in found)
    for other in others:
        for name, values in first.items():
            np.testing.assert_allclose(other[name], values, atol=1e-8)


def test_workers_give_the_same_bytes(tacit: Tacit, process: Tacit, tmp_path: Path) -> None:
    found = [
        call("run", "--clients", 150, "--workers", workers, "--json", *PLAIN, *QUICK).json
        for call, workers in ((tacit, 0), (process, 2))
    ]
    models = [(tmp_path / run["folder"] / "model.safetensors").read_bytes() for run in found]
    assert models[0] == models[1]
    assert found[0]["bytes_up"] == found[1]["bytes_up"]


def test_totals_may_open_at_the_clients(tacit: Tacit) -> None:
    found = [
        tacit("run", "--data", "wine", "--clients", 6, *PLAIN, "--opens", place, "--json", *QUICK).json
        for place in ("coordinator", "clients")
    ]
    assert found[1]["promises"]["opens"] == "clients"
    one, other = (weights(run["folder"]) for run in found)
    np.testing.assert_allclose(one["weights"], other["weights"], rtol=1e-9)


def test_same_seed_same_model_other_seed_another(tacit: Tacit) -> None:
    models = [
        tacit("run", "--data", "iris", "--clients", 3, "--seed", seed, "--json", *PLAIN, *QUICK).json["model"]
        for seed in (5, 5, 6)
    ]
    assert models[0] == models[1] != models[2]


def test_federated_evaluation(tacit: Tacit) -> None:
    found = tacit("run", "--test", 0, "--holdout", 0.2, "--clients", 20, "--json", *QUICK).json
    assert found["scores"].keys() == {"clients' own hold-outs"}
    assert found["accuracy"] > 0.9
    both = tacit("run", "--holdout", 0.2, "--clients", 20, *QUICK)
    assert "clients' hold-outs" in both.out


def test_without_any_test_rows_there_are_no_scores(tacit: Tacit) -> None:
    found = tacit("run", "--data", "iris", "--clients", 3, "--test", 0, "--json", *QUICK).json
    assert (found["accuracy"], found["loss"]) == (None, None)
    assert "no scores" in tacit("show").out


def test_a_regression_of_ones_own(tacit: Tacit, csv: Callable[..., Path]) -> None:
    path = csv(label="{y:.5f}")
    found = tacit("run", "--data", path, "--clients", 4, "--activation", "linear", "--json", "-q").json
    assert found["r2"] > 0.999
    assert (found["accuracy"], found["f1"], found["auc"], found["loss"]) == (None, None, None, None)
    assert found["scores"].keys() == {"federated", "centralised", "local"}
    assert "R²" in tacit("show").out


def test_several_targets(tacit: Tacit, csv: Callable[..., Path]) -> None:
    path = csv(head="a,b,c,y1,y2", label="{y:.4f},{a:.4f}")
    words = ("--target", "y1,y2", "--activation", "linear", "--json")
    found = tacit("run", "--data", path, "--clients", 4, *words, *QUICK).json
    assert found["r2"] > 0.99
    assert weights(found["folder"])["weights"].shape == (4, 2)


def test_categories_gaps_and_a_column_of_sites(tacit: Tacit, csv: Callable[..., Path]) -> None:
    path = csv(head="a,b,c,kind,site,target", label="{word},s{t}{word},{t}", line7=",1.0,,x,s0x,1")
    said = tacit("run", "--data", path, "--partition", "by-column", "--column", "site", *QUICK)
    assert (said.code, "missing = 'mean'" in said.err) == (3, True)
    words = ("--partition", "by-column", "--column", "site", "--missing", "mean", "--json")
    found = tacit("run", "--data", path, *words, *QUICK).json
    assert found["clients"] == 6
    assert found["features"] == 3 + 3  # not the sites
    assert "clients" not in found["settings"]["partition"]


def test_declared_classes_in_the_types_of_the_file(tacit: Tacit, csv: Callable[..., Path]) -> None:
    for label, classes in (("{t}", "1,0,2"), ("{t}.5", "0.5,1.5"), ("s{t}", "s0,s1")):
        path = csv(label=label)
        words = ("--clients", 4, "--task", "classification", "--classes", classes, "--json")
        found = tacit("run", "--data", path, *words, *QUICK).json
        assert [str(label) for label in found["classes"]] == classes.split(",")
        assert found["accuracy"] > 0.8


def test_declared_categories_by_flag_and_by_file(
    tacit: Tacit, csv: Callable[..., Path], tmp_path: Path
) -> None:
    path = csv(head="a,b,c,kind,target", label="{word},{t}")
    words = ("--clients", 4, "--classes", "0,1", "--json")
    by_flag = tacit("run", "--data", path, *words, "--categories", "kind=z|y|x|w", *QUICK).json
    assert by_flag["features"] == 3 + 4  # one that nobody has among them
    told = f'[data]\nname = "{path}"\nclasses = [0, 1]\ncategories = ["kind=z|y|x|w"]\n'
    (tmp_path / "declared.toml").write_text(told, encoding="utf-8")
    by_file = tacit("run", tmp_path / "declared.toml", *words[:2], "--json", *QUICK).json
    assert (by_file["features"], by_file["accuracy"]) == (by_flag["features"], by_flag["accuracy"])
    assert by_file["settings"]["data"]["categories"] == ["kind=z|y|x|w"]


def test_rows_and_repeat_and_synthetic_sets(tacit: Tacit) -> None:
    found = tacit("run", "--data", "synthetic-susy", "--rows", 4000, "--clients", 9, "--json", *QUICK).json
    assert found["rows"] == 2800
    assert 0.7 < found["accuracy"] < 0.8
    found = tacit("run", "--data", "iris", "--repeat", 3, "--clients", 9, "--json", *QUICK).json
    assert found["rows"] == 315


def test_a_parquet_from_the_data_folder(tacit: Tacit) -> None:
    words = ("--data", at_hand("dry_bean"), "--clients", 200, "--json")
    assert 0.89 < tacit("run", *words, *QUICK).json["accuracy"] < 0.91


def test_the_command_in_a_result_repeats_the_run(tacit: Tacit, csv: Callable[..., Path]) -> None:
    path = csv(label="{y:.5f}")
    words = ("--activation", "linear", "--lam", "0.5", "--partition", "iid", "--holdout", "0.1")
    more = ("--min-clients", 2, "--scale", "minmax", "--quorum", "0.9", *PLAIN, "--opens", "clients")
    first = tacit("run", "--data", path, "--clients", 4, *words, *more, "--json", *QUICK).json
    again = first["command"].split()
    assert again[:2] == ["tacit", "run"]
    second = tacit(*again[1:], "--json", "-q").json
    assert (second["model"], second["settings"]) == (first["model"], first["settings"])


# -- protections -----------------------------------------------------------------------------------

FEW = ("--data", "iris", "--clients", 4)
PROTECTED = {
    "bfv": (),
    "ckks": (),
    "paillier": ("--key-bits", 2048),
    "paillier clients": ("--key-bits", 2048, "--holder", "clients", "--clip"),
    "ring": ("--key-bits", 2048, "--bits", 40),
    "masked": ("--clip", "--no-active"),
    "shares": ("--scheme", "additive", "--opens", "coordinator"),
    "committee": ("--threshold", 3),
}


@pytest.mark.parametrize("case", representatives(PROTECTED, "bfv", "masked"))
def test_a_protected_run_learns_what_a_plain_one_does(tacit: Tacit, case: str) -> None:
    plain = tacit("run", *FEW, *PLAIN, "--json", *QUICK).json
    words = (*FEW, "--protect", case.split()[0], *PROTECTED[case])
    found = tacit("run", *words, "--json", *QUICK).json
    assert found["accuracy"] == plain["accuracy"]
    one, other = (weights(run["folder"])["weights"] for run in (plain, found))
    np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-4)
    assert not [row for row in found["exposure"] if row["what"].endswith(": vector") and row["openable"]]
    assert not [note for note in found["notes"] if note["about"] == "exposure"]
    again = tacit(*found["command"].split()[1:], "--json", "-q").json
    assert again["settings"] == found["settings"]
    shown = " ".join(tacit("show").out.split())
    assert "labels and categories in the clear" not in shown
    page = Path(found["folder"], "report.html").read_text(encoding="utf-8")
    assert "Who saw what" in page
    assert "The coordinator saw in the clear, of every single client" not in page


def test_a_protection_from_a_file(tacit: Tacit, tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text(
        '[data]\nname = "iris"\n[partition]\nclients = 4\n'
        '[protect]\nname = "paillier"\nkey_bits = 2048\nholder = "clients"\n'
    )
    found = tacit("run", "f.toml", "--json", *QUICK).json
    assert found["promises"]["opens"] == "clients"
    over = tacit("run", "f.toml", "--holder", "key-server", "--json", *QUICK).json
    assert over["promises"]["opens"] == "coordinator"
    other = tacit("run", "f.toml", "--protect", "ckks", "--json", *QUICK).json
    assert other["settings"]["protect"] == {"name": "ckks"}


def test_noise_from_a_file_is_refused_where_it_hides_one_of_few_clients(tacit: Tacit, tmp_path: Path) -> None:
    """Flags reach it nonetheless: ``--clip`` is a switch of others and a number here."""
    (tmp_path / "f.toml").write_text(
        '[protect]\nname = "noised"\ninner = "masked"\ninner_options = {bits = 24}\n'
        "epsilon = 3.0\nclip = 1.0\n"
    )
    for words in (("f.toml",), ("f.toml", "--clip", 2.5), ("--clip", 2, "f.toml"), ("--protect", "noised")):
        said = tacit("run", *FEW, *words, "--json", "-q")
        assert (said.code, said.json["error"]["type"]) == (2, "ConfigError")
        assert "noised cannot protect fedheonn: the noise that hides a client" in said.json["error"]["text"]
    for words, reason in (
        (("--clip", "0"), "clip is 0.0"),
        (("--clip", "wide"), "clip = 'wide'"),
        (("--epsilon", "-1"), "epsilon is -1"),
        (("--inner", "maskd"), "did you mean 'masked'"),
        (("--inner-options", "bits"), "inner_options = 'bits'"),
        (("--members", "5"), "--members is an option of --protect committee"),
    ):
        said = tacit("run", "f.toml", *words, "--json", "-q")
        assert said.code == 2
        assert reason in said.json["error"]["text"]


def test_a_switch_leaves_the_word_after_it_alone(tacit: Tacit) -> None:
    said = tacit("run", *FEW, "--protect", "masked", "--clip", "2.5", "--json", "-q")
    assert (said.code, said.json["error"]["text"][:28]) == (2, "'2.5' is not expected here: ")
    assert tacit("run", *FEW, "--protect", "committee", "--members", 1, "--json", "-q").code == 2


def test_exposure(tacit: Tacit) -> None:
    run = tacit("run", *FEW, "--protect", "ring", "--key-bits", 2048, "--json", *QUICK).json
    found = tacit("exposure", "--json").json
    assert found.keys() == {"run", "protect", "exposure", "reveals"}
    assert (found["run"], found["protect"], found["exposure"]) == (run["run"], "ring", run["exposure"])
    assert found["exposure"][0].keys() == {
        *("who", "what", "about", "class", "over", "times", "bytes", "openable")
    }
    said = tacit("exposure", run["run"]).out
    assert "The coordinator relayed sealed bytes it cannot read: 12 messages" in said
    assert re.search(r"coordinator +terms: total +all +aggregate +4 +1 ", said)


def test_exposure_of_a_run_that_stopped(tacit: Tacit, csv: Callable[..., Path]) -> None:
    assert (
        tacit(
            "run",
            "--data",
            csv(label="{y}"),
            "--clients",
            4,
            "--protect",
            "ckks",
            *("--activation", "logistic", "-q"),
        ).code
        == 3
    )
    said = tacit("exposure")
    assert said.code == 0
    assert "stopped, so this is what was seen until then" in said.out
    assert "ciphertexts of every client, which it cannot open: cell_counts and moments." in said.out


def test_a_transcript_is_kept_on_demand_and_warned_of(tacit: Tacit) -> None:
    from tacit.runs.transcript import read_transcript

    assert not Path(tacit("run", *FEW, "--json", *QUICK).json["folder"], "transcript").exists()
    said = tacit("run", *FEW, *PLAIN, "--transcript", "--no-baselines")
    assert "the clients' contributions in the clear: guard it" in said.err
    (folder,) = Path("runs").glob("*/transcript")
    assert {path.name for path in folder.iterdir()} == {
        *(f"client-{n}.bin" for n in range(1, 5)),
        "coordinator.bin",
    }
    assert len(list(read_transcript(folder / "coordinator.bin"))) == 4 * 3
    assert "--transcript" in json.loads((folder.parent / "result.json").read_text())["command"]


def test_a_long_ring_is_warned_of(tacit: Tacit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.protections.ring.LONG_RING", 3)
    said = tacit("run", *FEW, "--protect", "ring", "--key-bits", 2048, "--no-baselines")
    assert "5 waves one after the other; paillier takes one" in said.err
    assert said.err.count("contribute ") == 3  # one bar for a sum, not one for every hop


def test_protections_are_listed_with_their_promises(tacit: Tacit) -> None:
    found = tacit("protections", "--json").json["protections"]
    assert {"plain", "bfv", "ckks", "paillier", "ring", "masked", "shares", "committee", "noised"} <= {
        part["name"] for part in found
    }
    for part in found:
        assert part["sees"]["coordinator"]
        assert {"keys", "collusion", "dropout", "precision", "bytes_per_value"} <= part.keys()
    places = {"clients": "clients", "in-turn": "clients", "leader": "leader"}
    variants = named(found, "paillier")["variants"]
    assert {one["settings"]["holder"]: one["opens"] for one in variants} == places
    said = tacit("protections", "paillier").out
    for words in (
        "held by key server",
        "with --holder clients:",
        "bytes per value",
        "--key-bits",
        "undone by",
    ):
        assert words in said


# -- settings from a file --------------------------------------------------------------------------


def test_new_writes_a_file_that_runs_and_flags_override_it(tacit: Tacit, tmp_path: Path) -> None:
    assert tacit("new", "fed", "--json").json == {"path": "fed/federation.toml"}
    found = tacit("run", "fed/federation.toml", "--clients", 5, "--lam", "0.5", "--json", *PLAIN, *QUICK).json
    assert (found["clients"], found["settings"]["method"]["lam"]) == (5, 0.5)
    assert found["settings"]["method"]["mode"] == "sealed"
    before = tacit(
        "run", "--lam", "0.5", "fed/federation.toml", "--clients", 5, "--json", *PLAIN, *QUICK
    ).json
    assert before["model"] == found["model"]


def test_another_partition_drops_the_options_of_the_one_in_the_file(tacit: Tacit, tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text(
        '[data]\nname="iris"\n[partition]\nname="dirichlet"\nalpha=0.1\nclients=4\n'
    )
    found = tacit("run", "f.toml", "--partition", "iid", "--json", *QUICK).json
    assert found["settings"]["partition"] == {"clients": 4, "name": "iid"}


# -- show, export ----------------------------------------------------------------------------------


def test_show_and_export(tacit: Tacit, tmp_path: Path) -> None:
    first = tacit("run", "--data", "iris", "--clients", 3, "--json", *QUICK).json
    second = tacit("run", "--data", "wine", "--clients", 3, "--json", *QUICK).json
    assert tacit("show", "--json").json["run"] == second["run"]
    assert tacit("show", first["run"], "--json").json["data"] == "iris"
    costs = tacit("show", first["run"], "--by", "party,step", "--json").json["costs"]
    assert sum(row["bytes_up"] for row in costs) == first["bytes_up"]
    assert tacit("show", "--by", "step").out.startswith('"step","messages","bytes_up"')
    assert tacit("show", f"runs/{first['run']}").out.startswith("fedheonn on iris")
    assert tacit("export", first["run"], "--json").json["path"] == f"{first['run']}.safetensors"
    copy = (tmp_path / f"{first['run']}.safetensors").read_bytes()
    assert copy == Path(first["folder"], "model.safetensors").read_bytes()
    named = tacit("export", first["run"], "--to", "onnx", "--json").json
    assert (named["format"], named["path"]) == ("onnx", f"{first['run']}.onnx")
    refused = tacit("export", first["run"], "--to", "sklearn", "--json")
    assert refused.code == 2
    assert "tacit.load_model(...).to_sklearn()" in str(refused.json["error"])


def begun(name: str, *files: str) -> Path:
    folder = Path("runs", name)
    folder.mkdir(parents=True)
    for file in ("events.jsonl", *files):
        (folder / file).touch()
    return folder


def test_a_run_without_a_result_is_told_of(tacit: Tacit) -> None:
    folder = begun("20200101-000000-aaaaaa", "checkpoint.bin")
    for words in ((), (folder.name,), (folder,)):
        for command in ("show", "exposure", "export"):
            said = tacit(command, *words, "--json")
            assert said.code == 2
            assert f"run {folder.name} was stopped without a result" in said.json["error"]["text"]
            assert f"`tacit resume {folder}`" in said.json["error"]["text"]
    done = tacit("run", *FEW, *PLAIN, "--json", *QUICK).json
    said = tacit("show")
    assert (said.code, said.err) == (0, "")  # the one without a result is older
    later = begun("29990101-000000-bbbbbb")
    for command in ("show", "exposure"):
        said = tacit(command, "--json")
        assert (said.code, said.json["run"]) == (0, done["run"])
        assert said.err.startswith(f"warning: this is {done['run']}; run {later.name} was stopped without")
        assert "no checkpoint to go on from" in said.err
    assert tacit("show", done["run"]).err == ""


def test_the_papers_mode_says_aloud_what_it_shows(tacit: Tacit) -> None:
    found = tacit("run", *FEW, "--mode", "paper", "--json", *QUICK).json
    (leak,) = [note for note in found["notes"] if note["about"] == "exposure"]
    assert leak["level"] == "warning"
    assert "of every single client: factor of terms" in leak["text"]
    shown = " ".join(tacit("show").out.split())
    assert "every client's factor in the clear" in shown
    page = Path(found["folder"], "report.html").read_text(encoding="utf-8")
    assert "<b>The coordinator saw in the clear, of every single client: factor of terms.</b>" in page


# -- lists, data -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "name"), [("methods", "fedheonn"), ("protections", "plain"), ("data", "digits")]
)
def test_lists(tacit: Tacit, command: str, name: str) -> None:
    found = tacit(command, "--json").json
    assert found.keys() == {command}
    assert name in [each["name"] for each in found[command]]
    assert name in tacit(command).out


def test_options_are_described(tacit: Tacit) -> None:
    method = named(tacit("methods", "--json").json["methods"], "fedheonn")
    assert [option["name"] for option in method["options"]][:3] == ["class_weight", "lam", "activation"]
    assert all(option["doc"] for option in method["options"])
    assert "Fontenla-Romero" in method["paper"]
    assert "--lam" in tacit("methods", "fedheonn").out
    plain = named(tacit("protections", "--json").json["protections"], "plain")
    assert "in the clear" in plain["sees"]["coordinator"]


def test_data_describe_and_check(tacit: Tacit, csv: Callable[..., Path]) -> None:
    assert tacit("data", "describe", "iris", "--json").json["rows"] == 150
    assert "setosa: 50" in tacit("data", "describe", "iris").out
    assert tacit("data", "check", "iris").code == 0
    broken = csv(line3="nan,1,2,1")
    said = tacit("data", "check", broken, "--json")
    assert (said.code, said.json["ok"], said.json["columns"][0]["missing"]) == (3, False, 1)
    assert "column 'a'" in tacit("data", "check", broken).out


def test_a_folder_is_checked_as_a_run_reads_it(tacit: Tacit, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wards").mkdir()
    for name in ("north", "south"):
        rows = "".join(f"{i},{i * i % 7},{i % 2}\n" for i in range(60))
        (tmp_path / "wards" / f"{name}.csv").write_text(f"a,b,target\n{rows}")
    for folder in ("wards", "wards/"):
        said = tacit("data", "check", folder, "--json")
        assert (said.code, [*said.json["sites"]]) == (0, ["wards/north.csv", "wards/south.csv"])
    (tmp_path / "wards" / "south.csv").unlink()
    assert tacit("data", "check", "wards").out.startswith("  ok  wards/north.csv: 60 rows")
    (tmp_path / "wards" / "north.csv").unlink()
    said = tacit("data", "check", "wards")
    assert (said.code, "a directory without data" in said.err) == (2, True)


# -- the command itself ----------------------------------------------------------------------------


def test_version_and_help_are_quick(process: Tacit) -> None:
    assert re.fullmatch(r"tacit \d+\.\d+\.\d+\n", process("--version").out)
    started = time.perf_counter()
    said = process("--help")
    assert time.perf_counter() - started < 3
    for word in (
        "run",
        "methods",
        "protections",
        "data",
        "show",
        "exposure",
        "export",
        "reproduce",
        "new",
        "bench",
    ):
        assert f" {word} " in said.out


def test_import_is_light() -> None:
    code = (
        "import sys, time; s = time.perf_counter(); import tacit; t = time.perf_counter() - s\n"
        "heavy = {'torch', 'sklearn', 'pyarrow', 'matplotlib', 'scipy', 'numpy'} & set(sys.modules)\n"
        "print(t < 1.0, sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True []\n"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("tacit ru", "run"), ("tacit run --partition dir", "dirichlet"), ("tacit run --data iri", "iris")],
)
def test_shell_completion(process: Tacit, typed: str, offered: str) -> None:
    place = str(len(typed.split()) - 1)
    said = process(_TACIT_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=place)
    assert offered in said.out.split()
    assert "_tacit_completion" in process(_TACIT_COMPLETE="source_bash").out


IMPORTING = """
import sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == {name!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from tacit.cli import main
main()
"""


@pytest.mark.parametrize("name", ["tacit.cli.app", "tacit.cli.options"])
@pytest.mark.parametrize("flags", [("--json",), ()], ids=["json", "text"])
def test_interrupting_the_imports(tmp_path: Path, name: str, flags: tuple[str, ...]) -> None:
    words = [sys.executable, "-c", IMPORTING.format(name=name), "run", *flags]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "Interrupted: stopped by the user\n")
    error = {"type": "Interrupted", "text": "stopped by the user", "exit_code": 130}
    assert [json.loads(line) for line in done.stdout.splitlines()] == ([{"error": error}] if flags else [])


def test_interrupting_while_flags_are_read(tacit: Tacit, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("typer.core.TyperGroup.invoke", interrupt)
    monkeypatch.setattr(sys, "argv", ["tacit", "methods", "--json"])
    said = tacit("methods", "--json")
    assert (said.code, said.json["error"]["type"]) == (130, "Interrupted")


def test_quiet_names_the_run_folder_unless_json_does(tacit: Tacit) -> None:
    said = tacit("run", *FEW, *PLAIN, *QUICK)
    (folder,) = Path("runs").iterdir()
    assert said.err.split("  (")[0].strip() == f"run folder: {folder}/"
    assert tacit("run", *FEW, *PLAIN, "--json", *QUICK).err == ""


def test_interrupting_a_run(tmp_path: Path) -> None:
    words = ("run", "--clients", "1250", "--repeat", "4", "--json")
    process = subprocess.Popen(
        [sys.executable, "-c", "from tacit.cli import main; main()", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 30
    while not list(tmp_path.glob("runs/*/events.jsonl")) and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert json.loads(out)["error"]["exit_code"] == 130
    assert "Traceback" not in err
    (folder,) = tmp_path.glob("runs/*")
    result = json.loads((folder / "result.json").read_text())
    assert result["error"] == {"type": "Interrupted", "text": "stopped by the user", "exit_code": 130}
    assert all(json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines())
    assert not (folder / "model.safetensors").exists()


def test_a_site_shows_what_it_accepts_and_what_noise_has_cost(tacit: Tacit, tmp_path: Path) -> None:
    assert tacit("federation", "init", "fed", "--site", "north").code == 0
    assert tacit("site", "join", "fed/bundles/north.bundle", "--json").code == 0
    written = (tmp_path / "north" / "site.toml").read_text()
    assert "[accept]" in written
    assert "min_clients = 3\n" in written
    assert tacit("site", "budget", "north").out.startswith("epsilon 0 at delta 0 in all; no limit is set")
    (tmp_path / "north" / "site.toml").write_text(written + "epsilon_total = 8.0\n")
    ledger = EpsilonLedger(tmp_path / "north" / "epsilon.db")
    ledger.charge("terms", "the-run", Charge("row", 1.2, 0.1, 1e-5, 100, 300))
    said = tacit("site", "budget", "north", "--json").json
    assert (said["site"], said["limit"], said["delta"]) == ("north", 8.0, 1e-5)
    (run,) = said["runs"]
    assert (run["run"], run["unit"], run["releases"]) == ("the-run", "row", 100)
    assert said["epsilon"] == run["epsilon"] == ledger.total() > 1
    shown = tacit("site", "budget", "north").out
    assert "the-run" in shown
    assert "8 is the limit over all runs" in shown


# -- runs that are over, lists, pipes and progress -----------------------------------------------------------


def test_runs_are_listed_compared_and_deleted(tacit: Tacit, tmp_path: Path) -> None:
    for seed in (0, 1):
        tacit("run", "--data", "iris", "--clients", 3, "--protect", "plain", "--no-baselines", "--seed", seed)
    found = tacit("runs", "--json").json["runs"]
    assert [row["state"] for row in found] == ["done", "done"]
    table = tacit("runs", "--data", "iris")
    assert all(row["run"] in table.out for row in found)
    names = [row["run"] for row in found]
    compared = tacit("compare", *names)
    assert "Accuracy" in compared.out
    assert "run.seed differ" in compared.err
    assert tacit("compare", names[0]).code == 2
    assert tacit("runs", "--delete").code == 2  # never all by accident
    assert tacit("runs", names[0], "--delete", "--yes", "--json").json == {"deleted": [names[0]]}
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [names[1]]


@pytest.mark.parametrize("command", ["methods", "protections"])
def test_bare_lists_fit_on_a_screen_and_options_have_their_place(
    tacit: Tacit, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    bare = tacit(command)
    assert bare.out.count("\n") <= 24
    name = tacit(command, "--json").json[command][-1]["name"]
    assert name in bare.out
    one = tacit(command, name, "--json").json[command]
    assert [part["name"] for part in one] == [name]
    assert all(
        f"--{option['name'].replace('_', '-')}" in tacit(command, name).out for option in one[0]["options"]
    )
    assert "did you mean" in tacit(command, name + "x").err


@pytest.mark.parametrize("words", [["methods"], ["methods", "--json"]])
def test_a_pipe_that_is_closed_ends_the_command_quietly(tmp_path: Path, words: list[str]) -> None:
    read, written = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *words], stdout=written, stderr=subprocess.PIPE, timeout=60, check=False
    )
    os.close(written)
    assert (done.returncode, done.stderr) == (0, b"")


def test_ctrl_c_says_how_the_run_goes_on(tacit: Tacit, monkeypatch: pytest.MonkeyPatch) -> None:
    from tacit.runs.checkpoint import CheckpointWriter

    keep = CheckpointWriter.__call__

    def interrupted(self: CheckpointWriter, kept: Any) -> None:
        keep(self, kept)
        if kept.progress["round"] == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(CheckpointWriter, "__call__", interrupted)
    words = (
        "run",
        "--data",
        "iris",
        "--clients",
        3,
        "--method",
        "fedavg",
        "--rounds",
        3,
        "--protect",
        "plain",
    )
    said = tacit(*words, "--no-baselines")
    assert said.code == 130
    (folder,) = Path("runs").iterdir()
    assert f"`tacit resume {folder}` goes on from its checkpoint" in said.err
    assert tacit("runs", "--json").json["runs"][0]["state"] == "stopped"
    monkeypatch.undo()


def test_progress_names_the_round_its_score_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    from tacit.cli.progress import ProgressBars
    from tacit.core.events import Evaluated, RoundEnded, RunStarted, WaveStarted

    clock = SimpleNamespace(monotonic=iter((10.0, 20.0)).__next__)
    monkeypatch.setattr("tacit.cli.progress.time", clock)
    with ProgressBars(quiet=False) as bars:
        bars(0, RunStarted("r", "m", "fedavg", "plain", "coordinator", 3, 0, rounds=8))
        (task,) = bars._bars.tasks
        task.start_time = 5.0
        for done in (1, 2):
            bars(1, WaveStarted(done, "client.contribute", 3))  # no bar of its own
            bars(2, Evaluated(f"round {done}", "test", {"accuracy": done / 4}))
            bars(3, RoundEnded(done))
        (task,) = bars._bars.tasks
        assert (task.description, task.completed, task.total) == ("round 2, accuracy 0.5000", 2, 8)
        assert task.fields["left"] == "about 45.0\xa0s left"
