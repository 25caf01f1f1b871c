"""Compares the tables of windows, joins and dimensions with what their entries say."""

from collections.abc import Sequence
from datetime import datetime
from functools import reduce
from operator import or_

import pyarrow.compute as pc

from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry, rows_in_windows
from headwater_streams.base.plural import quantity
from headwater_streams.delta.scd_target import CHANGES
from headwater_streams.ledger.audit.columns import columns_of
from headwater_streams.ledger.audit.table_audit import TableAudit
from headwater_streams.ledger.log import Commit
from headwater_streams.ledger.partners import LEFT, PLACE, RIGHT, places_of
from headwater_streams.ledger.repairs import ROLLBACK, SWAP, again
from headwater_streams.operators.windows.spec import WINDOW_START
from headwater_streams.sources.coordinates import BATCH, GENERATION, SOURCES
from headwater_streams.storage.home import Home


def check_changes(audit: TableAudit, home: Home, entries: Sequence[LedgerEntry]) -> None:
    """Checks that the rows of a dimension stand for as many change events as were applied."""
    expected = sum(entry.totals["held"] for entry in entries)
    actual = pc.sum(columns_of(home.table(audit.table), [CHANGES])[CHANGES]).as_py() or 0
    if actual != expected:
        audit.findings.append(
            f"{audit.table}: its rows stand for {actual} change events, {expected} were applied and hold"
        )


def check_windows(
    audit: TableAudit,
    home: Home,
    entries: Sequence[LedgerEntry],
    repairs: Sequence[LedgerEntry],
    expiries: Sequence[LedgerEntry] = (),
) -> None:
    """Checks that windows count as many rows as were folded, by swaps and rollbacks too, less those of windows that
    have expired."""
    folded = sum(rows_in_windows(terms) for entry in entries for terms in entry.accounting.values())
    for entry in repairs:
        for terms in entry.accounting.values():
            folded += rows_in_windows(terms) - terms["before"]
    folded -= sum(entry.totals["counted"] for entry in expiries)
    _check_open(audit, entries)
    audit.notes += written_again(home, audit.table, repairs)
    actual = pc.sum(columns_of(home.table(audit.table), ["_rows"])["_rows"]).as_py() or 0
    if actual != folded:
        audit.findings.append(f"{audit.table}: its windows count {actual} rows, {folded} were folded")


def written_again(home: Home, table: str, repairs: Sequence[LedgerEntry]) -> list[str]:
    """What the live job has written again of windows that repairs replaced while they were open, from its own state,
    which has nothing of the repair; a sentence for each repair."""
    of_windows = [entry for entry in repairs if Extra.WINDOWS.is_in(entry)]
    back = {Extra.BACKFILL.of(entry) for entry in of_windows if Extra.ACTION.of(entry) == ROLLBACK}
    swaps = [
        entry
        for entry in of_windows
        if Extra.ACTION.of(entry) == SWAP and Extra.BACKFILL.of(entry) not in back
    ]
    if not any(Extra.OPEN.is_in(entry) for entry in swaps):
        return []
    rows = columns_of(home.table(table), [WINDOW_START, GENERATION, BATCH])
    sentences: list[str] = []
    for entry in reversed(swaps):
        spans = [(_moment(start), _moment(end)) for start, end in Extra.WINDOWS.of(entry)]
        if Extra.OPEN.is_in(entry):
            (start, end), batch = Extra.OPEN.of(entry)["windows"], Extra.OPEN.of(entry)["batch"]
            # A new generation has folded the rows of open windows again, as the code was then.
            since = (pc.field(GENERATION) == entry.generation) & (pc.field(BATCH) > batch)
            those = rows.filter(since).filter(
                _begins_in([(max(_moment(start), low), high) for low, high in spans])
            )
            if those.num_rows:
                are = "was" if those.num_rows == 1 else "were"
                sentences.append(
                    f"{table}: {quantity(those.num_rows, 'row')} of windows that were open at the swap of backfill "
                    f"{Extra.BACKFILL.of(entry)} {are} written again by the live job since, from its own state; once "
                    f"they are closed, repair them again: {again(entry.job, start, end)}"
                )
        rows = rows.filter(
            ~_begins_in(spans)
        )  # of a repair before, this one has replaced what is in its windows
    return sentences[::-1]


def _begins_in(spans: Sequence[tuple[datetime, datetime]]) -> pc.Expression:
    start = pc.field(WINDOW_START)
    return reduce(or_, [(start >= low) & (start < high) for low, high in spans])


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _check_open(audit: TableAudit, entries: Sequence[LedgerEntry]) -> None:
    """Checks the number of rows that wait for their window to be closed, which is never negative."""
    waiting = 0
    for entry in entries:
        for terms in entry.accounting.values():
            placed = terms.get("placed", terms["folded"])
            if "open" in terms and placed != terms["emitted"] + terms["open"]:
                audit.findings.append(
                    f"{audit.table} batch {entry.batch}: placed {placed} is not {terms['emitted']} emitted + "
                    f"{terms['open']} open"
                )
            waiting += terms.get("open", 0)
        if waiting < 0:
            audit.findings.append(
                f"{audit.table} batch {entry.batch}: {-waiting} more rows left windows than came"
            )
            return


def check_pairs(
    audit: TableAudit, home: Home, live: Sequence[Commit], repairs: Sequence[LedgerEntry]
) -> None:
    """Checks that a join's rows are as many as its batches found, and of as many rows of each side.

    Behind a repair the right side is not checked: a repair joins left rows again, whatever other pairs their partners
    are in.
    """
    path = home.table(audit.table)
    entries = [commit.entry for commit in live if commit.entry is not None]
    times = Extra.TIMES.get(entries[-1], [])  # which older entries do not name
    rows = columns_of(path, [SOURCES, *times])
    written = sum(commit.rows_added for commit in live)
    pairs = sum(Extra.PAIRS.get(entry, 0) for entry in entries)
    alone = sum(Extra.ALONE.get(entry, 0) for entry in entries)
    moved = _moved(repairs, "written", "before")
    if not len(rows) - moved == written == pairs + alone:
        parts = f"{pairs} pairs and {alone} rows without a partner" if alone else f"{pairs} pairs"
        by_repairs = f", {moved:+} by repairs" if repairs else ""
        audit.findings.append(
            f"{audit.table}: {parts} were found, {written} written{by_repairs}, {len(rows)} are there"
        )
    is_semi = Extra.HOW.get(entries[-1]) == "semi"
    sides = (LEFT,) if is_semi else (LEFT, RIGHT)
    places = places_of(rows, sides, times).group_by(PLACE).aggregate([])
    for side, name in zip(sides[:1] if repairs else sides, _inputs_by_side(entries), strict=False):
        matched = pc.sum(pc.equal(places["side"], side)).as_py() or 0
        expected = audit.totals[name]["matched"] + _moved(repairs, "matched", "matched_before")
        if matched != expected:
            audit.findings.append(
                f"{audit.table}: its rows name {matched} rows of {name}, {expected} were matched"
            )


def check_answers(audit: TableAudit, home: Home, last: LedgerEntry, repairs: Sequence[LedgerEntry]) -> None:
    """Checks that as many rows have an answer, and as many have none, as the entries say."""
    sources = columns_of(home.table(audit.table), [SOURCES])[SOURCES].to_pylist()
    answered = sum(places[1] is not None for places in sources)
    terms = audit.totals[Extra.LEFT.of(last)]
    moved = {name: _moved(repairs, name, f"{name}_before") for name in ("matched", "unmatched")}
    expected = {
        "matched": terms["matched"] + moved["matched"],
        "unmatched": terms["unmatched"] + moved["unmatched"] if Extra.HOW.of(last) == "left" else 0,
    }
    actual = {"matched": answered, "unmatched": len(sources) - answered}
    for term, count in actual.items():
        if count != expected[term]:
            audit.findings.append(
                f"{audit.table}: {count} {term} rows are there, {expected[term]} were counted"
            )
    if terms["waiting"] < 0:
        audit.findings.append(
            f"{audit.table}: {-terms['waiting']} rows more were answered than were read and waited; "
            "the left table holds rows that the job did not read"
        )


def _moved(repairs: Sequence[LedgerEntry], now: str, before: str) -> int:
    """By how much repairs and rollbacks have changed a term."""
    return sum(entry.totals[now] - entry.totals[before] for entry in repairs)


def _inputs_by_side(entries: Sequence[LedgerEntry]) -> list[str]:
    sides = Extra.SIDES.of(entries[-1])
    return sorted(sides, key=lambda name: sides[name])
