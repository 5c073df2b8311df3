"""SplitFed: a network is cut; clients have its first layers, a main server the others, and both are averaged.

C. Thapa, M. A. P. Chamikara, S. Camtepe, L. Sun, "SplitFed: When Federated Learning Meets Split Learning",
AAAI 2022. For a batch of client k, with rows X, labels Y and the parts W^C and W^S of the network::

    A = f(X; W^C_k)                          client: *smashed data*, which it sends with Y to the main server
    W^S ← W^S - η ∂L(Y, g(A; W^S))/∂W^S      main server, which returns ∂L/∂A
    W^C_k ← W^C_k - η (∂A/∂W^C)ᵀ ∂L/∂A       client

V1: the main server has a copy of W^S for each client. V2: one, as most clients sent it, for clients in turn,
in a new order for each batch; long gradients by it are shortened. With a ``tail`` (U-shaped) the last layers
and labels stay at the client. The coordinator, the paper's *federated server*, relays sealed letters, a batch
of all in one wave; FedAvg's protected sum averages whole networks, each with its W^S. V1 is FedAvg's model.
"""

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.core.claims import recent
from tacit.core.client import manifest_of
from tacit.core.errors import DataError, StepError
from tacit.core.events import Noted
from tacit.core.fields import add_prefix, read_integer, strip_prefix
from tacit.core.marks import contribution, step
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.protection import Protection
from tacit.core.settings_group import check_rules
from tacit.core.shared import Shared
from tacit.core.values import Blob
from tacit.methods.averaging import part_training as training
from tacit.methods.averaging.architecture import read_targets
from tacit.methods.averaging.example_privacy import ExamplePrivacy
from tacit.methods.averaging.part_training import DONE, OWN, ROUND, read_letter, show_letter_key, write_letter
from tacit.methods.averaging.rounds import Cohort, HoldOutMonitor
from tacit.methods.fedavg import FedAvg
from tacit.models.network import Network, cut_network, slope_of_loss
from tacit.models.neural import PREFIX

MAIN_SERVER = "main-server"
PARTS = FRONT, MIDDLE, TAIL = OWN + "front", OWN + "middle", OWN + "tail"
COPY, HELD, TOLD, CACHED = OWN + "copy/", OWN + "held/", OWN + "told/", 64  # clients with rows at hand


@dataclass(frozen=True)
class SplitFed(FedAvg):
    """Networks cut between clients and a main server (Thapa et al., 2022).

    Parameters
    ----------
    variant : {"v1", "v2"}
        Whether the main server has a copy of its part for each client, or one that serves them in turn.
    cut : str
        Last layer of the client's part: "layer1" of "mlp", a name in a torch.nn.Sequential; "" for the first.
    tail : str
        First of the last layers that are the client's as well (U-shaped): labels then stay with it.
    smashed_noise : float
        Standard deviation, over smashed_clip, of the noise on what is sent of a row; 0 for none.
    smashed_clip : float
        Longest norm of what is sent of a row, where there is noise.
    """

    name = "splitfed"
    services = (MAIN_SERVER,)
    small: ClassVar[Mapping[str, Any]] = {"hidden": (8,), "rounds": 3, "batch": 16, "rate": 0.5}
    own_epsilon = inf  # the noise covers smashed data, and not what updates tell of a row
    reveals: ClassVar[Mapping[str, str]] = {
        MAIN_SERVER: "every row's smashed data, from which it can be rebuilt, and, without a tail, its label",
        "coordinator": "how many batches each client has",
        "client": "gradients by its own smashed data, and the main server's part after each round",
    }

    privacy: ExamplePrivacy = field(default_factory=lambda: ExamplePrivacy(sampling=1.0))
    variant: Literal["v1", "v2"] = "v1"
    cut: str = ""
    tail: str = ""
    smashed_noise: float = 0.0
    smashed_clip: float = 10.0

    def __post_init__(self) -> None:
        noise = "smashed_noise", 0 <= self.smashed_noise <= 1e4, "give 0 for none, or about 1; at most 10000"
        check_rules(self, [noise, ("smashed_clip", 0 < self.smashed_clip < inf, "give a norm above 0")])
        own = "set smashed_noise for smashed data, and protect updates by noised: give 0"
        check_rules(self.privacy, [("noise", not self.privacy.noise, own)], self.privacy.prefix)
        super().__post_init__()

    @property
    def budget(self) -> ExamplePrivacy:
        """Return the noise of what is sent of a row in an epoch: smashed data, and of a tail a gradient."""
        sensitivity = 2 * (2**0.5 if self.tail else 1)  # another row in its place: up to twice the clip
        return replace(self.privacy, noise=self.smashed_noise / sensitivity, sampling=1.0)

    def parts(self, schema: Any) -> dict[str, Network]:
        """Return the parts of the network that there are, by their names in a party's state."""
        parts = cut_network(self.architecture.build(schema), self.cut, self.tail)
        return {name: part for name, part in zip(PARTS, parts, strict=True) if part is not None}

    def prepare_round(self, monitor: HoldOutMonitor, cohort: Cohort, number: int) -> Cohort:
        coordinator, schema = monitor.coordinator, monitor.coordinator.schema
        asked, transport = coordinator.parties if cohort is None else cohort, coordinator.link.transport
        (_, shown), *_ = coordinator.ask(self.show_key, parties=[MAIN_SERVER])
        call = {"round": number, "features": schema.features, "outputs": schema.outputs, "batch": 0, **shown}
        left, keys = dict[str, int](), dict[str, Blob]()  # batches and keys of those that have begun
        waiting: dict[str, dict[str, Any]] = {}  # letters for clients, until they have answered

        def ask(step: str, jobs: Mapping[str, Mapping[str, Any]]) -> dict[str, Message]:
            """Ask clients, without the weights if these have begun; one that is lost loses this batch."""
            lost: dict[str, str] = {}
            briefing = None if keys.keys() >= jobs.keys() else coordinator.link.briefing
            wave = transport.wave(f"method.{step}", [*jobs], call, jobs, failures=lost, briefing=briefing)
            replies = {reply.party: reply.message for reply in wave}
            transport.check_quorum(step, asked, [name for name in asked if name not in lost], lost)
            left.update({name: read_integer(reply, "batches") for name, reply in replies.items()})
            keys.update({name: reply["key"] for name, reply in replies.items()})
            return replies

        def serve(kind: str, replies: Mapping[str, Message]) -> dict[str, Any]:
            letters = {name: reply["letter"] for name, reply in replies.items() if "letter" in reply}
            packed = {"letters": Blob("sealed", Message(letters).encode()), "keys": Message(keys).encode()}
            (_, reply), *_ = coordinator.ask(self.serve, call, {MAIN_SERVER: {"kind": kind, **packed}})
            return {**Message.decode(reply["letters"].data)}

        while (batch := call["batch"]) <= (last := max(left.get(name, 2) for name in asked)):
            if batch == last:
                for name, letter in serve("close", {}).items():
                    waiting.setdefault(name, {})["server"] = letter
            names = [name for name in asked if batch < left.get(name, 2) or name in waiting]
            replies = ask("advance", {name: waiting.get(name, {}) for name in names})
            waiting = {name: job for name, job in waiting.items() if name not in replies}
            if not batch and not coordinator.progress and transport.engine.persistent:
                waves = self.rounds * ((4 if self.tail else 2) * max(left.values()) + 4)
                text = f"{waves:,} waves in all, each of which takes seconds between sites: raise batch"
                coordinator.events.emit(Noted("splitfed", text, "warning"))
            found = serve("smashed", replies) if batch < last else {}
            if self.tail and found:
                found = serve("slope", ask("learn_tail", {name: {"letter": found[name]} for name in found}))
            waiting |= {name: {"letter": letter, "back": batch} for name, letter in found.items()}
            call["batch"] = batch + 1
        return cohort

    def _begin(self, party: Party, message: Message, shared: Shared) -> tuple[Any, ...]:
        number, state = read_integer(message, "round"), party.state
        if training.begins(party, number):
            self.budget.begin_round(party, number, self.rounds, self.local.epochs)
            arrays, parts = strip_prefix(PREFIX, shared), self.parts(shared.schema)
            told = {name: value for name, value in shared.items() if not name.startswith(PREFIX)}
            state.update(add_prefix(TOLD, told) | {name: part.flat(arrays) for name, part in parts.items()})

        def prepare() -> tuple[Any, ...]:
            network, rng = self.architecture.build(shared.schema), party.rng("descent", number)
            rows = self.read_rows(party, Shared(shared.schema, strip_prefix(TOLD, state)))
            network.reseed(rng)
            return (*rows, [*self.local.draw_batches(network, len(rows[1]), rng)])

        return recent(party.cache, "split", (manifest_of(party).digest, party.id, number), prepare, CACHED)

    @step
    def advance(self, party: Party, message: Message, shared: Shared) -> Message:
        """Learn from the main server's letters, if there are any, and send the smashed data of a batch."""
        X, targets, row_weights, batches = self._begin(party, message, shared)
        front, batch, state = self.parts(shared.schema)[FRONT], read_integer(message, "batch"), party.state
        reply = Message(batches=len(batches), key=show_letter_key(party))
        peer, squares = (party, MAIN_SERVER, message["key"].data), targets.ndim == 2
        if "back" in message:
            earlier = training.claim(party, "back", read_integer(message, "back", most=len(batches) - 1))
            slope = read_letter(*peer, f"slope {state[ROUND]} {earlier}", message["letter"])["values"]
            training.learn_part(self.local, party, FRONT, front, X[batches[earlier]], slope, earlier, squares)
        if "server" in message:
            weights = read_letter(*peer, f"close {state[ROUND]} {batch}", message["server"])["weights"]
            state.update({MIDDLE: weights, DONE + "close": True})
        if batch >= len(batches):
            return reply
        rows = batches[training.claim(party, "smashed", batch)]
        front.reseed(party.rng("layers", state[ROUND], batch, FRONT))
        smashed = front.run(state[FRONT], X[rows])
        content = {"values": training.cover(smashed, self.smashed_clip, self.smashed_noise)}
        if DONE + "back" not in state and MIDDLE in state:  # the main server may not have it yet
            content["weights"] = state[MIDDLE]
        if not self.tail:
            weights = {} if row_weights is None else {"row_weights": row_weights[rows]}
            content |= {"targets": targets[rows], **weights}
        return reply | {"letter": write_letter(*peer, f"smashed {state[ROUND]} {batch}", content)}

    @step
    def learn_tail(self, party: Party, message: Message, shared: Shared) -> Message:
        """Train the tail on what the main server made of a batch, and send the gradient by its inputs."""
        _, targets, row_weights, batches = self._begin(party, message, shared)
        tail, peer = self.parts(shared.schema)[TAIL], (party, MAIN_SERVER, message["key"].data)
        batch = training.claim(party, "tail", read_integer(message, "batch", most=len(batches) - 1))
        rows, about = batches[batch], f"{party.state[ROUND]} {batch}"
        values = read_letter(*peer, f"outputs {about}", message["letter"])["values"]
        tail.reseed(party.rng("layers", party.state[ROUND], batch, TAIL))
        counted = None if row_weights is None else row_weights[rows]
        slope = slope_of_loss(tail.run(party.state[TAIL], values), targets[rows], counted) / len(rows)
        inputs = training.learn_part(self.local, party, TAIL, tail, values, slope, batch, targets.ndim == 2)
        sent = training.cover(inputs * len(rows), self.smashed_clip, self.smashed_noise) / len(rows)
        letter = write_letter(*peer, f"slope {about}", {"values": sent.astype(inputs.dtype)})
        return Message(batches=len(batches), key=show_letter_key(party), letter=letter)

    @contribution(FedAvg.update_layout, family=None)
    def update(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return u_k Δ_k and u_k, where Δ_k has the main server's part as it is for this client."""
        state, parts = party.state, self.parts(shared.schema)
        if state.get(ROUND) != shared["round"] or (MIDDLE in parts and DONE + "close" not in state):
            raise StepError(f"{party.id} was not there at the end of this round's batches")
        network = self.architecture.build(shared.schema)
        named = [part.named(state[name]) for name, part in parts.items()]
        delta = network.flat(ChainMap(*named)) - self.architecture.flatten_weights(party, shared)
        share, weight = self.weighting.contribute(read_targets(party.data, shared), shared)
        return {**self.change.pack(delta, share, network, party), **weight}

    @step
    def show_key(self, party: Party, message: Message, shared: Shared | None) -> Message:
        """Show the key for letters to the main server."""
        return Message(key=show_letter_key(party))

    @step
    def serve(self, party: Party, message: Message, shared: Shared | None) -> Message:
        """Answer letters, in an order that is drawn for each batch; who sends nonsense gets no answer."""
        number, batch, kind = read_integer(message, "round"), read_integer(message, "batch"), message["kind"]
        training.begins(party, number)
        keys, letters = Message.decode(message["keys"]), Message.decode(message["letters"].data)
        middle = self.parts(SimpleNamespace(**message)).get(MIDDLE)  # by features and outputs
        contents = training.read_letters(party, batch, keys, letters, kind)
        if self.variant == "v2" and COPY not in party.state:
            party.state.update(training.most_sent(COPY, contents.values()))

        def answer(name: str) -> Blob:
            what, found = self._answer(party, name, kind, contents[name], middle, batch)
            return write_letter(party, name, keys[name].data, f"{what} {number} {batch}", found)

        answers = training.answer_each(party, batch, contents, answer)
        return Message(letters=Blob("sealed", Message(answers).encode()))

    def _answer(
        self, party: Party, name: str, kind: str, content: Message, middle: Network | None, batch: int
    ) -> tuple[str, dict[str, NDArray[Any]]]:
        state, copy = party.state, COPY + (name if self.variant == "v1" else "")
        if kind == "close":
            return "close", {"weights": np.zeros(0) if middle is None else state[copy]}
        values: NDArray[Any] = content["values"]
        if not np.isfinite(values).all():
            raise DataError("values that are no numbers")
        if middle is not None and copy not in state:
            state[copy] = content["weights"]
        if kind == "slope":
            slope, values = values, state[HELD + name]
        else:
            outputs = values if middle is None else middle.run(state[copy], values)
            if self.tail:
                state[HELD + name] = values
                return "outputs", {"values": outputs}
            slope = slope_of_loss(outputs, content["targets"], content.get("row_weights")) / len(values)
        if middle is not None:
            bounded = self.variant == "v2" or np.ndim(content.get("targets")) == 2
            slope = training.learn_part(self.local, party, copy, middle, values, slope, batch, bounded)
        return "slope", {"values": slope.astype(values.dtype)}

    def check(self, schema: Any) -> None:
        super().check(schema)
        self.parts(schema)

    def incompatibility(self, protection: Protection) -> str | None:
        text = "in v2 a client moves what others contribute, which no clip bounds: use variant = 'v1'"
        return text if protection.adds_noise and self.variant == "v2" else super().incompatibility(protection)

    def warnings_for(self, scaled: bool) -> Sequence[str]:
        text = f"the main server sees every row's smashed data{'' if self.tail else ' and label'}: "
        return (*super().warnings_for(scaled), f"{text}rows can be rebuilt from them")
