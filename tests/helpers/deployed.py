"""Deployed sites without Flower: folders with keys and rows, and an engine that hands asks to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tacit.core.coordinator import Coordinator
from tacit.core.engine import Job, Reply, read_reply
from tacit.core.exposure import COORDINATOR
from tacit.core.link import Link
from tacit.core.manifest import Components, Manifest, new_run
from tacit.core.message import DEFAULT_LIMIT
from tacit.core.secret import Secret
from tacit.core.shared import Total
from tacit.deploy.answer import answer
from tacit.deploy.launch import encode_settings
from tacit.engines.policy import Policy
from tacit.engines.sitefolder import Roster, SiteFolder, SiteSettings, new_unlock, write_private
from tacit.runs.settings import OWN_ROWS, Settings

OWN = encode_settings(Settings.from_tables({"data": {"name": OWN_ROWS}}))


def make_folder(path: Path, policy: Policy | None = None, **settings: Any) -> SiteFolder:
    """Make the folder of a party, locked by a key beside it."""
    key, file = new_unlock().encode(), path.with_suffix(".unlock")
    write_private(file, key)
    return SiteFolder.create(path, SiteSettings(path.name, unlock=str(file), **settings), Secret(key), policy)


def make_sites(home: Path, rows: Mapping[str, Any], **settings: Any) -> dict[str, SiteFolder]:
    """Make folders of a coordinator and of clients with rows of their own; all have pinned each other."""
    folders = {COORDINATOR: make_folder(home / COORDINATOR)}
    for name, values in rows.items():
        path = home / f"{name}.csv"
        features, target = values
        header = ",".join([*(f"x{i}" for i in range(np.shape(features)[1])), "target"])
        lines = [",".join(map(str, [*row, label])) for row, label in zip(features, target, strict=True)]
        path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
        folders[name] = make_folder(home / name, data=str(path), target="target", **settings)
    identity = {name: folder.identity for name, folder in folders.items()}
    roster = Roster(identity[COORDINATOR], {name: identity[name] for name in rows})
    for folder in folders.values():
        (folder.path / "roster.toml").write_text(roster.to_toml(), encoding="utf-8")
    return folders


@dataclass
class SiteEngine:
    """Hands every ask to a site's folder, opened anew as a new process does, and keeps what passed."""

    paths: Mapping[str, Path]
    settings: str = OWN
    asked: list[tuple[str, bytes, bytes]] = field(default_factory=list)
    persistent = True

    def parties(self, role: str = "client") -> Sequence[str]:
        """All of them are clients."""
        return tuple(self.paths) if role == "client" else ()

    def present(self) -> Sequence[str]:
        """All of them, always."""
        return self.parties()

    def ask(self, call: bytes, jobs: Iterable[Job]) -> Iterator[Reply]:
        """Let each site answer."""
        for name, job in jobs:
            self.asked.append((name, call, job))
            raw = answer(SiteFolder(self.paths[name]), self.settings, call, job, None)
            yield read_reply(name, raw, len(call) + len(job), limit=DEFAULT_LIMIT)

    def close(self) -> None:
        """Nothing to let go."""


def engine_of(folders: Mapping[str, SiteFolder]) -> SiteEngine:
    """Return an engine for the clients among these folders."""
    return SiteEngine({name: folder.path for name, folder in folders.items() if name != COORDINATOR})


def open_sum(coordinator: Coordinator, contribution: Any) -> Total:
    """Form a sum and open it at the coordinator, whether it is meant to be shown or not."""
    return coordinator._open(*coordinator._form_total(contribution, None))


def coordinator_at(
    folders: Mapping[str, SiteFolder],
    components: Components,
    *,
    secret: Secret | None = None,
    engine: SiteEngine | None = None,
    link: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Coordinator:
    """Return a coordinator of these sites; another ``secret`` makes it a stranger to them."""
    manifest = Manifest.of(settings.pop("run", None) or new_run(), components, **settings)
    own = folders[COORDINATOR]
    known = {"secret": own.secret if secret is None else secret, "pinned": own.roster.pinned, **(link or {})}
    return Coordinator(Link(engine or engine_of(folders), manifest, components, **known))
