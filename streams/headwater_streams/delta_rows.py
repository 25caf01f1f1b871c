"""A Delta table's rows without Spark."""

from pathlib import Path

import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

MICROSECONDS = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
"""How data files are read: INT96, as Spark writes times by default, is nanoseconds to Arrow, which end in 2262."""


def dataset_of(table: Path) -> ds.Dataset:
    """A table's rows as an Arrow dataset.

    It is read by Arrow's own file system: deltalake's calls back into Python from Arrow's threads, which may still be
    at it when the interpreter ends, and then the process ends by an abort, after its answer.
    """
    files = SubTreeFileSystem(str(table), LocalFileSystem())
    return DeltaTable(str(table)).to_pyarrow_dataset(filesystem=files, parquet_read_options=MICROSECONDS)


def table_id(table: Path) -> str:
    """Delta's id of a table, which tells it from another one of the same name."""
    return str(DeltaTable(str(table)).metadata().id)
