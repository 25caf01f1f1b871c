"""Traces from Python: which records rows were made of, and which rows a record became.

    for row in hw.trace.rows("gold.delays", where="carrier = 'UA'"):
        print(row.values["average"], [str(span) for span in hw.trace.records_of(row)])
    for step in hw.trace.record("flights:0:17"):
        print(step.table, step.fate, step.why)

`home` is the home of the tables, by default `$HEADWATER_HOME`, else `.headwater`. No Spark is started.
"""

from contextlib import closing
from pathlib import Path
from typing import Any

from headwater.errors import UsageError
from headwater.home import existing_home
from headwater.sql.catalog import Catalog
from headwater.sql.duckdb_engine import DuckDBEngine
from headwater_streams.base.nearest import unknown_table
from headwater_streams.ledger import trace as _trace
from headwater_streams.ledger.trace import Place, Step, TracedRow, notes_of, records_of
from headwater_streams.ledger.trace.values import rows_of
from headwater_streams.storage.home import Home

__all__ = ["Step", "TracedRow", "notes_of", "record", "records_of", "rows"]


def rows(
    table: str,
    *,
    where: str | None = None,
    limit: int = 10,
    most: int = 20,
    home: Path | str | None = None,
) -> list[TracedRow]:
    """What rows of a table were made of, through every job in between.

    Args:
        table: The table, `schema.name`.
        where: Which rows, as SQL's `WHERE`; all by default.
        limit: The most rows.
        most: Of a row that was made of more rows, the most that are followed; all are counted.
        home: The home.

    Raises:
        UsageError: There is no such table.
        SqlError: The condition is wrong.
    """
    place = existing_home(home)
    tables = _trace.HomeTables(Home(place))
    if table not in tables.names():
        hint = "; a record is written TOPIC:PARTITION:OFFSET" if ":" in table else ""
        raise UsageError(unknown_table(table, tables.names()) + hint)
    return _trace.trace_rows(tables, table, _chosen(place, table, where, limit), most=most)


def record(where: str, *, most: int = 20, home: Path | str | None = None) -> list[Step]:
    """What became of a record in each job that reads its topic.

    Args:
        where: The record, `TOPIC:PARTITION:OFFSET`.
        most: The most rows of one table that are followed.
        home: The home.

    Raises:
        UsageError: It names no record.
    """
    place = Place.parse(where)
    if place is None:
        raise UsageError(f"{where} names no record: write TOPIC:PARTITION:OFFSET")
    return _trace.trace_record(_trace.HomeTables(Home(existing_home(home))), place, most=most)


def _chosen(home: Path, table: str, where: str | None, most: int) -> list[dict[str, Any]]:
    catalog = Catalog(home)
    # The condition has a line of its own: it may end with a comment.
    condition = "" if where is None else f"WHERE (\n{where}\n)"
    with closing(DuckDBEngine(catalog)) as engine:
        found = engine.run(f"SELECT * FROM {catalog.table(table).quoted_name} {condition} LIMIT {most}")
    return [] if found is None else rows_of(found.table)
