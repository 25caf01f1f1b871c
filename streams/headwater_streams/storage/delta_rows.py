"""Reads and removes rows of a Delta table without Spark.

deltalake's DELETE, UPDATE and MERGE write their files with Arrow's string views in the schema that Parquet carries for
Arrow's readers; daft and pyarrow before 15 cannot open such a file. Its appends, overwrites and compactions write
plain strings, so those are the only ones that the library uses.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from headwater_streams.base.names import folded
from headwater_streams.storage.delta_files import data_paths, opened_table, reading
from headwater_streams.storage.delta_log import has_versions

# INT96, as Spark writes times by default, is nanoseconds to Arrow, which end in 2262.
_MICROSECONDS = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")

_NULL_BOUNDS = "<= null", ">= null"
EXACT_DIGITS = 15
"""A decimal with so many digits is exact in a log's statistics, whose numbers deltalake and others read as doubles."""


def dataset_of(table: Path, at: DeltaTable | None = None, *, dictionaries: Sequence[str] = ()) -> ds.Dataset:
    """A table's rows as an Arrow dataset, of its newest version or the one that is open as `at`.

    Columns of texts in `dictionaries` are read as dictionaries, see `data_files`.

    Arrow's own file system reads it. deltalake's calls back into Python from Arrow's threads; where these still run
    when the interpreter ends, the process aborts after its answer.
    """
    opened = opened_table(table) if at is None else at
    with reading(table):
        return _dataset(table, opened, dictionaries)


def _dataset(table: Path, opened: DeltaTable, dictionaries: Sequence[str]) -> ds.Dataset:
    files = SubTreeFileSystem(str(table), LocalFileSystem())
    columns, partitioned = pa.schema(opened.schema().to_arrow()), opened.metadata().partition_columns
    # The columns by whose statistics a file is skipped.
    exact = pa.schema([f for f in columns if f.name in partitioned or not is_wide_decimal(f.type)])
    try:
        dataset = opened.to_pyarrow_dataset(
            filesystem=files, parquet_read_options=_options(dictionaries), schema=exact
        )
    except BaseException as error:  # a panic in Rust is no Exception
        # deltalake cannot read the statistics of a date outside of the years 1 to 9999; it goes without any then.
        of_statistics = type(error).__name__ == "PanicException" or isinstance(error, ValueError)
        if not of_statistics or partitioned:
            raise
    else:
        # deltalake reads a time past the year 9999 as NULL, and skips a file with one as if it had no other times.
        bounds = [str(each.partition_expression) for each in dataset.get_fragments()]
        misread = any(null in bound for bound in bounds for null in _NULL_BOUNDS)
        if not misread or partitioned:
            read = _with_dictionaries(columns, dictionaries)
            return ds.FileSystemDataset(list(dataset.get_fragments()), read, dataset.format, files)
    return data_files(
        data_paths(table, opened), _with_dictionaries(columns, dictionaries), dictionaries=dictionaries
    )


def _with_dictionaries(columns: pa.Schema, dictionaries: Sequence[str]) -> pa.Schema:
    kind = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([f.with_type(kind) if f.name in dictionaries else f for f in columns])


def _options(dictionaries: Sequence[str]) -> ds.ParquetReadOptions:
    if not dictionaries:
        return _MICROSECONDS
    return ds.ParquetReadOptions(
        dictionary_columns=dictionaries,
        coerce_int96_timestamp_unit=_MICROSECONDS.coerce_int96_timestamp_unit,
    )


def is_wide_decimal(kind: pa.DataType) -> bool:
    """Whether a log's statistics may differ from the values of a column of this type."""
    return isinstance(kind, pa.Decimal128Type) and kind.precision > EXACT_DIGITS


def data_files(
    files: Sequence[Path | str], schema: pa.Schema | None = None, *, dictionaries: Sequence[str] = ()
) -> ds.Dataset:
    """The rows of data files.

    Args:
        files: The files, one at least where no schema is given.
        schema: The columns; the files' own by default.
        dictionaries: Columns of texts that are read as dictionaries. A topic's name stands once in a file: to write it
            out for each row takes three times as long.
    """
    return ds.dataset(list(files), schema, format=ds.ParquetFileFormat(read_options=_options(dictionaries)))


def columns_called(names: Sequence[str], schema: pa.Schema) -> list[str]:
    """The columns of a schema that Spark would take for these names, which may be in other letters' cases."""
    present = {folded(name): name for name in schema.names}
    return [name if name in schema.names else present.get(folded(name), name) for name in names]


def require_table(table: Path, schema: pa.Schema) -> None:
    """Makes a table without rows, unless there is one; another process may make it at the same time."""
    if not has_versions(table):
        with suppress(CommitFailedError):  # the other one was faster
            write_deltalake(str(table), schema.empty_table(), mode="ignore")


def table_id(table: Path) -> str:
    """Delta's id of a table, which distinguishes it from another one of the same name."""
    return str(opened_table(table).metadata().id)


def remove_rows(table: Path, where: pc.Expression, predicate: str) -> None:
    """Removes rows by an overwrite with none; makes no commit where none match.

    Args:
        table: The folder of the table.
        where: Which rows, to Arrow.
        predicate: The same in SQL.

    Raises:
        CommitFailedError: Another commit changed the table meanwhile.
    """
    opened = opened_table(table)
    with reading(table):
        has_some = dataset_of(table, opened).count_rows(filter=where) > 0
    if has_some:
        nothing = pa.schema(opened.schema().to_arrow()).empty_table()
        write_deltalake(opened, nothing, mode="overwrite", predicate=predicate)
