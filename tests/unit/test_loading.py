"""Which offsets a load reads, and in which chunks."""

from pathlib import Path
from typing import Any, cast

import pytest

from headwater.errors import UsageError
from headwater.running.loads import LoadBounds, load_range
from headwater_streams.plan.job import Job
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.loading.planning import (
    LoadRefusedError,
    Sizes,
    chunks_of,
    remaining,
    requested,
    require_following,
)

MB = 1024 * 1024
NO_JOB = cast(Job, None)


def not_reached(*_: object) -> StageContext:
    raise AssertionError("a session is started")


def test_range_of_a_load_is_what_is_there_between_its_ends() -> None:
    existing = {0: (5, 100), 1: (0, 40), 2: (7, 7)}
    assert requested("t", existing, {}, {}) == {0: (5, 100), 1: (0, 40)}
    assert requested("t", existing, {0: 50, 1: 50}, {0: 60, 1: 60}) == {0: (50, 60)}


def test_load_of_records_that_are_gone_names_them() -> None:
    with pytest.raises(LoadRefusedError, match=r"t, partition 0: offsets 2 to 4 are gone; load from 5 on"):
        requested("t", {0: (5, 100)}, {0: 2}, {})
    with pytest.raises(LoadRefusedError, match="it ends at offset 100, and 200 is asked for"):
        requested("t", {0: (5, 100)}, {}, {0: 200})


def test_rest_of_a_load_is_what_no_commit_has() -> None:
    ranges = {0: (0, 100), 1: (0, 10)}
    assert remaining(ranges, []) == {0: [(0, 100)], 1: [(0, 10)]}
    assert remaining(ranges, [{0: (0, 40), 1: (0, 10)}]) == {0: [(40, 100)]}
    assert remaining(ranges, [{0: (20, 30)}, {0: (50, 200)}]) == {0: [(0, 20), (30, 50)], 1: [(0, 10)]}
    assert remaining(ranges, [{0: (0, 50)}, {0: (50, 100)}, {1: (0, 10), 2: (0, 9)}]) == {}


@pytest.mark.parametrize("sizes", [{}, {0: 1_000.0, 1: 10.0}])
def test_chunks_of_a_load_have_each_offset_once(sizes: dict[int, float]) -> None:
    left = {0: [(0, 1_000_003)], 1: [(17, 500), (600, 601)], 2: [(3, 4)]}
    chunks = chunks_of(left, Sizes(bytes_each=sizes), chunk_bytes=10 * MB)
    assert len(chunks) > 3
    for partition, pairs in left.items():
        parts = [chunk.ranges[partition] for chunk in chunks if partition in chunk.ranges]
        assert sorted(o for start, end in parts for o in range(start, end)) == [
            o for start, end in pairs for o in range(start, end)
        ]
        assert parts == sorted(parts)


def test_chunks_of_a_load_are_of_bytes_and_of_about_one_time() -> None:
    left = {0: [(0, 1_000)], 1: [(0, 100)]}
    chunks = chunks_of(
        left, Sizes(bytes_each={0: 1_000.0, 1: 10_000.0}), chunk_bytes=500_000, task_bytes=50_000
    )
    assert [chunk.ranges for chunk in chunks] == [
        {0: (250 * n, 250 * n + 250), 1: (25 * n, 25 * n + 25)} for n in range(4)
    ]
    assert {chunk.size_bytes for chunk in chunks} == {500_000}
    assert {chunk.records_a_task for chunk in chunks} == {5}, "of the partition with the larger records"


def test_chunk_of_a_load_is_one_record_at_least() -> None:
    (first, second) = chunks_of({0: [(0, 2)]}, Sizes(bytes_each={0: 1e9}), chunk_bytes=1, task_bytes=1)
    assert (first.ranges, second.ranges, first.records_a_task) == ({0: (0, 1)}, {0: (1, 2)}, 1)
    assert chunks_of({}, Sizes()) == []


def test_chunk_that_was_cut_off_comes_first_and_as_it_was() -> None:
    left = remaining({0: (0, 100), 1: (0, 10)}, [{0: (0, 20)}, {0: (20, 33), 1: (0, 4)}])
    first, *others = chunks_of(
        left, Sizes(bytes_each={0: 1.0}), cut_off={0: (20, 33), 1: (0, 4)}, chunk_bytes=30
    )
    assert first.ranges == {0: (20, 33), 1: (0, 4)}, "it is no tenth of the rest, as the others are"
    assert [chunk.ranges for chunk in others] == [
        {0: (33, 55), 1: (4, 6)},
        {0: (55, 77), 1: (6, 8)},
        {0: (77, 100), 1: (8, 10)},
    ]


def test_load_goes_on_where_the_table_ends_and_nowhere_else() -> None:
    done = [{0: (100, 150)}, {0: (150, 200), 1: (0, 10)}]
    require_following("t", {0: [(200, 300)], 2: [(7, 9)]}, done)
    with pytest.raises(
        LoadRefusedError, match="has offsets 100 to 199, and this would leave out 200 to 249; load"
    ):
        require_following("t", {0: [(250, 300)]}, done)
    with pytest.raises(
        LoadRefusedError, match="and this would put 0 behind them; load from 200 on, or into another"
    ):
        require_following("t", {0: [(0, 100), (200, 300)]}, done)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (
            {"start": "yesterday"},
            "yesterday is no place in a topic: give earliest, latest, an offset, or a time",
        ),
        ({"end": "-5"}, "-5 is no place in a topic"),
        ({"start": "10", "end": "5"}, "from 10 to 5: it ends before it begins"),
        ({"start": "2013-02-01", "end": "2013-01-01T00:00:00Z"}, "it ends before it begins"),
        ({"start": "latest", "end": "earliest"}, "it ends before it begins"),
        ({"chunk_bytes": 0}, "chunk_bytes=0, task_bytes=67108864: give 1 or more"),
        ({"task_bytes": -1}, "task_bytes=-1"),
    ],
)
def test_bound_of_a_load_that_is_none_is_told_before_spark_starts(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        LoadBounds(**wrong)


def test_load_into_what_is_no_folder_of_its_own_is_told_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for into, told in (
        ("clicks", "give a table, schema.name, or parquet:FOLDER"),
        ("parquet:", "give a folder behind parquet:"),
        (f"parquet:{tmp_path / 'file'}", "give a folder behind parquet:"),
        (f"parquet:{tmp_path}", "the folder has files of others"),
    ):
        with pytest.raises(UsageError, match=told):
            load_range(
                "clicks",
                NO_JOB,
                into,
                home=tmp_path,
                bootstrap=None,
                bounds=LoadBounds(),
                context_of=not_reached,
            )
