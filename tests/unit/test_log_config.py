"""Topic settings under Kafka's names."""

from __future__ import annotations

import dataclasses
import re

import pytest

from headwater_broker.log import (
    BROKER_DEFAULTS,
    CONFIG_KEYS,
    InvalidConfigError,
    LogConfig,
    format_value,
    parse_value,
)


def test_keys_and_fields_are_the_same_set() -> None:
    fields = {field.name.replace("_", ".") for field in dataclasses.fields(LogConfig)}
    assert fields == set(CONFIG_KEYS)


@pytest.mark.parametrize("name", CONFIG_KEYS)
def test_parse_value_reads_back_every_default(name: str) -> None:
    default = CONFIG_KEYS[name].default
    assert parse_value(name, format_value(default)) == default
    assert CONFIG_KEYS[name].doc.endswith(".")


def test_parse_on_a_base_changes_only_what_is_given() -> None:
    base = LogConfig(retention_ms=5)
    config = LogConfig.parse({"segment.bytes": "1000", "cleanup.policy": "compact, delete"}, base)
    assert config == dataclasses.replace(base, segment_bytes=1000, cleanup_policy=("compact", "delete"))
    assert config.compacts
    assert config.deletes


def test_parse_unknown_name_tells_the_nearest() -> None:
    with pytest.raises(InvalidConfigError, match=r"segment\.byte; the nearest known one is segment\.bytes"):
        LogConfig.parse({"segment.byte": "1"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("segment.bytes", "1GB"),
        ("segment.bytes", "13"),
        ("segment.bytes", str(2**31)),
        ("retention.ms", "-2"),
        ("compression.gzip.level", "0"),
        ("remote.storage.enable", "true"),
        ("leader.replication.throttled.replicas", "0-1"),
        ("message.format.version", "new"),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", "delete,shred"),
        ("acks.fsync", "yes"),
        ("message.timestamp.type", "createtime"),
        ("min.cleanable.dirty.ratio", "1.5"),
    ],
)
def test_parse_value_not_allowed_tells_what_is(name: str, text: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"^Invalid value {text} for configuration {name}: "):
        parse_value(name, text)


NO_NUMBERS = [
    "",
    "1_000",
    "\u0661\u0662",
    "\uff11",
    "\u00a05",
    "5\u2003",
    "0x10",
    "1e3",
    "5.0",
    "+-5",
    "- 5",
    "5L",
    "1" * 5000,
]
NO_DECIMALS = [
    "",
    "nan",
    "NaN",
    "inf",
    "-Infinity",
    "infinity",
    "1e999",
    "0.1_0",
    "0.\u0665",
    "0x1p-1",
    ".",
    "0.5x",
    "0,5",
]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("segment.bytes", text) for text in NO_NUMBERS),
        *(("retention.ms", text) for text in NO_NUMBERS),
        *(("min.cleanable.dirty.ratio", text) for text in NO_DECIMALS),
        ("leader.replication.throttled.replicas", "\u0661:1"),
        ("message.format.version", "\u0663.0"),
    ],
)
def test_parse_value_what_only_python_reads_as_a_number_is_refused(name: str, text: str) -> None:
    with pytest.raises(
        InvalidConfigError, match=f"^Invalid value {re.escape(text)} for configuration {name}: "
    ):
        parse_value(name, text)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("segment.bytes", " +5000\t", 5000),
        ("retention.ms", "-1", -1),
        ("retention.ms", "007", 7),
        ("min.cleanable.dirty.ratio", " .5 ", 0.5),
        ("min.cleanable.dirty.ratio", "5e-1", 0.5),
        ("min.cleanable.dirty.ratio", "1.", 1.0),
        ("min.cleanable.dirty.ratio", "0.5d", 0.5),
    ],
)
def test_parse_value_reads_numbers_as_java_does(name: str, text: str, value: float) -> None:
    assert parse_value(name, text) == value


@pytest.mark.parametrize("version", ["0.10.0", "0.10.0.0", "0.11.0-IV2", "2.4", "3.0-IV1", "3.9.1"])
def test_parse_message_format_version_of_any_release_taken(version: str) -> None:
    """Kafka 3 takes them all and uses none; librdkafka's own tests give four numbers."""
    assert parse_value("message.format.version", version) == version


def test_parse_lags_that_contradict_each_other_refused() -> None:
    with pytest.raises(
        InvalidConfigError, match=r"min\.compaction\.lag\.ms \(5\) > max\.compaction\.lag\.ms \(4\)"
    ):
        LogConfig.parse({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"})


def test_timestamp_bounds_win_over_the_older_setting_for_both() -> None:
    config = LogConfig.parse(
        {"message.timestamp.difference.max.ms": "5", "message.timestamp.after.max.ms": "7"}
    )
    assert (config.timestamp_before_max_ms, config.timestamp_after_max_ms) == (5, 7)


def test_parse_expose_flushed_needs_a_flush_policy() -> None:
    with pytest.raises(InvalidConfigError, match=r"flush\.messages or flush\.ms"):
        LogConfig.parse({"expose": "flushed"})
    assert LogConfig.parse({"expose": "flushed", "flush.ms": "10"}).expose == "flushed"


def test_broker_defaults_name_every_setting_once() -> None:
    assert set(BROKER_DEFAULTS.values()) <= set(CONFIG_KEYS)
    only_topics = set(CONFIG_KEYS) - set(BROKER_DEFAULTS.values())
    parts = ("repl", "local", "remote", "confluent")
    assert all(any(part in name for part in parts) for name in only_topics)
    assert BROKER_DEFAULTS["log.segment.bytes"] == "segment.bytes"
    assert BROKER_DEFAULTS["message.max.bytes"] == "max.message.bytes"
