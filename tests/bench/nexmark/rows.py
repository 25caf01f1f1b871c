"""What the contenders wrote, row by row: one order of columns, one form of times, and the rows that differ."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from nexmark.topics import WATERMARK_S

_BID = 'auction, bidder, price, channel, url, epoch_ms("dateTime") AS at_ms, extra'
_COLUMNS = {
    "q0": 'auction, bidder, price, epoch_ms("dateTime") AS at_ms, extra',
    "q1": 'auction, bidder, price::DECIMAL(23, 3) AS price, epoch_ms("dateTime") AS at_ms, extra',
    "q2": "auction, price",
    "q3": "name, city, state, id",
    "q5": "auction, num, epoch_ms(endtime) AS ends",
    "q7": 'auction, bidder, price, epoch_ms("dateTime") AS at_ms, extra, (at_ms // 10000 + 1) * 10000 AS ends',
    "q8": "id, name, epoch_ms(starttime) AS starts",
    "q11": "bidder, bid_count, epoch_ms(starttime) AS starts, epoch_ms(endtime) AS ends",
    "q13": 'auction, bidder, price, epoch_ms("dateTime") AS at_ms, value',
    "q18": _BID,
    "q20": "auction, bidder, price, channel, url, epoch_ms(bid_dateTime) AS bid_at_ms, bid_extra, itemName, "
    "description, initialBid, reserve, epoch_ms(auction_dateTime) AS at_ms, epoch_ms(expires) AS expires_ms, "
    "seller, category, auction_extra",
}
_NESTED = {
    "q5": "(SELECT found.item AS auction, found.count AS num, endtime "
    "FROM (SELECT endtime, unnest(hottest) AS found FROM written))"
}
"""Where rows stand in an array: q5's in Spark."""
_SHOWN = 3


class RowsDifferError(Exception):
    """Two contenders wrote different rows."""


def canonical(query: str, written: pa.Table | ds.Dataset, last_ms: int) -> pa.Table:
    """The rows in a form that all contenders share, of windows that were over.

    Args:
        query: Its name.
        written: What a contender wrote.
        last_ms: The newest event that the query read.
    """
    nested = query in _NESTED and "hottest" in written.schema.names
    rows = f"SELECT {_COLUMNS[query]} FROM {_NESTED[query] if nested else 'written'}"
    if " AS ends" in rows:
        rows = f"SELECT * FROM ({rows}) WHERE ends <= {last_ms - WATERMARK_S * 1000}"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.register("written", written).sql(rows).to_arrow_table()


def compare(query: str, one: str, ones: pa.Table, other: str, others: pa.Table) -> None:
    """Compares two results as bags of rows.

    Raises:
        RowsDifferError: A row stands in one more often than in the other; the first ones are named.
    """
    with duckdb.connect() as connection:
        connection.register("ones", ones).register("others", others)
        for name, left, right in ((one, "ones", "others"), (other, "others", "ones")):
            lonely = f"SELECT * FROM {left} EXCEPT ALL SELECT * FROM {right}"
            found = connection.sql(f"SELECT * FROM ({lonely}) ORDER BY ALL LIMIT {_SHOWN}").fetchall()
            if found:
                ((count,),) = connection.sql(f"SELECT count(*) FROM ({lonely})").fetchall()
                shown = "\n".join(map(str, found))
                sizes = f"{one} {ones.num_rows} rows, {other} {others.num_rows}"
                message = f"{query}: {count} rows of {name} alone ({sizes}), the first of them:\n{shown}"
                raise RowsDifferError(message)
