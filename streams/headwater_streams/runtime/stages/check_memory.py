"""What a running job's checks compare a batch with: what they measured before, rows that were written, other tables."""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from deltalake.exceptions import DeltaError

from headwater_streams.base.check import Check
from headwater_streams.base.rule import KeysRule, MeasuredRule, Past
from headwater_streams.delta.live_files import files_with
from headwater_streams.plan.job import Job
from headwater_streams.quality.results import past_of, past_since
from headwater_streams.quality.rule_verdicts import other_keys
from headwater_streams.runtime.context import StageContext
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.delta_files import opened_table
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.delta_rows import columns_called, data_files, dataset_of
from headwater_streams.storage.home import Home

Before = Callable[[Check, int], Sequence[Past]]
"""Gives what a check measured of so many earlier batches, oldest first."""
_log = logging.getLogger(__name__)
_NULL = "__HIVE_DEFAULT_PARTITION__"


class CheckMemory:
    """What the rules of a job measured, of as many batches as they look at: read once for each, and then, once a batch,
    what is new of all."""

    def __init__(self, context: StageContext, job: Job) -> None:
        self._context, self._job = context, job
        self._past: dict[str, _Remembered] = {}
        self._asked: set[str] = set()
        self._until_ms: int | None = None

    @property
    def before(self) -> Before | None:
        """Gives what a check measured of so many earlier batches, oldest first; None in a rebuild."""
        return self._before if self._context.is_live else None

    def _before(self, check: Check, count: int) -> Sequence[Past]:
        try:
            self._read(check, count)
        except (DeltaError, OSError, DamagedFileError, pa.ArrowException) as error:
            # What checks came to is told of batches: it ends none.
            _log.warning(
                "%s: %r has no earlier batches to compare with: %s", self._job.name, check.name, error
            )
        remembered = self._past.get(check.name)
        return () if remembered is None else tuple(remembered.past)

    def _read(self, check: Check, count: int) -> None:
        if check.name in self._asked:  # a second time: of another batch
            self._asked.clear()
            self._read_new()
        elif check.name not in self._past:
            self._read_first(check, count)
        self._asked.add(check.name)

    def _read_first(self, check: Check, count: int) -> None:
        apart_ms = check.rule.apart_ms if isinstance(check.rule, MeasuredRule) else 0
        after_ms = self._context.now_ms() - count * apart_ms if apart_ms else None
        remembered = self._past[check.name] = _Remembered(deque(maxlen=count), apart_ms)
        most = None if apart_ms else count
        self._add(
            remembered, past_of(self._context.home, self._job.name, check.name, most, after_ms=after_ms)
        )

    def _read_new(self) -> None:
        found = past_since(self._context.home, self._job.name, [*self._past], self._until_ms)
        for name, remembered in self._past.items():
            self._add(remembered, found.get(name, ()))

    def _add(self, remembered: "_Remembered", found: Sequence[Past]) -> None:
        for each in found:
            remembered.add(each)
            self._until_ms = max(each.at_ms, self._until_ms or 0)


@dataclass(frozen=True)
class _Remembered:
    """What a check measured, oldest first; as one what is within so many milliseconds."""

    past: deque[Past]
    apart_ms: int

    def add(self, new: Past) -> None:
        """Adds what is newer than all."""
        last = self.past[-1] if self.past else None
        if last is not None and new.at_ms <= last.at_ms:
            return
        if last is not None and self.apart_ms and last.at_ms // self.apart_ms == new.at_ms // self.apart_ms:
            self.past[-1] = _sum(last, new)
        else:
            self.past.append(new)


def _sum(one: Past, other: Past) -> Past:
    names = one.values.keys() | other.values.keys()
    return Past(
        other.at_ms, {name: (one.values.get(name) or 0) + (other.values.get(name) or 0) for name in names}
    )


def columns_of_files(folder: Path, files: Sequence[str], columns: Sequence[str]) -> pa.Table:
    """Columns of the rows in some data files of a table, which need not be committed.

    Args:
        folder: The table's folder.
        files: Their paths in it.
        columns: The columns.
    """
    types = dataset_of(folder).schema
    schema = pa.schema([types.field(name) for name in columns_called(columns, types)])
    return _read(folder, files, schema).rename_columns(list(columns))


def _read(folder: Path, files: Sequence[str], schema: pa.Schema) -> pa.Table:
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


def compared_rows(home: Home, table: str, rule: KeysRule, keys: pa.Table) -> pa.Table | None:
    """The rows that a rule compares keys with; None where it compares them with each other alone, or there are none.

    Of the table that the keys are written to, only files that hold one of them are kept in memory: those whose
    statistics rule that out are not read.

    Args:
        home: The home.
        table: The table that the keys are written to.
        rule: The rule.
        keys: The keys.
    """
    if rule.other is None:
        return None
    path = home.table(rule.other or table)
    if not has_versions(path):
        return None
    if rule.other:
        return other_keys(path, rule)
    names = list(rule.other_columns)
    distinct = keys.select(names).drop_null().group_by(names).aggregate([])
    if not distinct.num_rows:
        return None
    opened = opened_table(path)
    called = columns_called(names, pa.schema(opened.schema().to_arrow()))
    files = files_with(path, opened.version(), distinct.rename_columns(called))
    return columns_of_files(path, [file.name for file in files], names)
