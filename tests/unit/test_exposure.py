"""Who saw what: read from events, true of every protection, and worst first."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit import Architecture, FedAvg, Federation, FedHEONN, Table
from tacit.core.briefing import write_log
from tacit.core.errors import DataError, MessageError, QuorumError, UnavailableError
from tacit.core.events import Events, Received, Relayed, RunStarted, TotalOpened, WaveStarted
from tacit.core.exposure import ALL, COORDINATOR, EACH, KEYS, OTHER, RUN, Exposure
from tacit.core.message import Message
from tacit.core.values import Blob
from tacit.ledger.exposure import ExposureLedger
from tacit.ledger.sentences import exposes_one, saw, sentences
from tacit.protections import PROTECTIONS
from tacit.protections.ckks import CKKS
from tacit.protections.plain import Plain
from tacit.runs.transcript import MAGIC, Frame, TranscriptFolder, read_transcript
from tests.conftest import quick_keys

SHORT: dict[str, dict[str, Any]] = {
    "plain": {},
    "bfv": {},
    "ckks": {},
    "paillier": {"key_bits": 2048},
    "paillier-clients": {"key_bits": 2048, "holder": "clients"},
    "ring": {"key_bits": 2048},
}


def seen_in(name: str, mode: str = "sealed", **federation: Any) -> list[dict[str, Any]]:
    ledger = ExposureLedger()
    made = Federation.embedded("iris", **{"clients": 4, **federation})
    protection = PROTECTIONS.build(name.removesuffix("-clients"), SHORT[name])
    with quick_keys():
        made.train(FedHEONN(mode=mode), protect=protection, events=Events(ledger))
    return ledger.summary()


@cache
def evaluated(name: str) -> list[dict[str, Any]]:
    """What was seen in a run with an evaluation at the clients."""
    return seen_in(name, holdout=0.2)


@pytest.fixture(params=SHORT)
def run(request: pytest.FixtureRequest) -> tuple[str, list[dict[str, Any]]]:
    """Every protection once, with an evaluation at the clients."""
    return request.param, evaluated(request.param)


def rows_of(rows: list[dict[str, Any]], **like: Any) -> list[dict[str, Any]]:
    return [row for row in rows if all(row[key] == value for key, value in like.items())]


HIDDEN_SUMS = ("cell_counts", "moments", "terms")  # of a run that hides contributions
HIDDEN_VECTORS, HIDDEN_TOTALS = ([f"{name}: {what}" for name in HIDDEN_SUMS] for what in ("vector", "total"))

# -- real runs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHORT)
def test_the_papers_factor_is_in_the_clear_under_every_protection(name: str) -> None:
    rows = seen_in(name, "paper")
    (row,) = rows_of(rows, who="coordinator", what="terms: factor")
    assert (row["class"], row["about"], row["over"], row["times"], row["openable"]) == (
        *("plain", "each client", 1, 4),
        True,
    )
    assert exposes_one(row)
    first = sentences(rows)[0]
    assert first.startswith("The coordinator saw in the clear, of every single client:")
    assert "factor of terms" in first


def test_vectors_are_hidden_unless_the_sum_is_plain(run: tuple[str, list[dict[str, Any]]]) -> None:
    name, rows = run
    vectors = [row for row in rows if row["what"].endswith(": vector")]
    readable = [row for row in vectors if row["openable"]]
    assert bool(readable) == (name == "plain")
    if name != "ring":
        learnt = ("raw_terms: vector",) if name == "plain" else HIDDEN_VECTORS
        assert {row["what"] for row in rows_of(vectors, who="coordinator")} == {*learnt, "evaluation: vector"}
        assert all(row["times"] == 4 for row in vectors)


def test_totals_are_over_all_clients(run: tuple[str, list[dict[str, Any]]]) -> None:
    name, rows = run
    totals = rows_of(rows, **{"class": "aggregate"})
    assert totals
    assert {row["over"] for row in totals} == {4}
    opened = {row["what"] for row in rows_of(totals, who="coordinator")}
    if name in ("bfv", "ckks", "paillier-clients"):
        assert opened == {"evaluation: total"}  # disclosed on purpose; the model stays with the clients
        assert rows_of(totals, who="clients", what="totals: cell_counts, moments, terms")
        assert rows_of(totals, who="experimenter", what="the model")
    else:
        learnt = ("raw_terms: total",) if name == "plain" else HIDDEN_TOTALS
        assert opened == {*learnt, "evaluation: total"}


def test_a_key_server_sees_totals_only(run: tuple[str, list[dict[str, Any]]]) -> None:
    name, rows = run
    found = [row for row in rows_of(rows, who="key-server") if row["class"] != "public"]
    totals = {*HIDDEN_TOTALS, "evaluation: total"}
    seen = {row["what"] for row in found}
    assert seen == (totals if name == "paillier" else set())
    assert {row["class"] for row in found} <= {"aggregate"}
    assert all(row["over"] == 4 for row in found)


def test_relays_and_keys(run: tuple[str, list[dict[str, Any]]]) -> None:
    name, rows = run
    relayed = rows_of(rows, who="coordinator", **{"class": "sealed"})
    assert len(relayed) == (name in ("bfv", "ckks", "paillier-clients", "ring"))
    assert not any(row["openable"] for row in relayed)
    assert any("relayed sealed bytes it cannot read" in text for text in sentences(rows)) == bool(relayed)
    keys = rows_of(rows, who="clients", about=KEYS)
    assert bool(keys) == (name in ("bfv", "ckks", "paillier-clients"))
    hops = rows_of(rows, who="clients", what="terms: running sum")
    assert [(row["times"], row["openable"]) for row in hops] == ([(3, False)] if name == "ring" else [])


def test_the_line_of_the_run_is_true(run: tuple[str, list[dict[str, Any]]]) -> None:
    name, rows = run
    assert saw(rows) == {
        "plain": "every client's contribution, in the clear",
        "ring": "sealed bytes it cannot read; totals over 4 clients",
    }.get(name, "ciphertexts it cannot open; totals over 4 clients")


def test_rows_are_plain_values_worst_first(run: tuple[str, list[dict[str, Any]]]) -> None:
    _, rows = run
    assert json.loads(json.dumps(rows)) == rows
    loud = [exposes_one(row) for row in rows]
    assert loud == sorted(loud, reverse=True)
    kinds = [row["class"] for row in rows]
    assert kinds.index("public") > max(i for i, kind in enumerate(kinds) if kind == "aggregate")
    assert all(row["times"] > 0 and row["bytes"] > 0 for row in rows)


def test_declared_classes_are_not_told() -> None:
    told = {row["what"] for row in seen_in("plain")}
    kept = {row["what"] for row in seen_in("plain", classes=["setosa", "versicolor", "virginica"])}
    assert told - kept == {"introduction: labels and categories"}


# -- events that no sound protection gives ---------------------------------------------------------


def ledger_of(*events: Any) -> ExposureLedger:
    ledger = ExposureLedger()
    for number, event in enumerate(events):
        ledger(number, event)
    return ledger


def ciphers(times: int) -> Received:
    seen = (COORDINATOR, EACH, "cipher", "cipher", 1, times, 100, "terms")
    return Received(2, "client.contribute", *seen)


STARTED = RunStarted("r", "m", "fedheonn", "odd", "coordinator", 5, 0)


def test_ciphertexts_of_single_clients_at_whoever_holds_the_key_are_loud() -> None:
    ledger = ledger_of(STARTED, ciphers(5), TotalOpened(1, "terms", "coordinator", 5, 3))
    row = ledger.summary()[0]
    assert (row["class"], row["openable"], row["over"]) == ("cipher", True, 1)
    assert exposes_one(row)
    assert saw(ledger.summary()) == "every client's contribution, under a key that it holds"
    assert "under a key that it holds" in ledger.sentences()[0]


def test_a_run_that_stopped_before_its_total_opened() -> None:
    (row,) = ledger_of(STARTED, ciphers(5)).summary()
    assert row["openable"]  # nobody else could have opened it
    started = RunStarted("r", "m", "fedheonn", "odd", "clients", 5, 0)
    assert not ledger_of(started, ciphers(5)).summary()[0]["openable"]


def test_a_total_over_one_client_is_that_client() -> None:
    ledger = ledger_of(TotalOpened(1, "terms", "coordinator", 1, 3))
    assert exposes_one(ledger.summary()[0])
    assert ledger.sentences() == ["The coordinator saw in the clear, of every single client: total of terms."]


def test_sums_over_different_numbers_are_different_rows() -> None:
    opened = [TotalOpened(n, "terms", "coordinator", over, 3) for n, over in enumerate((5, 4, 5))]
    found = ledger_of(*opened).summary()
    assert [(row["over"], row["times"]) for row in found] == [(4, 1), (5, 2)]
    assert saw(found) == "totals over 4 to 5 clients"


def test_a_total_is_disclosed_once() -> None:
    opened = TotalOpened(1, "evaluation", "clients", 5, 3)
    asked = ledger_of(
        WaveStarted(3, "client.disclose_total", 1), opened, WaveStarted(4, "client.adopt_model", 5)
    )
    assert {row["who"] for row in asked.summary()} == {"coordinator", "clients"}
    assert ledger_of(WaveStarted(3, "client.contribute", 5), opened).summary() == []


def test_what_was_received_sealed_is_counted_once() -> None:
    sealed = Received(
        2, "protection.make_keys", COORDINATOR, KEYS, "sealed", "the federation's key", 1, 1, 240
    )
    assert [row["what"] for row in ledger_of(sealed).summary()] == ["the federation's key"]
    relays = [Relayed(3, "client-1", f"client-{n}", 60) for n in (2, 3)]
    (row,) = ledger_of(sealed, *relays).summary()
    assert (row["what"], row["times"], row["bytes"]) == ("messages between clients", 2, 120)


def test_masks_and_shares_have_words_too() -> None:
    kinds = [
        Received(1, "s", COORDINATOR, EACH, kind, "vector", 1, 3, 9, "terms") for kind in ("masked", "share")
    ]
    rows = ledger_of(*kinds).summary()
    assert saw(rows) == "masked vectors it cannot open; single shares it cannot open"
    assert [text.split(" of ")[0] for text in sentences(rows)] == [
        "The coordinator received masked vectors",
        "The coordinator received single shares",
    ]


# -- messages sorted into classes ------------------------------------------------------------------


def told(exposure: Exposure) -> dict[str, tuple[str, str, str, int, int]]:
    found: list[Received] = []
    exposure.tell(Events(lambda _, event: found.append(event)), 5)  # type: ignore[arg-type]
    return {e.what: (e.receiver, e.about, e.kind, e.times, e.bytes) for e in found}


def test_replies_are_sorted_by_what_they_are() -> None:
    exposure = Exposure(1, "client.contribute", Plain())
    fields = {"cipher": Blob("cipher", b"123"), "clear/factor": np.zeros(2), "rows": 7, "$tag": b"t"}
    exposure.asked("client", {"contribution": "terms", "sum": 1})
    exposure.replied("a", Message({**fields, "labels": ["no", "yes"]}), service=False)
    assert told(exposure) == {
        "cipher": (COORDINATOR, EACH, "cipher", 1, 3),
        "clear/factor": (COORDINATOR, EACH, "plain", 1, 16),
        "rows": (COORDINATOR, EACH, "plain", 1, 8),
        "labels": (COORDINATOR, EACH, "plain", 1, 5),
    }


def test_starting_values_are_public_and_learnt_ones_are_not() -> None:
    rows = [
        row
        for row in fedavg_rows()
        if row["who"] == "clients" and row["what"].startswith(("weights", "starting"))
    ]
    assert {row["over"] for row in rows if row["class"] == "aggregate"} == {4}
    (first,) = rows_of(rows, what="starting values")
    assert (first["class"], first["about"], first["openable"]) == ("public", RUN, True)
    assert not any(" 0 clients" in text for text in sentences(rows))


def fedavg_rows() -> list[dict[str, Any]]:
    ledger = ExposureLedger()
    made = Federation.embedded("iris", clients=4)
    made.train(
        FedAvg(architecture=Architecture(hidden="4"), rounds=2), protect="plain", events=Events(ledger)
    )
    return ledger.summary()


def test_what_was_learnt_before_the_run_has_words() -> None:
    seen = ("client", ALL, "aggregate", "weights", 0, 4, 100)
    (text,) = ledger_of(Received(1, "client.restore", *seen)).sentences()
    assert text == "Clients saw what clients had learnt together before this run began or went on: weights."


def test_values_of_a_training_that_goes_on_are_not_public() -> None:
    exposure = Exposure(1, "client.contribute", Plain(), starting=True)
    exposure.asked("client", {"shared/weights": np.zeros(3), "total/x": np.zeros(2)}, 5)
    assert told(exposure) == {
        "starting values": ("client", RUN, "public", 5, 120),
        "total": ("client", ALL, "aggregate", 5, 80),
    }
    ledger = ExposureLedger()
    made = Federation.embedded("iris", clients=4)
    first = made.train(FedAvg(architecture=Architecture(hidden="4"), rounds=1), protect="plain")
    made.train(
        FedAvg(architecture=Architecture(hidden="4"), rounds=1),
        protect="plain",
        start=first,
        events=Events(ledger),
    )
    weights = [row for row in ledger.summary() if row["what"].startswith("weights")]
    assert {row["class"] for row in weights} == {"aggregate"}


def test_asks_are_sorted_by_what_they_are() -> None:
    exposure = Exposure(1, "client.contribute", CKKS())
    log = write_log(1, [Message({"total/cipher": Blob("cipher", b"1234")}).encode()])
    common = {
        "shared/weights": np.zeros(3),
        **log,
        "schema": b"s",
    }
    exposure.asked("client", common, 5)
    exposure.asked("client", {"ticket/wrap": Blob("sealed", b"12"), "ticket/incoming": Blob("sealed", b"1")})
    assert told(exposure) == {
        "weights": ("client", ALL, "aggregate", 5, 120),
        "totals": ("client", ALL, "aggregate", 5, 5 * len(log["log/entries"])),
        "agreed schema": ("client", RUN, "public", 5, 5),
        "the federation's key": ("client", KEYS, "sealed", 1, 2),
        "incoming": ("client", OTHER, "sealed", 1, 1),
    }


def test_totals_that_many_are_told_alike_are_looked_into_once(monkeypatch) -> None:
    """A client that was away has all others told by themselves, too: a total of megabytes for each."""
    looked = []
    decode = Message.decode
    monkeypatch.setattr(Message, "decode", lambda raw: looked.append(raw) or decode(raw))
    exposure, entry = (
        Exposure(1, "client.contribute", CKKS()),
        Message({"total/cipher": Blob("cipher", b"1")}),
    )
    for first in (1, 2) * 50:
        exposure.asked("client", write_log(first, [entry.encode()]))
    assert len(looked) == 2
    assert told(exposure)["totals"][:4] == ("client", ALL, "aggregate", 100)


# -- transcripts -----------------------------------------------------------------------------------


def test_a_transcript_holds_what_each_party_received(tmp_path: Path) -> None:
    transcript = TranscriptFolder(tmp_path / "transcript")
    Federation.embedded("iris", clients=3).train("fedheonn", transcript=transcript, protect="plain")
    assert sorted(path.stem for path in transcript.path.iterdir()) == [
        *("client-1", "client-2", "client-3", "coordinator")
    ]
    frames = list(read_transcript(transcript.file("client-2")))
    assert {frame.sender for frame in frames} == {"coordinator"}
    assert [frame.step for frame in frames] == ["client.enrol", "client.contribute", "client.adopt_model"]
    common, own = frames[1].messages()
    assert common["contribution"] == "raw_terms"
    assert dict(own) == {}
    replies = [f for f in read_transcript(transcript.file("coordinator")) if f.sender == "client-2"]
    assert "vector" in replies[1].messages()[0]  # of a plain run: the clients' contributions


def test_names_of_parties_do_not_leave_the_folder(tmp_path: Path) -> None:
    transcript = TranscriptFolder(tmp_path / "transcript")
    transcript("../../etc/passwd", "coordinator", "step", b"")
    transcript("Klinik am Süd", "coordinator", "step", b"x")
    assert len(list(transcript.path.iterdir())) == 2
    assert list(read_transcript(transcript.file("../../etc/passwd"))) == [Frame("coordinator", "step", b"")]


def test_files_that_are_no_transcripts(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="tacit run --transcript"):
        list(read_transcript(tmp_path / "none.bin"))
    (tmp_path / "other.bin").write_bytes(b"hello")
    with pytest.raises(DataError, match="not a transcript"):
        list(read_transcript(tmp_path / "other.bin"))
    transcript = TranscriptFolder(tmp_path / "transcript")
    transcript("a", "b", "c", b"12345")
    whole = transcript.file("a").read_bytes()
    for end in range(len(MAGIC) + 1, len(whole)):
        (tmp_path / "cut.bin").write_bytes(whole[:end])
        with pytest.raises(DataError, match="ends within a frame"):
            list(read_transcript(tmp_path / "cut.bin"))
    with pytest.raises(MessageError):
        Frame("b", "c", b"12345").messages()
    with pytest.raises(UnavailableError, match="choose another place"):
        TranscriptFolder(tmp_path / "no" / "where")


def test_what_was_seen_before_a_failure_is_told() -> None:
    ledger = ExposureLedger()
    # Targets that the logistic function never reaches: the second sum fails at every client.
    rows = np.random.default_rng(0).normal(size=(40, 3))
    tables = {f"site-{k}": Table.of(rows[k::4], 5 * rows[k::4, 0], task="regression") for k in range(4)}
    federation = Federation.of(tables)
    with pytest.raises(QuorumError, match="linear"):
        federation.train(FedHEONN(activation="logistic"), protect="ckks", events=Events(ledger))
    assert saw(ledger.summary()) == "ciphertexts it cannot open"
    assert [row["what"] for row in rows_of(ledger.summary(), **{"class": "cipher"})] == [
        "cell_counts: vector",
        "moments: vector",
    ]
