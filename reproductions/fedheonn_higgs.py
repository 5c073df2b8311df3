"""FedHEONN's largest experiment, HIGGS taken four times, in full: 44 million rows at 10,000 clients.

The rows are synthetic, of HIGGS' shape; all are there, so that each client has as many as in the paper.
"""

from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path

from reproductions._fedheonn_runs import LAM
from reproductions._harness import Cell, Experiment
from tacit.core.errors import UnavailableError
from tacit.data.files import load
from tacit.federation import Federation
from tacit.methods.fedheonn import FedHEONN

DATA = "synthetic-higgs-x4"
CLIENTS = 10_000
NEEDED = 16  # GB of memory: twice the rows, while they are divided, and some
# Clients, protection, and the paper's seconds.
RUNS = ((1, "plain", 464.84), (CLIENTS, "plain", None), (CLIENTS, "bfv", 11.18))


@lru_cache(maxsize=1)
def _federation(clients: int) -> Federation:
    if (free := _free_memory()) < NEEDED:
        raise UnavailableError(f"44 million rows take {NEEDED} GB of memory, and {free:.0f} are free")
    return Federation.embedded(load(DATA), clients=clients, partition="iid")


def _free_memory() -> float:
    """Return the free memory in GB; where the system does not tell, enough."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return float("inf")
    return int(text.split("MemAvailable:")[1].split()[0]) / 1e6


def seconds(clients: int, protect: str, seed: int) -> float:
    """Return the training time: CPU seconds of slowest client and coordinator, enrolment included."""
    training = _federation(clients).train(FedHEONN(lam=LAM), protect=protect)
    return float(training.ledger.summary()["training_s"])


def experiments() -> Iterator[Experiment]:
    """Yield the one table of training time."""
    yield Experiment(
        name="fedheonn-higgs-time",
        title="FedHEONN, HIGGS ×4: training time in one place and at 10,000 clients",
        paper=FedHEONN.paper,
        quantity="slowest client and coordinator, s of CPU",
        settings={"data": DATA, "rows": 44_000_000, "lam": LAM, "test": 0.3, "partition": "iid"},
        seeds=1,
        cells=[
            Cell({"clients": n, "protect": protect}, partial(seconds, n, protect), paper, slow=True)
            for n, protect, paper in RUNS
        ],
        remarks=(
            "Made-up rows of HIGGS' shape, repeated four times as in the paper. Its seconds are from another "
            "machine. Ours count enrolment, keys and scaling, too: most of the encrypted run."
        ),
    )
