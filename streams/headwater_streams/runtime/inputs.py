"""A job's input as a stream, and what one batch read of it: offsets or whole commits, by the checkpoint's own log."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from headwater_streams.base.errors import DataLossError, SourceReplacedError, SupersededError
from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry, Ranges, SourceRange, merge_ranges
from headwater_streams.delta.delta_table import REBUILT, read_files
from headwater_streams.delta.live_files import all_files, files_between
from headwater_streams.ledger.log import (
    Commit,
    commits,
    commits_backwards,
    first_version,
    lineage,
    next_commit,
    replacements,
)
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.replaced import (
    begins_as_one,
    is_read_as_one,
    replaced_by,
    taken_back_rows,
    taken_back_since,
    was_taken_back,
)
from headwater_streams.sources.inputs import Input, TableInput, TopicInput
from headwater_streams.sources.reader import Starts
from headwater_streams.spark.checkpoint import BatchOffsets, next_version, version_read
from headwater_streams.storage.delta_files import data_file, opened_table
from headwater_streams.storage.delta_rows import table_id

_NO_LIMIT = str(2**31 - 1)


@dataclass(frozen=True)
class BatchInput:
    """What a batch read of one input.

    Attributes:
        source: The ranges, as the ledger entry names them.
        files: The table's data files that hold exactly the rows read; empty for a topic.
        max_event_time_us: The greatest event time that the commits read say they had seen; None for a topic.
    """

    source: SourceRange
    files: tuple[str, ...] = ()
    max_event_time_us: int | None = None

    @property
    def went_on(self) -> bool:
        """Whether offsets or commits were read; they may have brought no row."""
        if self.source.versions is not None:
            return self.source.versions[0] < self.source.versions[1]
        return any(
            start < end for partitions in self.source.ranges.values() for start, end in partitions.values()
        )


class InputReader:
    """Reads one input of a job."""

    def __init__(self, context: StageContext, name: str, declared: Input, job: str) -> None:
        self.name = name
        self.declared = declared
        self.job = job
        self._context = context
        self._begin: int | None = None
        self._as_one = False
        self._target = Path()
        self._taken_back: tuple[LedgerEntry, ...] = ()

    def begin_at(self, version: int) -> None:
        """Makes a new query over a table begin with this version instead of the first one."""
        self._begin = version

    def begin(self, checkpoint: Path, target: Path) -> None:
        """Decides how a query over a table begins, or goes on, where backfills replaced its rows; see `replaced`.

        Args:
            checkpoint: The query's checkpoint.
            target: The folder of the table that the job writes.
        """
        if isinstance(self.declared, TopicInput):
            return
        self._target, position = target, self.position(checkpoint)
        end = next_commit(self.path)
        if position is not None and position > end:
            raise DataLossError(
                f"job {self.job!r}: it has read {self.declared.name} up to version {position - 1}, and the table ends "
                f"with {end - 1}: commits of its log are gone; put the log back, or make the job's table again: "
                f"headwater jobs rebuild {self.job}"
            )
        if position is not None:
            self._taken_back = taken_back_since(self.path, position)
            # Where one batch was done Delta's source plans it again, and wants a version that exists. It does not read
            # it, but refuses other partitions between.
            self._begin = max(first_version(self.path), position - 1)
        elif self._begin is None:
            self._as_one = begins_as_one(self.path, self.first_version)

    def position(self, checkpoint: Path) -> int | None:
        """The first version of a table that a query has not read; None where it has read nothing of it."""
        return version_read(checkpoint, self.table_id)

    def replaced_by(self, target: Path, version: int) -> Commit | None:
        """The commit that put other rows in the place of those that the job has read; None where they are there.

        Args:
            target: The folder of the table that the job writes.
            version: The first version of the table that it has not read.
        """
        return replaced_by(target, self.declared.name, self.path, version)

    def stream(self, starts: Starts | None = None) -> DataFrame:
        """The input as it comes: records of a topic, or a table's rows commit by commit.

        Args:
            starts: Where a topic's query begins; by default at the earliest record.
        """
        spark = self._context.spark
        if isinstance(self.declared, TopicInput):
            return self._context.source.stream(spark, self.declared, starts or {})
        # Whole commits in order: lateness is decided by commit. What a swap replaced is not news (see backfill).
        reader = spark.readStream.format("delta").option("skipChangeCommits", "true")
        if not self._as_one:
            begin = self.first_version if self._begin is None else self._begin
            # After a rebuild there may be no commit yet, and Delta wants a version that exists; that one has no rows.
            reader = reader.option("startingVersion", str(min(begin, next_commit(self.path) - 1)))
        rows = reader.option("maxFilesPerTrigger", _NO_LIMIT).load(str(self.path))
        return rows.filter(~taken_back_rows(self._taken_back)) if self._taken_back else rows

    def require_commits(self, since: int) -> None:
        """Sees to it that a new query can read a table commit by commit from a version on.

        Raises:
            DataLossError: The table's log was cut short, or it has other partitions, or rows that came all at once,
                since then.
        """
        if is_read_as_one(self.path, since):
            raise DataLossError(
                f"job {self.job!r}: what {self.declared.name} held from version {since} on cannot be read again "
                "commit by commit, for its log was cut, it has other partitions since, or a backfill replaced all of "
                f"its rows; make the job's table anew: headwater backfill plan {self.job} --rebuild"
            )

    def read_back(self, batch: BatchInput) -> DataFrame:
        """The rows of a batch again, from the very files that the stream read."""
        return read_files(self._context.spark, self.schema, [*map(Path, batch.files)])

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
        return read_files(self._context.spark, self.schema, [data_file(self.path, name) for name in near])

    def newest_until(self, version: int) -> int | None:
        """The greatest event time that a table's commits before a version had seen, in microseconds; None where they do
        not say."""
        entries = (
            c.entry for c in commits_backwards(self.path) if c.version < version and c.entry is not None
        )
        return next((e.max_event_time_us for e in entries if e.max_event_time_us is not None), None)

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
        ranges: list[Ranges] = []
        for index, offset in enumerate(end.sources):
            if offset is None or not self._is_mine(offset):
                continue
            previous = before.sources[index] if before is not None else None
            if not isinstance(self.declared, TopicInput):
                return self._table_batch(previous, offset)
            ranges.append(self._context.source.ranges(self.declared, checkpoint, index, previous, offset))
        if not ranges:
            return None
        return BatchInput(
            SourceRange(input=self.name, ranges=merge_ranges(ranges), topic=",".join(self._topics))
        )

    @property
    def _topics(self) -> tuple[str, ...]:
        return self.declared.names if isinstance(self.declared, TopicInput) else ()

    def _table_batch(self, before: dict[str, Any] | None, end: dict[str, Any]) -> BatchInput:
        until = next_version(end)
        left_out: list[Commit] = []
        if before is None and self._as_one:
            versions, read = (0, until), lineage(self.path, until=until)
            added = [file.name for file in all_files(self.path, until - 1)]
        else:
            versions = (next_version(before) if before else self.first_version, until)
            read, left_out = self._commits_of(*versions)
            added = [path for commit in read for path in commit.added_paths]
        entries = [commit.entry for commit in read if commit.entry is not None]
        ranges = merge_ranges([source.ranges for entry in entries for source in entry.sources])
        times = [entry.max_event_time_us for entry in entries if entry.max_event_time_us is not None]
        return BatchInput(
            SourceRange(
                input=self.name,
                ranges=ranges,
                table=self.declared.name,
                versions=versions,
                left_out=tuple(commit.version for commit in left_out),
            ),
            tuple(str(data_file(self.path, path)) for path in added),
            max(times, default=None),
        )

    def _commits_of(self, since: int, until: int) -> tuple[list[Commit], list[Commit]]:
        """The commits of a batch whose rows the stream gives, those without rows among them; and those whose rows it
        leaves out, as they were taken back."""
        if since < until and since < (oldest := first_version(self.path)):
            raise DataLossError(
                f"job {self.job!r}: the commits [{since}, {min(oldest, until)}) of {self.declared.name} "
                "are not in its log any more, so their rows cannot be told from others"
            )
        history = [*commits(self.path, since=since)]
        # A batch whose rows were all removed or quarantined adds no file, but its offsets were read all the same.
        passed = (commit for commit in history if commit.version < until)
        read = [c for c in passed if c.is_append or not (c.added_paths or c.removed_files)]
        if not replacements(history):
            return read, []
        replaced = self.replaced_by(self._target, since)
        if replaced is not None:
            assert replaced.entry is not None
            backfill = Extra.BACKFILL.of(replaced.entry)
            raise SourceReplacedError(
                f"job {self.job!r}: version {replaced.version} of {self.declared.name} put other rows in the place of "
                f"those that it has read (backfill {backfill}), and what it made of these "
                f"would stay; make its table anew, too: headwater backfill plan {self.job} --rebuild"
            )
        beginnings = taken_back_since(self.path, since)
        news = [each for each in beginnings if each not in self._taken_back]
        if any(commit.added_paths and was_taken_back(commit, news) for commit in read):
            raise SupersededError(
                f"job {self.job!r}: batches of {self.declared.name} were taken back that the job was about to read; "
                "start the job again"
            )
        left_out = [commit for commit in read if was_taken_back(commit, beginnings)]
        return [commit for commit in read if not was_taken_back(commit, beginnings)], left_out

    @cached_property
    def first_version(self) -> int:
        """The first version of the table, or the first after its newest rebuild: rows of earlier ones are gone."""
        rebuilt = opened_table(self.path).transaction_version(REBUILT)
        return 0 if rebuilt is None else rebuilt + 1

    def _is_mine(self, offset: dict[str, Any]) -> bool:
        if isinstance(self.declared, TopicInput):
            return self._context.source.is_offset_of(self.declared, offset)
        return bool(offset.get("reservoirId") == self.table_id)

    @cached_property
    def table_id(self) -> str:
        """Delta's id of the table."""
        return table_id(self.path)
