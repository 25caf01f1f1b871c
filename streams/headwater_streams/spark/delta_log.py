"""Delta's own log and transactions, which PySpark and delta-spark do not show.

PySpark offers write and commit as one step only. Here the files of a batch are written first, then the library checks
what was observed, and then it commits them with a transaction mark and the ledger entry. Actions go in and out as JSON,
as in Delta's log: `{"add": {...}}`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headwater_streams.spark.gateway import jvm_class, scala_object, to_list, to_seq
from headwater_streams.spark.plain_ways import or_plainly

Action = Mapping[str, Any]
_DELTA = "org.apache.spark.sql.delta"


def delta_log(spark: SparkSession, table: Path) -> Any:
    """Delta's own log of a table, of its JVM class."""
    session = spark._jsparkSession  # noqa: SLF001 - PySpark's only door to the JVM
    # Delta reads a checkpoint with the session of the thread, and one that has run nothing yet has none.
    jvm_class(spark, "org.apache.spark.sql.classic.SparkSession").setActiveSession(session)
    return scala_object(spark, f"{_DELTA}.DeltaLog").forTable(session, str(table))


def _leave_logs(_: SparkSession) -> None:
    """Delta drops its logs by itself, an hour after their last use."""


@or_plainly(_leave_logs)
def forget_logs(spark: SparkSession) -> None:
    """Has Delta drop its cached tables; it reads them again when they are used.

    Delta caches each table's log and newest state for an hour after its last use: 1.6 MB for a window job of a test.
    An hour of tests, each with tables of its own, used up the JVM's 2 GB.
    """
    scala_object(spark, f"{_DELTA}.DeltaLog").clearCache()


@dataclass(frozen=True)
class Snapshot:
    """A version of a table.

    Attributes:
        table: Its folder.
        files: The `add` actions of its files.
        schema: Its columns, as Delta writes them.
        marks: Its transaction marks, by their application ids.
        partition_columns: The columns that it is partitioned by.
    """

    table: Path
    files: Sequence[Mapping[str, Any]]
    schema: str
    marks: Mapping[str, int]
    partition_columns: tuple[str, ...] = ()


def snapshot_of(spark: SparkSession, table: Path, version: int, *, with_files: bool = True) -> Snapshot:
    """A version of a table: its files with their statistics, its columns and its marks. The files take a Spark job of
    their own, and can be left out."""
    none = jvm_class(spark, "scala.Option").empty()
    snapshot = delta_log(spark, table).getSnapshotAt(version, none, none, False)
    adds = snapshot.allFiles().toJSON().collectAsList() if with_files else ()
    files = [json.loads(add) for add in adds]
    marks = {txn.appId(): int(txn.version()) for txn in to_list(snapshot.setTransactions())}
    metadata = json.loads(snapshot.metadata().json())["metaData"]
    return Snapshot(table, files, metadata["schemaString"], marks, tuple(metadata["partitionColumns"]))


class OpenTransaction:
    """A transaction of Delta's, `OptimisticTransaction`: what it read, and the commit that ends it."""

    def __init__(self, spark: SparkSession, table: Path) -> None:
        """Args: the session, and the table's folder."""
        self._spark = spark
        self._transaction = delta_log(spark, table).startTransaction()
        self._metadata: dict[str, Any] = json.loads(self._transaction.metadata().json())["metaData"]

    @property
    def version(self) -> int:
        """The table's version that the transaction reads."""
        return int(self._transaction.readVersion())

    @property
    def schema(self) -> str:
        """The table's columns at that version, as Delta writes them."""
        return str(self._metadata["schemaString"])

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns that the table is partitioned by at that version."""
        return tuple(self._metadata["partitionColumns"])

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties at that version."""
        properties: Mapping[str, str] = self._metadata.get("configuration") or {}
        return properties

    def reads_mark(self, app_id: str) -> None:
        """Makes the commit conflict with every other one of this application id."""
        self._transaction.readTxn().addOne(app_id)  # as txnVersion does, which also rebuilds the state

    def reads_all(self) -> None:
        """Makes the commit conflict with every other change of the table's rows."""
        self._transaction.readWholeTable()

    def write(self, rows: DataFrame) -> list[dict[str, Any]]:
        """Writes rows into files of the table; gives their actions, and commits nothing."""
        written = self._transaction.writeFiles(rows._jdf)  # noqa: SLF001 - PySpark's only door to the plan
        return [json.loads(action.json()) for action in to_list(written)]

    def set_columns(self, schema: str, partition_columns: Sequence[str]) -> None:
        """Gives the table these columns and partitions, from the commit on; to be called before `write`.

        All files of the table that the commit does not remove must have these partitions.
        """
        changed = {"schemaString": schema, "partitionColumns": list(partition_columns)}
        self._metadata = self._metadata | changed
        self._transaction.updateMetadata(self._action({"metaData": self._metadata}), False)

    def commit_batch(
        self, actions: Sequence[Action], app_id: str, batch: int, user_metadata: str, *, updates: bool
    ) -> int:
        """Commits as a streaming query's batch does, and returns the version.

        Args:
            actions: The commit's actions.
            app_id: The query, as Delta's history names it.
            batch: Its batch, likewise.
            user_metadata: What Delta keeps beside the commit.
            updates: Whether the commit removes rows.
        """
        mode = jvm_class(self._spark, "org.apache.spark.sql.streaming.OutputMode")
        operation = jvm_class(self._spark, f"{_DELTA}.DeltaOperations$StreamingUpdate")(
            mode.Update() if updates else mode.Append(), app_id, batch, self._some(user_metadata)
        )
        return self._commit(actions, operation)

    def commit_replacement(self, actions: Sequence[Action], predicate: str, user_metadata: str) -> int:
        """Commits as a write that replaces rows does, and returns the version; Delta's history describes the rows by
        `predicate`."""
        none = jvm_class(self._spark, "scala.Option").empty()
        operation = jvm_class(self._spark, f"{_DELTA}.DeltaOperations$Write")(
            jvm_class(self._spark, "org.apache.spark.sql.SaveMode").Overwrite,
            none,
            self._some(predicate),
            self._some(user_metadata),
            *[none] * 5,
        )
        return self._commit(actions, operation)

    def _commit(self, actions: Sequence[Action], operation: Any) -> int:
        scala_actions = to_seq(self._spark, [self._action(action) for action in actions])
        return int(self._transaction.commit(scala_actions, operation))

    def _action(self, value: Action) -> Any:
        return scala_object(self._spark, f"{_DELTA}.actions.Action").fromJson(json.dumps(value))

    def _some(self, value: Any) -> Any:
        return jvm_class(self._spark, "scala.Some")(value)
