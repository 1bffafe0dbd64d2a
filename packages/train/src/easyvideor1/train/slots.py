"""How many prompts an engine is given at once: enough to fill it, and a few whose frames are ready.

All others wait before their frames are loaded. Used by `rollout.EngineActor`.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

NUM_PREPARED = 4  # prompts whose frames are loaded while the engine is full


class Slots:
    """Room in one engine, counted in answers.

    Args:
        num_answers: that the engine generates at the same time.
    """

    def __init__(self, num_answers: int):
        self._num_answers = num_answers
        self._num_taken = 0
        self._freed = asyncio.Condition()

    @asynccontextmanager
    async def take(self, count: int) -> AsyncGenerator[None]:
        """Wait for room for a prompt with so many answers, and keep it for the body of a `with`."""
        limit = self._num_answers + NUM_PREPARED * count
        async with self._freed:
            await self._freed.wait_for(lambda: self._num_taken < limit)
            self._num_taken += count
        try:
            yield
        finally:
            async with self._freed:
                self._num_taken -= count
                self._freed.notify_all()
