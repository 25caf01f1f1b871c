"""Writing to shared state about a group, one after the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class GroupTurns:
    """A lock for each group that somebody writes about; turns are taken in the order in which they were asked for."""

    def __init__(self) -> None:
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}

    def __len__(self) -> int:
        """How many groups are being written about."""
        return len(self._turns)

    @asynccontextmanager
    async def turn(self, group_id: str) -> AsyncIterator[None]:
        """For whoever writes to shared state about a group.

        In helper threads side by side, the commit of a former owner could end after that of its successor,
        and take the group back.
        """
        lock, users = self._turns.get(group_id, (asyncio.Lock(), 0))
        self._turns[group_id] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._turns[group_id]
            if users > 1:
                self._turns[group_id] = (lock, users - 1)
            else:
                del self._turns[group_id]
