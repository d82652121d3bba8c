"""Functions that check arguments. An argument of a wrong type raises `TypeError`, and a wrong value raises
`ValueError`.

Each error names the argument, and shows its value or type.
"""

from __future__ import annotations

import array
import contextlib
import math
import operator
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from reprlib import Repr

SECONDS_MAX = 2**33
"""The longest time span in seconds, 272 years. In nanoseconds, it fits into 63 bits."""
SPAN_SECONDS_MAX = 0xFFFF_FFFF / 1000
"""The longest time span in seconds for messages that have milliseconds in 32 bits."""
U64_MAX = 2**64 - 1

_UNIX_SECONDS_MAX = 1e11
"""The year 5138. A larger number is probably a present time in another unit, such as milliseconds."""

_LONE = "UTF-8 cannot encode the lone surrogate in it"

_FIELD_NAME = re.compile(":[^:]*:")
"""The name of a field in a buffer's format, such as `:price:` in `T{q:price:q:size:}`."""
_ADDRESS = re.compile("[OPXz&]|Z(?![dfgDFG])")
"""The formats of Python objects, pointers, functions and C strings. `Zd`, `Zf` and `Zg` are complex numbers."""
_OBJECTS = (
    "cannot be a buffer of Python objects, whose bytes are only addresses: convert the objects to numbers or bytes, "
    "such as with astype() or json.dumps()"
)
_POINTERS = (
    "cannot be a buffer of pointers, whose bytes are only addresses in this process: give the bytes at the addresses"
)
_CHARACTERS = (
    "cannot be an array of characters, whose size depends on the system: convert it to str, such as with tounicode()"
)
_MASKED = "cannot be a masked array, whose mask would be lost: give filled(value), or the data and the mask"
_TIMES = "cannot be a NumPy time, whose unit would be lost: convert it to whole numbers, such as with astype('int64')"

_repr = Repr()
_repr.maxstring = _repr.maxother = _repr.maxlong = 100


def shown(given: object) -> str:
    """The shortened text of a value, for an error message. Never raises an exception."""
    return _repr.repr(given)


def text(name: str, given: str) -> str:
    """Checks that the value is a string that UTF-8 can encode."""
    if not isinstance(given, str):
        raise TypeError(f"{name}={shown(given)}: expected str, not {type(given).__name__}")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name}={shown(given)}: {_LONE}") from None
    return given


def _is_flag(given: object) -> bool:
    # The boolean of NumPy is called `bool` or, before version 2, `bool_`.
    return type(given).__name__ in ("bool", "bool_")


def flag(name: str, given: bool) -> bool:
    """Checks that the value is true or false, also of NumPy. The text "no", for example, would count as true."""
    if not _is_flag(given):
        raise TypeError(f"{name}={shown(given)}: expected True or False, not {type(given).__name__}")
    return bool(given)


def _is_masked(given: object) -> bool:
    """Whether the value is a masked array of NumPy. Does not load NumPy."""
    masked: type | tuple[()] = getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())
    return isinstance(given, masked)


def _lost_meaning(given: object) -> str | None:
    """Why the bytes of an object's buffer alone mean nothing to other programs; `None` if they mean something."""
    if _is_masked(given):
        return _MASKED
    if isinstance(given, array.array):
        return _CHARACTERS if given.typecode in ("u", "w") else None
    dtype = getattr(given, "dtype", None)
    if getattr(dtype, "hasobject", False) is True:
        return _OBJECTS
    # NumPy shows a single time as a buffer of bytes.
    return _TIMES if getattr(dtype, "kind", None) in ("m", "M") else None


def buffer(given: object, expected: str = "bytes, str or a buffer") -> memoryview:
    """Returns a view of an object's buffer. Refuses a buffer whose bytes alone mean nothing to other programs.

    The errors begin with a verb, because the caller knows the name of the argument.
    """
    lost = _lost_meaning(given)
    if lost is not None:
        raise TypeError(lost)
    try:
        view = memoryview(given)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"must be {expected}, not {type(given).__name__}") from None
    except (ValueError, BufferError) as error:
        raise TypeError(f"must be {expected}, not this {type(given).__name__}: {error}") from None
    layout = view.format if ":" not in view.format else _FIELD_NAME.sub("", view.format)
    if _ADDRESS.search(layout):
        raise TypeError(_OBJECTS if "O" in layout else _POINTERS)
    # ctypes has the format "u" for the characters of C, and NumPy "w" for characters that always have 4 bytes.
    lost = _CHARACTERS if "u" in layout else _lost_meaning(view.obj)
    if lost is not None:
        raise TypeError(lost)
    return view


def rows(given: object) -> memoryview:
    """Returns a view of an array of rows. Refuses plain bytes, because each byte would become a row."""
    is_bytes = isinstance(given, memoryview) and given.ndim == 1 and given.itemsize == 1
    if is_bytes or isinstance(given, str | bytes | bytearray):
        raise TypeError(f"rows={shown(given)}: expected an array of rows, not {type(given).__name__}")
    try:
        return buffer(given, "an array of rows")
    except TypeError as error:
        raise TypeError(f"rows {error}") from None


def encoded(name: str, given: bytes | bytearray | memoryview | str, *, is_secret: bool = False) -> bytes:
    """Converts a string or a buffer to bytes. If `is_secret`, errors do not show the value.

    Other types are refused, because `bytes(given)` would convert 100 to 100 zero bytes, and [1, 2] to the bytes 1 and
    2.
    """
    if isinstance(given, bytes):
        return given
    if isinstance(given, bytearray):
        return bytes(given)
    if isinstance(given, memoryview):
        try:
            return buffer(given).tobytes()
        except TypeError as error:
            raise TypeError(f"{name} {error}") from None
    if isinstance(given, str):
        try:
            return given.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{_named(name, given, is_secret)}: {_LONE}") from None
    label = _named(name, given, is_secret)
    raise TypeError(f"{label}: expected str, bytes, bytearray or memoryview, not {type(given).__name__}")


def _named(name: str, given: object, is_secret: bool) -> str:
    return name if is_secret else f"{name}={shown(given)}"


def texts(name: str, given: str | Iterable[str]) -> list[str]:
    """Checks several strings. A single string is a list of one string, not of its characters."""
    if isinstance(given, str):
        return [text(name, given)]
    if isinstance(given, bytes | bytearray | memoryview) or not isinstance(given, Iterable):
        raise TypeError(f"{name}={shown(given)}: expected strings, not {type(given).__name__}")
    return [text(name, one) for one in given]


def payloads(given: Iterable[object]) -> Iterator[object]:
    """Checks several payloads. Refuses a single string or buffer, whose characters or bytes would become payloads.

    Also refuses a mapping and a table of pandas, of which only the keys or column names would become payloads.
    """
    is_table = hasattr(given, "to_records")
    if not is_table and not _is_masked(given) and not isinstance(given, str | bytes | bytearray | memoryview | Mapping):
        with contextlib.suppress(TypeError):
            return iter(given)
    raise TypeError(f"payloads={shown(given)}: expected several payloads, not {type(given).__name__}")


def labels(name: str, given: Mapping[str, str] | None) -> list[tuple[str, str]]:
    """Converts a mapping of strings to a list of pairs."""
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise TypeError(f"{name}={shown(given)}: expected a mapping of str to str, not {type(given).__name__}")
    return [(text(f"a key of {name}", key), text(f"{name}[{shown(key)}]", value)) for key, value in given.items()]


def count(name: str, given: int, most: int, *, least: int = 0, taken: int | None = None) -> int:
    """Checks that the value is a whole number from `least` to `most`.

    If `taken` is given, accepts numbers up to `taken`, which the message can carry. The node then checks `most`.
    """
    if not isinstance(given, bool | float):
        try:
            number = operator.index(given)
        except TypeError:
            raise TypeError(f"{name}={shown(given)} is not a whole number, but {type(given).__name__}") from None
        if least <= number <= (most if taken is None else taken):
            return number
    raise ValueError(f"{name}={shown(given)} is not a whole number from {least:,} to {most:,}")


def _number(name: str, given: float, what: str) -> float:
    if not _is_flag(given) and not isinstance(given, str | bytes) and hasattr(given, "__float__"):
        try:
            return float(given)
        except OverflowError:
            return math.inf
        except (TypeError, ValueError):
            # An array of several numbers, or a signaling NaN of `decimal`.
            pass
    raise TypeError(f"{name}={shown(given)}: expected {what}, not {type(given).__name__}")


def point(name: str, given: Iterable[float]) -> list[float]:
    """Checks the coordinates of a point. The native module checks their number."""
    if isinstance(given, str | bytes | bytearray | Mapping | Set) or not isinstance(given, Iterable):
        raise TypeError(f"{name}={shown(given)}: expected numbers, not {type(given).__name__}")
    return [_number(f"a number of {name}", number, "a number") for number in given]


def distance(name: str, given: float) -> float:
    """Checks a distance, which is finite and above 0."""
    number = _number(name, given, "a distance")
    if not 0 < number < math.inf:
        raise ValueError(f"{name}={shown(given)} is not a distance above 0")
    return number


def seconds(name: str, given: float, *, least: float = 0.001, most: float = SECONDS_MAX) -> float:
    """Checks a number of seconds. The default of `least` is the shortest time span that messages can carry, 1 ms."""
    number = _number(name, given, "a number of seconds")
    if not least <= number <= most:
        raise ValueError(f"{name}={shown(given)} is not from {least:g} to {int(most):,} seconds")
    return number


def seconds_ms(name: str, given: float, *, least: float = 0.001) -> int:
    """Converts a number of seconds to whole milliseconds, which must fit into 32 bits."""
    return round(seconds(name, given, least=least, most=SPAN_SECONDS_MAX) * 1000)


def timeout(given: float | None, name: str = "timeout") -> float | None:
    """Checks the time to wait in seconds. A negative number means no wait, and `None` means no limit."""
    if given is None:
        return None
    number = _number(name, given, "a number of seconds or None")
    if not number <= SECONDS_MAX:
        raise ValueError(f"{name}={shown(given)}: expected at most {SECONDS_MAX:,} seconds")
    return max(number, 0.0)


def wait(given: float, name: str = "timeout") -> float:
    """Like `timeout`, but refuses `None`, for calls that must have a time limit."""
    found = timeout(given, name)
    if found is None:
        raise TypeError(f"{name}=None: expected a number of seconds")
    return found


def unix_ms(name: str, given: float) -> int:
    """Converts seconds since the Unix epoch to milliseconds, at least 1. The cluster refuses times far from now."""
    number = _number(name, given, "seconds since the Unix epoch")
    if not 0 < number < _UNIX_SECONDS_MAX:
        raise ValueError(f"{name}={shown(given)} is not a time in seconds since the Unix epoch, as time.time() gives it")
    return max(round(number * 1000), 1)
