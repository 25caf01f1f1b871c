"""Deduplication: by offset or sequence (records delivered again) and by key (records written twice)."""

from headwater_streams.operators.dedup.by_key import ByKey, by_key
from headwater_streams.operators.dedup.by_offset import ByOffset, by_offset
from headwater_streams.operators.dedup.by_sequence import BySequence, by_sequence
from headwater_streams.operators.dedup.intervals import IntervalSet

Dedup = ByOffset | BySequence | ByKey
"""The deduplication of a job, which is done before anything else."""

__all__ = [
    "ByKey",
    "ByOffset",
    "BySequence",
    "Dedup",
    "IntervalSet",
    "by_key",
    "by_offset",
    "by_sequence",
]
