"""A join stage: Spark keeps the rows that wait for a partner, the batch appends the pairs that it found."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.joins.interval import EXPIRED_METRIC, IntervalJoin
from headwater_streams.ledger.entry import LedgerEntry
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.gates import CheckGate
from headwater_streams.runtime.inputs import BatchInput
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.runtime.stateful import StatefulInput, observed, prepare_tables, sources_of
from headwater_streams.sinks.delta_table import DeltaTransaction
from headwater_streams.sources.coordinates import BATCH, GENERATION, ROW_COLUMNS, SOURCES, reveal


class JoinStage:
    """Runs a joining job's batches."""

    is_stateful = True

    def __init__(self, context: StageContext, plan: JobPlan, generation: int) -> None:
        assert isinstance(plan.operator, IntervalJoin)
        self._context, self._plan, self._generation = context, plan, generation
        self._job = plan.job
        self._inputs = {
            name: StatefulInput(context, plan, generation, name, _event_time(declared.event_time or ""))
            for name, declared in self._job.inputs.items()
        }
        self._table = context.home.table(self._job.target.name)
        self._app_id = self._job.app_id(generation)
        self.readers = [stateful.reader for stateful in self._inputs.values()]
        self._sides = _sides(plan)

    def prepare(self) -> None:
        """Makes the tables."""
        for stateful in self._inputs.values():
            stateful.prepare()
        prepare_tables(self._context, self._plan)

    @property
    def output_mode(self) -> str:
        """Spark's output mode of the query."""
        return "append"

    def stream(self) -> DataFrame:
        """The query's plan: rows in time of both inputs, joined by the job's function."""
        result = self._job.function(**{name: stateful.stream() for name, stateful in self._inputs.items()})
        return reveal(result, [*ROW_COLUMNS, SOURCES])

    def run_batch(
        self, df: DataFrame, batch: int, inputs: dict[str, BatchInput], metrics: dict[str, Any]
    ) -> None:
        """Commits one batch, or finds that it was committed before the driver died.

        Raises:
            CheckFailedError: A check with `action="fail"` does not hold.
        """
        transaction = DeltaTransaction(self._context.spark, self._table)
        if transaction.last_batch(self._app_id) >= batch:
            return
        flowed = [observed(metrics, f"{name}_read") for name in self._inputs]
        expired_now = [observed(metrics, EXPIRED_METRIC, f"expired_{side}") for side in ("left", "right")]
        if not any(flowed) and not any(expired_now):
            return  # Spark's own batch, to move its watermark
        gate = CheckGate(self._job, "output")
        gate.judge_rows(df, batch)
        matched = self._newly_matched(df)
        accounting: dict[str, dict[str, int]] = {}
        partitions: dict[str, Mapping[int, Mapping[str, int]]] = {}
        for name, stateful in self._inputs.items():
            split = stateful.divert(batch, inputs[name], metrics) if name in inputs else None
            partitions |= split.partitions if split else {}
            kept = observed(metrics, f"{name}_kept")
            expired = observed(metrics, EXPIRED_METRIC, f"expired_{self._sides[name]}")
            accounting[name] = {
                "read": observed(metrics, f"{name}_read"),
                "matched": matched[name],
                "waiting": kept - matched[name] - expired,
                "expired": expired,
                "late": split.late if split else 0,
                "quarantined": split.quarantined if split else 0,
            }
        entry = LedgerEntry(
            self._job.name,
            self._generation,
            batch,
            self._job.target.name,
            "join",
            sources_of(inputs),
            accounting,
            self._job.fingerprint,
            extra={"pairs": observed(metrics, EXPIRED_METRIC, "pairs"), "sides": self._sides},
            partitions=partitions,
        )
        rows = df.withColumn(BATCH, F.lit(batch)).withColumn(GENERATION, F.lit(self._generation))
        files = transaction.write(rows)
        self._context.step(self._job.name, "before commit", batch)
        transaction.commit(self._app_id, batch, entry.to_json(), files)
        self._context.step(self._job.name, "after commit", batch)

    def _newly_matched(self, pairs: DataFrame) -> dict[str, int]:
        """How many rows of each side found their first partner in this batch."""
        before = self._context.spark.read.format("delta").load(str(self._table))
        fresh = _ends(pairs).distinct().join(_ends(before), ["position", "row"], "left_anti")
        counts = {row["position"]: row["count"] for row in fresh.groupBy("position").count().collect()}
        return {name: counts.get(0 if side == "left" else 1, 0) for name, side in self._sides.items()}


def _ends(pairs: DataFrame) -> DataFrame:
    """The two rows of each pair: `position` (0 left, 1 right) and `row`, its topic, partition and offset."""
    return pairs.select(F.posexplode(SOURCES).alias("position", "row"))


def _sides(plan: JobPlan) -> dict[str, str]:
    """Which input is the join's left side: the one whose event time is the left time."""
    operator = plan.operator
    assert isinstance(operator, IntervalJoin)
    first, second = plan.job.inputs
    if plan.job.inputs[first].event_time == operator.left_time:
        return {first: "left", second: "right"}
    return {first: "right", second: "left"}


def _event_time(name: str) -> Any:
    def column() -> Column:
        return F.col(f"`{name}`")

    return column
