"""Group commit: one fsync of a log at a time, in a helper thread, for everybody who waits for it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from headwater_broker.log import Flush, LogError, PartitionLog

Flushed = Callable[[PartitionLog, Exception | None], None]
"""Called with the log and what went wrong, if anything."""


class Flusher:
    """Runs flushes beside the loop; everything else of it belongs to the loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        on_exposed: Callable[[PartitionLog], None],
    ) -> None:
        """Makes it.

        Args:
            loop: The loop of the logs' thread.
            executor: Where fsync may block.
            on_exposed: Called after each flush, since it may have made messages visible.
        """
        self._loop = loop
        self._executor = executor
        self._on_exposed = on_exposed
        self._running: set[PartitionLog] = set()
        self._waiting: dict[PartitionLog, list[tuple[int, Flushed]]] = {}

    def when_flushed(self, log: PartitionLog, end_offset: int, callback: Flushed) -> None:
        """Calls back once everything before `end_offset` is on the disk.

        The batch need not be written yet: the end of this tick, which writes it, also starts the flush.
        """
        self._waiting.setdefault(log, []).append((end_offset, callback))

    def written(self, log: PartitionLog, now_ms: int) -> None:
        """Starts a flush of a log that was just written, if somebody waits for it or its settings say so."""
        error = log.write_error
        if log.refusal is not None and not log.is_waiting:
            self._release(log, -1, log.refusal)
            return
        if error is not None and log in self._waiting:
            # What was appended in this tick is lost; what was written before is on its way to the disk.
            self._release(log, log.log_end_offset, error)
        if log in self._waiting or log.flush_due(now_ms):
            self._start(log)

    def run(self, flush: Flush, log: PartitionLog) -> None:
        """Runs a flush that was started elsewhere."""
        if log not in self._running:
            self._running.add(log)
            future = self._loop.run_in_executor(self._executor, flush.run)
            future.add_done_callback(lambda _: self._complete(log, flush))

    def _start(self, log: PartitionLog) -> None:
        if log in self._running:
            return
        flush = log.start_flush()
        if flush is None:
            self._release(log, log.recovery_point, None)
        else:
            self.run(flush, log)

    def _complete(self, log: PartitionLog, flush: Flush) -> None:
        self._running.discard(log)
        try:
            recovery_point = flush.complete()
        except LogError as error:
            self._release(log, -1, error)
            return
        self._release(log, recovery_point, None)
        self._on_exposed(log)
        if log in self._waiting:
            self._start(log)

    def _release(self, log: PartitionLog, end_offset: int, error: Exception | None) -> None:
        """Calls back those who wait for what is before `end_offset`; with an error, those who wait for more."""
        waiting = self._waiting.pop(log, [])
        still = []
        for until_offset, callback in waiting:
            if (until_offset <= end_offset) is (error is None):
                callback(log, error)
            else:
                still.append((until_offset, callback))
        if still:
            self._waiting[log] = still
