"""Who is kept out of a running federation, and what a coordinator that lies is refused. Real processes.

Which of these is shown where is in the table of docs/operating.md.
"""

import http.client
import json
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tacit.deploy.certificates import write_certificates, write_node_key
from tests.helpers import lies
from tests.helpers.operated import Operated, wait_until

pytest.importorskip("flwr")
pytestmark = [pytest.mark.slow, pytest.mark.operations, pytest.mark.xdist_group("flower")]

ROOT = Path(__file__).parents[2]
SITES = ("north", "south", "west", "east")
METHOD = {"name": "fedavg", "rounds": 1, "hidden": 3, "batch": 0}
RUN = {"quorum": 0.7, "min_clients": 3, "min_count": 1, "baselines": False}
MEDDLER = f"{ROOT / 'tests' / 'helpers' / 'meddler'}:{ROOT / 'src'}:{ROOT}"
TRIES = 25.0  # seconds that a stranger gets to connect


@pytest.fixture(scope="module")
def fed(tmp_path_factory):
    # Counting rare classes would take two waves more.
    with Operated(tmp_path_factory.mktemp("intruders"), SITES, min_count="1") as found:
        yield found
    assert not [*found.left()]


@pytest.fixture(autouse=True)
def all_there(fed):
    for name in ("fed", *SITES):
        if name not in fed.running:
            fed.start(name)
    wait_until("all sites being connected", lambda: fed.online() == [*SITES], 300)


def copied(fed, name, of="north"):
    """Copy a site's folder, as somebody would who has stolen it."""
    folder = fed.folder / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(fed.folder / of, folder, ignore=shutil.ignore_patterns("flower", "*.log", "tacit.pid"))
    return folder


def started(fed, name):
    """Start what should not get in; return the command, and what it had said after a while."""
    process = fed.type("site", "start", name)
    until = time.monotonic() + TRIES
    while process.poll() is None and time.monotonic() < until:
        time.sleep(0.5)
    return process


def ended(process):
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    return out + err


class TestNodes:
    def test_an_unregistered_node(self, fed):
        stranger = copied(fed, "stranger")
        write_node_key(stranger / "node")
        process = started(fed, "stranger")
        nodes = json.loads(fed.tacit("federation", "status", "fed", "--json"))["sites"]
        assert [row["site"] for row in nodes] == [*SITES]
        said = ended(process) + fed.log("stranger")
        assert any(word in said for word in REFUSED_NODE), said[-2000:]

    def test_a_revoked_node(self, fed):
        """It is cut off at once and cannot connect again; the others go on without it."""
        fed.tacit("federation", "revoke-site", "fed", "east")
        try:
            wait_until("east being out", lambda: "east" not in fed.online())
            for site in SITES[:3]:
                fed.tacit("site", "update", site, "fed/roster.json")
            fed.kill("east")
            process = started(fed, "east")
            assert fed.online() == [*SITES[:3]]
            said = ended(process) + fed.log("east")
            assert any(word in said for word in REFUSED_NODE), said[-2000:]
            result = fed.submit(method=METHOD, protect={"name": "masked"}, run=RUN)
            assert result["clients"] == 3
        finally:
            self.back(fed)

    def back(self, fed):
        """Let the revoked site's place be taken by a new one, under another name."""
        path = fed.folder / "fed" / "federation.json"
        state = json.loads(path.read_text())
        state["members"]["east"]["active"] = True
        state["members"]["east"]["number"] = ""
        path.write_text(json.dumps(state))
        fed.tacit("federation", "add-site", "fed", "spare")
        fed.tacit("federation", "revoke-site", "fed", "spare")
        for site in SITES:
            fed.tacit("site", "update", site, "fed/roster.json")

    def test_two_nodes_with_the_same_key(self, fed):
        """A copy of a site's folder that is started elsewhere does not make a second contribution."""
        copied(fed, "twin")
        process = started(fed, "twin")
        try:
            assert fed.online() == [*SITES]
            result = fed.submit(method=METHOD, protect={"name": "masked"}, run=RUN)
            assert result["clients"] == 4
        finally:
            ended(process)


REFUSED_NODE = ("Permission denied", "PERMISSION_DENIED", "UNAUTHENTICATED", "not registered", "Unauthorized")


class TestWay:
    def test_a_wrong_authority(self, fed):
        folder = copied(fed, "misled")
        (folder / "other").mkdir()
        write_certificates(folder / "other")
        shutil.copy(folder / "other" / "ca.crt", folder / "ca.crt")
        assert "is not vouched for by" in fed.tacit("site", "start", "misled", code=5)
        assert "is not vouched for by" in fed.tacit("doctor", "misled", code=2)

    def test_whoever_answers_in_the_place_of_the_superlink(self, fed, tmp_path):
        """Somebody with another certificate at the SuperLink's address learns nothing of a site."""
        write_certificates(tmp_path)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
        heard = []
        with socket.create_server(("127.0.0.1", 0)) as listening:
            threading.Thread(target=accept, args=(listening, context, heard), daemon=True).start()
            folder = copied(fed, "lured")
            facts = json.loads((folder / "bundle.json").read_text())
            facts["address"] = f"127.0.0.1:{listening.getsockname()[1]}"
            (folder / "bundle.json").write_text(json.dumps(facts))
            assert "is not vouched for by" in fed.tacit("site", "start", "lured", code=5)
        assert not b"".join(heard)

    def test_plain_http(self, fed):
        """The SuperLink answers nobody without TLS, and a site speaks to nobody without."""
        host, _, port = fed.address.partition(":")
        plain = http.client.HTTPConnection(host, int(port), timeout=10)
        with pytest.raises((OSError, http.client.HTTPException)):
            plain.request("GET", "/")
            plain.getresponse()
        plain.close()
        server = subprocess.Popen(
            [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "0"],
            cwd=ROOT / "docs",
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={"PYTHONUNBUFFERED": "1"},
        )
        try:
            told = server.stdout.readline()
            folder = copied(fed, "lured")
            facts = json.loads((folder / "bundle.json").read_text())
            facts["address"] = "127.0.0.1:" + told.split("port ")[1].split()[0]
            (folder / "bundle.json").write_text(json.dumps(facts))
            assert "does not speak TLS" in fed.tacit("site", "start", "lured", code=6)
        finally:
            server.kill()
            server.wait()
            server.stdout.close()


def accept(listening, context, heard):
    while True:
        try:
            plain, _ = listening.accept()
            with plain, context.wrap_socket(plain, server_side=True) as connection:
                heard.append(connection.recv(1000))
        except ssl.SSLError:
            continue
        except OSError:
            return


class TestRuns:
    def test_a_run_that_the_operator_has_not_signed(self, fed, tmp_path):
        """Somebody reaches the SuperLink with all files of the operator but the coordinator's secret."""
        thief = fed.folder / "thief"
        shutil.copytree(
            fed.operator, thief, ignore=shutil.ignore_patterns("runs", "*.log", "tacit.pid", "*.db")
        )
        fed.tacit("federation", "init", "other", "--site", "north", "--address", fed.address)
        for name in ("coordinator.unlock", "coordinator/secret.key"):
            shutil.copy(fed.folder / "other" / name, thief / name)
        site = thief / "coordinator" / "site.toml"
        site.write_text(site.read_text().replace(str(fed.operator.absolute()), str(thief.absolute())))
        settings = fed.settings(method=METHOD, protect={"name": "masked"}, run=RUN)
        said = json.loads(fed.tacit("submit", "thief", settings, "--json", "-q", code=4).splitlines()[0])
        assert "signed by nobody whom this site has pinned" in said["error"]["text"]
        assert all(name in said["error"]["text"] for name in ("north", "south"))

    def test_a_run_that_the_sites_policy_does_not_accept(self, fed):
        told = fed.submit(4, method=METHOD, protect={"name": "plain"}, run=RUN)
        assert "protections" in told["text"] and "plain" in told["text"]
        told = fed.submit(4, method=METHOD, protect={"name": "masked"}, run={**RUN, "min_clients": 2})
        assert "min_clients" in told["text"]

    @pytest.mark.parametrize("lie", lies.LIES)
    def test_a_coordinator_that_lies(self, fed, lie):
        """The coordinator is the installed one, changed where it sends: tests/helpers/lies.py."""
        told = fed.folder / f"told-{lie}"
        variables = {"PYTHONPATH": MEDDLER, "TACIT_LIE": lie, "TACIT_LIE_TOLD": str(told)}
        fed.stop("fed")
        fed.start("fed", **variables)
        try:
            wait_until("all sites being connected", lambda: fed.online() == [*SITES], 300)
            settings = fed.settings(method=METHOD, protect={"name": "masked"}, run=RUN)
            process = fed.type("submit", "fed", settings, "--json", "-q", **variables)
            out, err = process.communicate(timeout=600)
        finally:
            fed.stop("fed")
        said = out + err + (told.read_text() if told.exists() else "")
        assert lies.REFUSALS[lie] in said
