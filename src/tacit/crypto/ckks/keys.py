"""Keys of CKKS: a secret of 32 bytes, and rotation keys for whoever multiplies in slots."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tacit.core.errors import ConfigError, MessageError, ProtectionError
from tacit.core.secret import Secret
from tacit.crypto.ckks.parameters import CKKSRing, ParameterSet, ring_of
from tacit.crypto.seal import seal
from tacit.crypto.seal.blob import CHECKSUM_BYTES, checksum
from tacit.crypto.seal.residues import load, save
from tacit.crypto.seal.ring import expand, new_secret

_HEADER = struct.Struct("<4sI16s16s16sQ")  # magic, rotations, set, digest, key id, bytes of SEAL's stream
_MAGIC = b"TCE1"


@dataclass(frozen=True)
class Keys:
    """What the maker of the keys hands out.

    ``secret`` goes to the key holders and to nobody else; ``evaluation`` to whoever multiplies;
    ``key_id``, sixteen bytes that tell nothing of the secret, to everyone.
    """

    secret: Secret
    evaluation: bytes
    key_id: bytes

    def __repr__(self) -> str:
        return f"Keys({self.key_id.hex()}, evaluation of {len(self.evaluation):,} bytes)"


def make_keys(parameters: ParameterSet, rotations: Iterable[int] = (), secret: Secret | None = None) -> Keys:
    """Draw a new key, with rotation keys for just these steps (none are needed for sums).

    A secret that is given is expanded for these parameters: each set makes a key of its own from it.

    Examples
    --------
    >>> from tacit.crypto.ckks.parameters import parameter_set
    >>> keys = make_keys(parameter_set("sum-compact"))
    >>> keys.secret, len(keys.secret.reveal()), len(keys.key_id), len(keys.evaluation)
    (Secret(hidden), 32, 16, 80)
    """
    ring = ring_of(parameters)
    steps = sorted(set(rotations))
    if steps and not parameters.multiplies:
        raise ConfigError(f"set '{parameters.name}' is for sums and takes no rotations: use set 'product'")
    if steps and not (0 < steps[0] and steps[-1] < parameters.slots):
        raise ConfigError(
            f"rotations {steps[0]} to {steps[-1]}: steps are from 1 to {parameters.slots - 1:,}"
        )
    secret = new_secret() if secret is None else secret
    expanded = expand(ring, secret)
    stream = b""
    if steps:
        # From the plain context: the seeded one would draw these keys from the secret's own generator.
        generator = seal.KeyGenerator(ring.context, expanded.key)
        stream = save(generator.create_galois_keys([pow(3, step, 2 * parameters.degree) for step in steps]))
    start = _HEADER.pack(
        _MAGIC, len(steps), parameters.name.encode(), ring.digest, expanded.key_id, len(stream)
    )
    content = start + struct.pack(f"<{len(steps)}I", *steps) + stream
    return Keys(secret, content + checksum(content, _HEADER.size), expanded.key_id)


def load_rotations(ring: CKKSRing, evaluation: bytes, key_id: bytes) -> tuple[Any, frozenset[int]]:
    """Read rotation keys and the steps for which they are; every length is checked first.

    Raise MessageError if they are damaged, ProtectionError if they belong to other parameters or another key.
    """
    if len(evaluation) < _HEADER.size + CHECKSUM_BYTES:
        raise MessageError("not an evaluation key: shorter than its header")
    magic, count, name, digest, key, length = _HEADER.unpack_from(evaluation)
    if magic != _MAGIC or len(evaluation) != _HEADER.size + 4 * count + length + CHECKSUM_BYTES:
        raise MessageError("evaluation key is truncated, or not one: its length does not fit its header")
    if checksum(memoryview(evaluation)[:-CHECKSUM_BYTES], _HEADER.size) != evaluation[-CHECKSUM_BYTES:]:
        raise MessageError("evaluation key is damaged: its checksum does not match; send it again")
    if digest != ring.digest or name.rstrip(b"\0") != ring.parameters.name.encode():
        raise ProtectionError(f"evaluation key of other parameters than '{ring.parameters.name}'")
    if key != key_id:
        raise ProtectionError(f"evaluation key of key {key.hex()}, in use is {key_id.hex()}")
    steps = struct.unpack_from(f"<{count}I", evaluation, _HEADER.size)
    keys = seal.GaloisKeys()
    if steps:
        load(keys, ring, evaluation[_HEADER.size + 4 * count : -CHECKSUM_BYTES])
    return keys, frozenset(steps)
