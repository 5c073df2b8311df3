"""A stranger who reaches the SuperLink ships an app of his own, whose code writes a file where it runs.

With Flower's own programs it runs at the coordinator and at the site. Here nothing that arrives is installed
or imported, whoever sends it: not by a stranger at the sites' port, not by one on the coordinator's machine,
and not even by an operator who would like to run code at the sites.
"""

import io
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("flwr")

import httpx
import msgspec
from flwr.app import ConfigRecord, RecordDict
from flwr.app import Message as FlowerMessage

from examples.federation import LocalFederation
from tacit.core.errors import FederationError, UnavailableError
from tacit.core.message import Message
from tacit.deploy import control
from tacit.deploy.certificates import write_certificates, write_node_key
from tacit.deploy.connection import ACCESS, Access
from tacit.deploy.control import Control
from tacit.deploy.node import Node
from tacit.deploy.processes import QUIET, environment_of, free_port, listens
from tacit.engines.audit import AuditLog
from tacit.engines.flower import pack, unpack

pytestmark = [pytest.mark.operations, pytest.mark.xdist_group("flower")]

APP = """
import os, pathlib, time
marks = pathlib.Path({marks!r})
(marks / f"imported-{{os.getpid()}}").write_text("here")

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()
server = ServerApp()

@client.train()
def train(message, context):
    (marks / "site").write_text("here")
    return Message(RecordDict({{"x": ConfigRecord()}}), reply_to=message)

@server.main()
def main(grid, context):
    (marks / "coordinator").write_text("here")
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(0.5)
    asked = [Message(RecordDict({{"x": ConfigRecord()}}), dst_node_id=n, message_type="train") for n in nodes]
    grid.send_and_receive(asked, timeout=60)
"""
PROJECT = """
[project]
name = "stranger"
version = "1.0.0"
description = "writes files"
dependencies = []
[tool.flwr.app]
publisher = "stranger"
[tool.flwr.app.components]
serverapp = "strange.app:server"
clientapp = "strange.app:client"
[tool.flwr.app.config]
settings = ""
"""
FLWR = [sys.executable, "-c", "import sys; sys.argv[0] = 'flwr'; from flwr.cli.app import app; app()"]


class Stranger:
    """Somebody with an app of his own, and Flower's command."""

    def __init__(self, folder):
        self.folder, self.marks, self.app = folder, folder / "marks", folder / "app"
        self.marks.mkdir(parents=True)
        (self.app / "strange").mkdir(parents=True)
        (self.app / "pyproject.toml").write_text(PROJECT)
        (self.app / "README.md").write_text("An app.\n")
        (self.app / "strange" / "__init__.py").write_text("")
        (self.app / "strange" / "app.py").write_text(APP.format(marks=str(self.marks)))

    def flwr(self, link, *words):
        """Type a command of Flower's at a SuperLink."""
        home = self.folder / "flower"
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text(f'[superlink]\ndefault = "x"\n\n[superlink.x]\n{link}\n')
        environment = {**os.environ, **QUIET, "FLWR_HOME": str(home)}
        done = subprocess.run(
            [*FLWR, *words], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def run(self, link):
        return self.flwr(link, "run", str(self.app))

    def packed(self):
        """The app as it travels."""
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as file:
            for path in self.app.rglob("*.*"):
                file.write(path, path.relative_to(self.app))
        return packed.getvalue()

    def left(self):
        """The marks that his code has left."""
        return {path.name.split("-")[0] for path in self.marks.iterdir()}


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with LocalFederation(tmp_path_factory.mktemp("federation"), ["client-1"]) as found:
        yield found


@pytest.fixture
def stranger(tmp_path):
    return Stranger(tmp_path / "stranger")


@pytest.mark.slow
def test_flowers_own_programs_run_what_a_stranger_sends(tmp_path, stranger):
    """The control: without it the tests below would show nothing."""
    home, port = tmp_path / "home", free_port()
    (home / "flower").mkdir(parents=True)
    write_certificates(home)
    public = write_node_key(home / "node")
    tls = ["--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.pem", "--ssl-keyfile", "server.key"]
    link = f'address = "127.0.0.1:{port}"\nroot-certificates = "{home / "ca.crt"}"'
    environment = environment_of(home / "flower")
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    running = []

    def start(module, *words):
        name = module.rsplit(".", 1)[1]
        code = f"import sys; sys.argv[0] = {name!r}; from {module} import {name}; {name}()"
        with (tmp_path / f"{name}.log").open("wb") as log:
            words = [sys.executable, "-c", code, *map(str, words)]
            running.append(
                subprocess.Popen(
                    words, cwd=home, env=environment, stdout=log, stderr=log, start_new_session=True
                )
            )

    def until(ready, seconds=120):
        end = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < end, [path.read_text()[-2000:] for path in tmp_path.glob("*.log")]
            time.sleep(0.2)

    try:
        start(
            "flwr.superlink.cli.flower_superlink",
            *tls,
            *("--enable-supernode-auth", "--disable-runtime-dependency-installation", "--port", port),
        )
        until(lambda: listens(port))
        assert stranger.flwr(link, "supernode", "register", str(public))[0] == 0
        node = ["--superlink", f"127.0.0.1:{port}", "--root-certificates", "ca.crt"]
        node += ["--auth-supernode-private-key", "node", "--port", free_port()]
        start("flwr.supernode.cli.flower_supernode", *node)
        code, said = stranger.run(link)
        assert code == 0, said
        until(lambda: {"coordinator", "site", "imported"} <= stranger.left())
    finally:
        for process in running:
            os.killpg(process.pid, signal.SIGTERM)
        for process in running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def assert_nothing_ran(stranger, seconds=4.0):
    """Longer than a node waits at most between two looks, nothing of the app has been imported."""
    time.sleep(seconds)
    assert stranger.left() == set()


def test_a_stranger_at_the_sites_port_finds_no_control(federation, stranger):
    link = f'address = "127.0.0.1:{federation.port}"\nroot-certificates = "{federation.home / "ca.crt"}"'
    code, said = stranger.run(link)
    assert code != 0
    assert "404" in said
    with httpx.Client(verify=ssl.create_default_context(cafile=federation.home / "ca.crt")) as client:
        base = f"https://127.0.0.1:{federation.port}"
        for path in (
            "control/start-run",
            "control/register-node",
            "runtime/acquire-task",
            "fleet/../control/x",
        ):
            assert client.post(f"{base}/v1/{path}", content=b"").status_code == 404
        for path in ("/docs", "/openapi.json", "/", "//v1/control/start-run"):
            assert client.get(base + path).status_code == 404
        # Of the Fleet API, nothing answers whoever has no registered key.
        headers = {"content-type": "application/protobuf"}
        told = client.post(f"{base}/v1/fleet/pull-messages", content=b"", headers=headers)
        assert told.status_code in (400, 401, 403, 422)
    assert_nothing_ran(stranger, 1.0)


def test_a_stranger_on_the_coordinators_machine_has_no_token(federation, stranger, tmp_path):
    home = federation.home / "flower"
    port = Access.read(home).port
    assert (home / ACCESS).stat().st_mode & 0o777 == 0o600
    code, said = stranger.run(f'address = "127.0.0.1:{port}"\ninsecure = true')
    assert code != 0
    assert "uthenticat" in said
    (tmp_path / ACCESS).write_bytes(msgspec.json.encode(Access(port, "0" * 64)))
    with Control(tmp_path) as asked, pytest.raises(FederationError):
        asked.nodes()
    with Control(tmp_path) as asked, pytest.raises(FederationError), asked.run("{}"):
        pass
    assert_nothing_ran(stranger, 1.0)


def test_a_node_that_nobody_registered_is_refused(federation, tmp_path, monkeypatch):
    write_node_key(tmp_path / "node")
    node = Node(f"127.0.0.1:{federation.port}", federation.home / "ca.crt", tmp_path / "node")
    monkeypatch.setattr("tacit.deploy.node.HEARTBEAT_PATIENCE", -0.5)  # how long a crashed node would wait
    with pytest.raises(UnavailableError, match="refuses this node"):
        node.serve(lambda *asked: b"", lambda: pytest.fail("it is connected"), AuditLog(tmp_path))


def test_an_operator_cannot_run_code_at_the_sites(federation, stranger, monkeypatch):
    """His token lets him start any app; sites answer its messages with a refusal, and never fetch the app."""
    monkeypatch.setattr(control, "make_app", stranger.packed)
    with (
        Control(federation.home / "flower") as asked,
        asked.run(json.dumps({"data": {"name": "sites"}})) as grid,
    ):
        (node,) = [node.node_id for node in grid.get_nodes()]
        empty = RecordDict({"x": ConfigRecord()})
        messages = [
            FlowerMessage(empty, dst_node_id=node, message_type="train"),
            FlowerMessage(empty, dst_node_id=node, message_type="query.tacit"),
            FlowerMessage(pack(b"not ours", b""), dst_node_id=node, message_type="query.tacit"),
        ]
        waiting = {number: number for number in grid.push_messages(messages)}
        reasons, end = [], time.monotonic() + 60
        while waiting and time.monotonic() < end:
            for reply in grid.pull_messages(list(waiting)):
                waiting.pop(reply.metadata.reply_to_message_id)
                reasons.append(str(Message.decode(unpack(reply.content)[0])["$failure"]))
            time.sleep(0.1)
    assert len(reasons) == 3
    assert sum("not Tacit's" in reason for reason in reasons) == 2
    assert_nothing_ran(stranger)
    logs = (federation.home / "superlink.log").read_text()
    assert "get-fab" not in logs.lower()
    assert "GetFab" not in logs
