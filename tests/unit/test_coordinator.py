"""The coordinator and its clients: rounds, quorum, openings, late parties."""

from dataclasses import dataclass

import numpy as np
import pytest

from tacit.core.client import read_log
from tacit.core.errors import FederationError, OpeningError, QuorumError
from tacit.core.events import Noted, Replied, RunStarted, TotalOpened, WaveEnded, WaveStarted
from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution, step
from tacit.core.message import Message
from tacit.core.shared import Shared
from tacit.data.preparation import Preparation
from tacit.methods.base import Method
from tacit.methods.fedheonn import FedHEONN
from tacit.protections.plain import Plain
from tacit.protections.secret_sharing.shares import Shares

PLACES = ("coordinator", "clients")
AS_THEY_ARE = Preparation(scale="none")


@dataclass(frozen=True)
class Walk(Method):
    """Moves weights a little with every round; what a round gives depends on all before it."""

    def init(self, schema, rng):
        return {"weights": rng.normal(size=schema.features), "passing": 1.0}

    def _layout(self, schema):
        return Layout(Field("pull", (schema.features,)), Field("count", ()), Field("seen", (2,), clear=True))

    @contribution(_layout, revealed=True)
    def pull(self, party, shared):
        rows = party.data.values
        pull = np.tanh(rows - shared["weights"]).sum(axis=0)
        return {"pull": pull, "count": len(rows), "seen": np.array([1.0, len(rows)])}

    @apply
    def move(self, total, shared):
        return shared | {"weights": shared["weights"] + total["pull"] / total["count"], "seen": total["seen"]}

    @apply
    def tidy(self, total, shared):
        return Shared(shared.schema, {"weights": shared["weights"] + total["pull"] / total["count"]})

    @step
    def greet(self, party, message, shared):
        if message.get("bad"):
            raise ValueError("no")
        party.note(f"greeted {message['word']}")
        return Message(answer=f"{party.id} says {message['word']}")


def enrolled(coordinator):
    coordinator.enrol()
    return coordinator


def walked(coordinator, rounds=3):
    method = enrolled(coordinator).components.method
    for _ in range(rounds):
        coordinator.round(method.pull, method.move)
    return coordinator.finish()


def heonn(coordinator):
    coordinator.enrol()
    coordinator.parties = coordinator.components.preparation.train(coordinator)
    coordinator.components.method.train(coordinator)
    return coordinator.finish()


def arrays_in(fields):
    return [value for value in fields.values() if isinstance(value, np.ndarray)]


def losing(coordinator, party, step, times):
    """Lose the ask of one step to one party, on some of its occasions."""
    seen = []

    def lose(asked, name):
        if (asked, name) != (step, party):
            return False
        seen.append(asked)
        return len(seen) in times

    coordinator.link.transport.engine.lose = lose


@pytest.fixture
def walk_of(coordinator_of):
    def make(opens="coordinator", **settings):
        return coordinator_of(Walk(), Plain(opens=opens), preparation=AS_THEY_ARE, **settings)

    return make


def test_a_sum_that_starts_again_folds_what_is_visible_once(coordinator_of):
    coordinator = coordinator_of(
        Walk(), Shares(scheme="additive"), preparation=AS_THEY_ARE, quorum=0.5, min_clients=2
    )
    coordinator.enrol()
    coordinator.protection.prepare(1)
    losing(coordinator, "client-4", "client.contribute", {1})
    total = coordinator.reveal(coordinator.components.method.pull)
    waves = [step for step, _ in coordinator.link.transport.engine.calls if step == "client.contribute"]
    assert len(waves) == 2
    assert total["seen"][0] == total.contributors == 3


class TestWhereTotalsOpen:
    def test_fedheonn_is_the_same_model_at_both_places(self, coordinator_of):
        digests = {heonn(coordinator_of(FedHEONN(), Plain(opens=place))).digest for place in PLACES}
        assert len(digests) == 1

    def test_many_rounds_give_the_same_model_at_both_places(self, walk_of):
        coordinators = {place: walk_of(place) for place in PLACES}
        outcomes = {place: walked(coordinator) for place, coordinator in coordinators.items()}
        assert outcomes["coordinator"].digest == outcomes["clients"].digest
        one, other = (coordinators[place].peek()["weights"] for place in PLACES)
        assert one.tobytes() == other.tobytes()

    def test_evaluation_gives_the_same_counts_at_both_places(self, walk_of):
        totals = []
        for place in PLACES:
            coordinator = enrolled(walk_of(place))
            totals.append(coordinator.reveal(coordinator.components.method.pull))
        assert totals[0].contributors == totals[1].contributors == 4
        assert totals[0].keys() == totals[1].keys() == {"pull", "count", "seen"}
        assert all(np.array_equal(totals[0][name], totals[1][name]) for name in totals[0])

    def test_where_clients_open_the_coordinator_never_holds_or_hears_the_model(self, walk_of):
        coordinator = walk_of("clients")
        outcome = walked(coordinator)
        assert coordinator.shared is None
        assert outcome.shared is None
        heard = [reply.message for _, reply in coordinator.link.transport.engine.replies]
        said = [Message.decode(call) for _, call in coordinator.link.transport.engine.calls]
        said += [Message.decode(job) for _, _, job in coordinator.link.transport.engine.jobs if job]
        logged = [Message.decode(raw) for raw in coordinator.link.briefing.log]
        weights = coordinator.peek()["weights"]
        models = [weights, coordinator.rng("init").normal(size=len(weights))]
        for message in heard + said + logged:
            assert not any(name.startswith("shared/") or name == "weights" for name in message)
            for array in arrays_in(message):
                assert not any(array.size == m.size and np.allclose(array.ravel(), m) for m in models)
        raws = b"".join(raw for raw in coordinator.link.briefing.log) + b"".join(
            message.encode() for message in heard + said
        )
        assert weights.tobytes() not in raws

    def test_where_the_coordinator_opens_clients_get_the_view_and_no_log(self, coordinator_of):
        coordinator = coordinator_of(FedHEONN())
        heonn(coordinator)
        final = Message.decode(coordinator.link.transport.engine.calls[-1][1])
        assert "shared/weights" in final
        assert not {"shared/m", "shared/factor"} & final.keys()
        assert not any(name.startswith("log/") for name in final)

    def test_a_client_opens_and_applies_in_the_wave_of_its_next_contribution(self, walk_of):
        coordinator = walk_of("clients")
        walked(coordinator)
        assert [step for step, _ in coordinator.link.transport.engine.calls] == [
            "client.enrol",
            *["client.contribute"] * 3,
            "client.adopt_model",
        ]


class TestCatchingUp:
    @pytest.mark.parametrize("missed", [{1}, {2}, {1, 2}, {2, 3}, {1, 2, 3}])
    def test_a_client_that_missed_rounds_ends_with_the_same_replica(self, walk_of, missed):
        coordinator = walk_of("clients", quorum=0.5)
        losing(coordinator, "client-2", "client.contribute", missed)
        outcome = walked(coordinator)
        assert outcome.holders == ("client-1", "client-2", "client-3", "client-4")
        assert coordinator.failures == {"client-2": "StepError: lost on the way"}

    @pytest.mark.parametrize("missed", [{1}, {2, 3}])
    def test_one_whose_replies_were_lost_does_not_apply_twice(self, walk_of, missed):
        coordinator, seen = walk_of("clients", quorum=0.5), []

        def rewrite(step, party, message):
            if (step, party) == ("client.contribute", "client-2"):
                seen.append(step)
                return "StepError: reply lost" if len(seen) in missed else None
            return None

        coordinator.link.transport.engine.rewrite = rewrite
        assert len(walked(coordinator).holders) == 4

    def test_only_the_one_that_missed_something_is_told_more(self, walk_of):
        coordinator = walk_of("clients", quorum=0.5)
        losing(coordinator, "client-2", "client.contribute", {2})
        walked(coordinator)
        third = [
            job for step, _, job in coordinator.link.transport.engine.jobs if step == "client.contribute"
        ][8:12]
        told = [[number for number, _ in read_log(Message.decode(job))] for job in third]
        assert told == [[2], [1, 2], [2], [2]]

    def test_news_that_all_need_travels_once_in_the_call(self, walk_of):
        coordinator = walk_of("clients")
        walked(coordinator)
        assert all(job == b"" for _, _, job in coordinator.link.transport.engine.jobs)

    def test_a_name_that_an_apply_dropped_does_not_come_back(self, walk_of):
        coordinator = walk_of("clients", quorum=0.5)
        losing(coordinator, "client-2", "client.contribute", {2, 3})
        method = enrolled(coordinator).components.method
        coordinator.round(method.pull, method.move)
        coordinator.round(method.pull, method.tidy)
        coordinator.round(method.pull, method.tidy)
        assert len(coordinator.finish().holders) == 4
        assert coordinator.peek().keys() == {"weights"}

    def test_a_gap_in_the_log_is_refused(self, walk_of):
        coordinator = walk_of("clients", quorum=1.0)
        method = enrolled(coordinator).components.method
        coordinator.round(method.pull, method.move)
        coordinator.round(method.pull, method.move)
        coordinator.link.transport.engine.engine._sites.party("client-3").state["position"] = 0
        with pytest.raises(
            QuorumError, match="client-3: StepError: client-3 knows 0 totals and was handed number 2"
        ):
            coordinator.round(method.pull, method.move)


class TestReplicas:
    def test_a_replica_that_was_changed_is_named(self, walk_of):
        coordinator = walk_of("clients", clients=5)
        method = enrolled(coordinator).components.method
        coordinator.round(method.pull, method.move)
        coordinator.round(method.pull, method.move)
        state = coordinator.link.transport.engine.engine._sites.party("client-3").state
        state["shared/weights"] = state["shared/weights"] + 1e-12
        with pytest.raises(FederationError, match=r"1 of 5 replicas differ from the rest \(client-3\)"):
            coordinator.finish()

    @pytest.mark.parametrize("opens", PLACES)
    @pytest.mark.parametrize("digest", ["0" * 64, 5, None, np.zeros(3), b"raw"])
    def test_a_client_that_reports_something_else_is_named(self, walk_of, opens, digest):
        coordinator = walk_of(opens)
        coordinator.link.transport.engine.rewrite = lambda step, party, message: (
            Message(digest=digest) if (step, party) == ("client.adopt_model", "client-4") else None
        )
        with pytest.raises(FederationError, match=r"1 of 4 replicas differ from the rest \(client-4\)"):
            walked(coordinator)

    def test_a_reply_without_a_digest_is_another_replica(self, walk_of):
        coordinator = walk_of()
        coordinator.link.transport.engine.rewrite = lambda step, party, message: (
            Message() if (step, party) == ("client.adopt_model", "client-1") else None
        )
        with pytest.raises(FederationError, match="client-1"):
            walked(coordinator)

    def test_a_client_that_does_not_adopt_holds_no_replica(self, walk_of):
        coordinator = walk_of(clients=5)
        losing(coordinator, "client-2", "client.adopt_model", {1})
        assert walked(coordinator).holders == ("client-1", "client-3", "client-4", "client-5")

    def test_no_deployed_site_shows_its_replica(self, walk_of):
        coordinator = walk_of("clients", experiment=False)
        walked(coordinator)
        with pytest.raises(FederationError, match=r"shows its replica in experiments only"):
            coordinator.peek()

    def test_the_experimenters_look_is_noted(self, walk_of):
        seen = []
        coordinator = walk_of("clients", subscriber=lambda number, event: seen.append(event))
        walked(coordinator)
        coordinator.peek()
        notes = [event for event in seen if isinstance(event, Noted) and event.level == "warning"]
        assert any("experimenter read the model at client-1" in event.text for event in notes)


class TestTooFew:
    @pytest.mark.parametrize("opens", PLACES)
    def test_the_coordinator_does_not_open_a_total_over_fewer_than_agreed(self, walk_of, opens):
        coordinator = enrolled(walk_of(opens, min_clients=5))
        with pytest.raises(OpeningError, match="4 contributions, no total over fewer than 5"):
            coordinator.round(coordinator.components.method.pull, coordinator.components.method.move)
        with pytest.raises(OpeningError, match="4 contributions, no total over fewer than 5"):
            coordinator.reveal(coordinator.components.method.pull)
        assert coordinator.link.briefing.log == []

    def test_dropouts_count(self, walk_of):
        coordinator = walk_of(min_clients=4, quorum=0.5)
        losing(coordinator, "client-1", "client.contribute", {1})
        with pytest.raises(OpeningError, match="3 contributions"):
            walked(coordinator)

    def test_refused_contributions_count(self, walk_of):
        coordinator = walk_of(min_clients=4, quorum=0.5)
        coordinator.link.transport.engine.rewrite = spoilt("client-2", vector=np.zeros(1))
        with pytest.raises(OpeningError, match="3 contributions"):
            walked(coordinator)

    def test_clients_do_not_open_a_total_over_fewer_either(self, walk_of):
        coordinator = walk_of("clients", min_clients=3)
        method = enrolled(coordinator).components.method
        coordinator.round(method.pull, method.move)
        coordinator.link.briefing.log[0] = Message(
            {**Message.decode(coordinator.link.briefing.log[0]), "contributors": 2}
        ).encode()
        with pytest.raises(QuorumError, match="total over 2 contributions, agreed were at least 3"):
            coordinator.round(method.pull, method.move)
        assert "position" not in coordinator.link.transport.engine.engine._sites.party("client-1").state

    def test_clients_do_not_disclose_a_total_over_fewer_either(self, walk_of):
        coordinator = walk_of("clients", min_clients=3)
        method = enrolled(coordinator).components.method
        entry = coordinator.gather(coordinator.begin_sum(method.pull))
        failures = {}
        asked = {**entry, "contributors": 2}
        assert (
            list(
                coordinator.link.wave(
                    "client.disclose_total", coordinator.parties[:1], asked, {}, failures=failures
                )
            )
            == []
        )
        assert "2 contributions, agreed were at least 3" in failures["client-1"]


class TestQuorum:
    @pytest.mark.parametrize("opens", PLACES)
    def test_above_it_the_run_goes_on_and_the_failure_is_recorded(self, walk_of, opens):
        seen = []
        coordinator = walk_of(
            opens, clients=5, quorum=0.8, subscriber=lambda number, event: seen.append(event)
        )
        losing(coordinator, "client-5", "client.contribute", {1, 2, 3})
        walked(coordinator)
        assert coordinator.failures == {"client-5": "StepError: lost on the way"}
        failed = [event for event in seen if isinstance(event, Replied) and event.failure]
        assert [event.party for event in failed] == ["client-5"] * 3
        assert {event.contributors for event in seen if isinstance(event, TotalOpened)} == {4}
        assert [event.failures for event in seen if isinstance(event, WaveEnded)] == [0, 1, 1, 1, 0]

    def test_below_it_the_error_names_clients_and_reasons(self, walk_of):
        coordinator = walk_of(quorum=0.8)
        coordinator.link.transport.engine.lose = lambda step, party: (
            step == "client.contribute" and party in ("client-2", "client-4")
        )
        with pytest.raises(QuorumError) as caught:
            walked(coordinator)
        text = str(caught.value)
        assert "pull: 2 of 4 clients contributed, the quorum is 4" in text
        assert "client-2, client-4: StepError: lost on the way" in text
        assert "client-4: StepError: lost on the way" in text

    def test_a_hundred_failures_are_not_all_listed(self, walk_of):
        coordinator = walk_of(clients=30)
        coordinator.link.transport.engine.lose = lambda step, party: step == "client.contribute"
        with pytest.raises(QuorumError, match="client-3 and 27 more") as caught:
            walked(coordinator)
        assert len(str(caught.value)) < 500

    @pytest.mark.parametrize(
        ("quorum", "needed"), [(0.5, 2), (0.51, 3), (0.75, 3), (0.76, 4), (1.0, 4), (0.01, 1)]
    )
    def test_it_is_the_share_rounded_up(self, walk_of, quorum, needed):
        for lost in range(5):
            coordinator = walk_of(quorum=quorum)
            names = set(coordinator.link.transport.engine.parties()[:lost])
            coordinator.link.transport.engine.lose = lambda step, party, names=names: (
                step == "client.contribute" and party in names
            )
            method = enrolled(coordinator).components.method
            if 4 - lost >= needed:
                assert len(coordinator.round(method.pull, method.move)) == 4 - lost
            else:
                with pytest.raises(QuorumError, match=f"the quorum is {needed}"):
                    coordinator.round(method.pull, method.move)

    def test_clients_that_cannot_enrol_are_left_out(self, walk_of):
        coordinator = walk_of(clients=5)
        losing(coordinator, "client-2", "client.enrol", {1})
        outcome = walked(coordinator)
        assert coordinator.parties == outcome.holders == ("client-1", "client-3", "client-4", "client-5")

    def test_too_few_that_enrol_end_the_run(self, walk_of):
        coordinator = walk_of()
        coordinator.link.transport.engine.lose = lambda step, party: party != "client-1"
        with pytest.raises(QuorumError, match="enrolment: 1 of 4"):
            coordinator.enrol()

    def test_a_round_over_nobody_is_refused(self, walk_of):
        coordinator = enrolled(walk_of())
        with pytest.raises(QuorumError):
            coordinator.round(
                coordinator.components.method.pull, coordinator.components.method.move, parties=()
            )

    def test_a_round_over_some_clients_counts_those(self, walk_of):
        coordinator = enrolled(walk_of())
        method = coordinator.components.method
        assert coordinator.round(method.pull, method.move, ["client-3", "client-1"]) == (
            "client-3",
            "client-1",
        )


def spoilt(party, step="client.contribute", remove=(), **fields):
    """Rewrite one client's replies: some fields set, some removed."""

    def rewrite(asked, name, message):
        if (asked, name) != (step, party):
            return None
        kept = {key: value for key, value in message.items() if key not in remove}
        return Message({**kept, **{key.replace("__", "/"): value for key, value in fields.items()}})

    return rewrite


class TestMalice:
    @pytest.mark.parametrize("opens", PLACES)
    @pytest.mark.parametrize(
        "spoil",
        [
            {"vector": np.full(4, np.nan)},
            {"vector": np.array([0.0, np.inf, 0.0, 0.0])},
            {"vector": np.zeros(3)},
            {"vector": np.zeros((4, 1))},
            {"vector": np.array(0.0)},
            {"vector": "text"},
            {"vector": [0.0, 0.0, 0.0, 0.0]},
            {"remove": ["vector"]},
            {"clear__seen": np.array([np.nan, 1.0])},
            {"clear__seen": np.zeros(3)},
            {"clear__seen": 5},
            {"remove": ["clear/seen"]},
        ],
        ids=[
            *("nan", "infinite", "short", "column", "single", "text", "list", "missing"),
            *("clear nan", "clear long", "clear number", "clear missing"),
        ],
    )
    def test_what_cannot_be_summed_is_refused_and_the_sum_goes_on_without_it(self, walk_of, opens, spoil):
        seen = []
        coordinator = walk_of(opens, quorum=0.5, subscriber=lambda number, event: seen.append(event))
        coordinator.link.transport.engine.rewrite = spoilt("client-2", **spoil)
        spoiled = walked(coordinator)
        without = walk_of(opens, quorum=0.5)
        losing(without, "client-2", "client.contribute", {1, 2, 3})
        assert spoiled.digest == walked(without).digest
        assert coordinator.failures.keys() == {"client-2"}
        assert any(isinstance(e, Noted) and e.about == "client-2" and "refused" in e.text for e in seen)

    @pytest.mark.parametrize(
        "factor",
        [np.zeros((1, 3, 2)), np.zeros((2, 4, 2)), np.zeros((4, 2)), np.full((1, 4, 2), np.nan)],
        ids=["narrow", "two", "flat", "nan"],
    )
    def test_a_factor_of_the_wrong_form_is_refused(self, coordinator_of, factor):
        coordinator, without = (
            coordinator_of(FedHEONN(mode="paper"), quorum=0.5, preparation=AS_THEY_ARE) for _ in range(2)
        )
        coordinator.link.transport.engine.rewrite = spoilt("client-3", clear__factor=factor)
        losing(without, "client-3", "client.contribute", {2})
        assert heonn(coordinator).digest == heonn(without).digest
        assert "'factor'" in coordinator.failures["client-3"]

    def test_refusals_count_against_the_quorum(self, walk_of):
        coordinator = walk_of(quorum=1.0)
        coordinator.link.transport.engine.rewrite = spoilt("client-2", vector=np.zeros(1))
        with pytest.raises(QuorumError, match="client-2: no vector of 4 values"):
            walked(coordinator)

    def test_a_clients_other_fields_never_reach_the_log(self, walk_of):
        coordinator = walk_of("clients")
        coordinator.link.transport.engine.rewrite = spoilt(
            "client-1", apply="tidy", part="protection", clear__other=np.zeros(2), contributors=1
        )
        walked(coordinator)
        for entry in map(Message.decode, coordinator.link.briefing.log):
            assert entry["apply"] == "move"
            assert entry["component"] == "method"
            assert entry["contributors"] == 4
            assert "clear/other" not in entry


class TestDisclosure:
    def test_if_one_client_cannot_open_the_total_another_does(self, walk_of):
        whole = enrolled(walk_of("clients"))
        coordinator = enrolled(walk_of("clients"))
        losing(coordinator, "client-1", "client.disclose_total", {1})
        one, other = (d.reveal(d.components.method.pull) for d in (whole, coordinator))
        assert np.array_equal(one["pull"], other["pull"])
        assert coordinator.failures.keys() == {"client-1"}

    @pytest.mark.parametrize(
        "spoil",
        [{"pull": np.zeros(2)}, {"pull": np.full(3, np.nan)}, {"remove": ["count"]}, {"seen": "text"}],
        ids=["short", "nan", "missing", "text"],
    )
    def test_a_total_of_the_wrong_form_is_refused_and_another_client_asked(self, walk_of, spoil):
        coordinator = enrolled(walk_of("clients"))
        coordinator.link.transport.engine.rewrite = spoilt("client-1", "client.disclose_total", **spoil)
        total = coordinator.reveal(coordinator.components.method.pull)
        assert total["pull"].shape == (3,)
        assert total["count"] == 90.0
        assert coordinator.failures.keys() == {"client-1"}

    def test_if_nobody_can_the_reasons_are_told(self, walk_of):
        coordinator = enrolled(walk_of("clients"))
        coordinator.link.transport.engine.lose = lambda step, party: step == "client.disclose_total"
        with pytest.raises(
            QuorumError, match=r"disclosure: 0 of 4.*client-1, client-2, client-3 and 1 more: StepError: lost"
        ):
            coordinator.reveal(coordinator.components.method.pull)

    def test_it_changes_no_replica(self, walk_of):
        coordinator, other = walk_of("clients"), walk_of("clients")
        for each in (coordinator, other):
            method = enrolled(each).components.method
            each.round(method.pull, method.move)
        coordinator.reveal(coordinator.components.method.pull)
        assert coordinator.finish().digest == other.finish().digest


class TestAsk:
    def test_replies_come_in_party_order_with_what_each_was_asked(self, walk_of):
        seen = []
        coordinator = enrolled(walk_of(subscriber=lambda number, event: seen.append(event)))
        jobs = {party: {"word": word} for party, word in zip(coordinator.parties, "abcd", strict=True)}
        answers = [
            (party, reply["answer"])
            for party, reply in coordinator.ask(coordinator.components.method.greet, jobs=jobs)
        ]
        assert answers == [
            (f"client-{i + 1}", f"client-{i + 1} says {word}") for i, word in enumerate("abcd")
        ]
        notes = [(event.about, event.text) for event in seen if isinstance(event, Noted)]
        assert ("client-3", "greeted c") in notes

    def test_a_common_field_reaches_all(self, walk_of):
        coordinator = enrolled(walk_of())
        replies = dict(
            coordinator.ask(
                coordinator.components.method.greet, {"word": "x"}, parties=["client-2", "client-4"]
            )
        )
        assert {party: reply["answer"] for party, reply in replies.items()} == {
            "client-2": "client-2 says x",
            "client-4": "client-4 says x",
        }

    def test_the_quorum_holds_here_too(self, walk_of):
        coordinator = enrolled(walk_of(quorum=0.5))
        jobs = {party: {"word": "x", "bad": party != "client-1"} for party in coordinator.parties}
        with pytest.raises(QuorumError, match=r"greet: 1 of 4.*ValueError in the client's step"):
            list(coordinator.ask(coordinator.components.method.greet, jobs=jobs))

    def test_only_functions_of_the_agreed_parts(self, walk_of):
        coordinator = enrolled(walk_of())
        with pytest.raises(TypeError, match="not a function of this run's"):
            list(coordinator.ask(Walk().greet))
        with pytest.raises(TypeError, match="not a function of this run's"):
            coordinator.round(len, len)


class TestEvents:
    def test_a_run_tells_its_story_in_order(self, walk_of):
        seen = []
        coordinator = walk_of(subscriber=lambda number, event: seen.append((number, event)))
        walked(coordinator, rounds=1)
        assert [number for number, _ in seen] == list(range(len(seen)))
        events = [event for _, event in seen]
        assert isinstance(events[0], RunStarted)
        assert events[0].clients == 4
        assert any(isinstance(event, Noted) and "in the clear" in event.text for event in events)
        started = [event for event in events if isinstance(event, WaveStarted)]
        assert [event.step for event in started] == [
            "client.enrol",
            "client.contribute",
            "client.adopt_model",
        ]
        assert [event.wave for event in started] == [1, 2, 3]
        assert sum(isinstance(event, Replied) for event in events) == 12
        opened = [event for event in events if isinstance(event, TotalOpened)]
        assert [(e.contribution, e.at, e.contributors, e.values) for e in opened] == [
            ("pull", "coordinator", 4, 4)
        ]

    def test_bytes_are_those_that_travelled(self, walk_of):
        seen = []
        coordinator = walk_of(subscriber=lambda number, event: seen.append(event))
        walked(coordinator, rounds=1)
        raws = [call for step, call in coordinator.link.transport.engine.calls]
        downs = [event.bytes_down for event in seen if isinstance(event, Replied)]
        assert downs == [len(raw) for raw in raws for _ in range(4)]
        ups = [event.bytes_up for event in seen if isinstance(event, Replied)]
        assert ups == [len(reply.message.encode()) for _, reply in coordinator.link.transport.engine.replies]
