"""Times far from today in tables: as Spark writes them, they are what readers without a JVM find."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.sql.catalog import TableRef
from headwater.sql.delta import open_table
from headwater_streams.delta.live_files import files_between, files_with
from headwater_streams.storage.delta_rows import dataset_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMES_US = [
    (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)
    for text in (
        "0001-01-01T00:00:00+00:00",
        "1500-02-28T12:00:00+00:00",
        "1969-12-31T23:59:59.999999+00:00",
        "2013-01-01T05:15:00.123456+00:00",
        "2300-01-01T00:00:00+00:00",
        "9999-12-31T23:59:59.999999+00:00",
    )
]
PAST_PYTHON_US = TIMES_US[-1] + 86_400_000_000
"""A time of the year 10000, which Spark and Arrow know and Python's datetime does not."""


@pytest.fixture(params=["INT96", "TIMESTAMP_MICROS"], scope="module")
def table(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A table with a file for each time, as they were written before, and as they are now."""
    path, name = tmp_path_factory.mktemp("times") / "table", "spark.sql.parquet.outputTimestampType"
    before = str(spark.conf.get(name))
    spark.conf.set(name, request.param)
    times = F.array(*[F.lit(at_us) for at_us in (*TIMES_US, PAST_PYTHON_US)])
    rows = spark.range(0, 7, numPartitions=7).select(F.timestamp_micros(F.get(times, "id")).alias("at"))
    try:
        rows.write.format("delta").save(str(path))
    finally:
        spark.conf.set(name, before)
    assert len(list(path.glob("*.parquet"))) == 7
    return path


def _micros(times: pa.ChunkedArray) -> list[int]:
    return sorted(pc.cast(times, pa.int64()).to_pylist())


@pytest.mark.story
def test_far_times_are_read_as_they_were_written(table: Path) -> None:
    wanted = [*TIMES_US, PAST_PYTHON_US]
    assert _micros(dataset_of(table).to_table()["at"]) == wanted
    opened = open_table(TableRef("silver", "table", table))
    assert _micros(opened.dataset().to_table()["at"]) == wanted
    for at_us in TIMES_US:
        at = pa.scalar(at_us, pa.timestamp("us", "UTC"))
        assert _micros(opened.dataset().to_table(filter=pc.field("at") == at)["at"]) == [at_us]


def test_far_time_hides_no_other_row_of_its_file(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "table"
    times = spark.createDataFrame([(TIMES_US[3],), (PAST_PYTHON_US,)], "us LONG")
    times.select(F.timestamp_micros("us").alias("at")).coalesce(1).write.format("delta").save(str(path))
    since = pa.scalar(TIMES_US[3], pa.timestamp("us", "UTC"))
    assert dataset_of(path).to_table(filter=pc.field("at") >= since).num_rows == 2


@pytest.mark.parametrize("at_us", [*TIMES_US, PAST_PYTHON_US])
def test_file_of_a_far_key_is_found(table: Path, at_us: int) -> None:
    keys = pa.table({"at": pa.array([at_us], pa.timestamp("us", "UTC"))})
    (file,) = files_with(table, 0, keys)
    assert file.name in files_between(table, 0, "at", at_us, at_us + 1)


def test_times_have_statistics_in_their_files(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(1).select(F.timestamp_micros("id").alias("at")).coalesce(1).write.parquet(
        str(tmp_path / "file")
    )
    (file,) = (tmp_path / "file").glob("*.parquet")
    metadata = pq.ParquetFile(file).metadata
    assert metadata.schema.column(0).physical_type == "INT64"
    assert metadata.row_group(0).column(0).statistics.has_min_max


@pytest.mark.parametrize("day", ["+5881580-07-11", "+12345-07-11", "-0044-03-15", "2013-01-01"])
def test_table_with_a_date_that_python_does_not_know_is_read(
    spark: SparkSession, tmp_path: Path, day: str
) -> None:
    """deltalake cannot read such a date in a file's statistics, and the whole table could not be opened."""
    path = tmp_path / "dates"
    rows = spark.range(1).select(F.lit(day).cast("date").alias("day"), F.lit("ann").alias("who"))
    rows.write.format("delta").save(str(path))
    (days,) = spark.read.format("delta").load(str(path)).select(F.unix_date("day")).first() or ()
    found = open_table(TableRef("silver", "dates", path)).dataset().to_table()
    assert found["who"].to_pylist() == ["ann"]
    assert found["day"].cast(pa.int32()).to_pylist() == [days]
