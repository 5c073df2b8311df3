"""A federation whose parties are at SuperNodes, and jobs on it: the coordinator's half is in this process."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import msgspec
import numpy as np

from tacit.core.engine import Engine
from tacit.core.errors import ConfigError, UnavailableError
from tacit.core.events import Events, Subscriber
from tacit.core.manifest import Components, Manifest
from tacit.data.table import Table
from tacit.deploy.records import RunRecords
from tacit.engines.flower import FlowerEngine
from tacit.engines.holdings import Holdings
from tacit.engines.sitefolder import Roster, SiteFolder
from tacit.federation import Federation
from tacit.runs.checkpoint import Checkpoint
from tacit.runs.experiment import build_federation
from tacit.runs.job import Finished, execute
from tacit.runs.settings import OWN_ROWS, Settings
from tacit.runs.sinks import check_sinks
from tacit.runs.tune import Space, keeping_aside
from tacit.runs.tune import tune as search_settings


class DeployedFederation(Federation):
    """Parties at SuperNodes, reached by ``grid``; the coordinator's secret and roster are in ``folder``."""

    def __init__(self, settings: Settings, folder: SiteFolder, grid: Any = None) -> None:
        roster = folder.roster
        check_deployable(settings, roster)
        self.experiment = settings.data.name != OWN_ROWS
        run = settings.run
        declared, test = settings.data.declared, None
        if self.experiment:
            local = build_federation(settings)
            holdings, test, declared = local.holdings, local.test, local.declared
            if odd := sorted({*holdings.names} ^ roster.clients.keys()):
                raise ConfigError(
                    f"rows are divided among {', '.join(holdings.names)}; the roster names "
                    f"{', '.join(roster.clients)}: in an experiment both are the same, and {odd[0]} is not"
                )
            roster = replace(roster, clients={name: roster.clients[name] for name in holdings.names})
        else:
            # The coordinator knows the holders only, and signs what share of their rows they keep aside.
            declared["holdout"] = settings.data.holdout
            nothing = Table.of(np.empty((0, 1)), np.empty(0, dtype=str))
            holdings = Holdings(nothing, np.zeros(len(roster.clients) + 1, dtype=np.int64), [*roster.clients])
        super().__init__(
            holdings, test=test, seed=run.seed, timeout=run.timeout, quorum=run.quorum, declared=declared
        )
        self.grid, self._roster, self._settings = grid, roster, settings
        self.keys = {"secret": folder.secret, "pinned": roster.pinned, "authenticated": True}
        self.keys["preshared"] = frozenset(roster.exchanges)
        self._log, self.unlock = folder.audit_log, folder.unlock
        self._has_holdouts = settings.data.holdout > 0

    def record(self, events: Events, run: str = "") -> None:
        events.subscribe(RunRecords(self._log, run))

    def lasting_engine(self, names: Sequence[str] = ()) -> FlowerEngine:
        clients = {name: key for name, key in self._roster.clients.items() if name in names or not names}
        roster = replace(self._roster, clients=clients)
        engine = FlowerEngine(self.grid, roster, timeout=self._settings.run.timeout)
        if names:
            engine.wait(self._settings.flower.wait)
        return engine

    @contextmanager
    def _engine(self, manifest: Manifest, components: Components) -> Iterator[Engine]:
        engine = FlowerEngine(self.grid, self._roster, timeout=self._settings.run.timeout)
        try:
            engine.wait(self._settings.flower.wait, components.services)
            yield engine
        finally:
            self.engine_facts = engine.facts()
            engine.close()


def check_deployable(settings: Settings, roster: Roster) -> None:
    """Refuse what cannot work with those who take part, before anything is sent."""
    clients, asked = len(roster.clients), settings.partition_options().get("clients")
    if settings.data.name != OWN_ROWS and asked != clients:
        raise ConfigError(
            f"the roster names {clients} clients, and the rows are divided among {asked}: set [partition] "
            f"clients = {clients}, or data = '{OWN_ROWS}' if every site brings its own"
        )
    settings.check_compatibility(clients)
    for part in (settings.build_method(), settings.build_protection()):
        if missing := {*part.services} - roster.services.keys():
            raise ConfigError(
                f"{part.name} needs a {min(missing)}, and the roster names none under [services]: add a "
                "member of that name with `tacit federation add-site`, or choose another"
            )


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
    """Run a job on the Flower federation of the settings; ``resume`` is a stopped run, in its own folder."""
    with leading(settings) as federation:
        return execute(settings, *subscribers, federation=federation, resume=resume)


def tune(settings: Settings, space: Space, **search: Any) -> dict[str, Any]:
    """Search settings of a method on the Flower federation; see :func:`tacit.runs.tune.tune`."""
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
