"""Columns of the rows of a batch's files, also where they are partitions, and what checks measured before."""

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from headwater_streams.base.rule import Past
from headwater_streams.plan.job import Job
from headwater_streams.quality import Check, expect
from headwater_streams.quality.check_result import CheckResult
from headwater_streams.quality.results import Judged, append, past_of, past_since, rows_of
from headwater_streams.runtime.stages import check_memory
from headwater_streams.runtime.stages.check_memory import CheckMemory, columns_of_files, compared_rows
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


def test_keys_are_compared_with_those_of_another_table_if_there_is_one(tmp_path):
    home, keys = Home(tmp_path), pa.table({"carrier": ["AA"]})
    rule = expect.references("carrier", "dim.airlines", "code")
    assert compared_rows(home, "a.b", rule, keys) is None
    write_deltalake(home.table("dim.airlines"), pa.table({"code": ["UA"], "name": ["United"]}))
    assert compared_rows(home, "a.b", rule, keys).to_pydict() == {"code": ["UA"]}
    assert compared_rows(home, "a.b", expect.unique("carrier"), keys) is None


def test_keys_may_be_called_in_other_letters_as_in_spark(tmp_path):
    home = Home(tmp_path)
    folder = home.table("a.b")
    write_deltalake(folder, pa.table({"user": ["u1"], "Day": ["1"]}), partition_by=["Day"])
    keys = columns_of_files(folder, files_of(folder), ["USER", "day"])
    assert keys.to_pydict() == {"USER": ["u1"], "day": ["1"]}
    rule = expect.unique("USER", "day", within="table")
    assert rule.judge(keys, compared_rows(home, "a.b", rule, keys)).failed == 1
    rule = expect.references("USER", "a.b", "User")
    assert rule.judge(keys, compared_rows(home, "c.d", rule, keys)).holds


def test_unique_in_the_table_reads_only_files_that_may_have_a_key_of_the_batch(tmp_path):
    home, rule = Home(tmp_path), expect.unique("day", "n", within="table")
    folder = home.table("a.b")
    for day in range(4):
        rows = pa.table(
            {"day": [f"2013-01-{day:02}"] * 3, "n": [10 * day + n for n in range(3)], "x": ["x"] * 3}
        )
        write_deltalake(folder, rows, mode="append", partition_by=["day"])
    keys = pa.table({"day": ["2013-01-02", "2013-01-02", "2013-01-01", None], "n": [21, 7, 21, 1]})
    found = compared_rows(home, "a.b", rule, keys)
    assert sorted(found["n"].to_pylist()) == [20, 21, 22]
    assert found.column_names == ["day", "n"]
    judgement = rule.judge(keys, found)
    assert (judgement.failed, judgement.sample) == (1, ("day=2013-01-02, n=21",))
    # A file that cannot have a key is not read: it may be gone.
    for name in files_of(folder):
        if "2013-01-02" not in name:
            (folder / name).unlink()
    assert compared_rows(home, "a.b", rule, keys.slice(0, 2)).num_rows == 3
    assert compared_rows(home, "a.b", rule, keys.slice(3)) is None  # a key with a NULL is none


def test_rebuild_is_compared_with_nothing_before_it(tmp_path):
    context = SimpleNamespace(home=Home(tmp_path), is_live=False)
    assert CheckMemory(context, None).before is None


def test_memory_is_read_once_for_each_check_and_then_once_a_batch_for_all(tmp_path, monkeypatch):
    home, read = Home(tmp_path), []
    checks = [Check("usual", expect.volume(last=2)), Check("spread", expect.drift("x", values=[1]))]
    job = Job.__new__(Job)
    object.__setattr__(job, "name", "j")

    def noted(name, function):
        def past(*arguments, **more):
            read.append(name)
            return function(*arguments, **more)

        return past

    monkeypatch.setattr(check_memory, "past_of", noted("one", past_of))
    monkeypatch.setattr(check_memory, "past_since", noted("all", past_since))

    def judged(at_ms):
        results = [
            CheckResult(check=name, outcome="held", action="fail", judged=1, values={"rows": float(at_ms)})
            for name in ("usual", "spread")
        ]
        append(home, rows_of(Judged(kind="batch", at_ms=at_ms, table="a.b", job="j", batch=at_ms), results))

    def past(*times_ms):
        return tuple(Past(at_ms, {"rows": float(at_ms)}) for at_ms in times_ms)

    memory = CheckMemory(SimpleNamespace(home=home, is_live=True), job)
    assert [memory.before(check, 2) for check in checks] == [(), ()]
    judged(1000)
    assert [memory.before(check, 2) for check in checks] == [past(1000)] * 2
    assert [memory.before(check, 2) for check in checks] == [past(1000)] * 2  # the batch is tried again
    for at_ms in (2000, 3000):
        judged(at_ms)
    assert [memory.before(check, 2) for check in checks] == [past(2000, 3000)] * 2
    assert read == ["one", "one", "all", "all", "all"]
    memory = CheckMemory(SimpleNamespace(home=home, is_live=True), job)
    assert [memory.before(check, 2) for check in checks] == [past(2000, 3000)] * 2
    judged(3001)
    assert [memory.before(check, 2) for check in checks] == [past(3000, 3001)] * 2


def test_damaged_results_end_no_batch(tmp_path, caplog):
    home, check = Home(tmp_path), Check("usual", expect.volume(last=2))
    job = Job.__new__(Job)
    object.__setattr__(job, "name", "j")
    result = CheckResult(check="usual", outcome="held", action="warn", judged=1, values={"rows": 5.0})
    memory = CheckMemory(SimpleNamespace(home=home, is_live=True), job)
    for at_ms in (1000, 2000):
        append(home, rows_of(Judged(kind="batch", at_ms=at_ms, table="a.b", job="j", batch=at_ms), [result]))
        if at_ms == 1000:
            assert [each.at_ms for each in memory.before(check, 2)] == [1000]
    for file in home.table("quality.results").glob("*.parquet"):
        file.unlink()
    assert [each.at_ms for each in memory.before(check, 2)] == [1000]
    assert memory.before(Check("other", expect.volume(last=2)), 2) == ()
    assert "'usual' has no earlier batches to compare with: quality.results: " in caplog.text


def test_memory_of_days_has_batches_that_come_every_second_as_one_in_ten_seconds(tmp_path):
    home, day_ms = Home(tmp_path), 86_400_000
    check = Check("usual", expect.volume(within=0.5, same_hour_of_days=1))
    job = Job.__new__(Job)
    object.__setattr__(job, "name", "j")
    now_ms = 9 * day_ms

    def judged(at_ms, rows):
        result = CheckResult(check="usual", outcome="held", action="warn", judged=1, values={"rows": rows})
        append(home, rows_of(Judged(kind="batch", at_ms=at_ms, table="a.b", job="j", batch=at_ms), [result]))

    judged(now_ms - 3 * day_ms, 1.0)
    for seconds in (1, 2, 9, 11, 12):
        judged(now_ms - day_ms + seconds * 1000, 5.0)
    memory = CheckMemory(SimpleNamespace(home=home, is_live=True, now_ms=lambda: now_ms + 1000), job)
    past = memory.before(check, check.rule.remembers)
    assert [(each.at_ms - now_ms + day_ms, each.values["rows"]) for each in past] == [(9000, 15), (12000, 10)]
    judged(now_ms - day_ms + 13_000, 5.0)
    past = memory.before(check, check.rule.remembers)
    assert [(each.at_ms - now_ms + day_ms, each.values["rows"]) for each in past] == [(9000, 15), (13000, 15)]
    judged(now_ms, 1.0)
    past = memory.before(check, check.rule.remembers)
    assert check.rule.judge({"rows": 4.0}, past, now_ms + 1000).holds  # 15 rows in 4 seconds are usual
    assert not check.rule.judge({"rows": 1.0}, past, now_ms + 1000).holds
