"""What a site checks of its own in a standing federation (steps: :mod:`tacit.core.standing_client`)."""

from tacit.core.client import components_of, manifest_of
from tacit.core.errors import ProtectionError
from tacit.core.exposure import COORDINATOR
from tacit.core.fields import read_integer
from tacit.core.manifest import Manifest
from tacit.core.message import Message
from tacit.core.own_record import STANDING as OPENED
from tacit.core.own_record import know_sites
from tacit.core.party import Party
from tacit.core.standing_client import LEDGER, PIECES
from tacit.core.transport import ENROLMENT
from tacit.data.catalog import content_digest
from tacit.data.table import Table
from tacit.deploy.records import ASKER
from tacit.engines.assembly import assemble
from tacit.engines.sitefolder import SiteFolder

CHANGE = "client.change_contribution"
STANDING = (CHANGE, "client.open_standing_total")  # steps of standing federations alone
SENT = (LEDGER, OPENED, "opened/", "tagged/", "standing/tagged/")  # in a state: more than enrolment


def may_enrol(party: Party, message: Message) -> bool:
    """Return whether a party may enrol: in a standing federation also anew, if it has done nothing since.

    Its coordinator may have been stopped before it had written down that the party has enrolled.
    """
    if "manifest" not in party.state:
        return True
    took_part = any(name.startswith(SENT) for name in party.state)
    restored = "channel" not in party.vault  # from a backup: it may have done more than it knows
    repeated = read_integer(message, "$serial") <= party.state["$serial"]  # or whoever recorded it resets it
    if took_part or restored or repeated or not manifest_of(party).stands:
        return False
    party.state.clear()
    party.vault.clear()
    return True


def begin_pieces(party: Party, manifest: Manifest) -> None:
    """Note with how many rows a site enrols in a standing federation: they are its first piece."""
    if manifest.stands:
        party.state[PIECES] = (party.data.rows,)
        know_sites(party, party.roster)


def may_ask(folder: SiteFolder) -> list[bytes]:
    """Return the identities whose manifests a site accepts: its coordinator's, and those its policy names."""
    return [folder.roster.pinned(COORDINATOR), *map(bytes.fromhex, folder.policy.operators)]


def digest_of_first(party: Party, table: Table, step: object) -> str | None:
    """Return the digest of the first piece of a site's rows, for a step that may find new ones behind it."""
    if step != CHANGE or PIECES not in party.state:
        return None
    return content_digest(table.take(slice(0, party.state[PIECES][0])))


def check_asked(folder: SiteFolder, party: Party, message: Message) -> None:
    """Refuse steps of standing federations in other runs, and those of other runs in standing federations."""
    stands, step = manifest_of(party).stands, str(message["$step"])
    if step in STANDING and not stands:  # two totals of rows that the coordinator chooses differ by a row
        raise ProtectionError(
            f"{folder.name} is part of no standing federation: it contributes all its rows, or none"
        )
    if stands:  # for longer than a run: its owner may accept less by now
        components = components_of(party, assemble)
        folder.policy.check_names(folder.name, manifest_of(party))
        folder.policy.check(folder.name, manifest_of(party), components)
        folder.policy.check_epsilon(folder.name, components, 0.0, scores=False)
    if stands and party.state[ASKER] not in may_ask(folder):
        raise ProtectionError(
            f"whoever started this standing federation may ask {folder.name} no more: the roster names "
            "another coordinator, or [accept] operators names this one no longer"
        )
    settles = step == "client.contribute" and message.get("component") == "preparation"
    if stands and not (settles or step in (*STANDING, *ENROLMENT) or step.startswith("protection.")):
        raise ProtectionError(
            f"{folder.name} settles the scale of a standing federation, brings rows and opens its total: "
            f"'{step[:80]}' belongs to other runs"
        )
