"""What keeps a copy of shared state current: a task that each change wakes."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

from headwater_broker.coordination import Change, Coordinator

RETRY_S = 1.0
"""How long to wait where shared state does not answer."""

Ask = Callable[..., Awaitable[Any]]
"""Runs a blocking call in a helper thread."""


class Watcher(ABC):
    """Is told of changes of shared state in the loop's thread, and acts on them one after the other."""

    def __init__(self, coordinator: Coordinator, ask: Ask) -> None:
        self._coordinator = coordinator
        self._ask = ask
        self._wake = asyncio.Event()
        # Held from a reading until it is applied: what was read first could be applied last, over what is newer.
        self._reading = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Subscribes to changes and goes on until `stop`."""
        loop = asyncio.get_running_loop()

        def report(change: Change) -> None:
            # After the loop has closed nobody is interested any more.
            if not loop.is_closed():
                loop.call_soon_threadsafe(self.note, change)

        self._coordinator.watch(report)
        self._task = loop.create_task(self._run())

    async def stop(self) -> None:
        """Ends the upkeep."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @abstractmethod
    def note(self, change: Change) -> None:
        """Takes a report of a watch; sets `_wake` where there is something to do."""

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._act()

    @abstractmethod
    async def _act(self) -> None:
        """Does what was noted."""
