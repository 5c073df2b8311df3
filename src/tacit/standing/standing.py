"""A federation that stands: clients come, add rows and withdraw, and weights can be asked for at any time."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Self

from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError, FederationError
from tacit.core.events import Events
from tacit.core.manifest import Components, Manifest
from tacit.core.message import Message
from tacit.core.parallel import one_thread
from tacit.core.protection import Protection
from tacit.data.preparation import Preparation
from tacit.engines.assembly import assemble
from tacit.federation import Federation
from tacit.methods import METHODS
from tacit.methods.base import Method, Model
from tacit.protections import PROTECTIONS
from tacit.standing import merging
from tacit.standing.changes import entering, join_batch, join_each, leaving
from tacit.standing.differencing import Contribution
from tacit.standing.folder import Folder
from tacit.standing.founding import begin_federation
from tacit.standing.opening import Adopted, check_opening, solution, status


class Receipt(NamedTuple):
    """What was acknowledged, and counts once: ``new`` if it was not yet, ``withdrawn`` if it left."""

    id: str
    client: str
    new: bool
    withdrawn: bool = False


class Standing(AbstractContextManager["Standing"]):
    """A standing federation; use :meth:`start` and :meth:`open`."""

    def __init__(
        self, folder: Folder, manifest: Manifest, components: Components, events: Events | None = None
    ) -> None:
        self.folder, self.manifest, self.components = folder, manifest, components
        self._events = events or Events()
        self._restored: Coordinator | None = None

    @classmethod
    def start(
        cls,
        path: Path | str,
        federation: Federation,
        *,
        method: Method | str = "fedheonn",
        protect: Protection | str = "bfv",  # masks go with each batch
        preparation: Preparation | None = None,
        min_clients: int | None = None,
        min_count: int | None = None,
        founders: int | None = None,
        capacity: int | None = None,
        settings: Mapping[str, Any] | None = None,
        events: Events | None = None,
    ) -> Self:
        """Agree on schema, scale and keys with the first clients, and write it down; nothing is learnt yet.

        Parameters
        ----------
        path, federation, method, protect, preparation
            An empty folder for the state; all parties, those that come later too; a method that learns from a
            single sum, such as FedHEONN in mode "sealed"; how sums are protected; and the scale, which stays.
        min_clients : int, optional
            No two totals that open differ by fewer clients; 1 for plain sums, else 3.
        min_count : int, optional
            No class, category or column in which fewer rows of the founders stand apart is learnt from; 1,
            which counts nothing, for plain sums, else 5.
        founders : int, optional
            How many clients settle schema and scale; all, if left out.
        capacity : int, optional
            How many changes an encrypted total can take; 16 for each client, at least 1,024.
        settings, events : optional
            Plain values that are kept with the state, for whoever opens it; and where to tell what happens.
        """
        chosen = METHODS.build(method) if isinstance(method, str) else method
        guard = PROTECTIONS.build(protect) if isinstance(protect, str) else protect
        components, events = Components(chosen, guard, preparation or Preparation()), events or Events()
        least = {"min_clients": min_clients, "min_count": min_count}
        folder, manifest = begin_federation(
            Path(path), federation, components, least, founders, capacity, settings or {}, events
        )
        return cls(folder, manifest, components, events)

    @classmethod
    def open(cls, path: Path | str, federation: Federation, events: Events | None = None) -> Self:
        """Go on with a federation that stands; it must be the one whose parties are given."""
        folder = Folder(Path(path), federation)
        try:
            folder.book.check_started()
            manifest = Manifest.from_message(Message.decode(folder.book.fact("federation")["manifest"]))
            holders = {line.client for line in folder.book.contributions()}
            odd = holders - set(federation.holdings.names) if manifest.experiment else set()
            if federation.experiment != manifest.experiment:
                where = "one machine" if manifest.experiment else "sites of their own"
                raise ConfigError(f"{path} is the state of a federation of {where}: open it as such")
            if federation.seed != manifest.seed or odd:
                what = f"it knows {sorted(odd)[0]}" if odd else f"its seed is {manifest.seed}"
                raise ConfigError(f"{path} is the state of another federation: {what}")
            components = assemble(manifest)
            folder.check_parties(manifest, components.protection.incremental)
            events = events or Events()
            federation.record(events, manifest.run)
            return cls(folder, manifest, components, events)
        except BaseException:
            folder.book.close()
            raise

    def close(self) -> None:
        """Let other processes work on the state; everything is written already."""
        self.folder.book.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def end(self, reason: str = "ended") -> None:
        """Accept no more changes; weights can still be asked for. What is closed stays as it is."""
        if self.folder.book.fact("closed"):
            return
        with self.folder.book.writing():
            self.folder.book.note("closed", {"reason": reason})

    def add(
        self,
        clients: Iterable[str],
        *,
        rows: tuple[int, int] | None = None,
        name: str | None = None,
        more: bool = False,
    ) -> list[Receipt]:
        """Let clients contribute their rows, or a part of them; what is there already is acknowledged again.

        ``rows`` are the first row and the one after the last, all if left out; a contribution is named after
        client and rows unless it gets a ``name``. Sites on other machines choose their rows: those with which
        they enrolled or, with ``more``, those that are new.
        """
        return self.change(add=clients, rows=rows, name=name, more=more)

    def willing(self) -> list[str]:
        """Return clients that contribute or never did: not those that have withdrawn all they brought."""
        lines = self.folder.book.contributions()
        gone = {line.client for line in lines} - self.folder.book.present().keys()
        return [name for name in self.folder.holdings.names if name not in gone]

    def withdraw(self, names: Iterable[str]) -> list[Receipt]:
        """Take back contributions, by name or by client, as if they had never been made."""
        return self.change(withdraw=names)

    def change(
        self,
        *,
        add: Iterable[str] = (),
        withdraw: Iterable[str] = (),
        rows: tuple[int, int] | None = None,
        name: str | None = None,
        more: bool = False,
    ) -> list[Receipt]:
        """Add and withdraw in one go: where a batch is the unit, both kinds of changes count for its size."""
        book = self.folder.book
        if closed := book.fact("closed"):
            raise FederationError(f"this federation accepts no more changes: {closed['reason']}")
        receipts, changes = [], []
        coming, leave = tuple(dict.fromkeys(add)), tuple(dict.fromkeys(withdraw))
        if name is not None and len(coming) > 1:
            raise ConfigError(f"'{name}' would name contributions of {len(coming)} clients: add one by one")
        for client in coming:
            names, pieces = self.folder.holdings.names, self.manifest.stands
            line = entering(book, names, client, rows, name, pieces=pieces, more=more)
            if line.present:
                receipts.append(Receipt(line.id, client, False))
            else:
                changes.append(line._replace(present=True))
        gone = {line.id: line._replace(present=False) for word in leave for line in leaving(book, word)}
        if both := [receipt.id for receipt in receipts if receipt.id in gone]:
            raise ConfigError(f"'{both[0]}' is to be added and to be withdrawn: say one of both")
        changes += gone.values()
        if changes:
            receipts += [Receipt(one.id, one.client, True, not one.present) for one in self._changed(changes)]
        return receipts

    def _changed(self, changes: list[Contribution]) -> Iterable[Contribution]:
        with one_thread():
            if not self.components.protection.incremental:
                return list(join_batch(self.folder, self.manifest, self.components, changes, self._events))
            capacity = self.folder.book.fact("federation")["capacity"]
            return list(join_each(self.folder, self.coordinator(), changes, capacity))

    def weights(self) -> Model:
        """Open the total, and make the model of what is in it; refuse if too few are in it, came or went."""
        if self.manifest.stands:
            raise ConfigError(
                "the model is at the sites: have it opened there (open_at_sites), and export it"
            )
        model: Model = self.components.method.model(self._opened())
        return model

    def open_at_sites(self) -> Adopted:
        """Have sites on other machines open the total, each of which keeps the model; as :meth:`weights`."""
        if not self.manifest.stands:
            raise ConfigError("all clients of this federation are on this machine: ask for weights")
        found: Adopted = self._opened()
        return found

    def _opened(self) -> Any:
        book = self.folder.book
        book.count_announced()
        changed = check_opening(book, self.components.protection.min_contributions(self.manifest.min_clients))
        with book.writing():  # before anything is seen: what may have been seen counts
            book.mark_opening()
        with one_thread():
            return solution(book, self.coordinator(), changed)

    def coordinator(self) -> Coordinator:
        """Return the coordinator, as the book has it."""
        if self._restored is None:
            self._restored = self.folder.restored(self.manifest, self.components, self._events)
        return self._restored

    def branch(self, path: Path | str) -> None:
        """Make the state of a group's coordinator: the same federation, nothing contributed yet."""
        merging.branch(self, path)

    def merge(self, path: Path | str) -> int:
        """Take over all that another coordinator of this federation holds; return how many contributions."""
        count = merging.merge(self, path)
        self._restored = None
        return count

    def status(self) -> dict[str, Any]:
        """Return where the federation stands, as plain values."""
        return status(self.folder.book, self.manifest, self.components)
