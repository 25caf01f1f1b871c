"""The times of a join: which left rows have all their partners, and how far from them these may be."""

from collections.abc import Sequence

from headwater_streams.backfill.refusal import Refusal
from headwater_streams.base.durations import in_micros
from headwater_streams.base.ledger_entry import NO_WATERMARK_MS, LedgerEntry
from headwater_streams.operators.joins.as_of import AsOf
from headwater_streams.operators.joins.interval import IntervalJoin
from headwater_streams.plan.plan import JobPlan, Operator
from headwater_streams.runtime.stages.watermark import Watermark

_US_PER_MS = 1_000
_EVER_US = 10_000 * 366 * 86_400 * 1_000_000
"""Longer than any two times are apart."""


def of_other_times(plan: JobPlan) -> Refusal | None:
    """Refuses a join by another time than the event times of its inputs, by whatever names: the watermark says nothing
    of that."""
    if plan.foreign_time is None:
        return None
    return Refusal(
        f"the job {plan.job.name!r} joins by {plan.foreign_time}, which is no event time of an input, and the "
        "watermark says of these alone that no more come; build all of its rows again: headwater backfill plan JOB "
        "--rebuild"
    )


def settled_before_us(plan: JobPlan, entries: Sequence[LedgerEntry]) -> int:
    """Left rows before this time, in microseconds, have got all the partners that come in time.

    Args:
        plan: The job.
        entries: Its batches, oldest first.
    """
    if isinstance(plan.operator, AsOf):
        at_us = Watermark.of(entries[-1]).at_us
        if at_us is None:
            return NO_WATERMARK_MS * _US_PER_MS
        return at_us - in_micros(plan.operator.looks_ahead) + 1
    assert isinstance(plan.operator, IntervalJoin)
    watermark_ms = max(entry.watermark_ms for entry in entries)
    return (watermark_ms - 1) * _US_PER_MS - in_micros(plan.operator.within)


def reach_us(operator: Operator | None) -> tuple[int, int]:
    """How long before and after a right row's time, in microseconds, its left rows may be."""
    if isinstance(operator, IntervalJoin):
        return in_micros(operator.within), 0
    assert isinstance(operator, AsOf)
    tolerance_us = _EVER_US if operator.tolerance is None else in_micros(operator.tolerance)
    return (
        0 if operator.direction == "backward" else tolerance_us,
        0 if operator.direction == "forward" else tolerance_us,
    )
