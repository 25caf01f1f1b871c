"""`headwater audit`: every offset of a table's inputs accounted for."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli._common import DEFAULT_HOME, HomeOption, JsonOption, print_json, print_line, print_table
from headwater.errors import EXIT_FAILED, UsageError
from headwater_streams.base.nearest import nearest
from headwater_streams.base.plural import counted

if TYPE_CHECKING:
    from headwater_streams.ledger.audit import TableAudit


def audit(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TABLE]...", help="Tables; by default all that jobs write.", show_default=False
        ),
    ] = None,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Account for every offset of every table's inputs, and name the rows that should not be as they are.

    What was read must equal what was written, filtered, removed as duplicate, late or quarantined, for each
    batch and partition; batches must follow each other without a gap; the tables must hold what their commits
    wrote. Exit status 0: the books balance, 1: they do not, 2: there is no such table.

    \b
    Examples:
      headwater audit
      headwater audit silver.departures --json
    """
    from headwater_streams.ledger.audit import audit_home, removed_tables
    from headwater_streams.storage.home import Home

    if not home.is_dir():
        raise UsageError(f"there is no folder {home}; --home names the one that holds the tables")
    gone = removed_tables(Home(home))
    there = [*Home(home).tables(), *(each.table for each in gone)]
    for table in tables or []:
        if table not in there:
            raise UsageError(f"there is no table {table}; the tables are {nearest(table, there) or 'none'}")
    audits = audit_home(Home(home), tables, gone)
    if json_output:
        print_json([_plain(each) for each in audits])
    else:
        _print(audits)
    if not all(each.ok for each in audits):
        raise typer.Exit(EXIT_FAILED)


def _plain(found: "TableAudit") -> dict[str, Any]:
    return {**asdict(found), "ok": found.ok}


def _print(audits: "list[TableAudit]") -> None:
    rows = [
        (p.table, p.topic, p.partition, f"[{p.start:,}, {p.end:,})", _terms(p.terms), "✓" if p.ok else "✗")
        for found in audits
        for p in found.partitions
    ]
    columns = ["table", "topic", "partition", "offsets", "read = …", ""]
    print_table(columns, rows, empty="no table that a job writes: headwater jobs run")
    for found in audits:
        if any(not p.terms for p in found.partitions):  # more than are counted each
            for name, terms in found.totals.items():
                print_line(f"{found.table}: of all partitions of {name}: {_terms(_identity(found, terms))}")
        for sentence in (*found.notes, *found.findings):
            print_line(sentence)
    if audits and all(found.ok for found in audits):
        print_line(f"{counted(len(audits), 'table')}: every offset is accounted for")


def _identity(found: "TableAudit", terms: dict[str, int]) -> dict[str, int]:
    from headwater_streams.base.ledger_entry import TERMS

    return {term: terms[term] for term in ("read", *TERMS[found.kind]) if term in terms}


def _terms(terms: dict[str, int]) -> str:
    if not terms:
        return ""
    parts = [f"{value:,} {term}" for term, value in terms.items() if term != "read" and value]
    return f"{terms.get('read', 0):,} = {' + '.join(parts) or '0'}"
