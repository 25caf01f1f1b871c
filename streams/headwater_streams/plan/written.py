"""How a table's rows are written, which says what can read them."""

from collections.abc import Mapping
from dataclasses import dataclass

from headwater_streams.operators.joins.as_of import AsOf
from headwater_streams.operators.joins.interval import IntervalJoin
from headwater_streams.plan.plan import JobPlan


@dataclass(frozen=True)
class WrittenAs:
    """How a table's rows are written.

    Attributes:
        final: They stay as they were written, where they are windows.
        shared: Several of them may have the same coordinates, see `ledger.shared`.
        several: A record may have become several of them, each with its place in it.
    """

    final: bool = False
    shared: bool = False
    several: bool = False


def will_write(plan: JobPlan, written: Mapping[str, WrittenAs], table: str) -> WrittenAs:
    """How a job writes the rows of one of its tables."""
    job, operator = plan.job, plan.operator
    read = [table.name for table in job.tables]
    if isinstance(operator, IntervalJoin | AsOf):
        # A semi join and an as-of join give each left row once, so that its coordinates stay its own.
        pairs = isinstance(operator, IntervalJoin) and operator.how != "semi"
        left = job.inputs[plan.sides[0]].name
        of_left = written.get(left, WrittenAs())
        return WrittenAs(shared=pairs or of_left.shared or of_left.several)
    shared = plan.kind == "window" or any(name in written and written[name].shared for name in read)
    return WrittenAs(job.target.mode == "append", shared, table in plan.numbered)
