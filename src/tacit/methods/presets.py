"""FedAvg under the protection of a paper: PFMLP, peer-to-peer MPC and Two-Phase MPC.

H. Fang, Q. Qian, "Privacy Preserving Machine Learning with Homomorphic Encryption and Federated Learning",
Future Internet 13, 2021: clients encrypt under the key of the client whose turn it is, the server adds, and
all decrypt the total. Published, a key server makes all key pairs and knows them; here each client makes its
own in its turn. Either way all clients hold the key of a round, or they could not decrypt it: the server
and any one of them open every contribution. Under ``holder = "key-server"`` no client has the key, and
under ``masked`` there is none.

R. Kanagavelu et al., "Two-Phase Multi-Party Computation Enabled Privacy-Preserving Federated Learning",
CCGRID 2020: clients form the sum themselves, from shares that every client holds, or only an elected few.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tacit.methods.fedavg import FedAvg


@dataclass(frozen=True)
class PFMLP(FedAvg):
    """FedAvg under Paillier, each round with another client's key (Fang and Qian, 2021)."""

    name = "pfmlp"
    default_protection: ClassVar[str] = "paillier"
    default_settings: ClassVar[Mapping[str, Any]] = {"holder": "in-turn"}


@dataclass(frozen=True)
class TwoPhaseMPC(FedAvg):
    """FedAvg whose changes are shared among an elected committee (Kanagavelu et al., 2020)."""

    name = "two-phase-mpc"
    paper = (
        "Kanagavelu and others, Two-Phase Multi-Party Computation Enabled Privacy-Preserving Federated "
        "Learning, 2020"
    )
    default_protection: ClassVar[str] = "committee"


@dataclass(frozen=True)
class PeerToPeerMPC(FedAvg):
    """FedAvg with changes shared among all clients (peer-to-peer MPC)."""

    name = "p2p-mpc"
    paper = TwoPhaseMPC.paper
    default_protection: ClassVar[str] = "shares"
