"""The audit by counts over what jobs of every kind wrote: complete, and what is removed or doubled by hand is named."""

from collections.abc import Callable, Mapping

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame

import headwater as hw
from headwater_streams.base.bucket_run import BucketRun
from headwater_streams.ledger.counts import Claims, Findings, TopicLog, check_producers, check_table
from headwater_streams.ledger.counts.at_rest import tables_by_topic, with_rows
from headwater_streams.testing import JobDriver
from headwater_streams.testing.record_log import RecordLog
from job_kinds import TABLE, Kind, kinds, three_batches

BUCKET_MS = 60_000


def log_of(driver: JobDriver, topic: str) -> TopicLog:
    """The topic as an audit would read it from brokers; each record a run of its own."""
    source = driver.context.source
    assert isinstance(source, RecordLog)
    runs, counted = {}, source.partitions(topic)
    for partition in counted:
        records = sorted(source.records(topic, partition).items())
        times = [(offset, round(record["timestamp"].timestamp() * 1000)) for offset, record in records]
        runs[partition] = [BucketRun(offset, offset + 1, ms - ms % BUCKET_MS) for offset, ms in times]
    return TopicLog(topic, BUCKET_MS, runs, counted)


def findings(driver: JobDriver) -> list[str]:
    sentences = []
    for topic, tables in sorted(tables_by_topic(driver.home).items()):
        found, log = Findings(topic), log_of(driver, topic)
        check_producers(found, log, Claims(), 0)
        for table in tables:
            check_table(found, log, with_rows(driver.home, topic, table))
        read = sum(count.count for count in found.counts if count.tier == "input")
        assert read == len(tables) * sum(count.count for count in found.counts if count.tier == "broker")
        sentences += [str(each) for each in found.findings]
    return sentences


@pytest.mark.parametrize(
    "kind", [*kinds("rows", marks=pytest.mark.story), *(each for each in kinds() if each.id != "rows")]
)
def test_counts_of_each_kind_of_job_agree(made: Callable[..., JobDriver], kind: Kind) -> None:
    driver = made(three_batches, *kind.jobs(1), kind=kind.name)
    assert findings(driver) == []


@pytest.mark.story
def test_counts_name_rows_that_were_removed_and_doubled_by_hand(made: Callable[..., JobDriver]) -> None:
    ((kind,),) = [each.values for each in kinds("rows")]
    driver = made(three_batches, *kind.jobs(1), kind=kind.name)
    path = str(driver.home.table(TABLE))
    row = DeltaTable(path).to_pyarrow_table(filters=[("_offset", "=", 5)])
    first = min(DeltaTable(path).to_pyarrow_table(columns=["_offset"])["_offset"].to_pylist())
    DeltaTable(path).delete(f"_offset = {first}")
    write_deltalake(path, row, mode="append")
    DeltaTable(f"{path}__quarantine").delete("_offset = 3")
    said = sorted(each.partition(": ")[2] for each in findings(driver))
    assert len(said) == 3
    assert said[0].startswith("1 record is missing at quarantine")
    assert said[1].startswith("1 record is missing at table")
    assert said[2].startswith("1 record stands there more than once at table")


requests = hw.topic("requests", schema="n BIGINT, at TIMESTAMP", event_time="at")
HALVES = {"odd": hw.delta("silver.odd"), "even": hw.delta("silver.even")}


@hw.job(targets=HALVES, dedup=hw.by_offset())
@hw.check("small", "n < 100")
def halves(requests: DataFrame) -> Mapping[str, DataFrame]:
    return {"odd": requests.filter("n % 2 = 1"), "even": requests.filter("n % 2 = 0")}


def test_counts_of_a_job_with_several_tables_agree(drive: Callable[..., JobDriver]) -> None:
    """What it rejects stands beside the first of them, and each says how many that were."""
    driver = drive(halves)
    at = "2013-01-01T10:00:00+00:00"
    driver.send("requests", *({"n": n, "at": at} for n in (*range(6), 100, 101)), timestamp=at)
    driver.run()
    assert [entry.totals["quarantined"] for entry in driver.ledger("silver.even")] == [2]
    assert findings(driver) == []
    DeltaTable(str(driver.home.table("silver.odd__quarantine"))).delete("_offset = 6")
    (said,) = findings(driver)
    assert "1 record is missing at quarantine silver.odd" in said
