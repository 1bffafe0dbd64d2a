"""A map on threads that runs a bounded number of items ahead of whoever consumes it."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], *, threads: int
) -> Generator[Result]:
    """The results in the order of the items; at most `threads` of them wait or are in work.

    Unlike `Executor.map`, so that results as large as clips do not pile up.
    """
    pending: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                pending.append(pool.submit(function, item))
                if len(pending) == threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
