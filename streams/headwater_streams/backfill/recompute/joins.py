"""The rows of a join of two streams, recomputed: the job's function over all rows of both, at once.

A pair is there in a batch as in the stream, whatever the order. A row without a partner is written once none can come
any more; a batch gives those that still wait, too, and as many of them may be missing as wait by the ledger. Of an
as-of join the answers are taken that are final at the run's last watermark; none of them depends on when it was given.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.recompute.comparing import Compared, Order, compare
from headwater_streams.backfill.recompute.input_rows import (
    InputRows,
    Taken,
    compared_as_computed,
    compared_as_rejected,
)
from headwater_streams.backfill.recompute.outcome import NotRecomputableError, Recompute, Recomputed, judged
from headwater_streams.backfill.recompute.reading import in_order
from headwater_streams.backfill.recompute.sampling import limit_of
from headwater_streams.base.plural import quantity
from headwater_streams.operators.joins.as_of import Answering, AsOf, answering
from headwater_streams.operators.joins.columns import READ_BEFORE
from headwater_streams.operators.joins.interval import IntervalJoin
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.sources.coordinates import PLACE, ROW_COLUMNS, SOURCES
from headwater_streams.spark.hidden_columns import hide, reveal


@dataclass(frozen=True)
class WrittenJoin:
    """What a run of a joining job wrote.

    Attributes:
        rows: The rows.
        columns: Those of their columns that are compared.
        taken: What it was to read, by input.
        waiting: How many rows wait for a partner, of the sides whose rows are written without one.
        watermark_us: Of an as-of join, the right side's at the run's end, microseconds; None before the first.
        due: Which of the rows that the inputs make, with their coordinates and sources, were to be written.
    """

    rows: DataFrame
    columns: Sequence[str]
    taken: dict[str, Taken]
    waiting: int
    watermark_us: int | None
    due: Callable[[DataFrame], DataFrame] = lambda made: made


class JoinRecomputation:
    """Recomputes the rows of a joining job's target."""

    def __init__(self, context: StageContext, job: Job, plan: JobPlan, written: WrittenJoin) -> None:
        """Args: the job as it is declared; the part of it that joins; what was written.

        Raises:
            NotRecomputableError: Which rows a side was given is not known.
        """
        self._plan, self._written = plan, written
        self._inputs = [InputRows(context, job, plan, name, taken) for name, taken in written.taken.items()]

    def run(self, how: Recompute) -> Recomputed:
        """Recomputes all rows; as a sample, where there are no more offsets than that may have.

        Raises:
            NotRecomputableError: They cannot be, or are more than a sample.
            StreamsError: Nobody answers.
        """
        read = Offsets.union([rows.taken.read for rows in self._inputs])
        here = Offsets.union([rows.there() for rows in self._inputs])
        if not all(rows.taken.read.count for rows in self._inputs):
            raise NotRecomputableError("no record feeds one side of the join")
        self._require_told_apart()
        if any(rows.there() != rows.taken.read for rows in self._inputs):
            raise NotRecomputableError(
                f"{read.count - here.count:,} of {read.count:,} offsets are gone from {read.topics}, and which rows "
                "they were joined with is not known"
            )
        if how == "sample" and read.count > limit_of(read.count):
            raise NotRecomputableError(
                "which offsets a pair comes from is known of those written only, so it takes all offsets, and they are "
                "more than a sample; --recompute all reads them"
            )
        inputs = [(rows, rows.taken.read) for rows in self._inputs]

        def compare(by_checks: bool) -> tuple[Compared, tuple[str, ...]]:
            given = {rows.name: rows.given(picked, by_checks=by_checks) for rows, picked in inputs}
            return compared_as_computed(self._plan, given, inputs, self._compared)

        found, notes = compared_as_rejected(compare, inputs)
        outcome = judged(found, quantity(found.rows, "row"), here, read, 0)
        return replace(outcome, notes=(*outcome.notes, *notes))

    def _require_told_apart(self) -> None:
        """The quarantine does not say by which side a record was rejected."""
        left, right = ({topic for topic, _ in rows.taken.read.pairs} for rows in self._inputs)
        if left & right and any(rows.rejected() for rows in self._inputs):
            raise NotRecomputableError(
                f"both sides of the join come from {', '.join(sorted(left & right))}, some of whose records are in "
                "quarantine, and by which side is not known"
            )

    def _compared(self, given: Mapping[str, DataFrame]) -> tuple[Compared, tuple[str, ...]]:
        if isinstance(self._plan.operator, AsOf):
            found = compare(
                lambda order: self._answers(given, order),
                self._written.rows,
                PLACE,
                self._written.columns,
                by_hash=False,
            )
            return found, ()
        assert isinstance(self._plan.operator, IntervalJoin)

        def made(order: Order | None) -> DataFrame:
            inputs = {name: hide(in_order(rows, order), ROW_COLUMNS) for name, rows in given.items()}
            return self._written.due(reveal(self._plan.job.function(**inputs), [*PLACE, SOURCES]))

        rows, waiting = self._written.rows, None
        if self._plan.operator.keeps:
            alone = reduce(Column.__or__, [F.col(SOURCES)[side].isNull() for side in (0, 1)])
            unwritten = made(None).filter(alone).select(SOURCES)
            unwritten = unwritten.join(rows.select(SOURCES), SOURCES, "left_anti").localCheckpoint()
            if unwritten.count() <= self._written.waiting:
                waiting = unwritten

        def due(order: Order | None) -> DataFrame:
            return made(order) if waiting is None else made(order).join(waiting, SOURCES, "left_anti")

        return compare(due, rows, (SOURCES,), self._written.columns, by_hash=False), ()

    def _answers(self, given: Mapping[str, DataFrame], order: Order | None) -> DataFrame:
        inputs = {
            name: hide(
                in_order(rows, order).withColumn(READ_BEFORE, F.lit(False)), [*ROW_COLUMNS, READ_BEFORE]
            )
            for name, rows in given.items()
        }
        asked = Answering(None, self._written.watermark_us)
        with answering(asked):
            return reveal(self._plan.job.function(**inputs), ROW_COLUMNS)
