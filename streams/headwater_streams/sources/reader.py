"""Where records come from: topics of clusters, or the record log of the test driver. Both give `RAW_SCHEMA`."""

import json
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater_streams.base.errors import DataLossError
from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.base.topics import cluster_of
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.mirror_reader import MirrorReader
from headwater_streams.sources.origins import OriginRun, runs_within
from headwater_streams.sources.record_count import count_records
from headwater_streams.sources.topic_metadata import TopicIds, first_since, partitions
from headwater_streams.sources.unreadable import PAST_UNREADABLE
from headwater_streams.spark.checkpoint import begin_kafka, kafka_start

_EARLIEST, _LATEST = -2, -1
_ISOLATION = "kafka.isolation.level"
_RACK = "kafka.client.rack"
_ASKING = {
    # How long Spark asks a broker that is away, before the job says so and is tried again after a pause of its own.
    # Each try takes the API's timeout: three of 10 s took 34 s. With the defaults, three of 60 s, Spark still asked
    # after 100 s, and a stop then took 21 s.
    "fetchOffset.numRetries": "1",
    "kafka.default.api.timeout.ms": "15000",
    "kafka.request.timeout.ms": "10000",
    # A task that waits for records waits as long as for an answer about them; Spark's default is 120 s.
    "kafkaConsumer.pollTimeoutMs": "30000",
    # After a task has read a range, it asks how far the log reaches. Before that the consumer has sent a fetch for the
    # next records. A broker answers a connection in order, and holds that fetch for as long as this: 0.5 s by default,
    # for each partition of each batch.
    "kafka.fetch.max.wait.ms": "1",
    # A task asks that twice for every so many records, 500 by default: 7,000 requests for two million records. That is
    # a twentieth of a simple job's time over the loopback, and more over a network. A greater number takes more of the
    # heap and gains nothing.
    "kafka.max.poll.records": "2000",
}

Starts = Mapping[str, Mapping[int, int]]
"""The first offset to read, by topic and partition; a partition that is not named begins at its earliest."""


class RecordSource(Protocol):
    """A source of topics."""

    may_repeat: bool
    """Whether a query may get an offset again that it has read."""

    def require_cluster(self, topic: str) -> None:
        """Requires that the cluster of a topic is known; nobody is asked whether it answers.

        Raises:
            JobDefinitionError: The settings do not have it, or are wrong.
        """

    def partitions(self, topic: str) -> dict[int, tuple[int, int]]:
        """The topic's partitions, each with its earliest and its next offset.

        Raises:
            JobDefinitionError: There is no such topic.
        """

    def first_since(self, topic: str, time_us: int) -> dict[int, int]:
        """The first offset of each partition whose record's timestamp is not before a time.

        Args:
            topic: The topic.
            time_us: Microseconds since the epoch, in UTC.

        Returns:
            A partition without such a record is not named.

        Raises:
            UnavailableError: The broker does not answer.
        """

    def topic_id(self, topic: str) -> str | None:
        """What distinguishes the topic from another one of the same name; None where there is no id, or no answer."""

    def stream(self, spark: SparkSession, declared: TopicInput, starts: Starts) -> DataFrame:
        """The topic as a stream."""

    def read(
        self,
        spark: SparkSession,
        topic: str,
        ranges: Mapping[int, tuple[int, int]],
        *,
        most_records: int | None = None,
    ) -> DataFrame:
        """The records of closed ranges, as a batch.

        Args:
            spark: The session.
            topic: The topic.
            ranges: The offsets, by partition.
            most_records: The most offsets that one task reads; by default a task reads a partition's.

        Raises:
            DataLossError: A part of a range no longer exists.
        """

    def origins(self, ranges: Ranges) -> list[OriginRun]:
        """Where the records of mirrored topics first stood; nothing of other topics.

        Args:
            ranges: The offsets that are read.

        Raises:
            UnavailableError: The broker does not answer.
        """

    def count_records(self, topic: str, partition: int, start: int, end: int) -> int:
        """The number of records in the offsets `[start, end)`, counted without Spark.

        Raises:
            UnavailableError: The broker does not answer.
        """

    def is_offset_of(self, declared: TopicInput, offset: dict[str, Any]) -> bool:
        """Whether a line of the checkpoint's offset log is about one of these topics."""

    def ranges(
        self,
        declared: TopicInput,
        checkpoint: Path,
        source: int,
        before: dict[str, Any] | None,
        end: dict[str, Any],
    ) -> Ranges:
        """The offsets of a batch in one line of the log, from where the batch before ended (None: from the start)."""

    def begin(self, declared: TopicInput, checkpoint: Path, source: int, ranges: Ranges) -> list[str]:
        """Makes a new checkpoint's first batch read these offsets, and returns its lines of the offset log.

        Args:
            declared: The input that names the topics.
            checkpoint: The query's checkpoint, in which nothing is planned yet.
            source: The place of the topics among the query's sources.
            ranges: The offsets, of every existing partition.
        """


class KafkaSource:
    """Topics of a cluster that speaks Kafka's protocol, through Spark's own source.

    Records of a transaction are read once it is committed, and never if it is aborted. For a batch whose records cannot
    be read, Headwater's broker gives one record, which is bad; see `sources.unreadable`.
    """

    may_repeat = False

    def __init__(
        self,
        cluster: KafkaCluster | str,
        options: Mapping[str, str] | None = None,
        *,
        folder: Path | None = None,
    ) -> None:
        """A source of a cluster's topics.

        Args:
            cluster: The cluster; or its brokers, `host:port`, where these ask for no login.
            options: Further options of Spark's Kafka source.
            folder: Where a file of the client's secrets may be, which all of Spark's processes see; None if they all
                run on this machine, as this user.
        """
        self._cluster = cluster if isinstance(cluster, KafkaCluster) else KafkaCluster(cluster)
        self._folder = folder
        self._ids = TopicIds(self._cluster)
        self._mirrors = MirrorReader(self._cluster)
        self._reading = {_ISOLATION: "read_committed", _RACK: PAST_UNREADABLE}
        self._more = dict(options or {})

    @cached_property
    def _options(self) -> dict[str, str]:
        """What Spark's source is given; it stands in plans, so no secret may be in it."""
        return {
            "includeHeaders": "true",
            **_ASKING,
            **self._cluster.spark_options(self._folder),
            **self._reading,
            **self._more,
        }

    def require_cluster(self, topic: str) -> None:
        """See `RecordSource`; there is one only."""

    def partitions(self, topic: str) -> dict[int, tuple[int, int]]:
        """See `RecordSource`."""
        return partitions(self._cluster, topic)

    def first_since(self, topic: str, time_us: int) -> dict[int, int]:
        """See `RecordSource`."""
        return first_since(self._cluster, topic, -(-time_us // 1000))

    def topic_id(self, topic: str) -> str | None:
        """See `RecordSource`."""
        return self._ids.of(topic)

    def stream(self, spark: SparkSession, declared: TopicInput, starts: Starts) -> DataFrame:
        """See `RecordSource`."""
        topics = ",".join(map(self._cluster.bare, declared.names))
        reader = spark.readStream.format("kafka").options(**self._options).option("subscribe", topics)
        begin = {topic: starts.get(topic, {}) for topic in declared.names}
        if any(
            begin.values()
        ):  # every partition of each topic must be named, those that came since then, too
            begin = {
                topic: {partition: at.get(partition, _EARLIEST) for partition in self.partitions(topic)}
                for topic, at in begin.items()
            }
        reader = reader.option("startingOffsets", self._offsets_json(begin, _EARLIEST))
        reader = reader.option("maxOffsetsPerTrigger", str(declared.max_offsets_per_batch))
        return self._named(reader.load())

    def read(
        self,
        spark: SparkSession,
        topic: str,
        ranges: Mapping[int, tuple[int, int]],
        *,
        most_records: int | None = None,
    ) -> DataFrame:
        """See `RecordSource`."""
        bounds = self.partitions(topic)
        for partition, (start, end) in ranges.items():
            earliest, following = bounds.get(partition, (0, 0))
            if start < end and (start < earliest or end > following):
                requested, available = f"[{start}, {end})", f"[{earliest}, {following})"
                raise DataLossError(
                    f"{topic} {partition}: offsets {requested} are asked for, and {available} are there"
                )
        # Every partition must be named; one that is not requested is read from its end to its end.
        starts = {p: ranges[p][0] if p in ranges else end for p, (_, end) in bounds.items()}
        ends = {p: ranges[p][1] if p in ranges else end for p, (_, end) in bounds.items()}
        reader = spark.read.format("kafka").options(**self._options)
        reader = reader.option("subscribe", self._cluster.bare(topic))
        reader = reader.option("startingOffsets", self._offsets_json({topic: starts}, _EARLIEST))
        reader = reader.option("endingOffsets", self._offsets_json({topic: ends}, _LATEST))
        if most_records is not None:
            reader = reader.option("maxRecordsPerPartition", str(most_records))
        return self._named(reader.load().drop("timestampType"))

    def origins(self, ranges: Ranges) -> list[OriginRun]:
        """See `RecordSource`."""
        return runs_within(
            self._mirrors.newest(),
            ranges,
            {topic: self._cluster.bare(topic) for topic in ranges},
            self.topic_id,
        )

    def count_records(self, topic: str, partition: int, start: int, end: int) -> int:
        """See `RecordSource`."""
        reading = self._reading | {name: self._more[name] for name in self._reading if name in self._more}
        settings = {name.removeprefix("kafka."): value for name, value in reading.items()}
        return count_records(self._cluster, settings, topic, partition, start, end)

    def is_offset_of(self, declared: TopicInput, offset: dict[str, Any]) -> bool:
        """See `RecordSource`."""
        return any(self._cluster.bare(topic) in offset for topic in declared.names)

    def ranges(
        self,
        declared: TopicInput,
        checkpoint: Path,
        source: int,
        before: dict[str, Any] | None,
        end: dict[str, Any],
    ) -> Ranges:
        """See `RecordSource`."""
        starts = before or kafka_start(checkpoint, source)
        bare_names = {topic: self._cluster.bare(topic) for topic in declared.names}
        return {
            topic: {
                int(p): (int(starts.get(bare, {}).get(p, 0)), int(offset))
                for p, offset in sorted(end[bare].items())
            }
            for topic, bare in bare_names.items()
            if bare in end
        }

    def begin(self, declared: TopicInput, checkpoint: Path, source: int, ranges: Ranges) -> list[str]:
        """See `RecordSource`."""
        starts, ends = (
            {
                self._cluster.bare(topic): {
                    str(partition): pair[bound] for partition, pair in ranges[topic].items()
                }
                for topic in declared.names
                if topic in ranges
            }
            for bound in (0, 1)
        )
        begin_kafka(checkpoint, source, json.dumps(starts))
        return [json.dumps(ends)]

    def _named(self, records: DataFrame) -> DataFrame:
        """Records of the source, their topics as Headwater calls them."""
        if not self._cluster.name:
            return records
        return records.withColumn("topic", F.concat(F.lit(self._cluster.named("")), F.col("topic")))

    def _offsets_json(self, offsets: Starts, otherwise: int) -> str:
        if not any(offsets.values()):
            return "earliest" if otherwise == _EARLIEST else "latest"
        return json.dumps(
            {
                self._cluster.bare(topic): {str(partition): offset for partition, offset in at.items()}
                for topic, at in offsets.items()
            }
        )


class KafkaSources:
    """Topics of several clusters: of the one that is meant where none is named, and of those that topics name."""

    may_repeat = False

    def __init__(
        self,
        named: Callable[[str], KafkaCluster],
        options: Mapping[str, str] | None = None,
        *,
        folder: Path | None = None,
    ) -> None:
        """A source of topics of any cluster.

        Args:
            named: Gives a cluster by its name, by an empty one that of topics that name none; it is called when a topic
                of it is first read. It raises `JobDefinitionError` where there is none of that name, or its settings
                are wrong.
            options: As in `KafkaSource`.
            folder: As in `KafkaSource`.
        """
        self._named = named
        self._options, self._folder = options, folder
        self._sources: dict[str, KafkaSource] = {}

    def _of(self, topic: str) -> KafkaSource:
        name = cluster_of(topic)
        if name not in self._sources:
            self._sources[name] = KafkaSource(self._named(name), self._options, folder=self._folder)
        return self._sources[name]

    def require_cluster(self, topic: str) -> None:
        """See `RecordSource`."""
        self._of(topic)

    def partitions(self, topic: str) -> dict[int, tuple[int, int]]:
        """See `RecordSource`."""
        return self._of(topic).partitions(topic)

    def first_since(self, topic: str, time_us: int) -> dict[int, int]:
        """See `RecordSource`."""
        return self._of(topic).first_since(topic, time_us)

    def topic_id(self, topic: str) -> str | None:
        """See `RecordSource`."""
        return self._of(topic).topic_id(topic)

    def stream(self, spark: SparkSession, declared: TopicInput, starts: Starts) -> DataFrame:
        """See `RecordSource`."""
        return self._of(declared.name).stream(spark, declared, starts)

    def read(
        self,
        spark: SparkSession,
        topic: str,
        ranges: Mapping[int, tuple[int, int]],
        *,
        most_records: int | None = None,
    ) -> DataFrame:
        """See `RecordSource`."""
        return self._of(topic).read(spark, topic, ranges, most_records=most_records)

    def origins(self, ranges: Ranges) -> list[OriginRun]:
        """See `RecordSource`."""
        runs = []
        for name in dict.fromkeys(map(cluster_of, ranges)):
            mine = {topic: offsets for topic, offsets in ranges.items() if cluster_of(topic) == name}
            runs += self._of(next(iter(mine))).origins(mine)
        return runs

    def count_records(self, topic: str, partition: int, start: int, end: int) -> int:
        """See `RecordSource`."""
        return self._of(topic).count_records(topic, partition, start, end)

    def is_offset_of(self, declared: TopicInput, offset: dict[str, Any]) -> bool:
        """See `RecordSource`."""
        return self._of(declared.name).is_offset_of(declared, offset)

    def ranges(
        self,
        declared: TopicInput,
        checkpoint: Path,
        source: int,
        before: dict[str, Any] | None,
        end: dict[str, Any],
    ) -> Ranges:
        """See `RecordSource`."""
        return self._of(declared.name).ranges(declared, checkpoint, source, before, end)

    def begin(self, declared: TopicInput, checkpoint: Path, source: int, ranges: Ranges) -> list[str]:
        """See `RecordSource`."""
        return self._of(declared.name).begin(declared, checkpoint, source, ranges)
