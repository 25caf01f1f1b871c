"""Writes to a Delta table: its creation, the open transaction of one batch, the merge of an updating target.

A batch's rows are written once, and what was observed on the way is known before the commit: the files are written
by Delta's own transaction, then committed together with the transaction mark and the ledger entry. PySpark offers
write and commit only as one step, so this module reaches Delta's `OptimisticTransaction` through the JVM gateway;
nothing else in the library does.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.errors import IncompatibleTableError

_PROPERTIES = {
    "delta.enableDeletionVectors": "false",  # deltalake and DuckDB do not read them
    "delta.enableExpiredLogCleanup": "false",  # the log is cleaned after its entries are in headwater.ledger
    "delta.dataSkippingNumIndexedCols": "-1",  # the coordinates stand behind the user's columns
}


@dataclass(frozen=True)
class WrittenFiles:
    """Files of a transaction that is not committed yet."""

    actions: Any
    rows: int


class DeltaTransaction:
    """One commit: begun, filled with files, committed with its mark and its ledger entry.

    A transaction that is dropped leaves files that no version names; vacuum removes them.
    """

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self._spark = spark
        jvm = spark._jvm  # noqa: SLF001 - see the module's docstring
        assert jvm is not None
        self._delta = jvm.org.apache.spark.sql.delta
        self._jvm = jvm
        companion = getattr(getattr(self._delta, "DeltaLog$"), "MODULE$")
        log = companion.forTable(spark._jsparkSession, str(path))  # noqa: SLF001
        self._transaction = log.startTransaction()
        self._schema = T.StructType.fromJson(json.loads(self._transaction.metadata().schemaString()))

    def last_batch(self, app_id: str) -> int:
        """The last batch that was committed under this application id, -1 before the first."""
        return int(self._transaction.txnVersion(app_id))

    def write(self, df: DataFrame) -> WrittenFiles:
        """Writes the rows into files of the table, with its columns, order and types; commits nothing."""
        columns = [F.col(f"`{f.name}`").cast(f.dataType).alias(f.name) for f in self._schema.fields]
        actions = self._transaction.writeFiles(df.select(*columns)._jdf)  # noqa: SLF001
        added = self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(actions)
        rows = sum(json.loads(action.stats())["numRecords"] for action in added)
        return WrittenFiles(actions, rows)

    def commit(self, app_id: str, batch: int, user_metadata: str, files: WrittenFiles | None = None) -> int:
        """Commits the files, the mark `(app_id, batch)` and the metadata as one version, and returns it."""
        mark = getattr(self._delta.actions, "SetTransaction")(  # noqa: B009 - a JVM class
            app_id, batch, self._jvm.scala.Some(int(time.time() * 1000))
        )
        nothing = self._jvm.org.apache.spark.api.python.PythonUtils.toSeq([])
        actions = (files.actions if files else nothing).prepended(mark)
        operation = getattr(self._delta, "DeltaOperations$StreamingUpdate")(
            self._jvm.org.apache.spark.sql.streaming.OutputMode.Append(),
            app_id,
            batch,
            self._jvm.scala.Some(user_metadata),
        )
        return int(self._transaction.commit(actions, operation))


def ensure_table(spark: SparkSession, path: Path, name: str, schema: T.StructType) -> None:
    """Creates the table, or adds the columns that it does not have yet.

    Raises:
        IncompatibleTableError: A column exists with another type.
    """
    from delta.tables import DeltaTable

    nullable = T.StructType([T.StructField(f.name, f.dataType, True) for f in schema.fields])
    if not (path / "_delta_log").exists():
        builder = DeltaTable.createIfNotExists(spark).location(str(path)).addColumns(nullable)
        for key, value in _PROPERTIES.items():
            builder = builder.property(key, value)
        builder.execute()
        return
    existing = {f.name: f for f in spark.read.format("delta").load(str(path)).schema.fields}
    added = [f for f in nullable.fields if f.name not in existing]
    for field in nullable.fields:
        there = existing.get(field.name)
        if there is not None and there.dataType.simpleString() != field.dataType.simpleString():
            raise IncompatibleTableError(
                f"{name}: the column {field.name!r} is {there.dataType.simpleString()} in the table and "
                f"{field.dataType.simpleString()} in the job; give it another name, or rebuild the table by a backfill"
            )
    if added:
        columns = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in added)
        spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS ({columns})")


def last_batch(spark: SparkSession, path: Path, app_id: str) -> int:
    """The last batch that was committed to the table under this application id, -1 before the first."""
    return DeltaTransaction(spark, path).last_batch(app_id)


def merge_rows(
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

    Args:
        df: The rows; at most one for each key.
        path: The table's folder.
        keys: The key columns; NULL equals NULL.
        updates: SQL over `t` (the table) and `s` (the rows) for columns that are not simply replaced.
        app_id: The mark's application id.
        batch: The mark's version.
        user_metadata: The ledger entry.
    """
    from delta.tables import DeltaTable

    session = df.sparkSession  # the query's own clone: its settings do not leak into other queries
    settings = {
        "spark.databricks.delta.write.txnAppId": app_id,
        "spark.databricks.delta.write.txnVersion": str(batch),
        "spark.databricks.delta.commitInfo.userMetadata": user_metadata,
    }
    for key, value in settings.items():
        session.conf.set(key, value)
    try:
        condition = " AND ".join(f"t.`{key}` <=> s.`{key}`" for key in keys)
        changes = {f"`{name}`": updates.get(name, f"s.`{name}`") for name in df.columns}
        inserts = {f"`{name}`": f"s.`{name}`" for name in df.columns}
        target = DeltaTable.forPath(session, str(path)).alias("t")
        merge = target.merge(df.alias("s"), condition).whenMatchedUpdate(set=changes)
        merge.whenNotMatchedInsert(values=inserts).execute()
    finally:
        for key in settings:
            session.conf.unset(key)
