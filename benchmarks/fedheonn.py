"""FedHEONN beside the way its authors published it, and at the sizes of its paper.

The published way, written anew here: keys at N = 32768 with primes [60, 40, 40, 60]; a client decomposes its
weighted rows once per class and encrypts one right-hand side per class; the coordinator adds these, merges
the factors, and multiplies each encrypted sum by two matrices; clients decrypt one vector per class. It has
no enrolment, no authentic channels and no federated scaling. Ours has, and pays for it in client rows, which
count the whole run; coordinator rows count the method's own waves, and the note says what the others take.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
import tenseal

from benchmarks._harness import Row, alone, cpu
from tacit.core.parallel import one_thread
from tacit.federation import Federation
from tacit.ledger.cost import peak_megabytes
from tacit.methods.fedheonn import FedHEONN
from tacit.methods.heonn.exchange import invert_targets, with_bias
from tacit.training import Training

LAM = 1e-3
CLIENTS = 100
SAMPLED = 3  # clients and ciphertexts of the published way that are really made; the rest is linear
PROTECT = {"paper": "ckks", "sealed": "bfv"}
RATIOS = {  # target of client CPU, coordinator CPU and upload
    "paper": (20.0, 250.0, 50.0),
    "sealed": (40.0, 1_000.0, 80.0),
}


def prepared(federation: Federation, schema: Any) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Every client's standardised rows with a bias, d̄ and f', as the published way finds them on disk."""
    table = federation.holdings.pooled()
    mean, spread = table.values.mean(axis=0), table.values.std(axis=0)
    spread[spread == 0] = 1.0
    parts = (federation.holdings.rows(index) for index in range(federation.clients))
    return [
        (with_bias((part.values - mean) / spread), *invert_targets("logistic", part, schema))
        for part in parts
    ]


class Published:
    """CPU seconds and bytes of the published way; what is linear is measured on a few and scaled up."""

    def __init__(self, federation: Federation, schema: Any) -> None:
        self.rows = prepared(federation, schema)
        self.classes = self.rows[0][1].shape[1]
        self.context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, 32768, coeff_mod_bit_sizes=[60, 40, 40, 60])
        self.context.global_scale = 2**40
        self.context.generate_galois_keys()
        sent = [self._timed(lambda index=index: self.client(index)) for index in range(SAMPLED)]
        self.upload = len(self.rows) * float(np.mean([size for _, (size, _) in sent]))
        blobs = [blob for _, (_, blob) in sent]
        adding, total = self._timed(lambda: self.added(blobs))
        merging, (left, values) = self._timed(self.merged)
        products, product = self._timed(lambda: self.multiplied(total, left, values))
        opening, found = self._timed(
            lambda: tenseal.ckks_vector_from(self.context, product.serialize()).decrypt()
        )
        m = sum(self.side(index) for index in range(SAMPLED))
        exact = (left / values) @ (left.T @ m)
        assert np.allclose(found, exact, rtol=1e-3, atol=1e-3 * np.abs(exact).max()), "a wrong baseline"
        clients, classes = len(self.rows), self.classes
        self.client_s = clients * (float(np.mean([seconds for seconds, _ in sent])) + classes * opening)
        self.coordinator_s = classes * (adding / SAMPLED * clients + merging + products)

    @staticmethod
    def _timed(work: Any) -> tuple[float, Any]:
        started = time.process_time()
        result = work()
        return time.process_time() - started, result

    def side(self, index: int, output: int = 0) -> np.ndarray:
        X, d_bar, slope = self.rows[index]
        return np.asarray(X.T @ (slope[:, output] ** 2 * d_bar[:, output]))

    def client(self, index: int) -> tuple[int, bytes]:
        """One client's work: bytes sent, and the first class's ciphertext."""
        X, _, slope = self.rows[index]
        size, first = 0, b""
        for output in range(self.classes):
            U, S, _ = np.linalg.svd((X * slope[:, [output]]).T, full_matrices=False)
            blob = tenseal.ckks_vector(self.context, self.side(index, output).tolist()).serialize()
            size += len(blob) + (U * S).nbytes
            first = first or blob
        return size, first

    def added(self, blobs: list[bytes]) -> Any:
        """Encrypted sum of one class over a few clients."""
        total = tenseal.ckks_vector_from(self.context, blobs[0])
        for blob in blobs[1:]:
            total += tenseal.ckks_vector_from(self.context, blob)
        return total

    def merged(self) -> tuple[np.ndarray, np.ndarray]:
        """Factors of one class of all clients, merged one after the other (eq. 5)."""
        factors = None
        for X, _, slope in self.rows:
            piece = (X * slope[:, [0]]).T
            U, S, _ = np.linalg.svd(
                piece if factors is None else np.concatenate([factors, piece], axis=1), full_matrices=False
            )
            factors = U * S
        return U, S**2 + LAM

    def multiplied(self, total: Any, left: np.ndarray, values: np.ndarray) -> Any:
        """Two products with plain matrices for one class."""
        return total.matmul(left.tolist()).matmul((np.diag(1 / values) @ left.T).tolist())


def method_seconds(summary: dict[str, Any]) -> tuple[float, float]:
    """Coordinator CPU of the method's own waves (its sum and what follows), and of those before."""
    waves = [wave for wave in summary["waves"] if wave["step"] != "client.show_model"]
    sums = [index for index, wave in enumerate(waves) if wave["step"] == "client.contribute"]
    spent = [wave["cpu_coordinator_s"] for wave in waves]
    return sum(spent[sums[-1] :]), sum(spent[: sums[-1]])


def beside_published() -> list[Row]:
    federation = Federation.embedded("digits", clients=CLIENTS, partition="iid", test=0.3)
    trained: dict[str, list[Training]] = {
        mode: [federation.train(FedHEONN(mode=mode), protect=PROTECT[mode]) for _ in range(5)]  # type: ignore[arg-type]
        for mode in RATIOS
    }
    schema = trained["sealed"][0].schema
    with one_thread():
        published = Published(federation, schema)
    plain = federation.train(FedHEONN(), protect="plain").model.scores(federation.test)["accuracy"]
    scaled = (
        f"published: {SAMPLED} clients and one class really encrypted, times {CLIENTS} clients, 10 classes"
    )
    made = []
    for mode, (client, coordinator, upload) in RATIOS.items():
        summaries = [training.ledger.summary() for training in trained[mode]]
        clients = min(summary["cpu_s"]["clients"] for summary in summaries)
        own, before = min(method_seconds(summary) for summary in summaries)
        accuracy = trained[mode][0].model.scores(federation.test)["accuracy"]
        same = f"accuracy {accuracy:.4f}, without encryption {plain:.4f}"
        made += [
            Row(
                f"{mode}-client",
                clients / CLIENTS * 1e3,
                "ms",
                published.client_s / CLIENTS * 1e3,
                client,
                note=f"per client: enrolment, keys, scaling, training, opening; {same}; {scaled}",
            ),
            Row(
                f"{mode}-coordinator",
                own * 1e3,
                "ms",
                published.coordinator_s * 1e3,
                coordinator,
                note=f"the method's sum to the end; enrolment and scaling, which the published way has not, "
                f"{before * 1e3:.0f} ms more; {scaled}",
            ),
            Row(
                f"{mode}-upload",
                summaries[0]["bytes_up"] / CLIENTS / 1e3,
                "kB",
                published.upload / CLIENTS / 1e3,
                upload,
                note="per client, everything it sent in the whole run",
            ),
        ]
    return made


def twenty_thousand(partition: str, clients: int = 20_000) -> dict[str, Any]:
    """The whole run at MiniBooNE's shape, in this process."""
    federation = Federation.embedded(
        "synthetic-miniboone", clients=clients, partition=partition, test=0.3, rows=130_064
    )
    started = _all_seconds()
    training = federation.train(FedHEONN(), protect=PROTECT["sealed"])
    seconds = _all_seconds() - started
    return {
        "cpu": seconds,
        "mb": peak_megabytes(),
        "rows": federation.holdings.table.rows,
        "weights": training.model.weights.tolist(),
        "accuracy": training.model.scores(federation.test)["accuracy"],
        "ledger": training.ledger.summary()["cpu_s"],
    }


def _all_seconds() -> float:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def many_clients() -> list[Row]:
    runs = {
        partition: json.loads(
            subprocess.run(alone(__file__, partition), stdout=subprocess.PIPE, check=True, text=True).stdout
        )
        for partition in ("iid", "label-sorted")
    }
    one, other = (np.array(run["weights"]) for run in runs.values())
    differ = float(np.abs(one - other).max() / np.abs(one).max())
    iid = runs["iid"]
    note = (
        f"at most; {iid['rows']:,} × 50, sealed under bfv, whole run; label-sorted "
        f"{runs['label-sorted']['cpu']:.0f} s, its weights differ by {differ:.0e} of the largest"
    )
    peak = max(run["mb"] for run in runs.values())
    return [
        Row("clients-20000-cpu-s", iid["cpu"], "s", target=120.0, note=note),
        Row("clients-20000-mb", peak, "MB", target=2000.0, note="at most; peak of that process, all in it"),
    ]


def coordinator_ten_thousand() -> Row:
    federation = Federation.embedded("synthetic-higgs", clients=10_000, test=None, rows=50_000)
    own, before = method_seconds(federation.train(FedHEONN(), protect=PROTECT["sealed"]).ledger.summary())
    note = (
        f"at most; the method's sum to the end, sealed under bfv; enrolment and scaling {before:.1f} s more"
    )
    return Row("coordinator-10000-cpu-s", own, "s", target=3.0, note=note)


def pooled() -> Row:
    """Total CPU of a thousand clients under ``plain`` beside numpy on all rows at once."""
    federation = Federation.embedded("synthetic-higgs", clients=1_000, test=None, rows=1_000_000)
    table = federation.holdings.table
    found: list[Any] = []

    def numpy_pipeline() -> None:
        X = table.values.astype(np.float64)
        X -= X.mean(axis=0)
        X /= X.std(axis=0)
        X = with_bias(X)
        d_bar = np.log(19.0) * (2.0 * (table.target[:, None] == np.arange(2)) - 1.0)
        gram, m = 0.0475**2 * (X.T @ X), 0.0475**2 * (X.T @ d_bar)
        found.append(np.linalg.solve(gram + LAM * np.eye(len(gram)), m))

    def ours() -> None:
        found.append(federation.train(FedHEONN(), protect="plain").model.weights)

    with one_thread():
        mine, baseline = cpu(ours, numpy_pipeline, repeats=7)
    error = float(np.abs(np.array(found[0]) - found[1]).max() / np.abs(found[1]).max())
    note = f"1,000,000 × 28, 1,000 clients, engine and codec included; weights differ by {error:.0e}"
    return Row("pooled", mine, "s", baseline, 0.67, note=note)


def rows() -> list[Row]:
    return [*beside_published(), *many_clients(), coordinator_ten_thousand(), pooled()]


if __name__ == "__main__":
    print(json.dumps(twenty_thousand(sys.argv[1], *map(int, sys.argv[2:]))))
