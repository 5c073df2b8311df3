"""What a survey of frameworks says of each: orders of time and bytes, messages, privacy and models.

"Horizontal Federated Learning Frameworks: A Literature Study", tables 2 to 5 and sections 4.1 to 4.7. Its
symbols are fields of :class:`Sizes`. Where its text and its tables differ, both are here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log2


@dataclass(frozen=True)
class Sizes:
    """The survey's variables for one run; its own sizes of messages and of time count values and steps."""

    C: int  # clients
    n: int  # rows of a client
    M: int  # features
    S: int  # parameters of the model
    R: int  # rounds; of FederBoost Z trees, of GRAFFL trials
    t: int = 0  # inner nodes of a tree
    q: int = 0  # buckets
    d: int = 0  # dimensions of a summary
    K: int = 3  # members of a committee
    L_C: int = 1  # layers of the client's part
    L_S: int = 1  # layers of the main server's part
    S_C: int = 0  # values of the cut layer, for all rows of a client: they are one batch
    S_S: int = 0  # parameters of the shared part
    ng: int = 0  # rows drawn for each client
    k: int = 0  # bits of a key
    alpha: int = 0  # short exponent of the improved Paillier scheme

    @property
    def all_rows(self) -> int:
        """Rows of all clients, N."""
        return self.n * self.C

    @property
    def training(self) -> int:
        """Local training T of a round, which the survey leaves open: a step for each row and parameter."""
        return self.n * self.S


Formula = Callable[[Sizes], float]


@dataclass(frozen=True)
class Framework:
    """What the survey says of one framework; formulas by where they stand, with their words."""

    title: str
    time: Mapping[str, tuple[str, Formula]]
    size: Mapping[str, tuple[str, Formula]]
    messages: Mapping[str, tuple[str, Formula]]
    measure: str
    against: Mapping[str, str]
    models: str


def _large(s: Sizes) -> float:
    return s.R * s.C * s.S


FRAMEWORKS: Mapping[str, Framework] = {
    "fedavg": Framework(
        "Classic HFL",
        {"table 2": ("R (T + C S)", lambda s: s.R * (s.training + s.C * s.S))},
        {"table 3": ("R C S", _large)},
        {"table 3": ("2 R C", lambda s: 2 * s.R * s.C)},
        "none",
        {"table 4": "none"},
        "neural networks",
    ),
    "federboost": Framework(
        "FederBoost",
        {
            "table 2": (
                "M log N (log n + C) + M n + M C",
                lambda s: s.M * log2(s.all_rows) * (log2(s.n) + s.C) + s.M * s.n + s.M * s.C,
            ),
            "section 4.1, server": (
                "C + M q log N (log n + C) + Z (M n + t (M q C + C) + n)",
                lambda s: (
                    s.C
                    + s.M * s.q * log2(s.all_rows) * (log2(s.n) + s.C)
                    + s.R * (s.M * s.n + s.t * (s.M * s.q * s.C + s.C) + s.n)
                ),
            ),
        },
        {"table 3": ("C² + 2 M log N C", lambda s: s.C**2 + 2 * s.M * log2(s.all_rows) * s.C)},
        {
            "table 3": (
                "(C-1)² + Z t (C-1) + 2 M q log N C + Z t q C",
                lambda s: (
                    (s.C - 1) ** 2
                    + s.R * s.t * (s.C - 1)
                    + 2 * s.M * s.q * log2(s.all_rows) * s.C
                    + s.R * s.t * s.q * s.C
                ),
            )
        },
        "simplified masking protocol",
        {"table 4": "honest-but-curious clients", "section 4.1": "undone by a malicious server"},
        "gradient-boosted trees",
    ),
    "graffl": Framework(
        "GRAFFL",
        {
            "table 2": (
                "C + T_SuffiAE + R n d + R N log(R N)",
                lambda s: s.C + s.training + s.R * s.n * s.d + s.R * s.all_rows * log2(s.R * s.all_rows),
            )
        },
        {"table 3": ("C² + R C d", lambda s: s.C**2 + s.R * s.C * s.d)},
        {"table 3": ("C (C-1) + 2 R C", lambda s: s.C * (s.C - 1) + 2 * s.R * s.C)},
        "summaries of private data; no gradients or weights are shared",
        {"table 4": "fully dishonest, colluding server and clients"},
        "parametric generative models",
    ),
    "splitfed": Framework(
        "SplitFed",
        {"table 2": ("R (S_C + L_S + C L_C)", lambda s: s.R * (s.S_C + s.L_S + s.C * s.L_C))},
        {"table 3": ("R C (S_C + L_C)", lambda s: s.R * s.C * (s.S_C + s.L_C))},
        {"table 3": ("4 R C", lambda s: 4 * s.R * s.C)},
        "differential privacy",
        {
            "table 4": "fully dishonest, colluding server and clients",
            "section 4.3": "honest-but-curious participants and servers",
            "section 5": "no protection against inference",
        },
        "neural networks",
    ),
    "fusion": Framework(
        "Fusion Learning",
        {
            "table 2": (
                "M + T_L + C (S_L + ng) + T_G",
                lambda s: s.M + s.training + s.C * (s.S + s.ng) + s.C * s.ng * s.S,
            )
        },
        {"table 3": ("C (S_L + M) + C S_G", lambda s: s.C * (s.S + s.M) + s.C * s.S)},
        {"table 3": ("2 C", lambda s: 2 * s.C)},
        "no gradients or weights are shared",
        {"table 4": "none"},
        "any model",
    ),
    "p2p-mpc": Framework(
        "Peer-to-peer MPC",
        {"table 2": ("R (T + C S)", lambda s: s.R * (s.training + s.C * s.S))},
        {
            "table 3": ("C² S", lambda s: s.C**2 * s.S),
            "with the rounds it leaves out": ("R C² S", lambda s: s.R * s.C**2 * s.S),
        },
        {"table 3": ("2 R C (C-1)", lambda s: 2 * s.R * s.C * (s.C - 1))},
        "secure multi-party computation",
        {"table 4": "honest-but-curious participants that do not collude"},
        "neural networks",
    ),
    "two-phase-mpc": Framework(
        "Two-Phase MPC",
        {
            "table 2": (
                "C + R (T + K S + C S + C/K S)",
                lambda s: s.C + s.R * (s.training + s.K * s.S + s.C * s.S + s.C / s.K * s.S),
            )
        },
        {"table 3": ("C² + (R C K + R K²) S", lambda s: s.C**2 + (s.R * s.C * s.K + s.R * s.K**2) * s.S)},
        {
            "table 3": (
                "2 C (C-1) + R (C K + K (K - 1 + C/K))",
                lambda s: 2 * s.C * (s.C - 1) + s.R * (s.C * s.K + s.K * (s.K - 1 + s.C / s.K)),
            ),
            "without (K-1)² a round too many": (
                "2 C (C-1) + R (C K + K - 1 + C)",
                lambda s: 2 * s.C * (s.C - 1) + s.R * (s.C * s.K + s.K - 1 + s.C),
            ),
        },
        "secure multi-party computation",
        {"table 4": "honest-but-curious participants that do not collude"},
        "neural networks",
    ),
    "flop": Framework(
        "FLOP",
        {
            "table 2": ("R (T + C + S_S)", lambda s: s.R * (s.training + s.C + s.S_S)),
            "section 4.6, client and server": (
                "R (T + S_S + C S_S)",
                lambda s: s.R * (s.training + (1 + s.C) * s.S_S),
            ),
        },
        {"table 3": ("R C S_S", lambda s: s.R * s.C * s.S_S)},
        {"table 3": ("2 R C", lambda s: 2 * s.R * s.C)},
        "only part of the model is shared",
        {"table 4": "unknown"},
        "neural networks",
    ),
    "pfmlp": Framework(
        "PFMLP",
        {
            "table 2": (
                "R (T + k² α S + C S)",
                lambda s: s.R * (s.training + s.k**2 * s.alpha * s.S + s.C * s.S),
            )
        },
        {"table 3": ("R C S", _large)},
        {
            "table 3": ("4 R C + C", lambda s: 4 * s.R * s.C + s.C),
            "section 4.7": ("3 R C + C", lambda s: 3 * s.R * s.C + s.C),
        },
        "homomorphic encryption",
        {"table 4": "honest-but-curious server, key server and clients that do not collude"},
        "neural networks",
    ),
}
