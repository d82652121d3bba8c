"""Columns as arrays, where there is NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._dunlin import Column

try:
    import numpy
except ImportError:  # It is optional.
    numpy = None  # type: ignore[assignment]


def as_array(column: Column) -> Any:
    """A NumPy array, or else a memoryview, of the bytes where they lie."""
    return memoryview(column) if numpy is None else numpy.asarray(column)
