"""Where the records of mirrored topics first stood, as columns: for those that carry no origin of their own.

`mirrored` describes what a mirror keeps. A record that has origin headers, as a shipper sends them, keeps these: they
say more, and what the shipper sent twice stands at two offsets of the mirrored topic.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.sources.coordinates import OFFSET, ORIGIN, ORIGIN_TYPE, PARTITION, TOPIC
from headwater_streams.sources.mirrored import MirrorMap, Runs
from headwater_streams.spark.columns import cols

_FIELDS = (
    "_run_block",
    "_run_topic",
    "_run_partition",
    "_run_start",
    "_run_end",
    "_run_cluster",
    "_run_name",
    "_run_ahead",
)
_BITS_AT_ONCE = 4
"""The length of a block is a literal, and Spark compiles a plan of other literals anew: so there are few lengths."""


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


def runs_within(
    found: MirrorMap,
    ranges: Ranges,
    names: Mapping[str, str],
    topic_id: Callable[[str], str | None] = lambda _: None,
) -> list[OriginRun]:
    """The runs that offsets belong to; none of topics that are no mirrors.

    Args:
        found: What the cluster's mirrors keep.
        ranges: The offsets, by topic as Headwater calls it, and by partition.
        names: What the cluster itself calls these topics.
        topic_id: Tells a topic's id, as Headwater calls the topic; None where it is not known.
    """
    runs = []
    for topic, partitions in ranges.items():
        record = found.topics.get(names[topic])
        mirror = found.mirrors.get(record.source) if record is not None else None
        if record is None or mirror is None or (record.here_id and not record.is_here(topic_id(topic))):
            continue
        for partition, (start, end) in sorted(partitions.items()):
            kept = found.runs.get((names[topic], partition), Runs())
            for first, behind, ahead in kept.between(start, record.mirrored_before(partition, end)):
                runs.append(OriginRun(topic, partition, first, behind, mirror.name, record.origin, ahead))
    return runs


def in_blocks(runs: Sequence[OriginRun]) -> tuple[int, list[tuple[int, OriginRun]]]:
    """Each run with the blocks of offsets that it has a part of; a record is compared with those of its block alone.

    A topic of small transactions has a run for each of them, and without blocks each record would be compared with
    each run of its partition. A block is about as long as a run, so that neither is much more than the other.

    Returns:
        The logarithm of a block's length to the base of 2, and blocks and runs.
    """
    mean = sum(run.end - run.start for run in runs) // max(len(runs), 1)
    bits = -(-mean.bit_length() // _BITS_AT_ONCE) * _BITS_AT_ONCE
    return bits, [
        (block, run) for run in runs for block in range(run.start >> bits, (run.end - 1 >> bits) + 1)
    ]


def with_origins(located: DataFrame, runs: Sequence[OriginRun]) -> DataFrame:
    """Located records with the origins of those that have none and belong to a run."""
    if not runs:
        return located
    bits, blocks = in_blocks(runs)
    columns = [pa.array([block for block, _ in blocks], pa.int64())]
    columns += [
        pa.array([getattr(run, name) for _, run in blocks], kind)
        for name, kind in (
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("start", pa.int64()),
            ("end", pa.int64()),
            ("cluster", pa.string()),
            ("name", pa.string()),
            ("ahead", pa.int64()),
        )
    ]
    # As a table, not as literals: these would have Spark compile the plan anew for each batch.
    table = located.sparkSession.createDataFrame(pa.table(dict(zip(_FIELDS, columns, strict=True))))
    block, topic, partition, start, end, cluster, name, ahead = (F.col(each) for each in _FIELDS)
    inside = (F.col(TOPIC) == topic) & (F.col(PARTITION) == partition)
    inside &= F.shiftright(OFFSET, bits) == block
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
