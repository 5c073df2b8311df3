"""PFMLP: averaging under Paillier encryption, with the key of client i in round i.

H. Fang, Q. Qian, "Privacy Preserving Machine Learning with Homomorphic Encryption and Federated Learning",
Future Internet 13, 2021. Clients train and encrypt what they learnt under the key of the client whose turn it
is, the server adds, and all decrypt the total. It trains as FedAvg does; the rest is the protection
``paillier`` with ``holder = "in-turn"``.

Published, a key server makes all key pairs and knows them; here each client makes its own in its turn. Either
way all clients hold the key of a round, or they could not decrypt it: the server and any one of them open
every contribution. Under ``holder = "key-server"`` no client has the key, and under ``masked`` there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tacit.methods.fedavg import FedAvg


@dataclass(frozen=True)
class PFMLP(FedAvg):
    """FedAvg under Paillier encryption, each round with another client's key (Fang and Qian, 2021)."""

    name = "pfmlp"
    paper = (
        "Fang and Qian, Privacy Preserving Machine Learning with Homomorphic Encryption and Federated "
        "Learning, 2021"
    )
    default_protection: ClassVar[str] = "paillier"
    default_settings: ClassVar[Mapping[str, Any]] = {"holder": "in-turn"}
