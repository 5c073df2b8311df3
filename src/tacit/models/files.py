"""Reading a model file of any format."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from tacit.core.errors import DataError, TacitError
from tacit.data.inputs import Inputs
from tacit.data.schema import Schema
from tacit.models.estimator import Estimator
from tacit.models.generator import Generator
from tacit.models.neural import Neural
from tacit.models.onelayer import Ensemble, OneLayer
from tacit.models.predictor import Predictor, read_any
from tacit.models.trees import BoostedTrees

KINDS = (OneLayer, Ensemble, Neural, BoostedTrees, Estimator, Generator)
FORMATS: dict[str, type[Predictor]] = {kind.FORMAT: kind for kind in KINDS}


def load_model(path: Path | str, *known: Any) -> Predictor:
    """Read a model that a run wrote, or its own ``save``, whatever its method.

    ``known`` is the factory of a network that no package brings.
    """
    path = Path(path)
    words, tensors = read_any(path)
    if (kind := words.get("format", "")) not in FORMATS:
        raise DataError(f"{path.name}: model format {kind!r}, this Tacit reads {', '.join(FORMATS)}")
    try:
        inputs = Inputs(Schema.from_message({"schema": words["schema"].encode()}), tensors)
        inputs.check_shapes()
        own = {name: tensor for name, tensor in tensors.items() if name not in Inputs.NAMES}
        model = FORMATS[kind].restore(words, own, inputs, *known)
        row = [(*column.categories, 0.0)[0] for column in model.schema.columns]
        with suppress(TacitError):
            model.outputs(np.array([row], dtype=object))
    except TacitError:
        raise
    except Exception as error:  # noqa: BLE001  # whatever crafted words and tensors make it raise
        raise DataError(f"{path.name} is damaged: {type(error).__name__}: {error}") from None
    return model
