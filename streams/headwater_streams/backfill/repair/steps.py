"""The steps of a run, one for each chunk of the plan: what is written to the shadow, and the account of it."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.expired import kept_of, without_rows
from headwater_streams.backfill.history import TableHistory, read_history
from headwater_streams.backfill.repair.failing import KnownFailing, found_among
from headwater_streams.backfill.repair.jobs import same_job
from headwater_streams.backfill.repair.joins.replay import Joined, JoinReplay
from headwater_streams.backfill.repair.rows.replay import ReplayedRows, RowReplay
from headwater_streams.backfill.repair.spec import BackfillPlan, Chunk, whole
from headwater_streams.backfill.repair.windows.folding import Replayed
from headwater_streams.backfill.repair.windows.kinds import Replay, replay_of
from headwater_streams.backfill.store import BackfillFolder
from headwater_streams.base.extra import Extra, ExtraValues
from headwater_streams.base.layout import partitioned_by
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.delta.declared_table import ensure_table
from headwater_streams.delta.delta_table import DeltaTransaction, WrittenFiles, read_files, read_version
from headwater_streams.delta.side import quarantine_schema, write_side
from headwater_streams.ledger.repeats import records_in
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.quality.check_result import CheckResult, in_entry
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.stages.failing_rows import FailingByInput, known_failing
from headwater_streams.runtime.stages.narrowing import without_failing
from headwater_streams.runtime.stages.once import PLACED, places_in, places_of
from headwater_streams.sources.problems import Problem
from headwater_streams.spark.observations import Observed
from headwater_streams.storage.delta_files import partition_columns
from headwater_streams.storage.files import exists

CHUNK = "chunk"


class Steps(Protocol):
    """How one kind of job is rebuilt."""

    def prepare(self, folder: BackfillFolder) -> None:
        """Makes the shadow tables."""

    def write(
        self, folder: BackfillFolder, transaction: DeltaTransaction, chunk: Chunk
    ) -> tuple[WrittenFiles, dict[str, int]]:
        """Writes a chunk's files; the commit is left to the caller."""

    def results(self) -> Sequence[CheckResult]:
        """What the checks of the input came to of the chunk that was written last. None for windows and joins, some of
        whose rows are read for several chunks."""

    def preview(self, error: Exception | None = None) -> Mapping[str, DataFrame]:
        """All rows that the run would write to each table; `release` is to be called behind.

        Args:
            error: What computing them ended with: those for which the function raises are left out then.

        Raises:
            Exception: The error, where no row is to blame.
            RowErrorsError: There are more of them than the job allows.
        """

    def release(self) -> None:
        """Forgets what was previewed."""


def steps_of(context: StageContext, backfill: BackfillPlan, job: Job) -> Steps:
    """The steps of a plan.

    Raises:
        BackfillError: The job is not the one that was planned.
    """
    job_plan = same_job(context, job, backfill)
    history = read_history(
        context.home.table(backfill.target), backfill.target, backfill.job, until=backfill.base_version
    )
    if backfill.kind == "window":
        return _WindowSteps(context, backfill, job_plan, history)
    if backfill.kind == "join":
        return _JoinSteps(context, backfill, job_plan, history)
    return _RowSteps(context, backfill, job_plan, history)


def chunk_entry(
    backfill: BackfillPlan,
    chunk: Chunk,
    accounting: dict[str, int],
    *,
    rows: int | None = None,
    checks: Sequence[CheckResult] = (),
) -> LedgerEntry:
    """The ledger entry of a chunk's commit to the shadow; with how many rows it wrote, but for rejected records, and
    what the checks of its input came to."""
    written: ExtraValues = {} if rows is None else {Extra.ROWS: rows}
    return LedgerEntry(
        job=backfill.job,
        generation=backfill.generation,
        batch=chunk.number,
        table=backfill.target,
        kind="backfill",
        sources=backfill.sources(chunk.ranges or backfill.ranges),
        accounting={backfill.input_name: accounting},
        fingerprint=backfill.fingerprint,
        extra={Extra.BACKFILL: backfill.id, Extra.ACTION: CHUNK, **written, **in_entry(checks)},
    )


def _who(backfill: BackfillPlan, chunk: Chunk) -> str:
    return f"job {backfill.job!r}, chunk {chunk.number}"


def _make_shadow(context: StageContext, backfill: BackfillPlan, folder: BackfillFolder) -> None:
    table = context.home.table(backfill.target)
    schema = read_version(context.spark, table, backfill.base_version).schema
    layout = partitioned_by(partition_columns(table, backfill.base_version))
    ensure_table(context.spark, folder.shadow, f"the shadow of {backfill.target}", schema, layout)


def _write_rejected(
    context: StageContext,
    folder: BackfillFolder,
    backfill: BackfillPlan,
    chunk: Chunk,
    rows: DataFrame,
    count: int,
) -> None:
    """Commits the rows that a step of windows or of a join rejected; most have none."""
    if count:
        ensure_table(context.spark, folder.quarantine, "the quarantine", quarantine_schema())
        entry = chunk_entry(backfill, chunk, {"quarantined": count})
        write_side(context.transaction(folder.quarantine), rows, backfill.app_id, entry, count)


def _rejected_before(context: StageContext, folder: BackfillFolder) -> DataFrame | None:
    """The rows that earlier steps rejected; None where there are none."""
    if not exists(folder.quarantine):
        return None
    return context.spark.read.format("delta").load(str(folder.quarantine))


class _WindowSteps:
    def __init__(
        self, context: StageContext, backfill: BackfillPlan, plan: JobPlan, history: TableHistory
    ) -> None:
        self._context, self._backfill, self._plan = context, backfill, plan
        self._earlier, self._live = history.folded(), history.entries()
        self._replay = replay_of(context, plan, backfill)
        self._known = KnownFailing({backfill.input_name: backfill.failing})

    def prepare(self, folder: BackfillFolder) -> None:
        _make_shadow(self._context, self._backfill, folder)

    def write(
        self, folder: BackfillFolder, transaction: DeltaTransaction, chunk: Chunk
    ) -> tuple[WrittenFiles, dict[str, int]]:
        self._known.begin()
        folded, files = without_failing(
            lambda found: self._fold(chunk, found),
            lambda folded: transaction.write(folded.rows),
            lambda folded, error: self._blamed(folded, chunk, error),
        )
        self._of_now().judge_input(self._backfill, chunk, folded.gate)
        terms = folded.terms()
        _write_rejected(self._context, folder, self._backfill, chunk, folded.rejected, terms["quarantined"])
        return files, terms

    def results(self) -> Sequence[CheckResult]:
        return ()

    def preview(self, error: Exception | None = None) -> Mapping[str, DataFrame]:
        chunk = whole(self._backfill.chunks)
        found = None if error is None else self._blamed(self._fold(chunk, None), chunk, error)
        return {self._backfill.target: self._fold(chunk, found).rows}

    def _fold(self, chunk: Chunk, found: FailingByInput | None) -> Replayed:
        self._known.add(found or {})
        return self._of_now().fold(self._backfill, chunk, self._earlier)

    def _of_now(self) -> Replay:
        failing = self._known.of(self._backfill.input_name)
        return self._replay.leaving_out(failing) if failing else self._replay

    def _blamed(self, folded: Replayed, chunk: Chunk, error: Exception) -> FailingByInput:
        return found_among(self._plan, folded.given, self._live, _who(self._backfill, chunk), error)

    def release(self) -> None:
        pass


class _JoinSteps:
    def __init__(
        self, context: StageContext, backfill: BackfillPlan, plan: JobPlan, history: TableHistory
    ) -> None:
        self._context, self._backfill, self._plan = context, backfill, plan
        self._live = history.entries()
        self._replay = JoinReplay(context, plan, backfill, self._live)
        self._known = KnownFailing({})
        self._blamed_before = known_failing(context.home.checkpoint(backfill.job, backfill.generation))

    def prepare(self, folder: BackfillFolder) -> None:
        _make_shadow(self._context, self._backfill, folder)

    def write(
        self, folder: BackfillFolder, transaction: DeltaTransaction, chunk: Chunk
    ) -> tuple[WrittenFiles, dict[str, int]]:
        self._known.begin()
        joined, files = without_failing(
            lambda found: self._join(chunk, found),
            lambda joined: transaction.write(joined.rows),
            lambda joined, error: self._blamed(joined, chunk, error),
        )
        self._of_now().judge_input(chunk.lefts, chunk.number)
        written = [folder.shadow / name for name in files.names]
        terms = joined.terms(read_files(self._context.spark, joined.rows.schema, written))
        # A right row may be near the left rows of several steps.
        rejected = joined.rejected(_rejected_before(self._context, folder))
        if rejected is not None:
            count = rejected.count()
            _write_rejected(self._context, folder, self._backfill, chunk, rejected, count)
        return files, terms

    def results(self) -> Sequence[CheckResult]:
        return ()

    def preview(self, error: Exception | None = None) -> Mapping[str, DataFrame]:
        chunk = Chunk(
            number=0, rows=self._backfill.rows, lefts=self._backfill.lefts, rights=self._backfill.rights
        )
        found = None if error is None else self._blamed(self._join(chunk, None), chunk, error)
        return {self._backfill.target: self._join(chunk, found).rows}

    def _join(self, chunk: Chunk, found: FailingByInput | None) -> Joined:
        self._known.add(found or {})
        return self._of_now().join(chunk.lefts, chunk.rights)

    def _of_now(self) -> JoinReplay:
        failing = self._known.found
        return self._replay.leaving_out(failing) if any(failing.values()) else self._replay

    def _blamed(self, joined: Joined, chunk: Chunk, error: Exception) -> FailingByInput:
        who = _who(self._backfill, chunk)
        return found_among(self._plan, joined.given, self._live, who, error, self._blamed_before)

    def release(self) -> None:
        pass


class _RowSteps:
    """The steps of a row job, which may write several tables: those of the others are committed before the target's."""

    def __init__(
        self, context: StageContext, backfill: BackfillPlan, plan: JobPlan, history: TableHistory
    ) -> None:
        self._context, self._backfill, self._plan = context, backfill, plan
        self._replay = RowReplay(context, plan, history, backfill)
        self._kept = {
            name: kept
            for name, table in backfill.parts.items()
            if (kept := kept_of(context, plan, name, table.base_version)) is not None
        }
        self._previewed: list[ReplayedRows] = []
        self._results: Sequence[CheckResult] = ()

    def prepare(self, folder: BackfillFolder) -> None:
        for name, part in self._backfill.parts.items():
            _make_shadow(self._context, part, folder.of_table(self._backfill, name))
        ensure_table(self._context.spark, folder.quarantine, "the quarantine", quarantine_schema())

    def write(
        self, folder: BackfillFolder, transaction: DeltaTransaction, chunk: Chunk
    ) -> tuple[WrittenFiles, dict[str, int]]:

        expired: dict[str, Observed] = {}

        def write(
            replayed: ReplayedRows,
        ) -> tuple[WrittenFiles, dict[str, tuple[DeltaTransaction, WrittenFiles]]]:
            rows = self._without_expired(self._backfill.target, replayed, expired)
            files = transaction.write(self._replay.to_write(rows))
            return files, self._written_further(folder, replayed, chunk, expired)

        replayed, (files, further) = without_failing(
            lambda failing: self._replay.replay(chunk, failing),
            write,
            lambda replayed, error: replayed.blamed(error),
        )
        replayed.passed.judge(chunk.number, [self._backfill.target, *further])
        self._results = tuple(replayed.passed.input_results.values())
        numbered = self._plan.numbered
        has_rows = self._backfill.target in numbered
        places = partial(places_in, folder.shadow, files.names, has_rows=has_rows)
        accounting = self._accounted(self._backfill.target, replayed, files, places, expired)
        shortfall = {"live_shortfall": self._replay.live_shortfall(chunk)}
        if accounting["quarantined"]:
            entry = chunk_entry(self._backfill, chunk, {"quarantined": accounting["quarantined"]})
            write_side(
                self._context.transaction(folder.quarantine),
                replayed.rejected(),
                self._backfill.app_id,
                entry,
                accounting["quarantined"],
            )
        for name, (own, written) in further.items():
            shadow = folder.of_table(self._backfill, name).shadow
            places = partial(places_in, shadow, written.names, has_rows=name in numbered)
            of_table = self._accounted(name, replayed, written, places, expired)
            part = self._backfill.parts[name]
            entry = chunk_entry(part, chunk, of_table | shortfall, rows=written.rows)
            self._context.step(part.job, "before chunk of another table", chunk.number)
            own.commit(part.app_id, chunk.number, entry.to_json(), written)
            self._context.step(part.job, "after chunk of another table", chunk.number)
        return files, accounting | shortfall

    def _written_further(
        self,
        folder: BackfillFolder,
        replayed: ReplayedRows,
        chunk: Chunk,
        expired: dict[str, Observed],
    ) -> dict[str, tuple[DeltaTransaction, WrittenFiles]]:
        """The files of the other tables' shadows that do not have this chunk yet."""
        found = {}
        for name in self._backfill.further:
            transaction = self._context.transaction(folder.of_table(self._backfill, name).shadow)
            if transaction.last_batch(self._backfill.app_id) < chunk.number:
                rows = self._without_expired(name, replayed, expired)
                found[name] = (transaction, transaction.write(self._replay.to_write(rows)))
        return found

    def _without_expired(self, name: str, replayed: ReplayedRows, expired: dict[str, Observed]) -> DataFrame:
        """The rows of a table that it keeps; how many it does not is in `expired`, once they are written."""
        rows = replayed.results[name]
        if name in self._kept:
            gone = F.count_if(~self._kept[name].condition()).alias("expired")
            expired[name] = Observed()
            rows = expired[name].over(rows, gone)
        return self._kept_of(name, rows)

    def _kept_of(self, name: str, rows: DataFrame) -> DataFrame:
        return rows.filter(self._kept[name].condition()) if name in self._kept else rows

    def _accounted(
        self,
        name: str,
        replayed: ReplayedRows,
        written: WrittenFiles,
        places: Callable[[], pa.Table],
        expired: Mapping[str, Observed],
    ) -> dict[str, int]:
        """The terms of a table: what came out of the function is what was written, and what is beyond the age."""
        gone = int(expired[name].get()["expired"]) if name in expired else 0
        (terms,) = replayed.passed.accounting(written.rows + gone, places, name).values()
        wholly = (
            self._wholly_expired(name, replayed, places()) if gone and name in self._plan.exploding else 0
        )
        return without_rows(terms, gone, wholly)

    def _wholly_expired(self, name: str, replayed: ReplayedRows, written: pa.Table) -> int:
        """How many records became rows of which none is written; the function is computed once more for these."""
        beyond = replayed.results[name].filter(~self._kept[name].condition())
        both = pa.concat_tables([written.cast(PLACED), places_of(beyond)])
        of_both, of_written = (
            records_in(rows, below=self._plan.exploding[name].below).total() for rows in (both, written)
        )
        return of_both - of_written

    def results(self) -> Sequence[CheckResult]:
        return self._results

    def preview(self, error: Exception | None = None) -> Mapping[str, DataFrame]:
        # Chunks differ in the versions of the look-ups.
        if error is None:
            self._previewed = [self._replay.replay(chunk) for chunk in self._backfill.chunks]
        else:
            failing = self._blamed(error)
            self.release()
            self._previewed = [
                self._replay.replay(chunk, failing.get(chunk.number)) for chunk in self._backfill.chunks
            ]
        return {
            name: self._kept_of(
                name, reduce(DataFrame.unionByName, [each.results[name] for each in self._previewed])
            )
            for name in self._backfill.parts
        }

    def _blamed(self, error: Exception) -> dict[int, Problem]:
        """For which records of each chunk the function raises."""
        found = {}
        for chunk, replayed in zip(self._backfill.chunks, self._previewed, strict=False):
            try:
                found[chunk.number] = replayed.blamed(error)
            except Exception as failure:
                if failure is not error:
                    raise
        if not found:
            raise error
        return found

    def release(self) -> None:
        for replayed in self._previewed:
            replayed.release()
        self._previewed = []
