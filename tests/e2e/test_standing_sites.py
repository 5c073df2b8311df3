"""The life of a standing federation on Flower: real processes, real files, and commands that people type."""

import json
import os
import signal
import time
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from tacit import Federation
from tacit.core.errors import DifferencingError
from tacit.data.files import load
from tacit.deploy.launch import leading
from tacit.deploy.site import learnt
from tacit.engines.audit import AuditLog
from tacit.engines.sitefolder import SiteFolder
from tacit.runs.settings import Settings
from tacit.standing import Standing, read
from tests.helpers.operated import Operated

pytestmark = [pytest.mark.slow, pytest.mark.operations]
SITES = ("north", "south", "west", "east")
TERMS = ("--founders", 3, "--min-clients", 2)


@pytest.fixture
def operated(tmp_path):
    with Operated(tmp_path, SITES, standing="true", min_clients="2") as found:
        yield found


def fedheonn(operated, *words, code=0):
    said = operated.tacit("fedheonn", *words, "--json", code=code)
    return json.loads(said[said.index("{") : said.rindex("}") + 1])


def embedded(folder, names):
    """The model of these sites' files in an embedded standing federation, founded by the same three."""
    tables = {name: load(folder / f"{name}.csv", target="outcome") for name in SITES}
    with Standing.start(
        folder / "embedded", Federation.of(tables), protect="bfv", min_clients=2, founders=3
    ) as standing:
        standing.add(names)
        return standing.weights().weights


def did(folder, site):
    records = AuditLog(folder / site).records()
    return [record["standing"]["did"] for record in records if record.get("standing")]


def test_a_whole_life_with_kills(operated, tmp_path):
    status = fedheonn(operated, "start", "state", "--federation", "fed", *TERMS)
    assert (status["protect"], status["founders"], status["contributions"]) == ("bfv", 3, 0)
    assert "standing True" in operated.tacit("federation", "status", "fed", "--json")
    said = fedheonn(operated, "add", "state", "north", "south", "west")
    assert [receipt["new"] for receipt in said["receipts"]] == [True] * 3
    first = fedheonn(operated, "weights", "state")
    assert first["holders"] == ["north", "south", "west"] and "weights" not in first
    # A site is killed, and so is the command that asks another one, wherever it is.
    operated.kill("south")
    operated.start("south")
    for seconds in (2.0, 4.0, 6.0):
        asking = operated.type("fedheonn", "add", "state", "east", "--json")
        time.sleep(seconds)
        os.killpg(asking.pid, signal.SIGKILL)
        asking.wait()
    operated.kill("fed")
    operated.start("fed")
    fedheonn(operated, "withdraw", "state", "north")
    before = fedheonn(operated, "status", "state")
    assert before["contributions"] in (2, 3)  # one of the commands may have come to its end
    fedheonn(operated, "add", "state", "east")
    assert fedheonn(operated, "add", "state", "south")["receipts"][0]["new"] is False
    second = fedheonn(operated, "weights", "state")
    assert second["holders"] == ["south", "west", "east"] and second["openings"] == 2
    expected = embedded(tmp_path, ["south", "west", "east"])
    for name in second["holders"]:
        found = learnt(SiteFolder(tmp_path / name))[1].weights
        np.testing.assert_allclose(found, expected, atol=1e-9)
    assert did(tmp_path, "north") == ["contributed", "opened", "withdrew"]
    assert did(tmp_path, "south") == ["contributed", "opened", "opened"]
    operated.tacit("site", "export", "south", "--to", "model.safetensors")
    operated.tacit("audit-log", "verify", "south")
    # One more site leaves: the coordinator's own book refuses, and without it the sites do.
    fedheonn(operated, "withdraw", "state", "east")
    refused = fedheonn(operated, "weights", "state", code=5)
    assert refused["error"]["type"] == "OpeningError"
    check_lies(tmp_path)


def check_lies(folder):
    """Ask as a coordinator that keeps no rule, with the keys that the sites know."""
    settings = Settings.from_tables(read(folder / "state")[1])
    with leading(settings) as federation, Standing.open(folder / "state", federation) as standing:
        skipped = mock.patch("tacit.standing.standing.check_opening", lambda *_: 2)
        with skipped, pytest.raises(DifferencingError, match="differ by 1 client"):
            standing.open_at_sites()
        coordinator, failures = standing.coordinator(), {}
        transport, call = coordinator.link.transport, coordinator._enrolment._invitation()
        weaker = replace(standing.manifest, min_clients=1)
        changed = {**call, "manifest": weaker.to_message().encode()}
        transport.manifest = weaker
        list(transport.wave("client.enrol", ("east",), changed, failures=failures))
        assert "is signed by nobody whom this site has pinned" in failures["east"]
