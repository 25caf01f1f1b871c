"""Columns of the rows of a batch's files, also where they are partitions, and what checks measured before."""

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from headwater_streams.base.rule import Past
from headwater_streams.plan.job import Job
from headwater_streams.quality import Check, expect
from headwater_streams.quality.check_result import CheckResult
from headwater_streams.quality.results import Judged, append, rows_of
from headwater_streams.runtime.stages.check_memory import CheckMemory, columns_of_files, columns_of_table
from headwater_streams.storage.home import Home


def files_of(folder: Path) -> list[str]:
    prefix = f"{folder}/"
    return [uri.removeprefix("file://").removeprefix(prefix) for uri in DeltaTable(str(folder)).file_uris()]


def test_columns_of_files_have_those_of_their_partitions(tmp_path):
    folder = tmp_path / "t"
    rows = pa.table({"day": ["2013/1", None, "2013/1"], "n": [1, 2, 3], "who": ["a", "b", "c"]})
    write_deltalake(str(folder), rows, partition_by=["day"])
    found = columns_of_files(folder, files_of(folder), ["n", "day"])
    assert sorted(found.to_pylist(), key=lambda row: row["n"]) == [
        {"n": 1, "day": "2013/1"},
        {"n": 2, "day": None},
        {"n": 3, "day": "2013/1"},
    ]
    assert columns_of_files(folder, [], ["n", "day"]).num_rows == 0


def test_columns_of_files_without_partitions_are_those_of_the_rows(tmp_path):
    folder = tmp_path / "t"
    write_deltalake(str(folder), pa.table({"n": [1, 2], "who": ["a", "b"]}))
    assert columns_of_files(folder, files_of(folder), ["who"]).to_pydict() == {"who": ["a", "b"]}


def test_table_that_is_not_there_has_no_columns(tmp_path):
    assert columns_of_table(Home(tmp_path), "dim.airlines", ["code"]) is None


def test_memory_is_read_once_and_kept_up_to_date(tmp_path):
    home, check = Home(tmp_path), Check("usual", expect.volume(last=2))
    job = Job.__new__(Job)
    object.__setattr__(job, "name", "j")
    object.__setattr__(job, "checks", (check,))

    def result(rows):
        return CheckResult(check="usual", outcome="held", action="fail", judged=1, values={"rows": rows})

    for at_ms in (1000, 2000, 3000):
        judged = Judged(kind="batch", at_ms=at_ms, table="a.b", job="j", batch=at_ms)
        append(home, rows_of(judged, [result(float(at_ms))]))
    memory = CheckMemory(home, job)
    assert memory.before(check, 2) == (Past(2000, {"rows": 2000.0}), Past(3000, {"rows": 3000.0}))
    memory.add(4000, [result(4.0)])
    assert memory.before(check, 2) == (Past(3000, {"rows": 3000.0}), Past(4000, {"rows": 4.0}))
