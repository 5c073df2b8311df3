"""One paper, one file."""

from tacit.core.parts import Registry
from tacit.methods.base import Method

METHODS: Registry[Method] = Registry(
    "method",
    {
        "fedheonn": "tacit.methods.fedheonn:FedHEONN",
        "fedheonn-ensemble": "tacit.methods.ensemble:FedHEONNEnsemble",
    },
    "tacit.methods",
)
