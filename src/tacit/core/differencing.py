"""No differencing: two totals of the same thing must not differ by too few contributions.

A total over five clients hides each of them, and so does one over four; but whoever sees both and subtracts
has the fifth client's contribution. So a contribution that is summed again from the same shared values, over
other clients than before, opens only if at least as many of them changed as a total must have.
"""

from __future__ import annotations

from collections.abc import Sequence

from tacit.core.errors import OpeningError


class OpenedTotals:
    """Who was in the totals that have been opened since the shared values last changed.

    Examples
    --------
    >>> opened = OpenedTotals()
    >>> opened.check("scores", "round 1", ["a", "b", "c", "d"], least=3)
    >>> opened.add("scores", "round 1", ["a", "b", "c", "d"])
    >>> opened.check("scores", "round 1", ["a", "b", "c"], least=3)
    Traceback (most recent call last):
    ...
    tacit.core.errors.OpeningError: scores: this total would differ from an earlier one by 1 contribution, ...
    >>> opened.check("scores", "round 2", ["a", "b", "c"], least=3)
    """

    def __init__(self) -> None:
        self._state: object = None
        self._seen: dict[str, list[frozenset[str]]] = {}

    def check(self, what: str, state: object, parties: Sequence[str], least: int) -> None:
        """Refuse a total whose difference from an earlier one would show fewer than ``least`` clients."""
        if state != self._state:
            return
        for earlier in self._seen.get(what, ()):
            changed = len(earlier.symmetric_difference(parties))
            if 0 < changed < least:
                raise OpeningError(
                    f"{what}: this total would differ from an earlier one by {changed} "
                    f"contribution{'s' * (changed > 1)}, and the difference would show "
                    f"{'them' if changed > 1 else 'it'}: at least {least} must change. Wait for more clients"
                )

    def add(self, what: str, state: object, parties: Sequence[str]) -> None:
        """Remember a total that was opened."""
        if state != self._state:
            self._state, self._seen = state, {}
        self._seen.setdefault(what, []).append(frozenset(parties))
