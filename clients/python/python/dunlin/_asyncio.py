"""Functions with which `async for` waits for the next item of a native object."""

from __future__ import annotations

import asyncio
from typing import Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)


class _Waits(Protocol[T_co]):
    def _try_next(self) -> T_co | None: ...

    def _wait(self) -> asyncio.Future[None]: ...


async def next_of(source: _Waits[T_co]) -> T_co:
    """Waits for the next item of `source`."""
    while True:
        await source._wait()
        found = source._try_next()
        if found is not None:
            return found


def resolve(future: asyncio.Future[None], error: BaseException | None) -> None:
    """Sets the result or the error of a future, unless the future is already done."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
