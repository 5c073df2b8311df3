"""How a party answers an ask: decodes an incoming message and runs the step it names.

Serial numbers only rise: a repeated ask gets the stored reply, an older one is refused, and whatever raises
leaves the party as it was.
"""

import hashlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from tacit.core import client
from tacit.core.client import Assemble
from tacit.core.contribution import adopt_model, contribute, disclose_total, lead_total, show_model
from tacit.core.errors import MessageError, ReplayError, StepError, StepTimeoutError, TacitError, nearest
from tacit.core.fields import MOST, Kind, check_fields, read_integer
from tacit.core.marks import find_marked
from tacit.core.message import DEFAULT_LIMIT, Message
from tacit.core.parallel import cpu_seconds
from tacit.core.party import Party
from tacit.core.snapshot import restore_replica
from tacit.core.standing_client import change_contribution, open_standing_total
from tacit.core.tags import ask_context, reply_context, tagged, untagged

log = logging.getLogger("tacit.site")

STEPS = {  # what every party can be asked, once it has enrolled
    "contribute": contribute,
    "disclose_total": disclose_total,
    "lead_total": lead_total,
    "adopt_model": adopt_model,
    "show_model": show_model,
    "restore": restore_replica,
    "change_contribution": change_contribution,
    "open_standing_total": open_standing_total,
}
OWN_FIELDS = frozenset(("schema", "id", "rows", "accepted", "sign"))  # of a job, whatever the protection
LONGEST_FAILURE = 4096  # characters of a failure's text that travel


def perform(
    party: Party,
    call: Message,
    job: bytes,
    assemble: Assemble,
    *,
    keep_reply: bool = False,
    limit: int = DEFAULT_LIMIT,
    timeout: float | None = None,
    caught: Callable[[Exception], None] | None = None,
) -> bytes:
    """Perform one ask and return the encoded reply; a failure is a reply, too.

    ``call`` is what all parties of the wave are asked, ``job`` the encoded message for this one, if any, of
    at most ``limit`` bytes. ``assemble`` builds the components that a manifest names from what this site has
    installed. With ``keep_reply`` a repeated ask gets the stored reply again (deployed engines). A step may
    take ``timeout`` seconds. ``caught`` is told what it raised, where all parties are in one process.
    """
    started = cpu_seconds()
    asked = ""
    if keep_reply:
        asked = hashlib.sha256(call.encode() + job).hexdigest()
        if party.state.get("$asked") == asked:
            stored: bytes = party.state["$reply"]
            return stored
    try:
        # A step that is told to have failed must not have happened, whenever the alarm rang.
        with party.transaction(), deadline(timeout):
            own = _job(party, call, job, limit)
            message = _merge(call, own)
            serial = read_integer(message, "$serial")
            if serial <= (last := party.state.get("$serial", -1)):
                raise ReplayError(
                    f"{party.id} answered ask {last} already and refuses ask {serial}: it is a replay"
                )
            reply = _run_step(party, call, own, message, assemble)
            party.state["$serial"] = serial
            raw = _reply(party, serial, reply, started)
            # Stored with the state it belongs to. A failure is not stored: it changed nothing, and it
            # must not displace the reply that a repeated ask is still owed.
            if keep_reply:
                party.state["$asked"], party.state["$reply"] = asked, raw
            return raw
    except Exception as error:  # noqa: BLE001  # whatever a step raises is this party's failure
        text = _public_text(error, party)
        if caught is not None:
            caught(error)
    return _sent(party, call.get("$serial"), Message({"$failure": text, "$cpu": cpu_seconds() - started}))


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Refuse a block that takes longer than some seconds: interrupt it, where the platform can."""
    if seconds is None:
        yield
        return
    until = time.perf_counter() + seconds

    def ring(*_: object) -> None:
        raise StepTimeoutError(
            f"the step took longer than its {seconds:g} s: give it more time, or less to do"
        )

    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):
            stack.callback(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, ring))
            stack.callback(signal.setitimer, signal.ITIMER_REAL, 0)
            signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        except Exception:
            if time.perf_counter() < until:
                raise
    if time.perf_counter() >= until:
        ring()


def _job(party: Party, call: Message, raw: bytes, limit: int) -> Message | None:
    """Return this party's part of an ask; where there is a channel, nothing without a right tag is used."""
    job = Message.decode(raw, limit) if raw else None
    channel = party.vault.get("channel")
    if channel is None:
        return job
    found: tuple[Message, bytes] | None = party.cache.get("call")
    if found is None or found[0] is not call:
        found = call, bytes.fromhex(call.digest())
        party.cache["call"] = found
    party.asked = found[1]
    serial = read_integer(call, "$serial")
    return untagged(job or Message(), channel, *ask_context(serial, party.id, found[1]))


def _merge(call: Message, job: Message | None) -> Message:
    # A site looks at the call alone when it judges what it is asked for.
    if doubled := {*call, "component", "contribution"} & (job or {}).keys():
        raise MessageError(f"a job may not replace what all were asked: {sorted(doubled)}")
    return call | job if job else call


def _sent(party: Party, serial: object, reply: Message) -> bytes:
    channel = party.vault.get("channel")
    if channel is None or type(serial) is not int or not 0 <= serial <= MOST:
        return reply.encode()
    return tagged(reply, channel, *reply_context(serial, party.id)).encode()


def _reply(party: Party, serial: int, reply: Message, started: float) -> bytes:
    if any(name.startswith("$") for name in reply):
        raise MessageError("a step's reply may not use names that start with '$'")
    more: dict[str, Any] = {"$cpu": cpu_seconds() - started}
    if party.notes:
        more["$notes"] = [(note.text, note.level) for note in party.notes]
        party.notes.clear()
    return _sent(party, serial, reply | more)


def _run_step(
    party: Party, call: Message, job: Message | None, message: Message, assemble: Assemble
) -> Message:
    check_fields({name: message[name] for name in ("$step", "$manifest")}, {})
    kind, _, name = message["$step"].partition(".")
    if kind == "client" and name in ("enrol", "enrol_service"):
        return client.enrol(party, message, assemble, serves=name == "enrol_service")
    # The digest names method, protection and thresholds: nobody can be asked for less later.
    if "manifest" not in party.state or message["$manifest"] != client.manifest_of(party).digest:
        raise StepError(f"{party.id} did not agree to manifest {message['$manifest'][:12]}…: enrol it first")
    components = client.components_of(party, assemble)
    _check_fields(party, call, job, components.protection.field_kinds)
    told = message if any(name.startswith("shared/") for name in job or ()) else call
    shared = client.follow(party, components, message, told)
    if kind == "client":
        if shared is None:
            raise StepError(f"{party.id} has not been told the agreed schema")
        if name not in STEPS:
            raise StepError(f"clients have no step '{name}': {nearest(name, STEPS)}")
        if own_fields := components.protection.own_fields:
            party.asked = _bind_asked(party, job or {}, own_fields)
        return STEPS[name](party, message, components, shared)
    if kind == "protection":
        return client.protection_half(party, components).find_step(name)(message)
    function, _ = find_marked(getattr(components, kind, None), name, "step")
    reply: Message = function(party, message, shared)
    return reply


def _bind_asked(party: Party, job: Mapping[str, Any], own_fields: Collection[str]) -> bytes:
    """Return the digest of all that this party is told but for its own: a model may also come in its job."""
    # Totals that a client missed are its own, too: tags are bound to all that it has opened.
    own = {name for name in job if name in OWN_FIELDS or name in own_fields or name.startswith("log/")}
    told = {name: value for name, value in job.items() if name not in own}
    return hashlib.sha256(party.asked + Message({**told, "schema": party.state["schema"]}).encode()).digest()


def _check_fields(party: Party, call: Message, job: Message | None, kinds: Mapping[str, Kind]) -> None:
    """Check what the fields of an ask hold; the part that all parties of a wave get, once in a process."""
    found: tuple[Message, Mapping[str, Kind]] | None = party.cache.get("checked")
    if found is None or found[0] is not call or found[1] is not kinds:
        check_fields(call, kinds)
        party.cache["checked"] = call, kinds
    check_fields(job or {}, kinds)


def _public_text(error: Exception, party: Party) -> str:
    """Return what the coordinator may know of a failure; the rest stays in the site's own log."""
    log.debug("%s: step failed", party.id, exc_info=error)
    name = type(error).__name__
    text = f"{name}: {error.public}" if isinstance(error, TacitError) else f"{name} in the client's step"
    # Whatever a step put into its error, the failure itself must be able to travel.
    return text[:LONGEST_FAILURE].encode(errors="replace").decode()
