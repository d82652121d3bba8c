"""Ids of tasks and workers: numbers in the cluster, printed as hexadecimal text."""

from ._arguments import U64_MAX


def id_of(number: int) -> str:
    """The text of a number."""
    return f"{number:x}"


def number_of(id: str) -> int:
    """The number of a text."""
    if isinstance(id, str) and id.isalnum() and id.isascii():
        try:
            number = int(id, 16)
        except ValueError:
            number = U64_MAX + 1
        if number <= U64_MAX:
            return number
    raise ValueError(f"{id!r}: expected the id of a task, as `submit` and `dunlin task list` give it")
