"""Which method, protection and clients go together: one check for every way to start a training."""

from collections.abc import Sequence

import numpy as np

from tacit.core.errors import ConfigError
from tacit.core.manifest import MIN_COUNT
from tacit.core.method import Method
from tacit.core.protection import Protection
from tacit.crypto.fixedpoint import FixedPoint
from tacit.data.preparation import Preparation

MIN_CLIENTS = 3  # contributions in a total that hides them, unless agreed otherwise
MODEL_SENT = (
    "the coordinator sends the model: one that does not follow the protocol can craft weights by which one "
    "total shows rows of clients, whatever hides the contributions. Where clients open totals they compute "
    "the model themselves: protect with bfv, masked --opens clients, shares or committee"
)
PARTS_SUMMED = (
    "sums over folds, or over rows drawn for each network, open by themselves, and small cells are counted "
    "over all rows: a part may hold a single row of a class or category, and shows it to whoever opens "
    "totals. Set folds = 0, or samples = 1, unless all classes and categories are large"
)


def min_clients_of(protection: Protection, agreed: int | None = None) -> int:
    """Return the fewest contributions of a total: as agreed, else 3, or 1 where nothing is hidden."""
    return agreed if agreed is not None else 1 if protection.promises.single else MIN_CLIENTS


def min_count_of(protection: Protection, agreed: int | None = None) -> int:
    """Return the fewest rows of a class or category: as agreed, else 5, or 1 where nothing or noise hides."""
    if protection.adds_noise and agreed is not None and agreed > 1:
        raise ConfigError(
            f"min_count is {agreed}, but {protection.name} adds noise to every total, and counts with noise "
            f"cannot be compared with it: leave it out, the noise hides every single {protection.noise_unit}"
        )
    needless = protection.promises.single or protection.adds_noise
    least = agreed if agreed is not None else 1 if needless else MIN_COUNT
    # A client rounds each share of the least count, and so many clients may have one row each.
    if least > 1 and least**2 * protection.promises.precision > 0.5:
        raise ConfigError(
            f"min_count is {least}, but {protection.name} rounds to {protection.promises.precision:.2g} of a "
            "value, too coarse to count so far: give it more bits, or a smaller min_count"
        )
    return least


def check_compatibility(
    method: Method,
    protection: Protection,
    clients: int | None = None,
    *,
    min_clients: int | None = None,
    task: str | None = None,
    standing: bool = False,
) -> int:
    """Refuse what cannot work together; return the fewest contributions over which a total opens.

    What is not known yet is left out. In a standing federation ``clients`` are the founders.
    """
    if task is not None:
        method.check_task(task)
    if standing:
        _check_standing(method, protection)
    if reason := protection.incompatibility(method) or method.incompatibility(protection):
        raise ConfigError(f"{protection.name} cannot protect {method.name}: {reason}")
    least = min_clients_of(protection, min_clients)
    _check_clients(protection, clients, least, standing)
    return least


def warnings_before(
    method: Method, protection: Protection, preparation: Preparation, clients: int
) -> dict[str, Sequence[str]]:
    """Return what to know of a method and a protection before a run begins, by what it is about."""
    scaled = not preparation.is_needless_for(method)
    own = [*protection.warnings_for(clients, scaled), *warnings_for_pair(method, protection)]
    return {"privacy": method.warnings_for(scaled), "protection": own}


def warnings_for_pair(method: Method, protection: Protection) -> Sequence[str]:
    """Return what to know of a method and a protection together."""
    if protection.shows_contributions:
        return ()
    sends = protection.opens != "clients" and method.learns_from_models
    return ((MODEL_SENT,) if sends else ()) + ((PARTS_SUMMED,) if method.divides_rows else ())


def check_holdout(protection: Protection, holdout: bool) -> None:
    """Refuse scores of rows kept aside where noise is to hide single rows: nothing bounds what one adds."""
    if holdout and protection.noise_unit == "row":
        raise ConfigError(
            f"clients keep rows aside, and nothing bounds what one of them adds to their scores, so that "
            f"{protection.name} cannot hide it: set holdout = 0, and test on rows that need no noise"
        )


def check_summands(protection: Protection, clients: int) -> None:
    """Refuse a fixed point that cannot hold a sum over so many clients."""
    if (bits := getattr(protection, "bits", None)) is not None:
        FixedPoint(np.ones(1), bits, clients)


def _check_standing(method: Method, protection: Protection) -> None:
    if method.standing is None:
        raise ConfigError(
            f"{method.name} with these settings does not learn from one sum that can grow and shrink: a "
            "standing federation needs such a method, for one fedheonn in mode 'sealed' without finalists"
        )
    if protection.adds_noise:
        raise ConfigError(
            f"{protection.name} spends its budget on a number of sums that is known beforehand, and a "
            "standing federation knows none: protect it with bfv or masked"
        )
    if protection.rotates_keys:
        raise ConfigError(
            "rotate_every makes a new key, and a standing total is under one: leave it out, and begin a new "
            "standing federation when keys are to change"
        )
    if not protection.incremental and protection.opens != "coordinator":
        raise ConfigError(
            f"{protection.name} makes keys for one batch, and its totals open at the clients, who forget "
            "them: open them at the coordinator, or protect with bfv"
        )


def _check_clients(protection: Protection, clients: int | None, least: int, standing: bool) -> None:
    hides = not protection.promises.single
    if hides and least < 2:
        raise ConfigError(
            f"min_clients is {least}, but a total over one client is what {protection.name} hides, among at "
            f"least 2: give a min_clients of 2 or more; {MIN_CLIENTS} is the default"
        )
    if clients is None:
        return
    check_summands(protection, clients)
    if hides and clients < min(MIN_CLIENTS, least):
        there = "is one client" if clients == 1 else f"are {clients} clients"
        there = f"are too few with {clients} founders" if standing else there
        raise ConfigError(
            f"{protection.name} hides a client among others, and there {there}: have at least {MIN_CLIENTS}, "
            "or two with min_clients = 2; or hide nothing, with protect = 'plain'"
        )
    if clients < least:
        raise ConfigError(
            f"min_clients is {least}, but there are {clients} clients: no total over fewer than {least} "
            "contributions is opened, so have more clients or lower it"
        )
