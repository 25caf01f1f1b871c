"""The audit: a table's rows against its ledger, and the ledger against its inputs. It needs no Spark.

Every finding is a sentence. What is looked at:

- each entry's identity (see `base.ledger_entry`), in all and by partition;
- batches follow each other without a gap or an overlap of offsets or of table versions, also from one generation to the
  next where that was warmed up: what it read for its state only is in no batch;
- what was read of a topic is as much as the offsets span (the caller counts `control` records apart);
- a row table holds, for each batch, the rows that its commit wrote, but those that have expired since, and in the
  ranges of repairs what the last of them wrote: one deleted by hand, slipped in or doubled is named by its coordinates;
- an as-of join's table likewise, and its rows with an answer and without are as many as the entries say;
- the rows of a slowly changing dimension stand for as many change events as the entries say, and its table of changes
  has those that each batch kept;
- a window table's rows sum to what was folded, a join's pairs name as many rows of each side as were matched; of
  windows that a repair replaced while they were open it is noted which the live job has written again, from its state;
- late and quarantined rows are as many as the entries say;
- a table is there if the checkpoint of its job is;
- every file of its log and every data file of its newest version is what was written: a table of which one is damaged
  is not looked at further, and the others are.
"""

from collections.abc import Sequence

from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry, is_undone, rows_in_windows
from headwater_streams.base.moments import iso
from headwater_streams.base.plural import quantity
from headwater_streams.base.target import CHANGES_SUFFIX, LATE_SUFFIX, QUARANTINE_SUFFIX, is_part
from headwater_streams.ledger.audit.accounts import check_reads, check_sequence, sequences, sum_up
from headwater_streams.ledger.audit.removed import removed_tables
from headwater_streams.ledger.audit.results import check_answers, check_changes, check_pairs, check_windows
from headwater_streams.ledger.audit.rows import check_rows
from headwater_streams.ledger.audit.sides import check_side
from headwater_streams.ledger.audit.table_audit import TableAudit
from headwater_streams.ledger.expired import expired_before_us, is_expiry
from headwater_streams.ledger.log import lineage, since_rebuilt
from headwater_streams.storage.damage import DamagedFileError, writer_of
from headwater_streams.storage.delta_files import table_damage
from headwater_streams.storage.home import Home

__all__ = ["TableAudit", "audit_home", "audit_table", "removed_tables"]


def audit_home(
    home: Home, tables: Sequence[str] | None = None, gone: Sequence[TableAudit] | None = None
) -> list[TableAudit]:
    """Audits the tables that jobs write, those that are gone among them, or those named.

    Args:
        home: The home.
        tables: The tables. What is gone of the tables that the library put beside one of them is reported, too.
        gone: What `removed_tables` finds, where that is known.
    """
    gone = removed_tables(home) if gone is None else gone
    audits = []
    for table in tables or home.tables():
        audit = audit_table(home, table)
        if audit is not None:
            audits.append(audit)
    removed = [
        each
        for each in gone
        if not tables or any(each.table == table or is_part(each.table, table) for table in tables)
    ]
    return audits + removed


def audit_table(home: Home, table: str) -> TableAudit | None:
    """Audits one table; None if no job's batch stands in its log."""
    try:
        damaged = table_damage(home.table(table))
        return _audit_of(home, table) if damaged is None else _of_damaged(table, damaged)
    except DamagedFileError as error:  # of another table that it is made of
        return _of_damaged(table, error)


def _of_damaged(table: str, damaged: DamagedFileError) -> TableAudit:
    writer = writer_of(damaged.place.root, table)
    return TableAudit(table, writer or "", "", findings=[str(damaged)])


def _audit_of(home: Home, table: str) -> TableAudit | None:
    history = lineage(home.table(table))
    last = next((c.entry for c in reversed(history) if c.entry is not None and c.entry.is_batch), None)
    if last is None:
        return None
    audit = TableAudit(table, last.job, last.kind)
    history = since_rebuilt(history)
    cleared = [c.entry for c in history if c.entry and Extra.ACTION.get(c.entry) == "clear"]
    history = [
        c
        for c in history
        if c.entry is None or not any(is_undone(c.entry, beginning) for beginning in cleared)
    ]
    live = [c for c in history if c.entry is not None and c.entry.is_batch]
    entries = [c.entry for c in live if c.entry is not None]
    repaired = [c for c in history if c.entry is not None and c.entry.kind == "backfill"]
    repairs = [c.entry for c in repaired if c.entry is not None]
    expiries = [c for c in history if is_expiry(c.entry)]
    generations = [c.entry for c in history if c.entry is not None and c.entry.kind == "generation"]
    for sequence in sequences(history, entries):
        sum_up(audit, sequence)
        check_sequence(audit, sequence)
        check_reads(audit, sequence)
    for entry in entries:
        audit.findings += entry.imbalances()
    audit.notes += [_moved_by(entry) for entry in repairs if "before" in entry.totals]
    audit.notes += [_lost(c.entry) for c in history if c.entry is not None and Extra.LOST.get(c.entry)]
    audit.notes += _expired([c.entry for c in expiries if c.entry is not None])
    if last.kind == "row":
        check_rows(audit, home, live, repaired, generations, expiries)
    elif last.kind == "scd":
        check_changes(audit, home, entries)
    elif last.kind == "window":
        check_windows(audit, home, entries, repairs, [c.entry for c in expiries if c.entry is not None])
    elif last.kind == "as_of":
        check_rows(audit, home, live, repaired, generations)
        if entries:
            check_answers(audit, home, entries[-1], repairs)
    elif entries:
        check_pairs(audit, home, live, repairs)
    first = history[0].entry if history else None
    since = first.generation if first is not None and Extra.ACTION.get(first) == "rebuild" else 0
    sides = {CHANGES_SUFFIX: "kept"} if last.kind == "scd" else {}
    for suffix, term in {**sides, LATE_SUFFIX: "late", QUARANTINE_SUFFIX: "quarantined"}.items():
        check_side(audit, home, table + suffix, term, entries, since)
    return audit


def _lost(entry: LedgerEntry) -> str:
    ranges = [
        f"{topic} {partition} offsets [{start}, {end})"
        for topic, partitions in Extra.LOST.of(entry).items()
        for partition, (start, end) in partitions.items()
    ]
    return (
        f"{entry.table}: gone before generation {entry.generation} began, and never read: {', '.join(ranges)}"
    )


def _expired(expiries: Sequence[LedgerEntry]) -> list[str]:
    before_us = expired_before_us(expiries)
    if before_us is None:
        return []
    rows, last = sum(entry.totals["expired"] for entry in expiries), expiries[-1]
    whose = f"whose {Extra.EXPIRED_BY.of(last)} is before {iso(before_us)}"
    return [f"{last.table}: {quantity(rows, 'row')} {whose} {'has' if rows == 1 else 'have'} expired"]


def _moved_by(repair: LedgerEntry) -> str:
    terms = repair.totals
    rows = (rows_in_windows(terms) or terms.get("written", 0)) - terms["before"]
    late = f", {terms['late_folded']:+,} of them late ones" if terms.get("late_folded") else ""
    action, backfill = Extra.ACTION.get(repair, "swap"), Extra.BACKFILL.get(repair, "")
    return f"{repair.table}: since the {action} of backfill {backfill} it accounts for {rows:+,} rows{late}"
