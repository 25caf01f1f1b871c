"""Join operators: each takes two DataFrames, their time columns and a bound in time, and gives a DataFrame."""

from headwater_streams.joins.interval import IntervalJoin, join

__all__ = ["IntervalJoin", "join"]
