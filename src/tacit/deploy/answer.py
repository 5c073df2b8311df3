"""What a site does with an ask, whatever carried it: load what it remembers, perform, keep, reply."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import msgspec
import numpy as np

from tacit.core.errors import ConfigError, TacitError
from tacit.core.manifest import Components, Manifest
from tacit.core.message import DEFAULT_LIMIT, Message
from tacit.core.party import Party, identity_of
from tacit.data.files import load
from tacit.engines.assembly import assemble
from tacit.engines.holdings import Holdings, holdings_of
from tacit.engines.sitefolder import SiteFolder
from tacit.engines.sites import performed, site_secret
from tacit.runs.experiment import build_federation
from tacit.runs.settings import OWN_ROWS, Settings


def answer(
    folder: SiteFolder,
    config: Mapping[str, Any],
    call: bytes,
    job: bytes,
    timeout: float | None,
    limit: int = DEFAULT_LIMIT,
) -> bytes:
    """Perform one ask at a site, and give the encoded reply.

    ``config`` is what the run says of itself: only in experiments is it listened to. ``call`` is what all
    are asked, ``job`` what this site alone is told. A step may take ``timeout`` seconds; messages of more
    than ``limit`` bytes are refused.
    """
    try:
        message = Message.decode(call, limit)
        run = message["$manifest"]
        if not isinstance(run, str):
            raise ConfigError("an ask that names no manifest")
        with folder.store.step(run, party_of(folder, config)) as party:
            build = partial(_build, folder)
            return performed(party, message, job, build, timeout=timeout, keep_reply=True, limit=limit)
    except (TacitError, KeyError) as error:
        text = error.public if isinstance(error, TacitError) else f"an ask without {error}"
        return refusal(type(error).__name__, text)


def refusal(kind: str, text: str) -> bytes:
    """A reply that says why there is none."""
    return Message({"$failure": f"{kind}: {text}", "$cpu": 0.0}).encode()


def _build(folder: SiteFolder, manifest: Manifest) -> Components:
    """Build what a manifest names, unless it asks for what this site does not do."""
    if manifest.experiment and not folder.settings.experiment:
        raise ConfigError(f"{folder.name} takes part in no experiments, where models are read at sites")
    return assemble(manifest)


def party_of(folder: SiteFolder, config: Mapping[str, Any]) -> Party:
    """The party that a site plays in a run."""
    settings = settings_of(config)
    experiment = settings.data.name != OWN_ROWS
    if experiment and not folder.settings.experiment:
        raise ConfigError(f"{folder.name} takes part in no experiments: run it with data = '{OWN_ROWS}'")

    @cache
    def rows() -> tuple[Holdings, int]:
        if not experiment:
            return _own(folder, settings), 0
        holdings = build_federation(settings).holdings
        if folder.name not in holdings.names:
            raise ConfigError(
                f"the run divides its rows among {', '.join(holdings.names)}, and this is {folder.name}"
            )
        return holdings, holdings.names.index(folder.name)

    def party() -> Party:
        return Party(
            folder.name,
            lambda: rows()[0].rows(rows()[1]),
            # An experiment's draws are repeatable; the identity is the site's own all the same.
            site_secret(settings.run.seed, folder.name) if experiment else folder.secret,
            holdout=lambda: rows()[0].aside(rows()[1]),
            pinned=folder.roster.pinned,
            identity=identity_of(folder.secret),
            preshared=folder.standing,
            earlier=lambda manifest: folder.store.recalled(manifest, party()),
            roster=folder.roster.clients,
        )

    return party()


def settings_of(config: Mapping[str, Any]) -> Settings:
    """Read the settings that a run's configuration carries."""
    try:
        tables = msgspec.json.decode(str(config.get("settings", "")))
    except msgspec.DecodeError:
        raise ConfigError("the run's configuration carries no settings: start it with `tacit run`") from None
    return Settings.from_tables(tables)


def _own(folder: SiteFolder, settings: Settings) -> Holdings:
    """The site's own rows; the share that it keeps aside is drawn by its own secret."""
    known = folder.settings
    if known.data is None:
        raise ConfigError(f"{folder.name} has no rows: name their file as `data` in its site.toml")
    table = load(folder.path / known.data, target=known.target, task=known.task)
    seed = int.from_bytes(folder.secret.reveal()[:7], "little")
    return holdings_of(table, np.zeros(table.rows, dtype=np.int64), settings.data.holdout, seed)
