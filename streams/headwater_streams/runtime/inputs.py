"""A job's input as a stream, and what one batch of it was: offsets or whole commits, from the checkpoint's own log."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from deltalake import DeltaTable as DeltaLake
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from headwater_streams.errors import DataLossError
from headwater_streams.ledger.entry import Ranges, SourceRange, merge_ranges
from headwater_streams.ledger.log import commits, first_version
from headwater_streams.runtime.checkpoint import BatchOffsets, next_version
from headwater_streams.runtime.context import StageContext
from headwater_streams.sinks.delta_table import REBUILT
from headwater_streams.sinks.live_files import files_between
from headwater_streams.sources.inputs import Input, TableInput, TopicInput
from headwater_streams.sources.reader import Starts

_NO_LIMIT = str(2**31 - 1)


@dataclass(frozen=True)
class BatchInput:
    """What a batch read of one input.

    Attributes:
        source: The ranges, as the ledger entry names them.
        files: The table's data files that hold exactly the rows read; empty for a topic.
    """

    source: SourceRange
    files: tuple[str, ...] = ()

    @property
    def went_on(self) -> bool:
        """Whether offsets or commits were read, of which not one may have brought a row."""
        if self.source.versions is not None:
            return self.source.versions[0] < self.source.versions[1]
        return any(start < end for found in self.source.ranges.values() for start, end in found.values())


class InputReader:
    """Reads one input of a job."""

    def __init__(self, context: StageContext, name: str, declared: Input, job: str) -> None:
        self.name = name
        self.declared = declared
        self.job = job
        self._context = context
        self._begin: int | None = None

    def begin_at(self, version: int) -> None:
        """Has a new query over a table begin with this version, not with the first one."""
        self._begin = version

    def stream(self, starts: Starts | None = None) -> DataFrame:
        """The input as it comes: records of a topic, or a table's rows commit by commit.

        Args:
            starts: Where a topic's query begins; by default at the earliest record.
        """
        spark = self._context.spark
        if isinstance(self.declared, TopicInput):
            return self._context.source.stream(spark, self.declared, starts or {})
        # Whole commits in order: lateness is decided by commit. What a swap replaced is not news (see backfill).
        begin = self.first_version if self._begin is None else self._begin
        reader = (
            spark.readStream.format("delta")
            .option("startingVersion", str(begin))
            .option("skipChangeCommits", "true")
        )
        return reader.option("maxFilesPerTrigger", _NO_LIMIT).load(str(self.path))

    def require_log(self, since: int | None = None) -> None:
        """Sees to it that a new query can read a table from a version on, by default from its beginning.

        Raises:
            DataLossError: The table's log was cut short.
        """
        if not isinstance(self.declared, TableInput):
            return
        begin = self.first_version if since is None else since
        if (oldest := first_version(self.path)) > begin:
            raise DataLossError(
                f"job {self.job!r}: the log of {self.declared.name} begins at version {oldest}, and what is older "
                "cannot be read commit by commit; the job must have begun before the log was cut"
            )
        for commit in commits(self.path, since=max(0, begin - 1)):
            extra = commit.entry.extra if commit.entry is not None else {}
            if "shadow" in extra or "restored_version" in extra:
                raise DataLossError(
                    f"job {self.job!r}: version {commit.version} of {self.declared.name} replaced its rows as a "
                    f"whole (backfill {extra['backfill']}), so a job that begins now cannot read them commit by "
                    f"commit; build the table again first: headwater jobs rebuild "
                    f"{commit.entry.job if commit.entry is not None else ''}"
                )

    def read_back(self, batch: BatchInput) -> DataFrame:
        """The rows of a batch again, from the very files that the stream read."""
        return self._rows_of(batch.files)

    def read_between(self, version: int, start_us: int | None, end_us: int) -> DataFrame:
        """The table's rows at a version whose event time may be in `[start_us, end_us)`; others may be among them.

        Raises:
            DataLossError: The log of that version is gone.
        """
        assert self.declared.event_time is not None
        try:
            near = files_between(self.path, version, self.declared.event_time, start_us, end_us)
        except DeltaError as error:
            raise DataLossError(
                f"job {self.job!r}: version {version} of {self.declared.name} cannot be read, whose rows are needed "
                f"again: {error}; rebuild the job's table by a new generation"
            ) from error
        return self._rows_of([str(self.path / name) for name in near])

    def _rows_of(self, files: Sequence[str]) -> DataFrame:
        spark = self._context.spark
        return (
            spark.read.schema(self.schema).parquet(*files)
            if files
            else spark.createDataFrame([], self.schema)
        )

    @cached_property
    def schema(self) -> T.StructType:
        """The table's columns as they were when the query began."""
        return self._context.spark.read.format("delta").load(str(self.path)).schema

    @cached_property
    def path(self) -> Path:
        """The table's folder."""
        assert isinstance(self.declared, TableInput)
        return self._context.home.table(self.declared.name)

    def batch(self, checkpoint: Path, before: BatchOffsets | None, end: BatchOffsets) -> BatchInput | None:
        """What a batch read of this input, or None if nothing was there yet."""
        found: list[Ranges] = []
        for index, offset in enumerate(end.sources):
            if offset is None or not self._is_mine(offset):
                continue
            previous = before.sources[index] if before is not None else None
            if not isinstance(self.declared, TopicInput):
                return self._table_batch(previous, offset)
            found.append(self._context.source.ranges(self.declared, checkpoint, index, previous, offset))
        if not found:
            return None
        return BatchInput(SourceRange(self.name, merge_ranges(found), topic=",".join(self._topics)))

    @property
    def _topics(self) -> tuple[str, ...]:
        return self.declared.names if isinstance(self.declared, TopicInput) else ()

    def _table_batch(self, before: dict[str, Any] | None, end: dict[str, Any]) -> BatchInput:
        versions = (next_version(before) if before else self.first_version, next_version(end))
        if versions[0] < versions[1] and versions[0] < (oldest := first_version(self.path)):
            raise DataLossError(
                f"job {self.job!r}: the commits [{versions[0]}, {min(oldest, versions[1])}) of {self.declared.name} "
                "are not in its log any more, so their rows cannot be told from others"
            )
        # A batch whose rows were all removed or quarantined adds no file, but its offsets were read all the same.
        passed = commits(self.path, since=versions[0], until=versions[1])
        read = [c for c in passed if c.is_append or not (c.added_paths or c.removed_files)]
        ranges = merge_ranges([s.ranges for c in read if c.entry is not None for s in c.entry.sources])
        files = tuple(str(self.path / added) for c in read for added in c.added_paths)
        return BatchInput(SourceRange(self.name, ranges, table=self.declared.name, versions=versions), files)

    @cached_property
    def first_version(self) -> int:
        """What stood in the table before it was rebuilt is not there any more."""
        rebuilt = DeltaLake(str(self.path)).transaction_version(REBUILT)
        return 0 if rebuilt is None else rebuilt + 1

    def _is_mine(self, offset: dict[str, Any]) -> bool:
        if isinstance(self.declared, TopicInput):
            return self._context.source.is_offset_of(self.declared, offset)
        return bool(offset.get("reservoirId") == self.table_id)

    @cached_property
    def table_id(self) -> str:
        """Delta's id of the table."""
        return str(DeltaLake(str(self.path)).metadata().id)
