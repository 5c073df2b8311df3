"""How a standing federation begins: the first clients agree on schema, scale and keys."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

import tacit
from tacit.core.errors import ConfigError
from tacit.core.events import Events
from tacit.core.manifest import Components, Manifest, new_run
from tacit.core.parallel import one_thread
from tacit.data.schema import vocabulary
from tacit.federation import Federation
from tacit.methods.compatibility import check_compatibility, min_count_of
from tacit.standing.differencing import all_rows
from tacit.standing.folder import Folder
from tacit.standing.opening import check_lines

ROOM = 16  # changes for each client, unless the capacity is given
LEAST_ROOM = 1024
MOST_ROOM = 1 << 24  # summands of an encrypted total


def begin_federation(
    path: Path,
    federation: Federation,
    components: Components,
    min_clients: int | None,
    min_count: int | None,
    founders: int | None,
    capacity: int | None,
    settings: Mapping[str, Any],
    events: Events,
) -> tuple[Folder, Manifest]:
    """Make the folder of a federation that can stand; see :meth:`tacit.standing.Standing.start`."""
    names = federation.holdings.names
    if founders is not None and not 1 <= founders <= len(names):
        raise ConfigError(f"founders is {founders}: give 1 to {len(names)}, the number of clients")
    first = names[:founders]
    method, protection, _ = components
    least = check_compatibility(
        method, protection, len(first), min_clients=min_clients or None, standing=True
    )
    components.preparation.check_clients(protection, len(first))
    room = max(LEAST_ROOM, ROOM * len(names)) if capacity is None else capacity
    if not 1 <= room <= MOST_ROOM:
        raise ConfigError(f"capacity is {capacity}: give 1 to {MOST_ROOM:,} changes")
    manifest = Manifest.of(
        new_run(),
        components,
        seed=federation.seed,
        min_clients=least,
        min_count=min_count_of(protection, min_count),
        quorum=federation.quorum,
        experiment=True,
        declared=federation.declared,
    )
    folder = Folder(path, federation.holdings, new=True)
    try:
        with one_thread():
            return folder, _found_federation(folder, manifest, components, first, room, settings, events)
    except BaseException:
        folder.close()
        raise


def _found_federation(
    folder: Folder,
    manifest: Manifest,
    components: Components,
    names: Sequence[str],
    capacity: int,
    settings: Mapping[str, Any],
    events: Events,
) -> Manifest:
    """Settle schema, scale and keys, and write the book's first page in one transaction."""
    incremental = components.protection.incremental
    coordinator = folder.coordinator(manifest, components, names, events, batch=not incremental)
    least = components.protection.min_contributions(manifest.min_clients)

    def note_opening(contributors: Sequence[str]) -> None:
        """Write down whose moments are opened, before they are: a start may be interrupted and repeated."""
        lines = frozenset(map(all_rows, contributors))
        check_lines(folder.book, least, lines)
        with folder.book.writing():
            folder.book.mark_opening(lines)

    coordinator.link.before_opening = note_opening
    coordinator.enrol()
    components.method.check(coordinator.schema)
    counted = manifest.min_count > 1
    coordinator.protection.prepare(components.preparation.sums + counted)
    if counted:
        coordinator.parties = components.preparation.count_cells(coordinator)
    settled = components.preparation.train(coordinator)
    if incremental:
        folder.keep_channels(manifest, coordinator.link.transport.channels)
    else:
        # Keys are made anew for each batch; what stays is the schema, as the vocabulary of all batches.
        coordinator.parties = ()
        manifest = replace(manifest, declared=vocabulary(coordinator.schema))
    with folder.book.writing():
        folder.save(coordinator)
        folder.book.note(
            "federation",
            {
                "manifest": manifest.to_message().encode(),
                "capacity": capacity,
                "token": secrets.token_hex(8),
                "release": tacit.__version__,
                "settings": msgspec.json.encode(settings),
                "founders": len(settled),
            },
        )
    return manifest
