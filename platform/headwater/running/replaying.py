"""Sends kept rows to a topic again: what `headwater replay` and `hw.replay` have in common."""

import glob
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headwater.errors import UsageError, UserError
from headwater.running.replay import (
    LINES,
    PARQUET,
    Pace,
    Replayed,
    Selection,
    of_lines,
    of_table,
    origin_headers,
    origin_name,
    origin_of_file,
    statement_of,
    timestamp_of,
)
from headwater.running.sender import Sender
from headwater.sql.catalog import Catalog
from headwater.sql.delta import open_table
from headwater.sql.duckdb_engine import DuckDBEngine
from headwater_streams.base.nearest import nearest
from headwater_streams.base.plural import quantity

_BATCH, _LONGEST_S = 8192, 0.5
"""Acknowledgements are seen to this often while a record's turn is waited for."""


@dataclass(frozen=True)
class Kept:
    """What is sent.

    Attributes:
        origin: The name by which the records' origin is called.
        records: The records.
        version: The table's version; None of a file.
    """

    origin: str
    records: Iterator[Replayed]
    version: int | None = None


@contextmanager
def kept_rows(home: Path, selection: Selection, at: int | None = None) -> Iterator[Kept]:
    """The rows of a table or a file, while the block runs.

    Args:
        home: The home of the table.
        selection: What is sent.
        at: The table's version; its newest by default.

    Raises:
        UsageError: There is no such table or file, or it lacks what the selection names.
    """
    path = Path(selection.source)
    if not path.is_file():
        with _of_version(home, selection, at) as kept:
            yield kept
        return
    if at is not None:
        raise UsageError("--at names a version of a table; a file has none")
    kind = path.suffix.lower()
    if kind in LINES:
        if selection.where is not None:
            raise UsageError("--where chooses rows of a table or a Parquet file; lines are sent as they are")
        yield Kept(origin_of_file(path, selection), of_lines(path, selection))
    elif kind in PARQUET:
        # *, ? and [ would be of a pattern, by which other files are read.
        literal = glob.escape(str(path.absolute()))
        with _rows(home, selection, f"read_parquet({_text(literal)})", {}) as rows:
            yield Kept(origin_of_file(path, selection), rows)
    else:
        raise UsageError(f"{path}: it is none of {', '.join((*LINES, *PARQUET))}, which can be replayed")


def send_again(kept: Kept, sender: Sender, speed: float | None, *, keep_timestamps: bool) -> None:
    """Sends all records, each when it is due.

    Args:
        kept: The records.
        sender: Where to.
        speed: How many times as fast as they came to be; None for as fast as it goes.
        keep_timestamps: Whether they have their event times as timestamps.

    Raises:
        UserError: A record could not be sent; the message says how to go on.
    """
    pace = Pace(speed, time.monotonic)
    try:
        for record in kept.records:
            timestamp_ms = timestamp_of(record) if keep_timestamps else None
            while (wait_s := pace.wait_s(record.at_ms)) > 0:
                sender.poll(min(wait_s, _LONGEST_S))
            headers = (*record.headers, *origin_headers(kept.origin, record.number))
            sender.send(record.key, record.value, headers, timestamp_ms)
        sender.finish()
    except UserError as error:
        sender.settle()  # in a program what is under way would be sent after it was said how much was
        again = "The same command" if kept.version is None else f"The same command with --at {kept.version}"
        raise UserError(
            f"{error}; {quantity(sender.sent, 'row was', 'rows were')} acknowledged. {again} sends all again, of "
            "which a job with hw.by_offset(origin=True) takes none twice"
        ) from error
    except KeyboardInterrupt:
        sender.finish()
        raise


@contextmanager
def _of_version(home: Path, selection: Selection, at: int | None) -> Iterator[Kept]:
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
        yield Kept(origin_name(f"{selection.source}@{version}", selection), rows, version)


@contextmanager
def _rows(
    home: Path, selection: Selection, source: str, versions: Mapping[str, int]
) -> Iterator[Iterator[Replayed]]:
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
