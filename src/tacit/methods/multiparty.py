"""Peer-to-peer and Two-Phase MPC: averaging whose sums are formed by the clients themselves, from shares.

R. Kanagavelu et al., "Two-Phase Multi-Party Computation Enabled Privacy-Preserving Federated Learning",
CCGRID 2020. Both train as FedAvg does; what they add is how the sum is formed, which are two protections:
``shares`` (every client holds a share of every change) and ``committee`` (only an elected few do).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tacit.methods.fedavg import FedAvg

PAPER = (
    "Kanagavelu and others, Two-Phase Multi-Party Computation Enabled Privacy-Preserving Federated Learning, "
    "2020"
)


@dataclass(frozen=True)
class PeerToPeerMPC(FedAvg):
    """FedAvg whose changes are shared among all clients, as peer-to-peer MPC does."""

    name = "p2p-mpc"
    paper = PAPER
    default_protection: ClassVar[str] = "shares"


@dataclass(frozen=True)
class TwoPhaseMPC(FedAvg):
    """FedAvg whose changes are shared among an elected committee (Kanagavelu et al., 2020)."""

    name = "two-phase-mpc"
    paper = PAPER
    default_protection: ClassVar[str] = "committee"
