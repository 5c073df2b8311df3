"""Peer-to-peer and Two-Phase MPC: messages, bytes and time for 15 rounds, by the number of clients.

R. Kanagavelu et al., "Two-Phase Multi-Party Computation Enabled Privacy-Preserving Federated Learning",
CCGRID 2020, and section 4.5 of a survey of frameworks that counts its messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from tacit.data.preparation import Preparation
from tacit.federation import Federation
from tacit.methods import METHODS
from tacit.methods.multiparty import PAPER
from tacit.reproduce.harness import Cell, Experiment
from tacit.reproduce.lines import lines, series

DATA, ROUNDS, MEMBERS, CLIENTS = "digits", 15, 3, (8, 16, 32, 64, 128)
SLOW = 64  # clients from which a row takes more than seconds
QUANTITIES = {"messages": "messages", "relayed_bytes": "megabytes", "sum_cpu_s": "CPU seconds of all parties"}
EXACT = {
    ("p2p-mpc", 16): 7200,
    ("p2p-mpc", 128): 487_680,
    ("published", 16): 1470,
    ("published", 128): 40_222,
}
REMARKS = (
    "Between clients; 'published' is Two-Phase MPC with its votes, counted message by message. Ours elects "
    "by commit and reveal, and members tell their partial sums to all, who need trust no single one of them."
)


@lru_cache(maxsize=32)
def cost(name: str, clients: int) -> Mapping[str, float]:
    """Return what 15 rounds cost, as the difference of two runs, and the messages of the election."""
    federation = Federation.embedded(DATA, clients=clients)
    settings = {"hidden": "", "batch": 0, "weighting": "equal"}
    spent: list[dict[str, Any]] = [
        federation.train(
            METHODS.build(name, {**settings, "rounds": rounds}),
            preparation=Preparation(scale="none"),
            min_count=1,
        ).ledger.summary()
        for rounds in (1, 1 + ROUNDS)
    ]
    found = {each: spent[1][each] - spent[0][each] for each in ("relayed_bytes", "sum_cpu_s")}
    relayed = [each["messages_by_route"]["client→client"] for each in spent]
    voted = sum(wave["parties"] + wave["replies"] for wave in spent[1]["waves"] if "reveal" in wave["step"])
    return {
        **found,
        "relayed_bytes": found["relayed_bytes"] / 1e6,
        "messages": relayed[1] - relayed[0] + voted,
    }


def published(clients: int) -> list[tuple[int, int]]:
    """Return sender and receiver of each message of Two-Phase MPC as published, members being the first."""
    everybody, members = range(clients), range(MEMBERS)
    pairs = [(one, other) for one in everybody for other in everybody if one != other]
    among = [(one, other) for one in members for other in members if one != other]
    shares = [(one, member) for one in everybody for member in members if one != member]
    total = [(0, other) for other in everybody if other]
    return 2 * pairs + ROUNDS * (
        shares + among + total
    )  # votes, then a round's shares, partial sums and total


def survey(name: str, n: int) -> int | None:
    """Return the messages by the survey's formulas; Two-Phase's has (K - 1)² a round too many.

    >>> survey("p2p-mpc", 16), survey("p2p-mpc", 128), survey("published", 16)
    (7200, 487680, 1530)
    >>> len(published(16)), len(published(128))
    (1470, 40222)
    """
    pairs, members = 2 * n * (n - 1), MEMBERS * (n + MEMBERS - 1) + n
    return {"p2p-mpc": ROUNDS * pairs, "published": pairs + ROUNDS * members}.get(name)


def figure(quantity: str, name: str, clients: int, seed: int) -> float:
    """Return one figure of a run, or the messages of the published protocol, counted one by one."""
    return float(len(published(clients)) if name == "published" else cost(name, clients)[quantity])


def ratio(clients: int, seed: int) -> float:
    """Return how many times the CPU time of Two-Phase MPC peer-to-peer takes."""
    return figure("sum_cpu_s", "p2p-mpc", clients, seed) / figure("sum_cpu_s", "two-phase-mpc", clients, seed)


def _drawn(text: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {f"{text}, {ROUNDS} rounds": lines(series(rows, "clients", "protocol"), "clients", text, log="xy")}


def experiments() -> Iterator[Experiment]:
    """Yield the tables of messages, bytes and time, and of how many times faster Two-Phase is."""
    table = partial(
        Experiment,
        paper=PAPER,
        settings={"data": DATA, "parameters": 650, "rounds": ROUNDS, "committee": MEMBERS},
        seeds=1,
    )
    for quantity, text in QUANTITIES.items():
        counted = quantity == "messages"
        yield table(
            name=f"two-phase-{text.split()[0].lower()}",
            title=f"Peer-to-peer and Two-Phase MPC: {text}",
            quantity=f"{text}; elections included, keys left out" if counted else text,
            cells=[
                Cell(
                    {"protocol": name, "clients": n},
                    partial(figure, quantity, name, n),
                    survey(name, n) if counted else None,
                    (expected, expected) if counted and (expected := EXACT.get((name, n))) else None,
                    slow=n >= SLOW and name != "published",
                )
                for name in ("p2p-mpc", *(("published",) if counted else ()), "two-phase-mpc")
                for n in CLIENTS
            ],
            drawings=partial(_drawn, text),
            remarks=REMARKS if counted else "",
        )
    yield table(
        name="two-phase-ratio",
        title="How many times the CPU time of Two-Phase MPC peer-to-peer takes",
        quantity="ratio of CPU seconds of all parties",
        cells=[Cell({"clients": n}, partial(ratio, n), {128: 25.0}.get(n), slow=n >= SLOW) for n in CLIENTS],
    )
