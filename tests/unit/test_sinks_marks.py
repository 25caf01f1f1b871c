"""The last batch of an application id, told from the commits since the last look."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from headwater_streams.delta import marks
from headwater_streams.delta.marks import Marks


def _commit(table: Path, app_id: str | None, batch: int = 0) -> None:
    marked = CommitProperties(app_transactions=[Transaction(app_id, batch)]) if app_id else None
    write_deltalake(str(table), pa.table({"a": [1]}), mode="append", commit_properties=marked)


@pytest.fixture
def log_alone(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on, a look at the table's state fails the test."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the table's state was asked for")

    return lambda: monkeypatch.setattr(marks, "last_batch", refuse)


def test_marks_first_look_reads_the_tables_state(tmp_path: Path) -> None:
    _commit(tmp_path, "job/1", 4)
    _commit(tmp_path, "job/2", 9)
    _commit(tmp_path, "job/1", 5)
    assert Marks().last_batch(tmp_path, "job/1", 2) == 5
    assert Marks().last_batch(tmp_path, "job/1", 1) == 4
    assert Marks().last_batch(tmp_path, "job/3", 2) == -1


def test_marks_behind_a_checkpoint_and_a_cleaned_log_are_found(tmp_path: Path) -> None:
    for batch in range(3):
        _commit(tmp_path, "job/1", batch)
    DeltaTable(str(tmp_path)).create_checkpoint()
    _commit(tmp_path, None)
    for version in range(3):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    assert Marks().last_batch(tmp_path, "job/1", 3) == 2


def test_marks_commits_since_are_read_from_the_log(tmp_path: Path, log_alone: Callable[[], None]) -> None:
    table, seen = tmp_path / "t", Marks()
    _commit(table, None)
    assert seen.last_batch(table, "job/1", 0) == -1
    log_alone()
    _commit(table, "job/1", 0)
    _commit(table, "job/2", 9)
    _commit(table, None)
    assert seen.last_batch(table, "job/1", 3) == 0
    _commit(table, "job/1", 1)
    assert seen.last_batch(table, "job/1", 4) == 1


def test_marks_another_driver_s_commit_is_seen(tmp_path: Path, log_alone: Callable[[], None]) -> None:
    table, mine, other = tmp_path / "t", Marks(), Marks()
    _commit(table, None)
    for seen in (mine, other):
        seen.last_batch(table, "job/1", 0)
    log_alone()
    _commit(table, "job/1", 0)
    assert mine.last_batch(table, "job/1", 1) == 0
    assert other.last_batch(table, "job/1", 1) == 0


@pytest.mark.parametrize(("version", "batch"), [(0, 0), (3, 2)])
def test_marks_log_that_does_not_tell_reads_the_state_again(tmp_path: Path, version: int, batch: int) -> None:
    table, seen = tmp_path / "t", Marks()
    _commit(table, "job/1", 0)
    _commit(table, "job/1", 1)
    assert seen.last_batch(table, "job/1", 1) == 1
    _commit(table, "job/1", 2)
    _commit(table, None)
    if version:
        DeltaTable(str(table)).create_checkpoint()
        (table / "_delta_log" / f"{2:020d}.json").unlink()
    assert seen.last_batch(table, "job/1", version) == batch
