"""What an operator asks of its own SuperLink: which nodes there are, and a run with its messages.

The process that starts a run claims it, with the operator's token: nobody else can.
"""

import fcntl
import hashlib
import io
import logging
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.app import Message as FlowerMessage
from flwr.common.constant import SubStatus
from flwr.common.serde import fab_to_proto, run_from_proto, user_config_to_proto
from flwr.proto import control_pb2, node_pb2, runtime_pb2
from flwr.supercore.constant import TaskType
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.error import FlowerError
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from flwr.supercore.retry import RetryInvoker, exponential
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from tacit.core.errors import FederationError, UnavailableError
from tacit.deploy.certificates import HOST
from tacit.deploy.connection import ACCESS, Access
from tacit.deploy.node import take
from tacit.deploy.processes import listens

PATIENCE = 60.0  # seconds for a SuperLink that is away to come back
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"

# Flower wants an app for each run. Nobody ever asks for this one: it names nothing that exists.
APP = """[project]
name = "tacit-run"
version = "1.0.0"
description = "Runs the installed Tacit"

[tool.flwr.app]
publisher = "tacit"

[tool.flwr.app.components]
serverapp = "installed:tacit"
clientapp = "installed:tacit"

[tool.flwr.app.config]
settings = ""
"""


def make_app() -> bytes:
    """Return the app that a run is started with."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("pyproject.toml", APP)
    return packed.getvalue()


def _with_token(token: str, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
    context.request.headers["Authorization"] = f"Bearer {token}"
    return call_next(context)


class Grid(HttpGrid):
    """Flower's messages of one run; whatever ends the connection is an error of ours."""

    def __init__(self, address: str, token: str) -> None:
        super().__init__(address, insecure=True, token=token)
        # Flower's own retries never end, and interrupt the process if the run is over.
        self._retry_invoker = RetryInvoker(
            lambda: exponential(max_delay=2), httpx.TransportError, None, PATIENCE
        )

    def get_nodes(self) -> Iterable[node_pb2.NodeInfo]:
        with explained(self._addr):
            return super().get_nodes()

    def push_messages(self, messages: Iterable[FlowerMessage]) -> Iterable[str]:
        with explained(self._addr):
            return super().push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[FlowerMessage]:
        client = self._runtime_client
        with explained(self._addr):
            found = client.PullMessages(runtime_pb2.PullAppMessagesRequest(message_ids=message_ids))
            return [take(client, tree, self.node, self.run.run_id) for tree in found.message_object_trees]


@contextmanager
def explained(address: str) -> Iterator[None]:
    """Say in our words what a SuperLink that cannot be asked means."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        told = FlowerError.from_json(error.response.text)
        status = error.response.status_code
        words = told.message if told else f"status {status}"
        if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise FederationError(
                f"the SuperLink at {address} takes no part in this any more: {words}"
            ) from None
        raise UnavailableError(f"the SuperLink at {address} refuses: {words}") from None
    except ObjectPullError as error:
        raise FederationError(f"a reply at the SuperLink is not whole: {error}") from None
    except httpx.TransportError as error:
        raise FederationError(
            f"the SuperLink at {address} was stopped, or cannot be reached ({error}): start it again"
        ) from None


class Control(AbstractContextManager["Control"]):
    """A SuperLink of this machine, asked with its operator's token; ``home`` is Flower's folder."""

    def __init__(self, home: Path) -> None:
        for library in ("flwr", "httpx"):
            logging.getLogger(library).setLevel(logging.ERROR)
        known = Access.read(home)
        self.address, self._file = f"{HOST}:{known.port}", home / ACCESS
        if not listens(known.port):
            raise UnavailableError(
                f"no SuperLink answers at {self.address}: start it with `tacit coordinator start`"
            )
        version = RuntimeVersionHttpInterceptor(component_name="SuperExec")
        bearer: Any = SimpleNamespace(intercept=partial(_with_token, known.token))
        self._client = ControlHttpClient.from_server_address(
            self.address, True, None, interceptors=[version, bearer]
        )
        sign = SuperExecAuthHttpInterceptor(master_secret=known.token.encode(), protected_methods={ACQUIRE})
        self._claims = RuntimeHttpClient.from_server_address(
            self.address, True, None, interceptors=[version, sign]
        )

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._claims.close()

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Return the registered nodes by their number."""
        with explained(self.address):
            told = self._client.ListNodes(control_pb2.ListNodesRequest()).nodes_info
        return {
            str(node.node_id): {"status": node.status, "online-at": node.last_activated_at}
            for node in told
            if node.status != "unregistered"
        }

    def register(self, name: str, public: str) -> str:
        """Let a node connect under a name; return its number."""
        key: Any = load_ssh_public_key(public.encode())
        with explained(self.address):
            asked = control_pb2.RegisterNodeRequest(public_key=public_key_to_bytes(key), name=name)
            return str(self._client.RegisterNode(asked).node_id)

    def unregister(self, number: str) -> None:
        """Let a node connect no more."""
        with explained(self.address):
            self._client.UnregisterNode(control_pb2.UnregisterNodeRequest(node_id=int(number)))

    @contextmanager
    def run(self, settings: str) -> Iterator[Grid]:
        """Start a run that says of itself these settings, and lead it within the block."""
        with explained(self.address):
            token = self._claim(settings)
            own, grid = self._client_of(token), Grid(self.address, token)
            task = own.PullTaskInput(runtime_pb2.PullTaskInputRequest())
        grid.set_run(run_from_proto(task.run))
        # Flower writes these on messages; a process leads one run at a time.
        TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
        TaskIdentity.node_id = task.context.node_id
        heart = HeartbeatSender(lambda: _beat(own))
        heart.start()
        status, details = SubStatus.FAILED, "stopped"
        try:
            yield grid
            status, details = SubStatus.COMPLETED, ""
        finally:
            heart.stop()
            grid.close()
            _end(own, status, details)

    def _client_of(self, token: str) -> RuntimeHttpClient:
        version = RuntimeVersionHttpInterceptor(component_name="flwr-serverapp")
        return RuntimeHttpClient.from_server_address(
            self.address, True, None, interceptors=[version, RuntimeTokenHttpInterceptor(token)]
        )

    def _claim(self, settings: str) -> str:
        """Start a run and claim it; one that was never claimed, since its process ended, is closed."""
        fab = make_app()
        app = fab_to_proto(Fab(hashlib.sha256(fab).hexdigest(), fab, {}))
        config = user_config_to_proto({"settings": settings})
        ours = runtime_pb2.AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP])
        with self._file.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            asked = control_pb2.StartRunRequest(fab=app, override_config=config)
            number = self._client.StartRun(asked).run_id
            while (found := self._claims.AcquireTask(ours)).token:
                if found.task.run_id == number:
                    return str(found.token)
                _end(self._client_of(found.token), SubStatus.FAILED, "nobody leads this run")
        raise FederationError(f"the SuperLink at {self.address} does not hand out the run that it started")


def _beat(client: RuntimeHttpClient) -> bool:
    with suppress(httpx.HTTPError):
        client.SendTaskHeartbeat(runtime_pb2.SendTaskHeartbeatRequest())
    return True  # if the run is over, its next message says so


def _end(client: RuntimeHttpClient, status: str, details: str) -> None:
    with client, suppress(httpx.HTTPError):
        client.PushTaskOutput(runtime_pb2.PushTaskOutputRequest(sub_status=status, details=details))
