"""Layouts: how the named arrays of a contribution become one vector, and which values it may hold."""

import dataclasses
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from math import isfinite, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError, TooLargeError


@dataclasses.dataclass(frozen=True)
class Field:
    """One named array of a contribution."""

    name: str
    shape: tuple[int, ...] | None  # None only for a clear field whose shape differs between clients
    # Largest absolute value a single client may contribute; a loose one costs precision. None: not known
    # beforehand, so that protections use their wide encoding.
    bound: float | None = None
    # The same of the sum over all clients, where it is known to be less than the bound times the clients:
    # protections may use the room for more digits.
    total: float | None = None
    # The total is needed to about 2⁻⁴⁰ of the bound: a protection that rounds more coarsely cuts values into
    # digits, at twice the bytes or so.
    fine: bool = False
    # The total is a matrix that the coordinator may multiply, unopened, by so many that it knows (a method's
    # ``operator``), each serving as many of its columns; a protection that cannot leaves it to who opens.
    columns: int = 0
    clear: bool = False  # travels beside the vector, visible to the coordinator, which has the method fold it
    dtype: str = "float64"  # of a clear field; what is summed is float64
    whole: bool = False  # values are whole numbers: protections that send bits need few of them

    def flaw(self, value: Any) -> str | None:
        """Say what is wrong with a value that came from another party, if anything is."""
        if not isinstance(value, np.ndarray) or not np.isfinite(value).all():
            return f"'{self.name}' is missing or holds NaN or infinite values"
        if value.dtype != self.dtype:  # the least integer is its own absolute value, below any bound
            return f"'{self.name}' holds {value.dtype}, agreed was {self.dtype}"
        if self.shape is not None and value.shape != self.shape:
            return f"'{self.name}' has shape {value.shape}, agreed was {self.shape}"
        return None


class Layout:
    """The fields of a contribution in order.

    ``row_norm`` is the longest L2 norm of what one row brings to the vector, where the contribution is a sum
    over rows that are bounded so; None if it is not known. ``parts`` is how many equal parts of a run's
    privacy budget the sum takes, if noise is added to it.
    """

    grows = False  # whether the total may outgrow what is known of it, up to all bounds together

    def __init__(self, *fields: Field, row_norm: float | None = None, parts: int = 1) -> None:
        self.row_norm = row_norm
        self.parts = parts
        self.fields = tuple(field for field in fields if not field.clear)
        self.clear = tuple(field for field in fields if field.clear)
        if any(field.shape is None for field in self.fields):
            raise TypeError("a field that is summed needs a shape")

    @cached_property
    def _sizes(self) -> list[int]:
        return [prod(field.shape or ()) for field in self.fields]

    @cached_property
    def size(self) -> int:
        """Number of values that are summed."""
        return sum(self._sizes)

    @cached_property
    def bounds(self) -> NDArray[np.float64]:
        """Bound of every value of the vector; infinite where none is known."""
        return self._each([np.inf if f.bound is None else f.bound for f in self.fields], float)

    @cached_property
    def fine(self) -> NDArray[np.bool_]:
        """Which values of the vector are needed to about 2⁻⁴⁰ of their bound."""
        return self._each([f.fine and f.bound is not None for f in self.fields], bool)

    @cached_property
    def largest_whole(self) -> int | None:
        """The largest bound, if all values are whole numbers; else None."""
        whole = all(field.whole and field.bound is not None for field in self.fields)
        return int(max(self.bounds, default=0.0)) if whole else None

    def reach(self, summands: int) -> float:
        """Return the largest total in units of a value's bound: the summands, or less where that is known."""
        ratios = [
            summands if f.total is None or not f.bound else min(float(summands), f.total / f.bound)
            for f in self.fields
            if f.bound is not None
        ]
        return float(max(ratios, default=1.0))

    def growing(self) -> "Layout":
        """Return the same layout of a total that stands, which later clients join."""
        grown = copy(self)
        grown.grows = True
        return grown

    def _each(self, values: Sequence[Any], kind: type) -> NDArray[Any]:
        return np.repeat(np.array(values, dtype=kind), self._sizes)

    def pack(self, parts: Mapping[str, Any]) -> NDArray[np.float64]:
        """Flatten named arrays into one vector; refuse NaN, wrong shapes and values out of bounds."""
        named = {field.name for field in (*self.fields, *self.clear)}
        if parts.keys() != named:
            raise DataError(f"contribution has the fields {sorted(parts)}, agreed were {sorted(named)}")
        vector = np.empty(self.size)
        for field, place in zip(self.fields, self.unpack(vector).values(), strict=True):
            array = np.asarray(parts[field.name], dtype=np.float64)
            if array.shape != field.shape:
                raise DataError(f"'{field.name}' has shape {array.shape}, agreed was {field.shape}")
            self._check(field, array)
            place[...] = array
        for field in self.clear:
            self._check(field, np.asarray(parts[field.name]))
        return vector

    @staticmethod
    def _check(field: Field, array: NDArray[Any]) -> None:
        # The extremes tell of NaN and infinity, too, and take no memory.
        largest = max(-float(array.min()), float(array.max())) if array.size else 0.0
        if not isfinite(largest):
            raise (DataError if np.isnan(array).any() else TooLargeError)(
                f"'{field.name}' holds NaN or infinite values: look for them in the client's data"
            )
        if field.bound is not None and largest > field.bound:
            raise DataError(
                f"'{field.name}' exceeds its bound of {field.bound:g}: scale it, or declare a wider one",
                private=f"largest value {largest:g}",
            )

    def beyond(self, vector: NDArray[np.float64]) -> str | None:
        """Say which value of a contribution that another party packed exceeds its bound, if one does."""
        if not (wrong := ~(np.abs(vector) <= self.bounds)).any():
            return None
        first = int(np.argmax(wrong))
        field = self.fields[np.searchsorted(np.cumsum(self._sizes), first, side="right")]
        return f"'{field.name}' holds {vector[first]:g}, its bound is {self.bounds[first]:g}"

    def flaw(self, total: Mapping[str, Any]) -> str | None:
        """Say what is wrong with an opened total that another party handed over, if anything is."""
        found = (field.flaw(total.get(field.name)) for field in (*self.fields, *self.clear))
        return next((flaw for flaw in found if flaw), None)

    def unpack(self, vector: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Cut a vector into its named arrays (views)."""
        if vector.shape != (self.size,):
            raise DataError(f"total has {vector.shape} values, the layout {self.size}")
        pieces = np.split(vector, np.cumsum(self._sizes[:-1]))
        return {f.name: piece.reshape(f.shape or ()) for f, piece in zip(self.fields, pieces, strict=False)}
