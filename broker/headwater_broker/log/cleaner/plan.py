"""What of a log is to be compacted, and whether that is worth while. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headwater_broker.log.config import INT_MAX, LONG_MAX, LogConfig
from headwater_broker.log.segment import Segment


@dataclass(frozen=True, slots=True)
class Dirt:
    """The state of one log.

    Attributes:
        first_dirty_offset: Everything before it was compacted; records after it may supersede any before.
        first_uncleanable_offset: Where a segment begins that may not be touched yet.
        clean_bytes: In segments before the first dirty offset.
        dirty_bytes: In segments from there up to the first uncleanable offset.
        is_overdue: A record has waited for longer than `max.compaction.lag.ms`.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        """How much of what can be compacted is dirty."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_worth_while(self, config: LogConfig) -> bool:
        """Whether the log is to be compacted now."""
        return self.dirty_bytes > 0 and (self.is_overdue or self.ratio > config.min_cleanable_dirty_ratio)


def measure_dirt(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    now_ms: int,
    cleaned_offset: int | None,
    log_start_offset: int,
    end_offset: int,
    first_timestamp_ms: Callable[[Segment], int],
    modified_ms: Callable[[Segment], int],
) -> Dirt:
    """Looks at one log.

    Args:
        segments: All of them; the newest is never compacted.
        config: The topic's settings.
        now_ms: The wall clock.
        cleaned_offset: Up to where it was compacted before, if ever.
        log_start_offset: Of the log.
        end_offset: What lies at or past it is not touched: not stable or not flushed yet.
        first_timestamp_ms: Of a segment's first batch, asked where `max.compaction.lag.ms` is set.
        modified_ms: When a segment's file was last written, asked for those without timestamps.
    """
    newest = segments[-1]
    first_dirty = log_start_offset
    if cleaned_offset is not None and log_start_offset <= cleaned_offset <= newest.base_offset:
        first_dirty = cleaned_offset
    sealed = list(pairwise(segments))
    uncleanable = min(end_offset, newest.base_offset)
    is_overdue = False
    for segment, following in sealed:
        if following.base_offset <= first_dirty:
            continue
        if config.min_compaction_lag_ms:
            latest_ms = segment.max_timestamp_ms if segment.max_timestamp_ms >= 0 else modified_ms(segment)
            if latest_ms > now_ms - config.min_compaction_lag_ms:
                uncleanable = min(uncleanable, segment.base_offset)
        if config.max_compaction_lag_ms != LONG_MAX and not is_overdue:
            first_ms = first_timestamp_ms(segment)
            is_overdue = 0 < first_ms < now_ms - config.max_compaction_lag_ms
    # Only whole segments are touched.
    uncleanable = max(
        (segment.base_offset for segment in segments if segment.base_offset <= uncleanable),
        default=segments[0].base_offset,
    )
    clean_bytes = dirty_bytes = 0
    for segment, following in sealed:
        if following.base_offset <= first_dirty:
            clean_bytes += segment.size_bytes
        elif following.base_offset <= uncleanable:
            dirty_bytes += segment.size_bytes
    return Dirt(first_dirty, max(uncleanable, first_dirty), clean_bytes, dirty_bytes, is_overdue)


def group_segments(segments: Sequence[Segment], end_offset: int, config: LogConfig) -> list[list[Segment]]:
    """Neighbours that fit together into one segment, so that small ones do not pile up.

    Args:
        segments: Those to be compacted, in order.
        end_offset: Where the last of them ends.
        config: The topic's settings.
    """
    groups: list[list[Segment]] = []
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    size_bytes = index_bytes = 0
    for segment, segment_end in zip(segments, ends, strict=True):
        index_size = max(segment.index_bytes())
        if (
            groups
            and size_bytes + segment.size_bytes <= config.segment_bytes
            and index_bytes + index_size <= config.segment_index_bytes
            and segment_end - 1 - groups[-1][0].base_offset <= INT_MAX
        ):
            groups[-1].append(segment)
            size_bytes += segment.size_bytes
            index_bytes += index_size
        else:
            groups.append([segment])
            size_bytes, index_bytes = segment.size_bytes, index_size
    return groups
