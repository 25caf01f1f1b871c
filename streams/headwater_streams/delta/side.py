"""Side tables: `<table>__late` and `<table>__quarantine`, committed before the main table, each batch once."""

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.errors import DataLossError
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.base.names import RECORD_COLUMNS
from headwater_streams.delta.delta_table import DeltaTransaction, WrittenFiles
from headwater_streams.sources.coordinates import (
    COMMIT_FIELDS,
    INPUT,
    ROW_COLUMNS,
    ROW_FIELDS,
    commit_columns,
)
from headwater_streams.sources.decode import HEADERS, HEADERS_TYPE, KEY, RAW
from headwater_streams.sources.problems import PROBLEMS

_KEY, _HEADERS = RECORD_COLUMNS
MISSED = "_missed"
MISSED_TYPE = T.ArrayType(
    T.StructType([T.StructField("start", T.TimestampType()), T.StructField("end", T.TimestampType())])
)
"""The windows that lack a late row, where a row is in several."""


def quarantine_schema() -> T.StructType:
    """Every reason, the checks, the raw bytes, headers and coordinates of a rejected record."""
    return T.StructType(
        [
            T.StructField("_reason", T.StringType()),
            T.StructField("_check", T.StringType()),
            T.StructField(_KEY, T.BinaryType()),
            T.StructField(RAW, T.BinaryType()),
            T.StructField(_HEADERS, HEADERS_TYPE),
            *ROW_FIELDS,
            *COMMIT_FIELDS,
        ]
    )


def late_schema(inputs: Mapping[str, T.StructType], *, overlapping: bool = False) -> T.StructType:
    """The inputs' columns side by side, the input that the row is of, and its coordinates.

    A column that two inputs have with two types is a string. Where windows overlap, `_missed` has the windows that lack
    the row.
    """
    columns: dict[str, T.DataType] = {}
    for schema in inputs.values():
        for f in schema.fields:
            columns[f.name] = f.dataType if columns.get(f.name, f.dataType) == f.dataType else T.StringType()
    fields = [T.StructField(name, kind) for name, kind in columns.items()]
    more = [T.StructField(MISSED, MISSED_TYPE)] if overlapping else []
    return T.StructType([*fields, T.StructField(INPUT, T.StringType()), *more, *ROW_FIELDS, *COMMIT_FIELDS])


def quarantine_rows(bad: DataFrame, batch: int, generation: int) -> DataFrame:
    """Rejected rows with their problems, as the quarantine table holds them."""
    return bad.select(
        F.array_join(F.col(f"{PROBLEMS}.reason"), "; ").alias("_reason"),
        F.array_join(F.col(f"{PROBLEMS}.check"), ", ").alias("_check"),
        F.col(KEY).alias(_KEY),
        RAW,
        F.col(HEADERS).alias(_HEADERS),
        *ROW_COLUMNS,
    ).withColumns(commit_columns(batch, generation))


def write_side(
    transaction: DeltaTransaction,
    rows: DataFrame,
    app_id: str,
    entry: LedgerEntry,
    expected: int,
    judge: Callable[[WrittenFiles], None] | None = None,
) -> None:
    """Commits a batch's side rows by a new transaction, unless an earlier try of the same batch did.

    Args:
        transaction: The transaction.
        rows: The rows.
        app_id: The application id of the batch.
        entry: The ledger entry.
        expected: How many rows the pass over the batch counted.
        judge: Is called with the files before they are committed; what it raises leaves them uncommitted.

    Raises:
        DataLossError: The number of written rows differs from the count of the pass over the batch.
    """
    if transaction.last_batch(app_id) >= entry.batch:
        return
    files = transaction.write(rows)
    if files.rows != expected:
        raise DataLossError(
            f"{entry.table}, batch {entry.batch}: {files.rows} rows to write where the batch counted {expected}; "
            "nothing was committed, and the job can be started again"
        )
    if judge is not None:
        judge(files)
    transaction.commit(app_id, entry.batch, entry.to_json(), files)
