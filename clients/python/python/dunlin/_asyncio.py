"""What `async for` does when there is nothing yet."""

from __future__ import annotations

import asyncio
from typing import Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)


class _Waits(Protocol[T_co]):
    def _try_next(self) -> T_co | None: ...

    def _wait(self) -> asyncio.Future[None]: ...


async def next_of(source: _Waits[T_co]) -> T_co:
    """The next thing of `source`, as long as it takes."""
    while True:
        await source._wait()
        found = source._try_next()
        if found is not None:
            return found


def resolve(future: asyncio.Future[None], error: BaseException | None) -> None:
    """Tells a future how its wait ended, unless nobody waits any more."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
