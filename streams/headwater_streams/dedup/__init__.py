"""Deduplication: by offset (what was delivered again), and what a job says about it."""

from headwater_streams.dedup.by_offset import ByOffset, by_offset
from headwater_streams.dedup.intervals import IntervalSet

__all__ = ["ByOffset", "IntervalSet", "by_offset"]
