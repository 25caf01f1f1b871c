"""The books of a row-by-row job's records that a repair has read again."""

from collections.abc import Sequence

from pyspark.sql import DataFrame

from headwater_streams.backfill.diff import distinct_offsets
from headwater_streams.backfill.progress import summed
from headwater_streams.backfill.repair.account import Account
from headwater_streams.backfill.repair.pinning import pinned_table
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.verdict import Finding
from headwater_streams.base.ledger_entry import LedgerEntry, count_of
from headwater_streams.base.plural import quantity
from headwater_streams.runtime.context import StageContext


def row_account(
    context: StageContext,
    planned: BackfillPlan,
    entries: Sequence[LedgerEntry],
    inside: DataFrame,
    before: DataFrame,
) -> Account:
    """The account of the records, held against what there was to read.

    Args:
        context: The session and the home.
        planned: The repair, as one of the job's tables alone has it.
        entries: The steps of the run.
        inside: The rows of the shadow that are in the range.
        before: Those of the table that they replace.
    """
    terms = summed(entries)
    rows, keys = distinct_offsets(inside)
    accounting = _terms(context, planned, terms, before)
    return Account(_findings(context, planned, entries, accounting, terms), [], accounting, rows, keys)


def _terms(
    context: StageContext, planned: BackfillPlan, terms: dict[str, int], before: DataFrame
) -> dict[str, int]:
    quarantine = context.home.table(planned.quarantine)
    rejected = context.spark.read.format("delta").load(str(quarantine))
    return {
        **{name: terms[name] for name in ("read", "written", "filtered", "duplicate", "quarantined")},
        "before": before.count(),
        "quarantined_before": rejected.filter(planned.affected.of_offsets()).count(),
    }


def _findings(
    context: StageContext,
    planned: BackfillPlan,
    entries: Sequence[LedgerEntry],
    accounting: dict[str, int],
    terms: dict[str, int],
) -> list[Finding]:
    parts = {name: accounting[name] for name in ("written", "filtered", "duplicate", "quarantined")}
    balanced = accounting["read"] == sum(parts.values())
    spelled = " + ".join(f"{value} {name}" for name, value in parts.items())
    offsets = sum(count_of(source.ranges) for entry in entries for source in entry.sources)
    planned_offsets = count_of(planned.ranges)
    missing = planned_offsets - accounting["read"]
    if planned.pinned is None:
        complete = 0 <= missing <= terms["live_shortfall"]
    else:
        there = distinct_offsets(pinned_table(context, planned.pinned).filter(planned.affected.condition()))
        complete = there == (accounting["read"], accounting["read"])
    return [
        Finding(
            name="accounting",
            ok=balanced,
            detail=f"read {accounting['read']} {'is' if balanced else 'is not'} {spelled}",
        ),
        Finding(
            name="offsets once",
            ok=offsets == planned_offsets and complete,
            detail=f"{quantity(planned_offsets, 'offset')} in the range, {offsets:,} in the chunks, "
            f"{quantity(accounting['read'], 'record')} read"
            + (f"; no record at {quantity(missing, 'offset')}" if missing else ""),
        ),
    ]
