"""Flower's SecAgg+ in one process: its workflow and its client mod, joined by function calls.

Run as ``python _secaggplus.py CLIENTS DROPOUTS VALUES SHARES THRESHOLD``; prints CPU seconds and bytes as
JSON. It is a process of its own, so that neither Flower's threads nor its logger touch ours. Messages pass
Flower's own codec, as ours pass ours, and nothing else: no network, no Ray, no database.
"""

from __future__ import annotations

import os

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}

import json
import logging
import sys
import time
from types import SimpleNamespace

import numpy as np
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.compat.common import recorddict_compat as compat
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.server import LegacyContext, ServerConfig, SimpleClientManager
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.supercore.task_identity import TaskIdentity

UPLOAD = 2  # the stage, counted from 0, that the dropouts of the comparison do not answer


class Grid:
    """Hands messages to the client mod and gives its replies; some clients vanish at a stage."""

    def __init__(self, updates: dict[int, np.ndarray], lost: set[int], when: int) -> None:
        self.updates, self.lost, self.when = updates, lost, when
        self.contexts = {node: _context(node) for node in updates}
        self.stage, self.uploaded = 0, 0

    def send_and_receive(self, messages: list[Message], *, timeout: float | None = None) -> list[Message]:
        replies = [self._asked(message) for message in messages]
        self.stage += 1
        print(f"  Flower: stage {self.stage} of 4, {time.process_time():.0f} s of CPU", file=sys.stderr)
        return replies

    def _asked(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        if self.stage == self.when and node in self.lost:
            return Message(Error(code=0, reason="vanished"), reply_to=message)
        reply = secaggplus_mod(_read(_written(message)), self.contexts[node], self._fit)
        raw = _written(reply)
        self.uploaded += len(raw)
        return _read(raw)

    def _fit(self, message: Message, context: Context) -> Message:
        update = ndarrays_to_parameters([self.updates[context.node_id]])
        result = FitRes(Status(Code.OK, ""), update, num_examples=1000, metrics={})
        return Message(compat.fitres_to_recorddict(result, keep_input=False), reply_to=message)


def _written(message: Message) -> bytes:
    return message_to_proto(message).SerializeToString()


def _read(raw: bytes) -> Message:
    return message_from_proto(ProtoMessage.FromString(raw))


def _context(node: int) -> Context:
    return Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={})


def run(
    clients: int,
    dropouts: int,
    values: int,
    shares: int,
    threshold: int,
    *,
    when: int = UPLOAD,
    grid: type = Grid,
) -> dict[str, float]:
    """One weighted average of clients, some of which vanish at a stage."""
    rng = np.random.default_rng(0)
    updates = {node: rng.uniform(-1, 1, values).astype(np.float32) for node in range(1, clients + 1)}
    lost = set(range(1, clients + 1, clients // dropouts)) if dropouts else set()
    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
    manager = SimpleClientManager()
    for node in updates:
        manager.register(SimpleNamespace(cid=str(node), node_id=node))
    strategy = FedAvg(fraction_fit=1.0, min_available_clients=clients, accept_failures=True)
    context = LegacyContext(_context(0), ServerConfig(num_rounds=1), strategy, manager)
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: 1})
    first = ndarrays_to_parameters([np.zeros(values, np.float32)])
    context.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(first, keep_input=True)
    wire = grid(updates, lost, when)
    started = time.process_time()
    SecAggPlusWorkflow(shares, threshold)(wire, context)
    seconds = time.process_time() - started
    record = context.state.array_records[MAIN_PARAMS_RECORD]
    (average,) = (array.numpy() for array in record.values())
    expected = np.mean([update for node, update in updates.items() if node not in lost], axis=0)
    if not np.abs(average - expected).max() < 1e-4:
        raise ArithmeticError("Flower's average is wrong")
    return {"cpu_s": seconds, "bytes": wire.uploaded / (clients - dropouts)}


if __name__ == "__main__":
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    print(json.dumps(run(*map(int, sys.argv[1:]))))
