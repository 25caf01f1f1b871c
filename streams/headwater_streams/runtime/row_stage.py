"""A row stage: each record decoded, deduplicated, checked, given to the function, appended. No Spark state.

The batch's rows are computed once. Delta's transaction writes the files, the counts observed on the way make the
ledger entry, quarantine is committed before the main table, and mark, entry and files become one commit.
"""

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from headwater_streams.dedup.by_offset import ByOffset
from headwater_streams.dedup.intervals import IntervalSet
from headwater_streams.dedup.verdicts import DUPLICATE, IMPLAUSIBLE, Seen, Verdicts, judge, own_key, seen_from
from headwater_streams.ledger.entry import LedgerEntry, SourceRange
from headwater_streams.ledger.log import last_entry
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.gates import CheckGate
from headwater_streams.runtime.inputs import BatchInput, InputReader
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.sinks.delta_table import DeltaTransaction, ensure_table
from headwater_streams.sinks.side import quarantine_rows, quarantine_schema, write_side
from headwater_streams.sources.coordinates import (
    BATCH,
    GENERATION,
    OFFSET,
    ORIGIN,
    PARTITION,
    ROW_COLUMNS,
    SEEN_UNTIL,
    TOPIC,
    hide,
    reveal,
)
from headwater_streams.sources.decode import PROBLEMS, VALUE, decode_records, decode_table_rows
from headwater_streams.sources.inputs import Input, TopicInput

_VERDICT = "_verdict"
_MOST_PARTITIONS = 64  # each costs a handful of aggregates in the batch's pass


@dataclass(frozen=True)
class RowState:
    """What a row stage remembers between batches; it is kept in the ledger entry of its last commit."""

    seen: Seen = field(default_factory=dict)
    max_event_time_us: int | None = None


class RowStage:
    """Runs a row-by-row job's batches."""

    is_stateful = False

    def __init__(self, context: StageContext, plan: JobPlan, generation: int) -> None:
        self._context = context
        self._plan = plan
        self._job = plan.job
        self._generation = generation
        self._name, self._input = next(iter(self._job.inputs.items()))
        self._table = context.home.table(self._job.target.name)
        self._app_id = self._job.app_id(generation)
        self.readers = [InputReader(context, self._name, self._input, self._job.name)]
        self._quarantine_checks = tuple(
            c for c in self._job.checks_for("input", "row") if c.action == "quarantine"
        )
        self._state = RowState()

    def prepare(self) -> None:
        """Makes the tables and takes up the state of the last commit."""
        spark, target = self._context.spark, self._job.target
        ensure_table(spark, self._table, target.name, self._plan.target_schema)
        ensure_table(
            spark,
            self._context.home.table(target.quarantine_table),
            target.quarantine_table,
            quarantine_schema(),
        )
        entry = last_entry(self._table, self._job.name, self._generation)
        if entry is not None:
            self._state = RowState(seen_from(entry.seen), entry.max_event_time_us)

    @property
    def output_mode(self) -> str:
        """Spark's output mode of the query."""
        return "append"

    def stream(self) -> DataFrame:
        """The query's plan: the input as it comes; everything else happens in the batch."""
        return self.readers[0].stream()

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
        source = inputs[self._name].source
        entry, files, state = self.process(df, batch, source, transaction)
        self._context.step(self._job.name, "before commit", batch)
        transaction.commit(self._app_id, batch, entry.to_json(), files)
        self._context.step(self._job.name, "after commit", batch)
        self._state = state

    def process(
        self, df: DataFrame, batch: int, source: SourceRange, transaction: DeltaTransaction
    ) -> tuple[LedgerEntry, Any, RowState]:
        """Writes a batch's files and its side table; the main commit is left to the caller."""
        observed = _Observations(batch, source)
        verdicts = self._judge(df, source)
        decoded = self._mark(observed.read(df), verdicts)
        bad = F.size(PROBLEMS) > 0
        repeated = F.coalesce(F.col(_VERDICT) == DUPLICATE, F.lit(False))
        gate_in, gate_out = CheckGate(self._job, "input"), CheckGate(self._job, "output")
        decoded = observed.decoded(decoded, repeated, ~repeated & bad)
        good = decoded.filter(~repeated & ~bad).select(f"{VALUE}.*", *ROW_COLUMNS)
        good = observed.good(good, self._event_time_us(), gate_in.aggregates())
        result = self._job.function(**{self._name: hide(good, ROW_COLUMNS)})
        result = reveal(result, ROW_COLUMNS)
        result = observed.result(result, gate_out.aggregates())
        files = transaction.write(self._with_commit_columns(result, batch))
        counts = observed.counts()
        gate_in.judge(counts["good"], batch)
        gate_out.judge(counts["result"], batch)
        quarantined = counts["decoded"]["quarantined"]
        if quarantined:
            self._context.step(self._job.name, "before quarantine", batch)
            self._write_quarantine(decoded.filter(~repeated & bad), batch, source, quarantined)
        passed, after = counts["good"]["rows"], counts["result"]["rows"]
        accounting = {
            "read": counts["read"]["rows"],
            "written": files.rows,
            "filtered": passed - after,
            "duplicate": counts["decoded"]["duplicate"],
            "quarantined": quarantined,
        }
        newest = [
            t for t in (self._state.max_event_time_us, counts["good"]["max_event_time_us"]) if t is not None
        ]
        state = RowState(verdicts.seen if verdicts else {}, max(newest, default=None))
        entry = LedgerEntry(
            self._job.name,
            self._generation,
            batch,
            self._job.target.name,
            "row",
            (source,),
            {self._name: accounting},
            self._job.fingerprint,
            state.max_event_time_us,
            {key: seen.pairs() for key, seen in state.seen.items()} if self._job.dedup else None,
            {"warnings": warnings} if (warnings := [*gate_in.warnings, *gate_out.warnings]) else {},
            observed.partitions(counts),
        )
        return entry, files, state

    def with_state(self, state: RowState) -> None:
        """Begins from another state than the last commit's: a backfill's."""
        self._state = state

    def _judge(self, df: DataFrame, source: SourceRange) -> Verdicts | None:
        dedup = self._job.dedup
        if dedup is None:
            return None
        if not dedup.origin and not self._overlaps(source):
            # The ordinary case: ranges of the offset log are new by themselves, and no record need be looked at.
            return Verdicts(_no_verdicts(), 0, self._seen_with(source))
        coordinates = _coordinates(df, self._input, dedup)
        return judge(coordinates, self._state.seen, dedup.max_jump)

    def _overlaps(self, source: SourceRange) -> bool:
        if source.table is not None:
            return True
        for topic, partitions in source.ranges.items():
            for partition, (start, end) in partitions.items():
                seen = self._state.seen.get(own_key(topic, partition))
                if seen is not None and seen.overlapping(start, end):
                    return True
        return False

    def _seen_with(self, source: SourceRange) -> Seen:
        seen = {key: intervals.copy() for key, intervals in self._state.seen.items()}
        for topic, partitions in source.ranges.items():
            for partition, (start, end) in partitions.items():
                if start < end:
                    key = own_key(topic, partition)
                    seen.setdefault(key, IntervalSet()).add(start, end)
        return seen

    def _mark(self, df: DataFrame, verdicts: Verdicts | None) -> DataFrame:
        if isinstance(self._input, TopicInput):
            origin = self._job.dedup is not None and self._job.dedup.origin
            decoded = decode_records(df, self._input, self._quarantine_checks, origin=origin)
        else:
            columns = self._plan.inputs[self._name].fieldNames()
            decoded = decode_table_rows(df, self._input, columns, self._quarantine_checks)
        if verdicts is None or not verdicts.rows.num_rows:
            return decoded.withColumn(_VERDICT, F.lit(None).cast("string"))
        rows = self._context.spark.createDataFrame(verdicts.rows)
        marked = decoded.join(F.broadcast(rows), [TOPIC, PARTITION, OFFSET], "left")
        reason = F.lit("the origin offset is far beyond all that was seen of its partition")
        implausible = F.struct(F.lit("origin").alias("check"), reason.alias("reason"))
        problems = F.when(F.col(_VERDICT) == IMPLAUSIBLE, F.array_append(PROBLEMS, implausible))
        return marked.withColumn(PROBLEMS, problems.otherwise(F.col(PROBLEMS)))

    def _event_time_us(self) -> Column:
        if self._input.event_time is None:
            return F.lit(None).cast("long")
        return F.unix_micros(F.col(f"`{self._input.event_time}`"))

    def _with_commit_columns(self, result: DataFrame, batch: int) -> DataFrame:
        columns = {BATCH: F.lit(batch), GENERATION: F.lit(self._generation)}
        if self._plan.is_ingest:
            columns[SEEN_UNTIL] = F.timestamp_micros(F.lit(self._state.max_event_time_us).cast("long"))
        return result.withColumns(columns)

    def _write_quarantine(self, bad: DataFrame, batch: int, source: SourceRange, expected: int) -> None:
        entry = LedgerEntry(
            self._job.name,
            self._generation,
            batch,
            self._job.target.quarantine_table,
            "side",
            (source,),
            {self._name: {"quarantined": expected}},
            self._job.fingerprint,
        )
        path = self._context.home.table(self._job.target.quarantine_table)
        write_side(
            self._context.transaction(path),
            quarantine_rows(bad, batch, self._generation),
            self._app_id,
            entry,
            expected,
        )


class _Observations:
    """The counts of one pass, by where on the way they are taken, in all and by partition."""

    def __init__(self, batch: int, source: SourceRange) -> None:
        self._batch = batch
        self._taken: dict[str, Observation] = {}
        places = [(topic, partition) for topic, found in source.ranges.items() for partition in found]
        self._places = places if len(places) <= _MOST_PARTITIONS else []

    def read(self, df: DataFrame) -> DataFrame:
        names = ("topic", "partition") if "topic" in df.columns else (TOPIC, PARTITION)
        return self._observe("read", df, {"rows": F.lit(True)}, [], names)

    def decoded(self, df: DataFrame, duplicate: Column, quarantined: Column) -> DataFrame:
        return self._observe("decoded", df, {"duplicate": duplicate, "quarantined": quarantined}, [])

    def good(self, df: DataFrame, event_time_us: Column, more: list[Column]) -> DataFrame:
        newest = F.max(event_time_us).alias("max_event_time_us")
        return self._observe("good", df, {"rows": F.lit(True)}, [newest, *more])

    def result(self, df: DataFrame, more: list[Column]) -> DataFrame:
        return self._observe("result", df, {"rows": F.lit(True)}, more)

    def counts(self) -> dict[str, dict[str, Any]]:
        return {name: dict(observation.get) for name, observation in self._taken.items()}

    def partitions(self, counts: dict[str, dict[str, Any]]) -> dict[str, dict[int, dict[str, int]]]:
        """The terms of the identity by topic and partition."""
        found: dict[str, dict[int, dict[str, int]]] = {}
        for i, (topic, partition) in enumerate(self._places):
            passed, after = counts["good"][f"rows_{i}"], counts["result"][f"rows_{i}"]
            found.setdefault(topic, {})[partition] = {
                "read": counts["read"][f"rows_{i}"],
                "written": after,
                "filtered": passed - after,
                "duplicate": counts["decoded"][f"duplicate_{i}"],
                "quarantined": counts["decoded"][f"quarantined_{i}"],
            }
        return found

    def _observe(
        self,
        name: str,
        df: DataFrame,
        conditions: dict[str, Column],
        more: list[Column],
        names: tuple[str, str] = (TOPIC, PARTITION),
    ) -> DataFrame:
        terms = [F.count_if(condition).alias(term) for term, condition in conditions.items()]
        for i, (topic, partition) in enumerate(self._places):
            here = (F.col(names[0]) == topic) & (F.col(names[1]) == partition)
            terms += [
                F.count_if(condition & here).alias(f"{term}_{i}") for term, condition in conditions.items()
            ]
        self._taken[name] = Observation(f"headwater_{name}_{self._batch}")
        return df.observe(self._taken[name], *terms, *more)


def _coordinates(df: DataFrame, declared: Input, dedup: ByOffset) -> Any:
    if isinstance(declared, TopicInput):
        plain = decode_records(df, declared, (), origin=dedup.origin).select(TOPIC, PARTITION, OFFSET, ORIGIN)
    else:
        plain = df.select(TOPIC, PARTITION, OFFSET, ORIGIN)
    key = F.concat_ws(
        "\t",
        F.coalesce(F.col(f"{ORIGIN}.cluster"), F.lit("")),
        F.coalesce(F.col(f"{ORIGIN}.topic"), F.col(TOPIC)),
        F.coalesce(F.col(f"{ORIGIN}.partition"), F.col(PARTITION)).cast("string"),
    )
    at = F.coalesce(F.col(f"{ORIGIN}.offset"), F.col(OFFSET))
    return plain.select(key.alias("key"), at.alias("at"), TOPIC, PARTITION, OFFSET).toArrow()


def _no_verdicts() -> pa.Table:
    names = [TOPIC, PARTITION, OFFSET, _VERDICT]
    return pa.table({name: pa.array([], pa.string()) for name in names})
