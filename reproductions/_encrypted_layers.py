"""Component of a model, or all of it, under encryption: figure 4 of the paper on aggregation strategies.

The paper encrypts the output layer and the two outermost layers with Paillier, sees a drop of F1 in the
second case, and could not encrypt whole models for lack of memory.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from reproductions._harness import Cell, Experiment
from reproductions._lines import Rows, lines, plot
from reproductions._trainings import Scores, points
from reproductions.aggregation import CLIENTS, DATA, DEEP, FEW, LOCAL, course
from tacit.methods.homogeneity import HWFedAvg

SHALLOW = "432"
LAYERS: dict[str, tuple[int | str, ...]] = {SHALLOW: (1, "all"), DEEP: (1, 2, "all")}
ENCRYPTED = [(h, p, k) for h in LAYERS for p in ("paillier", "bfv") for k in LAYERS[h]]


def changed(score: str, rounds: int, hidden: str, protect: str, layers: int | str, seed: int) -> float:
    """Return by how much HWFedAvg differs from that under plain sums after so many rounds."""
    encrypted = _run("hwfedavg", hidden, seed, rounds, protect=protect, layers=layers)
    return abs(float(encrypted[-1][score]) - float(_run("hwfedavg", hidden, seed, rounds)[-1][score]))


def _run(strategy: str, hidden: str, seed: int, rounds: int, **protection: Any) -> tuple[Scores, ...]:
    return course(strategy, "majority-even", FEW, seed, hidden=hidden, rounds=rounds, **protection)


def _drawn(rows: Rows) -> dict[str, str]:
    """Draw figure 4, from the runs of the table."""
    named = {
        "fedavg": _run("fedavg", DEEP, 0, 3),
        "hwfedavg": _run("hwfedavg", DEEP, 0, 3),
        "hwfedavg, two layers under paillier": _run("hwfedavg", DEEP, 0, 3, protect="paillier", layers=2),
    }
    curves = {name: points(scores["f1"] for scores in found) for name, found in named.items()}
    return {f"Macro F1 by round, {FEW:,} training rows (figure 4)": lines(curves, "round", "macro F1")}


def share(sizes: Sequence[int], layers: int | str) -> float:
    """Return the share of a network's weights that lies in its last layers.

    >>> share([2, 3, 1], 1), share([2, 3, 1], "all")
    (0.3077, 1.0)
    """
    each = [(before + 1) * after for before, after in pairwise(sizes)]
    chosen = each if layers == "all" else each[-int(layers) :]
    return round(sum(chosen) / sum(each), 4)


def encrypted() -> Iterator[Experiment]:
    """Yield the tables of what encryption changes and costs, against the share of the model encrypted."""
    settings = {"data": DATA, "clients": CLIENTS, "rows": FEW, "partition": "majority-even", **LOCAL}

    table = partial(Experiment, paper=HWFedAvg.paper, settings=settings, seeds=1)

    def named(hidden: str, protect: str, layers: int | str) -> dict[str, Any]:
        sizes = [561, *map(int, hidden.split(",")), 6]
        name = "-".join(map(str, sizes))
        return {"network": name, "protect": protect, "last layers": layers, "share": share(sizes, layers)}

    yield table(
        name="aggregation-encrypted",
        title="HWFedAvg under encryption: what macro F1 loses against plain sums (figure 4)",
        quantity="absolute difference of macro F1 after 3 rounds",
        cells=[
            Cell(named(*each), partial(changed, "f1", 3, *each), None, (0.0, 0.002), slow=True)
            for each in ENCRYPTED
        ],
        remarks=(
            "The paper sees a drop with two layers under Paillier and blames noise. Paillier has none: its "
            "sums are exact, so the drop must come from how numbers were encoded."
        ),
        drawings=_drawn,
    )
    yield table(
        name="aggregation-encrypted-cost",
        title="What encrypting a share of the model costs",
        quantity="CPU seconds of all parties in a run of one round, over plain sums; keys and scale included",
        cells=[Cell(named(*each), partial(changed, "cpu_s", 1, *each), slow=True) for each in ENCRYPTED],
        drawings=plot(
            "What encryption costs against the share of the weights that is encrypted",
            "CPU seconds over plain sums",
            "share",
            "protect",
            "network",
            log="xy",
        ),
    )
