"""Rejected records that are kept on the way are those that a second reading of the batch would find."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

import headwater as hw
from headwater_streams.runtime.stages import row_pass
from headwater_streams.runtime.stages.rejected_rows import KEPT, MOST_KEPT, kept, records_of, with_texts
from headwater_streams.sources.coordinates import ORIGIN_TYPE
from headwater_streams.sources.decode import HEADERS, HEADERS_TYPE, KEY
from headwater_streams.testing import JobDriver

clicks = hw.topic("clicks", schema="n INT, at TIMESTAMP", event_time="at")
taps = hw.topic("taps", schema="n INT, at TIMESTAMP", event_time="at")
LOCATED = (
    T.StructType()
    .add("_topic", "string")
    .add("_partition", "integer")
    .add("_offset", "long")
    .add("_timestamp", "timestamp")
    .add("_origin", ORIGIN_TYPE)
    .add(KEY, "binary")
    .add("_raw", "binary")
    .add(HEADERS, HEADERS_TYPE)
)
NOON = datetime(2013, 1, 1, 12, 0, 0, 123_457, UTC)


@hw.job(target=hw.delta("silver.clicks"), dedup=hw.by_offset())
@hw.check("small", "n < 1000")
def alone(clicks: DataFrame) -> DataFrame:
    return clicks


@hw.job(target=hw.delta("silver.clicks"), dedup=hw.by_offset(origin=True))
@hw.check("small", "n < 1000")
def originals(clicks: DataFrame) -> DataFrame:
    return clicks


@hw.job(target=hw.delta("silver.clicks"), dedup=hw.by_offset())
@hw.check("small", "n < 1000")
def both(clicks: DataFrame, taps: DataFrame) -> DataFrame:
    return hw.union(clicks, taps)


def _observed(rows: DataFrame) -> str:
    seen = Observation()
    with_texts(rows, F.col("_offset") % 2 == 0).observe(seen, kept()).count()
    return str(seen.get[KEPT])


@pytest.mark.story
def test_kept_records_come_back_as_they_were(spark: SparkSession) -> None:
    headers = [("trace", b"\x00\xff"), ("trace", None), ("ü\n\x1b", "é".encode())]
    rows = [
        ("t", 0, 0, NOON, None, None, b"\xff\x00 no JSON\n{", None),
        ("t", 0, 1, NOON, None, b"good", b"good", None),
        ("t", 1, 2, NOON + timedelta(microseconds=1), ("c", "s\n", 3, 4), b"\x00k", b"", headers),
        ("t", 1, 4, datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), None, b"", None, []),
    ]
    located = spark.createDataFrame(rows, LOCATED).coalesce(1)
    found = records_of(_observed(located), 3, located)
    assert found is not None
    wanted = located.filter("_offset % 2 = 0")
    assert found.schema.simpleString() == wanted.schema.simpleString()
    assert found.orderBy("_offset").collect() == wanted.orderBy("_offset").collect()


@pytest.mark.parametrize(
    ("rejected", "length", "whole"),
    [(MOST_KEPT, 9, True), (MOST_KEPT + 1, 9, False), (2, 9000, False), (1, 9000, False)],
)
def test_kept_records_are_taken_only_where_they_are_all(
    spark: SparkSession, rejected: int, length: int, whole: bool
) -> None:
    raw = F.repeat(F.lit("x"), F.when(F.col("id") == 0, length).otherwise(3)).cast("binary")
    columns = {"_topic": F.lit("t"), "_partition": F.lit(0), "_offset": F.col("id") * 2, "_raw": raw}
    given = spark.range(0, rejected, 1, 3).withColumns(columns)
    located = given.select(
        *[
            (F.col(f.name) if f.name in columns else F.lit(None)).cast(f.dataType).alias(f.name)
            for f in LOCATED
        ]
    )
    found = records_of(_observed(located), rejected, located)
    assert (found is not None) == whole
    assert (
        found is None
        or found.select("_offset", "_raw").exceptAll(located.select("_offset", "_raw")).isEmpty()
    )


@pytest.mark.parametrize("job", [alone, originals, both])
def test_job_reads_a_batch_again_only_where_the_one_before_rejected_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: Callable[..., DataFrame]
) -> None:
    again: list[int] = []
    ran: list[JobDriver] = []
    read_again = row_pass.standing_in

    def standing_in(located: DataFrame, blocks: bytes) -> DataFrame:
        again.append(len(ran))
        return read_again(located, blocks)

    monkeypatch.setattr(row_pass, "standing_in", standing_in)
    good = {"n": 1, "at": "2013-01-01T10:00:00Z"}
    bad = [b"\xff\x00 no JSON\n", b'{"n": 2000, "at": "2013-01-01T10:00:00Z"}', b'{"n": 3}']
    batches = [[*bad, good], [good, *bad, good], [good], [*bad], [*bad, good]]
    quarantines = []
    for most in (MOST_KEPT, 0):
        monkeypatch.setattr("headwater_streams.runtime.stages.row.MOST_KEPT", most)
        driver = JobDriver(spark, tmp_path / str(most), (job,))
        again.clear()
        ran.clear()
        for values in batches:
            for topic in ("clicks", "taps") if job is both else ("clicks",):
                driver.send(topic, *values, timestamp=NOON, headers={"trace": b"\x00\xff"})
            driver.run()
            ran.append(driver)
        assert sorted(set(again)) == ([0, 3] if most else [0, 1, 3, 4])
        assert driver.audit() == []
        rows = driver.table("silver.clicks__quarantine").orderBy("_topic", "_offset").collect()
        assert len(rows) == 12 * (2 if job is both else 1)
        quarantines.append(rows)
    assert quarantines[0] == quarantines[1]
