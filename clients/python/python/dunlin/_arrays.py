"""Converts columns to NumPy arrays, if NumPy is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._dunlin import Column

try:
    import numpy
except ImportError:  # NumPy is optional.
    numpy = None  # type: ignore[assignment]


def as_array(column: Column) -> Any:
    """Returns the column as a NumPy array, or as a memoryview if NumPy is not installed. The bytes are not copied."""
    return memoryview(column) if numpy is None else numpy.asarray(column)
