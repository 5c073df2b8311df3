"""What is recorded in audit logs: of each ask at a site, and of each run at the coordinator."""

import getpass
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from tacit.core import events
from tacit.core.client import manifest_of
from tacit.core.events import Event, Noted, Replied, RunStarted, WaveEnded, WaveStarted
from tacit.core.exposure import classified
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.standing_client import DONE
from tacit.data.table import Table
from tacit.engines.audit import AuditLog
from tacit.engines.policy import Policy
from tacit.engines.sitefolder import SiteFolder

ASKER = "asker"  # in a party's state: identity of whoever signed the manifest
CHARGES = "charges"  # in a party's cache: what noise has cost in this step
TOLD = ("schema: ", "policy: ")  # how notes begin by which a site tells what `tacit federation status` shows
RECORDED = {  # event of a run -> name of its record
    events.RunStarted: "run started",
    events.WaveStarted: "asked",
    events.Replied: "no answer",
    events.Refused: "not used",
    events.WaveEnded: "answered",
    events.TotalOpened: "total opened",
    events.Noted: "told",
    events.RunEnded: "run ended",
}
WORDS = {"party": "site", "about": "site", "at": "where", "error": "reason"}  # where records have others
ASKED = {"$step": "step", "contribution": "contribution", "sum": "sum", "$manifest": "manifest"}


def policy_digest(policy: Policy) -> str:
    """Return the digest by which records name a policy."""
    return hashlib.sha256(policy.to_toml().encode()).hexdigest()[:16]


def record_answer(folder: SiteFolder, party: Party, message: Message, asked: int, raw: bytes) -> None:
    """Record what is about to leave a site: to whom, for what, how much of each kind, by which policy."""
    reply, facts = Message.decode(raw, len(raw)), _asked(message)
    enrols = str(facts["step"]).startswith("client.enrol")
    if "manifest" in party.state:
        manifest = manifest_of(party)
        method, protection = (manifest.components[kind] for kind in ("method", "protection"))
        facts |= {"run": manifest.run, "min_clients": manifest.min_clients, "method": method["name"]}
        facts |= {"protection": protection["name"], "settings": protection["config"] if enrols else None}
    if (failure := reply.get("$failure")) is not None:
        record_refusal(folder, message, asked, str(failure), **facts)
        return
    left: dict[str, int] = {}
    for name, value in reply.items():
        kind, size = classified(value)
        if size and name[0] != "$":
            left[kind] = left.get(kind, 0) + size
    folder.audit_log.add(
        "answered",
        **facts,
        asker=party.state.get(ASKER, b"").hex(),
        bytes_in=asked,
        bytes_out=len(raw),
        left=left,
        standing=party.cache.pop(DONE, None),
        charges=[asdict(charge) for charge in party.cache.pop(CHARGES, ())] or None,
        policy=policy_digest(folder.policy),
        accepts=vars(folder.policy) if enrols else None,
    )


def record_refusal(
    folder: SiteFolder, message: Mapping[str, Any], asked: int, reason: str, **facts: Any
) -> None:
    """Record that an ask was refused, and why; who asked is not known for certain."""
    known = {**_asked(message), **facts, "bytes_in": asked, "reason": reason}
    folder.audit_log.add("refused", **known, policy=policy_digest(folder.policy))


def _asked(message: Mapping[str, Any]) -> dict[str, Any]:
    found = {word: message.get(name) for name, word in ASKED.items()}
    return {word: value for word, value in found.items() if isinstance(value, str | int)}


def tell_coordinator(party: Party, policy: Policy) -> None:
    """Let a site say how its rows look, without a word or a number out of them, and what it accepts."""
    table: Table = party.data
    columns = [(column.name, bool(column.categories)) for column in table.columns]
    shape = json.dumps((columns, table.task, table.target_names)).encode()
    digest, targets = hashlib.sha256(shape).hexdigest()[:8], ", ".join(table.target_names)
    party.note(f"{TOLD[0]}{digest}, {len(columns)} columns, {table.task} of {targets}")
    limits = {name: value for name, value in vars(policy).items() if value is not None}
    del limits["operators"]
    words = {name: "/".join(value) if isinstance(value, tuple) else value for name, value in limits.items()}
    party.note(TOLD[1] + ", ".join(f"{name} {value}" for name, value in words.items()))


def told_by_sites(log: AuditLog) -> dict[str, dict[str, str]]:
    """Return what each site has told last of its rows and its policy, and when."""
    found: dict[str, dict[str, str]] = {}
    for record in log.records() if log.path.is_file() else ():
        if record["event"] == "told":
            what, _, text = record["text"].partition(": ")
            found.setdefault(record["site"], {}).update({what: text, "told": record["at"]})
    return found


class RunRecords:
    """Records the events of a run in the coordinator's audit log; an ask is on disk before it leaves."""

    def __init__(self, log: AuditLog, run: str = "") -> None:
        self._log = log
        self._run, self._up, self._down = run, 0, 0

    def __call__(self, number: int, event: Event) -> None:
        facts = {WORDS.get(name, name): value for name, value in msgspec.structs.asdict(event).items()}
        match event:
            case RunStarted():
                self._run, facts["who"] = event.run, user()
            case WaveStarted():
                self._up = self._down = 0
            case Replied():
                self._up, self._down = self._up + event.bytes_up, self._down + event.bytes_down
                facts = {"wave": event.wave, "site": event.party, "reason": event.failure}
                if event.failure is None:
                    return
            case WaveEnded():
                facts = {"wave": event.wave, "replies": event.replies}
                facts |= {"bytes_up": self._up, "bytes_down": self._down}
            case Noted() if not event.text.startswith(TOLD):
                return
        if name := RECORDED.get(type(event)):
            self._log.add(name, **{"run": self._run, **facts})


def user() -> str:
    """Return the account of this machine that runs the command."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
