"""Runs the logs' compactions in threads of their own, beside the loop."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from headwater_broker.log import Clock, LogError, LogManager

_LOG = logging.getLogger(__name__)


class Compactor:
    """Looks for a log that is dirty enough, every so often; everything but the copying is done in the logs' thread."""

    def __init__(self, manager: LogManager, clock: Clock) -> None:
        """Makes one that rests until it is configured."""
        self._manager = manager
        self._clock = clock
        self._backoff_s = 0.0
        self._executor = ThreadPoolExecutor(thread_name_prefix="compactor")
        self._threads = 0
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def configure(self, *, threads: int, backoff_ms: int) -> None:
        """Goes on with so many threads.

        Args:
            threads: Logs that may be compacted at a time (Kafka's log.cleaner.threads).
            backoff_ms: How long to wait where none is dirty enough (Kafka's log.cleaner.backoff.ms).
        """
        self._backoff_s = backoff_ms / 1000
        self._threads = threads
        for number in range(threads):
            if number not in self._tasks:
                self._tasks[number] = asyncio.create_task(self._go_on(number))

    async def stop(self) -> None:
        """Gives up what is under way."""
        for log in self._manager:
            log.abandon_cleaning()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)

    async def _go_on(self, number: int) -> None:
        while number < self._threads:
            await asyncio.sleep(self._backoff_s)
            try:
                while number < self._threads and await self._clean_one():
                    pass
            except LogError as error:
                _LOG.error("compaction: %s", error)
            except Exception:
                # Whatever one log ran into, the others must be compacted.
                _LOG.exception("compaction failed")
        del self._tasks[number]

    async def _clean_one(self) -> bool:
        cleaning = self._manager.next_cleaning(self._clock.now_ms())
        if cleaning is None:
            return False
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._executor, cleaning.run)
        while cleaning.complete(self._clock.now_ms()):
            await loop.run_in_executor(self._executor, cleaning.run)
        return True
