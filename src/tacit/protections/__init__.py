"""Protected sums: how a total is formed without showing its parts. One file each."""

from tacit.core.component import Registry
from tacit.core.protection import Protection

PROTECTIONS: Registry[Protection] = Registry(
    "protection",
    {
        "plain": "tacit.protections.plain:Plain",
        "bfv": "tacit.protections.bfv:BFV",
        "ckks": "tacit.protections.ckks:CKKS",
        "paillier": "tacit.protections.paillier:Paillier",
        "ring": "tacit.protections.ring:Ring",
        "masked": "tacit.protections.masked:Masked",
        "shares": "tacit.protections.secret_sharing.shares:Shares",
        "committee": "tacit.protections.secret_sharing.committee:Committee",
        "noised": "tacit.protections.noised:Noised",
    },
    "tacit.protections",
)
