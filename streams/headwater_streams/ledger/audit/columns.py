"""The columns of a table that an audit looks at, read without Spark."""

from collections import Counter
from pathlib import Path

import pyarrow as pa

from headwater_streams.storage.delta_files import reading
from headwater_streams.storage.delta_rows import dataset_of


def columns_of(path: Path, names: list[str]) -> pa.Table:
    """Some columns of all rows of a table."""
    with reading(path):
        return dataset_of(path).to_table(columns=names)


def rows_by_batch(rows: pa.Table) -> Counter[tuple[int | None, int | None]]:
    """How many rows each batch has; a row slipped in may say none."""
    counts = rows.group_by(["_generation", "_batch"]).aggregate([([], "count_all")])
    columns = (counts[name].to_pylist() for name in ("_generation", "_batch", "count_all"))
    return Counter({(generation, batch): count for generation, batch, count in zip(*columns, strict=True)})
