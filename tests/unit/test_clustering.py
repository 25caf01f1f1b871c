"""Which files of a clustered table are sorted together."""

from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import PySparkException

import headwater as hw
from backfill_facts import columns, part
from headwater_streams.base.errors import DataLossError
from headwater_streams.delta.clustering import Extent, sets_to_sort
from headwater_streams.delta.declared_table import ensure_table
from headwater_streams.delta.live_files import LiveFile, files_with_bounds
from headwater_streams.runtime.upkeep import TableUpkeep, Upkeep
from headwater_streams.storage.home import Home

_MB = 1 << 20
_DAY = (("day", "2013-01-01"),)


def _file(name: str, size_mb: int, least: Any, greatest: Any, values: Any = ()) -> Extent:
    return Extent(LiveFile(name, size_mb * _MB, 10, values), least, greatest)


def _sets(*extents: Extent, deepest: int = 3, most_mb: int = 1_000) -> list[list[str]]:
    found = sets_to_sort(extents, 100 * _MB, most_bytes=most_mb * _MB, deepest=deepest)
    return [sorted(file.name for file in files) for files in found]


def test_small_files_of_a_partition_become_one() -> None:
    other = _file("c", 1, 0, 9, _DAY)
    assert _sets(_file("a", 1, 0, 9), _file("b", 40, 0, 9), other, _file("d", 99, 0, 9)) == [["a", "b"]]
    assert _sets(_file("a", 1, 0, 9), other) == [], "each is alone in its partition"


def test_large_files_that_reach_over_one_value_are_sorted_together() -> None:
    wide = [_file(name, 100, 0, 90) for name in "abc"]
    assert _sets(*wide, _file("d", 100, 95, 99)) == [["a", "b", "c"]]
    assert _sets(*wide[:2], _file("d", 100, 95, 99)) == []


def test_files_of_disjoint_stretches_are_left_alone() -> None:
    assert _sets(*[_file(str(n), 100, 10 * n, 10 * n + 9) for n in range(9)]) == []


def test_files_that_would_not_become_narrower_are_left_alone() -> None:
    assert _sets(*[_file(name, 100, "x", "x") for name in "abc"]) == []
    assert _sets(*[_file(name, 100, None, None) for name in "abc"]) == []


def test_a_set_is_no_larger_than_one_commit_may_be() -> None:
    many = [_file(str(n), 40, 0, 9) for n in range(5)]
    assert _sets(*many, most_mb=130) == [["0", "1", "2"]]
    wide = [_file(name, 100, 0, 90) for name in "abcd"]
    assert _sets(*wide, most_mb=250) == [], "of so few none would become narrower"


def test_bounds_of_files_are_those_of_the_log(tmp_path: Path) -> None:
    table = tmp_path / "t"
    days = [date(2013, 1, 1), date(2013, 1, 2)]
    write_deltalake(str(table), pa.table({"who": ["b", "a"], "n": [1, 2], "day": days}), partition_by=["day"])
    version = DeltaTable(str(table)).version()
    found = {file.values[0][1]: bounds for file, *bounds in files_with_bounds(table, version, "who")}
    assert found == {"2013-01-01": ["b", "b"], "2013-01-02": ["a", "a"]}
    assert [bounds for _, *bounds in files_with_bounds(table, version, "gone")] == [[None, None]] * 2


@pytest.mark.parametrize(
    "fault", [DataLossError("9 rows written anew where there are 10"), PySparkException("no room")]
)
def test_fault_of_sorting_is_told_and_does_not_stop_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: Exception
) -> None:
    target = hw.delta("silver.clicks", cluster_by=["who"])
    home, job = Home(tmp_path), part({}, target=target).job
    no_spark: Any = None
    ensure_table(no_spark, home.table(target.name), target.name, columns("who", "city"), target.layout)
    context: Any = SimpleNamespace(home=home, spark=no_spark, step=lambda *_: None)
    upkeep = TableUpkeep(context, job, Upkeep(every=1))
    rows = pa.table({"who": ["a"], "city": ["Rome"]})
    write_deltalake(str(home.table(target.name)), rows, mode="append")

    def fails(*_: Any) -> int:
        raise fault

    monkeypatch.setattr("headwater_streams.runtime.upkeep.compact_clustered", fails)
    upkeep.after_batch(0)
    assert f"job 'clean': upkeep of silver.clicks: {fault}" in caplog.text
