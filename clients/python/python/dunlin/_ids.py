"""Converts the ids of tasks and workers. In the cluster, they are numbers; users see them as hexadecimal text."""

from ._arguments import U64_MAX


def id_of(number: int) -> str:
    """Converts a number to the text of an id."""
    return f"{number:x}"


def number_of(id: str) -> int:
    """Converts the text of an id to a number."""
    if isinstance(id, str) and id.isalnum() and id.isascii():
        try:
            number = int(id, 16)
        except ValueError:
            number = U64_MAX + 1
        if number <= U64_MAX:
            return number
    raise ValueError(f"{id!r}: expected the id of a task, as `submit` and `dunlin task list` give it")
