"""`headwater audit`: every offset of a table's inputs accounted for."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli._common import (
    DEFAULT_HOME,
    BootstrapOption,
    HomeOption,
    JsonOption,
    print_json,
    print_line,
    print_table,
)
from headwater.errors import EXIT_FAILED, UsageError
from headwater_streams.base.nearest import unknown_table
from headwater_streams.base.plural import quantity

if TYPE_CHECKING:
    from headwater_streams.ledger.audit import TableAudit


def audit(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TABLE]...",
            help="Tables; by default all that jobs write. With --counts topics.",
            show_default=False,
        ),
    ] = None,
    counts: Annotated[
        bool,
        typer.Option(
            "--counts", help="Compare topics, by time bucket, with what producers counted and tables have."
        ),
    ] = False,
    bucket: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="How wide a bucket is; by default 1 minute.", show_default=False
        ),
    ] = None,
    grace: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How long after its end a bucket is open; by default 1 minute.",
            show_default=False,
        ),
    ] = None,
    mirrors: Annotated[
        list[str] | None,
        typer.Option(
            "--mirror",
            metavar="HOST:PORT",
            help="What topics are mirrored into: brokers, or a [cluster.NAME] of the settings. May be repeated.",
        ),
    ] = None,
    whole: Annotated[
        bool,
        typer.Option(
            "--whole",
            help="Read topics from their beginning, not from where the last audit ended: finds what was lost since.",
        ),
    ] = False,
    every_bucket: Annotated[
        bool, typer.Option("--all", help="Print each bucket, not only those that are not complete.")
    ] = False,
    bootstrap: BootstrapOption = None,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Account for every offset of every table's inputs, and name the rows that should not be as they are.

    What was read must equal what was written, filtered, removed as duplicate, late or quarantined, for each
    batch and partition; batches must follow each other without a gap; the tables must hold what their commits
    wrote. Exit status 0: the books balance, 1: they do not, 2: there is no such table.

    With --counts it compares each topic's records with what its producers counted (see headwater_client), and
    with what jobs read of them and tables hold, by bucket of the records' timestamps: complete, missing, doubled,
    uncounted, unknown or still open. The numbers are kept in the table audit.counts. Exit status 1 where a bucket
    has records that are missing, doubled, uncounted or stray.

    \b
    Examples:
      headwater audit
      headwater audit silver.departures --json
      headwater audit --counts
      headwater audit --counts departures --all
      headwater audit --counts --mirror east
      headwater audit --counts --whole
    """
    if counts:
        from headwater.cli._audit_counts import audit_counts

        audit_counts(
            home,
            tables or [],
            bootstrap,
            bucket=bucket,
            grace=grace,
            mirrors=mirrors or [],
            whole=whole,
            every=every_bucket,
            as_json=json_output,
        )
        return
    if bucket or grace or whole or every_bucket or bootstrap or mirrors:
        raise UsageError(
            "--bucket, --grace, --mirror, --whole, --all and --bootstrap belong to --counts: add it, or leave them out"
        )
    from headwater_streams.ledger.audit import audit_home, removed_tables
    from headwater_streams.storage.home import Home

    if not home.is_dir():
        raise UsageError(f"there is no folder {home}; --home names the one that holds the tables")
    gone = removed_tables(Home(home))
    existing = [*Home(home).tables(), *(each.table for each in gone)]
    for table in tables or []:
        if table not in existing:
            raise UsageError(unknown_table(table, existing))
    audits = audit_home(Home(home), tables, gone)
    if json_output:
        print_json([_plain(each) for each in audits])
    else:
        _print(audits)
    if not all(each.ok for each in audits):
        raise typer.Exit(EXIT_FAILED)


def _plain(table_audit: "TableAudit") -> dict[str, Any]:
    return {**asdict(table_audit), "ok": table_audit.ok}


def _print(audits: "list[TableAudit]") -> None:
    rows = [
        (p.table, p.topic, p.partition, f"[{p.start:,}, {p.end:,})", _terms(p.terms), "✓" if p.ok else "✗")
        for each in audits
        for p in each.partitions
    ]
    columns = ["table", "topic", "partition", "offsets", "read = …", ""]
    print_table(columns, rows, empty="no table that a job writes: headwater jobs run")
    for each in audits:
        if any(not p.terms for p in each.partitions):  # too many to count each by itself
            for name, terms in each.totals.items():
                print_line(f"{each.table}: of all partitions of {name}: {_terms(_identity(each, terms))}")
        for sentence in (*each.notes, *each.findings):
            print_line(sentence)
    if audits and all(each.ok for each in audits):
        print_line(f"{quantity(len(audits), 'table')}: every offset is accounted for")


def _identity(table_audit: "TableAudit", terms: dict[str, int]) -> dict[str, int]:
    from headwater_streams.base.ledger_entry import identity_terms

    rows = {"written": terms["written"]} if "exploded" in terms else {}
    return {"read": terms.get("read", 0), **identity_terms(table_audit.kind, terms), **rows}


def _terms(terms: dict[str, int]) -> str:
    """An account as a sum; of records that became several rows each, how many rows stands behind them."""
    if not terms:
        return ""
    rows = f" into {quantity(terms['written'], 'row')}" if "exploded" in terms else ""
    left_out = {"read", "written"} if "exploded" in terms else {"read"}
    parts = [
        f"{value:,} {term}{rows if term == 'exploded' else ''}"
        for term, value in terms.items()
        if term not in left_out and value
    ]
    return f"{terms.get('read', 0):,} = {' + '.join(parts) or '0'}"
