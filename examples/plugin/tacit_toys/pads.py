"""One-time pads that the clients can compute and the coordinator cannot.

C. Castelluccia, E. Mykletun, G. Tsudik, "Efficient Aggregation of Encrypted Data in Wireless Sensor
Networks", 2005: client i sends x_i + k_i mod 2^64 with a fresh pad k_i; the coordinator adds, and whoever
knows the key takes Σ k_i from the total. Here all clients know one key, from the environment of their site,
and a pad follows from it and from run, sum and client. A toy: keys of real sites are agreed, signed and
sealed (tacit.protections.keys).
"""

import os
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from tacit.core.client import check_opening, manifest_of
from tacit.core.errors import ConfigError, OpeningError
from tacit.core.message import Message
from tacit.core.promises import Promises
from tacit.core.protection import ClientHalf, CoordinatorHalf, Protection
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.channel import bound
from tacit.crypto.fixedpoint import FixedPoint
from tacit.crypto.masking import add_masks

BITS, MOST = 32, 1 << 20  # bits of a value in fixed point, and clients in a sum
KEY = "TACIT_PADS_KEY"


def encoding(layout):
    """Return how vectors of a layout become words."""
    return FixedPoint.of(layout, BITS, MOST)


@dataclass(frozen=True)
class Pads(Protection):
    """One-time pads under a key that all clients know beforehand (Castelluccia et al., 2005)."""

    name = "pads"
    opens = "clients"

    @property
    def promises(self):
        """What the pads promise."""
        return Promises(
            opens="clients",
            keys={"client": f"the key in the variable {KEY} of its site", "coordinator": "none"},
            sees={"coordinator": "uniform noise", "client": "the total", "outsider": "uniform noise"},
            collusion="the coordinator with any one client opens every contribution",
            dropout="the sum goes on without the client, down to the quorum",
            precision=2.0 ** (1 - BITS),
            bytes_per_value=8.0,
            warnings=("pads: a toy, whose messages are not authenticated",),
        )

    def at_coordinator(self, link):
        """Add what cannot be read."""
        return PadsCoordinator(link)

    def at_client(self, party):
        """Add a pad; take all pads from a total."""
        return PadsClient(party)


class PadsCoordinator(CoordinatorHalf):
    """Adds words modulo 2^64, and notes whose they are."""

    def gather(self, pending):
        """Return the total and the names of those whose pads are in it."""
        total, names = np.zeros(encoding(pending.layout).slots, "<u8"), []
        for party, message in pending.contributions():
            blob = message.get("words")
            if not isinstance(blob, Blob) or len(blob.data) != total.nbytes:
                pending.refuse(party, f"no {total.nbytes} bytes of words")
                continue
            total += np.frombuffer(blob.data, "<u8")
            names.append(party)
        return {"words": Blob("cipher", total.tobytes()), "names": names, "sum": pending.number}


class PadsClient(ClientHalf):
    """Knows the key."""

    def protect(self, ticket, vector, layout):
        """Return the vector as words with a pad, which serves once."""
        if ticket["sum"] <= self.party.state.get("pads/last", 0):
            raise OpeningError(f"the pad of sum {ticket['sum']} was used already: another sum, another pad")
        self.party.state["pads/last"] = ticket["sum"]
        words = encoding(layout).encode(vector).astype("<u8")
        add_masks(words, [(self._pad(ticket["sum"], self.party.id), 1)])
        return Message(words=Blob("cipher", words.tobytes()))

    def open(self, total, layout):
        """Take the pads of all contributors from a total."""
        check_opening(self.party, Pads(), len(set(total["names"])))
        words = np.frombuffer(total["words"].data, "<u8").copy()
        add_masks(words, [(self._pad(total["sum"], name), -1) for name in total["names"]])
        return encoding(layout).decode(words.view(np.int64))

    def _pad(self, number, name):
        """Return the seed of a client's pad in a sum of this run."""
        if KEY not in os.environ:
            raise ConfigError(f"pads need a key that all clients know: set {KEY} at each site")
        run = manifest_of(self.party).digest
        return Secret(sha256(bound(os.environ[KEY], run, str(number), name)).digest())
