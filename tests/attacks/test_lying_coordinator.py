"""A coordinator that lies to deployed sites, as in tests/e2e/test_intruders.py, but without Flower."""

import json
from contextlib import contextmanager

import numpy as np
import pytest

from tacit.core.errors import TacitError
from tacit.deploy.launch import DeployedFederation, encode_settings
from tacit.engines.policy import Policy
from tacit.runs.job import execute
from tacit.runs.settings import Settings
from tests.helpers import lies
from tests.helpers.deployed import SiteEngine, make_sites

SITES = ("north", "south", "west", "east")


@pytest.mark.parametrize("lie", lies.LIES)
def test_it_is_refused(lie, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    rows = {name: (rng.normal(size=(30, 3)), rng.integers(0, 2, 30)) for name in SITES}
    folders = make_sites(tmp_path, rows, policy=Policy(min_count=1))
    tables = {
        "data": {"name": "sites"},
        "method": {"name": "fedavg", "rounds": 1, "hidden": 2, "batch": 0},
        "protect": {"name": "masked"},
        "run": {"quorum": 0.7, "min_clients": 3, "min_count": 1, "out": str(tmp_path / "runs")},
        "flower": {"coordinator": str(folders["coordinator"].path)},
    }
    settings, told = Settings.from_tables(tables), tmp_path / "told"
    monkeypatch.setenv("TACIT_LIE_TOLD", str(told))
    monkeypatch.setattr(lies, "_seen", {})
    engine = SiteEngine({name: folders[name].path for name in SITES}, encode_settings(settings))

    class Lying(SiteEngine):
        pass

    with monkeypatch.context() as patch:
        patch.setattr(lies.Coordinator, "__init__", lies.Coordinator.__init__)  # put back afterwards
        lies.install(Lying, lie)
        engine.__class__ = Lying

        class Federation(DeployedFederation):
            @contextmanager
            def _engine(self, manifest, components):
                yield engine

        try:
            found = execute(settings, federation=Federation(settings, folders["coordinator"], None)).result
            said = json.dumps(found["failures"])
        except TacitError as error:
            said = str(error)
    said += told.read_text() if told.exists() else ""
    assert lies.REFUSALS[lie] in said
