"""A row stage: each record decoded, deduplicated, checked, given to the function, appended. No Spark state.

The batch's rows are computed once. Delta's transaction writes the files, the counts observed on the way make the
ledger entry, quarantine and the job's other tables are committed before its target, and mark, entry and files become
one commit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.errors import CheckFailedError
from headwater_streams.base.extra import Extra, ExtraValues
from headwater_streams.base.ledger_entry import LedgerEntry, Ranges, SourceRange, merge_ranges
from headwater_streams.base.rule import KeysRule
from headwater_streams.delta.delta_table import DeltaTransaction, WrittenFiles
from headwater_streams.delta.side import quarantine_rows, write_side
from headwater_streams.ledger.log import last_entry, seen_of
from headwater_streams.operators.dedup.by_key import ByKey
from headwater_streams.operators.dedup.by_offset import ByOffset
from headwater_streams.operators.dedup.intervals import IntervalSet
from headwater_streams.operators.dedup.memory import SEEN_TABLE, ColdOrigins, account
from headwater_streams.operators.dedup.verdicts import Seen, judge, own_key, seen_from
from headwater_streams.plan.plan import JobPlan
from headwater_streams.quality.check_result import CheckResult, in_entry
from headwater_streams.runtime.batch_result import BatchResult
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.generations import starts_of
from headwater_streams.runtime.inputs import BatchInput, InputReader
from headwater_streams.runtime.lookups import Lookups, PinnedLookups, lookups_extra
from headwater_streams.runtime.stages.check_memory import CheckMemory, columns_of_files, compared_rows
from headwater_streams.runtime.stages.gaps import gaps_extra
from headwater_streams.runtime.stages.gates import CheckGate
from headwater_streams.runtime.stages.input_watermarks import InputWatermarks
from headwater_streams.runtime.stages.key_log import KeyLog
from headwater_streams.runtime.stages.narrowing import failing, without_failing
from headwater_streams.runtime.stages.once import places_in
from headwater_streams.runtime.stages.rejected_checks import Rejections, in_files, of_batch
from headwater_streams.runtime.stages.rejected_rows import MOST_KEPT
from headwater_streams.runtime.stages.row_pass import PassedRows, RowPass
from headwater_streams.runtime.stages.stateful import StatefulInput, sources_of
from headwater_streams.runtime.tables import prepare_tables
from headwater_streams.sources.coordinates import SEEN_UNTIL, changing, commit_columns
from headwater_streams.sources.origins import with_origins
from headwater_streams.sources.problems import Problem
from headwater_streams.sources.reader import Starts
from headwater_streams.spark.batch_values import BatchValues
from headwater_streams.spark.kept_rows import read_once

_Branches = dict[str, tuple[DeltaTransaction, WrittenFiles]]
_ROWS_PER_TASK = 50_000  # one second of a core's work, or less


@dataclass(frozen=True)
class RowState:
    """What a row stage remembers between batches; it is kept in the ledger entry of its last commit."""

    seen: Seen = field(default_factory=dict)
    max_event_time_us: int | None = None


class RowStage:
    """Runs a row-by-row job's batches."""

    is_stateful = False
    writes_without_rows = False
    values: BatchValues | None = None
    stateful_inputs: Mapping[str, StatefulInput] = MappingProxyType({})
    watermarks: InputWatermarks | None = None

    def __init__(self, context: StageContext, plan: JobPlan, generation: int) -> None:
        self._context = context
        self._plan = plan
        self._job = plan.job
        self._generation = generation
        self._table = context.home.table(self._job.target.name)
        self._app_id = self._job.app_id(generation)
        self.readers = [InputReader(context, n, i, self._job.name) for n, i in self._job.inputs.items()]
        self._pass = RowPass(plan)
        self._lookups = Lookups(context, plan)
        self._state = RowState()
        dedup = self._job.dedup
        self._keys = KeyLog(context, plan, generation) if isinstance(dedup, ByKey) else None
        self._cold = ColdOrigins(context.home.table(SEEN_TABLE), self._job.name)
        self._starts: Starts = {}
        self._rejects_some = False
        self._memory = CheckMemory(context, self._job)

    def prepare(self) -> None:
        """Makes the tables and takes up the state of the last commit."""
        prepare_tables(self._context, self._plan)
        entry = last_entry(self._table, self._job.name, self._generation)
        if entry is not None:
            seen = seen_of(self._table, self._job.name, self._generation)
            self._state = RowState(seen_from(seen), entry.max_event_time_us)
            self._cold.since = Extra.COLD.get(entry)
            self._starts = starts_of(entry)
            self._rejects_some = _rejected_few(entry.accounting)
            if self._keys is not None:
                self._keys.resume(entry)

    @property
    def output_mode(self) -> str:
        """Spark's output mode of the query."""
        return "append"

    def stream(self) -> DataFrame:
        """The query's plan: the inputs as they come; everything else happens in the batch."""
        return self._pass.stream({reader.name: reader.stream(self._starts) for reader in self.readers})

    def run_batch(self, result: BatchResult, batch: int, inputs: dict[str, BatchInput]) -> None:
        """Commits one batch, or finds that it was committed before the driver died.

        Raises:
            CheckFailedError: A check with `action="fail"` does not hold.
        """
        transaction = self._context.transaction(self._table)
        if transaction.last_batch(self._app_id) >= batch:
            return
        sources = sources_of(inputs)
        ranges = {source.input: source.ranges for source in sources}
        with self._judged(in_few_tasks(result.rows, sources), sources, batch) as (records, verdicts, seen):
            pinned = self._lookups.newest()

            def over(failing: Problem | None) -> PassedRows:
                with self._lookups.looked_at():
                    return self._pass.over(
                        records,
                        verdicts,
                        ranges,
                        pinned.frames,
                        rejects_some=self._rejects_some,
                        failing=failing,
                    )

            def write(passed: PassedRows) -> tuple[WrittenFiles, _Branches]:
                files = transaction.write(self._with_commit_columns(passed.rows, batch))
                return files, self._written_branches(passed, batch)

            blamed = self._blamed(records, verdicts, pinned, ranges, batch)
            passed, (files, branches) = without_failing(over, write, blamed)
            now_ms = self._context.now_ms()
            passed.judge(batch, [self._job.target.name, *branches], before=self._memory.before, now_ms=now_ms)
            self._judge_keys(
                passed, {self._job.target.name: files} | {t: w for t, (_, w) in branches.items()}, batch
            )
            accounting = passed.accounting(files.rows, self._places(self._job.target.name, files))
            of_branches = {
                table: passed.accounting(written.rows, self._places(table, written), table)
                for table, (_, written) in branches.items()
            }
            self._rejects_some = _rejected_few(accounting)
            rejections = Rejections()
            if any(terms["quarantined"] for terms in accounting.values()):
                self._context.step(self._job.name, "before quarantine", batch)
                rejections = self._write_quarantine(passed, passed.rejected(), batch, sources, accounting)
            results = self._results(passed, rejections)
        entry, state = self._entry(batch, sources, passed, accounting, seen, pinned)
        entry = with_results(entry, results)
        for table, (branch, written) in branches.items():
            self._context.step(self._job.name, "before table", batch)
            of_table = replace(
                entry,
                table=table,
                accounting=of_branches[table],
                seen=None,
                seen_changed=None,
                extra={Extra.BESIDE: self._job.target.name}
                | lookups_extra(self._plan, pinned)
                | ({Extra.GAPS: Extra.GAPS.of(entry)} if Extra.GAPS.is_in(entry) else {}),
                partitions=passed.partitions(table),
            )
            branch.commit(self._app_id, batch, of_table.to_json(), written)
        self._context.step(self._job.name, "before commit", batch)
        transaction.commit(self._app_id, batch, entry.to_json(), files)
        self._context.step(self._job.name, "after commit", batch)
        self._committed(batch, state)

    def _places(self, table: str, written: WrittenFiles) -> Callable[[], pa.Table]:
        """What gives the coordinates of the rows that were written to a table."""
        has_rows = table in self._plan.numbered
        return partial(places_in, self._context.home.table(table), written.names, has_rows=has_rows)

    def _blamed(
        self,
        records: DataFrame,
        verdicts: pa.Table | None,
        pinned: PinnedLookups,
        ranges: Mapping[str, Ranges],
        batch: int,
    ) -> Callable[[PassedRows, Exception], Problem]:
        """What finds, by an error, the records of the batch for which the function raises."""

        def blamed(_: PassedRows, error: Exception) -> Problem:
            who = f"job {self._job.name!r}, batch {batch}"
            with self._pass.in_parts(records, verdicts, pinned.frames) as compute:
                return failing(self._job, compute, merge_ranges(list(ranges.values())), who, error)

        return blamed

    def _entry(
        self,
        batch: int,
        sources: tuple[SourceRange, ...],
        passed: PassedRows,
        accounting: Mapping[str, Mapping[str, int]],
        seen: Seen,
        pinned: PinnedLookups,
    ) -> tuple[LedgerEntry, RowState]:
        """The entry of a batch's commit to the target, and what the stage remembers once it is made."""
        seen = self._cold.let_go(self._state.seen, seen, self._generation, batch)
        seen_account = account(self._state.seen, seen, batch)
        times = [t for t in (self._state.max_event_time_us, passed.max_event_time_us) if t is not None]
        state = RowState(seen, max(times, default=None))
        extra: ExtraValues = {Extra.WARNINGS: passed.warnings} if passed.warnings else {}
        extra |= gaps_extra(self._context, self._job.name, sources, accounting)
        if self._keys is not None:
            extra |= self._keys.entry_terms(batch)
        entry = LedgerEntry(
            job=self._job.name,
            generation=self._generation,
            batch=batch,
            table=self._job.target.name,
            kind="row",
            sources=sources,
            accounting=accounting,
            fingerprint=self._job.fingerprint,
            max_event_time_us=state.max_event_time_us,
            seen=seen_account.seen if self._job.dedup else None,
            extra=extra | lookups_extra(self._plan, pinned) | self._cold.ledger_extra(),
            partitions=passed.partitions(),
            seen_changed=seen_account.seen_changed if self._job.dedup else None,
        )
        return entry, state

    def _committed(self, batch: int, state: RowState) -> None:
        self._state = state
        if self._keys is not None:
            self._keys.committed(batch)

    def _written_branches(self, passed: PassedRows, batch: int) -> _Branches:
        """The files of the other tables that do not have this batch yet; they are committed before the target."""
        branches = {}
        for target in self._job.targets[1:]:
            transaction = self._context.transaction(self._context.home.table(target.name))
            if transaction.last_batch(self._app_id) < batch:
                rows = self._with_commit_columns(passed.results[target.name], batch)
                branches[target.name] = (transaction, transaction.write(rows))
        return branches

    @contextmanager
    def _judged(
        self, df: DataFrame, sources: Sequence[SourceRange], batch: int
    ) -> Iterator[tuple[DataFrame, pa.Table | None, Seen]]:
        """The batch's records, the verdicts on those that are not new, and the offsets seen once the batch is
        committed."""
        dedup, located = self._job.dedup, self._pass.located(df)
        if isinstance(dedup, ByOffset) and dedup.origin:
            ranges = merge_ranges([source.ranges for source in sources if source.table is None])
            located = with_origins(located, self._context.source.origins(ranges))
        # The ordinary case: the ranges of the offset log are new, so no record need be looked at.
        are_new = isinstance(dedup, ByOffset) and not dedup.origin and not self._overlap(sources)
        if (dedup is None or are_new) and len(self._job.inputs) == 1:
            yield located, None, self._seen_with(sources) if are_new else {}
            return
        # Where there are several inputs, their rows are in one frame, which would be read once for each.
        with read_once(self._pass.numbered(located)) as records:
            if dedup is None or are_new:
                yield records, None, self._seen_with(sources) if are_new else {}
            elif isinstance(dedup, ByKey):
                assert self._keys is not None
                repeated = self._keys.judge(batch, self._pass.keys(records, dedup.columns))
                yield records, repeated if repeated.num_rows else None, {}
            else:
                coordinates = self._pass.coordinates(records)
                seen = self._cold.with_those_of(
                    coordinates.column("key").unique().to_pylist(), self._state.seen
                )
                judged = judge(coordinates, seen, dedup.max_jump)
                yield records, judged.rows if judged.rows.num_rows else None, judged.seen

    def _overlap(self, sources: Sequence[SourceRange]) -> bool:
        if any(source.table is not None for source in sources):
            return True
        for topic, partition, start, end in _offsets(sources):
            seen = self._state.seen.get(own_key(topic, partition))
            if seen is not None and seen.overlapping(start, end):
                return True
        return False

    def _seen_with(self, sources: Sequence[SourceRange]) -> Seen:
        seen = dict(self._state.seen)
        for topic, partition, start, end in _offsets(sources):
            if start < end:
                key = own_key(topic, partition)
                seen[key] = seen[key].copy() if key in seen else IntervalSet()
                seen[key].add(start, end)
        return seen

    def _with_commit_columns(self, result: DataFrame, batch: int) -> DataFrame:
        columns = commit_columns(batch, self._generation)
        if self._plan.is_ingest:
            columns[SEEN_UNTIL] = F.timestamp_micros(
                changing(F.lit(self._state.max_event_time_us).cast("long"))
            )
        return self._pass.to_write(result).withColumns(columns)

    def _judge_keys(self, passed: PassedRows, written: Mapping[str, WrittenFiles], batch: int) -> None:
        """Has the checks judged that need the rows that were written.

        Raises:
            CheckFailedError: One stops the job.
        """
        for table, files in written.items():
            if passed.gates_out[table].needs_rows:
                self._judge_keys_of(passed, table, files, batch)

    def _judge_keys_of(self, passed: PassedRows, table: str, files: WrittenFiles, batch: int) -> None:
        path = self._context.home.table(table)

        def rows(columns: Sequence[str]) -> pa.Table:
            return columns_of_files(path, files.names, columns)

        def others(rule: KeysRule, keys: pa.Table) -> pa.Table | None:
            return compared_rows(self._context.home, table, rule, keys)

        try:
            passed.gates_out[table].judge_keys(
                rows,
                others,
                dict(passed.results[table].dtypes),
                batch,
                of_batch_alone=self._context.is_live,
            )
        except CheckFailedError as error:
            error.results = tuple(passed.check_results.values())
            raise

    def _results(self, passed: PassedRows, rejections: Rejections) -> list[CheckResult]:
        """What each check came to, in the order in which they are declared."""
        judged = passed.passed + rejections.rows
        rejecting = {check.name: r for check, r in rejections.results(self._job.quarantining, judged)}
        found = passed.check_results | rejecting
        return [found[check.name] for check in self._job.checks if check.name in found]

    def _write_quarantine(
        self,
        passed: PassedRows,
        bad: DataFrame,
        batch: int,
        sources: tuple[SourceRange, ...],
        accounting: Mapping[str, Mapping[str, int]],
    ) -> Rejections:
        """Writes the rejected rows, and says what the checks came to that rejected them.

        Raises:
            CheckFailedError: One rejected more than it may; nothing was committed.
        """
        expected = {name: {"quarantined": terms["quarantined"]} for name, terms in accounting.items()}
        entry = LedgerEntry(
            job=self._job.name,
            generation=self._generation,
            batch=batch,
            table=self._job.target.quarantine_table,
            kind="side",
            sources=sources,
            accounting=expected,
            fingerprint=self._job.fingerprint,
        )
        path = self._context.home.table(self._job.target.quarantine_table)
        total, checks, found = entry.totals["quarantined"], self._job.quarantining, list[Rejections]()

        def judge(files: WrittenFiles) -> None:
            found.append(in_files(path, files.names))
            results = found[0].results(checks, passed.passed + total)
            gate = CheckGate(self._job, "input")
            try:
                gate.take(results, batch)
            except CheckFailedError as error:
                error.results = (*passed.check_results.values(), *error.results)
                raise

        write_side(
            self._context.transaction(path),
            quarantine_rows(bad, batch, self._generation),
            self._app_id,
            entry,
            total,
            judge if checks else None,
        )
        if not checks:
            return Rejections()
        return replace(found[0] if found else of_batch(path, self._generation, batch), rows=total)


def with_results(entry: LedgerEntry, results: Sequence[CheckResult]) -> LedgerEntry:
    """An entry that says what the checks came to, where there are any."""
    return replace(entry, extra={**entry.extra, **in_entry(results)}) if results else entry


def _rejected_few(accounting: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether a batch rejected some records, and no more than a pass keeps."""
    return 0 < max((terms.get("quarantined", 0) for terms in accounting.values()), default=0) <= MOST_KEPT


def _offsets(sources: Sequence[SourceRange]) -> Iterator[tuple[str, int, int, int]]:
    for source in sources:
        for topic, partitions in source.ranges.items():
            for partition, (start, end) in partitions.items():
                yield topic, partition, start, end


def in_few_tasks(df: DataFrame, sources: Sequence[SourceRange]) -> DataFrame:
    """Puts a small batch into few partitions: a task and a file for each of a topic's would cost more than its rows
    do."""
    sizes = [end - start for _, _, start, end in _offsets(sources)]
    tasks = max(1, sum(sizes) // _ROWS_PER_TASK)
    # Each partition is read by a task, and a row is copied before a `coalesce`, also where there is nothing to do.
    are_few = all(source.table is None for source in sources) and sum(size > 0 for size in sizes) <= tasks
    return df if are_few else df.coalesce(tasks)
