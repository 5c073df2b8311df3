"""Running a job on a running Flower federation: the coordinator's half is in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import msgspec

from tacit.core.errors import UnavailableError
from tacit.core.events import Subscriber
from tacit.deploy.federation import DeployedFederation
from tacit.engines.sitefolder import SiteFolder
from tacit.runs.checkpoint import Checkpoint
from tacit.runs.job import Finished, execute
from tacit.runs.settings import Settings
from tacit.runs.sinks import check_sinks
from tacit.runs.tune import Space, keeping_aside
from tacit.runs.tune import tune as search_settings


@contextmanager
def leading(settings: Settings) -> Iterator[DeployedFederation]:
    """Lead a run of these settings at the running SuperLink, within the block."""
    check_flower()
    settings.check()
    check_sinks(settings.run.sinks)
    coordinator = SiteFolder(settings.flower.coordinator)
    coordinator.secret  # noqa: B018  # locked, it could greet nobody
    # What nobody could learn from is refused here, before anything is sent.
    federation = DeployedFederation(settings, coordinator)
    from tacit.deploy.control import Control

    home = coordinator.path.absolute().parent / "flower"  # as `tacit federation init` makes them
    with Control(home) as control, control.run(encode_settings(settings)) as federation.grid:
        yield federation


def launch(settings: Settings, *subscribers: Subscriber, resume: Checkpoint | None = None) -> Finished:
    """Run a job on the Flower federation that the settings name, on the SuperLink's machine.

    It writes the same run folder as on the embedded engine. Subscribers get every event. ``resume`` is a run
    of these settings that was stopped: it goes on in its own folder.
    """
    with leading(settings) as federation:
        return execute(settings, *subscribers, federation=federation, resume=resume)


def tune(settings: Settings, space: Space, **search: Any) -> dict[str, Any]:
    """Search settings of a method on the Flower federation; see :func:`tacit.runs.tune.tune`.

    Each trial is a run of its own to the sites, which accept it or not by their policy.
    """
    with leading(keeping_aside(settings)) as federation:
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
