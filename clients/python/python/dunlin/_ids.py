"""Ids of tasks and workers: numbers to the cluster, to people the same number as hexadecimal text."""


def id_of(number: int) -> str:
    """A number as it is shown everywhere."""
    return f"{number:x}"


def number_of(id: str) -> int:
    """The number again."""
    if isinstance(id, str) and id.isalnum() and id.isascii():
        try:
            return int(id, 16)
        except ValueError:
            pass
    raise ValueError(f"{id!r}: expected the id of a task, as `submit` and `dunlin task list` give it")
