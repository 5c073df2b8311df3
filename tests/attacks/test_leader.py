"""Totals that open at a leader alone: what a coordinator with another client makes of them.

The control is the same sum under a key that all clients hold, which any one of them opens for a coordinator
that hands it the ciphertexts.
"""

from contextlib import suppress

import numpy as np
import pytest

from tacit.core.errors import FederationError, MessageError
from tacit.core.message import Message
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.paillier import PrivateKey, PublicKey, add_blobs, read_header
from tacit.federation import Federation
from tacit.methods.federboost import HIDDEN, FederBoost
from tacit.methods.fedheonn import FedHEONN
from tacit.protections.keys.authenticated import stack_rows
from tacit.protections.noised import Noised
from tacit.protections.paillier import Paillier
from tacit.protections.paillier.halves import Leadership
from tacit.protections.secret_sharing.election import Voter
from tacit.protections.secret_sharing.wire import names_to_bytes
from tacit.testing import check_protection
from tests.attacks.malicious import REFUSED
from tests.conftest import quick_keys

NAMES = [f"client-{index}" for index in range(1, 7)]
ROWS = dict(zip(NAMES, np.random.default_rng(8).uniform(-1, 1, size=(6, 4)), strict=True))
SUM = sum(ROWS.values())
LEADER = Paillier(holder="leader", key_bits=2048)
TREES = FederBoost(trees=2, depth=3, buckets=8)


def summed(scene_of, protection):
    """Sum the vectors into the shared values, and return the scene."""
    scene = scene_of(protection, ROWS).begin()
    method = scene.components.method
    with quick_keys():
        scene.coordinator.round(method.vector, method.keep)
    return scene


def keys_of(site):
    """Return all secrets in a site's vault that are a Paillier key, or lead to one by what it received."""
    found = [value for value in site.vault.values() if isinstance(value, Secret)]
    if "content" in site.vault:
        found.append(scene_key(site))
    keys = []
    for secret in found:
        try:
            keys.append(PrivateKey.from_secret(secret))
        except Exception:  # noqa: BLE001  # any other secret
            continue
    return keys


def scene_key(site):
    from tacit.protections.keys.shared_key import SharedKey

    return SharedKey(Paillier(holder="clients", key_bits=2048).terms, site).newest()


def ciphertexts(scene, receivers):
    """Return every ciphertext that one of these received."""
    found = []
    for receiver, _, _, raw in scene.heard:
        if receiver in receivers:
            found += [value.data for name, value in fields_of(raw) if name.endswith("cipher")]
    return found


def fields_of(raw):
    """Return the fields of what one received: an ask is two messages."""
    at = 0
    while (at := raw.find(b"TCT\1", at + 1)) >= 0:
        with suppress(MessageError):
            return [*Message.decode(raw[:at]).items(), *Message.decode(raw[at:]).items()]
    return list(Message.decode(raw).items())


def opened(scene, friend):
    """Return what a coordinator and a client make of all that either received."""
    site = scene.site(friend)
    with quick_keys():
        heard = ciphertexts(scene, ("coordinator", friend))
        return [key.decrypt(raw) for key in keys_of(site) for raw in heard]


class TestCoordinatorWithAClient:
    def test_control_under_a_key_of_all_clients_they_open_everything(self, scene_of):
        scene = summed(scene_of, Paillier(holder="clients", key_bits=2048))
        assert len(opened(scene, "client-2")) >= len(ROWS)

    def test_under_a_leader_they_open_nothing(self, scene_of):
        scene = summed(scene_of, LEADER)
        leader = scene.coordinator.protection.leader
        assert np.allclose(scene.coordinator.shared["vector"], SUM, atol=1e-6), "the leader told the result"
        assert len(ciphertexts(scene, ("coordinator",))) >= len(ROWS)
        assert opened(scene, leader), "the attack sees a key where there is one"
        for friend in NAMES:
            if friend != leader:
                assert not opened(scene, friend)

    def test_no_other_client_opens_or_applies_a_total(self, scene_of):
        scene = summed(scene_of, LEADER)
        pending = scene.coordinator.begin_sum(scene.components.method.vector)
        with quick_keys():
            entry = scene.coordinator.gather(pending)
        for name in NAMES:
            for step in ("client.lead_total", "client.disclose_total"):
                failures = {}
                wave = scene.coordinator.link.wave(
                    step, (name,), {**entry, "apply": "keep"}, failures=failures
                )
                answered = [reply.party for reply in list(wave)]
                assert bool(answered) == (name == scene.coordinator.protection.leader), (name, failures)


class TestWhoLeads:
    def test_a_client_that_was_not_drawn_does_not_lead(self, scene_of):
        scene = scene_of(LEADER, ROWS).begin()
        protection = scene.coordinator.protection
        other = next(name for name in NAMES if name != protection.leader)
        for fields in ({}, protection.election.evidence):
            failures = {}
            asked = scene.coordinator.link.ask(Leadership.lead, fields, parties=[other], failures=failures)
            assert not dict(asked)
            assert "was not drawn" in failures[other] or "no draw of a leader" in failures[other]

    def test_a_key_of_another_is_not_encrypted_for(self, scene_of):
        """The coordinator has a friend sign a key, and says that it leads."""
        scene = scene_of(LEADER, ROWS).begin()
        protection = scene.coordinator.protection
        friend = next(name for name in NAMES if name != protection.leader)
        from tacit.crypto.channel import sign_key
        from tacit.protections.paillier.halves import PURPOSE

        site, run = scene.site(friend), scene.coordinator.manifest.digest
        with quick_keys():
            protection.signed = sign_key(site.identity, PURPOSE, friend, run, protection.public)
            with pytest.raises(FederationError, match="0 of 6 clients contributed"):
                scene.coordinator.round(scene.components.method.vector, scene.components.method.keep)

    def test_every_client_leads_as_often(self, scene_of):
        """By chance alone: of twelve draws among six, two or fewer have all in one of 30,000 cases."""
        drawn = [scene_of(LEADER, ROWS).begin().coordinator.protection.leader for _ in range(12)]
        assert len(set(drawn)) >= 3

    def test_without_the_leader_the_run_ends_and_says_so(self, scene_of):
        scene = summed(scene_of, LEADER)
        leader, method = scene.coordinator.protection.leader, scene.components.method
        scene.tap.lose = lambda step, party: step == "client.lead_total"
        with quick_keys(), pytest.raises(FederationError, match=f"totals open at the leader {leader} alone"):
            scene.coordinator.round(method.vector, method.keep)


class TestOneThatLies:
    """Limits that the promises state: nothing proves what a leader opens, or what others were shown."""

    @pytest.mark.parametrize("holder", ["leader", "clients"])
    def test_a_contribution_called_scores_is_handed_over(self, malicious, holder):
        """Beside encrypted zeros, it counts as many contributions as agreed. A proof would refuse it."""
        lying = malicious(Paillier(holder=holder, key_bits=2048))
        entry, sent = lying.gathered("private")
        half = lying.coordinator.protection
        key, victim, zeros = PublicKey.from_bytes(half.public), "client-3", np.zeros(4, np.int64)
        cipher = sent[victim]["cipher"].data
        for _ in range(2):
            cipher = add_blobs(key, cipher, key.encrypt(zeros, read_header(key, cipher).packing))
        entry |= {"contribution": "scores", "total/cipher": Blob("cipher", cipher), "contributors": 3}
        told = lying.disclosed(entry, half.leader or "client-1")
        if holder == "clients":
            assert REFUSED in told
        else:
            assert np.allclose(told, lying.rows[victim], atol=1e-6)
            assert "all its values, if it calls them scores" in LEADER.promises.collusion

    def test_each_client_draws_apart(self, scene_of):
        """A friend commits to another number for each of them: each finds a leader of its own."""
        scene = scene_of(LEADER, ROWS)
        scene.coordinator.enrol()
        link, half, friend = scene.coordinator.link, scene.coordinator.protection, scene.site("client-6")
        ballots, nonces = {}, {}
        for name in NAMES[:-1]:
            voter = Voter(friend, 1, 3)
            half.election.commitments[friend.id] = voter.commit()
            ballot = {"draw": 1, "names": names_to_bytes(NAMES)}
            ballot["commitments"] = stack_rows(half.election.commitments, NAMES)
            ((_, reply),) = link.ask(Voter.reveal, ballot, parties=[name])
            nonces[name], ballots[name] = reply["nonce"].data, (ballot, friend.vault["nonce"].reveal())
        assert len({number for _, number in ballots.values()}) == len(ballots) == 5
        for name, (ballot, number) in ballots.items():
            shown = ballot | {"nonces": stack_rows(nonces | {friend.id: number}, NAMES)}
            (leader,), _ = Voter(scene.site(name), 1, 3).find_committee(shown)
            assert leader in NAMES
        assert "have each client draw apart" in LEADER.promises.collusion


@pytest.fixture(scope="module")
def trained():
    """A federation, its trees under a leader, and all that anyone received."""
    heard = []
    federation = Federation.embedded("iris", clients=5, holdout=0.2)
    with quick_keys():
        led = federation.train(TREES, protect=LEADER, transcript=lambda *each: heard.append(each))
    return federation, led, heard


class TestTrees:
    def test_they_are_those_of_plain_sums(self, trained):
        federation, led, _ = trained
        plain = federation.train(TREES, protect="plain", min_count=5)
        for name, value in plain.model.arrays.items():
            assert np.array_equal(value, led.model.arrays[name]), name
        assert led.holdout["accuracy"] == plain.holdout["accuracy"]

    def test_nobody_is_told_a_histogram(self, trained):
        """No field of any message holds the sums of nodes, which are among what the leader keeps."""
        assert "tree/parent_sums" in HIDDEN
        found = {name for *_, raw in trained[2] for name, _ in fields_of(raw)}
        names = {name for name in found if name.startswith("shared/")}
        assert "shared/tree/feature" in names
        assert not names & {f"shared/{hidden}" for hidden in HIDDEN}

    def test_the_report_names_the_leader(self, trained):
        rows = trained[1].exposure.summary()
        totals = {row["who"] for row in rows if row["what"] == "roots: total"}
        (leader,) = totals
        assert leader.startswith("leader client-")
        seen = f"The {leader} saw, of 5 clients together: "
        assert any(text.startswith(seen) for text in trained[1].exposure.sentences())
        assert not [row for row in rows if row["class"] == "cipher" and row["openable"]]

    def test_a_method_that_solves_learns_under_a_leader(self):
        federation = Federation.embedded("iris", clients=5)
        with quick_keys():
            led = federation.train(FedHEONN(), protect=LEADER)
        plain = federation.train(FedHEONN(), protect="plain", min_count=5)
        assert np.array_equal(led.model.predict(federation.test), plain.model.predict(federation.test))


def test_noise_around_it_is_refused():
    from tacit.core.errors import ConfigError

    noised = Noised(inner="paillier", inner_options={"holder": "leader"}, where="distributed")
    with pytest.raises(ConfigError, match="opens totals at a leader, who knows of no noise"):
        Federation.embedded("iris", clients=5).train("fedavg", protect=noised)


def test_promises_say_who_sees_what():
    promises = LEADER.promises
    assert promises.opens == LEADER.opens == "leader"
    assert promises.sees["leader"].startswith("the total")
    assert "leader" in promises.as_dict()["model"]


def test_it_keeps_what_every_protection_has_to_keep():
    with quick_keys():
        check_protection(LEADER)
