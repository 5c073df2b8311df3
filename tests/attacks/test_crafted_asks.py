"""A SuperLink crafts what Flower says around an ask, which nobody signs: the node refuses it, and goes on.

And a stranger sends the SuperLink more than it can hold, which Flower reads before it asks who sends it.
"""

import asyncio
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")

import httpx
from flwr.app import Error, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.supercore.task_identity import TaskIdentity

from tacit.core.errors import MessageError
from tacit.core.message import Message
from tacit.deploy.node import Node, respond
from tacit.deploy.superlink import LARGEST, FleetOnly
from tacit.engines.audit import AuditLog
from tacit.engines.flower import KIND, pack, unpack


@pytest.mark.parametrize("seconds", [-100.0, float("nan"), float("inf"), 1e300])
def test_a_time_that_no_clock_waits_for_is_refused(seconds):
    with pytest.raises(MessageError, match="not Tacit's"):
        unpack(pack(b"call", b"job", seconds=seconds))


def test_a_message_without_content_is_refused_and_recorded(tmp_path, monkeypatch):
    for name in ("_task_id", "_run_id", "_node_id"):  # which Flower writes on messages
        monkeypatch.setattr(TaskIdentity, name, 1)
    message = FlowerMessage(RecordDict(), dst_node_id=7, message_type=KIND)
    message.metadata.__dict__["_message_id"] = message.object_id
    message.__dict__["_content"], message.__dict__["_error"] = None, Error(1)
    reply = respond(message, "", lambda *_: pytest.fail("it was performed"), AuditLog(tmp_path))
    raw, _, _ = unpack(reply.content)
    assert "not Tacit's" in Message.decode(raw, len(raw))["$failure"]
    assert [record["event"] for record in AuditLog(tmp_path).records()] == ["refused"]


@pytest.mark.parametrize(
    "error",
    [
        *(ValueError("a wrong hash"), TypeError("no message"), IndexError("no tree")),
        *(httpx.DecodingError("no gzip"), httpx.TooManyRedirects("in a circle")),
    ],
)
def test_whatever_a_message_raises_the_node_goes_on(error, monkeypatch, tmp_path):
    def fails(*given):
        raise error

    monkeypatch.setattr("tacit.deploy.node.take", fails)
    found = SimpleNamespace(
        messages_list=[SimpleNamespace(metadata=SimpleNamespace(run_id=1))], message_object_trees=[None]
    )
    node = Node.__new__(Node)
    node._client, node._number = SimpleNamespace(PullMessages=lambda asked: found), None
    assert node._answer_next(lambda *_: b"", AuditLog(tmp_path))


def test_no_more_is_read_of_a_request_than_a_piece_needs():
    """As Starlette reads a body: piece by piece, until the last or until the other end is gone."""
    read = []

    async def app(scope, receive, send):
        while (event := await receive())["type"] == "http.request":
            read.append(event["body"])

    async def endless():
        return {"type": "http.request", "body": bytes(1 << 20), "more_body": True}

    asyncio.run(FleetOnly(app)({"type": "http", "path": "/v1/fleet/push-object"}, endless, None))
    assert sum(map(len, read)) == LARGEST
