"""What a client asks before it contributes: whether small cells were counted, if that was agreed."""

from __future__ import annotations

from tacit.core.errors import OpeningError
from tacit.core.manifest import Manifest
from tacit.core.shared import Shared


def check_counted(manifest: Manifest, counts: str, contribution: str, shared: Shared) -> None:
    """Refuse a contribution, other than the ``counts``, before it is known which cells few rows have.

    Where clients open totals, each has found that out itself.

    >>> check_counted(Manifest("run", {}, min_count=5), "cell_counts", "terms", Shared(None, {}))
    Traceback (most recent call last):
    ...
    tacit.core.errors.OpeningError: 'terms' is asked for before the federation has counted which...
    """
    if manifest.min_count == 1 or contribution == counts:
        return
    if shared.get("min_count") != manifest.min_count:
        raise OpeningError(
            f"'{contribution}' is asked for before the federation has counted which classes and categories "
            f"occur in fewer than min_count = {manifest.min_count} rows: nothing is contributed"
        )
