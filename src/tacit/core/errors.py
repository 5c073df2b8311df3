"""The error tree: every refusal of Tacit says what, the value, the limit and the way out.

Each class carries the exit code with which the ``tacit`` command ends (docs/exit-codes.md).
"""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice

MOST_NAMES, LONGEST = 1000, 40  # that are compared with a mistyped name, and characters of each


class TacitError(Exception):
    """Base of all errors that Tacit raises on purpose.

    What is ``public`` may be said to everyone: a failed step sends just this to the coordinator. What is
    ``private`` is drawn from the data (a value, a row) and stays at the site that holds it.
    """

    exit_code = 1

    def __init__(self, public: str, *, private: str = "") -> None:
        super().__init__(f"{public} ({private})" if private else public)
        self.public = public


class ConfigError(TacitError):
    """A setting, option, name or combination that cannot work: refused before anything runs."""

    exit_code = 2


class OversizeError(ConfigError):
    """A contribution longer than a message may be: nobody is asked for it."""


class DataError(TacitError):
    """Data that cannot be learnt from as it is: NaN, wrong width, unknown label, no rows."""

    exit_code = 3


class TooLargeError(DataError):
    """A value that a sum cannot hold; whoever knows which column it is of says so."""


class SchemaError(DataError):
    """Clients that do not hold the same kind of data; names the client and the column."""


class FederationError(TacitError):
    """The federation could not finish: too few clients answered."""

    exit_code = 4


class QuorumError(FederationError):
    """Fewer clients contributed than the method's quorum asks for; names those that failed."""


class DataQuorumError(QuorumError):
    """The same, and all that failed did since their rows cannot be learnt from: that is bad data."""

    exit_code = DataError.exit_code


class StepError(FederationError):
    """A step raised at a party, or the party refused to take it."""


class StepTimeoutError(StepError):
    """A step took longer than its time."""


class ProtectionError(TacitError):
    """A promise of privacy or integrity that would be broken by going on."""

    exit_code = 5


class MessageError(ProtectionError):
    """Bytes that are not a well-formed message, or values that no message may carry."""


class MissingFieldError(MessageError, KeyError):
    """A message without a field that it must have."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a message without its field '{name}': this is no genuine message")

    def __str__(self) -> str:
        return self.public


class SecretError(ProtectionError):
    """A secret on its way into a message, a log, a copy or a file."""


class ReplayError(ProtectionError):
    """An ask that is older than one already answered, or a repeat that differs from the first."""


class OpeningError(ProtectionError):
    """A total that may not be opened: too few contributions, or not the place where it opens."""


class DifferencingError(OpeningError):
    """A total that, compared with those opened before, would show a few of its ``contributors``."""

    def __init__(self, public: str, contributors: frozenset[str] = frozenset()) -> None:
        super().__init__(public)
        self.contributors = contributors


class UnavailableError(TacitError):
    """Something outside is missing: a download without network, a full disk, an optional package."""

    exit_code = 6


@contextmanager
def extra(told: str) -> Iterator[None]:
    """Say of an import within the block how to get the package, if it is an extra that is not there."""
    try:
        yield
    except ImportError:
        raise UnavailableError(told) from None


def nearest(word: str, valid: Iterable[str]) -> str:
    """Suggest the valid name closest to a mistyped one, as the tail of an error message."""
    names = sorted(valid)
    shown = ", ".join(names[:40]) + (", …" if len(names) > 40 else "")
    found = closest(word, names)
    return f"valid: {shown}" if found is None else f"did you mean '{found}'? Valid: {shown}"


def closest(word: str, names: Iterable[str]) -> str | None:
    """Return the name that is most like a word, whatever their case; None if none is.

    Names may be another party's: only so many, and so much of each, are compared.
    """
    folded = {name[:LONGEST].lower(): name for name in islice(names, MOST_NAMES)}
    found = difflib.get_close_matches(word[:LONGEST].lower(), folded, n=1, cutoff=0.5)
    return folded[found[0]] if found else None
