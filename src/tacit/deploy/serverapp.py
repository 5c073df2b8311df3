"""The ServerApp of every method: the coordinator's half of a run, on the SuperLink's machine.

Its configuration (``--run-config``) carries the run's settings, its id, the folder for run folders and that of
the coordinator's keys; what the run gives is written to its run folder, as on the embedded engine.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from tacit.core.errors import TacitError
from tacit.deploy.answer import settings_of
from tacit.deploy.federation import DeployedFederation
from tacit.engines.sitefolder import SiteFolder
from tacit.runs.job import execute

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one job."""
    config = context.run_config
    settings = settings_of(config)
    settings = replace(settings, run=replace(settings.run, out=str(config["out"])))
    federation = DeployedFederation(settings, SiteFolder(Path(str(config["coordinator"]))), grid)
    try:
        execute(settings, federation=federation, run=str(config["run"]))
    except TacitError as error:
        # Whole and with its code it is in the run folder; Flower's log gets what everybody may know.
        raise RuntimeError(f"{type(error).__name__}: {error.public}") from None
