"""A federation that stands: clients come, add rows and withdraw, and weights can be asked for at any time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from tacit.core.desk import Desk
from tacit.core.errors import ConfigError, FederationError, OpeningError, ReplayError, nearest
from tacit.core.events import Events
from tacit.core.manifest import Manifest, Parts
from tacit.core.message import Message
from tacit.core.protection import Protection
from tacit.core.replica import layout_of, opened
from tacit.core.shared import Shared, Total
from tacit.core.standing import solved
from tacit.data.preparation import Preparation
from tacit.engines.assembly import assemble
from tacit.federation import Federation, new_run, one_thread
from tacit.methods import METHODS
from tacit.methods.base import Method, Model
from tacit.standing.book import Contribution
from tacit.standing.changes import Change, check_apart, join_batch, join_each
from tacit.standing.folder import Folder
from tacit.standing.founding import check_parts, found
from tacit.sums import PROTECTIONS

ROOM = 16  # changes for each client, unless the capacity is given
LEAST_ROOM = 1024


class Receipt(NamedTuple):
    """What was acknowledged: it is counted once, whatever happens to the process; ``new`` if it was not yet."""

    id: str
    client: str
    new: bool


class Standing:
    """A standing federation on this machine; use :meth:`start` and :meth:`open`.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> federation = Federation.embedded("iris", clients=6, seed=1)
    >>> with TemporaryDirectory() as folder:
    ...     with Standing.start(folder, federation, protect="plain") as standing:
    ...         receipts = standing.add(["client-1", "client-2", "client-3"])
    ...     with Standing.open(folder, federation) as standing:
    ...         again = standing.add(["client-3"])
    ...         withdrawn = standing.withdraw(["client-3"])
    ...         model = standing.weights()
    ...         standing.status()["contributions"], again[0].new
    (2, False)
    """

    def __init__(self, folder: Folder, manifest: Manifest, parts: Parts, events: Events | None = None) -> None:
        self.folder, self.manifest, self.parts = folder, manifest, parts
        self._events = events or Events()
        self._recalled: Desk | None = None

    # -- begin and end -----------------------------------------------------------------------------

    @classmethod
    def start(
        cls,
        path: Path | str,
        federation: Federation,
        *,
        method: Method | str = "fedheonn",
        protect: Protection | str = "ckks",
        preparation: Preparation | None = None,
        min_clients: int | None = None,
        founders: int | None = None,
        capacity: int | None = None,
        settings: Mapping[str, Any] | None = None,
        events: Events | None = None,
    ) -> Self:
        """Agree on schema, scale and keys with the first clients, and write it down; nothing is learnt yet.

        Parameters
        ----------
        path : path
            Folder for the state; one without a federation.
        federation : Federation
            All parties, those that come later too.
        method : Method or str
            One that learns from a single sum, such as FedHEONN in mode "sealed".
        protect : Protection or str
        preparation : Preparation, optional
            The scale is settled now and stays.
        min_clients : int, optional
            No two totals that open differ by fewer clients; 1 for plain sums, else 3.
        founders : int, optional
            How many clients settle schema and scale; all, if left out.
        capacity : int, optional
            How many changes an encrypted total can take; 16 for each client, at least 1,024.
        settings : mapping, optional
            Plain values that are kept with the state, for whoever opens it.
        events : Events, optional
            Where to tell what happens.
        """
        parts = Parts(
            METHODS.build(method) if isinstance(method, str) else method,
            PROTECTIONS.build(protect) if isinstance(protect, str) else protect,
            preparation or Preparation(),
        )
        names = federation.holdings.names
        first = names if founders is None else names[: max(founders, 0)]
        least = min_clients or (1 if parts.protection.promises.single else 3)
        check_parts(parts, len(first), least)
        room = max(LEAST_ROOM, ROOM * len(names)) if capacity is None else capacity
        if not first or room < 1:
            raise ConfigError(f"{founders} founders, capacity {capacity}: give at least 1 of each")
        manifest = Manifest.of(
            new_run(),
            parts,
            seed=federation.seed,
            min_clients=least,
            quorum=federation.quorum,
            experiment=True,
            declared=federation.declared,
        )
        folder = Folder(Path(path), federation.holdings, new=True)
        events = events or Events()
        try:
            with one_thread():
                manifest = found(folder, manifest, parts, first, room, settings or {}, events)
        except BaseException:
            folder.close()
            raise
        return cls(folder, manifest, parts, events)

    @classmethod
    def open(cls, path: Path | str, federation: Federation, events: Events | None = None) -> Self:
        """Go on with a federation that stands; it must be the one whose parties are given."""
        folder = Folder(Path(path), federation.holdings)
        try:
            folder.book.check_started()
            manifest = Manifest.from_message(Message.decode(folder.book.fact("federation")["manifest"]))
            holders = {line.client for line in folder.book.contributions()}
            odd = holders - set(federation.holdings.names)
            if federation.seed != manifest.seed or odd:
                what = f"it knows {sorted(odd)[0]}" if odd else f"its seed is {manifest.seed}"
                raise ConfigError(f"{path} is the state of another federation: {what}")
            return cls(folder, manifest, assemble(manifest), events)
        except BaseException:
            folder.close()
            raise

    def close(self) -> None:
        """Let other processes work on the state; everything is written already."""
        self.folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def end(self, reason: str = "ended") -> None:
        """Accept no more changes; weights can still be asked for."""
        with self.folder.book.writing():
            self.folder.book.note("closed", {"reason": reason})

    # -- changes -----------------------------------------------------------------------------------

    def add(
        self, clients: Iterable[str], *, rows: tuple[int, int] | None = None, name: str | None = None
    ) -> list[Receipt]:
        """Let clients contribute their rows, or a part of them; what is there already is acknowledged again.

        Parameters
        ----------
        clients : iterable of str
        rows : (int, int), optional
            First row and the one after the last; all rows of the client, if left out.
        name : str, optional
            Name of the contribution; from client and rows, if left out.
        """
        return self.change(add=clients, rows=rows, name=name)

    def withdraw(self, names: Iterable[str]) -> list[Receipt]:
        """Take back contributions, by their names or by the names of clients, as if they had never been made."""
        return self.change(withdraw=names)

    def change(
        self,
        *,
        add: Iterable[str] = (),
        withdraw: Iterable[str] = (),
        rows: tuple[int, int] | None = None,
        name: str | None = None,
    ) -> list[Receipt]:
        """Add and withdraw in one go: where a batch is the unit, both kinds of changes count for its size."""
        if closed := self.folder.book.fact("closed"):
            raise FederationError(f"this federation accepts no more changes: {closed['reason']}")
        receipts, changes = [], []
        for client in dict.fromkeys(add):
            line, known = self._line(client, rows, name)
            if known:
                receipts.append(Receipt(line.id, client, False))
            else:
                changes.append(Change(line, 1.0))
        for word in dict.fromkeys(withdraw):
            changes += [Change(line, -1.0) for line in self._withdrawn(word)]
        if changes:
            receipts += [Receipt(done.line.id, done.line.client, True) for done in self._changed(changes)]
        return receipts

    def _changed(self, changes: list[Change]) -> Iterable[Change]:
        with one_thread():
            if not self.parts.protection.joins:
                return join_batch(self.folder, self.manifest, self.parts, changes, self._events)
            capacity = self.folder.book.fact("federation")["capacity"]
            return list(join_each(self.folder, self._desk(), changes, capacity))

    def _line(self, client: str, rows: tuple[int, int] | None, name: str | None) -> tuple[Contribution, bool]:
        """The line for a new contribution, and whether it is in the book already."""
        names = self.folder.holdings.names
        if client not in names:
            raise ConfigError(f"there is no client '{client}': {nearest(client, names)}")
        where = "all" if rows is None else f"{rows[0]}-{rows[1]}"
        line = Contribution(name or f"{client}:{where}", client, *(rows or (None, None)), present=False)
        known = self.folder.book.contribution(line.id)
        if known is None:
            return line, False
        if (known.client, known.rows) != (client, rows):
            raise ReplayError(
                f"'{line.id}' is another contribution, of {known.client}: give this one its own name"
            )
        if not known.present:
            raise ReplayError(
                f"'{line.id}' was withdrawn: a repeat does not bring it back. Give it another name if "
                f"{client} wants to contribute these rows again"
            )
        return line, True

    def _withdrawn(self, word: str) -> list[Contribution]:
        """Lines that a name of a contribution or a client stands for."""
        book = self.folder.book
        line = book.contribution(word)
        lines = [line] if line else [x for x in book.contributions() if x.client == word]
        if not lines:
            known = [x.id for x in book.contributions() if x.present]
            raise ConfigError(f"'{word}' never contributed, so nothing can be withdrawn: {nearest(word, known)}")
        if not (present := [x for x in lines if x.present]):
            raise ReplayError(f"'{word}' was withdrawn already: it is in no total any more")
        return present

    # -- weights -----------------------------------------------------------------------------------

    def weights(self) -> Model:
        """Open the total, and make the model of all contributions that are in it now.

        Raises
        ------
        OpeningError
            If too few clients contribute, or too few came or went since an earlier opening.
        """
        book, protection = self.folder.book, self.parts.protection
        clients = len({line.client for line in book.contributions() if line.present})
        least = protection.fewest(self.manifest.min_clients)
        if clients < least:
            raise OpeningError(f"{clients} clients contribute, no total over fewer than {least} is opened")
        changed = check_apart(book, least)
        if changed:
            with book.writing():  # before anything is seen: what may have been seen counts
                book.mark_opening()
        with one_thread():
            return self.parts.method.model(self._solution(clients, changed))

    def _solution(self, clients: int, changed: int) -> Shared:
        book, parts = self.folder.book, self.parts
        total = dict(book.fact("total"))
        count = total.pop("$count")
        contribution, apply = parts.method.standing
        joins = parts.protection.joins
        entry = {
            "part": "method",
            "contribution": contribution,
            "apply": apply,
            "contributors": count,
            "clients": clients,
            "changed": changed,
            "summands": book.fact("federation")["capacity"] if joins else count,
            **{f"total/{name}": value for name, value in total.items()},
        }
        if parts.protection.opens == "coordinator":
            desk = self._desk()
            assert desk.shared is not None
            if joins:
                return solved(parts, entry, opened(parts, desk, desk.schema, entry), desk.shared)
            fields = layout_of(parts.method, contribution, desk.schema).unpack(total["vector"])
            return solved(parts, entry, Total(fields, count), desk.shared)
        return self._asked(entry)

    def _asked(self, entry: Mapping[str, Any]) -> Shared:
        """Have a client open the total: any will do, and the experimenter reads its model."""
        desk = self._desk()
        failures: dict[str, str] = {}
        for name in desk.parties:
            for reply in list(desk._wave("desk.reopen", (name,), entry, {}, failures=failures)):
                values = {k[7:]: v for k, v in reply.message.items() if k.startswith("shared/")}
                return Shared(desk.schema, values)
        raise FederationError(f"no client could open the total: {next(iter(failures.values()), 'none is there')}")

    def _desk(self) -> Desk:
        if self._recalled is None:
            self._recalled = self.folder.recalled(self.manifest, self.parts, self._events)
        return self._recalled

    # -- status ------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Where the federation stands, as plain values."""
        book = self.folder.book
        lines, about = book.contributions(), book.fact("federation")
        present = [line for line in lines if line.present]
        last, nearest_ = book.fewest_apart()
        least = self.parts.protection.fewest(self.manifest.min_clients)
        clients = len({line.client for line in present})
        joins = self.parts.protection.joins
        return {
            "run": self.manifest.run,
            "method": self.manifest.parts["method"]["name"],
            "protect": self.manifest.parts["protection"]["name"],
            "unit": "contribution" if joins else "batch",
            "release": about["release"],
            "founders": about["founders"],
            "clients": clients,
            "contributions": len(present),
            "withdrawn": len(lines) - len(present),
            "changes": book.fact("total").get("$count", 0),
            "capacity": about["capacity"] if joins else None,
            "openings": book.openings,
            "changed_since_opening": last,
            "min_clients": least,
            "can_open": clients >= least and (not last or nearest_ >= least),
            "closed": book.fact("closed").get("reason"),
        }

    @property
    def settings(self) -> dict[str, Any]:
        """Plain values that were kept with the state."""
        found: dict[str, Any] = msgspec.json.decode(self.folder.book.fact("federation")["settings"])
        return found
