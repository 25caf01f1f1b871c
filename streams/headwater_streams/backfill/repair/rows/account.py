"""The books of a row-by-row job's records that a repair has read again."""

from collections.abc import Sequence

from pyspark.sql import DataFrame

from headwater_streams.backfill.diff import distinct_offsets
from headwater_streams.backfill.progress import summed
from headwater_streams.backfill.repair.account import Account
from headwater_streams.backfill.repair.pinning import pinned_table
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.verdict import Finding
from headwater_streams.base.ledger_entry import EXPIRED, EXPLODED, LedgerEntry, count_of, identity_terms
from headwater_streams.base.plural import quantity
from headwater_streams.runtime.context import StageContext
from headwater_streams.sources.coordinates import PLACE, ROW

_TERMS = ("read", EXPLODED, "written", "filtered", "duplicate", EXPIRED, "quarantined")


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
    rows, records = distinct_offsets(inside)
    keys = inside.select(*PLACE, ROW).distinct().count() if ROW in planned.keys else records
    accounting = _terms(context, planned, terms, before)
    findings = _findings(context, planned, entries, accounting, terms)
    if EXPLODED in accounting and planned.pinned is None:
        findings.append(_records_once(accounting, rows, records))
    return Account(findings, [], accounting, rows, keys)


def _records_once(accounting: dict[str, int], rows: int, records: int) -> Finding:
    """Whether the rows are those of the records that became rows, and all of them."""
    return Finding(
        name="records and rows",
        ok=(records, rows) == (accounting[EXPLODED], accounting["written"]),
        detail=f"{quantity(records, 'record')} became {quantity(rows, 'row')}, {accounting[EXPLODED]:,} and "
        f"{accounting['written']:,} were counted",
    )


def _terms(
    context: StageContext, planned: BackfillPlan, terms: dict[str, int], before: DataFrame
) -> dict[str, int]:
    quarantine = context.home.table(planned.quarantine)
    rejected = context.spark.read.format("delta").load(str(quarantine))
    return {
        **{name: terms[name] for name in _TERMS if name in terms},
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
    parts = identity_terms("row", accounting)
    balanced = accounting["read"] == sum(parts.values())
    spelled = " + ".join(f"{value} {name}" for name, value in parts.items())
    offsets = sum(count_of(source.ranges) for entry in entries for source in entry.sources)
    planned_offsets = count_of(planned.ranges)
    missing = planned_offsets - accounting["read"]
    if planned.pinned is None:
        complete = 0 <= missing <= terms["live_shortfall"]
    else:
        table = pinned_table(context, planned.pinned)
        rows, records = distinct_offsets(table.filter(planned.affected.condition()))
        # A record has one row of the table, or, where its rows have places, each once.
        complete = rows == accounting["read"] and (rows == records or ROW in table.columns)
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
