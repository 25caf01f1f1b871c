"""Windows recomputed: the job's function over all records of the topic that fall into them, at once.

What the live job left out is left out by its coordinates: rejected records by those in the quarantine table, late ones
by those in the late table of the run. The table between the topic and the windows is not looked at.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from random import Random

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.history import LiveBatch
from headwater_streams.backfill.offsets import Offsets, Pair
from headwater_streams.backfill.recompute.comparing import Compared, Order, compare
from headwater_streams.backfill.recompute.outcome import NotRecomputableError, Recompute, Recomputed, judged
from headwater_streams.backfill.recompute.reading import RawTopic, in_order, not_new, without
from headwater_streams.backfill.recompute.sampling import limit_of, limit_of_windows, pick_windows
from headwater_streams.backfill.repair.spec import WINDOW_START
from headwater_streams.dedup.by_key import ByKey
from headwater_streams.ledger.entry import Ranges, merge_ranges
from headwater_streams.plural import counted
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.job import Job
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.runtime.runner import plan_jobs
from headwater_streams.sinks.side import MISSED
from headwater_streams.sources.coordinates import PLACE, ROW_COLUMNS, ROWS, SOURCES, hide, reveal
from headwater_streams.sources.decode import BAD
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.windows.session import SessionWindow
from headwater_streams.windows.spec import CLOSED_UNTIL, WINDOW_KEY, FoldedWindow

_MARGIN = 20
"""On each side of what windows say of their rows, a so-manieth part of the limit is read beside it."""
_STARTS = 5_000  # what is picked from, that the sources of all windows need not be gathered
_TRIES = 4
_START_US = "_start_us"


@dataclass(frozen=True)
class WrittenWindows:
    """What a run of a windowed job wrote, and what it was to read.

    Attributes:
        rows: The windows.
        within: Which windows are meant, as a condition over rows of the result; None for all.
        keys: The columns that name one.
        columns: Those that are compared.
        read: The offsets whose records were read.
        rejected: The tables of the records that are in no window.
        late: The table of those that came too late for some; None where all are folded in.
        closed_until_us: Of windows that are written once they are closed, which are.
        batches: Gives the batches of the job that reads the topic, where that is another one.
        kept: What that job kept of the records.
    """

    rows: DataFrame
    within: Column | None
    keys: Sequence[str]
    columns: Sequence[str]
    read: Offsets
    rejected: Sequence[Path]
    late: Path | None
    closed_until_us: int | None
    batches: Callable[[], Sequence[LiveBatch]]
    kept: DataFrame | None


class WindowRecomputation:
    """Recomputes windows of a windowed job's target."""

    def __init__(self, context: StageContext, job: Job, plan: JobPlan, written: WrittenWindows) -> None:
        """Args: the job as it is declared; the part of it that makes the windows; what was written.

        Raises:
            NotRecomputableError: Its windows cannot be recomputed.
        """
        self._context, self._job, self._plan, self._written = context, job, plan, written
        if isinstance(plan.operator, SessionWindow) or not isinstance(plan.operator, FoldedWindow):
            raise NotRecomputableError(
                f"the job is {plan.window.name}, and only windows of fixed times are so far"
            )
        unnamed = [key for key in written.keys if key not in plan.result.fieldNames()]
        if unnamed:
            raise NotRecomputableError("its rows have no columns of their own that name them")
        self._window = plan.operator
        self._name, declared = next(iter(job.inputs.items()))
        assert isinstance(declared, TopicInput)
        if isinstance(job.dedup, ByKey):
            raise NotRecomputableError(
                "the job removes duplicates by key, and which of them stays depends on the order in which they came"
            )
        self._by_headers = job.dedup is not None and job.dedup.by_headers
        self._checks = [c for c in job.checks_for("input", "row") if c.action == "quarantine"]
        self._topic = RawTopic(context, declared, job.dedup)
        self._judging = RawTopic(context, declared, job.dedup, self._checks)

    def run(self, how: Recompute, seed: str) -> Recomputed:
        """Recomputes all windows, or a sample.

        Raises:
            NotRecomputableError: There is nothing that can be.
            StreamsError: Nobody answers.
        """
        read, rows, span = self._written.read, self._written.rows, None
        there = self._topic.there()
        limit = None if how == "all" else limit_of(read.count)
        here = read.inside(there)
        if not read.count:
            raise NotRecomputableError("no record feeds what was written")
        if not here.count:
            raise NotRecomputableError(f"none of {read.count:,} offsets is in {read.topics} any more")
        picked, windows = here, None
        if here != read or (limit is not None and limit < read.count):
            windows = self._windows_by_start()
            picked, span = self._picked(here, limit, Random(seed), sorted(windows))
            rows = rows.filter(_starts_in(span))
        found = self._compared(picked, span, rows, self._by_coordinates)
        notes: tuple[str, ...] = ()
        if not found.same and self._checks and (deleted := self._not_quarantined(picked)):
            again = self._compared(picked, span, rows, self._by_checks)
            if again.same:
                note = f"the quarantine table lacks {counted(deleted, 'record')} that the job's checks reject"
                found, notes = again, (note,)
        if not found.same and self._written.kept is not None:
            # A compacted topic forgets records between the others.
            kept = self._written.kept.filter(picked.condition()).select(*PLACE)
            lost = without(kept, self._topic.located(picked)).count()
            if lost:
                raise NotRecomputableError(
                    f"{read.topics} does not hold {counted(lost, 'record')} that the job kept any more"
                )
        total = found.rows - found.missing + found.extra if windows is None else sum(windows.values())
        compared = f"{found.rows:,} of {counted(total, 'window')}"
        outcome = judged(found, compared, picked, read, read.count - here.count)
        return replace(outcome, notes=(*outcome.notes, *notes))

    def _compared(
        self,
        picked: Offsets,
        span: Pair | None,
        rows: DataFrame,
        good_of: Callable[[Offsets, DataFrame], DataFrame],
    ) -> Compared:
        located = self._topic.located(picked)
        good = self._in_time(picked, self._new(picked, located, good_of(picked, located)))
        columns = [*self._written.columns, *([] if ROWS in self._written.columns else [ROWS])]
        return compare(
            lambda order: self._windows(good, span, order),
            rows,
            self._written.keys,
            columns,
            by_hash=False,
        )

    def _by_coordinates(self, picked: Offsets, located: DataFrame) -> DataFrame:
        """The records that can be used, but those that stand in a quarantine table."""
        decoded = self._topic.decoded(located)
        good = decoded.frame.filter(~F.col(BAD)).select(*decoded.columns.values(), *ROW_COLUMNS)
        return self._not_in(good, self._written.rejected, picked)

    def _by_checks(self, _picked: Offsets, located: DataFrame) -> DataFrame:
        """The records that can be used, as the job's checks are now."""
        decoded = self._judging.decoded(located)
        return decoded.frame.filter(~F.col(BAD)).select(*decoded.columns.values(), *ROW_COLUMNS)

    def _not_quarantined(self, picked: Offsets) -> int:
        """How many records the checks reject, as they are now, that stand in no quarantine table: rows were deleted."""
        decoded = self._judging.decoded(self._topic.located(picked))
        rejected = decoded.frame.filter(F.col(BAD)).select(*PLACE)
        return self._not_in(rejected, self._written.rejected, picked).count()

    def _new(self, picked: Offsets, located: DataFrame, good: DataFrame) -> DataFrame:
        if not self._by_headers:
            return good
        batches = self._written.batches()
        chosen = [bool(picked.inside(batch.id.ranges).count) for batch in batches]
        copies = not_new(plan_jobs(self._context, [self._job])[0], located, batches, chosen)
        return without(good, self._context.spark.createDataFrame(copies)) if copies.num_rows else good

    def _in_time(self, picked: Offsets, good: DataFrame) -> DataFrame:
        """The records but the late ones; where a record is in several windows, with the last one that lacks it."""
        if self._written.late is None:
            return good
        if not self._window.overlapping:
            return self._not_in(good, [self._written.late], picked)
        late = self._side(self._written.late, picked)
        closed = F.array_max(F.transform(MISSED, lambda window: window["end"])).alias(CLOSED_UNTIL)
        return good.join(late.select(*PLACE, closed), list(PLACE), "left")

    def _not_in(self, rows: DataFrame, paths: Sequence[Path], picked: Offsets) -> DataFrame:
        """Rows but those that stand in side tables; most of these are empty, and a join is not for nothing."""
        filled = [path for path in paths if DeltaTable(str(path)).file_uris()]
        return reduce(without, [self._side(path, picked) for path in filled], rows)

    def _side(self, path: Path, picked: Offsets) -> DataFrame:
        return self._context.spark.read.format("delta").load(str(path)).filter(picked.condition())

    def _windows(self, good: DataFrame, span: Pair | None, order: Order | None) -> DataFrame:
        hidden = [*ROW_COLUMNS, *([CLOSED_UNTIL] if CLOSED_UNTIL in good.columns else [])]
        rows = in_order(good, order)
        result = self._plan.job.function(**{self._name: hide(rows, hidden)})
        result = reveal(result, [ROWS, WINDOW_KEY])
        if self._written.closed_until_us is not None:
            ends = F.unix_micros(F.col(f"{WINDOW_KEY}.window_end"))
            result = result.filter(ends <= self._written.closed_until_us)
        if self._written.within is not None:
            result = result.filter(self._written.within)
        return result if span is None else result.filter(_starts_in(span))

    def _windows_by_start(self) -> dict[int, int]:
        """How many windows were written, by their start; nothing where they do not say it."""
        if not self._window.closing or WINDOW_START not in self._written.rows.columns:
            return {}
        start_us = F.unix_micros(WINDOW_START).alias(_START_US)
        return {
            row[_START_US]: row["count"] for row in self._written.rows.groupBy(start_us).count().collect()
        }

    def _picked(
        self, here: Offsets, limit: int | None, rng: Random, starts: Sequence[int]
    ) -> tuple[Offsets, Pair]:
        """Windows whose records are all there, as many as the limit lets, and the offsets to read for them."""
        read = self._written.read
        if not starts:
            gone, many = (
                "some of which are gone",
                "and they are more than a sample; --recompute all reads them",
            )
            raise NotRecomputableError(
                f"its rows do not say of what time they are, so it takes all offsets, {gone if here != read else many}"
            )
        margin = 0 if limit is None else limit // _MARGIN
        batches = [Offsets.of([b.id.ranges]) for b in self._written.batches()] if self._by_headers else []

        def offsets_of(parts: Sequence[Ranges]) -> Offsets:
            wide = _widened(merge_ranges(list(parts)), margin)
            # Copies are told beside the other records of their batch.
            whole = (
                Offsets.union([b for b in batches if b.inside(wide).count]) if batches else read.inside(wide)
            )
            return here.inside(whole.spans)

        def cost(parts: Sequence[Ranges]) -> int | None:
            spans = merge_ranges(list(parts))
            is_there = here.inside(spans) == read.inside(spans)
            return offsets_of(parts).count if is_there else None

        at_most = limit_of_windows(read.count)
        for sources in self._sources(limit, rng, starts):
            span = pick_windows(sources, limit, rng, cost)
            if span is None and limit is not None:
                span = pick_windows(sources, at_most, rng, cost)
            if span is not None:
                return offsets_of([of for start, of in sources.items() if span[0] <= start <= span[1]]), span
        if limit is None:
            raise NotRecomputableError(f"no window has all of its records in {read.topics} still")
        raise NotRecomputableError(
            f"no window was found whose records lie within {at_most:,} offsets of {read.topics}; --recompute all reads "
            f"all {read.count:,}"
        )

    def _sources(
        self, limit: int | None, rng: Random, starts: Sequence[int]
    ) -> Iterator[Mapping[int, Ranges]]:
        """Where the records of windows are, by their start: of all windows, or of some stretches of them."""
        rows = self._written.rows.select(F.unix_micros(WINDOW_START).alias(_START_US), SOURCES)
        if limit is None:
            yield _ranges_by_start(rows)
            return
        blocks = range(0, len(starts), _STARTS)
        for block in rng.sample(blocks, min(_TRIES, len(blocks))):
            some = starts[block : block + _STARTS]
            yield _ranges_by_start(rows.filter(F.col(_START_US).between(some[0], some[-1])))


def _ranges_by_start(rows: DataFrame) -> Mapping[int, Ranges]:
    each = rows.select(_START_US, F.explode(SOURCES).alias("of")).groupBy(
        _START_US, "of.topic", "of.partition"
    )
    found: dict[int, dict[str, dict[int, Pair]]] = {}
    bounds = F.min("of.start").alias("start"), F.max("of.end").alias("end")
    for row in each.agg(*bounds).collect():
        found.setdefault(row[_START_US], {}).setdefault(row["topic"], {})[row["partition"]] = (
            row["start"],
            row["end"],
        )
    return found


def _widened(ranges: Ranges, margin: int) -> Ranges:
    return {
        topic: {partition: (start - margin, end + margin) for partition, (start, end) in partitions.items()}
        for topic, partitions in ranges.items()
    }


def _starts_in(span: Pair) -> Column:
    return F.unix_micros(WINDOW_START).between(*span)
