"""How a party answers: what it refuses, what it forgets, and what never leaves it."""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tacit.core.errors import DataError
from tacit.core.manifest import Components, Manifest
from tacit.core.marks import step
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.secret import Secret
from tacit.core.steps import perform
from tacit.data.preparation import Preparation
from tacit.data.schema import Schema
from tacit.data.table import Table
from tacit.methods.base import Method
from tacit.protections.plain import Plain

executions = Counter()


@dataclass(frozen=True)
class Deeds(Method):
    """Steps that do the things a step may do, and some that it may not."""

    level: int = 0

    @step
    def count(self, party, message, shared):
        executions[party.id] += 1
        party.state["count"] = party.state.get("count", 0) + message.get("by", 1)
        party.vault["key"] = Secret(b"key %d" % party.state["count"])
        return Message(count=party.state["count"], execution=executions[party.id])

    @step
    def fail(self, party, message, shared):
        self.count(party, message, shared)
        party.note("half-way")
        raise RuntimeError("patient 4711 has no blood pressure")

    @step
    def refuse(self, party, message, shared):
        raise DataError("a column is empty", private="row 4711")

    @step
    def forge(self, party, message, shared):
        party.state["forged"] = True
        return Message({message["name"]: message["value"]})

    @step
    def tell(self, party, message, shared):
        party.note("first")
        party.note("second", "warning")
        return Message()

    @step
    def overflow(self, party, message, shared):
        party.state["overflowed"] = True
        return Message(long=list(range(50_000)))

    @step
    def nonsense(self, party, message, shared):
        return 5

    @step
    def ramble(self, party, message, shared):
        raise DataError("x" * 100_000 if message["how"] == "long" else "lone \ud800 surrogate")

    def quiet(self, party, message, shared):
        raise AssertionError("an unmarked function was called from outside")


PARTS = Components(Deeds(), Plain(), Preparation())
MANIFEST = Manifest.of("run-1", PARTS)


class Site:
    """A party with the coordinator's end of the wire in hand."""

    def __init__(self, *, keep_reply=False):
        table = Table.of(np.arange(8.0).reshape(4, 2), ["no", "yes", "no", "yes"])
        executions.clear()
        self.party = Party("north", lambda: table, Secret(b"own"))
        self.schema = (
            Schema(table.columns, "classification", ("no", "yes"), ("target",)).to_message().encode()
        )
        self.keep_reply = keep_reply
        self.manifest = MANIFEST
        self.serial = 0

    def assemble(self, manifest):
        return PARTS._replace(method=Deeds.from_config(manifest.components["method"]["config"]))

    def send(self, call, job=b""):
        raw = perform(self.party, Message(call), job, self.assemble, keep_reply=self.keep_reply)
        return Message.decode(raw)

    def call(self, name, /, **fields):
        self.serial += 1
        return {"$serial": self.serial, "$step": name, "$manifest": self.manifest.digest, **fields}

    def ask(self, name, /, **fields):
        return self.send(self.call(name, **fields))

    def enrol(self, manifest=MANIFEST):
        reply = self.ask("client.enrol", manifest=manifest.to_message().encode())
        assert "$failure" not in reply
        return reply

    def snapshot(self):
        return self.party.state.to_bytes(), {name: s.reveal() for name, s in self.party.vault.items()}


@pytest.fixture
def site():
    made = Site()
    made.enrol()
    made.ask("method.count")
    return made


@pytest.fixture
def keeping():
    made = Site(keep_reply=True)
    made.enrol()
    return made


def failed(reply, text):
    assert text in reply["$failure"]
    assert set(reply) == {"$failure", "$cpu"}


class TestCommit:
    def test_what_a_step_did_is_kept_when_it_returns(self, site):
        assert site.ask("method.count")["count"] == 2
        assert site.party.state["count"] == 2
        assert site.party.vault["key"].reveal() == b"key 2"

    @pytest.mark.parametrize(
        ("name", "fields"),
        [
            ("method.fail", {}),
            ("method.refuse", {}),
            ("method.forge", {"name": "$failure", "value": 1}),
            ("method.overflow", {}),
            ("method.nonsense", {}),
            ("method.quiet", {}),
            ("client.contribute", {"component": "method", "contribution": "count", "sum": 1}),
        ],
    )
    def test_a_step_that_fails_leaves_state_vault_and_serial_as_they_were(self, site, name, fields):
        before = site.snapshot()
        assert "$failure" in site.ask(name, **fields)
        assert site.snapshot() == before

    def test_notes_of_a_failed_step_do_not_ride_on_the_next_reply(self, site):
        site.ask("method.fail")
        assert "$notes" not in site.ask("method.count")

    def test_notes_ride_on_their_own_reply_once(self, site):
        assert site.ask("method.tell")["$notes"] == (("first", "info"), ("second", "warning"))
        assert "$notes" not in site.ask("method.count")


class TestSerialNumbers:
    def test_an_older_ask_is_refused(self, site):
        old = site.call("method.count")
        site.ask("method.count")
        before = site.snapshot()
        failed(site.send(old), "ReplayError: north answered ask 4 already and refuses ask 3")
        assert site.snapshot() == before

    def test_the_same_ask_again_is_refused_where_replies_are_not_kept(self, site):
        call = site.call("method.count")
        assert site.send(call)["count"] == 2
        failed(site.send(call), "ReplayError")
        assert site.party.state["count"] == 2

    def test_another_ask_under_a_used_number_is_refused(self, site):
        call = site.call("method.count")
        site.send(call)
        failed(site.send({**call, "by": 100}), "ReplayError")
        assert site.party.state["count"] == 2

    def test_numbers_may_leave_gaps(self, site):
        site.serial += 1000
        assert site.ask("method.count")["count"] == 2

    @pytest.mark.parametrize("serial", [float("nan"), float("inf"), 1e300, True, None, "9", (9,)])
    def test_only_whole_numbers_count(self, site, serial):
        before = site.snapshot()
        failed(site.send({**site.call("method.count"), "$serial": serial}), "MessageError")
        assert site.snapshot() == before

    def test_a_failed_ask_may_be_repeated(self, site):
        call = site.call("method.fail")
        failed(site.send(call), "RuntimeError")
        failed(site.send(call), "RuntimeError")


class TestKeptReplies:
    def test_a_repeated_ask_gets_the_stored_bytes_and_is_not_performed_again(self, keeping):
        call = Message(keeping.call("method.count"))
        first = perform(keeping.party, call, b"", keeping.assemble, keep_reply=True)
        state = keeping.party.state.to_bytes()
        again = perform(keeping.party, Message.decode(call.encode()), b"", keeping.assemble, keep_reply=True)
        assert again == first
        assert executions["north"] == 1
        assert keeping.party.state.to_bytes() == state

    def test_also_after_the_state_was_written_out_and_read_back(self, keeping):
        call = keeping.call("method.count")
        first = keeping.send(call)
        keeping.party.cool()
        assert keeping.send(call) == first
        assert executions["north"] == 1

    def test_the_job_is_part_of_the_ask(self, keeping):
        call = keeping.call("method.count")
        keeping.send(call, Message(by=1).encode())
        failed(keeping.send(call, Message(by=2).encode()), "ReplayError")
        assert keeping.party.state["count"] == 1

    def test_another_ask_under_the_same_number_is_refused(self, keeping):
        call = keeping.call("method.count")
        keeping.send(call)
        failed(keeping.send({**call, "by": 5}), "ReplayError")

    def test_an_older_ask_is_refused_and_does_not_displace_the_kept_reply(self, keeping):
        old, last = keeping.call("method.count"), keeping.call("method.count")
        first = keeping.send(last)
        failed(keeping.send(old), "ReplayError")
        assert keeping.send(last) == first
        assert executions["north"] == 1

    def test_enrolling_twice_with_the_same_bytes_is_a_repeated_ask(self, keeping):
        call = {**keeping.call("client.enrol", manifest=MANIFEST.to_message().encode()), "$serial": 1}
        assert "signature" in keeping.send(call)

    def test_a_step_that_failed_is_performed_again(self, keeping):
        call = keeping.call("method.fail")
        failed(keeping.send(call), "RuntimeError")
        failed(keeping.send(call), "RuntimeError")
        assert executions["north"] == 2


class TestEnrolment:
    def test_nothing_is_done_for_a_manifest_that_nobody_agreed_to(self):
        site = Site()
        for name in ("method.count", "client.adopt_model", "client.show_model", "client.contribute"):
            failed(site.ask(name), "did not agree to manifest")
        assert executions["north"] == 0
        assert len(site.party.state) == 0

    def test_a_second_enrolment_is_refused(self, site):
        before = site.snapshot()
        other = replace(MANIFEST, run="run-2")
        failed(
            site.ask("client.enrol", manifest=other.to_message().encode()), "enrolled already, in run run-1"
        )
        assert site.snapshot() == before

    @pytest.mark.parametrize(
        "weaker",
        [
            replace(MANIFEST, min_clients=7),
            replace(MANIFEST, experiment=True),
            Manifest.of("run-1", PARTS._replace(method=Deeds(level=1))),
        ],
    )
    def test_an_ask_under_another_manifest_is_refused(self, site, weaker):
        site.manifest = weaker
        failed(site.ask("method.count"), f"did not agree to manifest {weaker.digest[:12]}")
        assert site.party.state["count"] == 1

    @pytest.mark.parametrize("raw", [b"", b"noise", "text", 5, None, Message(run="only").encode()])
    def test_a_manifest_that_cannot_be_read_leaves_the_party_free(self, raw):
        site = Site()
        assert "$failure" in site.ask("client.enrol", manifest=raw)
        assert len(site.party.state) == 0
        site.enrol()
        assert site.ask("method.count")["count"] == 1

    def test_a_party_whose_rows_cannot_be_learnt_from_does_not_enrol(self):
        site = Site()
        site.party.read_rows = lambda: Table.of(np.array([[1.0], [np.nan]]), ["no", "yes"])
        failed(site.ask("client.enrol", manifest=MANIFEST.to_message().encode()), "column 'x0' holds missing")
        assert len(site.party.state) == 0


class TestWhatCanBeAsked:
    @pytest.mark.parametrize(
        "name",
        [
            "method.quiet",
            "method.train",
            "method.fit",
            "method.__class__",
            "method.evaluation",
            "method.",
            "protection.open",
            "protection.promises",
            "preparation.moments",
            "preparation.apply_moments",
            "preparation.introduce",
            "_asdict.count",
            "__class__.mro",
            "party.state",
            "nothing.count",
            "count",
            "",
            ".",
            "method.count.count",
        ],
    )
    def test_only_marked_steps_of_the_agreed_parts(self, site, name):
        before = site.snapshot()
        failed(site.ask(name), "ConfigError")
        assert site.snapshot() == before

    @pytest.mark.parametrize("name", ["enroll", "follow", "opened", "__class__", ""])
    def test_only_known_steps(self, site, name):
        failed(site.ask(f"client.{name}", schema=site.schema), "StepError: clients have no step")

    @pytest.mark.parametrize(
        "part", ["method", "protection", "preparation", "_asdict", "__class__", "index", ""]
    )
    @pytest.mark.parametrize("contribution", ["count", "__init__", "_replace", "train", "solve", ""])
    def test_only_marked_contributions(self, site, part, contribution):
        asked = {"component": part, "contribution": contribution, "sum": 1, "schema": site.schema}
        assert "$failure" in site.ask("client.contribute", **asked)

    def test_no_desk_step_before_the_schema_is_known(self, site):
        failed(site.ask("client.adopt_model"), "has not been told the agreed schema")


class TestWhatLeaves:
    def test_text_of_a_foreign_exception_stays_at_the_site(self, site):
        reply = site.ask("method.fail")
        assert reply["$failure"] == "RuntimeError in the client's step"
        assert b"4711" not in reply.encode()

    def test_the_private_part_of_our_own_errors_stays_at_the_site(self, site):
        reply = site.ask("method.refuse")
        assert reply["$failure"] == "DataError: a column is empty"
        assert b"4711" not in reply.encode()

    def test_the_whole_story_is_in_the_sites_own_log(self, site, caplog):
        with caplog.at_level("DEBUG", logger="tacit.site"):
            site.ask("method.fail")
        assert "4711" in caplog.text

    @pytest.mark.parametrize("name", ["$failure", "$cpu", "$notes", "$anything", "$"])
    def test_a_step_cannot_write_the_names_of_the_envelope(self, site, name):
        failed(site.ask("method.forge", name=name, value=0.0), "may not use names that start with '$'")
        assert "forged" not in site.party.state

    def test_other_names_are_free(self, site):
        assert site.ask("method.forge", name="cpu$", value=1)["cpu$"] == 1

    @pytest.mark.parametrize("how", ["long", "odd"])
    def test_a_failure_can_always_travel(self, site, how):
        reply = site.ask("method.ramble", how=how)
        assert reply["$failure"].startswith("DataError: ")
        assert len(reply["$failure"]) < 5000


class TestJobs:
    def test_a_job_adds_fields(self, site):
        assert site.send(site.call("method.count"), Message(by=10).encode())["count"] == 11

    @pytest.mark.parametrize("name", ["$serial", "$step", "$manifest", "by"])
    def test_a_job_cannot_replace_what_all_were_asked(self, site, name):
        before = site.snapshot()
        job = Message({name: 10**6}).encode()
        failed(site.send(site.call("method.count", by=1), job), "may not replace what all were asked")
        assert site.snapshot() == before

    def test_damaged_bytes_are_a_failure_and_change_nothing(self, site):
        job = Message(by=3, array=np.arange(4.0)).encode()
        before = site.snapshot()
        for damaged in (job[:-1], job + b"\0", b"XXX" + job[3:], b"\xff" * 40, job[:4]):
            failed(site.send(site.call("method.count"), damaged), "MessageError")
        assert site.snapshot() == before

    def test_a_job_above_the_limit_is_a_failure(self, site):
        job = Message(by=1, array=np.zeros(100)).encode()
        raw = perform(site.party, Message(site.call("method.count")), job, site.assemble, limit=len(job) - 1)
        failed(Message.decode(raw), "the limit is")

    @pytest.mark.parametrize("missing", ["$serial", "$step", "$manifest"])
    def test_a_call_without_its_envelope_is_a_failure(self, site, missing):
        call = site.call("method.count")
        del call[missing]
        before = site.snapshot()
        assert "$failure" in site.send(call)
        assert site.snapshot() == before
