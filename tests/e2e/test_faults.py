"""What a running federation survives: killed processes, slow sites, full disks. Real processes on loopback.

One federation of four sites serves all tests. Its runs train without batches and without rows kept aside, so
that the model is the one of the embedded engine on the same files, whatever happened on the way.
"""

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from tests.helpers.operated import Operated, wait_until

pytest.importorskip("flwr")
pytestmark = [pytest.mark.slow, pytest.mark.operations, pytest.mark.xdist_group("flower")]

SITES = ("north", "south", "west", "east")
METHOD = {"name": "fedavg", "rounds": 4, "hidden": 3, "batch": 0}
RUN = {"quorum": 0.7, "min_clients": 3, "min_count": 1, "baselines": False}
DISK = "24m"  # of a site, and of the coordinator's run folders, where a tmpfs can be mounted


@pytest.fixture(scope="module")
def disks(tmp_path_factory):
    """The federation's folder; the site ``west`` and the run folders have small disks, if that is allowed."""
    home = tmp_path_factory.mktemp("faults")
    small = []
    for path in (home / "west", home / "fed" / "runs"):
        path.mkdir(parents=True)
        words = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "tmpfs", str(path)]
        if os.geteuid() == 0 and subprocess.run(words, capture_output=True, check=False).returncode == 0:
            small.append(path)
    yield home, small
    for path in small:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture(scope="module")
def fed(disks):
    home, _ = disks
    # Counting rare classes would take two waves more.
    with Operated(home, SITES, min_count="1") as found:
        yield found
    assert not [*found.left()]


@pytest.fixture(autouse=True)
def all_there(fed):
    """Every test begins with all sites connected."""
    for name in ("fed", *SITES):
        if name not in fed.running:
            fed.start(name)
    wait_until("all sites being connected", lambda: len(fed.online()) == len(SITES), 300)


@pytest.fixture(scope="module")
def reference(fed):
    """The model that the embedded engine learns from the same files."""
    data = {"name": [f"{site}.csv" for site in SITES], "target": "outcome", "test": 0.0}
    fed.settings("embedded.toml", data=data, method=METHOD, protect={"name": "masked"}, run=RUN)
    return json.loads(fed.tacit("run", "embedded.toml", "--json", "-q", "--out", "embedded"))


def follow(fed, process, deeds):
    """Do each deed once its number of totals of changes is open; return how many sites were in each."""
    deeds, before = list(deeds), {*fed.operator.glob("runs/*")}
    opened = []
    while process.poll() is None or deeds:
        assert process.poll() is None or not deeds, process.communicate()
        fresh = {*fed.operator.glob("runs/*")} - before
        opened = [event["contributors"] for event in events(fresh) if is_change(event)]
        if deeds and len(opened) >= deeds[0][0] and deeds[0][1](opened):
            deeds.pop(0)
        time.sleep(0.1)
    fresh = {*fed.operator.glob("runs/*")} - before
    return [event["contributors"] for event in events(fresh) if is_change(event)]


def events(folders):
    for folder in folders:
        path = folder / "events.jsonl"
        for line in path.read_text().splitlines(keepends=True) if path.is_file() else ():
            if line.endswith("\n"):
                yield json.loads(line)


def is_change(event):
    return event["event"] == "TotalOpened" and event["contribution"] == "update"


def submitted(fed, **tables):
    given = {"method": METHOD, "protect": {"name": "masked"}, "run": RUN}
    return fed.type("submit", "fed", fed.settings(**{**given, **tables}), "--json", "-q")


def answer(process, code=0):
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, out[-2000:] + err[-2000:]
    return json.loads(out)


def rounds_of(fed, result):
    """Return the rounds of a run, as its folder has them."""
    whole = json.loads((fed.folder / result["folder"] / "result.json").read_text())
    return [entry["round"] for entry in whole["rounds"]]


def test_a_site_is_killed_in_a_round_and_comes_back(fed):
    """The round goes on without it, as masked sums promise; once back, it is in the totals again."""
    process = submitted(fed, method={**METHOD, "rounds": 9})
    deeds = [
        (1, lambda opened: fed.kill("east")),
        (2, lambda opened: 3 in opened and (fed.start("east") or True)),
    ]
    opened = follow(fed, process, deeds)
    result = answer(process)
    assert opened[0] == opened[-1] == 4
    assert 3 in opened
    assert {*opened} == {3, 4}
    assert rounds_of(fed, result) == list(range(1, 10))
    assert "east" in json.dumps(result["failures"])


def test_too_many_are_killed_and_the_run_ends_as_it_says(fed):
    """With two of four gone no total may open: exit code 4, and it names who is missing."""
    process = submitted(fed)
    follow_deeds = [(1, lambda opened: [fed.kill("east"), fed.kill("north")])]
    follow(fed, process, follow_deeds)
    told = answer(process, code=4)["error"]
    assert told["type"] == "QuorumError"
    assert "north" in told["text"] and "east" in told["text"]


def test_coordinator_and_superlink_are_killed_and_the_run_goes_on(fed, reference):
    """Nothing is lost and nothing counted twice: the model is that of an undisturbed run, to the last bit."""
    process, run = submitted(fed), []

    def kill_the_coordinator(opened):
        run[:] = [path.parent.name for path in fed.operator.glob("runs/*/checkpoint.bin")]
        if run:
            fed.kill("fed", b"serverapp")  # where Flower runs the coordinator's half
            process.kill()  # where the command itself does
        return run

    follow(fed, process, [(1, kill_the_coordinator)])
    process.communicate()
    process = fed.type("resume", run[0], "--out", "fed/runs", "--json")
    path = fed.operator / "runs" / run[0] / "checkpoint.bin"
    before = path.read_bytes()
    wait_until("another round", lambda: path.is_file() and path.read_bytes() != before, 300)
    fed.kill("fed")
    fed.start("fed")  # the command that leads the run waits for it, and so do the sites
    result = answer(process)
    assert result["run"] == run[0]
    assert result["model"] == reference["model"]
    assert rounds_of(fed, result) == [1, 2, 3, 4]


def stand_still(fed, name, seconds):
    """Stop the processes of a site, and let them go on after a while."""
    still = fed.processes(name)
    for number in still:
        os.kill(number, signal.SIGSTOP)

    def go_on():
        for number in still:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGCONT)

    timer = threading.Timer(seconds, go_on)
    timer.start()
    return timer


def test_a_slow_site_is_waited_for(fed, reference):
    process = submitted(fed)
    opened = follow(fed, process, [(1, lambda opened: stand_still(fed, "south", 20))])
    assert answer(process)["model"] == reference["model"]
    assert opened == [4, 4, 4, 4]


def test_a_site_that_is_too_slow_is_left_out(fed):
    """A step may take so long, and a minute for the way; the round goes on without it."""
    process, timers = submitted(fed, run={**RUN, "timeout": 10.0}), []

    def stop_it(opened):
        timers.append(stand_still(fed, "south", 150))
        return True

    opened = follow(fed, process, [(1, stop_it)])
    result = answer(process)
    timers[0].join()
    assert opened[0] == 4 and 3 in opened
    assert {failure["party"] for failure in result["failures"]} == {"south"}


def fill(folder):
    """Leave no room on a small disk."""
    path = folder / "ballast"
    with path.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(4096))
    return path


def test_a_full_disk_at_a_site(fed, disks):
    """It answers nothing that it could not write down, says so, and is back once there is room."""
    if len(disks[1]) < 2:
        pytest.skip("a small disk cannot be mounted here: that takes root on Linux")
    ballast = fill(fed.folder / "west")
    try:
        result = answer(submitted(fed, method={**METHOD, "rounds": 1}))
    finally:
        ballast.unlink()
    assert {failure["party"] for failure in result["failures"]} == {"west"}
    assert "make room" in json.dumps(result["failures"])
    result = answer(submitted(fed, method={**METHOD, "rounds": 1}))
    assert result["failures"] == []


def test_a_full_disk_at_the_coordinator(fed, disks, reference):
    """The run stops and says why; it goes on once there is room, to the same model."""
    if len(disks[1]) < 2:
        pytest.skip("a small disk cannot be mounted here: that takes root on Linux")
    runs = fed.operator / "runs"
    for old in runs.glob("*"):
        shutil.rmtree(old)
    process, ballast = submitted(fed), []

    def fill_it(opened):
        return [*runs.glob("*/checkpoint.bin")] and ballast.append(fill(runs)) is None

    follow(fed, process, [(1, fill_it)])
    out, err = process.communicate(timeout=300)
    Path(ballast[0]).unlink()
    assert process.returncode != 0
    assert "No space left on device" in out + err
    (run,) = [path.parent.name for path in runs.glob("*/checkpoint.bin")]
    result = json.loads(fed.tacit("resume", run, "--out", "fed/runs", "--json"))
    assert result["model"] == reference["model"]


# -- certificates and clocks -----------------------------------------------------------------------


@pytest.fixture
def expired(tmp_path):
    """A federation of one site, whose certificate has expired."""
    with Operated(tmp_path, ["lone"], started=False) as found:
        folder = found.operator
        issuer = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
        old = x509.load_pem_x509_certificate((folder / "server.pem").read_bytes())
        begin = issuer.not_valid_before_utc - timedelta(days=400)
        made = x509.CertificateBuilder(old.issuer, old.subject, old.public_key(), old.serial_number)
        made = made.not_valid_before(begin).not_valid_after(begin + timedelta(days=365))
        for extension in old.extensions:
            made = made.add_extension(extension.value, extension.critical)
        authority = load_pem_private_key((folder / "ca.key").read_bytes(), None)
        signed = made.sign(authority, hashes.SHA256())
        (folder / "server.pem").write_bytes(signed.public_bytes(Encoding.PEM))
        yield found


def test_an_expired_certificate(expired):
    """Sites say nothing to a SuperLink whose certificate has expired; doctor tells how to mend it."""
    assert "server.pem has expired: `tacit federation rotate`" in expired.tacit("doctor", "fed", code=2)
    with served(expired):
        said = expired.tacit("site", "start", "lone", code=5)
        assert "certificate has expired" in said
        assert "certificate has expired" in expired.tacit("doctor", "lone", code=2)
    expired.tacit("federation", "rotate", "fed")
    expired.start("fed")
    expired.start("lone")
    wait_until("the site being connected", lambda: expired.online() == ["lone"])


@contextmanager
def served(fed):
    """Answer at the SuperLink's address, over TLS, with the certificate that is there."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(fed.operator / "server.pem", fed.operator / "server.key")
    host, _, port = fed.address.partition(":")
    with socket.create_server((host, int(port))) as listening:

        def serve():
            while True:
                try:
                    plain, _ = listening.accept()
                    with plain, context.wrap_socket(plain, server_side=True):
                        pass
                except ssl.SSLError:
                    continue
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        listening.shutdown(socket.SHUT_RDWR)  # else the thread goes on to accept
        thread.join()


@pytest.mark.parametrize("seconds", [600, -600])
def test_a_clock_that_is_ten_minutes_off(fed, seconds, tmp_path):
    """Such a site is not let in, since its messages could be old ones; doctor says why. It is when mended."""
    if shutil.which("cc") is None:
        pytest.skip("a clock that is off takes a C compiler")
    shim, source = tmp_path / "clock.so", Path(__file__).parents[1] / "helpers" / "clock.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(shim), str(source), "-ldl"], check=True)
    off = {"LD_PRELOAD": str(shim), "TACIT_CLOCK": str(seconds)}
    findings = json.loads(fed.tacit("doctor", "south", "--json", code=2, **off).splitlines()[0])["findings"]
    (clock,) = [found for found in findings if found["what"] == "clock"]
    assert not clock["fine"] and "follow a time server" in clock["text"]
    assert 590 < float(clock["text"].split()[0]) < 610
    fed.stop("south")
    said = fed.tacit("site", "start", "south", code=6, **off)
    assert "refuses this node" in said and "clocks differ" in said
    fed.start("south")
    wait_until("the site being connected", lambda: "south" in fed.online())
