"""Who is kept out of a running federation, and what a coordinator that lies is refused. Real processes.

Which of these is shown where is in the table of docs/operating.md.
"""

import http.client
import json
import shutil
import socket
import ssl
import subprocess
import sys
import threading
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
REFUSED = "refuses this node"


@pytest.fixture(scope="module")
def fed(tmp_path_factory):
    # Counting rare classes would take two waves more.
    with Operated(tmp_path_factory.mktemp("intruders"), SITES, started=False, min_count="1") as found:
        found.start("fed", **meddling(found))
        found.start(*SITES)
        yield found
    assert not [*found.left()]


def meddling(fed):
    """Return variables by which the coordinator's process lies, as soon as a lie is written down."""
    told = {"TACIT_LIE": str(fed.folder / "lie"), "TACIT_LIE_TOLD": str(fed.folder / "told")}
    return {"PYTHONPATH": MEDDLER, **told}


@pytest.fixture(autouse=True)
def all_there(fed):
    for name in ("fed", *SITES):
        if name not in fed.running:
            fed.start(name, **(meddling(fed) if name == "fed" else {}))
    wait_until("all sites being connected", lambda: fed.online() == [*SITES], 300)


def copied(fed, name, of="north"):
    """Copy a site's folder, as somebody would who has stolen it."""
    folder = fed.folder / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(fed.folder / of, folder, ignore=shutil.ignore_patterns("flower", "*.log", "tacit.pid"))
    return folder


class TestNodes:
    def test_an_unregistered_node(self, fed):
        write_node_key(copied(fed, "stranger") / "node")
        assert REFUSED in fed.tacit("site", "start", "stranger", code=6)
        nodes = json.loads(fed.tacit("federation", "status", "fed", "--json"))["sites"]
        assert [row["site"] for row in nodes] == [*SITES]

    def test_a_revoked_node(self, fed):
        """It is cut off at once and cannot connect again; the others go on without it."""
        fed.tacit("federation", "add-site", "fed", "guest")
        rows = ("--data", "north.csv", "--target", "outcome")
        fed.tacit("site", "join", "fed/bundles/guest.bundle", *rows)
        fed.start("guest")
        wait_until("the guest being connected", lambda: "guest" in fed.online())
        fed.tacit("federation", "revoke-site", "fed", "guest")
        assert fed.running.pop("guest").wait(60) == 6
        assert REFUSED in (fed.folder / "guest.out").read_text()
        for site in SITES:
            fed.tacit("site", "update", site, "fed/roster.json")
        assert REFUSED in fed.tacit("site", "start", "guest", code=6)
        assert fed.online() == [*SITES]
        assert fed.submit(method=METHOD, protect={"name": "masked"}, run=RUN)["clients"] == len(SITES)

    def test_two_nodes_with_the_same_key(self, fed):
        """A copy of a site's folder that is started elsewhere is not let in as long as the site is there."""
        copied(fed, "twin")
        assert REFUSED in fed.tacit("site", "start", "twin", code=6)
        assert fed.online() == [*SITES]


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
            listening.shutdown(socket.SHUT_RDWR)
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
            fed.operator,
            thief,
            ignore=shutil.ignore_patterns("runs", "*.log", "tacit.pid", "*.db", "audit.*"),
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
        (fed.folder / "lie").write_text(lie)
        settings = fed.settings(method=METHOD, protect={"name": "masked"}, run=RUN)
        try:
            process = fed.type("submit", "fed", settings, "--json", "-q", **meddling(fed))
            said = "".join(process.communicate(timeout=600))
        finally:
            (fed.folder / "lie").unlink()
        told = fed.folder / "told"
        if told.exists():
            said += told.read_text()
            told.unlink()
        assert lies.REFUSALS[lie] in said
