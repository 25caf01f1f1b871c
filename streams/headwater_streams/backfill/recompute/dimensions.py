"""The rows of a slowly changing dimension, recomputed: they follow from the set of all change events, taken at once."""

from collections.abc import Sequence

from pyspark.sql import DataFrame

from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.recompute.comparing import Order, compare
from headwater_streams.backfill.recompute.outcome import NotRecomputableError, Recompute, Recomputed, judged
from headwater_streams.backfill.recompute.rows import RowRecomputation, WrittenRows
from headwater_streams.backfill.recompute.sampling import limit_of
from headwater_streams.base.plural import quantity
from headwater_streams.delta.history import history, newest
from headwater_streams.delta.scd_target import CHANGES, DELETED, ScdTarget
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.sources.coordinates import commit_columns
from headwater_streams.sources.problems import any_of


class DimensionRecomputation(RowRecomputation):
    """Recomputes the rows of a dimension; the function's rows are its change events."""

    def __init__(
        self, context: StageContext, plan: JobPlan, written: WrittenRows, keys: Sequence[str], read: int
    ) -> None:
        """Args: what the job is; what was written; the columns that name a row; how many records were read.

        Raises:
            NotRecomputableError: The rows cannot be recomputed.
        """
        super().__init__(context, plan, written)
        assert isinstance(plan.job.target, ScdTarget)
        self._target, self._keys, self._read = plan.job.target, keys, read

    def run(self, how: Recompute, seed: str) -> Recomputed:
        """Recomputes all rows; as a sample, where there are no more offsets than that may have.

        Raises:
            NotRecomputableError: They cannot be, or are more than a sample.
            StreamsError: Nobody answers, or a look-up is gone.
        """
        everything, parts = self._everything(), self._parts()
        gone = everything.count - sum(part.compared.count for part in parts)
        if not everything.count:
            raise NotRecomputableError("no record feeds what was written")
        if gone:
            raise NotRecomputableError(
                f"{gone:,} of {everything.count:,} offsets are gone from {everything.topics}, and what they changed is "
                "not known"
            )
        if how == "sample" and everything.count > limit_of(everything.count):
            raise NotRecomputableError(
                "the changes of a key may be anywhere, so it takes all offsets, and they are more than a sample; "
                "--recompute all reads them"
            )
        made = self._rows_of(parts)

        def dimension(order: Order | None) -> DataFrame:
            return self._rows_after(self._results(parts, made, order))

        columns = [*self._written.columns, CHANGES]
        found = compare(dimension, self._written.rows, self._keys, columns, by_hash=False)
        if not found.same:
            there = self._inputs.places(Offsets.union([part.read for part in parts])).count()
            if there < self._read:
                raise NotRecomputableError(
                    f"{everything.topics} does not hold {quantity(self._read - there, 'record')} that the job read any "
                    "more"
                )
        return judged(found, quantity(found.rows, "row"), everything, everything, 0)

    def _rows_after(self, events: DataFrame) -> DataFrame:
        target = self._target
        named = events.filter(~any_of(target.missing)).withColumn(DELETED, target.deletes)
        named = named.withColumns(commit_columns(0, 0))
        if target.stored_as_scd_type == 1:
            return newest(named, target.keys, target.sequence_by)
        tracked = target.tracked(self._plan.result.fieldNames())
        return history(named, target.keys, target.sequence_by, tracked)
