"""What a running job's checks compare a batch with: what they measured before, rows that were written, other tables."""

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from headwater_streams.base.check import Check
from headwater_streams.base.rule import MeasuredRule, Past
from headwater_streams.plan.job import Job
from headwater_streams.quality.check_result import CheckResult
from headwater_streams.quality.results import past_of
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.delta_rows import data_files, dataset_of
from headwater_streams.storage.home import Home

_NULL = "__HIVE_DEFAULT_PARTITION__"


class CheckMemory:
    """What the rules of a job measured, of as many batches as they look at; read once, and then kept up to date."""

    def __init__(self, home: Home, job: Job) -> None:
        self._home, self._job = home, job
        self._past: dict[str, deque[Past]] = {}

    def before(self, check: Check, count: int) -> Sequence[Past]:
        """What a check measured of so many earlier batches, oldest first."""
        if check.name not in self._past:
            past = past_of(self._home, self._job.name, check.name, count)
            self._past[check.name] = deque(past, maxlen=count)
        return tuple(self._past[check.name])

    def add(self, at_ms: int, results: Sequence[CheckResult]) -> None:
        """Remembers what was measured of a batch that is committed."""
        for check in self._job.checks:
            if isinstance(check.rule, MeasuredRule) and check.name in self._past:
                for each in results:
                    if each.check == check.name:
                        self._past[check.name].append(Past(at_ms, each.values))


def memory_of(home: Home, job: Job) -> Callable[[Check, int], Sequence[Past]]:
    """What gives the measurements of earlier batches, for a stage that asks for them batch by batch."""
    return CheckMemory(home, job).before


def columns_of_files(folder: Path, files: Sequence[str], columns: Sequence[str]) -> pa.Table:
    """Columns of the rows in some data files of a table, which need not be committed.

    Args:
        folder: The table's folder.
        files: Their paths in it.
        columns: The columns.
    """
    types = dataset_of(folder).schema
    schema = pa.schema([types.field(name) for name in columns])
    if not files:
        return schema.empty_table()
    partitions = [_partition_of(name) for name in files]
    stored = pa.schema([field for field in schema if field.name not in partitions[0]])
    if len(stored) == len(schema):
        return data_files([folder / name for name in files], schema).to_table()
    tables = []
    for name, values in zip(files, partitions, strict=True):
        # A file of a partition lacks the partition's columns; their values are in its folders' names.
        rows = data_files([folder / name], stored).to_table()
        for field in schema:
            if field.name in values:
                value = pa.repeat(pa.scalar(values[field.name], pa.string()), rows.num_rows)
                rows = rows.append_column(field.name, value.cast(field.type))
        tables.append(rows.select(schema.names))
    return pa.concat_tables(tables)


def _partition_of(file: str) -> dict[str, str | None]:
    """The partition columns' values that a data file's path says: `day=2013-01-01/part-0.parquet`."""
    parts = (part.partition("=") for part in file.split("/")[:-1])
    return {unquote(name): None if value == _NULL else unquote(value) for name, _, value in parts}


def columns_of_table(home: Home, table: str, columns: Sequence[str]) -> pa.Table | None:
    """Columns of a table's rows as they are now; None where there is no such table."""
    path = home.table(table)
    return dataset_of(path).to_table(columns=list(columns)) if has_versions(path) else None
