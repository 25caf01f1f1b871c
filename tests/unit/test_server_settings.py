"""Broker properties by Kafka's names."""

from __future__ import annotations

import dataclasses

import pytest

from headwater_broker.log import BROKER_DEFAULTS
from headwater_broker.server.errors import UsageError
from headwater_broker.server.properties import PROPERTIES, REPLICATION_FACTORS, WITHOUT_EFFECT, has_no_effect
from headwater_broker.server.settings import BrokerSettings, parse_settings


def test_settings_nothing_given_are_the_defaults() -> None:
    assert parse_settings({}) == BrokerSettings()


def test_settings_each_property_has_a_field_and_each_field_a_property() -> None:
    others = {"log", "listener_overrides", "properties"}
    fields = {field.name for field in dataclasses.fields(BrokerSettings)} - others
    assert {spec.field for spec in PROPERTIES.values()} == fields


def test_settings_values_are_typed() -> None:
    settings = parse_settings(
        {
            "num.partitions": "3",
            "auto.create.topics.enable": "FALSE",
            "broker.rack": "a",
            "log.segment.bytes": "5000",
        }
    )
    assert settings.num_partitions == 3
    assert settings.auto_create_topics_enable is False
    assert settings.broker_rack == "a"
    assert settings.log.segment_bytes == 5000


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.minutes": "3", "log.retention.hours": "2"}, 180_000),
        ({"log.retention.ms": "5", "log.retention.hours": "2"}, 5),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_settings_the_finer_unit_wins(given: dict[str, str], retention_ms: int) -> None:
    assert parse_settings(given).log.retention_ms == retention_ms


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("num.partition", "num.partitions"), ("log.retention.hour", "log.retention.hours"), ("x", None)],
)
def test_settings_unknown_property_names_the_nearest(name: str, nearest: str | None) -> None:
    with pytest.raises(
        UsageError, match=f"unknown broker property {name}; the nearest known one is {nearest or ''}"
    ):
        parse_settings({name: "1"})


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("num.partitions", "many", "a whole number"),
        ("num.partitions", "0", "1 to"),
        ("auto.create.topics.enable", "yes", "true or false"),
        ("log.segment.bytes", "-1", "segment.bytes"),
        ("log.retention.hours", "soon", "a whole number"),
        ("num.partitions", "1_0", "a whole number"),
        ("num.partitions", "\u0661\u0662", "a whole number"),
        ("num.partitions", "\u00a05", "a whole number"),
        ("log.retention.hours", "1_0", "a whole number"),
        ("log.retention.hours", "\u0663", "a whole number"),
        ("log.cleaner.io.max.bytes.per.second", "inf", "a number"),
        ("log.cleaner.io.max.bytes.per.second", "nan", "a number"),
        ("log.cleaner.io.max.bytes.per.second", "1_0.5", "a number"),
        ("listener.name.plaintext.max.connections", "1_0", "a whole number"),
        ("listener.name.x.plain.connections.max.reauth.ms", "\u0663", "a whole number"),
        ("listener.name.x.scram-sha-256.connections.max.reauth.ms", "soon", "a whole number"),
    ],
)
def test_settings_value_that_is_not_allowed_says_what_is(name: str, value: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse_settings({name: value})


@pytest.mark.parametrize("name", sorted(REPLICATION_FACTORS))
def test_settings_that_ask_for_replicas_say_that_there_are_none(name: str) -> None:
    assert parse_settings({name: "1"})
    for text in ("2", " 3", "32767"):
        with pytest.raises(UsageError, match=rf"{name}= ?\d+ is not allowed: brokers do not replicate"):
            parse_settings({name: text})


def test_settings_of_machinery_that_is_not_here_are_taken() -> None:
    assert parse_settings(dict.fromkeys(WITHOUT_EFFECT, "1")) == BrokerSettings()


def test_settings_of_javas_tls_are_taken_and_those_that_promise_safety_are_not() -> None:
    assert has_no_effect("ssl.endpoint.identification.algorithm")
    assert has_no_effect("ssl.secure.random.implementation")
    assert not has_no_effect("ssl.provider")


def test_settings_each_property_says_what_it_is() -> None:
    assert all(spec.doc.endswith(".") for spec in PROPERTIES.values())
    assert not PROPERTIES.keys() & BROKER_DEFAULTS.keys()
