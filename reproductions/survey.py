"""The survey's tables 2 to 5 for every method: its formulas at the sizes of our runs, and what was counted.

Growth is the slope of a line through logarithms: ours of runs at three sizes, the survey's of its formula
at the same three. Its local training, T, counts as a step for each row and parameter.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from reproductions._harness import Cell, Experiment
from reproductions._survey_formulas import FRAMEWORKS, Formula
from reproductions._survey_runs import BASE, KEY_BITS, protection_of, run, sizes
from tacit.core.errors import TacitError
from tacit.federation import Federation
from tacit.methods import METHODS

PAPER = "Horizontal Federated Learning Frameworks: A Literature Study"
AXES = {
    "clients": (6, 12, 24),
    "rows": (120, 600, 3000),
    "features": (8, 32, 128),
    "parameters": (32, 256, 2048),  # units of the hidden layer; of FederBoost, they stand for levels
    "rounds": (2, 6, 18),
}
ONE_SHOT = ("fedheonn", "fedheonn-ensemble", "fusion")  # which have no rounds
NARROW = ("fedheonn", "fedheonn-ensemble")  # whose parameters follow from the features
SLOW = ("pfmlp", "ring-mlp", "splitfed", "p2p-mpc", "federboost")
QUANTITIES = {"messages": "messages", "bytes": "bytes to and from all clients", "time": "CPU milliseconds"}
WINE: Mapping[
    str, Mapping[str, Mapping[str, Any]]
] = {  # what each framework can learn here, as options of the method; all are trained
    "fedavg": {"no hidden layer": {"hidden": ""}, "two hidden layers": {"hidden": "32,16"}},
    "federboost": {"boosted trees": {"trees": 20, "depth": 3}},
    "graffl": {"mixtures of Gaussians": {}},
    "splitfed": {"one hidden layer": {}},
    "fusion": {
        "network": {"local": "MLP(hidden_layer_sizes=(32,))", "families": ("norm",)},
        "logistic regression": {"local": "LogisticRegression()", "families": ("norm",)},
        "random forest": {"local": "RandomForestClassifier()", "families": ("norm",)},
    },
    "p2p-mpc": {"one hidden layer": {}},
    "two-phase-mpc": {"one hidden layer": {}},
    "flop": {"one hidden layer, heads of the clients": {}},
    "pfmlp": {"one hidden layer": {"rounds": 3, "rate": 0.5}},
}


def axes_of(name: str) -> list[str]:
    """Return in which sizes a method's growth can be measured."""
    left_out = {"rounds"} if name in ONE_SHOT else set()
    return [axis for axis in AXES if axis not in left_out | ({"parameters"} if name in NARROW else set())]


def runs_along(axis: str) -> list[dict[str, int]]:
    """Return the sizes of the runs along an axis."""
    return [{**BASE, axis: size} for size in AXES[axis]]


def slope(axis: str, values: Sequence[float]) -> float:
    """Return the slope of the logarithms.

    >>> slope("clients", [36, 144, 576])
    2.0
    """
    return round(float(np.polyfit(np.log(AXES[axis]), np.log(values), 1)[0]), 4) + 0.0


def growth(quantity: str, name: str, axis: str, seed: int) -> float:
    """Return how a measured quantity grows: 1 is in proportion, 0 not at all."""
    return slope(axis, [run(name, **at)[quantity] for at in runs_along(axis)])


def theirs(formula: Formula, name: str, axis: str) -> float:
    """Return how a formula of the survey grows between the same sizes."""
    return slope(axis, [formula(sizes(name, **at)) for at in runs_along(axis)])


def formulas(quantity: str, name: str) -> Mapping[str, tuple[str, Formula | None]]:
    """Return what the survey says of a quantity; a dash for methods that it does not have."""
    if name not in FRAMEWORKS:
        return {"–": ("–", None)}
    found = FRAMEWORKS[name]
    return {"messages": found.messages, "bytes": found.size, "time": found.time}[quantity]


def round_messages(name: str, seed: int) -> float:
    """Return the messages of one round: those that another two add, by two."""
    one, two = (run(name, **{**BASE, "rounds": rounds})["messages"] for rounds in (2, 4))
    return float(two - one) / 2


def once_more(quantity: str, name: str, seed: int) -> float:
    """Return what a run of the base sizes takes, which was run before: nothing is imported or compiled."""
    return float(run(name, **{**BASE, "rows": BASE["rows"] + 1})[quantity])


def totals(quantity: str) -> Iterator[Cell]:
    """Yield what a run of the base sizes takes, by method, beside the survey's formulas."""
    for name in METHODS.names():
        for place, (words, formula) in formulas(quantity, name).items():
            value = None if formula is None else round(formula(sizes(name, **BASE)))
            exact = quantity == "messages"
            settings = {
                "method": name,
                "protection": protection_of(name).name,
                "from": place,
                "formula": words,
            }
            yield Cell(
                settings if exact else {**settings, "formula's value": value},
                partial(once_more, quantity, name),
                paper=value if exact else None,
                slow=name in SLOW,
            )


def slopes(quantity: str) -> Iterator[Cell]:
    """Yield how a quantity grows in each size, by method, beside the survey's formulas."""
    for name in METHODS.names():
        for place, (_, formula) in formulas(quantity, name).items():
            for axis in axes_of(name):
                yield Cell(
                    {"method": name, "from": place, "in": axis},
                    partial(growth, quantity, name, axis),
                    paper=None if formula is None else theirs(formula, name, axis),
                    slow=name in SLOW or axis in ("clients", "rows"),
                )


def rounds_cells() -> Iterator[Cell]:
    """Yield the messages of one round, where the survey's formula has one."""
    for name, framework in FRAMEWORKS.items():
        if name in ONE_SHOT:
            continue
        for place, (words, formula) in framework.messages.items():
            one, two = (formula(sizes(name, **{**BASE, "rounds": rounds})) for rounds in (2, 4))
            yield Cell(
                {"method": name, "protection": protection_of(name).name, "from": place, "formula": words},
                partial(round_messages, name),
                paper=(two - one) / 2,
                slow=name in SLOW,
            )


def seen_alone(name: str, seed: int) -> float:
    """Return how many kinds of values of a single client others could read in the base run."""
    rows = run(name, **BASE)["exposure"]
    return float(sum(row["class"] == "plain" and row["over"] == 1 and row["openable"] for row in rows))


def privacy_cells() -> Iterator[Cell]:
    """Yield what the survey and we say of privacy, and what was seen of single clients."""
    for name in METHODS.names():
        protection, own = protection_of(name), METHODS.build(name).reveals
        said = FRAMEWORKS.get(name)
        for place, against in (said.against if said else {"–": "–"}).items():
            settings = {
                "method": name,
                "from": place,
                "survey: measure": said.measure if said else "–",
                "survey: ensures privacy against": against,
                "ours: protection": protection.name,
                "ours: undone by": protection.promises.collusion,
                "ours: the method itself shows": "; ".join(f"{who}: {what}" for who, what in own.items())
                or "–",
            }
            yield Cell(settings, partial(seen_alone, name), slow=name in SLOW)


def accuracy(name: str, chosen: Mapping[str, Any], seed: int) -> float:
    """Train a kind of model on wine, among four clients, and return its accuracy."""
    federation = Federation.embedded("wine", clients=4, seed=seed)
    training = federation.train(METHODS.build(name, chosen), protect=protection_of(name))
    if training.scores is None:
        raise TacitError(f"{name} has left no scores")
    return float(training.scores["accuracy"])


def model_cells() -> Iterator[Cell]:
    """Yield the kinds of models that each framework of the survey learns here."""
    for name, kinds in WINE.items():
        for kind, chosen in kinds.items():
            yield Cell(
                {"method": name, "survey: supports": FRAMEWORKS[name].models, "model": kind},
                partial(accuracy, name, chosen),
                slow=name in SLOW,
            )


def experiments() -> Iterator[Experiment]:
    """Yield tables 2 to 5."""
    table = partial(Experiment, paper=PAPER, settings={**BASE, "Paillier": f"{KEY_BITS} bits"}, seeds=1)
    numbers = {"messages": 3, "bytes": 3, "time": 2}
    whole = "Ours is the whole run: enrolment, keys, scale and small cells, which the survey leaves out. "
    orders = (
        whole + "The survey's is an order, in values or steps: its growth can be compared, not its value."
    )
    for quantity, text in QUANTITIES.items():
        yield table(
            name=f"survey-{quantity}",
            title=f"Table {numbers[quantity]}: {text}",
            quantity=text,
            cells=list(totals(quantity)),
            remarks=whole if quantity == "messages" else orders,
        )
        yield table(
            name=f"survey-{quantity}-growth",
            title=f"Table {numbers[quantity]}: growth of {text}",
            quantity=f"slope of the logarithms of {text}",
            settings={**table.keywords["settings"], **AXES},
            cells=list(slopes(quantity)),
            remarks="0: does not grow; 1: in proportion. Fixed costs flatten ours at these small sizes.",
        )
    yield table(
        name="survey-messages-round",
        title="Table 3: messages of one round",
        quantity="messages that a round adds",
        cells=list(rounds_cells()),
        remarks="A sum under 'masked' takes two waves, so that a client may vanish; asks and replies count.",
    )
    yield table(
        name="survey-privacy",
        title="Table 4: privacy measures",
        quantity="kinds of values of a single client that another party could read, counted in a run",
        cells=list(privacy_cells()),
    )
    yield table(
        name="survey-models",
        title="Table 5: supported models",
        quantity="accuracy on wine, four clients: each kind is trained",
        cells=list(model_cells()),
    )
