"""Windows recomputed: the job's function over all rows of the input that fall into them, at once.

Of windows that are written once they are closed those are compared that the watermark has passed. Count windows number
the rows of a key from its first on, so there is no sample of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.offsets import Offsets, Pair
from headwater_streams.backfill.recompute.comparing import Compared, Order, compare
from headwater_streams.backfill.recompute.input_rows import (
    InputRows,
    Taken,
    compared_as_computed,
    compared_as_rejected,
)
from headwater_streams.backfill.recompute.outcome import NotRecomputableError, Recompute, Recomputed, judged
from headwater_streams.backfill.recompute.reading import in_order
from headwater_streams.backfill.recompute.sampling import limit_of, limit_of_windows, pick_windows
from headwater_streams.backfill.recompute.sessions import Sessions
from headwater_streams.base.durations import in_micros
from headwater_streams.base.ledger_entry import Ranges, merge_ranges
from headwater_streams.base.plural import quantity
from headwater_streams.operators.windows.count import CountWindow
from headwater_streams.operators.windows.session import SessionWindow
from headwater_streams.operators.windows.spec import (
    CLOSED_UNTIL,
    WINDOW_END,
    WINDOW_KEY,
    WINDOW_START,
    FoldedWindow,
)
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.sources.coordinates import ROW_COLUMNS, ROWS, SOURCES
from headwater_streams.spark.hidden_columns import hide, reveal

_MARGIN = 20
"""On each side of what windows say of their rows, a so-manieth part of the limit is read beside it."""
_STARTS = 5_000  # what is picked from, that the sources of all windows need not be gathered
_TRIES = 4
_START_US = "_start_us"
_MINUTE_US = 60_000_000


@dataclass(frozen=True)
class WrittenWindows:
    """What a run of a windowed job wrote.

    Attributes:
        rows: The windows.
        within: Which windows are meant, as a condition over rows of the result; None for all.
        keys: The columns that name one.
        columns: Those that are compared.
        taken: What it was to read.
        closed_until_us: Of windows that are written once they are closed, which are.
    """

    rows: DataFrame
    within: Column | None
    keys: Sequence[str]
    columns: Sequence[str]
    taken: Taken
    closed_until_us: int | None


class WindowRecomputation:
    """Recomputes windows of a windowed job's target."""

    def __init__(self, context: StageContext, job: Job, plan: JobPlan, written: WrittenWindows) -> None:
        """Args: the job as it is declared; the part of it that makes the windows; what was written.

        Raises:
            NotRecomputableError: Its windows cannot be recomputed.
        """
        self._plan, self._written, self._window = plan, written, plan.window
        named = plan.result.fieldNames()
        if any(key not in named for key in written.keys):
            raise NotRecomputableError("its rows have no columns of their own that name them")
        name = next(iter(job.inputs))
        self._rows = InputRows(context, job, plan, name, written.taken, overlapping=self._window.overlapping)
        self._sessions: Sessions | None = None
        self._step_us = 1
        if isinstance(self._window, CountWindow) and WINDOW_END not in named:
            raise NotRecomputableError("its rows do not say when their windows end")
        if isinstance(self._window, SessionWindow):
            who = [key for key in written.keys if key not in (WINDOW_START, WINDOW_END)]
            if not {*self._window.by} <= {*who} or not {WINDOW_START, WINDOW_END} <= {*named}:
                raise NotRecomputableError(
                    "its rows do not say whose sessions they are, and from when to when"
                )
            assert written.closed_until_us is not None, "sessions are written once they are closed"
            self._sessions = Sessions(who, written.rows, written.closed_until_us)
            # Hardly two sessions begin at one time; those of a while are picked together.
            self._step_us = max(in_micros(self._window.gap), _MINUTE_US)

    def run(self, how: Recompute, seed: str) -> Recomputed:
        """Recomputes all windows, or a sample.

        Raises:
            NotRecomputableError: There is nothing that can be.
            StreamsError: Nobody answers.
        """
        read, rows, span = self._written.taken.read, self._written.rows, None
        here = self._rows.there()
        limit = None if how == "all" else limit_of(read.count)
        if not read.count:
            raise NotRecomputableError("no record feeds what was written")
        if not here.count:
            raise NotRecomputableError(f"none of {read.count:,} offsets is in {read.topics} any more")
        picked, windows = here, None
        if here != read or (limit is not None and limit < read.count):
            windows = self._windows_by_start()
            picked, span = self._picked(here, limit, Random(seed), sorted(windows))
            rows = rows.filter(self._starts_in(span))

        inputs = [(self._rows, picked)]

        def compare(by_checks: bool) -> tuple[Compared, tuple[str, ...]]:
            given = {self._rows.name: self._rows.given(picked, by_checks=by_checks)}
            return compared_as_computed(
                self._plan, given, inputs, lambda left: self._compared(left[self._rows.name], span, rows)
            )

        found, notes = compared_as_rejected(compare, inputs)
        total = found.written if windows is None else sum(windows.values())
        compared = f"{found.rows:,} of {quantity(total, 'window')}"
        outcome = judged(found, compared, picked, read, read.count - here.count)
        return replace(outcome, notes=(*outcome.notes, *notes))

    def _compared(
        self, good: DataFrame, span: Pair | None, rows: DataFrame
    ) -> tuple[Compared, tuple[str, ...]]:
        """What differs, and what a person should know of that."""
        if self._sessions is not None:
            return self._compared_sessions(self._sessions, good, rows, sample=span is not None)
        return self._compare(lambda order: self._windows(good, span, order), rows), ()

    def _compared_sessions(
        self, sessions: Sessions, good: DataFrame, rows: DataFrame, *, sample: bool
    ) -> tuple[Compared, tuple[str, ...]]:
        @cache
        def made(order: Order | None) -> DataFrame:
            # Spark would look at the bounds before rows are merged: it moves such a condition below the grouping.
            found = self._results(good, order).localCheckpoint()
            if self._written.within is not None:
                found = found.filter(self._written.within)
            return sessions.near(found, rows) if sample else found

        found = self._compare(lambda order: sessions.closed(made(order)), rows)
        if found.same:
            return found, ()
        alone = sessions.comparable(made(None), rows)
        apart = found.written - alone.count()
        if not apart:
            return found, ()
        found = self._compare(lambda order: sessions.unsplit(made(order), sample=sample), alone)
        one = "session that a row behind the watermark began or cut off was not compared"
        return found, (quantity(apart, one, one.replace("session", "sessions").replace("was", "were")),)

    def _compare(self, made: Callable[[Order | None], DataFrame], rows: DataFrame) -> Compared:
        columns = [*self._written.columns, *([] if ROWS in self._written.columns else [ROWS])]
        return compare(made, rows, self._written.keys, columns, by_hash=False)

    def _results(self, good: DataFrame, order: Order | None) -> DataFrame:
        """The function's result over rows, with what it hides of windows."""
        hidden = [*ROW_COLUMNS, *([CLOSED_UNTIL] if CLOSED_UNTIL in good.columns else [])]
        result = self._plan.job.function(**{self._rows.name: hide(in_order(good, order), hidden)})
        return reveal(result, [ROWS, WINDOW_KEY] if isinstance(self._window, FoldedWindow) else [ROWS])

    def _windows(self, good: DataFrame, span: Pair | None, order: Order | None) -> DataFrame:
        result = self._results(good, order)
        if self._written.closed_until_us is not None:
            folded = isinstance(self._window, FoldedWindow)
            ends = F.unix_micros(F.col(f"{WINDOW_KEY}.window_end") if folded else WINDOW_END)
            result = result.filter(ends <= self._written.closed_until_us)
        if self._written.within is not None:
            result = result.filter(self._written.within)
        return result if span is None else result.filter(self._starts_in(span))

    def _windows_by_start(self) -> dict[int, int]:
        """How many windows were written, by their start; nothing where they do not say it, or where the rows before it
        count, too."""
        rows = self._written.rows
        if (
            not self._window.closing
            or isinstance(self._window, CountWindow)
            or self._rows.by_key
            or WINDOW_START not in rows.columns
        ):
            return {}
        counts = rows.groupBy(self._start_us().alias(_START_US)).count()
        return {row[_START_US]: row["count"] for row in counts.collect()}

    def _start_us(self) -> Column:
        """When a window starts, as windows are picked by it."""
        start_us = F.unix_micros(WINDOW_START)
        return start_us - F.pmod(start_us, F.lit(self._step_us))

    def _starts_in(self, span: Pair) -> Column:
        return self._start_us().between(*span)

    def _picked(
        self, here: Offsets, limit: int | None, rng: Random, starts: Sequence[int]
    ) -> tuple[Offsets, Pair]:
        """Windows whose records are all there, as many as the limit lets, and the offsets to read for them."""
        read = self._written.taken.read
        if not starts:
            gone, many = (
                "some of which are gone",
                "and they are more than a sample; --recompute all reads them",
            )
            why = "its rows do not say of what time they are"
            if isinstance(self._window, CountWindow):
                why = "its windows are counted from the first row of each key on"
            if self._rows.by_key:
                why = "which of a key's rows stays depends on all that came before"
            raise NotRecomputableError(f"{why}, so it takes all offsets, {gone if here != read else many}")
        margin = 0 if limit is None else limit // _MARGIN
        batches = [Offsets.of([b.id.ranges]) for b in self._rows.batches] if self._rows.by_headers else []

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
        rows = self._written.rows.select(self._start_us().alias(_START_US), SOURCES)
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
