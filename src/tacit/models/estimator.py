"""Estimators of scikit-learn as plain arrays, never as pickles, and the model that one makes.

Whoever reads one need not trust whoever wrote it: only classes in ``KINDS`` are made, of numbers, words and
arrays, and a tree's nodes are checked before native code walks them. Left out are estimators that keep rows
(neighbours, kernels), bagging and stacking, and native code that checks nothing (gradient boosting).
"""

import ast
import warnings
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, DataError, nearest
from tacit.core.values import CODES, DTYPES
from tacit.data.inputs import Inputs
from tacit.models.predictor import Matrix, Predictor

KINDS = {
    "linear_model": "BayesianRidge ElasticNet HuberRegressor Lasso LinearRegression LogisticRegression "
    "Perceptron Ridge RidgeClassifier SGDClassifier SGDRegressor",
    "ensemble": "AdaBoostClassifier AdaBoostRegressor ExtraTreesClassifier ExtraTreesRegressor "
    "RandomForestClassifier RandomForestRegressor",
    "neural_network": "MLPClassifier MLPRegressor",
    "tree": "DecisionTreeClassifier DecisionTreeRegressor ExtraTreeClassifier ExtraTreeRegressor",
    "discriminant_analysis": "LinearDiscriminantAnalysis QuadraticDiscriminantAnalysis",
    "svm": "LinearSVC LinearSVR",
    "naive_bayes": "GaussianNB",
    "dummy": "DummyClassifier",
    "compose": "TransformedTargetRegressor",
    "preprocessing": "LabelBinarizer StandardScaler",
}
PLACES = {name: package for package, names in KINDS.items() for name in names.split()}
NODES = ("left_child", "right_child", "feature", "threshold")  # of a tree; all that predictions need
WIDEST = 4096  # of a layer, or of all classes: a few bytes must not ask for all memory where they are read
HUGE = 1e100  # largest target: squares of it are numbers
# No prediction needs these; some tell how many rows there were, how well they were learnt, or single rows.
LEFT_OUT = {
    *("oob_decision_function_", "oob_prediction_", "outliers_"),
    *("loss_", "best_loss_", "loss_curve_", "validation_scores_", "best_validation_score_", "t_", "n_iter_"),
    *("class_count_", "n_samples_seen_", "_n_samples", "_n_samples_bootstrap", "n_jobs", "verbose"),
}


def name_estimator(text: str, task: str) -> Any:
    """Make an unfitted estimator from its name and settings; of "MLP" the one that suits the task."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
        call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
        given = call.func.id if isinstance(call.func, ast.Name) and not call.args else ""
        ending = "Classifier" if task == "classification" else "Regressor"
        name = given if given in PLACES else given + ending
        if name in PLACES:
            return _kind(name)(**{str(word.arg): ast.literal_eval(word.value) for word in call.keywords})
    except (SyntaxError, ValueError, TypeError) as error:
        raise ConfigError(f"'{text}': {error}: write an estimator like 'MLP(max_iter=50)'") from None
    raise ConfigError(f"'{text}' is no estimator that can travel: {nearest(name, PLACES)}")


def _kind(name: str) -> Any:
    return getattr(import_module(f"sklearn.{PLACES[name]}"), name)


def fit_estimator(text: str, X: Matrix, y: NDArray[Any], rng: np.random.Generator) -> bytes:
    """Fit an estimator to labels (whole numbers) or targets, and return it as bytes that predict the same."""
    made = name_estimator(text, "classification" if y.ndim == 1 else "regression")
    if "random_state" in made.get_params():
        made.set_params(random_state=int(rng.integers(2**31)))
    if y.ndim == 2:  # in units of their spread, so that no rate depends on the unit of a target
        y = y[:, 0] if y.shape[1] == 1 else y
        made = _kind("TransformedTargetRegressor")(made, transformer=_kind("StandardScaler")())
    elif (y == y[0]).all():
        made = _kind("DummyClassifier")()  # one class: nothing is to be told apart
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # more iterations might help, and the like
            made.fit(X, y)
    except (TypeError, ValueError) as error:  # which may quote rows
        raise DataError(f"{text} cannot be fitted to these rows", private=str(error)) from None
    raw = msgspec.msgpack.encode(_plain(made))
    try:
        travelled = _restored(msgspec.msgpack.decode(raw), X.shape[1])
    except ValueError as error:
        raise ConfigError(f"{text} does not travel: {error}") from None
    if not np.allclose(travelled.predict(X), made.predict(X)):
        raise ConfigError(f"{text} predicts otherwise once it has travelled: choose other settings")
    return raw


def _plain(value: Any) -> Any:
    """Return a value as MessagePack holds it; TypeError if it does not travel."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.ndarray) and value.dtype in CODES:
        return {"array": [CODES[value.dtype], value.shape, value.tobytes()]}
    if isinstance(value, list | tuple):
        return {"list": [_plain(item) for item in value]}
    if (kind := type(value).__name__) == "Tree":
        nodes = value.__getstate__()["nodes"]
        return {"tree": [_plain(part) for part in (*(nodes[n] for n in NODES), value.n_classes, value.value)]}
    if kind not in PLACES:
        raise TypeError(f"a {kind} does not travel")
    attributes = {}
    for name in vars(value).keys() - LEFT_OUT:
        with suppress(TypeError):  # whether predictions need it is seen when they are compared
            attributes[name] = _plain(getattr(value, name))
    return {"estimator": [kind, dict(sorted(attributes.items()))]}


def _restored(node: Any, features: int) -> Any:
    if not isinstance(node, dict):
        return node
    ((kind, held),) = node.items()
    if kind == "array":
        found, widest = _read_array(held), max(WIDEST, features)
        if max(found.shape, default=0) > widest or (found.ndim > 1 and not found.size):
            raise ValueError(f"an array of shape {found.shape}, where {widest} is the widest")
        return found
    if kind == "list":
        return [_restored(item, features) for item in held]
    if kind == "tree":
        return _restored_tree([_read_array(item["array"]) for item in held], features)
    made = _kind(held[0])()
    attributes = {str(name): _restored(item, features) for name, item in held[1].items()}
    for name in {"n_classes_", "n_outputs_"} & attributes.keys():
        if np.abs(np.asarray(attributes[name], np.float64)).sum() > WIDEST:
            raise ValueError(f"{name} is more than {WIDEST}")
    vars(made).update({name: value for name, value in attributes.items() if name not in LEFT_OUT})
    return made


def _read_array(held: Any) -> NDArray[Any]:
    return np.frombuffer(held[2], DTYPES[held[0]]).reshape(held[1]).copy()


def _restored_tree(parts: list[NDArray[Any]], features: int) -> Any:
    """Make a tree whose nodes lead only downwards, to nodes that exist, by features that exist."""
    from sklearn.tree._tree import Tree

    left, right, feature, _, classes, values = parts
    count, inner = len(left), left != -1
    if not count or any(part.dtype.kind != "i" or part.ndim != 1 for part in (left, right, feature, classes)):
        raise ValueError("nodes of a tree are none, or no whole numbers")
    below = [(side[inner] > np.flatnonzero(inner)) & (side[inner] < count) for side in (left, right)]
    fine = [*below, (left == -1) == (right == -1), (feature[inner] >= 0) & (feature[inner] < features)]
    if not all(part.all() for part in fine) or values.shape != (count, len(classes), classes.max()):
        raise ValueError("nodes of a tree lead astray")
    tree = Tree(features, classes.astype(np.intp), len(classes))
    nodes = np.zeros(count, tree.__getstate__()["nodes"].dtype)
    for name, part in zip(NODES, parts, strict=False):
        nodes[name] = part
    nodes["weighted_n_node_samples"] = 1.0
    tree.__setstate__({"max_depth": count, "node_count": count, "nodes": nodes, "values": values})
    return tree


class Estimator(Predictor):
    """A fitted estimator with its preparation, from the bytes of :func:`fit_estimator`."""

    FORMAT = "tacit-estimator-1"

    def __init__(self, raw: bytes, inputs: Inputs) -> None:
        super().__init__("", inputs)
        self.raw, self.estimator = raw, _restored(msgspec.msgpack.decode(raw), inputs.schema.features)

    def label(self, X: Matrix) -> NDArray[Any]:
        """Return codes of classes, or targets, for prepared rows."""
        found = self.estimator.predict(X)
        if self.schema.task == "classification":
            return np.asarray(found, dtype=np.int64).clip(0, self.schema.outputs - 1)
        targets = np.asarray(found, dtype=np.float64).reshape(len(X), self.schema.outputs)
        return np.nan_to_num(targets).clip(-HUGE, HUGE)

    def _outputs(self, X: Matrix) -> Matrix:
        if self.schema.task == "regression":
            return self.label(X)
        found = np.zeros((len(X), self.schema.outputs))
        if hasattr(self.estimator, "predict_proba"):
            found[:, self.estimator.classes_] = self.estimator.predict_proba(X)
        else:
            found[np.arange(len(X)), self.label(X)] = 1.0
        return found

    def _content(self) -> tuple[dict[str, Any], dict[str, str]]:
        return {"estimator": np.frombuffer(self.raw, np.uint8)}, {}

    @classmethod
    def restore(cls, words: Mapping[str, str], tensors: Mapping[str, Any], inputs: Inputs) -> Self:
        return cls(tensors["estimator"].tobytes(), inputs)
