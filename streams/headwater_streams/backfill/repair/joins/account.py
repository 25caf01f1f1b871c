"""The books of a join that a repair has made again for some of its left rows."""

from collections.abc import Sequence

from pyspark.sql import DataFrame

from headwater_streams.backfill.diff import distinct_offsets
from headwater_streams.backfill.progress import summed
from headwater_streams.backfill.repair.account import Account
from headwater_streams.backfill.repair.joins.alone import keeps_rights
from headwater_streams.backfill.repair.joins.replay import count_joined
from headwater_streams.backfill.repair.pinning import pinned_table
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.verdict import Finding
from headwater_streams.base.ledger_entry import LedgerEntry, count_of
from headwater_streams.base.plural import quantity
from headwater_streams.operators.joins.as_of import AsOf
from headwater_streams.operators.joins.interval import IntervalJoin
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.spark.columns import cols

_PARTS = ("matched", "unmatched", "filtered", "quarantined")


def join_account(
    context: StageContext,
    planned: BackfillPlan,
    plan: JobPlan,
    entries: Sequence[LedgerEntry],
    inside: DataFrame,
    before: DataFrame,
) -> Account:
    """The account of a join's left rows, held against what was written and what there was to read.

    Args:
        context: The session and the home.
        planned: The repair.
        plan: The job.
        entries: The steps of the run.
        inside: The rows of the shadow that are in the range.
        before: Those of the table that they replace.
    """
    terms = summed(entries)
    now, then = (count_joined(rows, plan) for rows in (inside, before))
    keys = now["matched"] + now["unmatched"]
    if isinstance(plan.operator, IntervalJoin):
        keys = inside.select(*cols(planned.keys)).distinct().count()
    findings = [_balanced(plan, terms, now), _once(context, planned, entries, terms)]
    alone = {"right_alone": terms["right_alone"]} if keeps_rights(plan) else {}
    accounting = (
        {name: terms[name] for name in ("read", *_PARTS, "written")}
        | alone
        | {
            "before": then["rows"],
            "matched_before": then["matched"],
            "unmatched_before": then["unmatched"],
        }
    )
    late = terms["late_folded"]
    notes = [f"{quantity(late, 'left row')} of the range came late"] if late else []
    return Account(findings, notes, accounting, now["rows"], keys)


def _balanced(plan: JobPlan, terms: dict[str, int], now: dict[str, int]) -> Finding:
    """Whether the terms add up, and are those of the rows that are there."""
    assert isinstance(plan.operator, IntervalJoin | AsOf)
    wanted = {
        "matched": terms["matched"],
        "unmatched": terms["unmatched"] if plan.operator.how in ("left", "full") else 0,
        "right_alone": terms["right_alone"],
    }
    there = {name: now[name] for name in wanted}
    balanced = terms["read"] == sum(terms[name] for name in _PARTS)
    spelled = " + ".join(f"{terms[name]} {name}" for name in _PARTS)
    told = f"read {terms['read']} {'is' if balanced else 'is not'} {spelled}; {terms['written']} rows were written, of "
    told += ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in there.items())
    return Finding(
        name="accounting", ok=balanced and there == wanted and terms["written"] == now["rows"], detail=told
    )


def _once(
    context: StageContext, planned: BackfillPlan, entries: Sequence[LedgerEntry], terms: dict[str, int]
) -> Finding:
    """Whether each left row of the range was read, and once."""
    assert planned.pinned is not None
    there = pinned_table(context, planned.pinned).filter(planned.affected.condition())
    offsets = sum(count_of(source.ranges) for entry in entries for source in entry.sources)
    rows, places = distinct_offsets(there)
    in_range = count_of(planned.ranges)
    return Finding(
        name="offsets once",
        ok=offsets == in_range and rows == places == terms["read"],
        detail=f"{quantity(in_range, 'offset')} in the range, {offsets:,} in the steps; {quantity(rows, 'row')} of "
        f"{quantity(places, 'offset')} there, {terms['read']:,} read",
    )
