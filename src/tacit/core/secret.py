"""Secrets: values that may be used by the code that holds them, and may go nowhere else."""

import hmac
from typing import Any, NoReturn

from tacit.core.errors import SecretError


class Secret:
    """A key or seed that refuses to be encoded, printed, copied or iterated.

    Only :meth:`reveal` gives the value, so every use of a secret can be found by that word.
    """

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        if not isinstance(value, bytes):
            raise TypeError(f"a Secret holds bytes, not {type(value).__name__}: encode it first")
        self._value = value

    def reveal(self) -> bytes:
        """Return the value, for the code that works with it."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(hidden)"

    def __eq__(self, other: object) -> bool:
        # Constant time: a comparison must not tell how many leading bytes agree.
        return isinstance(other, Secret) and hmac.compare_digest(self._value, other._value)

    __hash__ = None  # type: ignore[assignment]  # a hash would be a fingerprint of the secret

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise SecretError(
            "a Secret was about to be copied, iterated or serialised: keep it in the party's vault, "
            "and call reveal() only where it is used"
        )

    __copy__ = __deepcopy__ = __reduce_ex__ = __reduce__ = __getstate__ = _refuse
    __bytes__ = __iter__ = __len__ = __array__ = __buffer__ = _refuse
