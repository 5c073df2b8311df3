"""What a client takes up again after a run was stopped."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tacit.core import client
from tacit.core.briefing import read_log, write_log
from tacit.core.errors import DataError, MessageError, StepError
from tacit.core.manifest import Components, Manifest
from tacit.core.message import Message
from tacit.core.party import State
from tacit.core.shared import Shared
from tacit.core.snapshot import EARLIER, restore_replica
from tacit.data.preparation import Preparation
from tacit.methods.fedheonn import FedHEONN
from tacit.protections.plain import Plain

COMPONENTS = Components(FedHEONN(), Plain(), Preparation())


def party_of(earlier: dict[str, Any]) -> Any:
    """A client in the second attempt at a run, and what it knows of the first."""
    manifest = replace(Manifest.of("run", COMPONENTS), attempt=1)
    first = replace(manifest, attempt=0).digest
    state = {"manifest": manifest.to_message().encode(), "schema": b"agreed on"}
    known = {first: SimpleNamespace(state=earlier)} if earlier else {}
    return SimpleNamespace(id="ann", state=State(state), cache={}, earlier=known.get)


@pytest.mark.parametrize(
    ("earlier", "kind", "refusal"),
    [
        ({}, StepError, "ann remembers nothing of attempt 0 at run run"),
        ({"schema": b"another"}, DataError, "ann learnt under another schema in attempt 0 at run run"),
    ],
    ids=["forgotten", "another schema"],
)
def test_a_client_goes_on_only_from_what_it_learnt_under_the_same_schema(
    earlier: dict[str, Any], kind: type[Exception], refusal: str
) -> None:
    with pytest.raises(kind, match=refusal):
        restore_replica(
            party_of(earlier), Message({f"{EARLIER}attempt": 0}), COMPONENTS, Shared("schema", {})
        )


def test_a_replica_goes_back_behind_the_last_totals_also_if_they_were_told_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A coordinator that was stopped before it wrote a checkpoint knows fewer totals than its clients."""
    monkeypatch.setattr(client, "apply_entry", lambda party, components, shared, entry: shared | dict(entry))
    values = {"position": 1, "shared/round": 1}
    ann: Any = SimpleNamespace(id="ann", earlier={}.get, cache={}, state=State(values))
    entry = Message({"round": 2}).encode()
    log = Message(write_log(2, [entry]))
    for _ in range(2):
        assert client.open_log(ann, COMPONENTS, None, log)["round"] == 2
    assert client.replica_at(ann, COMPONENTS, None, Message({}), 1)["round"] == 1


def test_what_a_client_cannot_take_back_is_refused() -> None:
    ann: Any = SimpleNamespace(id="ann", cache={}, state=State({"position": 3, "before/position": 2}))
    with pytest.raises(StepError, match="ann has opened more than the 1 totals"):
        client.replica_at(ann, COMPONENTS, None, Message({}), 1)


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"\xc0", b"\x91\x01", b"\x91\xa3abc", b"\xdd\xff\xff\xff\xff", b"\x92\xc4\x01a"),
        # Two bytes for each empty entry, of which each would take a hundred here.
        b"\xdd" + (1 << 16).to_bytes(4, "big") + b"\xc4\x00" * (1 << 16),
    ],
)
def test_a_log_that_is_none_is_refused(raw):
    with pytest.raises(MessageError, match="log entries cannot be read"):
        read_log(Message({"log/first": 1, "log/entries": raw}))


def test_a_log_comes_back():
    entries = [Message(a=1).encode(), Message().encode()]
    assert read_log(Message(write_log(3, entries))) == [(3, entries[0]), (4, entries[1])]
    assert read_log(Message(write_log(1, []))) == []
