"""ONNX graphs that other libraries make of what is theirs: torch of a module, skl2onnx of an estimator."""

import io
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from tacit.core.errors import ConfigError, extra
from tacit.models.estimator import Estimator
from tacit.models.neural import Neural

OPSET = 19  # the first that compares strings
LABELS, PROBABILITIES, TARGETS = "label", "probabilities", "variable"  # as skl2onnx names what it gives out


def convert_module(onnx: Any, model: Neural) -> Any:
    """Return torch's graph of a module."""
    from tacit.models.torch_network import TorchNetwork, torch_library

    network = model.network
    assert isinstance(network, TorchNetwork)
    torch = torch_library()
    program = torch.onnx.export(
        network.load(network.flat(model.arrays)).eval(),
        (torch.zeros((2, model.schema.features), dtype=torch.float32),),
        dynamic_shapes=({0: torch.export.Dim("n")},),
        opset_version=OPSET,
        dynamo=True,
        verbose=False,
    )
    stream = io.BytesIO()
    program.save(stream)
    return onnx.load_from_string(stream.getvalue())


def convert_estimator(model: Estimator) -> tuple[Any, str]:
    """Return skl2onnx's graph of an estimator, and the name of the output that counts."""
    with extra("skl2onnx is not installed: pip install 'tacit-fl[onnx]'"):
        from skl2onnx import to_onnx
        from skl2onnx.common.data_types import FloatTensorType
        from skl2onnx.common.exceptions import MissingShapeCalculator
    fitted = getattr(model.estimator, "regressor_", model.estimator)
    kind, given = type(fitted).__name__, TARGETS
    if kind == "LinearDiscriminantAnalysis":  # of two classes skl2onnx writes another function of them
        kept = ("coef_", "intercept_", "classes_", "n_features_in_")
        fitted, linear = LogisticRegression(), fitted
        vars(fitted).update({name: getattr(linear, name) for name in kept})
    if model.schema.task == "classification":
        given = PROBABILITIES if hasattr(fitted, "predict_proba") else LABELS
    options = None if given == TARGETS or kind == "LinearSVC" else {"zipmap": False}
    rows = [("features", FloatTensorType([None, model.schema.features]))]
    try:
        with np.errstate(invalid="ignore"):  # in importances that no restored tree has, and no graph needs
            return to_onnx(fitted, initial_types=rows, options=options, target_opset=OPSET), given
    except MissingShapeCalculator:
        raise ConfigError(f"a {kind} has no ONNX form: export it as safetensors") from None
