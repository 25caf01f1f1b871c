"""The last batch of an application id, told from the commits since the last look."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from headwater_streams.sinks.marks import Marks


def _commit(table: Path, app_id: str | None, batch: int = 0) -> None:
    marked = CommitProperties(app_transactions=[Transaction(app_id, batch)]) if app_id else None
    write_deltalake(str(table), pa.table({"a": [1]}), mode="append", commit_properties=marked)


def _no_state() -> int:
    raise AssertionError("Delta was asked for its state")


def test_marks_first_look_asks_delta(tmp_path: Path) -> None:
    _commit(tmp_path / "t", "job/1", 4)
    assert Marks().last_batch(tmp_path / "t", "job/1", 0, lambda: 4) == 4


def test_marks_commits_since_are_read_from_the_log(tmp_path: Path) -> None:
    table, marks = tmp_path / "t", Marks()
    _commit(table, None)
    assert marks.last_batch(table, "job/1", 0, lambda: -1) == -1
    _commit(table, "job/1", 0)
    _commit(table, "job/2", 9)
    _commit(table, None)
    assert marks.last_batch(table, "job/1", 3, _no_state) == 0
    _commit(table, "job/1", 1)
    assert marks.last_batch(table, "job/1", 4, _no_state) == 1


def test_marks_another_driver_s_commit_is_seen(tmp_path: Path) -> None:
    table, mine, other = tmp_path / "t", Marks(), Marks()
    _commit(table, None)
    for marks in (mine, other):
        marks.last_batch(table, "job/1", 0, lambda: -1)
    _commit(table, "job/1", 0)
    assert mine.last_batch(table, "job/1", 1, _no_state) == 0
    assert other.last_batch(table, "job/1", 1, _no_state) == 0


@pytest.mark.parametrize("version", [0, 2])
def test_marks_log_that_does_not_tell_asks_delta_again(tmp_path: Path, version: int) -> None:
    table, marks = tmp_path / "t", Marks()
    _commit(table, "job/1", 0)
    _commit(table, "job/1", 1)
    marks.last_batch(table, "job/1", 1, lambda: 1)
    _commit(table, "job/1", 2)
    (table / "_delta_log" / f"{2:020d}.json").unlink()
    assert marks.last_batch(table, "job/1", version, lambda: 7) == 7
