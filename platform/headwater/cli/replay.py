"""`headwater replay`: rows of a table or a file, sent to a topic again."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
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
    waiting,
)
from headwater.cli._kafka import Cluster
from headwater.cli._sender import Sender
from headwater.errors import UsageError, UserError
from headwater_streams.base.nearest import nearest
from headwater_streams.base.plural import quantity

if TYPE_CHECKING:
    from headwater.running.replay import Pace, Replayed, Selection

_BATCH, _LONGEST_S = 8192, 0.5
"""Acknowledgements are seen to this often while a record's turn is waited for."""


def replay(
    source: Annotated[
        str,
        typer.Argument(
            metavar="TABLE|FILE", help="A table, a Parquet file, or a file of JSON, one object a line."
        ),
    ],
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="Where the records go.")],
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="SQL", help="Which rows, as SQL's WHERE.", show_default=False),
    ] = None,
    time_column: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="COLUMN",
            help="The event time, by which rows are sent in order.",
            show_default=False,
        ),
    ] = None,
    speed: Annotated[
        str, typer.Option(metavar="1x|10x|max", help="How many times as fast as the rows came to be.")
    ] = "max",
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="COLUMN", help="The column that becomes the key.", show_default=False),
    ] = None,
    keep_timestamps: Annotated[
        bool,
        typer.Option(
            "--keep-timestamps", help="Give records their event times as timestamps, not the time of now."
        ),
    ] = False,
    skip: Annotated[
        int, typer.Option(metavar="N", min=0, help="Leave out the first N rows, which were sent before.")
    ] = 0,
    at: Annotated[
        int | None,
        typer.Option(
            metavar="VERSION", min=0, help="The table's version; by default its newest.", show_default=False
        ),
    ] = None,
    json_output: JsonOption = False,
    home: HomeOption = DEFAULT_HOME,
    bootstrap: BootstrapOption = None,
) -> None:
    """Send rows that were kept to a topic again, in the order of their time.

    A row becomes JSON of its own columns, without the library's; of a
    quarantine table, the record as it was sent, with its key and headers. A
    line of a file is sent as it stands there. Without --time, rows of a table
    go by the timestamps of their records, and lines in their order.
    Each record has the source and its number there as its origin
    (headwater-origin-... headers), so that a job with
    hw.by_offset(origin=True) takes it once, however often it is replayed.
    Timestamps of long ago would let a topic's retention delete the records at
    once: by default they have the time of now. Starts no Spark.

    \b
    Examples:
      headwater replay silver.departures --topic departures-again --time departed_at --speed 10x
      headwater replay silver.departures__quarantine --topic departures --where "_check = 'has_carrier'"
      headwater replay flights.jsonl --topic flights
    """
    from headwater.running.replay import Pace, Selection, origin_headers, parse_speed

    selection = Selection(source, time_column, key, where, skip)
    rate = parse_speed(speed)
    pace = Pace(rate, time.monotonic)
    with _records(home, selection, at) as (name, records):
        if rate is not None and time_column is None and Path(source).is_file():
            raise UsageError("--speed goes by event times: --time names the column that has them")
        sender = Sender(Cluster(home, bootstrap), topic)
        try:
            with waiting(f"replaying {source}"):
                for record in records:
                    _wait(pace, sender, record)
                    headers = (*record.headers, *origin_headers(name, record.number))
                    sender.send(record.key, record.value, headers, record.at_ms if keep_timestamps else None)
            sender.finish()
        except UserError as error:
            raise UserError(
                f"{error}; {quantity(sender.sent, 'row was', 'rows were')} acknowledged. The same command sends all "
                "again, of which a job with hw.by_offset(origin=True) takes none twice"
            ) from error
        except KeyboardInterrupt:
            sender.finish()
            raise
    if json_output:
        print_json({"topic": topic, "sent": sender.sent, "partitions": sender.ranges()})
    else:
        print_line(f"sent {quantity(sender.sent, 'row')} of {source} to {topic}")


def _wait(pace: "Pace", sender: Sender, record: "Replayed") -> None:
    while (wait_s := pace.wait_s(record.at_ms)) > 0:
        sender.poll(min(wait_s, _LONGEST_S))


@contextmanager
def _records(
    home: Path, selection: "Selection", at: int | None
) -> "Iterator[tuple[str, Iterator[Replayed]]]":
    """The name by which the records' origin is called, and the records."""
    from headwater.running.replay import LINES, PARQUET, of_lines, origin_of_file

    path = Path(selection.source)
    if path.is_file():
        if at is not None:
            raise UsageError("--at names a version of a table; a file has none")
        if path.suffix in LINES:
            if selection.where is not None:
                raise UsageError(
                    "--where chooses rows of a table or a Parquet file; lines are sent as they are"
                )
            yield origin_of_file(path, selection), of_lines(path, selection)
            return
        if path.suffix in PARQUET:
            with _rows(home, selection, f"read_parquet({_text(str(path.absolute()))})", None) as rows:
                yield origin_of_file(path, selection), rows
            return
        raise UsageError(f"{path}: it is none of {', '.join((*LINES, *PARQUET))}, which can be replayed")
    with _rows(home, selection, None, at) as rows:
        yield _origin_of_table(home, selection, at), rows


def _origin_of_table(home: Path, selection: "Selection", at: int | None) -> str:
    from headwater.running.replay import origin_name
    from headwater.sql.catalog import Catalog
    from headwater.sql.delta import open_table

    version = open_table(Catalog(home).table(selection.source), at).version
    return origin_name(f"{selection.source}@{version}", selection)


@contextmanager
def _rows(
    home: Path, selection: "Selection", function: str | None, at: int | None
) -> "Iterator[Iterator[Replayed]]":
    import pyarrow as pa

    from headwater.running.replay import of_table, statement_of
    from headwater.sql.catalog import Catalog
    from headwater.sql.duckdb_engine import DuckDBEngine

    catalog = Catalog(home)
    source = function
    if source is None:
        names = [ref.qualified_name for ref in catalog.tables()]
        if selection.source not in names:
            raise UsageError(
                f"there is no table and no file {selection.source}; the tables are "
                f"{nearest(selection.source, names) or 'none'}"
            )
        schema, _, table = selection.source.partition(".")
        source = f'"{schema}"."{table}"'
    engine = DuckDBEngine(catalog, at)
    try:
        described = engine.run(f"SELECT * FROM {source} LIMIT 0")
        assert described is not None
        columns = described.table.schema
        times = [field.name for field in columns if pa.types.is_timestamp(field.type)]
        statement = statement_of(selection, source, columns.names, times)
        yield of_table(engine.batches(statement, _BATCH), selection)
    finally:
        engine.close()


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
