"""Rounds of FedAvg in simulation, CPU per round: ours, a plain loop in torch, and Apple's ``pfl``.

1,000 clients of 64 rows of digits, a cohort of 100, a network 64-32-10, one epoch of SGD in batches of 16.
All three take the same steps of the same size; each is charged for a round as a whole, aggregation
included. Ours also encodes, counts and checks every message.
"""

from __future__ import annotations

import contextlib
import io
import time

import numpy as np

from benchmarks._harness import Row
from tacit import Architecture, LocalTraining, Weighting
from tacit.data.files import load
from tacit.data.preparation import Preparation
from tacit.engines.holdings import Holdings
from tacit.federation import Federation
from tacit.methods.fedavg import FedAvg

CLIENTS, COHORT, ROWS, BATCH, RATE, ROUNDS = 1_000, 100, 64, 16, 0.1, 12
REPEATS = 3


def holdings() -> Holdings:
    """Digits, drawn again and again until every client has its rows."""
    digits = load("digits")
    drawn = np.random.default_rng(0).integers(digits.rows, size=CLIENTS * ROWS)
    table = digits.take(drawn)
    names = [f"client-{index + 1:04}" for index in range(CLIENTS)]
    return Holdings(table, np.arange(CLIENTS + 1) * ROWS, names)


def ours(held: Holdings) -> float:
    """CPU seconds of our fastest round."""
    method = FedAvg(
        architecture=Architecture(hidden=(32,)),
        rounds=ROUNDS,
        fraction=COHORT / CLIENTS,
        local=LocalTraining(batch=BATCH, rate=RATE),
        weighting=Weighting("equal"),
    )
    marks: list[float] = []
    federation = Federation(held)
    training = federation.train(
        method,
        protect="plain",
        preparation=Preparation(scale="none"),
        keep=lambda shared: marks.append(time.process_time()),
    )
    assert not training.failures
    assert len(marks) == ROUNDS
    return float(min(np.diff(marks)))


def torch_loop(X: np.ndarray, y: np.ndarray) -> float:
    """CPU seconds of the fastest round of a plain loop with one module and one optimiser."""
    import torch

    torch.set_num_threads(1)
    module = network(torch)
    rows, labels = torch.from_numpy(X), torch.from_numpy(y)
    optimiser = torch.optim.SGD(module.parameters(), lr=RATE)
    loss = torch.nn.functional.cross_entropy
    weights = [p.detach().clone() for p in module.parameters()]
    rng, best = np.random.default_rng(0), float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        total = [torch.zeros_like(w) for w in weights]
        for client in rng.choice(CLIENTS, COHORT, replace=False):
            with torch.no_grad():
                for parameter, weight in zip(module.parameters(), weights, strict=True):
                    parameter.copy_(weight)
            order = client * ROWS + torch.randperm(ROWS)
            for first in range(0, ROWS, BATCH):
                chosen = order[first : first + BATCH]
                optimiser.zero_grad()
                loss(module(rows[chosen]), labels[chosen]).backward()
                optimiser.step()
            with torch.no_grad():
                for sum_, parameter, weight in zip(total, module.parameters(), weights, strict=True):
                    sum_ += parameter - weight
        weights = [w + s / COHORT for w, s in zip(weights, total, strict=True)]
        best = min(best, time.process_time() - started)
    return best


def network(torch):
    """The network 64-32-10 in torch."""
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))


def pfl_rounds(X: np.ndarray, y: np.ndarray) -> float:
    """CPU seconds of pfl's fastest round, with its own FedAvg on its simulated backend."""
    import logging

    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    logging.disable(logging.WARNING)
    torch.set_num_threads(1)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network(torch)

        def forward(self, rows):
            return self.inner(rows)

        def loss(self, rows, labels, eval=False):  # noqa: A002  # pfl's name
            self.train(not eval)
            return torch.nn.functional.cross_entropy(self(rows), labels)

        def metrics(self, rows, labels, eval=True):  # noqa: A002
            return {}

    marks: list[float] = []

    class Clock(TrainingProcessCallback):
        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            marks.append(time.process_time())
            return False, Metrics()

    rows, labels = torch.from_numpy(X), torch.from_numpy(y)
    users = {
        str(i): [rows[i * ROWS : (i + 1) * ROWS], labels[i * ROWS : (i + 1) * ROWS]] for i in range(CLIENTS)
    }
    data = FederatedDataset(
        lambda name: Dataset(raw_data=users[name], user_id=name), get_user_sampler("random", list(users))
    )
    net = Net()
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    algorithm = FederatedAveraging()
    with contextlib.redirect_stdout(io.StringIO()):  # it prints, and ours is one JSON object
        algorithm.run(
            NNAlgorithmParams(
                ROUNDS, evaluation_frequency=10**6, train_cohort_size=COHORT, val_cohort_size=0
            ),
            SimulatedBackend(training_data=data, val_data=data),
            model,
            NNTrainHyperParams(local_num_epochs=1, local_learning_rate=RATE, local_batch_size=BATCH),
            NNEvalHyperParams(local_batch_size=ROWS),
            callbacks=[Clock()],
        )
    logging.disable(logging.NOTSET)
    return float(min(np.diff(marks)))


def rows() -> list[Row]:
    held = holdings()
    X = np.asarray(held.table.values, dtype=np.float32)
    y = np.asarray(held.table.target, dtype=np.int64)
    measured = [(ours(held), torch_loop(X, y), pfl_rounds(X, y)) for _ in range(REPEATS)]
    mine, loop, pfl = (min(column) for column in zip(*measured, strict=True))
    what = f"{CLIENTS:,} clients, {COHORT} a round, 64-32-10"
    return [
        Row("vs-torch", mine, "CPU s a round", loop, target=0.67, note=f"one plain torch loop; {what}"),
        Row("vs-pfl", mine, "CPU s a round", pfl, target=1.3, note=f"Apple's pfl; {what}"),
    ]
