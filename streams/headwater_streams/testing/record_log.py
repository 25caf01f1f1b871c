"""A topic without a broker: a Delta table of records, appended by the test driver, read as a stream or a batch."""

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.ledger_entry import LedgerEntry, Ranges, SourceRange, merge_ranges
from headwater_streams.delta.declared_table import ensure_table, write_checksums
from headwater_streams.ledger.log import Commit, commits
from headwater_streams.sources.coordinates import RAW_SCHEMA
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.sources.origins import OriginRun
from headwater_streams.sources.reader import Starts
from headwater_streams.spark.checkpoint import next_version, table_offset
from headwater_streams.storage.delta_rows import table_id
from headwater_streams.storage.files import exists, identity_of

_RECORD = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


class RecordLog:
    """Topics as Delta tables below a folder; a `RecordSource` for jobs."""

    may_repeat = True

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark, self._root = spark, root
        self._ids: dict[str, tuple[tuple[int, int], str]] = {}

    def append(
        self, topic: str, records: Sequence[Mapping[str, Any]], ranges: Mapping[int, tuple[int, int]]
    ) -> None:
        """Appends records as one delivery; an offset may be delivered again."""
        self.declare(topic)
        entry = LedgerEntry(
            job=topic,
            generation=1,
            batch=0,
            table=topic,
            kind="row",
            sources=(SourceRange(input=topic, ranges={topic: dict(ranges)}, topic=topic),),
        )
        # Without Spark: some 10 ms in place of 300.
        write_deltalake(
            str(self._folder(topic)),
            pa.Table.from_pylist([dict(record) for record in records], _RECORD),
            mode="append",
            commit_properties=CommitProperties(custom_metadata={"userMetadata": entry.to_json()}),
        )
        write_checksums(self._folder(topic))

    def _folder(self, topic: str) -> Path:
        # Hadoop takes a colon for the end of a scheme. No topic's name has an @.
        return self._root / topic.replace(":", "@")

    def has(self, topic: str) -> bool:
        """Whether the topic is there."""
        return exists(self._folder(topic) / "_delta_log")

    def declare(self, topic: str) -> None:
        """Makes a topic without records."""
        ensure_table(self._spark, self._folder(topic), topic, RAW_SCHEMA)

    def require_cluster(self, topic: str) -> None:
        """See `RecordSource`; there is one only."""

    def partitions(self, topic: str) -> dict[int, tuple[int, int]]:
        """See `RecordSource`."""
        if not self.has(topic):
            raise JobDefinitionError(f"there is no topic {topic!r}; send rows to it first")
        return self._ranges_of(topic, 0, None).get(topic, {})

    def origins(self, ranges: Ranges) -> list[OriginRun]:
        """See `RecordSource`; no topic of it is a mirror."""
        return []

    def first_since(self, topic: str, time_us: int) -> dict[int, int]:
        """See `RecordSource`."""
        time = pa.scalar(time_us, pa.timestamp("us", tz="UTC"))
        rows = DeltaTable(str(self._folder(topic))).to_pyarrow_dataset()
        later = rows.to_table(["partition", "offset"], filter=pc.field("timestamp") >= time)
        first = later.group_by("partition").aggregate([("offset", "min")]).to_pylist()
        return {row["partition"]: row["offset_min"] for row in first}

    def topic_id(self, topic: str) -> str | None:
        """See `RecordSource`; the id of the topic's table, read again when its first commit is another file."""
        try:
            first_commit = identity_of(self._folder(topic) / "_delta_log" / f"{0:020}.json")
        except FileNotFoundError:
            return None
        cached = self._ids.get(topic)
        if cached is None or cached[0] != first_commit:
            new_id = table_id(self._folder(topic))
            cached = self._ids[topic] = (first_commit, new_id)
        return cached[1]

    def stream(self, spark: SparkSession, declared: TopicInput, starts: Starts) -> DataFrame:
        """See `RecordSource`."""
        reader = spark.readStream.format("delta").option("startingVersion", "0")
        reader = reader.option("maxFilesPerTrigger", str(2**31 - 1))
        return reduce(DataFrame.union, [reader.load(str(self._folder(topic))) for topic in declared.names])

    def read(
        self,
        spark: SparkSession,
        topic: str,
        ranges: Mapping[int, tuple[int, int]],
        *,
        most_records: int | None = None,
    ) -> DataFrame:
        """See `RecordSource`; of an offset delivered twice the first delivery is read."""
        rows = (
            spark.read.format("delta").load(str(self._folder(topic))).dropDuplicates(["partition", "offset"])
        )
        condition = F.lit(False)
        for partition, (start, end) in ranges.items():
            inside = (F.col("offset") >= start) & (F.col("offset") < end)
            condition |= (F.col("partition") == partition) & inside
        return rows.filter(condition)

    def count_records(self, topic: str, partition: int, start: int, end: int) -> int:
        """See `RecordSource`; an offset delivered twice counts once."""
        return sum(start <= offset < end for offset in self.records(topic, partition))

    def records(self, topic: str, partition: int) -> dict[int, dict[str, Any]]:
        """The records of a partition by their offsets; none of a topic that was not declared."""
        if not self.has(topic):
            return {}
        rows = DeltaTable(str(self._folder(topic))).to_pyarrow_table(filters=[("partition", "=", partition)])
        return {record["offset"]: record for record in rows.to_pylist()}

    def is_offset_of(self, declared: TopicInput, offset: dict[str, Any]) -> bool:
        """See `RecordSource`."""
        return self._topic_of(declared, offset) is not None

    def ranges(
        self,
        declared: TopicInput,
        checkpoint: Path,
        source: int,
        before: dict[str, Any] | None,
        end: dict[str, Any],
    ) -> Ranges:
        """See `RecordSource`."""
        topic = self._topic_of(declared, end)
        assert topic is not None
        return self._ranges_of(topic, next_version(before) if before else 0, next_version(end))

    def begin(self, declared: TopicInput, checkpoint: Path, source: int, ranges: Ranges) -> list[str]:
        """See `RecordSource`; it begins at the first record, whatever the ranges say, and ends as they do."""
        lines = []
        for topic in declared.names:
            ends = {partition: end for partition, (_, end) in ranges.get(topic, {}).items()}
            history = list(commits(self._folder(topic)))
            later = (c.version for c in history if _goes_beyond(c, topic, ends))
            version = next(later, len(history))
            lines.append(table_offset(str(self.topic_id(topic)), version))
        return lines

    def _topic_of(self, declared: TopicInput, offset: dict[str, Any]) -> str | None:
        return next((t for t in declared.names if self.topic_id(t) == offset.get("reservoirId")), None)

    def _ranges_of(self, topic: str, since: int, until: int | None) -> dict[str, dict[int, tuple[int, int]]]:
        history = commits(self._folder(topic), since=since, until=until)
        return merge_ranges([s.ranges for c in history if c.entry is not None for s in c.entry.sources])


def _goes_beyond(commit: Commit, topic: str, ends: Mapping[int, int]) -> bool:
    sources = commit.entry.sources if commit.entry is not None else ()
    spans = [span for source in sources for span in source.ranges.get(topic, {}).items()]
    return any(end > ends.get(partition, 0) for partition, (_, end) in spans)
