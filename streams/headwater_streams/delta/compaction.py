"""Makes one file of a Delta table's small files, so that readers find the same rows in it.

deltalake writes the file, and would write statistics and dictionaries that hide some rows from other readers:

- Its statistics ignore NaN, which to Spark is the greatest number: `x > 5` would skip a file with 1 and NaN.
- Parquet's reader in Java, Spark's, looks for 0.0 in a dictionary by its bits: `x = 0` would skip a file of -0.0.
- The bounds of a DECIMAL are doubles; with more than 15 digits they may be on the wrong side of the value.

So a column of fractions is written without statistics where one of the small files has no statistics of it (Spark and
`file_statistics` write none for a column with a NaN), and without a dictionary where its bounds enclose 0. A wide
DECIMAL is written without statistics.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import ColumnProperties, DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError

from headwater_streams.storage.delta_files import opened_table
from headwater_streams.storage.delta_rows import is_wide_decimal

_PLAIN = ColumnProperties(dictionary_enabled=True, statistics_enabled="PAGE")
"""deltalake's defaults."""


def compact(table: Path, most_bytes: int | None = None) -> int:
    """Makes one file of many small ones, as a commit that changes no row; returns how many files it replaced.

    Where another commit has changed the same files, nothing is done until the next call.

    Args:
        table: The table's folder.
        most_bytes: How long a file may become; by default what the table's properties say, or Delta's 100 MB. A file
            that is shorter is written again with each call that finds new ones.
    """
    opened = opened_table(table)
    try:
        done = opened.optimize.compact(
            _without_tildes(opened), target_size=most_bytes, writer_properties=_written_as(opened)
        )
    except CommitFailedError:
        return 0
    return int(done["numFilesRemoved"])


def _without_tildes(opened: DeltaTable) -> list[tuple[str, str, list[str]]] | None:
    """All partitions but those with a tilde in their names, whose files deltalake 1.6.6 does not find; None for all."""
    columns = opened.metadata().partition_columns
    if not columns:
        return None
    actions = pa.table(opened.get_add_actions(flatten=False)).column("partition").combine_chunks()
    filters = []
    for name in columns:
        values = actions.field(name)
        tildes = [value for value in pc.unique(values).to_pylist() if isinstance(value, str) and "~" in value]
        if tildes:
            filters.append((name, "not in", tildes))
    return filters or None


def _written_as(opened: DeltaTable) -> WriterProperties | None:
    schema = pa.schema(opened.schema().to_arrow())
    bounds = _Bounds(pa.table(opened.get_add_actions(flatten=True)))
    properties = {path: bounds.written_as(".".join(path), kind) for path, kind in _leaves(schema)}
    # deltalake accepts no path of a field as a name: where a field needs it, all fields of structs are written plainly.
    inner = [each for path, each in properties.items() if len(path) > 1 and each is not None]
    named = {path[0]: each for path, each in properties.items() if len(path) == 1 and each is not None}
    if not inner:
        return WriterProperties(column_properties=named) if named else None
    others = {field.name: _PLAIN for field in schema if not pa.types.is_struct(field.type)}
    plainest = ColumnProperties(dictionary_enabled=False, statistics_enabled="NONE")
    return WriterProperties(default_column_properties=plainest, column_properties=others | named)


def _leaves(
    fields: pa.Schema | pa.StructType, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    """The columns that have bounds, also those within structs; the values of lists and maps have none."""
    for field in fields:
        path = (*above, field.name)
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, path)
        elif not pa.types.is_nested(field.type):
            yield path, field.type


class _Bounds:
    """The statistics of a table's files in its log."""

    def __init__(self, actions: pa.Table) -> None:
        self._actions = actions
        self._rows = self._of("num_records", pa.int64())

    def written_as(self, name: str, kind: pa.DataType) -> ColumnProperties | None:
        """How a column must be written; None where deltalake's defaults do."""
        if is_wide_decimal(kind):
            return ColumnProperties(dictionary_enabled=True, statistics_enabled="NONE")
        if not pa.types.is_floating(kind):
            return None
        least, greatest = (self._of(f"{of}.{name}", pa.float64()) for of in ("min", "max"))
        has_none = pc.fill_null(pc.equal(self._of(f"null_count.{name}", pa.int64()), self._rows), False)
        has_bounds = pc.or_(has_none, pc.and_(pc.is_valid(least), pc.is_valid(greatest)))
        if not pc.all(has_bounds, min_count=0).as_py():
            return ColumnProperties(dictionary_enabled=False, statistics_enabled="NONE")
        has_zero = pc.and_(pc.less_equal(least, 0), pc.greater_equal(greatest, 0))
        if pc.any(has_zero, min_count=0).as_py():
            return ColumnProperties(dictionary_enabled=False, statistics_enabled="PAGE")
        return None

    def _of(self, name: str, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
        """A statistic of each file by its name in the log; NULL where the log has none."""
        if name in self._actions.column_names:
            return self._actions[name].cast(kind)
        return pa.nulls(self._actions.num_rows, kind)
