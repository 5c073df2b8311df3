"""Reading a model file of any format."""

from contextlib import suppress
from pathlib import Path

import numpy as np

from tacit.core.errors import DataError, TacitError
from tacit.models.estimator import Estimator
from tacit.models.generator import Generator
from tacit.models.neural import Neural
from tacit.models.onelayer import Ensemble, OneLayer
from tacit.models.predictor import Predictor, read_any
from tacit.models.trees import BoostedTrees

KINDS = (OneLayer, Ensemble, Neural, BoostedTrees, Estimator, Generator)
FORMATS: dict[str, type[Predictor]] = {kind.FORMAT: kind for kind in KINDS}


def load_model(path: Path | str) -> Predictor:
    """Read a model that a run wrote, or its own ``save``, whatever its method."""
    path = Path(path)
    kind = read_any(path)[0].get("format", "")
    if kind not in FORMATS:
        raise DataError(f"{path.name}: model format {kind!r}, this Tacit reads {', '.join(FORMATS)}")
    try:
        model = FORMATS[kind].load(path)
        row = [(*column.categories, 0.0)[0] for column in model.schema.columns]
        with suppress(TacitError):
            model.outputs(np.array([row], dtype=object))
    except TacitError:
        raise
    except Exception as error:  # noqa: BLE001  # whatever crafted words and tensors make it raise
        raise DataError(f"{path.name} is damaged: its parts do not fit together ({error!r})") from None
    return model
