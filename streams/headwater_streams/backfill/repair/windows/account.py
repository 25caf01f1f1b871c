"""The books of windows that a repair has folded again."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.diff import distinct_offsets
from headwater_streams.backfill.progress import summed
from headwater_streams.backfill.repair.account import Account
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.repair.windows.kinds import replay_of
from headwater_streams.backfill.verdict import Finding
from headwater_streams.base.ledger_entry import LedgerEntry, rows_in_windows
from headwater_streams.base.moments import iso
from headwater_streams.base.plural import quantity
from headwater_streams.ledger.shared import has_places, recreated_topics_of, shares_coordinates
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.sources.coordinates import ROWS
from headwater_streams.spark.columns import cols


def window_account(
    context: StageContext,
    planned: BackfillPlan,
    plan: JobPlan,
    entries: Sequence[LedgerEntry],
    inside: DataFrame,
    before: DataFrame,
) -> Account:
    """The account of the windows' rows, held against what the windows count and what there was to read.

    Args:
        context: The session and the home.
        planned: The repair.
        plan: The job.
        entries: The steps of the run.
        inside: The rows of the shadow that are in the range.
        before: Those of the table that they replace.
    """
    assert planned.pinned is not None
    terms = summed(entries)
    read = replay_of(context, plan, planned).read_by(planned)
    rows, keys, folded = _distinct_windows(inside, planned.keys)
    accounting = _terms(terms, folded, before, planned.keys)
    table = planned.pinned.table
    shared = shares_coordinates(context.home, table) or has_places(context.home, table)
    shared |= bool(recreated_topics_of(context.home, table))
    findings = _findings(planned, entries, accounting, terms, read, shared=shared)
    now, notes = rows_in_windows(accounting), []
    if now != accounting["before"] + accounting["late_folded"]:
        because = " (its input was rewritten since)" if planned.pinned.was_rewritten else ""
        notes.append(
            f"the windows counted {accounting['before']} rows and {accounting['late_folded']} were late, "
            f"now they count {now}{because}"
        )
    return Account(findings, notes, accounting, rows, keys)


def _terms(terms: Mapping[str, int], now: int, before: DataFrame, keys: Sequence[str]) -> dict[str, int]:
    # One that was slipped in beside the job's own was never accounted for.
    once = before.groupBy(*cols(keys)).agg(F.max(ROWS).alias(ROWS))
    replaced = once.agg(F.coalesce(F.sum(ROWS), F.lit(0)).alias("rows")).first()
    assert replaced is not None
    # Where windows overlap, a row is counted in several.
    counted_now = {"folded": terms["folded"], "placed": now} if "placed" in terms else {"folded": now}
    return {
        "read": terms["read"],
        **counted_now,
        "filtered": terms.get("filtered", 0),
        "quarantined": terms["quarantined"],
        "late_folded": terms["late_folded"],
        "before": int(replaced["rows"]),
    }


def _findings(
    planned: BackfillPlan,
    entries: Sequence[LedgerEntry],
    accounting: dict[str, int],
    terms: dict[str, int],
    read: DataFrame,
    *,
    shared: bool,
) -> list[Finding]:
    parts = {name: accounting[name] for name in ("folded", "filtered", "quarantined")}
    balanced = accounting["read"] == sum(parts.values())
    identity = f"read {accounting['read']} = " + " + ".join(f"{name} {n}" for name, n in parts.items())
    if "placed" in terms:
        balanced &= accounting["placed"] == terms["placed"]
        identity += f"; placed {terms['placed']} = counted in the windows {accounting['placed']}"
    spans = [chunk.span for chunk in planned.chunks if chunk.span is not None]
    tiled = all(one[1] == other[0] for one, other in pairwise(spans))
    covered = (spans[0][0], spans[-1][1]) == (planned.windows[0][0], planned.windows[-1][1])
    rows, offsets = distinct_offsets(read)
    return [
        Finding(
            name="accounting",
            ok=balanced,
            detail=identity if balanced else identity.replace(" = ", " is not "),
        ),
        Finding(
            name="windows once",
            ok=tiled and covered and len(entries) == len(spans),
            detail=f"{quantity(len(spans), 'chunk tiles', 'chunks tile')} [{iso(spans[0][0])}, {iso(spans[-1][1])})",
        ),
        Finding(
            name="offsets once",
            ok=rows == accounting["read"] and (shared or rows == offsets),
            detail=f"{quantity(rows, 'row')} of {quantity(offsets, 'offset')} in the windows, "
            f"{accounting['read']:,} read",
        ),
    ]


def _distinct_windows(rows: DataFrame, keys: Sequence[str]) -> tuple[int, int, int]:
    """How many rows there are, of how many keys, and how many rows they count."""
    by_key = rows.groupBy(*cols(keys)).agg(
        F.count(F.lit(1)).alias("_rows_of_key"), F.sum(ROWS).alias("_counted_of_key")
    )
    found = by_key.agg(
        F.coalesce(F.sum("_rows_of_key"), F.lit(0)).alias("rows"),
        F.count(F.lit(1)).alias("keys"),
        F.coalesce(F.sum("_counted_of_key"), F.lit(0)).alias("counted"),
    ).first()
    assert found is not None
    return found["rows"], found["keys"], found["counted"]
