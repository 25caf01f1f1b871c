"""Which of the oldest segments may go."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from headwater_broker.log.config import LogConfig
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.segment import Segment

_LOGGER = logging.getLogger(__name__)


def expired_segments(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
    modified_ms: Callable[[Segment], int],
) -> int:
    """How many segments from the oldest on are to be deleted.

    The newest is among them only where every record of it is too old, or none is to be kept (`retention.bytes=0`); it
    must be rolled first. Nothing at or past the high watermark goes.

    Args:
        segments: Of one log, in order.
        config: The topic's settings.
        now_ms: The wall clock.
        log_start_offset: Segments wholly before it go whatever the policy.
        high_watermark: Of the log.
        log_end_offset: Of the log.
        modified_ms: When a segment's file was last written, asked for those without timestamps.
    """
    ends = [segment.base_offset for segment in segments[1:]] + [log_end_offset]
    excess_bytes = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    count = 0
    for index, (segment, end_offset) in enumerate(zip(segments, ends, strict=True)):
        newest = index == len(segments) - 1
        if end_offset > high_watermark or (newest and not segment.size_bytes):
            break
        latest_ms = segment.max_timestamp_ms if segment.max_timestamp_ms >= 0 else modified_ms(segment)
        expired = config.deletes and 0 <= config.retention_ms < now_ms - latest_ms
        before_start = end_offset <= log_start_offset and not newest
        excess = config.deletes and config.retention_bytes >= 0 and excess_bytes >= segment.size_bytes
        if not (expired or before_start or excess):
            break
        excess_bytes -= segment.size_bytes
        count += 1
    return count


class DeletedFiles:
    """Files under a `.deleted` name that wait for `file.delete.delay.ms`."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._waiting: list[tuple[int, str]] = []
        self._refused: set[str] = set()

    def add(self, due_ms: int, paths: Sequence[str]) -> None:
        """Files to be removed at `due_ms`."""
        self._waiting.extend((due_ms, path) for path in paths)

    def remove_due(self, now_ms: int) -> None:
        """Removes those whose time has come; what the disk refuses is tried again the next time."""
        if self._waiting:
            self._waiting = [
                waiting for waiting in self._waiting if waiting[0] > now_ms or not self._remove(waiting[1])
            ]

    def _remove(self, path: str) -> bool:
        try:
            self._fs.remove(path)
        except OSError as error:
            if path not in self._refused:
                self._refused.add(path)
                _LOGGER.warning("cannot remove %s, which is tried again: %s", path, error.strerror or error)
            return False
        self._refused.discard(path)
        return True
