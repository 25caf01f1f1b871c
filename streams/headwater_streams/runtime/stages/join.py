"""A join stage: Spark keeps the rows that wait for a partner, the batch appends the pairs that it found."""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.extra import Extra, ExtraValues
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.delta.delta_table import WrittenFiles
from headwater_streams.ledger.log import last_entry
from headwater_streams.ledger.partners import LEFT, RIGHT, Partners, find_partners
from headwater_streams.operators.joins.interval import EXPIRED_METRIC, IntervalJoin
from headwater_streams.operators.recording import Place, counting
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.batch_result import BatchResult
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.inputs import BatchInput
from headwater_streams.runtime.stages.check_memory import CheckMemory
from headwater_streams.runtime.stages.direct_input import input_kind
from headwater_streams.runtime.stages.gaps import gaps_extra
from headwater_streams.runtime.stages.gates import OUTPUT_METRIC, CheckGate, checks_extra, observe_output
from headwater_streams.runtime.stages.input_watermarks import InputWatermarks
from headwater_streams.runtime.stages.stateful import (
    Entering,
    batch_terms,
    observed,
    read_metric,
    sources_of,
)
from headwater_streams.runtime.tables import prepare_tables
from headwater_streams.runtime.warm_up import WarmUp
from headwater_streams.sources.coordinates import (
    OFFSET,
    PARTITION,
    ROW_COLUMNS,
    SOURCES,
    TOPIC,
    commit_columns,
)
from headwater_streams.spark.batch_values import BatchValues
from headwater_streams.spark.columns import col, cols
from headwater_streams.spark.hidden_columns import reveal
from headwater_streams.storage.delta_rows import data_files, dataset_of

_POSITIONS = {"left": LEFT, "right": RIGHT}


class JoinStage:
    """Runs a joining job's batches."""

    is_stateful = True

    def __init__(self, context: StageContext, plan: JobPlan, generation: int) -> None:
        assert isinstance(plan.operator, IntervalJoin)
        self._context, self._plan, self._generation = context, plan, generation
        self._memory = CheckMemory(context, plan.job)
        self._job = plan.job
        self.values = BatchValues(context.spark) if plan.job.topics else None
        self._inputs = {
            name: input_kind(declared)(
                context,
                plan,
                generation,
                name,
                _event_time(declared.event_time or ""),
                values=self.values,
            )
            for name, declared in self._job.inputs.items()
        }
        self._table = context.home.table(self._job.target.name)
        self._app_id = self._job.app_id(generation)
        self.stateful_inputs = self._inputs
        self.readers = [stateful.reader for stateful in self._inputs.values()]
        self._join = plan.operator
        self._sides: dict[str, Place] = dict(zip(plan.sides, ("left", "right"), strict=True))
        self._entering = Entering({side: name for name, side in self._sides.items()})
        self._is_semi = plan.operator.how == "semi"
        self._watermarks = InputWatermarks(context.spark, self._inputs.values())
        self.watermarks: InputWatermarks | None = self._watermarks

    def prepare(self) -> None:
        """Makes the tables."""
        last = last_entry(self._table, self._job.name, self._generation)
        for stateful in self._inputs.values():
            stateful.prepare(last)
        self._watermarks.resume(last)
        prepare_tables(self._context, self._plan)

    @property
    def output_mode(self) -> str:
        """Spark's output mode of the query."""
        return "append"

    @property
    def writes_without_rows(self) -> bool:
        """Whether rows without a partner are written as they expire."""
        return bool(self._join.keeps)

    def stream(self) -> DataFrame:
        """The query's plan: rows in time of both inputs, joined by the job's function."""
        streams = {name: stateful.stream() for name, stateful in self._inputs.items()}
        with counting(self._entering.count):
            result = self._job.function(**streams)
        result = reveal(result, [*ROW_COLUMNS, SOURCES])
        # A semi join's pairs are not its rows yet; their checks are judged in the batch.
        return result if self._is_semi else observe_output(self._job, result)

    def run_batch(self, result: BatchResult, batch: int, inputs: dict[str, BatchInput]) -> None:
        """Commits one batch, or finds that it was committed before the driver died.

        Raises:
            CheckFailedError: A check with `action="fail"` does not hold.
        """
        transaction = self._context.transaction(self._table)
        if transaction.last_batch(self._app_id) >= batch:
            return

        def write(rows: DataFrame) -> WrittenFiles:
            return transaction.write(rows.withColumns(commit_columns(batch, self._generation)))

        # A semi join writes some of its pairs, once it is known which; other joins write all as they come.
        pairs, files = (result.kept(), None) if self._is_semi else (result.rows, result.written(write))
        metrics = result.metrics
        expired_now = [observed(metrics, EXPIRED_METRIC, f"expired_{side}") for side in ("left", "right")]
        if not any(expired_now) and not any(each.went_on for each in inputs.values()):
            return  # Spark's own batch, to move its watermark
        partners = self._partners(pairs, files)
        gate = CheckGate(self._job, "output")
        if files is None:
            rows = self._first_pairs(pairs, partners)
            gate.judge_rows(rows, batch, before=self._memory.before)
            files = write(rows)
        else:
            gate.judge(metrics.get(OUTPUT_METRIC, {}), batch, before=self._memory.before)
        accounting: dict[str, dict[str, int]] = {}
        partitions: dict[str, Mapping[int, Mapping[str, int]]] = {}
        splits = {
            name: stateful.divert(batch, inputs[name], metrics)
            for name, stateful in self._inputs.items()
            if name in inputs
        }
        gates = [self._inputs[name].judge(batch, split, metrics) for name, split in splits.items()]
        gates.append(gate)
        warnings = [warning for each in gates for warning in each.warnings]
        for name in self._inputs:
            split = splits.get(name)
            partitions |= split.partitions if split else {}
            side = self._sides[name]
            joined = self._entering.of(metrics, side)
            accounting[name] = {
                "read": observed(metrics, read_metric(name)),
                **self._became(side, joined, partners, metrics),
                "filtered": observed(metrics, read_metric(name), "kept") - joined,
                "late": split.late if split else 0,
                "quarantined": split.quarantined if split else 0,
            }
        pairs_found = observed(metrics, EXPIRED_METRIC, "pairs")
        alone = sum(observed(metrics, EXPIRED_METRIC, f"expired_{side}") for side in self._join.keeps)
        extra: ExtraValues = {
            Extra.PAIRS: partners.first.num_rows if self._is_semi else pairs_found,
            Extra.ALONE: alone,
            Extra.HOW: self._join.how,
            Extra.SIDES: self._sides,
            Extra.TIMES: self._times(pairs),
            **batch_terms(self._job, metrics),
            **self._watermarks.after(metrics),
            **gaps_extra(self._context, self._job.name, sources_of(inputs), accounting),
        }
        if warnings:
            extra[Extra.WARNINGS] = warnings
        extra |= checks_extra(*gates)
        entry = LedgerEntry(
            job=self._job.name,
            generation=self._generation,
            batch=batch,
            table=self._job.target.name,
            kind="join",
            sources=sources_of(inputs),
            accounting=accounting,
            fingerprint=self._job.fingerprint,
            extra=extra,
            partitions=partitions,
        )
        self._context.step(self._job.name, "before commit", batch)
        transaction.commit(self._app_id, batch, entry.to_json(), files)
        self._context.step(self._job.name, "after commit", batch)

    def warm_up(self, result: BatchResult, again: WarmUp) -> None:
        """See `Stage`: the rows that wait are in the state then, and their pairs in the table."""
        result.require_computed()

    def _became(
        self, side: Place, joined: int, partners: Partners, metrics: Mapping[str, Any]
    ) -> dict[str, int]:
        """The terms for what became of a side's rows that reached the join."""
        if self._is_semi and side == "right":
            return {"kept": joined}  # a witness, to any number of left rows: it is not in the result
        matched = partners.count_first(_POSITIONS[side])
        expired = observed(metrics, EXPIRED_METRIC, f"expired_{side}")
        return {"matched": matched, "waiting": joined - matched - expired, "expired": expired}

    def _partners(self, pairs: DataFrame, files: WrittenFiles | None) -> Partners:
        """The rows that are in pairs of this batch, which are read from its files if these are written."""
        times = self._times(pairs)
        table, columns = dataset_of(self._table), [SOURCES, *times]
        if files is None:
            results = pairs.select(*cols(columns)).toArrow()
        else:
            written = [self._table / name for name in files.names]
            results = data_files(written, table.schema).to_table(columns)
        sides = (LEFT,) if self._is_semi else (LEFT, RIGHT)
        return find_partners(results, _near(table, results, times), sides, times)

    def _times(self, pairs: DataFrame) -> list[str]:
        """The columns of the result that are its rows' times. It is empty where one is missing, or is of another
        type."""
        # Of a semi join only left rows are known.
        names = [self._join.left_time] if self._is_semi else [self._join.left_time, self._join.right_time]
        kinds = {field.name: field.dataType for field in pairs.schema.fields}
        return names if all(kinds.get(name) == T.TimestampType() for name in names) else []

    def _first_pairs(self, df: DataFrame, partners: Partners) -> DataFrame:
        """One pair of each left row; none of a row that had one before."""
        rows = df.dropDuplicates([TOPIC, PARTITION, OFFSET])
        if not partners.before.num_rows:
            return rows
        places = partners.before.select(["topic", "partition", "offset"])
        before = self._context.spark.createDataFrame(places.rename_columns([TOPIC, PARTITION, OFFSET]))
        return rows.join(F.broadcast(before), [TOPIC, PARTITION, OFFSET], "left_anti")


def _near(table: ds.Dataset, pairs: pa.Table, times: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The table's pairs that may share a row with those: one of their times is among theirs."""
    limits = [(ds.field(name), pc.min_max(pairs[name])) for name in times]
    near = [(time >= limit["min"]) & (time <= limit["max"]) for time, limit in limits]
    yield from table.to_batches(columns=[SOURCES, *times], filter=reduce(or_, near) if near else None)


def _event_time(name: str) -> Any:
    def column() -> Column:
        return col(name)

    return column
