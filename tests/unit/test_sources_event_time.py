"""How an event time is written: a column, or SQL that is computed of each record."""

from dataclasses import replace

import pytest

import headwater as hw
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.names import may_name
from headwater_streams.plan.job import Job
from headwater_streams.sources.decode import needless
from headwater_streams.sources.event_time import (
    EventTime,
    epoch_of,
    event_time_of,
    made_a_time,
    mismatch_hint,
)
from headwater_streams.sources.inputs import TableInput
from headwater_streams.streaming_sql.words import in_sql
from headwater_streams.testing.driver import _made_of


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("at", EventTime("at")),
        ("Ordered_At", EventTime("Ordered_At")),
        ("2nd_at", EventTime("2nd_at")),
        ("Product.At", EventTime("Product.At")),
        ("`Product.At`", EventTime("Product.At")),
        ("payload.at", EventTime("event_time", "payload.at")),
        ("_timestamp", EventTime("event_time", "_timestamp")),
        ("timestamp_millis(ts_ms)", EventTime("event_time", "timestamp_millis(ts_ms)")),
        (" at ", EventTime("at")),
        ("timestamp_millis(ts_ms) ordered_at", EventTime("ordered_at", "timestamp_millis(ts_ms)")),
        ("CASE WHEN a THEN b END `ordered.at`", EventTime("ordered.at", "CASE WHEN a THEN b END")),
        ("CASE WHEN a THEN f(b) END", EventTime("event_time", "CASE WHEN a THEN f(b) END")),
        ("IF(s = 'now', a, CAST(b AS DATE))", EventTime("event_time", "IF(s = 'now', a, CAST(b AS DATE))")),
        (" timestamp_millis(ts_ms)  as  at ", EventTime("at", "timestamp_millis(ts_ms)")),
        ("timestamp_millis(ts) AS `Product.At`", EventTime("Product.At", "timestamp_millis(ts)")),
        ("CAST(at AS TIMESTAMP)", EventTime("event_time", "CAST(at AS TIMESTAMP)")),
        ("to_timestamp(a, 'x AS y')", EventTime("event_time", "to_timestamp(a, 'x AS y')")),
        ("CASE WHEN a THEN b END AS at", EventTime("at", "CASE WHEN a THEN b END")),
        ("timestamp_millis(now)", EventTime("event_time", "timestamp_millis(now)")),
        ("to_timestamp(a, 'now()')", EventTime("event_time", "to_timestamp(a, 'now()')")),
        ("timestamp_seconds(unix_timestamp(a))", EventTime("event_time", "timestamp_seconds(unix_timestamp(a))")),
    ],
)  # fmt: skip
def test_event_time_is_a_column_or_what_is_computed(text: str, time: EventTime) -> None:
    assert event_time_of("topic 't'", text, lambda name: name == "Product.At") == time


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("  ", r"is not the name of a column, nor SQL over columns such as 'timestamp_millis\(ts_ms\)'"),
        (5, r"event_time=5 is not the name of a column"),
        ("timestamp_millis(ts) AS _at", r"name '_at' begins with '_', which is reserved; write AS another_name"),
        ("timestamp_millis(ts) AS `a b`", r"name 'a b' has ' '"),
        ("coalesce(at, current_timestamp())", r"has current_timestamp, which is another one each time"),
        ("coalesce(at, now( ))", r"has now, which .*; the record's own timestamp is _timestamp"),
        ("coalesce(at, TIMESTAMP 'now')", r"has now, which is another one"),
        ("coalesce(at, timestamp_ltz\" Today \")", r"has Today"),
        ("coalesce(at, CAST('yesterday' AS TIMESTAMP))", r"has yesterday"),
        ("coalesce(at, to_timestamp('now'))", r"has now"),
        ("coalesce(at, 'tomorrow'::timestamp)", r"has tomorrow"),
        ("timestamp_seconds(unix_timestamp())", r"has unix_timestamp"),
        ("timestamp_seconds(RAND())", r"has RAND"),
    ],
)  # fmt: skip
def test_event_time_that_is_none_is_refused_in_a_sentence(text: str, reason: str) -> None:
    with pytest.raises(JobDefinitionError, match=rf"^topic 't': .*{reason}"):
        event_time_of("topic 't'", text, lambda _: False)


def test_topic_has_the_column_and_what_it_is_computed_of() -> None:
    plain = hw.topic("t", schema="at TIMESTAMP", event_time="at")
    assert (plain.event_time, plain.computed) == ("at", None)
    computed = hw.topic("t", schema="ts BIGINT", event_time="timestamp_millis(ts)", watermark="1 hour")
    assert (computed.event_time, computed.computed) == ("event_time", "timestamp_millis(ts)")
    assert replace(computed, record=("_key",)).computed == "timestamp_millis(ts)", (
        "a copy is not taken apart again"
    )
    named = hw.topic("t", schema="`Product.At` TIMESTAMP", event_time="Product.At")
    assert (named.event_time, named.computed) == ("Product.At", None)
    parsed = hw.topic("t", format=hw.key_value("`sent.at` TIMESTAMP"), event_time="sent.at")
    assert (parsed.event_time, parsed.computed) == ("sent.at", None)


def test_text_of_an_older_declaration_is_as_it_was() -> None:
    """A job's fingerprint is made of it: no job is another one because the library became newer."""
    topic = hw.topic("t", schema="at TIMESTAMP", event_time="at")
    assert repr(replace(topic, record=("_key",))) == (
        "TopicInput(name='t', schema='at TIMESTAMP', event_time='at', watermark=None, format='json', "
        "max_ahead='1 day', max_offsets_per_batch=1000000, more=())"
    )
    assert repr(TableInput("a.b", "at", None, ("_key",))) == (
        "TableInput(name='a.b', event_time='at', watermark=None)"
    )


def test_fingerprint_is_of_what_the_event_time_is_computed_of() -> None:
    def fingerprint(time: str, keeps: tuple[str, ...] = ()) -> str:
        topic = hw.topic("t", schema="ts BIGINT", event_time=time)
        return Job("j", lambda t: t, {"t": topic}, hw.delta("a.b"), text="SELECT", keeps=keeps).fingerprint

    millis = fingerprint("timestamp_millis(ts)")
    assert fingerprint("timestamp_millis(ts) AS event_time") == millis
    assert fingerprint("timestamp_seconds(ts)") != millis
    assert fingerprint("timestamp_millis(ts)", keeps=("_key",)) != millis


def test_texts_that_a_time_is_computed_of_are_read_with_the_others() -> None:
    import pyspark.sql.types as T

    schema = T.StructType().add("at", "string").add("who", "string").add("ts", "long")
    plain = hw.topic("t", schema="at STRING, who STRING, ts BIGINT", event_time="timestamp_millis(ts)")
    assert needless(plain, schema) == {"at", "who"}
    texts = hw.topic("t", schema="at STRING, who STRING, ts BIGINT", event_time="to_timestamp(At)")
    assert needless(texts, schema) == {"who"}
    assert may_name("to_timestamp(`at`)", "at")
    assert not may_name("to_timestamp(attic)", "at")


def test_advice_makes_a_time_of_each_type() -> None:
    assert 'event_time="timestamp_millis(ts_ms)"' in made_a_time("ts_ms", "BIGINT")
    assert 'timestamp_seconds(ts)" where it counts seconds' in made_a_time("ts", "DECIMAL(10,3)")
    assert "timestamp_millis(CAST(ts AS BIGINT)) where milliseconds" in made_a_time("ts", "DOUBLE")
    assert "to_timestamp(at, 'yyyy-MM-dd HH:mm:ss')" in made_a_time("at", "STRING")
    assert 'CAST(day AS TIMESTAMP)"' in made_a_time("day", "DATE")
    assert "CAST(_key AS STRING)" in made_a_time("_key", "BINARY")
    assert made_a_time("tags", "ARRAY<STRING>") == ""
    in_python = "must be TIMESTAMP" + made_a_time("ts", "BIGINT")
    assert in_sql(in_python).startswith("must be TIMESTAMP; write event_time => timestamp_millis(ts) where")


def test_argument_of_the_wrong_type_is_told_what_fits() -> None:
    whole = "; it takes whole numbers: timestamp_millis(CAST(`ts ms` AS BIGINT))"
    assert mismatch_hint("timestamp_millis(`ts ms`)", "DOUBLE") == whole
    assert mismatch_hint("timestamp_millis(`ts ms`)", "DECIMAL(10,3)") == whole
    assert "CAST(ts AS BIGINT)" in mismatch_hint("timestamp_seconds(ts)", "STRING")
    assert (
        mismatch_hint("timestamp_millis(ts)", "BOOLEAN")
        == mismatch_hint("timestamp_millis(ts + 1)", "DOUBLE")
        == ""
    )
    assert "are BINARY" in mismatch_hint("timestamp_millis(_headers['x'])", "BINARY")
    assert "are BINARY" in mismatch_hint("to_timestamp(substr(_KEY, 2))", "BINARY")


def test_driver_makes_a_value_of_a_time_where_it_can() -> None:
    def made(time: str) -> dict[str, object]:
        return _made_of(
            hw.topic("t", schema="at TIMESTAMP, ts BIGINT", event_time=time), "2024-03-04T10:00:00.5Z"
        )

    assert epoch_of("TIMESTAMP_MILLIS( `ts` )") == ("ts", 1_000)
    assert made("at") == {"at": "2024-03-04T10:00:00.5Z"}
    assert made("timestamp_seconds(ts)") == {"ts": 1_709_546_400}
    assert made("timestamp_millis(ts) AS sent_at") == {"ts": 1_709_546_400_500}
    assert made("timestamp_micros(ts)") == {"ts": 1_709_546_400_500_000}
    assert made("timestamp_millis(ts * 10)") == {}
