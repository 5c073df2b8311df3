"""Enrolment: coordinator and parties agree on the manifest, on keys for their messages, and on the schema."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tacit.core.client import initial_values
from tacit.core.engine import Reply
from tacit.core.errors import ConfigError, FederationError, SchemaError, TacitError
from tacit.core.events import Noted, RunStarted
from tacit.core.fields import add_prefix, strip_prefix
from tacit.core.link import Link
from tacit.core.message import Message
from tacit.core.protection import CoordinatorHalf
from tacit.core.text import abbreviate

if TYPE_CHECKING:
    from tacit.data.agreement import Agreement

MOST_INVITATIONS = 5  # to a party that could be asked and does not answer


class Enrolment:
    """Enrols parties at the start of a run, and those that come later."""

    def __init__(self, link: Link, protection: CoordinatorHalf) -> None:
        self._link, self._protection = link, protection
        self._failures = link.transport.failures

    def enrol(self) -> None:
        """Agree on manifest and schema with every party."""
        link = self._link
        asked, manifest = link.transport.engine.parties(), link.manifest
        protection = link.components.protection
        method, protected_by = (manifest.components[kind]["name"] for kind in ("method", "protection"))
        run = (manifest.run, manifest.digest, method, protected_by)
        settings = link.components.method.config()
        rounds = settings["rounds"] + settings.get("trials", 0) if "rounds" in settings else None
        link.events.emit(RunStarted(*run, protection.opens, len(asked), manifest.seed, rounds))
        for warning in protection.promises.warnings:
            link.events.emit(Noted("protection", warning, "warning"))
        call = self._invitation()
        self._enrol_services(call)
        agreement = link.components.preparation.agreement(manifest.declared, manifest.min_count)
        link.parties = self._introduced(asked, call, agreement)
        link.transport.check_quorum("enrolment", asked, link.parties, self._failures)
        odd = agreement.outvoted()
        # Who has other columns than most is left out, if enough are left: one client stops no run.
        if len(link.parties) - len(odd) < link.transport.quorum_of(len(asked)):
            odd = {}
        link.briefing.agree(agreement.make_schema(without=odd))
        for party, reason in odd.items():
            self._refuse(party, f"SchemaError: {reason}")
        link.keep_only([party for party in link.parties if party not in odd])
        if protection.opens != "clients":
            initial = initial_values(link.components, link.schema, manifest)
            link.briefing.shared = link.briefing.initial = initial

    def late(self) -> tuple[str, ...]:
        """Return parties that did not answer when all were invited, and could be asked now.

        Where clients open totals, one that comes late has to open all earlier ones. A run that was resumed
        does not have all of them any more, so no client can join it late. Nor can one that had no part in
        the draw of a leader.
        """
        link = self._link
        if len(link.parties) == len(invited := link.transport.engine.parties()):
            return ()
        opens = link.components.protection.opens
        if opens == "leader" or (opens == "clients" and link.manifest.attempt):
            return ()
        there, tries = set(link.transport.engine.present()), link.transport.unanswered
        return tuple(n for n in invited if n in there and 0 < tries[n] <= MOST_INVITATIONS)

    def admit(self, names: Sequence[str], agreement: "Agreement") -> tuple[str, ...]:
        """Enrol parties that come later, under the schema that was agreed; return those that could be."""
        link = self._link
        agreement.hold(link.schema)  # of which it has the vocabulary declared
        admitted = self._introduced(names, self._invitation(), agreement)
        if admitted:
            if agreement.make_schema() != link.schema:
                raise SchemaError(
                    f"{abbreviate(admitted)}: other columns or targets than the federation agreed on"
                )
            self._protection.admit(admitted)
            link.parties += admitted
        return admitted

    def _invitation(self) -> dict[str, Any]:
        manifest = self._link.manifest.to_message().encode()
        return {"manifest": manifest, **add_prefix("protection/", self._protection.greet())}

    def _introduced(
        self, asked: Sequence[str], call: Mapping[str, Any], agreement: "Agreement"
    ) -> tuple[str, ...]:
        link = self._link
        enrolled = []
        for reply in link.transport.wave("client.enrol", asked, call, failures=self._failures):
            try:
                agreement.add(reply.party, self._welcome(reply))
            except TacitError as error:
                self._refuse(reply.party, f"{type(error).__name__}: {error}")
                continue
            enrolled.append(reply.party)
        return tuple(enrolled)

    def _refuse(self, party: str, reason: str) -> None:
        self._link.record_failure(party, reason)
        self._link.events.emit(Noted(party, f"enrolment refused: {reason}", "warning"))

    def _enrol_services(self, call: Mapping[str, Any]) -> None:
        link = self._link
        for service in link.components.services:
            names = link.transport.engine.parties(service)
            if not names:
                raise ConfigError(f"the run needs a {service}: this engine has none")
            link.transport.services.update(names)
            for reply in link.transport.wave("client.enrol_service", names, call, failures=self._failures):
                self._welcome(reply)
            if odd := [name for name in names if name in self._failures]:
                raise FederationError(f"{odd[0]} cannot serve: {self._failures[odd[0]]}")

    def _welcome(self, reply: Reply) -> Message:
        self._protection.welcome(reply.party, strip_prefix("protection/", reply.message))
        return self._link.transport.authentic(reply)
