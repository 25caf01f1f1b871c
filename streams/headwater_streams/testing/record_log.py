"""A topic without a broker: a Delta table of records, appended by the test driver, read as a stream or a batch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from headwater_streams.errors import JobDefinitionError
from headwater_streams.ledger.entry import LedgerEntry, Ranges, SourceRange, merge_ranges
from headwater_streams.ledger.log import commits
from headwater_streams.runtime.checkpoint import next_version
from headwater_streams.sinks.delta_table import DeltaTransaction, ensure_table
from headwater_streams.sources.coordinates import RAW_SCHEMA
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.sources.reader import Starts


class RecordLog:
    """Topics as Delta tables below a folder; a `RecordSource` for jobs."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark, self._root = spark, root

    def append(self, topic: str, records: Sequence[Row], ranges: Mapping[int, tuple[int, int]]) -> None:
        """Appends records as one delivery; an offset may be delivered again."""
        path = self._root / topic
        ensure_table(self._spark, path, topic, RAW_SCHEMA)
        transaction = DeltaTransaction(self._spark, path)
        files = transaction.write(self._spark.createDataFrame(list(records), RAW_SCHEMA).coalesce(1))
        batch = transaction.last_batch(topic) + 1
        entry = LedgerEntry(
            topic, 1, batch, topic, "row", (SourceRange(topic, {topic: dict(ranges)}, topic),)
        )
        transaction.commit(topic, batch, entry.to_json(), files)

    def declare(self, topic: str) -> None:
        """Makes a topic without records."""
        ensure_table(self._spark, self._root / topic, topic, RAW_SCHEMA)

    def partitions(self, topic: str) -> dict[int, tuple[int, int]]:
        """See `RecordSource`."""
        if not (self._root / topic / "_delta_log").exists():
            raise JobDefinitionError(f"there is no topic {topic!r}; send rows to it first")
        return self._ranges_of(topic, 0, None).get(topic, {})

    def stream(self, spark: SparkSession, declared: TopicInput, starts: Starts) -> DataFrame:
        """See `RecordSource`."""
        reader = spark.readStream.format("delta").option("startingVersion", "0")
        return reader.option("maxFilesPerTrigger", str(2**31 - 1)).load(str(self._root / declared.name))

    def read(self, spark: SparkSession, topic: str, ranges: Mapping[int, tuple[int, int]]) -> DataFrame:
        """See `RecordSource`; of an offset delivered twice the first delivery is read."""
        rows = (
            spark.read.format("delta").load(str(self._root / topic)).dropDuplicates(["partition", "offset"])
        )
        wanted = F.lit(False)
        for partition, (start, end) in ranges.items():
            inside = (F.col("offset") >= start) & (F.col("offset") < end)
            wanted |= (F.col("partition") == partition) & inside
        return rows.filter(wanted)

    def is_offset_of(self, topic: str, offset: dict[str, Any]) -> bool:
        """See `RecordSource`."""
        from deltalake import DeltaTable

        return bool(offset.get("reservoirId") == str(DeltaTable(str(self._root / topic)).metadata().id))

    def ranges(
        self, topic: str, checkpoint: Path, source: int, before: dict[str, Any] | None, end: dict[str, Any]
    ) -> Ranges:
        """See `RecordSource`."""
        return self._ranges_of(topic, next_version(before) if before else 0, next_version(end))

    def _ranges_of(self, topic: str, since: int, until: int | None) -> dict[str, dict[int, tuple[int, int]]]:
        found = commits(self._root / topic, since=since, until=until)
        return merge_ranges([s.ranges for c in found if c.entry is not None for s in c.entry.sources])
