"""An updating target: rows that replace those of the same keys, as one commit.

Three small jobs in the transaction that appends use too: what the keys span, which files hold them, those files anew.
Files whose statistics say that they hold none of the keys are not read. Not measured against Delta's MERGE by itself.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.errors import JobDefinitionError
from headwater_streams.sinks.delta_table import DeltaTransaction, conflicts, read_version

_TRIES = 5
_BOUNDED = (T.TimestampType, T.DateType, T.IntegralType)


def upsert_rows(
    df: DataFrame,
    path: Path,
    *,
    keys: Sequence[str],
    updates: Mapping[str, str],
    app_id: str,
    batch: int,
    user_metadata: str,
) -> None:
    """Replaces the rows of the same keys and adds the others, as one commit with its mark and its ledger entry.

    A commit of somebody else that came in between (a backfill's swap) is read, and the rows are put into what it left.

    Args:
        df: The rows; one for each key.
        path: The table's folder.
        keys: The key columns; NULL equals NULL.
        updates: SQL over `t` (the table) and `s` (the rows) for columns that are not simply replaced.
        app_id: The mark's application id.
        batch: The mark's version.
        user_metadata: The ledger entry.

    Raises:
        JobDefinitionError: Two of the rows have the same key.
    """
    rows = df.persist()  # read by three jobs here, and again when another commit came first
    try:
        for tries_left in reversed(range(_TRIES)):
            upsert = _Upsert(df.sparkSession, path)
            if upsert.last_batch(app_id) >= batch:
                return
            try:
                upsert.run(rows, keys, updates, app_id, batch, user_metadata)
                return
            except conflicts():
                if not tries_left:
                    raise
    finally:
        rows.unpersist()


class _Upsert(DeltaTransaction):
    def run(
        self,
        rows: DataFrame,
        keys: Sequence[str],
        updates: Mapping[str, str],
        app_id: str,
        batch: int,
        user_metadata: str,
    ) -> None:
        files = self.files()
        table = read_version(self._spark, self._path, self.version)
        near = _near(rows, keys)
        touched = self._touched(table.filter(near), rows, keys) if files else []
        held = table.filter(F.col("_metadata.file_name").isin(touched))
        written = self.write(_replaced(held, rows, keys, updates))
        removed = [files[name].remove() for name in touched]
        self.commit(app_id, batch, user_metadata, written, removed=removed)

    def _touched(self, table: DataFrame, rows: DataFrame, keys: Sequence[str]) -> list[str]:
        """The names of the files that hold a key of the rows."""
        t = table.select(*[f"`{key}`" for key in keys], F.col("_metadata.file_name").alias("_file")).alias(
            "t"
        )
        s = F.broadcast(rows.select(*[f"`{key}`" for key in keys])).alias("s")
        found = t.join(s, _same_keys(keys), "left_semi").select("_file").distinct().collect()
        return sorted(row["_file"] for row in found)


def _near(rows: DataFrame, keys: Sequence[str]) -> Column:
    """True for every row with a key of `rows`, and told in a way that Delta can check against a file's statistics.

    Raises:
        JobDefinitionError: Two of the rows have the same key.
    """
    bounded = [key for key in keys if isinstance(rows.schema[key].dataType, _BOUNDED)]
    columns = [F.col(f"`{key}`") for key in keys]
    counts = [F.count(F.lit(1)), F.count_distinct(F.struct(*columns))]
    limits = [
        F.struct(F.min(c), F.max(c), F.count_if(c.isNull())) for c in (F.col(f"`{key}`") for key in bounded)
    ]
    row = rows.agg(*counts, *limits).first()
    assert row is not None
    total, distinct, *found = row
    if distinct < total:
        raise JobDefinitionError(
            f"the keys {', '.join(keys)} do not name a row: {total} rows of a batch have {distinct} different keys; "
            "name all columns of the window's grouping in keys=[...]"
        )
    near = F.lit(True)
    for key, (least, greatest, nulls) in zip(bounded, found, strict=True):
        if total and not nulls:
            near &= F.col(f"`{key}`").between(F.lit(least), F.lit(greatest))
    return near


def _replaced(held: DataFrame, rows: DataFrame, keys: Sequence[str], updates: Mapping[str, str]) -> DataFrame:
    """The rows of `held` and `rows`, one for each key; where both have it, that of `rows` with the updates."""
    t = held.withColumn("_held", F.lit(True)).alias("t")
    s = rows.withColumn("_new", F.lit(True)).alias("s")
    both = F.col("t._held") & F.col("s._new")
    columns = []
    for name in held.columns:
        if name not in rows.columns:
            columns.append(F.col(f"t.`{name}`"))
            continue
        new = F.col(f"s.`{name}`")
        if name in updates:
            new = F.when(both, F.expr(updates[name])).otherwise(new)
        columns.append(F.when(F.col("s._new"), new).otherwise(F.col(f"t.`{name}`")).alias(name))
    return t.join(s, _same_keys(keys), "full_outer").select(*columns)


def _same_keys(keys: Sequence[str]) -> Column:
    return reduce(Column.__and__, [F.col(f"t.`{key}`").eqNullSafe(F.col(f"s.`{key}`")) for key in keys])
