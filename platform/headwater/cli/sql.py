"""`headwater sql`: queries over the tables by their names."""

import os
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headwater.cli._common import DEFAULT_HOME, HomeOption, RawOption, console
from headwater.errors import EXIT_FAILED, UsageError
from headwater.sql.session import SqlSession
from headwater.sql.statements import all_statements

if TYPE_CHECKING:
    from datetime import datetime


def sql(
    statement: Annotated[
        str | None,
        typer.Argument(
            metavar="STATEMENT",
            help="SQL, or `tables`, `describe SCHEMA.TABLE`, `trace ...`. Without it: standard input, or a prompt.",
            show_default=False,
        ),
    ] = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print one JSON array of objects and nothing else.")
    ] = False,
    csv_output: Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")] = False,
    engine: Annotated[
        Literal["duckdb", "spark"],
        typer.Option(help="duckdb answers at once; spark takes seconds to start, and can do the rest."),
    ] = "duckdb",
    at: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION|TIME",
            help="Read the tables as they were at a version, or at a moment (UTC unless it says otherwise).",
            show_default=False,
        ),
    ] = None,
    max_rows: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="The most rows to show of a table for people; 0 shows all."),
    ] = 100,
    null: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="What stands for NULL in tables and in CSV.", show_default="nothing"
        ),
    ] = "",
    raw: RawOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Query the tables in SQL.

    Each statement sees one version of every table that it names, also while
    jobs write. Times are UTC. Of several statements, --json and --csv print
    the last one's rows. Control characters of the data, but for tabs and line
    breaks, are shown as \\x1b in tables, and in CSV on a terminal. In CSV, NULL
    has no quotes, and a text that reads the same has: --null NULL for readers
    that heed no quotes. Exit status 0: answered, 1: a statement failed, or
    `tables` tells of a table that is damaged, 2: bad usage.

    \b
    Examples:
      headwater sql
      headwater sql tables
      headwater sql "select carrier, count(*) from silver.departures group by carrier"
      headwater sql --json --at 12 "select * from gold.flights"
      headwater sql "trace silver.departures where carrier = 'UA'"
      headwater sql --engine spark "describe history gold.flights"
    """
    if json_output and csv_output:
        raise UsageError("--json and --csv exclude each other")
    _require_null(null, json_output=json_output)
    pinned = _parsed_at(at)
    with SqlSession(home, engine, pinned) as session:
        if statement is None and sys.stdin.isatty():
            if json_output or csv_output:
                raise UsageError("--json and --csv need a statement, as an argument or on standard input")
            from headwater.sql.prompt import run_prompt

            run_prompt(session, console(), max_rows=max_rows, raw=raw, null=null)
            return
        statements = all_statements(sys.stdin.read() if statement is None else statement, engine)
        if not statements:
            raise UsageError('there is no statement; try headwater sql "select 1"')
        try:
            if json_output or csv_output:
                whole = _print_for_machines(session, statements, as_json=json_output, raw=raw, null=null)
            else:
                whole = _print_for_people(session, statements, max_rows, raw=raw, null=null)
            sys.stdout.flush()
        except BrokenPipeError:
            # `headwater sql ... | head` has read enough; Python would complain once more while it exits.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return
    if not whole:
        raise typer.Exit(EXIT_FAILED)


def _require_null(null: str, *, json_output: bool) -> None:
    from headwater.sql.output import CSV_MARKS

    if null and json_output:
        raise UsageError("--null is for tables and --csv; JSON has a null of its own")
    if any(mark in null for mark in CSV_MARKS):
        raise UsageError(f"--null {null!r}: CSV would need quotes around it; give a plain text, such as NULL")


def _parsed_at(at: str | None) -> "int | datetime | None":
    from headwater.sql.delta import parse_at

    try:
        return None if at is None else parse_at(at)
    except ValueError as error:
        raise UsageError(
            f"--at {at}: give a version, such as 12, or a time, such as 2013-01-01T10:00:00Z"
        ) from error


def _print_for_machines(
    session: SqlSession, statements: list[str], *, as_json: bool, raw: bool, null: str
) -> bool:
    """Prints the last statement's rows; returns whether everything that it asks for could be read."""
    from headwater.sql.output import write_csv, write_json

    results = [session.run(statement) for statement in statements]
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # whatever the terminal's locale is: JSON is UTF-8
    if as_json:
        write_json(results[-1], sys.stdout)
    else:
        write_csv(results[-1], sys.stdout, raw=raw or not sys.stdout.isatty(), null=null)
    return results[-1].is_whole


def _print_for_people(
    session: SqlSession, statements: list[str], max_rows: int, *, raw: bool, null: str
) -> bool:
    """Prints the rows of each statement; returns whether everything that they ask for could be read."""
    from headwater.sql.output import print_table

    whole = True
    for statement in statements:
        result = session.run(statement)
        print_table(result, console(), max_rows=max_rows, raw=raw, null=null)
        whole &= result.is_whole
    return whole
