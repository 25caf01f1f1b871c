"""Profiles a table's columns for `quality.suggest`, with Arrow; no Spark is started."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater_streams.base.names import is_reserved
from headwater_streams.quality.suggest import MOST_ROWS, ColumnProfile
from headwater_streams.storage.delta_files import opened_table, reading
from headwater_streams.storage.delta_rows import dataset_of

_FEW = 20


def profiled(table: Path) -> tuple[int, int, list[ColumnProfile]]:
    """A table's newest version, how many of its rows were looked at, and the profiles of its own columns."""
    opened = opened_table(table)
    with reading(table):
        dataset = dataset_of(table, opened)
        names = [name for name in dataset.schema.names if not is_reserved(name)]
        rows = dataset.head(MOST_ROWS, columns=names)
    return opened.version(), rows.num_rows, [profile_of(name, rows[name]) for name in names]


def profile_of(name: str, values: pa.ChunkedArray) -> ColumnProfile:
    """The profile of a column's values."""
    kind, nulls = _kind_of(values.type), values.null_count
    rows = len(values)
    if kind == "other" or nulls == rows:
        return ColumnProfile(name=name, kind=kind, rows=rows, nulls=nulls)
    filled = values.drop_null()
    distinct = filled.unique()
    if pa.types.is_floating(values.type) and not pc.all(pc.is_finite(filled)).as_py():
        # Between what bounds, and in what set, a NaN or an infinity is, Python has no plain word for.
        return ColumnProfile(name=name, kind=kind, rows=rows, nulls=nulls, distinct=len(distinct))
    measured = pc.utf8_length(filled) if kind == "text" else filled
    bounds: dict[str, Any] = pc.min_max(measured).as_py()
    few = sorted(distinct.to_pylist()) if len(distinct) <= _FEW else []
    return ColumnProfile(
        name=name,
        kind=kind,
        rows=rows,
        nulls=nulls,
        distinct=len(distinct),
        least=bounds["min"],
        most=bounds["max"],
        values=few,
    )


def _kind_of(kind: pa.DataType) -> str:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return "number"
    return "time" if pa.types.is_temporal(kind) and not pa.types.is_duration(kind) else "other"
