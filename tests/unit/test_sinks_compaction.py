"""Small files made one: what a reader may pass over by its statistics and dictionaries is what it has not."""

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from headwater_streams.delta.compaction import compact
from headwater_streams.storage.delta_rows import dataset_of

BOTH, NO_DICTIONARY, NO_STATISTICS, NEITHER = (True, True), (False, True), (True, False), (False, False)
"""Whether a column of the file has a dictionary, and bounds in the log."""


def compacted(table: Path, *files: pa.Table) -> dict[str, tuple[bool, bool]]:
    """What the one file of some has of each column, by its path."""
    for rows in files:
        write_deltalake(str(table), rows, mode="append", schema_mode="merge")
    before = dataset_of(table).to_table().sort_by("n")
    assert compact(table) == len(files)
    assert str(dataset_of(table).to_table().sort_by("n").to_pylist()) == str(before.to_pylist()), (
        "no row is changed"
    )
    opened = DeltaTable(str(table))
    (added,) = pa.table(opened.get_add_actions(flatten=True)).to_pylist()
    (uri,) = opened.file_uris()
    group = pq.read_metadata(uri).row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    return {
        column.path_in_schema: (
            "RLE_DICTIONARY" in column.encodings,
            added.get(f"min.{column.path_in_schema}") is not None and column.statistics is not None,
        )
        for column in columns
    }


def rows(values: list[Any], kind: pa.DataType, n: int = 0) -> pa.Table:
    return pa.table({"n": pa.array(range(n, n + len(values))), "x": pa.array(values, kind)})


@pytest.mark.parametrize(
    ("kind", "first", "second", "has"),
    [
        (pa.float64(), [1.0], [math.nan], NEITHER),
        (pa.float64(), [1.0], [math.inf], NEITHER),
        (pa.float64(), [1.0], [-0.0], NO_DICTIONARY),
        (pa.float32(), [1.0], [-1.0, 0.5], NO_DICTIONARY),
        (pa.float64(), [-1.0], [1.0], BOTH),
        (pa.float64(), [1.0], [None], BOTH),
        (pa.decimal128(15, 2), [Decimal("1.25")], [Decimal("-1.25")], BOTH),
        (pa.decimal128(16, 2), [Decimal("1.25")], [Decimal("-1.25")], NO_STATISTICS),
        (pa.string(), ["a"], ["b"], BOTH),
        (pa.int64(), [0], [1], BOTH),
    ],
    ids=str,
)
def test_compaction_writes_a_column_without_what_would_hide_its_rows(
    tmp_path: Path, kind: pa.DataType, first: list[Any], second: list[Any], has: tuple[bool, bool]
) -> None:
    found = compacted(tmp_path / "t", rows(first, kind), rows(second, kind, n=1))
    assert found == {"n": BOTH, "x": has}


def test_compaction_of_a_column_that_came_later_does_not_trust_bounds(tmp_path: Path) -> None:
    older = pa.table({"n": [0]})
    assert compacted(tmp_path / "t", older, rows([1.0], pa.float64(), n=1)) == {"n": BOTH, "x": NEITHER}


def test_compaction_of_fields_of_structs_leaves_other_columns_as_they_are(tmp_path: Path) -> None:
    def nested(n: int, value: float) -> pa.Table:
        return pa.table({"n": [n], "a.b": [1.5], "s": [{"x": value, "inner": {"y": 1.0}}]})

    found = compacted(tmp_path / "nan", nested(0, 1.0), nested(1, math.nan))
    assert found == {"n": BOTH, "a.b": BOTH, "s.x": NEITHER, "s.inner.y": NEITHER}
    found = compacted(tmp_path / "well", nested(0, 1.0), nested(1, 2.0))
    assert found == {"n": BOTH, "a.b": BOTH, "s.x": BOTH, "s.inner.y": BOTH}
