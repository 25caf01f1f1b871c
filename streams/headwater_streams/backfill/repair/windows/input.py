"""The table that a windowed job reads, at one version: its rows of some times, as the live job gets them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.repair.pinning import pinned_table
from headwater_streams.backfill.repair.spec import PinnedInput
from headwater_streams.backfill.values import Span
from headwater_streams.base.durations import in_micros, parse_duration
from headwater_streams.delta.delta_table import read_files
from headwater_streams.delta.live_files import files_between
from headwater_streams.plan.plan import JobPlan
from headwater_streams.quality.columns import speaking_of
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.stages.gates import CheckGate
from headwater_streams.runtime.stages.narrowing import Place, problem_of
from headwater_streams.sources.coordinates import ROW_COLUMNS, SEEN_UNTIL
from headwater_streams.sources.decode import BAD, VALUE, Decoded, RowDecoder
from headwater_streams.sources.inputs import TableInput
from headwater_streams.spark.columns import col
from headwater_streams.storage.delta_files import data_file

CLOSED_US = "_closed_us"
"""Windows that end here or before were closed when the row came, in microseconds."""


@dataclass(frozen=True)
class WindowInput:
    """The input of a windowed job at one version.

    Attributes:
        context: The session and the home.
        plan: The job.
        pinned: The table.
        failing: Rows for which the function is known to raise, and why; they are bad.
    """

    context: StageContext
    plan: JobPlan
    pinned: PinnedInput
    failing: Mapping[Place, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The input's name in the job's function."""
        return next(iter(self.plan.job.inputs))

    def decoded(self, moments: Span | None, beside: Mapping[str, Column]) -> Decoded:
        """The rows with an event time, each with `_closed_us`.

        Args:
            moments: Rows of these times; by default all.
            beside: Columns to add, of the table's.
        """
        declared = self.plan.job.inputs[self.name]
        assert isinstance(declared, TableInput)
        assert declared.watermark is not None
        delay_us = in_micros(parse_duration(declared.watermark))
        rows = pinned_table(self.context, self.pinned)
        if moments is not None:
            rows = self._between(rows, *moments)
        rows = rows.filter(col(str(declared.event_time)).isNotNull())
        columns = self.plan.inputs[self.name].fieldNames()
        quarantining = speaking_of(rows, self.plan.job.quarantining)
        # Of the table's columns: of the value's, Spark would read all columns and make the value of each row first.
        beside = {CLOSED_US: F.unix_micros(SEEN_UNTIL) - F.lit(delay_us), **beside}
        decoded = RowDecoder(declared, columns, quarantining).decode(rows.withColumns(beside))
        return decoded.with_problem(decoded.frame, problem_of(self.failing)) if self.failing else decoded

    def judge(self, rows: DataFrame, gate: CheckGate, chunk: int) -> None:
        """Judges the checks of the input over rows.

        Raises:
            CheckFailedError: A check with `action="fail"` does not hold.
        """
        if gate:
            gate.judge_rows(good(rows), chunk)

    def _between(self, rows: DataFrame, start_us: int, end_us: int) -> DataFrame:
        """The table's rows whose time is in `[start_us, end_us)`."""
        path, time = self.context.home.table(self.pinned.table), self.plan.window.time
        # By their files: Delta would look for these with a Spark job each time that the rows are read.
        near = files_between(path, self.pinned.version, time, start_us, end_us)
        found = read_files(self.context.spark, rows.schema, [data_file(path, name) for name in near])
        start, end = (F.timestamp_micros(F.lit(at_us)) for at_us in (start_us, end_us))
        return found.filter((col(time) >= start) & (col(time) < end))


def good(rows: DataFrame) -> DataFrame:
    """Those that the function is given, with their coordinates."""
    return rows.filter(~is_bad()).select(f"{VALUE}.*", *ROW_COLUMNS)


def is_bad() -> Column:
    """True for a row that cannot be used. A function: PySpark makes no column without a session."""
    return F.col(BAD)
