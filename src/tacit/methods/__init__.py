"""One paper, one file."""

from tacit.core.component import Registry
from tacit.methods.base import Method

METHODS: Registry[Method] = Registry(
    "method",
    {
        "fedheonn": "tacit.methods.fedheonn:FedHEONN",
        "fedavg": "tacit.methods.fedavg:FedAvg",
        "fedprox": "tacit.methods.fedprox:FedProx",
        "hwfedavg": "tacit.methods.homogeneity:HWFedAvg",
        "nwfedavg": "tacit.methods.homogeneity:NWFedAvg",
        "fedadagrad": "tacit.methods.fedopt:FedAdagrad",
        "fedadam": "tacit.methods.fedopt:FedAdam",
        "fedyogi": "tacit.methods.fedopt:FedYogi",
        "scaffold": "tacit.methods.scaffold:Scaffold",
        "mime": "tacit.methods.mime:Mime",
        "flop": "tacit.methods.flop:Flop",
        "splitfed": "tacit.methods.splitfed:SplitFed",
        "ring-mlp": "tacit.methods.ring_mlp:RingMLP",
        "pfmlp": "tacit.methods.presets:PFMLP",
        "p2p-mpc": "tacit.methods.presets:PeerToPeerMPC",
        "two-phase-mpc": "tacit.methods.presets:TwoPhaseMPC",
        "federboost": "tacit.methods.federboost:FederBoost",
        "fusion": "tacit.methods.fusion:Fusion",
        "graffl": "tacit.methods.graffl:Graffl",
        "fedheonn-ensemble": "tacit.methods.ensemble:FedHEONNEnsemble",
    },
    "tacit.methods",
)
