"""The data files of a table at a version, read from its log alone, and which of them hold certain keys.

Delta's own answer rebuilds the table's state with Spark jobs; deltalake reads the log in milliseconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from headwater_streams.delta.comparable import comparable
from headwater_streams.storage.delta_files import data_file, opened_table, reading
from headwater_streams.storage.delta_rows import data_files

_PARTITION = "partition"
"""deltalake's name for a file's values of the partition columns."""
Values = tuple[tuple[str, str | None], ...]
"""A file's values of the partition columns, as Delta's log has them: `(("day", "2013-01-01"),)`."""
_STATISTICS_STEP_US = 1000  # Delta cuts the times of its statistics to milliseconds


@dataclass(frozen=True)
class LiveFile:
    """A data file.

    Attributes:
        name: Its path in the table's folder, as the log has it, see `data_file`.
        size_bytes: Its size.
        rows: The number of its rows.
        values: The values of the partition columns, which all of its rows have and no data file stores.
    """

    name: str
    size_bytes: int
    rows: int
    values: Values = ()


def all_files(table: Path, version: int) -> list[LiveFile]:
    """The data files of a table at a version."""
    return _files_of(_actions(opened_table(table, version)))


def _files_of(actions: pa.Table) -> list[LiveFile]:
    files = zip(
        *(actions[name].to_pylist() for name in ("path", "size_bytes", "num_records")),
        actions[_PARTITION].to_pylist() if _PARTITION in actions.column_names else [None] * actions.num_rows,
        strict=True,
    )
    return [LiveFile(path, size, rows, _values(values)) for path, size, rows, values in files]


def _values(values: dict[str, Any] | None) -> Values:
    return tuple((name, in_log(value)) for name, value in (values or {}).items())


def in_log(value: Any) -> str | None:
    """A value of a partition column as Delta's log has it.

    Example:
        >>> in_log(date(2013, 1, 1)), in_log(True), in_log(7), in_log(None)
        ('2013-01-01', 'true', '7', None)
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, date) else str(value)


def files_with_bounds(table: Path, version: int, column: str) -> list[tuple[LiveFile, Any, Any]]:
    """The data files of a table at a version, each with its least and greatest value of a column; None and None where
    its statistics do not say."""
    actions = _actions(opened_table(table, version))
    nothing = [None] * actions.num_rows
    lower, upper = _statistic(actions, "min", column), _statistic(actions, "max", column)
    bounds = (nothing if each is None else each.to_pylist() for each in (lower, upper))
    return [(file, *pair) for file, *pair in zip(_files_of(actions), *bounds, strict=True)]


def files_with(table: Path, version: int, keys: pa.Table) -> list[LiveFile]:
    """The files that hold a row with one of the keys.

    Args:
        table: The table's folder.
        version: The version.
        keys: The keys, a column for each part, of the table's types or narrower ones. NULL equals NULL, and numbers
            compare as in Spark, see `comparable`.
    """
    opened = opened_table(table, version)
    keys = keys.cast(_as_in_table(keys.schema, pa.schema(opened.schema().to_arrow())))
    actions = _actions(opened)
    near = pc.and_(pa.scalar(True), pa.array([True] * actions.num_rows, pa.bool_()))
    for name in keys.column_names:
        near = pc.and_(near, _may_hold(actions, name, keys[name]))
    comparable_keys, files = comparable(keys), []
    for file in _files_of(actions.filter(near)):
        of_partition = _in_partition(comparable_keys, file.values)
        with reading(table):
            if of_partition.num_rows and _holds(data_file(table, file.name), keys.schema, of_partition):
                files.append(file)
    return files


def _in_partition(keys: pa.Table, values: Values) -> pa.Table:
    """The keys that a file may hold, by its values of the partition columns, without the columns of these."""
    for name, value in values:
        if name in keys.column_names:
            column = keys[name]
            same = (
                pc.is_null(column) if value is None else pc.equal(column, pa.scalar(value).cast(column.type))
            )
            keys = keys.filter(same).drop_columns([name])
    return keys


def files_between(table: Path, version: int, column: str, start_us: int | None, end_us: int) -> list[str]:
    """The names of the files that may hold a row whose time is in `[start_us, end_us)`.

    Args:
        table: The table's folder.
        version: The version.
        column: The column of times.
        start_us: The first microsecond since the epoch; None for all that is before `end_us`.
        end_us: One past the last.
    """
    if version < 0:
        return []
    actions = _actions(opened_table(table, version))
    start, end = (
        None if at is None else pa.scalar(at, pa.timestamp("us", "UTC")) for at in (start_us, end_us)
    )
    near: list[str] = actions["path"].filter(_reaches_into(actions, column, start, end)).to_pylist()
    return near


def _actions(opened: DeltaTable) -> pa.Table:
    """The files with their statistics, one struct for each kind: flattened names, which have dots, would not
    distinguish the column `Product.Id` from a field of a column."""
    return pa.table(opened.get_add_actions(flatten=False))


def _statistic(actions: pa.Table, kind: str, column: str) -> Any:
    """A column's statistic of each file; None where no file has one. Of a partition column it is the file's value."""
    kind = _PARTITION if _of_partition(actions, column) else kind
    struct_type = actions.schema.field(kind).type if kind in actions.column_names else None
    place = struct_type.get_field_index(column) if isinstance(struct_type, pa.StructType) else -1
    return None if place < 0 else pc.struct_field(actions[kind], [place])


def _of_partition(actions: pa.Table, column: str) -> bool:
    struct_type = actions.schema.field(_PARTITION).type if _PARTITION in actions.column_names else None
    return isinstance(struct_type, pa.StructType) and struct_type.get_field_index(column) >= 0


def _may_hold(actions: pa.Table, name: str, values: pa.ChunkedArray) -> Any:
    """The files whose statistics allow one of `values`; all files where the statistics say nothing."""
    everywhere = pa.array([True] * actions.num_rows, pa.bool_())
    bounded = pa.types.is_integer(values.type) or pa.types.is_temporal(values.type)
    lower, upper = _statistic(actions, "min", name), _statistic(actions, "max", name)
    if not bounded or values.null_count or not len(values) or lower is None or upper is None:
        return everywhere
    kind, wanted = values.type, np.unique(_numbers(values))
    least, greatest = (_numbers(pc.cast(each, kind)) for each in (lower, upper))
    greatest = greatest + (_STATISTICS_STEP_US if pa.types.is_timestamp(kind) else 0)
    # Keys of two days are in none of the days between: of each file the first key that is not below it decides.
    places = np.searchsorted(wanted, least)
    inside = (places < len(wanted)) & (wanted[np.minimum(places, len(wanted) - 1)] <= greatest)
    return pc.or_(pa.array(inside), pc.or_(pc.is_null(lower), pc.is_null(upper)))


def _numbers(values: Any) -> Any:
    """Whole numbers or times as 64-bit numbers in their unit; 0 for NULL."""
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return np.asarray(values.cast(pa.int64()).fill_null(0))


def _reaches_into(actions: pa.Table, name: str, least: pa.Scalar | None, greatest: pa.Scalar) -> Any:
    """The files whose statistics allow a value from `least`, if there is one, to `greatest`."""
    near = pa.array([True] * actions.num_rows, pa.bool_())
    lower, upper = _statistic(actions, "min", name), _statistic(actions, "max", name)
    if lower is None or upper is None:
        return near
    kind = greatest.type
    if least is not None:
        if pa.types.is_timestamp(kind):
            least = pa.scalar(least.value - _STATISTICS_STEP_US, kind)
        near = pc.greater_equal(pc.cast(upper, kind), least)
    near = pc.and_(near, pc.less_equal(pc.cast(lower, kind), greatest))
    return pc.fill_null(near, True)


def _as_in_table(keys: pa.Schema, columns: pa.Schema) -> pa.Schema:
    """The keys' columns with the table's types, as in its files: a job's types may be narrower."""
    kinds = {field.name: field.type for field in columns}
    return pa.schema([field.with_type(kinds.get(field.name, field.type)) for field in keys])


def _holds(file: Path, kinds: pa.Schema, keys: pa.Table) -> bool:
    """Whether a file has a row with one of the keys, which are comparable.

    Args:
        file: The file.
        kinds: The keys' columns, with the types that they have in the table.
        keys: The keys.
    """
    names = keys.column_names
    if not names:  # the partition's values are the whole key
        return True
    rows = data_files([file])
    columns = set(rows.schema.names)
    if not columns.issuperset(names):
        return bool(any(keys[name].null_count for name in names))  # a column that was added later
    candidates = comparable(rows.to_table(names).cast(pa.schema([kinds.field(name) for name in names])))
    # The remaining rows have a part of some key in each column; they are few where the keys are few.
    for name in names:
        candidates = candidates.filter(pc.is_in(candidates[name], value_set=keys[name].combine_chunks()))
    return bool(candidates.num_rows) and not _rows(candidates, names).isdisjoint(_rows(keys, names))


def _rows(table: pa.Table, names: Sequence[str]) -> set[tuple[Any, ...]]:
    distinct = table.group_by(list(names)).aggregate([])
    columns = [distinct[name] for name in names]
    # Times as numbers: as Python objects they take ten times as long.
    plain = [pc.cast(c, pa.int64()) if pa.types.is_timestamp(c.type) else c for c in columns]
    return set(zip(*[column.to_pylist() for column in plain], strict=True))
