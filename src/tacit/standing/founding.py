"""How a standing federation begins: the first clients agree on schema, scale and keys."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

import tacit
from tacit.core.claims import MOST_LINES
from tacit.core.differencing import OpenedTotals
from tacit.core.errors import ConfigError
from tacit.core.events import Events
from tacit.core.manifest import STANDS, Components, Manifest, new_run
from tacit.core.parallel import one_thread
from tacit.data.schema import complete, vocabulary
from tacit.federation import Federation
from tacit.methods.compatibility import check_compatibility, min_count_of
from tacit.standing.differencing import all_rows, first_piece
from tacit.standing.folder import Folder
from tacit.standing.opening import check_lines

ROOM = 16  # changes for each client, unless the capacity is given
LEAST_ROOM = 1024
MOST_ROOM = MOST_LINES  # changes, each of which may be of another contribution


def begin_federation(
    path: Path,
    federation: Federation,
    components: Components,
    least: Mapping[str, int | None],
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
    min_clients = check_compatibility(
        method, protection, len(first), min_clients=least["min_clients"] or None, standing=True
    )
    components.preparation.check_clients(protection, len(first))
    if not federation.experiment and not protection.stands_at_sites:
        raise ConfigError(
            f"at sites of their own a standing total opens at the sites, which compare it with all that they "
            f"have opened: under {protection.name} only the coordinator could. Protect with bfv or ckks"
        )
    room = min(max(LEAST_ROOM, ROOM * len(names)), MOST_ROOM) if capacity is None else capacity
    if not 1 <= room <= MOST_ROOM:
        raise ConfigError(f"capacity is {capacity}: give 1 to {MOST_ROOM:,} changes")
    manifest = Manifest.of(
        new_run(),
        components,
        seed=federation.seed,
        min_clients=min_clients,
        min_count=min_count_of(protection, least["min_count"]),
        quorum=federation.quorum,
        experiment=federation.experiment,
        declared=federation.declared,
    )
    folder = Folder(path, federation, new=True)
    try:
        with one_thread():
            about = {"capacity": room, "settings": msgspec.json.encode(settings)}
            return folder, _found_federation(folder, manifest, components, first, about, events)
    except BaseException:
        folder.book.close()
        raise


def _found_federation(
    folder: Folder,
    manifest: Manifest,
    components: Components,
    names: Sequence[str],
    about: Any,
    events: Events,
) -> Manifest:
    incremental, federation = components.protection.incremental, folder.federation
    least = components.protection.min_contributions(manifest.min_clients)
    rows_of = all_rows if manifest.experiment else first_piece

    def note_opening(contributors: Sequence[str]) -> None:
        """Write down whose moments are opened, before they are: a start may be interrupted and repeated."""
        lines = frozenset(map(rows_of, contributors))
        check_lines(folder.book, least, lines)
        with folder.book.writing():
            folder.book.mark_opening(lines)

    opened = OpenedTotals()
    federation.record(events)
    if not manifest.experiment:
        words, sites = dict[str, Any](), federation.lasting_engine(names)
        if manifest.min_count > 1:  # nobody says in the clear which words it has
            first = replace(manifest, declared={**manifest.declared, STANDS: False})
            words = federation.find_words(first, components, opened, events, None, note_opening, sites)
        manifest = replace(manifest, declared={**complete(manifest.declared, words), STANDS: True})
    coordinator = folder.coordinator(manifest, components, names, events, batch=not incremental)
    coordinator.link.opened_totals = opened
    coordinator.link.before_opening = note_opening
    coordinator.enrol()
    components.method.check(coordinator.schema)
    counted = manifest.min_count > 1
    sums = components.preparation.count_sums(components.method, components.protection)
    coordinator.protection.prepare(sums + counted)
    if counted:
        coordinator.parties = components.preparation.count_cells(coordinator)
    settled = components.preparation.train(coordinator)
    if incremental:
        folder.keep_channels(manifest, coordinator.link.transport.channels)
    else:
        # Keys are made anew for each batch; what stays is the schema, as the vocabulary of all batches.
        coordinator.parties = ()
        manifest = replace(manifest, declared=vocabulary(coordinator.schema))
    about |= {"manifest": manifest.to_message().encode(), "founders": len(settled)}
    with folder.book.writing():
        folder.save(coordinator)
        folder.book.note("federation", {**about, "token": secrets.token_hex(8), "release": tacit.__version__})
    return manifest
