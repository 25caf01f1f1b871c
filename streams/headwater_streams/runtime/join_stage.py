"""A join stage: Spark keeps the rows that wait for a partner, the batch appends the pairs that it found."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable as DeltaLake
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.joins.interval import EXPIRED_METRIC, IntervalJoin
from headwater_streams.ledger.entry import LedgerEntry
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.gates import OUTPUT_METRIC, CheckGate, observe_output
from headwater_streams.runtime.inputs import BatchInput
from headwater_streams.runtime.operators import Place, counting
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.runtime.stateful import (
    StatefulInput,
    count_entering,
    entered,
    observed,
    sources_of,
)
from headwater_streams.runtime.tables import prepare_tables
from headwater_streams.sources.coordinates import ROW_COLUMNS, SOURCES, commit_columns, reveal


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
        self._join, self._sides = plan.operator, _sides(plan)

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
        streams = {name: stateful.stream() for name, stateful in self._inputs.items()}
        with counting(count_entering):
            result = self._job.function(**streams)
        return observe_output(self._job, reveal(result, [*ROW_COLUMNS, SOURCES]))

    def run_batch(
        self, df: DataFrame, batch: int, inputs: dict[str, BatchInput], metrics: dict[str, Any]
    ) -> None:
        """Commits one batch, or finds that it was committed before the driver died.

        Raises:
            CheckFailedError: A check with `action="fail"` does not hold.
        """
        transaction = self._context.transaction(self._table)
        if transaction.last_batch(self._app_id) >= batch:
            return
        flowed = [observed(metrics, f"{name}_read") for name in self._inputs]
        expired_now = [observed(metrics, EXPIRED_METRIC, f"expired_{side}") for side in ("left", "right")]
        if not any(flowed) and not any(expired_now):
            return  # Spark's own batch, to move its watermark
        gate = CheckGate(self._job, "output")
        gate.judge(metrics.get(OUTPUT_METRIC, {}), batch)
        matched = self._newly_matched(df)
        accounting: dict[str, dict[str, int]] = {}
        partitions: dict[str, Mapping[int, Mapping[str, int]]] = {}
        for name, stateful in self._inputs.items():
            split = stateful.divert(batch, inputs[name], metrics) if name in inputs else None
            partitions |= split.partitions if split else {}
            joined = entered(metrics, self._sides[name])
            expired = observed(metrics, EXPIRED_METRIC, f"expired_{self._sides[name]}")
            accounting[name] = {
                "read": observed(metrics, f"{name}_read"),
                "matched": matched[name],
                "waiting": joined - matched[name] - expired,
                "expired": expired,
                "filtered": observed(metrics, f"{name}_kept") - joined,
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
        rows = df.withColumns(commit_columns(batch, self._generation))
        files = transaction.write(rows)
        self._context.step(self._job.name, "before commit", batch)
        transaction.commit(self._app_id, batch, entry.to_json(), files)
        self._context.step(self._job.name, "after commit", batch)

    def _newly_matched(self, pairs: DataFrame) -> dict[str, int]:
        """How many rows of each side found their first partner in this batch."""
        times = [name for name in (self._join.left_time, self._join.right_time) if name in pairs.columns]
        found = pairs.select(SOURCES, *[F.col(f"`{name}`") for name in times]).toArrow()
        fresh = _ends(found)
        if fresh:
            fresh -= _ends(self._earlier(found, times))
        counts = Counter(position for position, *_ in fresh)
        return {name: counts[0 if side == "left" else 1] for name, side in self._sides.items()}

    def _earlier(self, found: pa.Table, times: Sequence[str]) -> pa.Table:
        """The table's pairs that may share a row with those found: one of their two times is among theirs."""
        table = DeltaLake(str(self._table)).to_pyarrow_dataset()
        if len(times) < 2:
            return table.to_table([SOURCES])
        near = ds.scalar(False)
        for name in times:
            limits = pc.min_max(found[name])
            near |= (ds.field(name) >= limits["min"]) & (ds.field(name) <= limits["max"])
        return table.to_table([SOURCES], filter=near)


def _ends(pairs: pa.Table) -> set[tuple[Any, ...]]:
    """The two rows of each pair: 0 for the left one or 1, topic, partition, offset."""
    rows = pc.list_flatten(pairs[SOURCES]).combine_chunks()
    columns = [pc.struct_field(rows, name).to_pylist() for name in ("topic", "partition", "start")]
    return set(zip(itertools.cycle((0, 1)), *columns, strict=False))


def _sides(plan: JobPlan) -> dict[str, Place]:
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
