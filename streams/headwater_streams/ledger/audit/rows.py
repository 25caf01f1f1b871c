"""A table's rows against what its entries say of them, for each kind of stage."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from headwater_streams.ledger.audit.columns import columns_of, rows_by_batch
from headwater_streams.ledger.audit.found import TableAudit
from headwater_streams.ledger.entry import LedgerEntry, counted_in_windows
from headwater_streams.ledger.log import Commit
from headwater_streams.ledger.shared import shares_coordinates, tables_read
from headwater_streams.runtime.home import Home
from headwater_streams.sinks.scd_target import CHANGES

_SAMPLES = 5

Coordinates = tuple[str, int, int]


def check_rows(audit: TableAudit, home: Home, live: Sequence[Commit], repairs: Sequence[LedgerEntry]) -> None:
    """Checks that a table has, for each batch, the rows that its commit wrote."""
    path = home.table(audit.table)
    rows = columns_of(path, ["_topic", "_partition", "_offset", "_batch", "_generation"])
    # A topic that was made again has the same offsets once more, in another generation.
    twice = _places(_more_than_once(rows, ["_generation", "_topic", "_partition", "_offset"]))
    entries = [commit.entry for commit in live if commit.entry is not None]
    if twice and not any(shares_coordinates(home, name) for name in tables_read(entries)):
        audit.findings.append(f"{audit.table}: {len(twice)} rows stand there twice: {_named(twice)}")
    if repairs:
        return  # batches are no longer what the live commits wrote; the backfill's verdict accounts for them
    there = rows_by_batch(rows)
    for commit in live:
        assert commit.entry is not None
        batch = (commit.entry.generation, commit.entry.batch)
        if there.pop(batch, 0) == commit.rows_added:
            continue
        _name_difference(audit, path, commit, Counter(_places(_of_batch(rows, batch))))
    for (generation, batch_number), count in sorted(there.items(), key=str):
        strangers = _places(_of_batch(rows, (generation, batch_number)))
        audit.findings.append(
            f"{audit.table}: {count} rows of batch {batch_number}, which no commit wrote: {_named(strangers)}"
        )


def _name_difference(audit: TableAudit, path: Path, commit: Commit, now: Counter[Coordinates]) -> None:
    assert commit.entry is not None
    batch = commit.entry.batch
    files = [path / name for name in commit.added_paths]
    if not files or not all(file.exists() for file in files):
        audit.findings.append(
            f"{audit.table} batch {batch}: {now.total()} rows where its commit wrote {commit.rows_added}; "
            "its files were removed since, so the rows cannot be named"
        )
        return
    wrote = Counter(
        _places(ds.dataset([str(file) for file in files]).to_table(["_topic", "_partition", "_offset"]))
    )
    gone, new = sorted((wrote - now).elements()), sorted((now - wrote).elements())
    if gone:
        audit.findings.append(f"{audit.table} batch {batch}: {len(gone)} rows are gone: {_named(gone)}")
    if new:
        audit.findings.append(f"{audit.table} batch {batch}: {len(new)} rows slipped in: {_named(new)}")


def check_changes(audit: TableAudit, home: Home, entries: Sequence[LedgerEntry]) -> None:
    """Checks for how many change events the rows of a dimension stand."""
    held = sum(entry.totals["held"] for entry in entries)
    there = pa.compute.sum(columns_of(home.table(audit.table), [CHANGES])[CHANGES]).as_py() or 0
    if there != held:
        audit.findings.append(
            f"{audit.table}: its rows stand for {there} change events, {held} were applied and hold"
        )


def check_windows(
    audit: TableAudit, home: Home, entries: Sequence[LedgerEntry], repairs: Sequence[LedgerEntry]
) -> None:
    """Checks that windows count as many rows as were folded, swaps and their way back among them."""
    folded = sum(counted_in_windows(terms) for entry in entries for terms in entry.accounting.values())
    for entry in repairs:
        for terms in entry.accounting.values():
            folded += counted_in_windows(terms) - terms["before"]
    _check_open(audit, entries)
    counted = pa.compute.sum(columns_of(home.table(audit.table), ["_rows"])["_rows"]).as_py() or 0
    if counted != folded:
        audit.findings.append(f"{audit.table}: its windows count {counted} rows, {folded} were folded")


def _check_open(audit: TableAudit, entries: Sequence[LedgerEntry]) -> None:
    """Rows that wait for their window to be closed: placed, not written yet, and never fewer than none."""
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


def check_pairs(audit: TableAudit, home: Home, live: Sequence[Commit]) -> None:
    """Checks that a join's rows are as many as its batches found, and of as many rows of each side."""
    path = home.table(audit.table)
    entries = [commit.entry for commit in live if commit.entry is not None]
    sources = columns_of(path, ["_sources"]).column("_sources").to_pylist()
    written = sum(commit.rows_added for commit in live)
    pairs = sum(int(entry.extra.get("pairs", 0)) for entry in entries)
    alone = sum(int(entry.extra.get("alone", 0)) for entry in entries)
    if not len(sources) == written == pairs + alone:
        found = f"{pairs} pairs and {alone} rows without a partner" if alone else f"{pairs} pairs"
        audit.findings.append(
            f"{audit.table}: {found} were found, {written} written, {len(sources)} are there"
        )
    is_semi = entries[-1].extra.get("how") == "semi"
    paired = [places for places in sources if is_semi or None not in places]
    for position, name in enumerate(_inputs_by_side(entries)):
        if is_semi and position:
            continue
        matched = {(p[position]["topic"], p[position]["partition"], p[position]["start"]) for p in paired}
        expected = audit.totals[name]["matched"]
        if len(matched) != expected:
            audit.findings.append(
                f"{audit.table}: its rows name {len(matched)} rows of {name}, {expected} were matched"
            )


def check_answers(audit: TableAudit, home: Home, last: LedgerEntry) -> None:
    """The rows with an answer and those without, as many as the entries say."""
    sources = columns_of(home.table(audit.table), ["_sources"])["_sources"].to_pylist()
    answered = sum(places[1] is not None for places in sources)
    terms = audit.totals[last.extra["left"]]
    expected = {
        "matched": terms["matched"],
        "unmatched": terms["unmatched"] if last.extra["how"] == "left" else 0,
    }
    there = {"matched": answered, "unmatched": len(sources) - answered}
    for term, count in there.items():
        if count != expected[term]:
            audit.findings.append(
                f"{audit.table}: {count} {term} rows are there, {expected[term]} were counted"
            )
    if terms["waiting"] < 0:
        audit.findings.append(
            f"{audit.table}: {-terms['waiting']} rows more were answered than were read and waited; "
            "the left table holds rows that the job did not read"
        )


def _inputs_by_side(entries: Sequence[LedgerEntry]) -> list[str]:
    sides: dict[str, str] = dict(entries[-1].extra["sides"])
    return sorted(sides, key=lambda name: sides[name])


def _more_than_once(rows: pa.Table, names: list[str]) -> pa.Table:
    """The places that several rows share. Arrow counts them: as Python objects ten million rows take gigabytes."""
    encoded = rows["_topic"].dictionary_encode()  # a third of the time
    rows = rows.set_column(rows.schema.get_field_index("_topic"), "_topic", encoded).unify_dictionaries()
    found = rows.group_by(names).aggregate([([], "count_all")])
    return found.filter(pa.compute.greater(found["count_all"], 1))


def _of_batch(rows: pa.Table, batch: tuple[int, int]) -> pa.Table:
    of_generation = pa.compute.equal(rows["_generation"], batch[0])
    return rows.filter(pa.compute.and_(of_generation, pa.compute.equal(rows["_batch"], batch[1])))


def _places(rows: pa.Table) -> list[Coordinates]:
    columns = (rows.column(name).to_pylist() for name in ("_topic", "_partition", "_offset"))
    return list(zip(*columns, strict=True))


def _named(places: Sequence[Coordinates]) -> str:
    first = sorted(places, key=lambda place: (str(place[0]), place[1] or 0, place[2] or 0))[:_SAMPLES]
    told = ", ".join(f"{topic} {partition} offset {offset}" for topic, partition, offset in first)
    return told + (f" and {len(places) - _SAMPLES} more" if len(places) > _SAMPLES else "")
