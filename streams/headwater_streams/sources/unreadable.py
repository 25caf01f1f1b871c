"""Batches in a broker's log that cannot be read, as a job sees them.

Headwater's broker checks every record before it acknowledges a batch. A batch that an older version accepted, or that
another program wrote into the log, may have other records than its header says: Kafka's clients stop there for ever. To
a consumer with the rack `headwater-past-unreadable` the broker gives one record for the whole batch: at its first
offset, with the batch's bytes as value, and the reason in a header. Other brokers ignore the rack, and their clients
end with Kafka's error.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater_streams.sources.problems import Problem

PAST_UNREADABLE = "headwater-past-unreadable"
"""The `client.rack` that a consumer sets; the broker has the same in `wire.fetch`."""

_HEADER = "headwater-unreadable"


def unreadable(headers: Column) -> Problem:
    """A record that stands for a batch that cannot be read; its condition is never NULL."""
    first = F.get(headers, F.lit(0))
    return Problem("unreadable", first["key"].eqNullSafe(F.lit(_HEADER)), first["value"].cast("string"))
