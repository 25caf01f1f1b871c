"""Jobs over topics of each format: what is bad is in quarantine with its bytes, the rest in the table."""

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame

import headwater as hw
from headwater_streams.testing import JobDriver

_AVRO = """{"type": "record", "name": "Flight", "fields": [
    {"name": "carrier", "type": "string"}, {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
]}"""

lines = hw.topic("lines", schema="carrier STRING, at TIMESTAMP", format="csv", event_time="at")
records = hw.topic("records", format=hw.avro(_AVRO), event_time="at")
objects = hw.topic("objects", schema="carrier STRING, at TIMESTAMP", event_time="at")

TEN = b"\x80\xa4\xed\xd8\xfe\x4e"  # 2013-01-01T10:00:00Z in ms, as Avro writes a long


@hw.job(target=hw.delta("silver.lines"), dedup=hw.by_offset())
def from_lines(lines: DataFrame) -> DataFrame:
    return lines


@hw.job(target=hw.delta("silver.records"), dedup=hw.by_offset())
@hw.check("known_carrier", "carrier IN ('UA', 'DL')")
def from_records(records: DataFrame) -> DataFrame:
    return records


@hw.job(target=hw.delta("silver.objects"), dedup=hw.by_offset(origin=True))
def from_objects(objects: DataFrame) -> DataFrame:
    return objects


def quarantined(driver: JobDriver, table: str) -> dict[bytes | None, tuple[str, str]]:
    rows = driver.table(f"{table}__quarantine").collect()
    return {
        None if row["_raw"] is None else bytes(row["_raw"]): (row["_check"], row["_reason"]) for row in rows
    }


@pytest.mark.story
def test_formats_bad_values_are_in_quarantine_with_their_bytes(drive: Callable[..., JobDriver]) -> None:
    driver = drive(from_lines, from_records)
    moment = "2013-01-01T10:00:00Z"
    driver.send(
        "lines", f"UA,{moment}", f"UA,{moment},4", "UA,never", "UA,", None, timestamp="2013-01-01T10:00:00Z"
    )
    driver.send(
        "records", b"\x04UA" + TEN, b"\x04AA" + TEN, b"\x04UA" + TEN[:3], timestamp="2013-01-01T10:00:00Z"
    )
    driver.run()
    assert driver.rows("silver.lines", "carrier") == [("UA",)]
    assert quarantined(driver, "silver.lines") == {
        f"UA,{moment},4".encode(): ("value", "the value has 3 columns, not 2"),
        b"UA,never": ("value", "at is not TIMESTAMP: never"),
        b"UA,": ("event_time", "at is missing"),
        None: ("value", "the value is null"),
    }
    assert driver.rows("silver.records", "carrier") == [("UA",)]
    assert quarantined(driver, "silver.records") == {
        b"\x04AA" + TEN: ("known_carrier", "known_carrier: carrier IN ('UA', 'DL')"),
        b"\x04UA" + TEN[:3]: ("value", "the value is cut off, or not of the schema"),
    }
    for table in ("silver.lines", "silver.records"):
        (entry,) = driver.ledger(table)
        assert not entry.imbalances()


def test_formats_json_lines_of_a_shipped_file_are_one_record_each(drive: Callable[..., JobDriver]) -> None:
    """What `headwater ship app.jsonl` sends: a line without its end each, with the file's identity and position."""
    driver = drive(from_objects)
    good, more = '{"carrier": "UA", "at": "2013-01-01T10:00:00Z", "new": {"field": 1}}', '{"carrier": "DL"}'
    driver.send("objects", good, f"{good}{more}", more, origin=("files", "app.jsonl", 0, 0))
    driver.send("objects", good, origin=("files", "app.jsonl", 0, 0))
    driver.run()
    assert driver.rows("silver.objects", "carrier", "_origin.offset") == [("UA", 0)]
    assert [reason for _, reason in quarantined(driver, "silver.objects").values()] == [
        "the value is not one JSON object",
        "at is missing",
    ]
    (entry,) = driver.ledger("silver.objects")
    assert entry.accounting["objects"]["duplicate"] == 1


dated = hw.topic("dated", schema="day DATE, at TIMESTAMP", event_time="at", watermark="1 hour")


@hw.job(target=hw.delta("silver.dated"))
def from_dated(dated: DataFrame) -> DataFrame:
    return dated


def test_formats_dates_and_times_that_no_reader_knows_are_in_quarantine(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(from_dated)
    good = {"day": "9999-12-31", "at": "2013-01-01T10:00:00Z"}
    nanoseconds = {**good, "at": 1_704_067_200_000_000_000}
    far = [{**good, "day": day} for day in ("+10000-01-01", "0000-12-31", "+5881580-07-11")]
    driver.send("dated", good, *far, nanoseconds, timestamp="2013-01-01T10:00:00Z")
    driver.run()
    assert driver.rows("silver.dated", "_offset") == [(0,)]
    assert driver.rows("silver.dated__quarantine", "_offset", "_reason") == [
        (1, 'day is not DATE: "+10000-01-01"'),
        (2, "day is not a date of the years 1 to 9999: 0000-12-31"),
        (3, 'day is not DATE: "+5881580-07-11"'),
        (4, "at is not TIMESTAMP: 1704067200000000000"),
    ]
    assert driver.audit() == []


nested = hw.topic(
    "nested", schema="m MAP<STRING, INT>, list ARRAY<STRUCT<day: DATE, of: MAP<STRING, STRING>>>"
)


@hw.job(target=hw.delta("silver.nested"))
def from_nested(nested: DataFrame) -> DataFrame:
    return nested


def test_formats_maps_with_a_key_twice_and_dates_within_are_in_quarantine(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(from_nested)
    inner = '{"day": "2013-01-01", "of": {"a": "x", "b": "y"}}'
    values = [
        f'{{"m": {{"a": 1, "b": 2}}, "list": [{inner}, null]}}',
        '{"m": null, "list": null}',
        '{"m": {"a": 1, "b": 2, "a": 1}}',
        f'{{"list": [{inner}, {{"of": {{"a": "x", "a": null}}}}]}}',
        f'{{"list": [null, {inner}, {{"day": "0000-01-01"}}]}}',
    ]
    driver.send("nested", *[value.encode() for value in values])
    driver.run()
    assert driver.rows("silver.nested", "_offset") == [(0,), (1,)]
    row = "{2013-01-01, {a -> x, b -> y}}"
    reasons = [
        "m has a key twice: {a -> 1, b -> 2, a -> 1}",
        f"list has a key twice: [{row}, {{null, {{a -> x, a -> null}}}}]",
        f"list has a date that is not of the years 1 to 9999: [null, {row}, {{0000-01-01, null}}]",
    ]
    assert driver.rows("silver.nested__quarantine", "_offset", "_reason") == list(enumerate(reasons, 2))
    assert driver.audit() == []
