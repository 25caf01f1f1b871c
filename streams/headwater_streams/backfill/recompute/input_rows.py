"""The rows that a stateful job's function was given, told from the raw topic, or the table, and the side tables.

What the run left out is left out by its coordinates: rejected records by those in the quarantine table, late ones by
those in the late table of the run. Of a job that names a topic the table between that and the state is looked at only
to tell who put a record into quarantine: one that it has was rejected behind it. Rows of a table are judged by the
checks of now, as the run judged them, and those for which the function raises are found anew.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import TypeVar

import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.history import LiveBatch
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.recompute.comparing import Compared
from headwater_streams.backfill.recompute.copies import copies_by_headers, copies_by_key, without_copies
from headwater_streams.backfill.recompute.outcome import NotRecomputableError
from headwater_streams.backfill.recompute.reading import RawTable, RawTopic, checks_on, without
from headwater_streams.base.errors import StreamsError
from headwater_streams.base.plural import quantity
from headwater_streams.delta.side import MISSED
from headwater_streams.operators.dedup import ByKey
from headwater_streams.operators.windows.spec import CLOSED_UNTIL
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.runtime.stages.failing_pairs import find_all_failing, without_rows
from headwater_streams.runtime.stages.narrowing import FUNCTION, Place
from headwater_streams.sources.coordinates import INPUT, PLACE, ROW_COLUMNS
from headwater_streams.sources.decode import BAD
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.spark.columns import cols
from headwater_streams.storage.delta_rows import dataset_of

Result = TypeVar("Result")


def of_inputs(job: Job, plan: JobPlan) -> Job:
    """The job whose inputs are read again: of one that unites several for a window, or a chain, the last part.

    Args:
        job: The job as it is declared.
        plan: The part of it that has state.
    """
    return job if list(plan.job.inputs) == list(job.inputs) else plan.job


@dataclass(frozen=True)
class Taken:
    """What a run and the jobs before it say of the records of an input.

    Attributes:
        read: The offsets whose records were read.
        rejected: The tables of the records that were not used.
        late: The table of those that came too late; None where all are folded in.
        batches: Gives the batches of the job that reads the topic, where that is another one.
        kept: What that job kept of the records; of an input that is a table, its rows at the last version read.
        live: How many batches the run had, or the job whose rows are repaired.
    """

    read: Offsets
    rejected: Sequence[Path]
    late: Path | None
    batches: Callable[[], Sequence[LiveBatch]]
    kept: DataFrame | None
    live: int = 1


class InputRows:
    """The rows of one input."""

    def __init__(
        self,
        context: StageContext,
        job: Job,
        plan: JobPlan,
        name: str,
        taken: Taken,
        *,
        overlapping: bool = False,
    ) -> None:
        """Args: the job as it is declared; the part of it that has state; its input; what the run says of that; whether
        a row falls into several windows, of which some may lack it.

        Raises:
            NotRecomputableError: Which rows were given is not known.
        """
        declared = job.inputs[name]
        checks = checks_on(context.spark, job, plan.inputs[name], taken.kept)
        self.name, self.taken = name, taken
        self.by_headers = job.dedup is not None and job.dedup.by_headers
        self.by_key = isinstance(job.dedup, ByKey)
        self._context, self._job, self._overlapping = context, job, overlapping
        self._declared = declared
        self._is_side = len(plan.job.inputs) > 1
        self._input: RawTopic | RawTable
        self._judging: RawTopic | RawTable
        if isinstance(declared, TopicInput):
            # Which of the records' own columns the function uses, its plan knows.
            declared = replace(declared, record=plan.job.inputs[name].record)
            self._input = RawTopic(context, declared, job.dedup)
            self._judging = RawTopic(context, declared, job.dedup, checks)
        elif taken.kept is None:
            raise NotRecomputableError(f"nothing of {declared.name} was read")
        else:
            columns, spans = plan.inputs[name].fieldNames(), taken.read.spans
            self._input = RawTable(declared, columns, taken.kept, spans)
            self._judging = RawTable(declared, columns, taken.kept, spans, checks)

    @property
    def has_checks(self) -> bool:
        """Whether checks send rows to quarantine."""
        return bool(self._job.quarantining)

    @cached_property
    def batches(self) -> Sequence[LiveBatch]:
        """The batches of the job that reads the topic; read from its log when they are first asked for."""
        return self.taken.batches()

    def there(self) -> Offsets:
        """Those of the offsets read that the topic still has; a table has them all.

        Raises:
            StreamsError: Nobody answers, or there is no such topic.
        """
        return self.taken.read.inside(self._input.there())

    def given(self, picked: Offsets, *, by_checks: bool = False) -> DataFrame:
        """The rows of some offsets, of one at least, with their coordinates; where windows overlap with `CLOSED_UNTIL`.

        Args:
            picked: The offsets.
            by_checks: Whether the job's checks, as they are now, say which records of a topic are rejected, in place of
                the quarantine.

        Raises:
            DataLossError: Some offsets are gone.
        """
        located = self._input.located(picked)
        by_checks = by_checks or isinstance(self._input, RawTable)
        decoded = (self._judging if by_checks else self._input).decoded(located)
        good = decoded.frame.filter(~F.col(BAD)).select(*decoded.columns.values(), *ROW_COLUMNS)
        if not by_checks:
            good = self._not_in(good, self.taken.rejected, picked)
        return self._in_time(picked, self._new(picked, good))

    def rejected(self) -> bool:
        """Whether records of the offsets that were read stand in quarantine."""
        return any(not self._side(path, self.taken.read).isEmpty() for path in self.taken.rejected)

    def failing_rows(self, picked: Offsets) -> dict[Place, str]:
        """The records in quarantine for which the function raised, and why."""
        failing: dict[Place, str] = {}
        for path in self.taken.rejected:
            if _is_filled(path) and _has_failed(path):
                side = self._side(path, picked).filter(F.col("_check") == FUNCTION)
                for topic, partition, offset, why in side.select(*PLACE, "_reason").collect():
                    failing[topic, partition, offset] = why
        return failing

    def not_quarantined(self, picked: Offsets) -> int:
        """How many records the checks reject, as they are now, that stand in no quarantine table: rows were deleted."""
        decoded = self._judging.decoded(self._input.located(picked))
        rejected = decoded.frame.filter(F.col(BAD)).select(*PLACE)
        return self._not_in(rejected, self.taken.rejected, picked).count()

    def lost(self, picked: Offsets) -> int:
        """How many records that the job kept the topic lacks: a compacted one forgets some between the others."""
        if self.taken.kept is None:
            return 0
        kept = self.taken.kept.filter(picked.condition()).select(*PLACE)
        return without(kept, self._input.located(picked)).count()

    def _new(self, picked: Offsets, good: DataFrame) -> DataFrame:
        if not self.by_headers and not self.by_key:
            return good
        reading = next(p for p in plan_jobs(self._context, [self._job]) if list(p.job.inputs) == [self.name])
        if self.by_key:
            return without_copies(good, copies_by_key(reading, good, self.batches))
        chosen = [bool(picked.inside(batch.id.ranges).count) for batch in self.batches]
        # A record may be the copy of one of its batch that is not picked.
        ranges = [batch.id.ranges for batch, is_chosen in zip(self.batches, chosen, strict=True) if is_chosen]
        located = self._input.located(Offsets.of(ranges).inside(self._input.there()))
        return without_copies(good, copies_by_headers(reading, located, self.batches, chosen))

    def _in_time(self, picked: Offsets, good: DataFrame) -> DataFrame:
        """The records but the late ones; where a record is in several windows, with the last one that lacks it."""
        if self.taken.late is None or not (self._overlapping or _is_filled(self.taken.late)):
            return good
        late = self._side(self.taken.late, picked)
        if self._is_side:
            late = late.filter(F.col(INPUT) == self.name)
        place = [*PLACE, *self._time_of_lines]
        names = cols(good.columns)
        if not self._overlapping:
            return good.join(late.select(*cols(place)), place, "left_anti").select(*names)
        closed = F.array_max(F.transform(MISSED, lambda window: window["end"]))
        last = late.groupBy(*cols(place)).agg(F.max(closed).alias(CLOSED_UNTIL))
        return good.join(last, place, "left").select(*names, CLOSED_UNTIL)

    @property
    def _time_of_lines(self) -> tuple[str, ...]:
        """The column by which late rows are told from others of their record, of a table that may have several of one.
        Those of one time came together, and are late or not together."""
        time = self._declared.event_time if isinstance(self._input, RawTable) else None
        return () if time is None else (time,)

    def _not_in(self, rows: DataFrame, paths: Sequence[Path], picked: Offsets) -> DataFrame:
        """Rows but those that stand in side tables; most of these are empty, and a join is not for nothing."""
        sides = [self._rejected_by_maker(path, picked) for path in paths if _is_filled(path)]
        return reduce(without, sides, rows)

    def _rejected_by_maker(self, path: Path, picked: Offsets) -> DataFrame:
        """The records in quarantine, but those for which the function raised behind the table that has them."""
        side, of_function = self._side(path, picked), F.col("_check") == FUNCTION
        if self.taken.kept is None or not _has_failed(path):
            return side
        return side.filter(~of_function).unionByName(without(side.filter(of_function), self.taken.kept))

    def _side(self, path: Path, picked: Offsets) -> DataFrame:
        return self._context.spark.read.format("delta").load(str(path)).filter(picked.condition())


def _is_filled(path: Path) -> bool:
    return bool(DeltaTable(str(path)).file_uris())


def _has_failed(path: Path) -> bool:
    return bool(dataset_of(path).count_rows(filter=ds.field("_check") == FUNCTION))


def compared_as_computed(
    plan: JobPlan,
    given: Mapping[str, DataFrame],
    inputs: Sequence[tuple[InputRows, Offsets]],
    compare: Callable[[Mapping[str, DataFrame]], Result],
) -> Result:
    """Compares what the function makes of rows; where it raises for some, of the others.

    Args:
        plan: The job.
        given: The rows, by input.
        inputs: Where they are from, and which of them they are.
        compare: Compares.

    Raises:
        RowErrorsError: It raises for more rows than the job allows.
    """
    try:
        return compare(given)
    except (NotRecomputableError, StreamsError):
        raise
    except Exception as error:
        who, ranges = f"job {plan.job.name!r}, recomputed", {rows.name: at.spans for rows, at in inputs}
        own = {name: rows.drop(CLOSED_UNTIL) for name, rows in given.items()}
        live = max(rows.taken.live for rows, _ in inputs)
        found = find_all_failing(plan, own, ranges, who, error, lambda: _failing_rows(inputs), live)
        if not any(found.values()):
            raise
    return compare(without_rows(given, found))


def _failing_rows(inputs: Sequence[tuple[InputRows, Offsets]]) -> dict[str, dict[Place, str]]:
    return {rows.name: rows.failing_rows(picked) for rows, picked in inputs}


def compared_as_rejected(
    compare: Callable[[bool], tuple[Compared, tuple[str, ...]]], inputs: Sequence[tuple[InputRows, Offsets]]
) -> tuple[Compared, tuple[str, ...]]:
    """Compares what the quarantine leaves; where that differs, what the job's checks leave, for rows of it may be gone.

    Args:
        compare: Compares, by the checks or not: what differs, and notes on it.
        inputs: The rows, and which of them are given.

    Raises:
        NotRecomputableError: Something differs, and a topic lacks records that the job kept.
    """
    found, notes = compare(False)
    if found.same:
        return found, notes
    deleted = sum(rows.not_quarantined(picked) for rows, picked in inputs if rows.has_checks)
    if deleted:
        again, notes_again = compare(True)
        if again.same:
            note = f"the quarantine table lacks {quantity(deleted, 'record')} that the job's checks reject"
            return again, (*notes_again, note)
    lost = sum(rows.lost(picked) for rows, picked in inputs)
    if lost:
        topics = Offsets.union([picked for _, picked in inputs]).topics
        raise NotRecomputableError(
            f"{topics} does not hold {quantity(lost, 'record')} that the job kept any more"
        )
    return found, notes
