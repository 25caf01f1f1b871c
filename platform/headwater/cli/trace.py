"""`headwater trace`: the records of a row, and the rows of a record, through every job in between."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli._common import (
    DEFAULT_HOME,
    BootstrapOption,
    HomeOption,
    JsonOption,
    print_json,
    print_line,
    print_remarks,
)
from headwater.errors import UsageError, UserError

if TYPE_CHECKING:
    from headwater_streams.ledger.trace import Place, Step, TracedRow

_MOST_ROWS = 10
_OF_A_CONDITION, _LINE = re.compile(r"\w+ Error: "), "\n\nLINE "


def trace(
    what: Annotated[
        str,
        typer.Argument(
            metavar="TABLE|TOPIC:PARTITION:OFFSET", help="A table whose rows are traced, or a record."
        ),
    ],
    where: Annotated[
        str | None,
        typer.Option(
            "--where", metavar="SQL", help="Which rows of the table, as SQL's WHERE.", show_default=False
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, help="The most rows of the table to trace.")
    ] = _MOST_ROWS,
    most: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Of a row that was made of more rows, the most to follow; all are counted.",
        ),
    ] = 20,
    records: Annotated[
        bool, typer.Option("--records/--no-records", help="Read the records themselves from the brokers.")
    ] = True,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
    bootstrap: BootstrapOption = None,
) -> None:
    """Trace rows back to their records, or a record on to its rows.

    Of each row it prints the job, the batch and the version that wrote it,
    and what it was made of, through every job in between, down to the
    records with their values. A window says how many rows it counts: where
    its columns do not tell which ones, the answer says so. Of a record it
    prints the rows that it became in each job that read it, or where it was
    left out and why. Both start no Spark. Without brokers, or where records
    are gone, their places are printed all the same. Exit status 0: traced,
    1: no row, or no job that reads the topic, 2: bad usage.

    \b
    Examples:
      headwater trace gold.delays --where "carrier = 'UA'"
      headwater trace flights:0:17
      headwater trace silver.departures --where "delay > 600" --json
    """
    from headwater import trace as traces
    from headwater.sql.errors import SqlError
    from headwater_streams.ledger.trace import Place

    if not home.is_dir():
        raise UsageError(f"there is no folder {home}; --home names the one that holds the tables")
    place = Place.parse(what)
    if place is not None:
        if where is not None:
            raise UsageError("--where chooses rows of a table; a record is named by its place alone")
        steps = traces.record(what, most=most, home=home)
        _print_record(home, bootstrap, place, steps, records=records, json_output=json_output)
        return
    try:
        rows = traces.rows(what, where=where, limit=limit + 1, most=most, home=home)
    except SqlError as error:
        if where is None or _OF_A_CONDITION.match(str(error)) is None:
            raise
        # What follows is the line of a statement that the person did not type.
        raise UsageError(f"--where {where}: {str(error).partition(_LINE)[0]}") from error
    _print_rows(
        home, bootstrap, rows[:limit], more=len(rows) > limit, records=records, json_output=json_output
    )
    if not rows:
        raise UserError(f"no row of {what} is so" if where else f"{what} is empty")


def _print_rows(
    home: Path,
    bootstrap: str | None,
    traced: "list[TracedRow]",
    *,
    more: bool,
    records: bool,
    json_output: bool,
) -> None:
    from headwater.cli._records import records_of_places
    from headwater.cli._trace_lines import lines_of_row, row_json
    from headwater_streams.ledger.trace import records_of

    # No more of a range than what is shown: a window over a topic names all that lies between its ends.
    places = [p for row in traced for span in records_of(row) for p in span.places(_MOST_ROWS)]
    found, remarks = records_of_places(home, bootstrap, places) if records else ({}, [])
    if json_output:
        print_json([row_json(row, found) for row in traced])
    else:
        for row in traced:
            for line in lines_of_row(row, found):
                print_line(line)
        if more:
            print_line(
                f"and more rows: --where chooses among them, and --limit shows more than {len(traced)}"
            )
    print_remarks(remarks)


def _print_record(
    home: Path,
    bootstrap: str | None,
    place: "Place",
    steps: "list[Step]",
    *,
    records: bool,
    json_output: bool,
) -> None:
    from headwater.cli._records import records_of_places
    from headwater.cli._trace_lines import lines_of_step, record_json, record_line, step_json

    found, remarks = records_of_places(home, bootstrap, [place]) if records else ({}, [])
    if json_output:
        print_json({"record": record_json(place, found), "steps": [step_json(step) for step in steps]})
    else:
        print_line(record_line(place, found))
        for step in steps:
            for line in lines_of_step(step, 1):
                print_line(line)
    print_remarks(remarks)
    if not steps:
        raise UserError(f"no table of {home} was made of topic {place.topic}")
