"""A window stage: Spark folds the rows in time, the batch merges the windows that changed into the target."""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater_streams.ledger.entry import LedgerEntry
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.gates import OUTPUT_METRIC, CheckGate, observe_output
from headwater_streams.runtime.inputs import BatchInput
from headwater_streams.runtime.operators import counting
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.runtime.stateful import (
    StatefulInput,
    count_entering,
    entered,
    observed,
    prepare_tables,
    sources_of,
)
from headwater_streams.sinks.delta_table import DeltaTransaction
from headwater_streams.sinks.upsert import upsert_rows
from headwater_streams.sources.coordinates import (
    OFFSET,
    PARTITION,
    ROWS,
    SOURCES,
    TOPIC,
    commit_columns,
    reveal,
)
from headwater_streams.windows.tumbling import WINDOW_KEY, TumblingWindow


class WindowStage:
    """Runs a windowed job's batches."""

    is_stateful = True

    def __init__(self, context: StageContext, plan: JobPlan, generation: int) -> None:
        assert isinstance(plan.operator, TumblingWindow)
        self._context, self._plan, self._generation = context, plan, generation
        self._job, self._window = plan.job, plan.operator
        self._name = next(iter(self._job.inputs))
        self._input = StatefulInput(context, plan, generation, self._name, self._window.end)
        self._table = context.home.table(self._job.target.name)
        self._app_id = self._job.app_id(generation)
        self.readers = [self._input.reader]

    def prepare(self) -> None:
        """Makes the tables."""
        self._input.prepare()
        prepare_tables(self._context, self._plan)

    @property
    def output_mode(self) -> str:
        """Spark's output mode of the query: windows are emitted each time that they change."""
        return "update"

    def stream(self) -> DataFrame:
        """The query's plan: rows in time, folded by the job's function."""
        with counting(count_entering):
            result = self._job.function(**{self._name: self._input.stream()})
        return observe_output(self._job, reveal(result, [ROWS, WINDOW_KEY]))

    def run_batch(
        self, df: DataFrame, batch: int, inputs: dict[str, BatchInput], metrics: dict[str, Any]
    ) -> None:
        """Commits one batch, or finds that it was committed before the driver died.

        Raises:
            CheckFailedError: A check with `action="fail"` does not hold.
        """
        if self._name not in inputs or self._begin().last_batch(self._app_id) >= batch:
            return
        if not observed(metrics, f"{self._name}_read"):
            return  # Spark's own batch, to move its watermark; an updating target has nothing to write
        gate_in, gate_out = CheckGate(self._job, "input"), CheckGate(self._job, "output")
        gate_out.judge(metrics.get(OUTPUT_METRIC, {}), batch)
        split = self._input.divert(batch, inputs[self._name], metrics)
        gate_in.judge_rows(split.in_time, batch)
        rows = _with_sources(df, self._window, split.in_time)
        rows = rows.withColumns(commit_columns(batch, self._generation))
        accounting = {
            "read": observed(metrics, f"{self._name}_read"),
            "folded": entered(metrics, "window"),
            "filtered": observed(metrics, f"{self._name}_kept") - entered(metrics, "window"),
            "late": split.late,
            "quarantined": split.quarantined,
        }
        warnings = [*gate_in.warnings, *gate_out.warnings]
        entry = LedgerEntry(
            self._job.name,
            self._generation,
            batch,
            self._job.target.name,
            "window",
            sources_of(inputs),
            {self._name: accounting},
            self._job.fingerprint,
            extra={"warnings": warnings} if warnings else {},
            partitions=split.partitions,
        )
        self._context.step(self._job.name, "before commit", batch)
        upsert_rows(
            rows,
            self._begin,
            keys=self._job.target.keys,
            updates={SOURCES: _MERGED_SOURCES},
            app_id=self._app_id,
            batch=batch,
            user_metadata=entry.to_json(),
        )
        self._context.step(self._job.name, "after commit", batch)

    def _begin(self) -> DeltaTransaction:
        return self._context.transaction(self._table)


def window_sources(window: TumblingWindow, rows: DataFrame) -> DataFrame:
    """The offset ranges behind each window: its key and `_sources`, one range for each topic and partition."""
    ranges = rows.groupBy(window.key().alias(WINDOW_KEY), TOPIC, PARTITION).agg(
        F.min(OFFSET).alias("start"), (F.max(OFFSET) + 1).alias("end")
    )
    one = F.struct(F.col(TOPIC).alias("topic"), F.col(PARTITION).alias("partition"), "start", "end")
    return ranges.groupBy(WINDOW_KEY).agg(F.sort_array(F.collect_list(one)).alias(SOURCES))


def _with_sources(df: DataFrame, window: TumblingWindow, in_time: DataFrame) -> DataFrame:
    sources = window_sources(window, in_time).withColumnRenamed(WINDOW_KEY, "_of")
    return df.join(sources, F.col(WINDOW_KEY).eqNullSafe(F.col("_of")), "left").drop(WINDOW_KEY, "_of")


_BOTH = f"concat(coalesce(t.{SOURCES}, array()), coalesce(s.{SOURCES}, array()))"
_SAME = "x -> x.topic = k.topic AND x.partition = k.partition"
_MERGED_SOURCES = (
    f"transform(array_distinct(transform({_BOTH}, x -> struct(x.topic AS topic, x.partition AS partition))), "
    "k -> struct(k.topic AS topic, k.partition AS partition, "
    f"array_min(transform(filter({_BOTH}, {_SAME}), x -> x.start)) AS start, "
    f"array_max(transform(filter({_BOTH}, {_SAME}), x -> x.end)) AS end))"
)
"""SQL over `t` and `s`: the ranges of both, one for each topic and partition."""
