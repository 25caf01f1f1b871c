"""Writes to a Delta table: its creation, and the open transaction of one batch.

A batch's rows are written once, and what was observed on the way is known before the commit: the files are written
by Delta's own transaction, then committed together with the transaction mark and the ledger entry. PySpark offers
write and commit only as one step, so this module reaches Delta's `OptimisticTransaction` through the JVM gateway;
nothing else in the library does.
"""

import json
import time
from collections.abc import Sequence
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
        self._path = path
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

    @property
    def version(self) -> int:
        """The table's version that the transaction reads."""
        return int(self._transaction.readVersion())

    def files(self) -> dict[str, Any]:
        """The `AddFile` action of each file of that version, by the file's name.

        From here on the commit conflicts with every other change of the table's rows but appends that read nothing.
        """
        return {Path(str(add.path())).name: add for add in self._java(self._transaction.filterFiles())}

    def write(self, df: DataFrame) -> WrittenFiles:
        """Writes the rows into files of the table, with its columns, order and types; commits nothing."""
        columns = [F.col(f"`{f.name}`").cast(f.dataType).alias(f.name) for f in self._schema.fields]
        actions = self._transaction.writeFiles(df.select(*columns)._jdf)  # noqa: SLF001
        rows = sum(json.loads(action.stats())["numRecords"] for action in self._java(actions))
        return WrittenFiles(actions, rows)

    def commit(
        self,
        app_id: str,
        batch: int,
        user_metadata: str,
        files: WrittenFiles | None = None,
        *,
        removed: Sequence[Any] = (),
    ) -> int:
        """Commits the files, the mark `(app_id, batch)` and the metadata as one version, and returns it.

        Args:
            app_id: The mark's application id.
            batch: The mark's version.
            user_metadata: The ledger entry.
            files: What `write` wrote.
            removed: `RemoveFile` actions of files that these replace.
        """
        mode = self._jvm.org.apache.spark.sql.streaming.OutputMode
        operation = getattr(self._delta, "DeltaOperations$StreamingUpdate")(
            mode.Update() if removed else mode.Append(), app_id, batch, self._jvm.scala.Some(user_metadata)
        )
        added = self._java(files.actions) if files else []
        return self._commit_actions([*removed, *added], app_id, batch, operation)

    def _commit_actions(self, actions: Sequence[Any], app_id: str, mark: int, operation: Any) -> int:
        marked = getattr(self._delta.actions, "SetTransaction")(  # noqa: B009 - a JVM class
            app_id, mark, self._jvm.scala.Some(int(time.time() * 1000))
        )
        to_seq = self._jvm.org.apache.spark.api.python.PythonUtils.toSeq
        return int(self._transaction.commit(to_seq([marked, *actions]), operation))

    def _java(self, sequence: Any) -> Any:
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(sequence)


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


def conflicts() -> tuple[type[Exception], ...]:
    """What Delta raises when another commit came first; in Python they have no common base of their own."""
    from delta import exceptions

    return (
        exceptions.DeltaConcurrentModificationException,
        exceptions.ConcurrentAppendException,
        exceptions.ConcurrentDeleteDeleteException,
        exceptions.ConcurrentDeleteReadException,
        exceptions.ConcurrentTransactionException,
        exceptions.ConcurrentWriteException,
        exceptions.MetadataChangedException,
    )


def read_version(spark: SparkSession, path: Path, version: int) -> DataFrame:
    """A table as it was at a version."""
    return spark.read.format("delta").option("versionAsOf", version).load(str(path))
