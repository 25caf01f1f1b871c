"""Right rows without a partner, of a join that keeps them: which of them a repair writes.

A row of the result belongs to its left row, and one of a right row alone to that. A right row near the left rows of a
range may have partners outside of it, too, whose pairs stay as they are:

    range of left rows      |------------------|
    left rows         a     |   b              |
    right rows           A  |     B       C    |     is A alone? not if the pair a-A stands in the table
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.delta.delta_table import read_version
from headwater_streams.operators.joins.interval import IntervalJoin
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.sources.coordinates import SOURCES


def keeps_rights(plan: JobPlan) -> bool:
    """Whether a join writes right rows without a partner."""
    return isinstance(plan.operator, IntervalJoin) and "right" in plan.operator.keeps


def is_alone() -> Column:
    """True for a row of the result that is of a right row alone."""
    return F.col(SOURCES)[0].isNull()


def of_one_topic(lefts: Ranges, rights: Ranges, job: str) -> Refusal | None:
    """Refuses a join of which a row's coordinates do not say which side it is of: both come from one topic.

    Args:
        lefts: The offsets of the left rows that the job has read.
        rights: Those of the right rows.
        job: The job's name.
    """
    both = sorted(lefts.keys() & rights.keys())
    if not both:
        return None
    return Refusal(
        f"both sides of the join come from {', '.join(both)}, so which rows of {job!r} are of right rows alone cannot "
        "be told by offsets; build all of them again: headwater backfill plan JOB --rebuild"
    )


def of_range(context: StageContext, planned: BackfillPlan, joined: DataFrame) -> DataFrame:
    """The rows of a join that a repair writes.

    Args:
        context: The home.
        planned: The repair.
        joined: What its left rows, or some of them, make with the right rows near, with coordinates and sources.
    """
    target = context.home.table(planned.target)
    stays = read_version(context.spark, target, planned.base_version).filter(~planned.affected.condition())
    right = F.col(SOURCES)[1]
    paired = stays.filter(~is_alone() & right.isNotNull()).select(right.alias("_paired")).distinct()
    rows = joined.filter(Offsets.of([planned.ranges]).condition())
    return rows.join(paired, F.when(is_alone(), right) == F.col("_paired"), "left_anti")
