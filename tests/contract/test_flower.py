"""The same jobs on a real SuperLink and SuperNodes as on the embedded engine, run over the registries.

One federation is started for all of them; ``make test`` makes one run on it, ``make test-full`` all.
"""

import json
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from examples.federation import LocalFederation, processes_of
from tacit.core.errors import FederationError, QuorumError
from tacit.core.events import TotalOpened
from tacit.core.party import Party
from tacit.core.secret import Secret
from tacit.deploy.launch import launch, tune
from tacit.deploy.processes import environment_of
from tacit.deploy.site import learnt
from tacit.engines.policy import Policy
from tacit.engines.sitefolder import SiteFolder
from tacit.methods import METHODS
from tacit.protections import PROTECTIONS
from tacit.protections.keys.authenticated import FIELD_NAMES
from tacit.runs.job import execute
from tacit.runs.settings import Settings, read_toml

pytestmark = pytest.mark.xdist_group("flower")  # one federation for all: two cores carry no more

EXAMPLES = Path(__file__).parents[2] / "examples"
CLIENTS = ("client-1", "client-2", "client-3")
MAIN = "import sys; sys.argv[0] = 'tacit'; from tacit.cli import main; main()"
WIDE = Policy(protections=tuple(PROTECTIONS), min_clients=1, rows=1, min_count=1)
QUICK = {"paillier": {"key_bits": 2048}, "ring": {"key_bits": 2048}}


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """A SuperLink, three sites, a key server and a main server; nothing of them is left afterwards."""
    home = tmp_path_factory.mktemp("federation")
    with LocalFederation(home, CLIENTS, ["key-server", "main-server"], policy=WIDE) as found:
        yield found
    assert processes_of(home / "flower") == []


def toml(tables):
    """Tables as a TOML file; of simple values JSON is TOML."""
    pieces = []
    for name, table in tables.items():
        given = {key: value for key, value in table.items() if value is not None}
        pieces += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in given.items()), ""]
    return "\n".join(pieces)


@pytest.fixture(scope="module")
def rows(tmp_path_factory, table_of):
    """Files of rows by task."""
    folder, found = tmp_path_factory.mktemp("rows"), {}
    for task in ("classification", "regression"):
        table = table_of(task)
        target = [table.classes[c] for c in table.target] if table.classes else table.target[:, 0]
        lines = [",".join([column.name for column in table.columns] + ["target"])]
        lines += [",".join(map(str, [*row, t])) for row, t in zip(table.values, target, strict=True)]
        found[task] = folder / f"{task}.csv"
        found[task].write_text("\n".join(lines) + "\n")
    return found


# Rare classes are public rows here; one wave less.
FEW_WAVES = {"min_count": 1}


@pytest.fixture
def tables(federation, rows, tmp_path, monkeypatch):
    """Settings of a run on the federation, as tables."""
    for key, value in environment_of(federation.home / "flower").items():
        monkeypatch.setenv(key, value)

    def make(task="classification", **given):
        base = {
            "data": {"name": str(rows[task]), "target": "target", "task": task},
            "partition": {"name": "iid", "clients": len(CLIENTS)},
            "run": {"out": str(tmp_path / "runs"), "baselines": False, "engine": "flower"},
            "flower": {"coordinator": str(federation.coordinator)},
        }
        return {name: {**base.get(name, {}), **given.get(name, {})} for name in {**base, **given}}

    return make


def embedded(tables):
    return execute(Settings.from_tables({**tables, "run": {**tables["run"], "engine": "embedded"}}))


def assert_same(result, reference, protection):
    """The models are equal, exactly where sums are exact; bytes, waves and exposure are those of embedded."""
    exact = protection not in ("ckks", "noised")
    if exact:
        assert result["model"] == reference.result["model"]
    elif protection == "ckks":
        ours, theirs = (weights(Path(found["folder"])) for found in (result, reference.result))
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            assert np.allclose(ours[name], value, rtol=1e-5, atol=1e-7), name
    theirs = reference.result
    for key in ("messages", "clients", "protect", "method"):
        assert result[key] == theirs[key]
    # Within one process plain sums go untagged; a site answers nobody without keys and tags.
    untagged = not PROTECTIONS.build(protection).authenticated
    for key in ("bytes_up", "bytes_down"):
        more = result[key] - theirs[key]
        assert 0 < more < 100 * result["messages"] if untagged else abs(more) < 0.01 * theirs[key]
    assert result.keys() == theirs.keys()
    steps = [[wave["step"] for wave in found["ledger"]["waves"]] for found in (result, theirs)]
    assert steps[0] == steps[1]
    seen = [
        [
            {**row, "bytes": 0}
            for row in found["exposure"]
            if not (untagged and row["what"] == FIELD_NAMES["exchange"])
        ]
        for found in (result, theirs)
    ]
    assert seen[0] == seen[1]


def weights(folder):
    from safetensors.numpy import load_file

    return load_file(folder / "model.safetensors")


def test_a_run_by_command_under_ckks(federation, tables, tmp_path):
    chosen = tables(protect={"name": "ckks"}, run={"transcript": True})
    (tmp_path / "federation.toml").write_text(toml(chosen).replace('engine = "flower"\n', ""))
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "run", "federation.toml", "--engine", "flower", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    folder = Path(result["folder"])
    assert {"result.json", "events.jsonl", "report.html", "model.safetensors"} <= {
        path.name for path in folder.iterdir()
    }
    full = json.loads((folder / "result.json").read_text())
    reference = embedded(chosen)
    assert_same(full, reference, "ckks")
    # From enrolment to weights six waves; the experimenter's reading of the model is one more.
    steps = [wave["step"] for wave in result["ledger"]["waves"]]
    assert steps.index("client.adopt_model") == len(steps) - 2 <= 5
    assert result["engine"]["overhead_bytes"] > 0
    # Not in Flower's databases and logs, nor in the run folder: what sites have to hide.
    flowers = [path for path in federation.home.glob("*") if path.suffix in (".db", ".log")]
    flowers += [path for path in (federation.home / "flower").rglob("*") if path.is_file()]
    seen = b"".join(path.read_bytes() for path in [*flowers, *(p for p in folder.rglob("*") if p.is_file())])
    assert len(seen) > 100_000
    secrets = []
    for name in CLIENTS:
        site = SiteFolder(federation.site(name))
        secrets += [site.secret.reveal(), site.unlock.reveal()]
        with site.store.step(site.store.runs()[0], Party(name, dict, Secret(b"x"))) as party:
            assert {"channel", "content"} <= party.vault.keys()
            secrets += [secret.reveal() for secret in party.vault.values()]
    for secret in secrets:
        assert secret not in seen
        assert secret.hex().encode() not in seen


@pytest.mark.slow
@pytest.mark.parametrize("opens", ["coordinator", "clients"])
def test_a_run_by_python_under_masks(federation, tables, opens):
    chosen = tables(protect={"name": "masked", "opens": opens})
    told = []
    finished = launch(Settings.from_tables(chosen), lambda number, event: told.append((number, event)))
    assert_same(finished.result, embedded(chosen), "masked")
    assert [number for number, _ in told] == list(range(len(told)))
    lines = (finished.folder.path / "events.jsonl").read_text().splitlines()
    assert [type(event).__name__ for _, event in told] == [json.loads(line)["event"] for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("name", list(METHODS))
def test_every_method(name, federation, tables):
    method = METHODS.get(name).tiny()
    given = {"name": name, **method.config()}
    if "rounds" in given:  # further rounds are of the same kind
        given["rounds"] = 1
    chosen = tables(method.tasks[0], method=given, run=FEW_WAVES)
    settings = Settings.from_tables(chosen)
    assert_same(launch(settings).result, embedded(chosen), settings.protect["name"])


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PROTECTIONS))
def test_every_protection(name, federation, tables):
    protection = PROTECTIONS.build(name, QUICK.get(name, {}))
    for known in METHODS:
        method = METHODS.get(known).tiny()
        if hasattr(method, "weighting"):
            method = replace(
                method, weighting=replace(method.weighting, weighting="equal")
            )  # noise bears no other weights
        if not (protection.incompatibility(method) or method.incompatibility(protection)):
            break
    else:
        pytest.skip(f"{name} serves no method that is registered")
    settings, more = {"name": known, **method.config()}, {"run": FEW_WAVES}
    if name == "noised":  # after noise in scale or weights, training may run away, and is refused
        settings = {**settings, "rounds": 1, "rate": 1e-9}
        more["prepare"] = {"scale": "none"}
    protect = {"name": name, **QUICK.get(name, {})}
    chosen = tables(method.tasks[0], method=settings, protect=protect, **more)
    assert_same(launch(Settings.from_tables(chosen)).result, embedded(chosen), name)


@pytest.mark.slow
def test_ctrl_c_stops_the_run(federation, tables, tmp_path):
    chosen = tables(protect={"name": "masked"})
    (tmp_path / "federation.toml").write_text(toml(chosen))
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "run", "federation.toml", "--json", "-q"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    until = time.monotonic() + 60
    while not list(tmp_path.glob("runs/*/events.jsonl")) and time.monotonic() < until:
        time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(out)["error"]["type"] == "Interrupted"
    (result,) = tmp_path.glob("runs/*/result.json")
    assert json.loads(result.read_text())["error"]["exit_code"] == 130
    with sqlite3.connect(federation.home / "superlink.db") as database:
        (ended,) = database.execute("SELECT sub_status FROM task ORDER BY pending_at DESC").fetchone()
    database.close()
    assert ended == "failed"


@pytest.mark.slow
def test_too_few_sites(federation, tables):
    federation.stop_node("client-3")
    try:
        with pytest.raises(QuorumError, match="client-3: StepError"):
            launch(Settings.from_tables(tables(flower={"wait": 1.0})))
    finally:
        federation.start_node("client-3")


@pytest.fixture
def own_rows(federation, rows):
    """Every site brings rows of its own, and takes part in no experiments."""
    before = {name: (federation.site(name) / "site.toml").read_text() for name in CLIENTS}
    for name, text in before.items():
        own = text.replace("experiment = true", "experiment = false")
        more = f'data = "{rows["classification"]}"\ntarget = "target"\n'
        (federation.site(name) / "site.toml").write_text(more + own)
    yield {"name": "sites", "target": None, "holdout": 0.2}
    for name, text in before.items():
        (federation.site(name) / "site.toml").write_text(text)


@pytest.mark.slow
@pytest.mark.parametrize("protect", ["ckks", "masked"])
def test_a_run_whose_coordinator_was_killed_goes_on(federation, tables, own_rows, tmp_path, protect):
    method = {"name": "fedyogi", "rounds": 5, "hidden": 4}
    chosen = tables(data=own_rows, protect={"name": protect}, method=method)
    whole = launch(Settings.from_tables(chosen)).result
    (tmp_path / "federation.toml").write_text(toml(chosen))
    words = [sys.executable, "-c", MAIN]
    process = subprocess.Popen(
        [*words, "run", "federation.toml", "-q"], cwd=tmp_path, stdout=subprocess.DEVNULL, text=True
    )
    until = time.monotonic() + 120
    while not (found := list(tmp_path.glob("runs/*/checkpoint.bin"))) and time.monotonic() < until:
        time.sleep(0.05)
    process.kill()
    assert process.wait(timeout=120) != 0
    assert not (found[0].parent / "result.json").exists()
    done = subprocess.run(
        [*words, "resume", "latest", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    resumed = json.loads(done.stdout)
    assert resumed["run"] == found[0].parent.name
    assert resumed["engine"]["name"] == "flower"
    if protect == "masked":
        assert resumed["model"] == whole["model"]
    ours, theirs = (learnt(SiteFolder(federation.site("client-1")), r["run"])[1] for r in (resumed, whole))
    for name, value in theirs.arrays.items():
        assert np.allclose(ours.arrays[name], value, atol=1e-6), name


@pytest.mark.slow
def test_a_site_that_is_started_later_joins(federation, tables):
    opened = []

    def start(number, event):
        if isinstance(event, TotalOpened) and event.contribution == "update":
            opened.append(event.contributors)
            if len(opened) == 1:
                federation.start_node("client-3")
                federation.wait()

    chosen = tables(
        method={"name": "fedavg", "rounds": 10, "hidden": 4},
        protect={"name": "masked"},
        run={"quorum": 0.6, "min_clients": 2},
        flower={"wait": 1.0},
    )
    federation.stop_node("client-3")
    try:
        launch(Settings.from_tables(chosen), start)
    finally:
        if not opened:
            federation.start_node("client-3")
    assert opened[0] == 2
    assert opened[-1] == 3


@pytest.mark.slow
@pytest.mark.operations
def test_a_run_outlives_its_superlink(federation, tables):
    opened = []

    def stop(number, event):
        if isinstance(event, TotalOpened) and event.contribution == "update":
            opened.append(event.contributors)
            if len(opened) == 2:
                federation.stop_node("superlink")
                federation.start_superlink()

    chosen = tables(method={"name": "fedavg", "rounds": 4, "hidden": 4}, protect={"name": "masked"})
    result = launch(Settings.from_tables(chosen), stop).result
    assert opened == [3] * 4
    assert_same(result, embedded(chosen), "masked")


@pytest.mark.slow
@pytest.mark.operations
def test_a_run_whose_superlink_is_gone_ends(federation, tables, monkeypatch):
    monkeypatch.setattr("tacit.deploy.control.PATIENCE", 3.0)

    def stop(number, event):
        if isinstance(event, TotalOpened) and event.contribution == "update":
            federation.stop_node("superlink")

    chosen = tables(method={"name": "fedavg", "rounds": 4, "hidden": 4}, protect={"name": "masked"})
    try:
        with pytest.raises(FederationError, match="was stopped, or cannot be reached"):
            launch(Settings.from_tables(chosen), stop)
    finally:
        federation.start_superlink()
    federation.wait()


@pytest.mark.slow
def test_sites_with_rows_of_their_own_keep_the_model(federation, tables, own_rows):
    chosen = tables(data=own_rows, protect={"name": "ckks"})
    result = launch(Settings.from_tables(chosen)).result
    models = [learnt(SiteFolder(federation.site(name))) for name in CLIENTS]
    assert 0 < result["accuracy"] < 1  # on the rows that they keep aside
    assert not (Path(result["folder"]) / "model.safetensors").exists()
    assert {run for run, _ in models} == {result["run"]}
    assert len({model.to_bytes("safetensors") for _, model in models}) == 1


@pytest.mark.slow
def test_tuning_on_the_sites_own_rows(federation, tables, own_rows):
    settings = Settings.from_tables(tables(data=own_rows, protect={"name": "ckks"}))
    found = tune(settings, {"lam": [1e-3, 1e4]})
    assert [trial["error"] for trial in found["trials"]] == [None, None]
    assert found["score"] == max(trial["score"] for trial in found["trials"]) > 0.5
    assert launch(Settings.from_tables(read_toml(Path(found["file"])))).result["accuracy"] == found["score"]


@pytest.mark.slow
def test_no_wave_for_keys_where_the_roster_holds_exchange_keys(federation, tables):
    homes = {name: federation.site(name) for name in ("coordinator", *CLIENTS, "key-server")}
    before = {home: (home / "roster.toml").read_text() for home in homes.values()}
    known = {name: SiteFolder(homes[name]).exchange for name in CLIENTS}
    for home in before:
        roster = replace(SiteFolder(home).roster, exchanges=known)
        (home / "roster.toml").write_text(roster.to_toml())
    try:
        chosen = tables(protect={"name": "ckks"})
        result = launch(Settings.from_tables(chosen)).result
    finally:
        for home, text in before.items():
            (home / "roster.toml").write_text(text)
    steps = [wave["step"] for wave in result["ledger"]["waves"]]
    # Cells are counted, then the scale is settled, then the method sums; keys ride on these.
    before_adoption = steps[: steps.index("client.adopt_model")]
    assert before_adoption == ["client.enrol", "client.contribute", "client.contribute", "client.contribute"]
    ours, theirs = (weights(Path(found["folder"])) for found in (result, embedded(chosen).result))
    for name, value in theirs.items():
        assert np.allclose(ours[name], value, rtol=1e-5, atol=1e-7), name


@pytest.mark.slow
def test_a_demo_that_is_ended_leaves_nothing(tmp_path):
    process = subprocess.Popen(
        [sys.executable, EXAMPLES / "federation.py", "--home", "home", "--json"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 120
    while not list(tmp_path.glob("runs/*/events.jsonl")) and time.monotonic() < until:
        time.sleep(0.5)
    assert processes_of(tmp_path / "home" / "flower")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 130
    assert processes_of(tmp_path / "home" / "flower") == []
