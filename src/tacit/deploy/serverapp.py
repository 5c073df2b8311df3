"""The ServerApp of every method: the coordinator's half of a run, on the SuperLink's machine.

Its configuration (``--run-config``) carries the run's settings, its id, the folder for run folders, that of
the coordinator's keys, whether it goes on with a run that was stopped, and by which word whoever launched it
knows its result; what the run gives is written to its run folder, as on the embedded engine.
"""

from dataclasses import replace
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from tacit.core.errors import TacitError
from tacit.deploy.answer import settings_of
from tacit.deploy.federation import DeployedFederation
from tacit.deploy.launch import result_of
from tacit.engines.sitefolder import SiteFolder
from tacit.runs.checkpoint import read_checkpoint
from tacit.runs.folder import RunFolder
from tacit.runs.job import execute, facts

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one job."""
    config = {key: str(value) for key, value in context.run_config.items()}
    try:
        settings = settings_of(config)
        settings = replace(
            settings,
            run=replace(settings.run, out=config["out"]),
            flower=replace(settings.flower, coordinator=config["coordinator"]),
        )
        federation = DeployedFederation(settings, SiteFolder(config["coordinator"]), grid)
        resume = read_checkpoint(config["run"], config["out"]) if config.get("resume") else None
        execute(
            settings, federation=federation, run=config["run"], resume=resume, launch=config.get("launch", "")
        )
    except TacitError as error:
        _tell(config, error)
        # Flower's log gets what everybody may know; the rest is in the run folder.
        raise RuntimeError(f"{type(error).__name__}: {error.public}") from None


def _tell(config: dict[str, str], error: TacitError) -> None:
    """Write why a run did not even begin, if its run folder does not say it yet."""
    run, launch = config["run"], config.get("launch", "")
    folder = RunFolder(Path(config["out"]) / run)
    if result_of(folder, launch) is None:
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.write_json("result.json", {"run": run, "launch": launch, "error": facts(error)})
