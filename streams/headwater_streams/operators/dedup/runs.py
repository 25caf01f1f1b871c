"""Coordinates in runs: records that follow each other here as they did at their origin.

A producer, a mirror or a shipper sends in order, so a batch of a million records is a handful of runs, and a resend
begins another. Counting runs takes Spark a tenth of the time of handing over every record.
"""

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.sources.coordinates import OFFSET, PARTITION, TOPIC

_AHEAD = "_ahead"


def coordinates(located: DataFrame, key: Column, at: Column) -> pa.Table:
    """Where each record first stood, for `verdicts.judge`: `key, at, _topic, _partition, _offset`.

    Args:
        located: Records with `_topic, _partition, _offset`; it is read twice where a run has gaps (a compacted topic,
            control records), else once.
        key: The origin partition of a record.
        at: Its offset there.
    """
    rows = located.select(key.alias("key"), TOPIC, PARTITION, OFFSET, (at - F.col(OFFSET)).alias(_AHEAD))
    bounds = F.min(OFFSET).alias("first"), F.max(OFFSET).alias("last"), F.count(F.lit(1)).alias("rows")
    whole = unrolled(rows.groupBy("key", TOPIC, PARTITION, _AHEAD).agg(*bounds).toArrow())
    if whole is None:
        whole = rows.toArrow()
    at_origin = pa.array(whole[OFFSET].to_numpy() + whole[_AHEAD].to_numpy())
    return whole.drop([_AHEAD]).append_column("at", at_origin)


def unrolled(runs: pa.Table) -> pa.Table | None:
    """The records of runs (`key, _topic, _partition, _ahead, first, last, rows`), or None where one has gaps.

    Offsets of a partition are unique: a run that has as many records as offsets has every one of them.
    """
    first, rows = runs["first"].to_numpy(), runs["rows"].to_numpy()
    if (runs["last"].to_numpy() - first + 1 != rows).any():
        return None
    of = np.repeat(np.arange(len(rows)), rows)
    offsets = np.arange(len(of)) + np.repeat(first - (np.cumsum(rows) - rows), rows)
    return runs.select(["key", TOPIC, PARTITION, _AHEAD]).take(of).append_column(OFFSET, pa.array(offsets))
