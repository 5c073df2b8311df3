"""Layouts: packing and unpacking are inverse, and nothing odd gets in."""

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tacit.core.errors import DataError
from tacit.core.layout import Field, Layout

finite = st.floats(allow_nan=False, allow_infinity=False)
shapes = st.lists(npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4), max_size=5)


@given(shapes, st.data())
@settings(max_examples=60, deadline=None)
def test_unpack_is_the_inverse_of_pack(listed, data):
    layout = Layout(*(Field(f"f{i}", shape) for i, shape in enumerate(listed)))
    parts = {
        f"f{i}": data.draw(npst.arrays(np.float64, shape, elements=finite)) for i, shape in enumerate(listed)
    }
    vector = layout.pack(parts)
    assert vector.shape == (layout.size,) == (sum(map(prod, listed)),)
    back = layout.unpack(vector)
    assert back.keys() == parts.keys()
    for name, array in parts.items():
        assert back[name].shape == array.shape
        assert back[name].tobytes() == array.tobytes()


@given(st.integers(0, 30), st.data())
@settings(max_examples=30, deadline=None)
def test_pack_is_the_inverse_of_unpack(size, data):
    cut = data.draw(st.integers(0, size))
    layout = Layout(Field("a", (cut,)), Field("b", (size - cut, 1)))
    vector = data.draw(npst.arrays(np.float64, size, elements=finite))
    assert layout.pack(layout.unpack(vector)).tobytes() == vector.tobytes()


def test_unpacking_a_sum_is_the_sum_of_the_unpacked():
    layout = Layout(Field("a", (2, 2)), Field("b", ()))
    vectors = np.random.default_rng(0).normal(size=(3, layout.size))
    total = layout.unpack(vectors.sum(axis=0))
    assert np.allclose(total["a"], sum(layout.unpack(v)["a"] for v in vectors))
    assert np.isclose(total["b"], sum(layout.unpack(v)["b"] for v in vectors))


@pytest.fixture
def layout():
    return Layout(Field("gram", (2, 2), bound=1.0), Field("count", ()), Field("factor", None, clear=True))


def parts(**changed):
    return {"gram": np.eye(2), "count": 3, "factor": np.ones((2, 5)), **changed}


def test_what_is_agreed_is_packed(layout):
    assert layout.pack(parts()).tolist() == [1.0, 0.0, 0.0, 1.0, 3.0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["gram", "count", "factor"])
def test_nan_and_infinity_are_refused(layout, name, bad):
    array = np.array(parts()[name], dtype=float)
    array[(0,) * array.ndim] = bad
    with pytest.raises(DataError, match=f"'{name}' holds NaN or infinite"):
        layout.pack(parts(**{name: array}))


@pytest.mark.parametrize("shape", [(2,), (4,), (2, 3), (1, 2, 2), ()])
def test_another_shape_is_refused(layout, shape):
    with pytest.raises(DataError, match="'gram' has shape"):
        layout.pack(parts(gram=np.zeros(shape)))


def test_a_missing_field_is_refused(layout):
    with pytest.raises(DataError, match="contribution has the fields"):
        layout.pack({"gram": np.eye(2), "count": 3})


def test_an_extra_field_is_refused(layout):
    with pytest.raises(DataError, match="contribution has the fields"):
        layout.pack(parts(smuggled=1.0))


def test_the_bound_itself_is_allowed_and_a_hair_more_is_not(layout):
    assert layout.pack(parts(gram=-np.ones((2, 2))))[0] == -1.0
    with pytest.raises(DataError, match="exceeds its bound of 1"):
        layout.pack(parts(gram=np.full((2, 2), -np.nextafter(1.0, 2.0))))


def test_the_value_that_broke_the_bound_stays_at_the_site(layout):
    with pytest.raises(DataError) as caught:
        layout.pack(parts(gram=np.full((2, 2), 4711.0)))
    assert "4711" in str(caught.value)
    assert "4711" not in caught.value.public


def test_bounds_are_those_of_the_fields_in_order(layout):
    assert layout.bounds.tolist() == [1.0] * 4 + [np.inf]


def test_a_summed_field_needs_a_shape():
    with pytest.raises(TypeError, match="needs a shape"):
        Layout(Field("a", None))


@pytest.mark.parametrize("size", [0, 4, 6])
def test_a_total_of_another_length_is_refused(layout, size):
    with pytest.raises(DataError, match="the layout 5"):
        layout.unpack(np.zeros(size))


@pytest.mark.parametrize(
    ("changed", "flaw"),
    [
        ({}, None),
        ({"gram": np.full((2, 2), np.nan)}, "'gram' is missing or holds NaN"),
        ({"gram": np.zeros(4)}, "'gram' has shape"),
        ({"count": 3}, "'count' is missing"),
        ({"factor": None}, "'factor' is missing"),
    ],
)
def test_a_total_that_another_party_hands_over_is_looked_at(layout, changed, flaw):
    total = {"gram": np.eye(2), "count": np.array(3.0), "factor": np.ones((2, 5)), **changed}
    found = layout.flaw(total)
    assert found is None if flaw is None else found.startswith(flaw)
