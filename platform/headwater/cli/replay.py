"""`headwater replay`: rows of a table or a file, sent to a topic again."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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
    from headwater.running.replay import Pace, Selection, origin_headers, parse_speed, timestamp_of

    rate = parse_speed(speed)
    by_time = rate is not None or keep_timestamps
    selection = Selection(source, time_column, key, where, skip, by_time=by_time)
    pace = Pace(rate, time.monotonic)
    with _kept(home, selection, at) as kept:
        sender = Sender(Cluster(home, bootstrap), topic)
        try:
            with waiting(f"replaying {source}"):
                for record in kept.records:
                    timestamp_ms = timestamp_of(record) if keep_timestamps else None
                    _wait(pace, sender, record)
                    headers = (*record.headers, *origin_headers(kept.origin, record.number))
                    sender.send(record.key, record.value, headers, timestamp_ms)
            sender.finish()
        except UserError as error:
            again = (
                "The same command" if kept.version is None else f"The same command with --at {kept.version}"
            )
            raise UserError(
                f"{error}; {quantity(sender.sent, 'row was', 'rows were')} acknowledged. {again} sends all again, of "
                "which a job with hw.by_offset(origin=True) takes none twice"
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


@dataclass(frozen=True)
class _Kept:
    """What is sent.

    Attributes:
        origin: The name by which the records' origin is called.
        records: The records.
        version: The table's version; None of a file.
    """

    origin: str
    records: "Iterator[Replayed]"
    version: int | None = None


@contextmanager
def _kept(home: Path, selection: "Selection", at: int | None) -> Iterator[_Kept]:
    from headwater.running.replay import LINES, PARQUET, of_lines, origin_of_file

    path = Path(selection.source)
    if not path.is_file():
        with _table(home, selection, at) as kept:
            yield kept
        return
    if at is not None:
        raise UsageError("--at names a version of a table; a file has none")
    if path.suffix in LINES:
        if selection.where is not None:
            raise UsageError("--where chooses rows of a table or a Parquet file; lines are sent as they are")
        yield _Kept(origin_of_file(path, selection), of_lines(path, selection))
    elif path.suffix in PARQUET:
        function = f"read_parquet({_text(str(path.absolute()))})"
        with _rows(home, selection, function, {}) as rows:
            yield _Kept(origin_of_file(path, selection), rows)
    else:
        raise UsageError(f"{path}: it is none of {', '.join((*LINES, *PARQUET))}, which can be replayed")


@contextmanager
def _table(home: Path, selection: "Selection", at: int | None) -> Iterator[_Kept]:
    from headwater.running.replay import origin_name
    from headwater.sql.catalog import Catalog
    from headwater.sql.delta import open_table

    tables = {ref.qualified_name: ref for ref in Catalog(home).tables()}
    if selection.source not in tables:
        raise UsageError(
            f"there is no table and no file {selection.source}; the tables are "
            f"{nearest(selection.source, [*tables]) or 'none'}"
        )
    # A job may commit meanwhile: the rows are those of the version that their origin names.
    table = tables[selection.source]
    version = open_table(table, at).version
    with _rows(home, selection, table.quoted_name, {selection.source: version}) as rows:
        yield _Kept(origin_name(f"{selection.source}@{version}", selection), rows, version)


@contextmanager
def _rows(
    home: Path, selection: "Selection", source: str, versions: Mapping[str, int]
) -> "Iterator[Iterator[Replayed]]":
    import pyarrow as pa

    from headwater.running.replay import of_table, statement_of
    from headwater.sql.catalog import Catalog
    from headwater.sql.duckdb_engine import DuckDBEngine

    engine = DuckDBEngine(Catalog(home), versions=versions)
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
