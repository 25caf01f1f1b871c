"""An updating target: rows that replace those of the same keys, as one commit.

The keys of a batch come to the driver (some 50 bytes each), which looks for them in the key columns of the files whose
statistics allow them; one Spark job rewrites the files that hold one. Not measured against Delta's MERGE.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.delta.comparable import comparable
from headwater_streams.delta.delta_table import DeltaTransaction, conflicts
from headwater_streams.delta.live_files import LiveFile
from headwater_streams.spark.columns import col

_TRIES = 5


def upsert_rows(
    df: DataFrame,
    begin: Callable[[], DeltaTransaction],
    *,
    keys: Sequence[str],
    keyed: pa.Table,
    updates: Mapping[str, str],
    app_id: str,
    batch: int,
    user_metadata: str,
) -> None:
    """Replaces the rows of the same keys and adds the others, as one commit with its mark and its ledger entry.

    Where another commit came first (a backfill's swap), the table is read again, and the rows go into that version.

    Args:
        df: The rows; one for each key. They are computed once, and again where another commit came first.
        begin: Begins a commit to the table.
        keys: The key columns; NULL equals NULL.
        keyed: The key columns of all rows.
        updates: SQL over `t` (the table) and `s` (the rows) for columns that are computed instead of replaced.
        app_id: The mark's application id.
        batch: The mark's version.
        user_metadata: The ledger entry.

    Raises:
        JobDefinitionError: Two of the rows have the same key, or one has a key that the table cannot have.
    """
    new_keys = keyed.select(list(keys))
    _require_distinct(new_keys)
    for tries_left in reversed(range(_TRIES)):
        transaction = begin()
        if transaction.last_batch(app_id) >= batch:
            return
        transaction.require_writable(new_keys)
        try:
            touched = transaction.files_with(new_keys)
            written = transaction.write(_replaced(transaction, touched, df, keys, updates))
            transaction.commit(app_id, batch, user_metadata, written, removed=touched)
            return
        except conflicts():
            if not tries_left:
                raise


def _require_distinct(keys: pa.Table) -> None:
    names = keys.column_names
    distinct = comparable(keys).group_by(names).aggregate([])
    if distinct.num_rows < keys.num_rows:
        raise JobDefinitionError(
            f"the keys {', '.join(names)} do not name a row: {keys.num_rows} rows of a batch have "
            f"{distinct.num_rows} different keys; name all columns of the window's grouping in keys=[...]"
        )


def _replaced(
    transaction: DeltaTransaction,
    touched: Sequence[LiveFile],
    rows: DataFrame,
    keys: Sequence[str],
    updates: Mapping[str, str],
) -> DataFrame:
    """The rows of the files and of `rows`, one for each key; where both have the key, that of `rows` with `updates`."""
    if not touched:
        missing = [field for field in transaction.schema.fields if field.name not in rows.columns]
        return rows.select("*", *[F.lit(None).cast(f.dataType).alias(f.name) for f in missing])
    existing = transaction.read(touched)
    t = existing.withColumn("_held", F.lit(True)).alias("t")
    s = rows.withColumn("_new", F.lit(True)).alias("s")
    both = F.col("t._held") & F.col("s._new")
    columns = []
    for name in existing.columns:
        if name not in rows.columns:  # the job no longer gives it; its old values are not of these rows
            columns.append(F.when(F.col("s._new").isNull(), col("t", name)).alias(name))
            continue
        new = col("s", name)
        if name in updates:
            new = F.when(both, F.expr(updates[name])).otherwise(new)
        columns.append(F.when(F.col("s._new"), new).otherwise(col("t", name)).alias(name))
    return t.join(s, _same_keys(keys), "full_outer").select(*columns)


def _same_keys(keys: Sequence[str]) -> Column:
    return reduce(Column.__and__, [col("t", key).eqNullSafe(col("s", key)) for key in keys])
