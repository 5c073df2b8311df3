"""Protected sums: how a total is formed without showing its parts. One file each."""

from tacit.core.parts import Registry
from tacit.core.protection import Protection

PROTECTIONS: Registry[Protection] = Registry(
    "protection",
    {
        "plain": "tacit.sums.plain:Plain",
        "ckks": "tacit.sums.ckks:CKKS",
        "paillier": "tacit.sums.paillier:Paillier",
        "ring": "tacit.sums.ring:Ring",
        "masked": "tacit.sums.masked:Masked",
        "shares": "tacit.sums.shares:Shares",
        "committee": "tacit.sums.committee:Committee",
        "noised": "tacit.sums.noised:Noised",
    },
    "tacit.protections",
)
