"""Reads and writes a Delta table: the open transaction of one batch, and rows of its files and versions.

A batch's rows are written once, and its observations are known before the commit: Delta's own transaction writes the
files, and then commits them together with the transaction mark and the ledger entry.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from urllib.parse import unquote
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc

# Imported before the first conflict, not in its handler: without the import PySpark raises Delta's conflicts as bare
# Py4JJavaErrors.
from delta import exceptions
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from headwater_streams.base.errors import DataLossError, JobDefinitionError
from headwater_streams.base.layout import CLUSTERED_BY
from headwater_streams.delta.file_statistics import statistics_of
from headwater_streams.delta.live_files import LiveFile, all_files, files_with
from headwater_streams.delta.marks import Marks
from headwater_streams.spark.columns import col, cols
from headwater_streams.spark.delta_log import Action, OpenTransaction
from headwater_streams.storage.delta_files import data_file
from headwater_streams.storage.files import size_of

_COLLECT = "spark.databricks.delta.stats.collect"
_WRITING: WeakKeyDictionary[SparkSession, tuple[int, str]] = WeakKeyDictionary()
"""The number of threads that write with a session, and the session's own setting of `_COLLECT`."""
_WRITING_LOCK = Lock()
_FEW_BYTES = 1 << 20  # tens of thousands of rows

REBUILT = "headwater/rebuilt"
"""The application id of a mark whose number is the version that emptied the table for a rebuild."""


@dataclass(frozen=True)
class WrittenFiles:
    """Files of a transaction that is not committed yet."""

    actions: list[Action]
    rows: int

    @property
    def names(self) -> list[str]:
        """Their paths in the table's folder."""
        return [unquote(action["add"]["path"]) for action in self.actions]


class DeltaTransaction:
    """One commit: it is begun, gets its files, and is committed with its mark and its ledger entry.

    A transaction that is dropped leaves files that no version has; vacuum removes them.
    """

    def __init__(self, spark: SparkSession, path: Path, marks: Marks | None = None) -> None:
        """Args: the session, the table's folder, and its marks as earlier transactions read them."""
        self._spark = spark
        self._path = path
        self._marks = marks or Marks()
        self._transaction = OpenTransaction(spark, path)
        self._schema = T.StructType.fromJson(json.loads(self._transaction.schema))

    def last_batch(self, app_id: str) -> int:
        """The last batch that was committed under this application id, -1 before the first.

        From here on the commit conflicts with every other one of the same application id.
        """
        self._transaction.reads_mark(app_id)
        return self._marks.last_batch(self._path, app_id, self.version)

    @property
    def version(self) -> int:
        """The table's version that the transaction reads."""
        return self._transaction.version

    @property
    def schema(self) -> T.StructType:
        """The table's columns at that version."""
        return self._schema

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns that the table is partitioned by at that version."""
        return self._transaction.partition_columns

    def require_writable(self, keys: pa.Table) -> None:
        """Checks that rows with some keys are found again: Delta writes an empty text as NULL in a partition column.

        Raises:
            JobDefinitionError: One has an empty text there.
        """
        for name in keys.column_names:
            texts = keys[name]
            if not pa.types.is_string(texts.type) or not pc.any(pc.equal(texts, "")).as_py():
                continue
            if name in self.partition_columns:
                raise JobDefinitionError(
                    f"the table is partitioned by {name!r}, a key that is an empty text in a row, and no Delta table "
                    f"distinguishes that from NULL; write F.nullif({name!r}, F.lit('')) on the way to the key"
                )

    def files_with(self, keys: pa.Table) -> list[LiveFile]:
        """The files of that version that hold a row with one of the keys, see `live_files.files_with`.

        From here on the commit conflicts with every other change of the table's rows.
        """
        self._transaction.reads_all()
        return files_with(self._path, self.version, keys)

    def all_files(self) -> list[LiveFile]:
        """The files of that version.

        From here on the commit conflicts with every other change of the table's rows.
        """
        self._transaction.reads_all()
        return all_files(self._path, self.version)

    def read(self, files: Sequence[LiveFile]) -> DataFrame:
        """The rows of data files of the table."""
        return read_files(self._spark, self._schema, [data_file(self._path, file.name) for file in files])

    def partition_by(self, columns: Sequence[str], schema: T.StructType) -> None:
        """Gives the table other partitions, and columns with these, from the commit on; to be called before `write`.

        The commit has to replace all files.
        """
        known = {field.name: field for field in self._schema.fields}  # with their comments
        self._schema = T.StructType([known.get(field.name, field) for field in schema.fields])
        self._transaction.set_columns(self._schema.json(), columns)

    def write(self, df: DataFrame) -> WrittenFiles:
        """Writes the rows into files of the table, with its columns, order and types; commits nothing.

        A column of the table that the rows do not have is not in the files either, where every reader finds it NULL.
        Where the table keeps an order (`cluster_by`), the rows of each file are in it.
        """
        if _columns(df.schema) != _columns(self._schema):  # nine calls to the JVM for each column
            names = set(df.columns)
            fields = [f for f in self._schema.fields if f.name in names]
            df = df.select(*[col(f.name).cast(f.dataType).alias(f.name) for f in fields])
        order = self._transaction.properties.get(CLUSTERED_BY)
        if order:
            # Delta sorts by partition, unless the rows are in that order already.
            ordered = [n for n in (*self.partition_columns, *order.split(",")) if n in df.columns]
            df = df.sortWithinPartitions(*cols(ordered)) if ordered else df
        with self._without_statistics():
            added = self._transaction.write(df)
        files, rows = list[Action](), 0
        for action in map(self._with_statistics, added):
            row_count = json.loads(action["add"]["stats"])["numRecords"]
            if row_count:  # Spark writes a file for no rows, too
                files.append(action)
                rows += row_count
        return WrittenFiles(files, rows)

    @contextmanager
    def _without_statistics(self) -> Iterator[None]:
        """Makes Delta leave out the statistics of the files that it writes, see `file_statistics`.

        Several queries of a session may write at once: the first to begin changes the setting, and the last to end
        restores it.
        """
        conf = self._spark.conf
        with _WRITING_LOCK:
            writers, before = _WRITING.get(self._spark, (0, ""))
            if not writers:
                before = str(conf.get(_COLLECT, "true"))
                conf.set(_COLLECT, "false")
            _WRITING[self._spark] = writers + 1, before
        try:
            yield
        finally:
            with _WRITING_LOCK:
                writers, before = _WRITING[self._spark]
                _WRITING[self._spark] = writers - 1, before
                if writers == 1:
                    conf.set(_COLLECT, before)

    def _with_statistics(self, action: Action) -> Action:
        add = action["add"]
        if add.get("stats"):  # another thread's write had just restored the setting
            return action
        return {"add": {**add, "stats": statistics_of(data_file(self._path, add["path"]))}}

    def commit_same(self, files: WrittenFiles, replaced: Sequence[LiveFile], what: str) -> int:
        """Commits files that have the very rows of others, as one version that changes no row, and returns it.

        Args:
            files: What `write` wrote.
            replaced: The others.
            what: What was done, for Delta's history.

        Raises:
            DataLossError: The rows are not as many; nothing is committed.
        """
        expected = sum(file.rows for file in replaced)
        if files.rows != expected:
            raise DataLossError(
                f"{self._path}: {files.rows} rows written anew where there are {expected}; nothing was committed"
            )
        actions = [remove_action(file, data_change=False) for file in replaced]
        actions += [{"add": {**action["add"], "dataChange": False}} for action in files.actions]
        return self._transaction.commit_replacement(actions, what, "")

    def commit(
        self,
        app_id: str,
        batch: int,
        user_metadata: str,
        files: WrittenFiles | None = None,
        *,
        removed: Sequence[LiveFile] = (),
        marks: Mapping[str, int] | None = None,
    ) -> int:
        """Commits the files, the mark `(app_id, batch)` and the metadata as one version, and returns it.

        Args:
            app_id: The mark's application id.
            batch: The mark's version.
            user_metadata: The ledger entry.
            files: What `write` wrote.
            removed: Files that these replace.
            marks: Further marks, by their application ids.
        """
        actions = [
            mark_action(app_id, batch),
            *[mark_action(*mark) for mark in (marks or {}).items()],
            *map(remove_action, removed),
            *(files.actions if files else ()),
        ]
        return self._transaction.commit_batch(actions, app_id, batch, user_metadata, updates=bool(removed))


def remove_action(file: LiveFile, *, data_change: bool = True) -> Action:
    """The action that removes a file from a table; the data does not change where its rows come in other files."""
    return {
        "remove": {
            "path": file.name,
            "deletionTimestamp": int(time.time() * 1000),
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "partitionValues": dict(file.values),
            "size": file.size_bytes,
            "stats": json.dumps({"numRecords": file.rows}),
        }
    }


def mark_action(app_id: str, mark: int) -> Action:
    """The action that sets a transaction mark."""
    return {"txn": {"appId": app_id, "version": mark, "lastUpdated": int(time.time() * 1000)}}


def _columns(schema: T.StructType) -> list[tuple[str, str]]:
    return [(f.name, f.dataType.simpleString()) for f in schema.fields]


def conflicts() -> tuple[type[Exception], ...]:
    """The exceptions of Delta when another commit came first; in Python they have no common base class."""
    return (
        exceptions.DeltaConcurrentModificationException,
        exceptions.ConcurrentAppendException,
        exceptions.ConcurrentDeleteDeleteException,
        exceptions.ConcurrentDeleteReadException,
        exceptions.ConcurrentTransactionException,
        exceptions.ConcurrentWriteException,
        exceptions.MetadataChangedException,
    )


def read_files(spark: SparkSession, schema: T.StructType, files: Sequence[Path]) -> DataFrame:
    """The rows of data files of a table, with its columns; the files may be of any version with the same partitions.

    A file lacks the columns of its partition: Spark takes their values from the names of its folders.
    """
    if not files:
        return spark.createDataFrame([], schema)
    reader, folder = spark.read.schema(schema), _folder_of(files[0])
    if folder != files[0].parent:
        reader = reader.option("basePath", str(folder))
    rows = reader.parquet(*map(str, files))
    if folder != files[0].parent:
        rows = rows.select(*cols(schema.fieldNames()))  # Spark puts the partition columns last
    # One task's rows are grouped and joined without an exchange, which costs more than a second task saves.
    return rows.coalesce(1) if _are_small(files) else rows


def _folder_of(file: Path) -> Path:
    """The folder of the table that a data file is of: above those of its partition, `day=2013-01-01/carrier=AA`."""
    folder = file.parent
    while "=" in folder.name:
        folder = folder.parent
    return folder


def _are_small(files: Sequence[Path]) -> bool:
    try:
        return sum(map(size_of, files)) <= _FEW_BYTES
    except OSError:
        return False  # Spark will raise the error


def read_version(spark: SparkSession, path: Path, version: int) -> DataFrame:
    """A table as it was at a version."""
    return spark.read.format("delta").option("versionAsOf", version).load(str(path))
