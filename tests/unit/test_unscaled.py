"""One sum for scale and weights: what it gives, and when two are needed after all."""

import numpy as np
import pytest

from tacit import Federation, FedHEONN, Preparation, Table
from tacit.core.events import Events, TotalOpened
from tacit.methods.heonn.unscaled import MAX_MEAN
from tacit.protections.plain import Plain

AT_ONCE, TWICE = ["raw_terms"], ["moments", "terms"]


def table(rows=120, mean=3.0, seed=0, task="classification"):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 4)) * [1.0, 5.0, 0.2, 2.0] + mean * np.array([1.0, 5.0, 0.2, 2.0])
    if task == "regression":
        return Table.of(X, (X @ [[1.0], [0.5], [2.0], [0.0]] + rng.normal(size=(rows, 1))), task=task)
    return Table.of(X, rng.integers(3, size=rows))


def learnt(data, method=None, **settings):
    seen = []
    parts = {f"c{n}": data.take(np.arange(n, data.rows, 3)) for n in range(3)}
    declared = {"classes": list(data.classes)} if data.classes else None
    training = Federation.of(parts, declared=declared).train(
        method or FedHEONN(),
        events=Events(lambda number, event: seen.append(event)),
        **{"protect": "plain", **settings},
    )
    return training, [event.contribution for event in seen if isinstance(event, TotalOpened)]


@pytest.mark.parametrize(
    ("task", "activation"),
    [("classification", "logistic"), ("classification", "linear"), ("regression", "linear")],
)
@pytest.mark.parametrize("lam", [0.0, 1e-3, 10.0])
def test_one_sum_gives_what_two_give(task, activation, lam):
    data, method = table(task=task), FedHEONN(lam=lam, activation=activation)
    one, sums = learnt(data, method)
    other, others = learnt(data, method, protect=Plain(opens="clients"))
    assert (sums, others) == (AT_ONCE, TWICE)
    np.testing.assert_allclose(one.model.weights, other.model.weights, rtol=1e-10, atol=1e-12)
    ours, theirs = one.model.inputs.values, other.model.inputs.values
    for name in ("centre", "spread"):
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-12)


@pytest.mark.parametrize(
    ("method", "preparation"),
    [
        (FedHEONN(activation="softplus"), Preparation()),  # a Gram matrix for each output, none holds n
        (FedHEONN(mode="paper"), Preparation()),
        (FedHEONN(hidden=8), Preparation()),
        (FedHEONN(lams=(0.1, 1.0), folds=2), Preparation()),
        (FedHEONN(), Preparation(missing="mean")),
        (FedHEONN(), Preparation(scale="none")),
    ],
)
def test_where_it_does_not_fit_a_scale_is_agreed_first(method, preparation):
    _, sums = learnt(table(), method, preparation=preparation)
    assert sums[0] == "moments"


def test_protections_with_a_bound_have_two_sums_once_small_cells_are_counted():
    _, sums = learnt(table(), protect="masked")
    assert sums == ["word_counts", "word_letters", "cell_counts", *TWICE]


@pytest.mark.parametrize(("mean", "expected"), [(0.9 * MAX_MEAN, AT_ONCE), (1.2 * MAX_MEAN, AT_ONCE + TWICE)])
def test_means_far_from_zero_need_a_scale_first(mean, expected):
    data = table(mean=mean)
    one, sums = learnt(data)
    assert sums == expected
    other, _ = learnt(data, protect=Plain(opens="clients"))
    np.testing.assert_allclose(one.model.weights, other.model.weights, rtol=1e-8, atol=1e-10)


def test_a_constant_column_counts_for_nothing():
    data = table()
    data.values.flags.writeable = True
    data.values[:, 2] = 1e6
    one, sums = learnt(data)
    assert sums == AT_ONCE
    assert np.all(one.model.weights[3] == 0)
    other, _ = learnt(data, protect=Plain(opens="clients"))
    np.testing.assert_allclose(one.model.weights, other.model.weights, rtol=1e-9, atol=1e-12)


def test_columns_that_repeat_each_other_are_refused_as_before():
    data = table()
    twice = Table.of(np.c_[data.values, data.values[:, :1] * (1 + 1e-9)], data.target)
    method = FedHEONN(lam=0.0)
    errors = []
    for protect in ("plain", Plain(opens="clients")):
        with pytest.raises(Exception) as error:  # where it is told differs
            learnt(twice, method, protect=protect)
        errors.append(str(error.value))
    assert all("robust" in text for text in errors)


def test_clients_that_join_go_on_from_it():
    data = table(rows=240)
    whole, _ = learnt(data)
    first, _ = learnt(data.take(np.arange(120)))
    parts = {"late": data.take(np.arange(120, 240))}
    joined = Federation.of(parts, declared={"classes": list(data.classes)}).train(
        FedHEONN(), protect="plain", start=first
    )
    rows = data.values[:50]
    assert np.mean(joined.model.predict(rows) == whole.model.predict(rows)) > 0.9
    assert not np.allclose(joined.model.weights, first.model.weights)
