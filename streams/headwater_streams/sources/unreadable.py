"""Batches that a broker took and that nobody can read, as a job meets them.

Headwater's broker looks at every record before it acknowledges a batch. What an older version took, or another program
wrote into the log, may be a batch whose records are not what its header says: Kafka's clients stop there for ever. To a
consumer that says it stands in the rack `headwater-past-unreadable` the broker gives one record for the whole batch: at
its first offset, with the batch's bytes as value, and why it cannot be read in a header. Other brokers make nothing of
the rack, and their clients end with the sentence of Kafka's.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater_streams.sources.problems import Problem

PAST_UNREADABLE = "headwater-past-unreadable"
"""What a consumer sets as its `client.rack`; the broker has the same in `wire.fetch`."""

_HEADER = "headwater-unreadable"


def unreadable(headers: Column) -> Problem:
    """A record that stands for a batch that cannot be read; its condition is never NULL."""
    first = F.get(headers, F.lit(0))
    return Problem("unreadable", first["key"].eqNullSafe(F.lit(_HEADER)), first["value"].cast("string"))
