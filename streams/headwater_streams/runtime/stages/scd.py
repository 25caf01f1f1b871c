"""A row stage whose rows are change events. They are applied to a slowly changing dimension, by key and in order of a
sequence.

The batch's events are worked out once and kept at hand. Those that the table of changes keeps are committed to it
first; the rows of the batch's keys then follow from what is known of them, so that a batch that is applied a second
time, whichever of its commits were made, comes to the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.ledger_entry import LedgerEntry, Partitions, SourceRange
from headwater_streams.base.names import is_reserved
from headwater_streams.delta.apply_changes import apply_changes
from headwater_streams.delta.delta_table import DeltaTransaction, conflicts
from headwater_streams.delta.scd_target import DELETED, ScdTarget
from headwater_streams.delta.side import write_side
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.batch_result import BatchResult
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.inputs import BatchInput
from headwater_streams.runtime.stages.narrowing import without_failing
from headwater_streams.runtime.stages.rejected_checks import Rejections
from headwater_streams.runtime.stages.row import RowStage, in_few_tasks, with_results
from headwater_streams.runtime.stages.row_pass import PassedRows
from headwater_streams.runtime.stages.stateful import sources_of
from headwater_streams.sources.coordinates import (
    GENERATION,
    PARTITION,
    PLACE,
    ROW_COLUMNS,
    TOPIC,
    commit_columns,
)
from headwater_streams.sources.decode import HEADERS, KEY, RAW
from headwater_streams.sources.problems import PROBLEMS, Problem, any_of, problem_array
from headwater_streams.spark.columns import col, cols

_TRIES = 5
_NAMELESS = "_nameless"


class ScdStage(RowStage):
    """Runs the batches of a job whose target is a slowly changing dimension."""

    def __init__(self, context: StageContext, plan: JobPlan, generation: int) -> None:
        super().__init__(context, plan, generation)
        assert isinstance(plan.job.target, ScdTarget)
        self._target = plan.job.target
        (self._name,) = plan.job.inputs
        self._changes = context.home.table(self._target.changes_table)
        self._changes_schema = T.StructType()

    def prepare(self) -> None:
        """Makes the tables and takes up the state of the last commit."""
        super().prepare()
        self._changes_schema = self._context.transaction(self._changes).schema

    def run_batch(self, result: BatchResult, batch: int, inputs: dict[str, BatchInput]) -> None:
        """Commits one batch, or finds that it was committed before the driver died.

        Raises:
            CheckFailedError: A check with `action="fail"` does not hold.
        """
        transaction = self._context.transaction(self._table)
        if transaction.last_batch(self._app_id) >= batch:
            return
        sources = sources_of(inputs)
        ranges = {self._name: inputs[self._name].source.ranges}
        with self._judged(in_few_tasks(result.rows, sources), sources, batch) as (records, verdicts, seen):
            pinned = self._lookups.newest()

            def over(failing: Problem | None) -> PassedRows:
                with self._lookups.looked_at():
                    return self._pass.over(records, verdicts, ranges, pinned.frames, failing=failing)

            def events_of(passed: PassedRows) -> tuple[DataFrame, _Counts]:
                events = self._events(passed.rows, batch).persist()
                try:
                    return events, _Counts(self._flags_of(events), self._target.keys)
                except Exception:
                    events.unpersist()
                    raise

            blamed = self._blamed(records, verdicts, pinned, ranges, batch)
            passed, (events, counts) = without_failing(over, events_of, blamed)
            rejections = Rejections()
            try:
                now_ms = self._context.now_ms()
                passed.judge(batch, before=self._memory.before, now_ms=now_ms)
                accounting = counts.in_all(
                    passed.accounting(counts.total["rows"], lambda: counts.places)[self._name]
                )
                if accounting["quarantined"]:
                    self._context.step(self._job.name, "before quarantine", batch)
                    rejections = self._write_quarantine(
                        passed, self._rejected(passed, events), batch, sources, {self._name: accounting}
                    )
                named = events.filter(~F.col(_NAMELESS)).drop(_NAMELESS, KEY, RAW, HEADERS)
                accounting["kept"] = self._keep(named, counts, sources, batch)
                entry, state = self._entry(batch, sources, passed, {self._name: accounting}, seen, pinned)
                entry = replace(entry, kind="scd", partitions=counts.by_partition(passed.partitions()))
                results = self._results(passed, rejections)
                entry = with_results(entry, results)
                self._apply(transaction, named, counts.keys, entry)
            finally:
                events.unpersist()
        self._context.step(self._job.name, "after commit", batch)
        self._committed(batch, state)

    def _events(self, rows: DataFrame, batch: int) -> DataFrame:
        """The change events with the types of the table that keeps them, and whether they can be applied."""
        nameless = any_of(self._target.missing)
        marked = rows.select("*", self._target.deletes.alias(DELETED), nameless.alias(_NAMELESS))
        columns = {*marked.columns}
        values = [
            (col(f.name) if f.name in columns else F.lit(None)).cast(f.dataType).alias(f.name)
            for f in self._changes_schema.fields
            if not is_reserved(f.name)
        ]
        events = marked.select(*values, DELETED, _NAMELESS, KEY, RAW, HEADERS, *ROW_COLUMNS)
        return events.withColumns(commit_columns(batch, self._generation))

    def _flags_of(self, events: DataFrame) -> pa.Table:
        keys = cols(self._target.keys)
        return events.select(*keys, DELETED, _NAMELESS, *PLACE, GENERATION).toArrow()

    def _rejected(self, passed: PassedRows, events: DataFrame) -> DataFrame:
        columns = [*ROW_COLUMNS, KEY, RAW, HEADERS, PROBLEMS]
        nameless = events.filter(F.col(_NAMELESS)).withColumn(PROBLEMS, problem_array(self._target.missing))
        return passed.rejected().select(*columns).unionByName(nameless.select(*columns))

    def _keep(self, named: DataFrame, counts: "_Counts", sources: tuple[SourceRange, ...], batch: int) -> int:
        """Commits what the table of changes keeps of the batch, and returns how many events it is."""
        deleted = counts.total["deleted"]
        every = self._target.stored_as_scd_type == 2
        expected = deleted + counts.total["changed"] if every else deleted
        if expected:
            self._context.step(self._job.name, "before table", batch)
            entry = LedgerEntry(
                job=self._job.name,
                generation=self._generation,
                batch=batch,
                table=self._target.changes_table,
                kind="side",
                sources=sources,
                accounting={self._name: {"kept": expected}},
                fingerprint=self._job.fingerprint,
            )
            rows = named if every else named.filter(F.col(DELETED))
            write_side(self._context.transaction(self._changes), rows, self._app_id, entry, expected)
        return expected

    def _apply(
        self, transaction: DeltaTransaction, named: DataFrame, keys: pa.Table, entry: LedgerEntry
    ) -> None:
        """Commits the rows of the batch's keys. Where somebody else committed first, it reads that commit and tries
        again."""
        for tries_left in reversed(range(_TRIES)):
            try:
                changes = self._context.transaction(self._changes)
                applied = apply_changes(self._target, transaction, changes, named, keys)
                terms = {**entry.accounting[self._name], "held": applied.held_change}
                metadata = replace(entry, accounting={self._name: terms}).to_json()
                self._context.step(self._job.name, "before commit", entry.batch)
                transaction.commit(
                    self._app_id, entry.batch, metadata, applied.files, removed=applied.removed
                )
                return
            except conflicts():
                if not tries_left:
                    raise
                transaction = self._context.transaction(self._table)
                if transaction.last_batch(self._app_id) >= entry.batch:
                    return


class _Counts:
    """What a batch's events are, counted from their keys and flags, in all and by partition, and where they stand."""

    def __init__(self, events: pa.Table, keys: Sequence[str]) -> None:
        self.places = events.select([*PLACE, GENERATION])
        named = pc.invert(events[_NAMELESS])
        self.keys = events.filter(named).group_by(list(keys)).aggregate([])
        flags = {
            "rows": pc.or_(named, events[_NAMELESS]),
            "changed": pc.and_not(named, events[DELETED]),
            "deleted": pc.and_(named, events[DELETED]),
            "nameless": events[_NAMELESS],
        }
        self._of: dict[tuple[str, int], dict[str, int]] = {}
        flagged = pa.table({TOPIC: events[TOPIC], PARTITION: events[PARTITION]} | flags)
        summed = flagged.group_by([TOPIC, PARTITION]).aggregate([(name, "sum") for name in flags])
        for row in summed.to_pylist():
            self._of[row[TOPIC], row[PARTITION]] = {name: row[f"{name}_sum"] for name in flags}
        self.total = {name: sum(of[name] for of in self._of.values()) for name in flags}

    def in_all(self, terms: Mapping[str, int]) -> dict[str, int]:
        """The terms of the batch, for those of the pass over it."""
        return _split(terms, self.total)

    def by_partition(self, partitions: Partitions) -> Partitions:
        """The same by topic and partition."""
        none = dict.fromkeys(self.total, 0)
        return {
            topic: {p: _split(terms, self._of.get((topic, p), none)) for p, terms in of_topic.items()}
            for topic, of_topic in partitions.items()
        }


def _split(terms: Mapping[str, int], of: Mapping[str, int]) -> dict[str, int]:
    """Splits the events that were written into changes, deletes, and events for quarantine."""
    rest = {name: value for name, value in terms.items() if name != "written"}
    changes = {"changed": of["changed"], "deleted": of["deleted"]}
    return {**rest, **changes, "quarantined": terms["quarantined"] + of["nameless"]}
