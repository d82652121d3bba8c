"""Columns as NumPy arrays, if NumPy is available."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._dunlin import Column

try:
    import numpy
except ImportError:  # It is optional.
    numpy = None  # type: ignore[assignment]


def as_array(column: Column) -> Any:
    """A NumPy array, or a memoryview without NumPy, of the bytes without a copy."""
    return memoryview(column) if numpy is None else numpy.asarray(column)
