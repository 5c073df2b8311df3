"""A site's node: ``python -m tacit.deploy.node ADDRESS FOLDER``.

To the SuperLink it is a SuperNode like any other, but it never asks for the app of a run: only messages and
what a run says of its settings are read, and the installed Tacit answers, in a :mod:`process of its own
<tacit.deploy.worker>` that stays between messages. The node touches no rows, and that process no network.
"""

import logging
import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message as FlowerMessage
from flwr.app.message import remove_content_from_message
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, HEARTBEAT_PATIENCE
from flwr.common.serde import message_to_proto, user_config_from_proto
from flwr.proto import fleet_pb2, heartbeat_pb2, message_pb2, node_pb2, run_pb2
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.inflatable import inflatable_object, inflatable_protobuf_utils, inflatable_utils
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectPushError
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.retry import RetryInvoker, exponential
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from tacit.core.errors import ConfigError, MessageError, TacitError, UnavailableError
from tacit.deploy.answer import refusal
from tacit.engines.audit import AuditLog
from tacit.engines.flower import GRACE, KIND, pack, pause, unpack
from tacit.engines.frames import WorkerProcess, read_frames, write_frames

log = logging.getLogger("tacit.node")

POLL = (0.1, 3.0)  # seconds between looks for messages: just after one, and when none came for long
REFUSED = httpx.codes.UNAUTHORIZED
CRAFTED = ValueError, TypeError, LookupError  # what a message raises that no honest SuperLink sends
REMEMBERED = 64  # runs whose settings are not asked for again
Perform = Callable[[str, bytes, bytes, float | None], bytes]


def respond(
    message: FlowerMessage, settings: str, perform: Perform, log: AuditLog | None = None
) -> FlowerMessage:
    """Answer a message of a run with those settings; one that is not Tacit's is refused, and recorded."""
    started = time.perf_counter()
    try:
        if message.metadata.message_type != KIND or not message.has_content():
            raise MessageError("a message that is not Tacit's: this site runs no other app")
        raw = perform(settings, *unpack(message.content))
    except TacitError as error:
        raw = refusal(type(error).__name__, error.public)
        with suppress(UnavailableError):  # nothing of the site leaves by it
            if log is not None:
                log.add("refused", reason=f"{type(error).__name__}: {error.public}")
    return FlowerMessage(pack(raw, seconds=time.perf_counter() - started), reply_to=message)


def take(client: Any, tree: message_pb2.ObjectTree, node: node_pb2.Node, run: int) -> FlowerMessage:
    """Fetch a message by a client of Flower's; its parts may still be on their way."""
    message = inflatable_utils.pull_and_inflate_object_from_tree(
        tree,
        inflatable_protobuf_utils.make_pull_object_fn_protobuf(client.PullObject, node, run),
        inflatable_protobuf_utils.make_confirm_message_received_fn_protobuf(
            client.ConfirmMessageReceived, node, run
        ),
        return_type=FlowerMessage,
        max_tries_per_object=None,
        initial_backoff=POLL[0] / 2,  # Flower's own is a second
    )
    message.metadata.__dict__["_message_id"] = tree.object_id  # as Flower's own apps do
    return message


class Worker:
    """The process that performs a site's steps; one that ended is started anew."""

    def __init__(self, site: Path) -> None:
        self._site = site
        self._start()

    def _start(self) -> None:
        self._worker = WorkerProcess("tacit.deploy.worker", str(self._site))

    def perform(self, settings: str, call: bytes, job: bytes, timeout: float | None) -> bytes:
        """Let the process answer; a step at which it ended, or that it cannot leave, has failed."""
        replies = self._worker.replies
        found: list[bytes] | None = None
        with suppress(BrokenPipeError):
            write_frames(self._worker.asks, [settings.encode(), call, job, repr(timeout or 0.0).encode()])
            late = None if timeout is None else timeout + GRACE / 2
            if select.select([replies], [], [], late)[0]:
                found = read_frames(replies)
        if found is None:
            self.close()
            self._start()
            return refusal("StepError", "the process that performs the site's steps ended")
        return found[0]

    def close(self) -> None:
        """End the process; what it had not committed did not happen."""
        self._worker.process.kill()
        self._worker.process.wait()
        for stream in (self._worker.asks, self._worker.replies):
            with suppress(BrokenPipeError):
                stream.close()


class Node:
    """The way of a site to its SuperLink and back."""

    def __init__(self, address: str, certificate: Path, key: Path) -> None:
        try:
            private, authority = load_ssh_private_key(key.read_bytes(), None), certificate.read_bytes()
        except (OSError, ValueError) as error:
            raise ConfigError(f"the node's key or its certificate cannot be read: {error}") from None
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise ConfigError(f"{key} is no key of a NIST curve: make one with `tacit site request`")
        self.address, self._public = address, private.public_key()
        signs = NodeAuthHttpInterceptor(private, self._public)
        says: list[Any] = [RuntimeVersionHttpInterceptor(component_name="SuperNode"), signs]
        # A SuperLink that is away for a while comes back, and this node with it; heartbeats do not wait.
        patient = RetryInvoker(lambda: exponential(max_delay=5), httpx.TransportError, None, None)
        self._client, self._once = (
            FleetHttpClient.from_server_address(address, False, authority, says, retry_invoker=retry)
            for retry in (patient, None)
        )
        self._number = node_pb2.Node()
        self._settings_of = lru_cache(REMEMBERED)(self._ask_settings)

    def _activate(self) -> int:
        request = fleet_pb2.ActivateNodeRequest(
            public_key=public_key_to_bytes(self._public), heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL
        )
        until = time.monotonic() + (HEARTBEAT_PATIENCE + 0.5) * HEARTBEAT_DEFAULT_INTERVAL
        while True:
            try:
                return int(self._client.ActivateNode(request).node_id)
            except httpx.HTTPStatusError as error:
                if error.response.status_code != httpx.codes.PRECONDITION_FAILED:  # also if it is unknown
                    raise
            if time.monotonic() > until:
                raise UnavailableError(
                    f"the SuperLink at {self.address} refuses this node: its operator has not registered "
                    "it, or has revoked it; or another process answers for this site"
                )
            time.sleep(POLL[1])

    def serve(self, perform: Perform, ready: Callable[[], None], records: AuditLog) -> None:
        """Answer messages, one after the other, until this process is ended or the node is refused."""
        heart = HeartbeatSender(self._beat)
        try:
            self._number = node_pb2.Node(node_id=self._activate())
            heart.start()
            ready()
            last = time.monotonic()
            while True:
                if self._answer_next(perform, records):
                    last = time.monotonic()
                else:
                    time.sleep(pause(time.monotonic() - last, *POLL))
        except httpx.HTTPStatusError as error:
            raise UnavailableError(
                f"the SuperLink at {self.address} refuses this node (status {error.response.status_code}): "
                "its operator has not registered it, or has revoked it; or the clocks differ"
            ) from None
        finally:
            if heart.is_running:
                heart.stop()
                with suppress(httpx.HTTPError):
                    self._once.DeactivateNode(fleet_pb2.DeactivateNodeRequest(node_id=self._number.node_id))
            self._client.close()
            self._once.close()

    def _beat(self) -> bool:
        beat = heartbeat_pb2.SendNodeHeartbeatRequest(
            node=self._number, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL
        )
        try:
            return bool(self._once.SendNodeHeartbeat(beat).success)
        except httpx.HTTPError:
            return False

    def _answer_next(self, perform: Perform, records: AuditLog) -> bool:
        try:
            found = self._client.PullMessages(fleet_pb2.PullMessagesRequest(node=self._number))
            if not found.messages_list:
                return False
            run, tree = found.messages_list[0].metadata.run_id, found.message_object_trees[0]
            message = take(self._client, tree, self._number, run)
            started = time.perf_counter()
            reply = respond(message, self._settings_of(run), perform, records)
            self._send(run, reply, time.perf_counter() - started)
            log.info("run %d: answered in %.3f s", run, time.perf_counter() - started)
        except (httpx.HTTPError, ObjectPullError, ObjectPushError, *CRAFTED) as error:
            if isinstance(error, httpx.HTTPStatusError) and error.response.status_code == REFUSED:
                raise
            # The run has ended meanwhile, or the message cannot be had: nobody waits for the answer.
            log.warning("a message was left: %s", error)
            time.sleep(POLL[0])
        return True

    def _ask_settings(self, run: int) -> str:
        found = self._client.GetRun(run_pb2.GetRunRequest(node=self._number, run_id=run)).run
        return str(user_config_from_proto(found.override_config).get("settings", ""))

    def _send(self, run: int, reply: FlowerMessage, seconds: float) -> None:
        reply.metadata.__dict__["_message_id"] = reply.object_id
        with inflatable_object.no_object_id_recompute():
            push = fleet_pb2.PushMessagesRequest(
                node=self._number,
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[inflatable_object.get_object_tree(reply)],
                clientapp_runtime_list=[seconds],
            )
            taken, call = self._client.PushMessages(push), self._client.PushObject
            push_one = inflatable_protobuf_utils.make_push_object_fn_protobuf(
                call, self._number, run, taken.session_id
            )
            objects = inflatable_object.get_all_nested_objects(reply)
            inflatable_utils.push_objects(objects, push_one, object_ids_to_push={*taken.objects_to_push})


def serve_node(address: str, site: Path, ready: Callable[[], None]) -> None:
    """Let a site answer its SuperLink until this process is ended; say when it is connected."""
    logging.getLogger("httpx").setLevel(logging.WARNING)  # else a line for each look
    node = Node(address, site / "ca.crt", site / "node")
    worker = Worker(site)
    try:
        node.serve(worker.perform, ready, AuditLog(site))
    finally:
        worker.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    superlink, folder = sys.argv[1:]
    try:
        serve_node(superlink, Path(folder), lambda: log.info("connected to %s", superlink))
    except TacitError as problem:
        sys.exit(str(problem))
