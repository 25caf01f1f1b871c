"""Partitioned tables without Spark: how they are made, which of their files hold a key, names of odd folders."""

import json
import urllib.parse
from datetime import date
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.table import TableAlterer
from pyspark.sql import SparkSession
from pyspark.sql import types as T

import headwater as hw
from headwater_streams.base.errors import IncompatibleTableError
from headwater_streams.delta.clustering import clustered_by
from headwater_streams.delta.compaction import compact
from headwater_streams.delta.declared_table import ensure_table
from headwater_streams.delta.delta_table import remove_action
from headwater_streams.delta.live_files import all_files, files_with
from headwater_streams.ledger.log import commits
from headwater_streams.runtime.replaced import begins_as_one, is_read_as_one
from headwater_streams.runtime.rewriting import repartition_problem
from headwater_streams.storage.delta_files import (
    added_by,
    data_file,
    data_paths,
    opened_table,
    partition_columns,
    properties_of,
)
from headwater_streams.storage.delta_rows import dataset_of

NO_SPARK = cast(SparkSession, None)  # only a column that comes to a table needs a session
COLUMNS = T.StructType(
    [
        T.StructField("id", T.LongType()),
        T.StructField("city", T.StringType()),
        T.StructField("day", T.DateType()),
    ]
)
_ROWS = pa.schema([("id", pa.int64()), ("city", pa.string()), ("day", pa.date32())])


def _day(number: int | None) -> date | None:
    return None if number is None else date(2013, 1, number)


def _made(path: Path, **layout: Any) -> Path:
    ensure_table(NO_SPARK, path, "silver.orders", COLUMNS, hw.delta("silver.orders", **layout).layout)
    return path


def _append(table: Path, *rows: tuple[int, str | None, int | None]) -> int:
    columns = [[row[0] for row in rows], [row[1] for row in rows], [_day(row[2]) for row in rows]]
    write_deltalake(str(table), pa.table(columns, schema=_ROWS), mode="append")
    return DeltaTable(str(table)).version()


def test_new_table_has_what_its_layout_says_and_the_protocol_of_every_reader(tmp_path: Path) -> None:
    properties = {"delta.logRetentionDuration": "60 days", "team": "sales"}
    table = _made(
        tmp_path / "t",
        partition_by=["day"],
        cluster_by=["id"],
        properties=properties,
        comment="all orders",
        comments={"id": "its number"},
        keep="90 days",
    )
    opened = DeltaTable(str(table))
    assert partition_columns(table) == ("day",)
    assert opened.metadata().description == "all orders"
    stored = properties_of(table)
    assert stored["delta.logRetentionDuration"] == "interval 60 days"
    assert (stored["team"], stored["headwater.clusterBy"], stored["headwater.keep"]) == (
        "sales",
        "id",
        "90 days",
    )
    (commented,) = [f for f in json.loads(opened.schema().to_json())["fields"] if f["metadata"]]
    assert (commented["name"], commented["metadata"]) == ("id", {"comment": "its number"})
    protocol = opened.protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)


def test_table_takes_new_properties_and_comments_and_nothing_a_second_time(tmp_path: Path) -> None:
    table = _made(tmp_path / "t", partition_by=["day"])
    assert DeltaTable(str(table)).version() == 0
    changed = {"comment": "new", "comments": {"city": "where"}, "properties": {"team": "sales"}}
    for _ in range(2):
        _made(table, partition_by=["day"], **changed)
        opened = DeltaTable(str(table))
        assert opened.version() == 3
        assert (opened.metadata().description, properties_of(table)["team"]) == ("new", "sales")
        assert json.loads(opened.schema().to_json())["fields"][1]["metadata"] == {"comment": "where"}
    assert partition_columns(table) == ("day",)


def test_comment_that_meets_another_commit_waits_for_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _made(tmp_path / "t")

    def meets(*_: Any) -> None:
        raise CommitFailedError("metadata changed since last commit")

    with monkeypatch.context() as other:
        other.setattr(TableAlterer, "set_table_description", meets)
        _made(table, comment="new")
    assert DeltaTable(str(table)).metadata().description is None
    _made(table, comment="new")
    assert DeltaTable(str(table)).metadata().description == "new"


def test_order_and_age_that_are_declared_no_more_are_let_go_of(tmp_path: Path) -> None:
    table = _made(tmp_path / "t", cluster_by=["id"], keep="90 days")
    for _ in range(2):
        _made(table)
        stored = properties_of(table)
        assert (stored["headwater.clusterBy"], stored["headwater.keep"]) == ("", "")
        assert clustered_by(table) == ()


def test_table_with_other_partitions_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    table = _made(tmp_path / "t", partition_by=["day"])
    with pytest.raises(
        IncompatibleTableError, match="is partitioned by day, and the job declares it not partitioned"
    ):
        _made(table, comment="new")
    assert DeltaTable(str(table)).version() == 0


def test_files_with_a_key_are_those_of_its_partition(tmp_path: Path) -> None:
    table = _made(tmp_path / "t", partition_by=["day"])
    version = _append(table, (1, "Rome", 1), (1, "Rome", 2), (2, "Rome", 2), (1, "Rome", None))
    by_day = {dict(file.values)["day"]: file for file in all_files(table, version)}
    assert set(by_day) == {"2013-01-01", "2013-01-02", None}

    def found(*keys: tuple[int, int | None]) -> list[str | None]:
        wanted = pa.table(
            {"id": [k[0] for k in keys], "day": pa.array([_day(k[1]) for k in keys], pa.date32())}
        )
        return sorted((dict(file.values)["day"] for file in files_with(table, version, wanted)), key=str)

    assert found((1, 2)) == ["2013-01-02"]
    assert found((2, 1)) == [], "that id is in another partition"
    assert found((1, None)) == [None]
    assert found((2, 2), (1, 1)) == ["2013-01-01", "2013-01-02"]
    days = pa.table({"day": pa.array([_day(2), None], pa.date32())})
    assert {dict(file.values)["day"] for file in files_with(table, version, days)} == {"2013-01-02", None}


def _repartitioned(table: Path, *columns: str) -> None:
    """A commit that gives the table other partitions, and takes its files away."""
    version = DeltaTable(str(table)).version()
    removed = [json.dumps(remove_action(file)) for file in all_files(table, version)]
    first = (table / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    (made,) = [json.loads(line)["metaData"] for line in first if "metaData" in line]
    changed = json.dumps({"metaData": made | {"partitionColumns": list(columns)}})
    (table / "_delta_log" / f"{version + 1:020d}.json").write_text("\n".join([changed, *removed]))


def test_table_with_other_partitions_since_is_read_as_one(tmp_path: Path) -> None:
    table = _made(tmp_path / "t", partition_by=["day"])
    before = _append(table, (1, "Rome", 1))
    _made(table, partition_by=["day"], comment="metadata of the same partitions")
    assert not begins_as_one(table, 0)
    _repartitioned(table, "city")
    assert [c.partitions for c in commits(table)] == [("day",), None, ("day",), ("city",)]
    assert is_read_as_one(table, 0)
    assert is_read_as_one(table, before), "the commits since then have other partitions than that one"
    assert not is_read_as_one(table, before + 2), "it begins with the change"
    _repartitioned(table, "day")
    assert is_read_as_one(table, 0), "the stream would come by the other partitions"
    assert not is_read_as_one(table, before + 4), "nothing is there yet"


def test_table_that_others_have_read_is_not_repartitioned_in_place() -> None:
    assert repartition_problem("clean", "silver.orders", []) is None
    problem = str(repartition_problem("clean", "silver.orders", {"by_day__step_1", "by_day", "again"}))
    assert problem.startswith(
        "silver.orders: again and by_day read it commit by commit, and would not start again"
    )
    assert problem.endswith("headwater backfill plan clean --rebuild")


def test_files_of_other_partitions_are_not_opened(tmp_path: Path) -> None:
    table = _made(tmp_path / "t", partition_by=["day"])
    version = _append(table, (1, "Rome", 1), (1, "Rome", 2))
    (first,) = [f for f in all_files(table, version) if dict(f.values)["day"] == "2013-01-01"]
    data_file(table, first.name).unlink()
    wanted = pa.table({"id": [1], "day": pa.array([_day(2)], pa.date32())})
    assert [dict(file.values)["day"] for file in files_with(table, version, wanted)] == ["2013-01-02"]


def test_file_of_a_partition_is_known_by_the_commit_that_added_it(tmp_path: Path) -> None:
    table = _made(tmp_path / "t", partition_by=["day"])
    first, _ = _append(table, (1, "Rome", 1)), _append(table, (2, "Rome", 1))
    (file,) = all_files(table, first)
    for name in (file.name, Path(file.name).name):
        assert added_by(table, name) == f", a data file that version {first} added"


def test_removed_file_names_its_partition(tmp_path: Path) -> None:
    table = _made(tmp_path / "t", partition_by=["day", "city"])
    version = _append(table, (1, None, 1))
    (file,) = all_files(table, version)
    assert remove_action(file)["remove"]["partitionValues"] == {"day": "2013-01-01", "city": None}


CITIES = ["a b:/", "Zürich", "x=y", "50%", "a~b", "r&d", "(x)", "a+b", "q;w", "<t>|`", "$1,2@!", "tab\t"]


def _folder(value: str) -> str:
    """The name of a partition's folder as Spark makes it."""
    escaped = "\"#%'*/:=?\\\x7f{[]^"
    return "city=" + "".join(f"%{ord(c):02X}" if c in escaped or ord(c) < 32 else c for c in value)


def test_folders_of_odd_values_are_found_compacted_and_kept_by_vacuum(tmp_path: Path) -> None:
    table = _made(tmp_path / "t", partition_by=["city"])
    adds = []
    for number, city in enumerate(CITIES):
        for part in range(2):
            name = f"{_folder(city)}/part-{number}-{part}.c000.snappy.parquet"
            (table / name).parent.mkdir(exist_ok=True)
            pq.write_table(pa.table({"id": [number], "day": pa.array([None], pa.date32())}), table / name)
            add = {
                "path": urllib.parse.quote(name, safe="/=~!$&'()*+,;:@-._"),
                "partitionValues": {"city": city},
                "size": (table / name).stat().st_size,
                "modificationTime": 0,
                "dataChange": True,
                "stats": json.dumps({"numRecords": 1}),
            }
            adds.append(json.dumps({"add": add}))
    (table / "_delta_log" / f"{1:020d}.json").write_text("\n".join(adds))

    def rows() -> list[str]:
        return sorted(row["city"] for row in dataset_of(table).to_table().to_pylist())

    expected = sorted(city for city in CITIES for _ in range(2))
    assert rows() == expected
    for file in all_files(table, 1):
        assert data_file(table, file.name).exists()
        city = dict(file.values)["city"]
        found = files_with(table, 1, pa.table({"city": [city], "id": [CITIES.index(str(city))]}))
        assert file in found
        assert len(found) == 2
    assert compact(table) == 22, "all but those of a~b, which deltalake does not find"
    DeltaTable(str(table)).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert rows() == expected


@pytest.mark.parametrize("folder", ["plain", "with blanks & ä#?", "50%"])
def test_data_files_are_found_in_a_folder_of_any_name(tmp_path: Path, folder: str) -> None:
    by_city, far = tmp_path / folder / "by city", tmp_path / folder / "far"
    cities = pa.table({"city": ["Rome/Ostia", "50%", "a b"], "id": [1, 2, 3]})
    write_deltalake(str(by_city), cities, partition_by=["city"])
    assert sorted(data_paths(by_city, opened_table(by_city))) == sorted(by_city.rglob("*.parquet"))
    # A time past the year 9999 has the files read by their names.
    times = pa.array([0, 253_402_300_800_000_000], pa.timestamp("us", "UTC"))
    write_deltalake(str(far), pa.table({"at": times}))
    assert dataset_of(far).count_rows() == 2
