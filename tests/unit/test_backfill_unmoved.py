"""Whether a table was left alone since a version that its log does not have any more."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headwater_streams.backfill.repair.unmoved import is_unmoved
from headwater_streams.backfill.store import BackfillError

UNASKED: Any = None
"""Nothing is read of the table's rows here, so no session is needed."""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    table = tmp_path / "gold" / "delays"
    for number in range(4):
        write_deltalake(str(table), pa.table({"n": [number]}), mode="append")
    DeltaTable(str(table)).create_checkpoint()
    return table


def test_unmoved_where_nothing_came_since(table: Path) -> None:
    assert is_unmoved(UNASKED, table, UNASKED, 3, 3)


def test_unmoved_is_not_told_of_commits_whose_log_is_gone(table: Path) -> None:
    for version in range(3):
        (table / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(
        BackfillError, match=r"gold.delays begins at version 3 .* version 1 still; plan again"
    ):
        is_unmoved(UNASKED, table, UNASKED, 1, 3)
    assert is_unmoved(UNASKED, table, UNASKED, 3, 3)
