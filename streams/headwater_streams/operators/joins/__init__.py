"""Join operators: each takes two DataFrames, the columns that must be equal and a bound in time."""

from headwater_streams.operators.joins.as_of import AsOf, as_of
from headwater_streams.operators.joins.enrich import enrich
from headwater_streams.operators.joins.interval import IntervalJoin, join
from headwater_streams.operators.joins.union import union

__all__ = ["AsOf", "IntervalJoin", "as_of", "enrich", "join", "union"]
