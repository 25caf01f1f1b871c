"""Where the records of mirrored topics first stood, as columns: for those that carry no origin of their own.

`mirrored` describes what a mirror keeps. A record that has origin headers, as a shipper sends them, keeps these: they
say more, and what the shipper sent twice stands at two offsets of the mirrored topic.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.sources.coordinates import OFFSET, ORIGIN, ORIGIN_TYPE, PARTITION, TOPIC
from headwater_streams.sources.mirrored import MirrorMap
from headwater_streams.spark.columns import cols

_FIELDS = (
    "_run_topic",
    "_run_partition",
    "_run_start",
    "_run_end",
    "_run_cluster",
    "_run_name",
    "_run_ahead",
)


@dataclass(frozen=True)
class OriginRun:
    """Offsets of a mirrored partition whose records followed each other at their origin, too.

    Attributes:
        topic: The topic, as Headwater calls it.
        partition: The partition, here and there.
        start: The first offset.
        end: The offset behind the last one.
        cluster: What the mirror calls the cluster that the records come from.
        name: The topic's name there.
        ahead: What is added to an offset for that at the origin.
    """

    topic: str
    partition: int
    start: int
    end: int
    cluster: str
    name: str
    ahead: int


def runs_within(found: MirrorMap, ranges: Ranges, names: Mapping[str, str]) -> list[OriginRun]:
    """The runs that offsets belong to; none of topics that are no mirrors.

    Args:
        found: What the cluster's mirrors keep.
        ranges: The offsets, by topic as Headwater calls it, and by partition.
        names: What the cluster itself calls these topics.
    """
    runs = []
    for topic, partitions in ranges.items():
        record = found.topics.get(names[topic])
        mirror = found.mirrors.get(record.source) if record is not None else None
        if record is None or mirror is None:
            continue
        for partition, (start, end) in sorted(partitions.items()):
            kept = list(found.runs.get((names[topic], partition), ()))
            ends = [here for here, _ in kept[1:]] + [end]
            for (here, there), behind in zip(kept, ends, strict=False):
                first, last = max(here, start), min(behind, end)
                if first < last:
                    run = OriginRun(topic, partition, first, last, mirror.name, record.origin, there - here)
                    runs.append(run)
    return runs


def with_origins(located: DataFrame, runs: list[OriginRun]) -> DataFrame:
    """Located records with the origins of those that have none and belong to a run."""
    if not runs:
        return located
    values = [
        [getattr(run, name) for run in runs]
        for name in ("topic", "partition", "start", "end", "cluster", "name", "ahead")
    ]
    types = (pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.string(), pa.string(), pa.int64())
    arrays = [pa.array(each, kind) for each, kind in zip(values, types, strict=True)]
    # As a table, not as literals: these would have Spark compile the plan anew for each batch.
    table = located.sparkSession.createDataFrame(pa.table(dict(zip(_FIELDS, arrays, strict=True))))
    topic, partition, start, end, cluster, name, ahead = (F.col(each) for each in _FIELDS)
    inside = (F.col(TOPIC) == topic) & (F.col(PARTITION) == partition)
    inside &= (F.col(OFFSET) >= start) & (F.col(OFFSET) < end)
    of_run = F.struct(
        cluster.alias("cluster"),
        name.alias("topic"),
        F.col(PARTITION).alias("partition"),
        (F.col(OFFSET) + ahead).alias("offset"),
    ).cast(ORIGIN_TYPE)
    origin = F.coalesce(F.col(ORIGIN), F.when(cluster.isNotNull(), of_run))
    joined = located.join(F.broadcast(table), inside, "left").withColumn(ORIGIN, origin)
    return joined.select(*cols(located.columns))
