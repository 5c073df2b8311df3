"""Tags: how coordinator and party know that a message came from the other, for this ask, unchanged.

Every ask and reply carries one over its canonical bytes where a protection gave both ends a channel key.
"""

import hmac

from tacit.core.errors import ProtectionError
from tacit.core.message import Message
from tacit.core.secret import Secret

FIELD = "$tag"


def tag(key: Secret, *pieces: bytes) -> bytes:
    """Compute the tag that authenticates byte strings, each with its length, so that none run together."""
    framed = b"".join(part for piece in pieces for part in (len(piece).to_bytes(8, "little"), piece))
    return hmac.digest(key.reveal(), framed, "sha256")[:16]


def tagged(message: Message, key: Secret, *context: bytes) -> Message:
    """Return a message with its tag."""
    return message | {FIELD: tag(key, *context, message.encode())}


def untagged(message: Message, key: Secret, *context: bytes) -> Message:
    """Take the tag off a message; refuse one that has none, or not the right one."""
    body = message.without(FIELD)
    found = message.get(FIELD)
    if not isinstance(found, bytes) or not hmac.compare_digest(found, tag(key, *context, body.encode())):
        raise ProtectionError(
            "a message is not authentic: it was changed on its way, repeated from another ask, or is "
            "somebody else's"
        )
    return body


def ask_context(serial: int, party: str, call: bytes) -> tuple[bytes, ...]:
    """Return what a job's tag is bound to: ask, party, and the digest of what all were asked."""
    return b"ask", serial.to_bytes(8, "little"), party.encode(), call


def reply_context(serial: int, party: str) -> tuple[bytes, ...]:
    """Return what a reply's tag is bound to: ask and party."""
    return b"reply", serial.to_bytes(8, "little"), party.encode()
