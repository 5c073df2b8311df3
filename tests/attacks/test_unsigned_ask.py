"""A stranger asks a deployed site for its contribution, without protection, and for a total over one client.

The row of a site follows from one such answer. The control is a site whose answers are not guarded: what runs
at a site once its checks are taken away.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tacit.core.errors import QuorumError
from tacit.core.manifest import Components
from tacit.core.message import Message
from tacit.core.party import identity_of
from tacit.core.secret import Secret
from tacit.crypto.channel import identity_public
from tacit.data.preparation import Preparation
from tacit.deploy import answer as answering
from tacit.deploy.launch import encode_settings
from tacit.engines.policy import Policy
from tacit.methods.fedheonn import FedHEONN
from tacit.protections import PROTECTIONS
from tacit.protections.noised import Noised
from tacit.protections.plain import Plain, PlainClient
from tacit.runs.settings import OWN_ROWS, Settings
from tests.helpers.deployed import OWN, coordinator_at, engine_of, make_sites, open_sum

ROW = np.array([[3.25, -1.5, 42.0]])
PARTS = Components(FedHEONN(), Plain(), Preparation())
WIDE = Policy(protections=("plain", "masked", "noised"), min_clients=1, rows=1, min_count=1)
UNSIGNED = {"authenticated": False}
SIGNED = {"authenticated": True}
STRANGER = Secret(bytes(32))


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """One site with one row, which accepts everything but from its pinned coordinator only."""
    return make_sites(tmp_path_factory.mktemp("sites"), {"north": (ROW, ["yes"])}, policy=WIDE)


ask = partial(coordinator_at, min_clients=1, declared={"classes": ["no", "yes"]})


def stolen(coordinator):
    """What the coordinator learns from a total over one client."""
    coordinator.enrol()
    return open_sum(coordinator, PARTS.preparation.moments)["sum"].tolist()


def last_refusal(engine, call, job=b"", settings=OWN):
    (reply,) = replace(engine, settings=settings).ask(call, [("north", job)])
    return reply.failure


def test_control_a_site_without_the_checks_gives_its_row_away(sites, monkeypatch):
    for check in ("_check_invitation", "_check_enrolled", "_check_channel"):
        monkeypatch.setattr(answering, check, lambda *given: None)
    assert stolen(ask(sites, PARTS, link=UNSIGNED)) == ROW[0].tolist()


def test_control_the_pinned_coordinator_is_answered(sites):
    assert stolen(ask(sites, PARTS, link=SIGNED)) == ROW[0].tolist()


@pytest.mark.parametrize("protection", [Plain(), Plain(opens="clients"), Noised()])
def test_an_unsigned_manifest_is_refused(sites, protection):
    with pytest.raises(QuorumError, match=r"manifest \w+… is not signed: ask as the coordinator"):
        ask(sites, PARTS._replace(protection=protection), link=UNSIGNED).enrol()


@pytest.mark.parametrize("protection", ["plain", "masked", "noised"])
def test_a_stranger_s_signature_is_refused(sites, protection):
    parts = PARTS._replace(protection=PROTECTIONS.build(protection))
    with pytest.raises(QuorumError, match="is signed by nobody whom this site has pinned"):
        ask(sites, parts, secret=STRANGER, link=SIGNED).enrol()


def test_an_operator_whom_the_policy_names_is_answered(tmp_path):
    policy = replace(WIDE, operators=(identity_public(identity_of(STRANGER)).hex(),))
    sites = make_sites(tmp_path, {"north": (ROW, ["yes"])}, policy=policy)
    assert stolen(ask(sites, PARTS, secret=STRANGER, link=SIGNED)) == ROW[0].tolist()


@pytest.fixture(scope="module")
def enrolled(sites):
    """The pinned coordinator, which has enrolled the site; what it sent is known to whoever carried it."""
    coordinator = ask(sites, PARTS, engine=engine_of(sites), link=SIGNED)
    coordinator.enrol()
    return coordinator


class TestWhoeverReachesTheSite:
    def test_an_ask_without_a_tag_is_refused(self, sites, enrolled):
        engine = enrolled.link.transport.engine
        call = {"$serial": 7, "$step": "client.contribute", "$manifest": enrolled.manifest.digest}
        call |= {"component": "preparation", "contribution": "moments", "sum": 1}
        call |= {"schema": enrolled.schema.to_message().encode()}
        assert "a message is not authentic" in last_refusal(engine, Message(call).encode())

    def test_an_ask_for_another_run_is_refused(self, enrolled):
        engine = enrolled.link.transport.engine
        call = Message({"$serial": 7, "$step": "client.adopt_model", "$manifest": "0" * 64}).encode()
        assert "answers only asks that carry a tag" in last_refusal(engine, call)

    def test_the_invitation_of_another_run_is_refused(self, sites, enrolled):
        """A signed invitation is repeated under a new digest, to enrol the site once more."""
        engine = enrolled.link.transport.engine
        call = Message.decode(engine.asked[0][1])
        again = call | {"$manifest": "0" * 64}
        assert "under the digest of another manifest" in last_refusal(engine, again.encode())

    def test_its_signature_serves_no_other_manifest(self, sites, enrolled):
        engine = enrolled.link.transport.engine
        signature = Message.decode(engine.asked[0][1])["protection/exchange"]
        other = replace(enrolled.manifest, run="another", quorum=0.1)
        call = Message(
            {
                "$serial": 1,
                "$step": "client.enrol",
                "$manifest": other.digest,
                "manifest": other.to_message().encode(),
                "protection/exchange": signature,
            }
        )
        assert "is signed by nobody whom" in last_refusal(engine, call.encode())

    def test_an_invitation_cannot_be_repeated_with_other_words(self, enrolled):
        engine = enrolled.link.transport.engine
        call = Message.decode(engine.asked[0][1]) | {"$serial": 99}
        assert "a message is not authentic" in last_refusal(engine, call.encode())

    def test_the_rows_kept_aside_cannot_be_changed_within_a_run(self, enrolled, monkeypatch):
        """Sums over one row more and one less would show that row."""
        engine = enrolled.link.transport.engine
        other = Settings.from_tables({"data": {"name": OWN_ROWS, "holdout": 0.5}})
        monkeypatch.setattr(engine, "settings", encode_settings(other))
        with pytest.raises(QuorumError, match="enrolled under other settings of this run"):
            open_sum(enrolled, PARTS.preparation.moments)

    @pytest.mark.parametrize("manifest", [7, b"", b"\x00" * 9, "text"])
    def test_what_cannot_be_read_is_refused(self, enrolled, manifest):
        engine = enrolled.link.transport.engine
        call = {"$serial": 1, "$step": "client.enrol", "$manifest": "0" * 64, "manifest": manifest}
        assert last_refusal(engine, Message(call).encode()).split(":")[0] in (
            "MessageError",
            "TypeError",
            "AttributeError",
        )


class TestRowsKeptAside:
    """Whoever relays a run's settings has a site keep nearly all of its rows out of the training."""

    def enrol(self, sites, **manifest):
        settings = Settings.from_tables({"data": {"name": OWN_ROWS, "holdout": 0.9}})
        engine = replace(engine_of(sites), settings=encode_settings(settings))
        declared = {"classes": ["no", "yes"], **manifest}
        ask(sites, PARTS, engine=engine, link=SIGNED, declared=declared).enrol()

    def test_control_the_coordinator_has_signed_that_share(self, sites):
        self.enrol(sites, holdout=0.9)

    @pytest.mark.parametrize("manifest", [{}, {"holdout": 0.2}])
    def test_another_share_is_refused(self, sites, manifest):
        reason = r"keeps 0\.9 of the rows aside by its settings and 0\.[02] by its manifest"
        with pytest.raises(QuorumError, match=reason):
            self.enrol(sites, **manifest)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("", "carries no settings"),
        ("[]", "carries no settings"),
        ('{"data": 3}', r"\[data\] is 3: write it as a table"),
        (
            '{"data": {"name": "sites", "holdout": 1.0}}',
            "keeps 1.0 of the rows aside by its settings and 0.0",
        ),
        ('{"data": {"name": "/etc/passwd"}}', "takes part in no experiments: run it with data = 'sites'"),
        # No code is looked for that an unsigned text names.
        ('{"data": {"name": "sites"}, "method": {"name": "a.module:Class"}}', None),
    ],
)
def test_what_a_run_says_of_itself_is_not_trusted(sites, settings, reason):
    engine = replace(engine_of(sites), settings=settings)
    coordinator = ask(sites, PARTS, engine=engine, link=SIGNED)
    if reason is None:
        coordinator.enrol()
    else:
        with pytest.raises(QuorumError, match=reason):
            coordinator.enrol()


def test_a_protection_that_opens_no_channel_is_refused(sites, monkeypatch):
    """Of a plug-in, say: its coordinator signs, but nothing would show that later asks are authentic."""
    monkeypatch.setattr(PlainClient, "introduce", lambda self, greeting: {})
    coordinator = ask(sites, PARTS, link=SIGNED)
    with pytest.raises(QuorumError, match="under a protection whose halves open a channel"):
        coordinator.enrol()
