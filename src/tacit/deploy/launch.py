"""Running a job on a running Flower federation: the coordinator's half is in this process."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import msgspec

from tacit.core.errors import UnavailableError
from tacit.core.events import Subscriber
from tacit.deploy.connection import probe, read_connection
from tacit.deploy.federation import DeployedFederation
from tacit.engines.sitefolder import SiteFolder
from tacit.runs.checkpoint import Checkpoint
from tacit.runs.job import Finished, execute
from tacit.runs.settings import Settings
from tacit.runs.sinks import check_sinks
from tacit.runs.tune import Space, keeping_aside
from tacit.runs.tune import tune as search_settings


@contextmanager
def leading(settings: Settings, environment: Mapping[str, str]) -> Iterator[DeployedFederation]:
    """Lead a run of these settings at the running SuperLink, within the block."""
    check_flower()
    settings.check()
    check_sinks(settings.run.sinks)
    coordinator = SiteFolder(settings.flower.coordinator)
    provisioned = coordinator.path.absolute().parent / "flower"
    if "FLWR_HOME" not in environment and provisioned.is_dir():
        environment = {**environment, "FLWR_HOME": str(provisioned)}
    coordinator.secret  # noqa: B018  # locked, it could greet nobody
    # What nobody could learn from is refused here, before anything is sent.
    federation = DeployedFederation(settings, coordinator)
    connection = read_connection(settings.flower.superlink, environment)
    probe(connection)
    from tacit.deploy.control import Control

    with Control(connection) as control, control.run(encode_settings(settings)) as federation.grid:
        yield federation


def launch(
    settings: Settings,
    *subscribers: Subscriber,
    environment: Mapping[str, str] = os.environ,
    resume: Checkpoint | None = None,
) -> Finished:
    """Run a job on the Flower federation that the settings name.

    It runs on the SuperLink's machine, and writes the same run folder as on the embedded engine.

    Subscribers get every event. The environment's ``FLWR_HOME`` says where the SuperLink's connection is
    written; else it is beside the coordinator's folder. ``resume`` is a run of these settings that was
    stopped: it goes on in its own folder.
    """
    with leading(settings, environment) as federation:
        return execute(settings, *subscribers, federation=federation, resume=resume)


def tune(
    settings: Settings, space: Space, environment: Mapping[str, str] = os.environ, **search: Any
) -> dict[str, Any]:
    """Search settings of a method on the Flower federation; see :func:`tacit.runs.tune.tune`.

    Each trial is a run of its own to the sites, which accept it or not by their policy.
    """
    with leading(keeping_aside(settings), environment) as federation:
        return search_settings(settings, space, federation=federation, **search)


def check_flower() -> None:
    """Refuse if Flower is not installed."""
    if find_spec("flwr") is None:
        raise UnavailableError("the Flower engine needs Flower: pip install 'tacit-fl[flower]'")


def encode_settings(settings: Settings) -> str:
    """Return settings as all parties see them: the coordinator's own paths stay here."""
    tables = settings.as_tables()
    del tables["run"]["out"], tables["flower"]["coordinator"]
    return msgspec.json.encode(tables).decode()
