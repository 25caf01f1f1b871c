"""Compares a table's side tables with what was sent there."""

from collections.abc import Sequence
from pathlib import Path

from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.ledger.audit.columns import columns_of, rows_by_batch
from headwater_streams.ledger.audit.table_audit import TableAudit
from headwater_streams.ledger.log import commits, lineage
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.home import Home


def check_side(
    audit: TableAudit, home: Home, table: str, term: str, entries: Sequence[LedgerEntry], since: int = 0
) -> None:
    """Checks the rows of a side table; `since` is the generation with which all of them were made anew."""
    path = home.table(table)
    if not has_versions(path):
        return
    expected = {(entry.generation, entry.batch): _sent(entry, term) for entry in entries}
    side_entries = [c.entry for c in commits(path) if c.entry is not None]
    ingest = {entry.job for entry in side_entries} - {audit.job}
    if ingest:
        return  # an ingest job shares the table; its own audit looks at it
    standing = (c.entry for c in lineage(path) if c.entry is not None)  # a rewind undoes repairs, too
    repairs = [entry for entry in standing if entry.kind == "backfill" and entry.generation >= since]
    if repairs:
        _check_repaired_side(audit, path, table, term, entries, repairs)
        return
    mine = {(entry.generation, entry.batch) for entry in side_entries}
    counts = rows_by_batch(columns_of(path, ["_batch", "_generation"]))
    for batch, count in expected.items():
        if counts.pop(batch, 0) != count and (count or batch in mine):
            audit.findings.append(
                f"{table} batch {batch[1]}: not the {count} rows that {audit.table} sent there"
            )
    if counts:
        audit.findings.append(
            f"{table}: {sum(counts.values())} rows of batches {sorted({b for _, b in counts}, key=str)} that nobody "
            "wrote"
        )


def _check_repaired_side(
    audit: TableAudit,
    path: Path,
    table: str,
    term: str,
    entries: Sequence[LedgerEntry],
    repairs: Sequence[LedgerEntry],
) -> None:
    expected = sum(_sent(entry, term) for entry in entries)
    for entry in repairs:
        expected += sum(t.get(term, 0) - t.get("before", 0) for t in entry.accounting.values())
    actual = columns_of(path, ["_batch"]).num_rows
    if actual != expected:
        audit.findings.append(f"{table}: {actual} rows, {expected} were sent there")


def _sent(entry: LedgerEntry, term: str) -> int:
    """The rows that a batch sent to a side table; the late table has those that are late for some windows, too."""
    terms = entry.totals
    if term != "late":
        return terms[term]
    return 0 if Extra.LATE.get(entry) == "count" else terms["late"] + terms["partly_late"]
