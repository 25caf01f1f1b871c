"""Waiting for what this broker itself appends to a log."""

import asyncio

from headwater_broker.log import LogError, PartitionLog, PartitionOfflineError
from headwater_broker.server.core import Core
from headwater_broker.server.flusher import Flusher


class DurableWrites:
    """Tells when a log has been written, or flushed where the topic's settings make acks=all wait for that."""

    def __init__(self, core: Core, flusher: Flusher) -> None:
        self._core = core
        self._flusher = flusher
        self._waiting: dict[PartitionLog, list[tuple[int, asyncio.Future[None]]]] = {}
        core.on_written(self._written)

    def wait(self, log: PartitionLog, end_offset: int) -> asyncio.Future[None]:
        """Has what was appended before `end_offset` written at the end of this tick.

        Returns:
            Done once it is; it raises `LogError` where the disk refused.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if log.config.acks_fsync:
            self._flusher.when_flushed(log, end_offset, lambda _, error: _settle(future, error))
        else:
            self._waiting.setdefault(log, []).append((end_offset, future))
        self._core.write(log)
        return future

    def _written(self, log: PartitionLog) -> None:
        for end_offset, future in self._waiting.pop(log, ()):
            _settle(future, log.write_error if end_offset > log.written_offset else None)


def _settle(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(
            error.again() if isinstance(error, PartitionOfflineError) else LogError(str(error))
        )
