"""Peer-to-peer and Two-Phase MPC: messages, bytes and time for 15 rounds, by the number of clients.

The published messages are those that section 4.5 of a survey of frameworks counts.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

from reproductions._harness import Experiment, grid
from reproductions._lines import plot
from tacit.data.preparation import Preparation
from tacit.federation import Federation
from tacit.methods import METHODS
from tacit.methods.presets import TwoPhaseMPC
from tacit.protections.secret_sharing.committee import Committee

DATA, ROUNDS, MEMBERS, CLIENTS = "digits", 15, 3, (8, 16, 32, 64, 128)
SLOW = 64  # clients from which a row takes more than seconds
PUBLISHED = "two-phase, published"
RAN = ("p2p-mpc", "two-phase-mpc", PUBLISHED)
QUANTITIES = {"messages": "messages", "relayed_bytes": "megabytes", "sum_cpu_s": "CPU seconds of all parties"}
EXACT = {("p2p-mpc", 16): 7200, ("p2p-mpc", 128): 487_680, (PUBLISHED, 16): 1470, (PUBLISHED, 128): 40_222}


@lru_cache(maxsize=32)
def cost(name: str, clients: int) -> Mapping[str, float]:
    """Return what 15 rounds cost, as the difference of two runs, and the messages of the election."""
    federation = Federation.embedded(DATA, clients=clients)
    settings = {"hidden": "", "batch": 0, "weighting": "equal"}
    published = Committee(scheme="additive", published=True) if name == PUBLISHED else None
    spent: list[dict[str, Any]] = [
        federation.train(
            METHODS.build("two-phase-mpc" if published else name, {**settings, "rounds": rounds}),
            protect=published,
            preparation=Preparation(scale="none"),
            min_count=1,
        ).ledger.summary()
        for rounds in (1, 1 + ROUNDS)
    ]
    relayed = [each["messages_by_route"]["client→client"] for each in spent]
    return {
        "relayed_bytes": (spent[1]["relayed_bytes"] - spent[0]["relayed_bytes"]) / 1e6,
        "sum_cpu_s": spent[1]["sum_cpu_s"] - spent[0]["sum_cpu_s"],
        "messages": relayed[1] - relayed[0] + sum(map(election_messages, spent[1]["waves"])),
    }


def election_messages(wave: Mapping[str, Any]) -> int:
    """Return the messages of a wave of an election: votes and their sums go to all others."""
    if "reveal" in wave["step"]:
        return int(wave["parties"] + wave["replies"])
    return int(wave["replies"] * (wave["parties"] - 1)) if "vote" in wave["step"] else 0


def survey(name: str, n: int) -> int | None:
    """Return the messages by the survey's formulas; Two-Phase's has (K - 1)² a round too many.

    >>> survey("p2p-mpc", 16), survey("p2p-mpc", 128), survey(PUBLISHED, 16)
    (7200, 487680, 1530)
    """
    pairs, members = 2 * n * (n - 1), MEMBERS * (n + MEMBERS - 1) + n
    return {"p2p-mpc": ROUNDS * pairs, PUBLISHED: pairs + ROUNDS * members}.get(name)


def figure(quantity: str, name: str, clients: int, seed: int) -> float:
    """Return one figure of a run."""
    return float(cost(name, clients)[quantity])


def ratio(clients: int, seed: int) -> float:
    """Return how many times the CPU time of Two-Phase MPC peer-to-peer takes."""
    one, other = (figure("sum_cpu_s", name, clients, seed) for name in RAN[:2])
    return one / other


def experiments() -> Iterator[Experiment]:
    """Yield the tables of messages, bytes and time, and of how much faster Two-Phase is."""
    settings = {"data": DATA, "parameters": 650, "rounds": ROUNDS, "committee": MEMBERS}
    table = partial(Experiment, paper=TwoPhaseMPC.paper, settings=settings, seeds=1)
    for quantity, text in QUANTITIES.items():
        counted = quantity == "messages"
        yield table(
            name=f"two-phase-{text.split()[0].lower()}",
            title=f"Peer-to-peer and Two-Phase MPC: {text}",
            quantity=f"{text}; elections included, keys left out" if counted else text,
            cells=grid(
                partial(figure, quantity),
                {"protocol": RAN, "clients": CLIENTS},
                paper=survey if counted else None,
                expected=lambda *at, counted=counted: (EXACT[at],) * 2 if counted and at in EXACT else None,
                slow=lambda name, n: n >= SLOW,
            ),
            drawings=plot(f"{text}, {ROUNDS} rounds", text, "clients", "protocol", log="xy"),
            remarks=(
                f"Between clients. '{PUBLISHED}' elects by votes, and a member tells the total. Ours elects "
                "by commit and reveal, and members tell their partial sums to all, who trust no single one."
            )
            if counted
            else "",
        )
    yield table(
        name="two-phase-ratio",
        title="How many times the CPU time of Two-Phase MPC peer-to-peer takes",
        quantity="ratio of CPU seconds of all parties",
        cells=grid(ratio, {"clients": CLIENTS}, paper={128: 25.0}.get, slow=lambda n: n >= SLOW),
    )
