"""Aggregation by key without windows, the newest row of each key, and aggregates that windows and keys share."""

from headwater_streams.operators.aggregates.grouped import KeyGroups, grouped
from headwater_streams.operators.aggregates.latest import latest
from headwater_streams.operators.aggregates.top import top

__all__ = ["KeyGroups", "grouped", "latest", "top"]
