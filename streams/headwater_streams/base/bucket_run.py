"""Stretches of a topic's records that are of one bucket of time."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BucketRun:
    """Records of a partition that follow each other without a gap and are of one bucket.

    Attributes:
        start: The first offset.
        end: One past the last.
        bucket_start_ms: When their bucket begins, in milliseconds since the epoch.
    """

    start: int
    end: int
    bucket_start_ms: int
