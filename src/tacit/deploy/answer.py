"""What a site does with an ask, whatever carried it: check who asks, load what it remembers, perform, reply.

A site enrols in a run whose manifest the coordinator that it has pinned, or an operator that its policy
names, has signed, and which that policy accepts. Every later ask carries a tag under the key agreed on then.
Anything else is refused before a row is touched. Replies and refusals are in the audit log before they leave.
"""

import hashlib
import logging
from dataclasses import replace
from functools import cache
from math import isfinite
from typing import Any

import msgspec
import numpy as np

from tacit.core.client import manifest_of
from tacit.core.component import from_plain
from tacit.core.errors import ConfigError, DataError, ProtectionError, TacitError
from tacit.core.exposure import COORDINATOR
from tacit.core.fields import strip_prefix
from tacit.core.manifest import Manifest
from tacit.core.message import DEFAULT_LIMIT, Message
from tacit.core.party import Charge, Party, identity_of
from tacit.core.steps import perform
from tacit.core.transport import ENROLMENT
from tacit.data.catalog import content_digest
from tacit.data.files import absolute, load
from tacit.data.findings import look
from tacit.deploy.records import ASKER, CHARGES, record_answer, record_refusal, tell_coordinator
from tacit.deploy.standing import begin_pieces, check_asked, digest_of_first, may_ask, may_enrol
from tacit.engines.assembly import assemble
from tacit.engines.holdings import Holdings, holdings_of
from tacit.engines.sitefolder import SiteFolder
from tacit.engines.sites import site_secret
from tacit.protections.keys.authenticated import signer
from tacit.runs.experiment import build_federation
from tacit.runs.settings import OWN_ROWS, Settings, table_of
from tacit.runs.tables import DataSettings

log = logging.getLogger("tacit.site")

ROWS = "rows"  # in a party's state: digest of the rows with which it enrolled
SETTINGS = "settings"  # in a party's state: digest of the run's settings when it enrolled


def answer(folder: SiteFolder, told: str, call: bytes, job: bytes, timeout: float | None) -> bytes:
    """Perform one ask at a site, and return the encoded reply.

    ``told`` are the settings that the run says of itself: only in experiments are they listened to. ``call``
    is what all are asked, ``job`` what this site alone is told.
    """
    message, asked = Message(), len(call) + len(job)
    try:
        message = Message.decode(call, DEFAULT_LIMIT)
        run = message["$manifest"]
        if not isinstance(run, str):
            raise ConfigError("an ask that names no manifest")
        settings = _read_settings(folder, told)
        with folder.store.step(run, party_of(folder, settings, message["$step"])) as party:
            if message["$step"] in ENROLMENT and may_enrol(party, message):
                _check_invitation(folder, party, message, settings)
            else:
                _check_enrolled(folder, party, message, settings)
            raw = perform(
                party, message, job, assemble, timeout=timeout, keep_reply=True, limit=DEFAULT_LIMIT
            )
            if "manifest" in party.state:
                _check_channel(party)
            record_answer(folder, party, message, asked, raw)
            if "manifest" not in party.state:
                party.state.clear()  # it could not enrol: nothing is remembered of that
            return raw
    except TacitError as error:
        kind, text = type(error).__name__, error.public
    except Exception as error:  # whatever an ask makes this site raise is a refusal
        log.debug("%s: an ask failed", folder.name, exc_info=error)
        kind, text = type(error).__name__, "an ask that cannot be read"
    try:
        record_refusal(folder, message, asked, f"{kind}: {text}")
    except TacitError as error:
        kind, text = type(error).__name__, error.public
    return refusal(kind, text)


def refusal(kind: str, text: str) -> bytes:
    """Encode a reply that says why there is none."""
    return Message({"$failure": f"{kind}: {text}", "$cpu": 0.0}).encode()


def _check_invitation(folder: SiteFolder, party: Party, message: Message, settings: Settings) -> None:
    """Refuse a manifest that nobody who may ask has signed, and one that the site does not accept."""
    manifest = Manifest.from_message(Message.decode(message["manifest"]))
    if manifest.digest != message["$manifest"]:
        raise ProtectionError(
            f"an invitation to run {manifest.run} under the digest of another manifest: it was changed"
        )
    policy, experiment = folder.policy, settings.data.name != OWN_ROWS
    party.state[ASKER] = signer(strip_prefix("protection/", message), manifest.digest, may_ask(folder))
    party.state[SETTINGS] = _digest(settings)
    if manifest.experiment and not folder.settings.experiment:
        raise ConfigError(f"{folder.name} takes part in no experiments, where models are read at sites")
    if manifest.experiment != experiment:
        raise ConfigError(
            f"the manifest of run {manifest.run} and its settings differ on whether it is an experiment: "
            "start it with `tacit run`"
        )
    policy.check_names(folder.name, manifest)
    components = assemble(manifest)
    policy.check(folder.name, manifest, components)
    if not experiment:
        # Nobody signs settings: whoever relays them could choose the rows that are learnt from.
        if (holdout := settings.data.holdout) != (agreed := manifest.declared.get("holdout", 0.0)):
            raise ProtectionError(
                f"run {manifest.run} keeps {holdout} of the rows aside by its settings and {agreed} by its "
                "manifest: the settings were changed on their way"
            )
        spent = folder.ledger.total(but=_terms(manifest))
        policy.check_epsilon(folder.name, components, spent, bool(holdout))
        begin_pieces(party, manifest)
        if folder.settings.data is not None:
            policy.check_rows(folder.name, party.data.rows)
            if folder.settings.tell:
                tell_coordinator(party, policy)
            for found in look(party.data):
                if found.severity == "warning":  # for the owner of the rows alone
                    log.warning("%s: %s", folder.name, found.sentence)


def _check_enrolled(folder: SiteFolder, party: Party, message: Message, settings: Settings) -> None:
    """Refuse an ask that is not bound to what this site enrolled under."""
    _check_channel(party)
    check_asked(folder, party, message)
    if party.state.get(SETTINGS) != _digest(settings):
        # They say which rows are kept aside: two sums over other rows would show the difference.
        raise ProtectionError(f"{folder.name} enrolled under other settings of this run: they were changed")
    if not folder.policy.limits_epsilon or message.get("component") != "preparation":
        return
    manifest = manifest_of(party)
    if not manifest.experiment and not isfinite(assemble(manifest).protection.own_epsilon):
        raise ProtectionError(f"{folder.name} limits epsilon: it contributes to no sum of the preparation")


def _check_channel(party: Party) -> None:
    """Refuse whoever has agreed on no key with this site: nothing would show that asks are authentic."""
    if "channel" not in party.vault:
        raise ProtectionError(
            f"{party.id} answers only asks that carry a tag, under a key agreed on at enrolment: enrol it "
            "first, under a protection whose halves open a channel"
        )


def _digest(settings: Settings) -> str:
    return hashlib.sha256(msgspec.json.encode(settings.as_tables(), order="sorted")).hexdigest()


def _terms(manifest: Manifest) -> str:
    return replace(manifest, attempt=0).digest


def party_of(folder: SiteFolder, settings: Settings, step: object = "") -> Party:
    """Return the party that a site plays in a run, for a step."""
    experiment = settings.data.name != OWN_ROWS

    @cache
    def held() -> tuple[Holdings, int]:
        if experiment:
            holdings, digest = build_federation(settings).holdings, ""
            if folder.name not in holdings.names:
                raise ConfigError(
                    f"the run divides its rows among {', '.join(holdings.names)}, and this is {folder.name}"
                )
        else:
            holdings = _own(folder, settings)
            digest = digest_of_first(found, holdings.table, step) or content_digest(holdings.table)
        if found.state.setdefault(ROWS, digest) != digest:  # two sums would show the difference
            raise DataError(f"the rows of {folder.name} changed during the run: it contributes no more")
        return holdings, holdings.names.index(folder.name) if experiment else 0

    def pinned(name: str) -> bytes:
        """Return a pinned identity; the coordinator of a run is who has signed its manifest."""
        asker: bytes | None = found.state.get(ASKER) if name == COORDINATOR else None
        return folder.roster.pinned(name) if asker is None else asker

    def charge(charge: Charge) -> None:
        if experiment:  # public rows have nothing to spend
            return
        manifest = manifest_of(found)
        folder.ledger.charge(_terms(manifest), manifest.run, charge, folder.policy.epsilon_total)
        found.cache.setdefault(CHARGES, []).append(charge)

    found = Party(
        folder.name,
        lambda: Holdings.rows(*held()),
        # An experiment's draws are repeatable; the identity is the site's own all the same.
        site_secret(settings.run.seed, folder.name) if experiment else folder.secret,
        read_holdout=lambda: Holdings.holdout_rows(*held()),
        pinned=pinned,
        signing_key=identity_of(folder.secret),
        preshared=folder.preshared_keys,
        earlier=lambda manifest: folder.store.recalled(manifest, party_of(folder, settings)),
        charge=charge,
        roster=folder.roster.clients,
        least_rows=folder.policy.rows,
        names_score=folder.policy.name_scores,
    )
    return found


def _read_settings(folder: SiteFolder, told: str) -> Settings:
    """Read what a site needs of settings that nobody has signed: no method, which would be imported here."""
    try:
        tables = msgspec.json.decode(told, type=dict[str, Any])
    except msgspec.MsgspecError:
        raise ConfigError("the run's configuration carries no settings: start it with `tacit run`") from None
    data = table_of(tables, "data")
    if data.get("name") == OWN_ROWS:
        return Settings(from_plain(DataSettings, data, "[data]"))
    if not folder.settings.experiment:
        raise ConfigError(f"{folder.name} takes part in no experiments: run it with data = '{OWN_ROWS}'")
    rows = {name: table for name, table in tables.items() if name in ("data", "partition", "prepare")}
    seed = {name: value for name, value in table_of(tables, "run").items() if name == "seed"}
    return Settings.from_tables({**rows, "run": seed, "protect": {"name": "plain"}})


def _own(folder: SiteFolder, settings: Settings) -> Holdings:
    """Load the site's own rows; the share that it keeps aside is drawn by its own secret."""
    known = folder.settings
    if known.data is None:
        raise ConfigError(f"{folder.name} has no rows: name their file as `data` in its site.toml")
    path = absolute(known.data, folder.path)
    try:
        table = load(path, **known.choices())
    except TacitError as error:  # where the rows lie is not told to others
        error.public = error.public.replace(path, "its rows")
        raise
    seed = int.from_bytes(folder.secret.reveal()[:7], "little")
    return holdings_of(table, np.zeros(table.rows, dtype=np.int64), settings.data.holdout, seed)
