"""Runs the logs' compactions in threads of their own, beside the loop."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from headwater_broker.log import Clock, LogError, LogManager

_LOG = logging.getLogger(__name__)


class Compactor:
    """Looks for a log that is dirty enough, every so often; everything but the copying is done in the logs' thread."""

    def __init__(self, manager: LogManager, clock: Clock, *, threads: int, backoff_ms: int) -> None:
        """Starts looking, within a running loop.

        Args:
            manager: The logs.
            clock: Time.
            threads: Logs that may be compacted at a time (Kafka's log.cleaner.threads).
            backoff_ms: How long to wait where none is dirty enough (Kafka's log.cleaner.backoff.ms).
        """
        self._manager = manager
        self._clock = clock
        self._backoff_s = backoff_ms / 1000
        self._executor = ThreadPoolExecutor(max_workers=max(threads, 1), thread_name_prefix="compactor")
        self._tasks = [asyncio.create_task(self._go_on()) for _ in range(threads)]

    async def stop(self) -> None:
        """Gives up what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for log in self._manager:
            log.abandon_cleaning()
        await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(self._backoff_s)
            try:
                while await self._clean_one():
                    pass
            except LogError as error:
                _LOG.error("compaction: %s", error)
            except Exception:
                # Whatever one log ran into, the others must be compacted.
                _LOG.exception("compaction failed")

    async def _clean_one(self) -> bool:
        cleaning = self._manager.next_cleaning(self._clock.now_ms())
        if cleaning is None:
            return False
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._executor, cleaning.run)
        while cleaning.complete(self._clock.now_ms()):
            await loop.run_in_executor(self._executor, cleaning.run)
        return True
