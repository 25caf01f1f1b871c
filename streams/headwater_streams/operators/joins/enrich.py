"""Each row with what a table says about it: a stream joined with a static table, at most one partner for a row.

dim.airports     JFK = "Kennedy"  ------------------>  JFK = "John F. Kennedy"
                 version 6                             version 7
departures   --------- a (JFK) ------ b (XYZ) ------------------ c (JFK) ------>
result                 a, Kennedy     b, NULL                    c, John F. Kennedy
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, get_args

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.arguments import require_list
from headwater_streams.base.errors import JobDefinitionError, LookupKeyError
from headwater_streams.operators.joins.columns import (
    require_apart,
    require_columns,
    require_equatable,
    revealed,
)
from headwater_streams.operators.recording import is_recording
from headwater_streams.spark.columns import col, cols
from headwater_streams.spark.hidden_columns import hide

How = Literal["left", "inner"]
_NAMED = 3

_trusted: ContextVar[bool] = ContextVar("headwater_trusted", default=False)


def enrich(
    rows: DataFrame, table: DataFrame, *, on: Sequence[str] | Mapping[str, str], how: How = "left"
) -> DataFrame:
    """Adds to each row the columns of the table's row with its key.

    Args:
        rows: The rows.
        table: The look-up, of `hw.lookup(...)` or any static DataFrame, with one row for each key.
        on: The key's columns, by the name that both have, `["carrier"]`, or by the rows' name and the table's,
            `{"dest": "code"}`. A NULL matches nothing.
        how: `"left"` keeps a row whose key the table does not have, with NULLs; `"inner"` leaves it out, and the ledger
            counts it as filtered.

    Returns:
        The row's columns, then the table's without its key.

    Example:
        hw.enrich(orders, currencies, on={"currency": "code"})  # currencies = hw.lookup("silver.currencies")

    Raises:
        JobDefinitionError: A column is missing or stands on both sides.
        LookupKeyError: The table has several rows for one key, so rows would be doubled.
    """
    require_list("enrich", "on", on)
    keys = dict(on) if isinstance(on, Mapping) else {name: name for name in on}
    if not keys or how not in get_args(How):
        raise JobDefinitionError(
            f"enrich: on={on!r}, how={how!r}: name a column or more, and 'left' or 'inner'"
        )
    require_columns("enrich", "rows'", rows, list(keys))
    require_columns("enrich", "table's", table, list(keys.values()))
    added = [name for name in table.columns if name not in keys.values()]
    require_equatable("enrich", rows, table, keys)
    require_apart("enrich", rows, table.select(*cols(added)), ())
    require_unique("enrich", table, list(keys.values()))
    visible = rows.columns
    left, hidden = revealed(rows, of_records=True)
    condition = F.lit(True)
    for row_key, table_key in keys.items():
        condition &= col("l", row_key) == col("r", table_key)
    joined = left.alias("l").join(table.alias("r"), condition, how)
    result = joined.select(
        *[col("l", name) for name in (*visible, *hidden)], *[col("r", name) for name in added]
    )
    return hide(result, hidden) if hidden else result


@contextmanager
def trusting(trusted: bool) -> Iterator[None]:
    """While the block runs, look-ups are taken to have unique keys if `trusted`; otherwise their keys are checked."""
    token = _trusted.set(trusted)
    try:
        yield
    finally:
        _trusted.reset(token)


def require_unique(operator: str, table: DataFrame, keys: Sequence[str]) -> None:
    """Checks that no two rows of a static table have one key.

    Raises:
        LookupKeyError: Some have.
    """
    if _trusted.get() or is_recording() or table.isStreaming:
        return
    whole = F.lit(True)
    for name in keys:
        whole &= col(name).isNotNull()
    counts = table.filter(whole).groupBy(*cols(keys)).agg(F.count(F.lit(1)).alias("_count"))
    twice = counts.filter("_count > 1").limit(_NAMED).collect()
    if twice:
        repeated = "; ".join(
            ", ".join(f"{name}={row[name]!r}" for name in keys) + f" {row['_count']} times" for row in twice
        )
        raise LookupKeyError(
            f"{operator}: the look-up has several rows for one key ({repeated}), and rows would be doubled; "
            "nothing of the batch was committed"
        )
