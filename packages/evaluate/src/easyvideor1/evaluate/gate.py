"""Keeps requests out of an engine while its weights change or its memory is given away."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Gate:
    """Lets any number of requests in; closed, none.

    vLLM's own pause does not cover a request that is still being preprocessed in this process: it
    would meet a media cache that was cleared on one side only.
    """

    def __init__(self) -> None:
        self._requests = 0
        self._closed = False
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def request(self) -> AsyncGenerator[None]:
        """Wait until it is open, then be inside."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._closed)
            self._requests += 1
        try:
            yield
        finally:
            async with self._changed:
                self._requests -= 1
                self._changed.notify_all()

    async def close(self) -> None:
        """Keep later requests out and wait for those inside."""
        async with self._changed:
            self._closed = True
            await self._changed.wait_for(lambda: self._requests == 0)

    async def open(self) -> None:
        """Let requests in again."""
        async with self._changed:
            self._closed = False
            self._changed.notify_all()
