"""Reading a model file of any format."""

from pathlib import Path

from tacit.core.errors import DataError
from tacit.models.ensemble import Ensemble
from tacit.models.neural import Neural
from tacit.models.onelayer import OneLayer
from tacit.models.predictor import read_any

KINDS: tuple[type[OneLayer] | type[Ensemble] | type[Neural], ...] = (OneLayer, Ensemble, Neural)
FORMATS = {kind.FORMAT: kind for kind in KINDS}


def load_model(path: Path | str) -> OneLayer | Ensemble | Neural:
    """Read a model that a run wrote, or its own ``save``, whatever its method."""
    path = Path(path)
    kind = read_any(path)[0].get("format", "")
    if kind not in FORMATS:
        raise DataError(f"{path.name}: model format {kind!r}, this Tacit reads {', '.join(FORMATS)}")
    return FORMATS[kind].load(path)
