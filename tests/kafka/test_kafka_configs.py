"""What consoles see of settings, and what happens when they change them: the same as with Apache Kafka's broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)

from headwater_broker.testing import broker

GIVEN = {"log.retention.hours": "24", "num.partitions": "3", "log.segment.bytes": "1000000"}
NOT_HERE = ("broker.heartbeat", "broker.session", "controller.", "early.", "eligible.", "group.con", "group.coo",
            "group.share", "initial.", "kafka.", "log.dir.failure", "metadata.", "node.", "process.",
            "remote.", "sasl.mechanism.controller", "telemetry.", "zookeeper.metadata")  # fmt: skip
OURS = {
    # Defaults of our own; each says why in settings.py.
    "log.flush.scheduler.interval.ms", "socket.listen.backlog.size", "socket.receive.buffer.bytes",
    "sasl.enabled.mechanisms", "socket.send.buffer.bytes", "ssl.keystore.type", "ssl.truststore.type",
    "zookeeper.connection.timeout.ms",
    # What differs by broker.
    "broker.id", "listeners", "log.dirs", "zookeeper.connect",
    # What only one of the two was started with.
    "group.initial.rebalance.delay.ms", "group.min.session.timeout.ms", "log.segment.delete.delay.ms",
    "offsets.topic.num.partitions", "offsets.topic.replication.factor", "zookeeper.session.timeout.ms",
    "transaction.state.log.min.isr", "transaction.state.log.num.partitions",
    "transaction.state.log.replication.factor",
}  # fmt: skip
SET, DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE
APPEND, SUBTRACT = AlterConfigOpType.APPEND, AlterConfigOpType.SUBTRACT


@pytest.fixture(scope="module")
def admins(
    zookeeper: Any, kafka_jars: Path, kafka_broker_class: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[AdminClient, AdminClient]]:
    """Clients of Apache Kafka and of ours, each with a topic `t` that has settings of its own."""
    directory = tmp_path_factory.mktemp("configs")
    kafka = kafka_broker_class(kafka_jars, directory, f"{zookeeper.hosts}/configs", directory / "kafka")
    kafka.start(**{name.replace(".", "_"): value for name, value in GIVEN.items()})
    try:
        with broker(directory / "ours", properties=GIVEN) as running:
            pair = tuple(
                AdminClient({"bootstrap.servers": address})
                for address in (kafka.bootstrap, running.bootstrap)
            )
            for admin in pair:
                topic = NewTopic("t", 1, 1, config={"retention.ms": "5000", "cleanup.policy": "compact"})
                admin.create_topics([topic])["t"].result(30)
            yield pair  # type: ignore[misc]
    finally:
        kafka.kill()


Entry = tuple[str | None, str, bool, bool, list[tuple[str, str | None, str]]]


def describe(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, Entry]:
    """By name: value, source, whether read-only, whether sensitive, and the synonyms."""
    resource = ConfigResource(kind, name)
    found = admin.describe_configs([resource])[resource].result(30)
    return {
        key: (
            entry.value,
            ConfigSource(entry.source).name,
            entry.is_read_only,
            entry.is_sensitive,
            [(each.name, each.value, ConfigSource(each.source).name) for each in entry.synonyms.values()],
        )
        for key, entry in found.items()
    }


def test_topic_settings_are_told_as_kafka_tells_them(admins: tuple[AdminClient, AdminClient]) -> None:
    theirs, ours = (describe(admin, ResourceType.TOPIC, "t") for admin in admins)
    assert set(theirs) - set(ours) == set()
    assert set(ours) - set(theirs) == {
        *("acks.fsync", "counts.bucket.ms", "expose"),
        *("confluent.key.schema.validation", "confluent.value.schema.validation"),
    }
    differences = {
        name: (ours[name], theirs[name])
        for name in ours.keys() & theirs.keys()
        if ours[name] != theirs[name] and name not in ("file.delete.delay.ms", "flush.ms")
    }
    assert differences == {}


def test_broker_settings_are_told_as_kafka_tells_them(admins: tuple[AdminClient, AdminClient]) -> None:
    theirs, ours = (describe(admin, ResourceType.BROKER, "1") for admin in admins)
    assert {name for name in set(theirs) - set(ours) if not name.startswith(NOT_HERE)} == set()
    differences = {
        name: (ours[name], theirs[name])
        for name in ours.keys() & theirs.keys()
        if ours[name] != theirs[name] and name not in OURS
    }
    # A running broker of ours takes no new addresses, certificates or Java classes.
    fixed = {
        name
        for name, (mine, other) in differences.items()
        if mine[2] and not other[2] and (mine[:2], mine[3:]) == (other[:2], other[3:])
    }
    assert all(
        name.startswith(("advertised.", "listener", "metric", "principal", "sasl.", "ssl.")) for name in fixed
    )
    assert {name: pair for name, pair in differences.items() if name not in fixed} == {}


CHANGES = [
    (ResourceType.TOPIC, "t", "segment.bytes", "2000", SET),
    (ResourceType.TOPIC, "t", "segment.bytes", "13", SET),
    (ResourceType.TOPIC, "t", "segment.bytes", "big", SET),
    (ResourceType.TOPIC, "t", "no.such.setting", "1", SET),
    (ResourceType.TOPIC, "t", "cleanup.policy", "delete", APPEND),
    (ResourceType.TOPIC, "t", "cleanup.policy", "compact", SUBTRACT),
    (ResourceType.TOPIC, "t", "segment.bytes", "1", APPEND),
    (ResourceType.TOPIC, "t", "segment.bytes", None, DELETE),
    (ResourceType.TOPIC, "t", "preallocate", "maybe", SET),
    (ResourceType.TOPIC, "t", "min.compaction.lag.ms", "9223372036854775807", SET),
    (ResourceType.TOPIC, "t", "max.compaction.lag.ms", "5", SET),
    (ResourceType.TOPIC, "missing", "segment.bytes", "2000", SET),
    (ResourceType.BROKER, "1", "log.retention.ms", "100000", SET),
    (ResourceType.BROKER, "1", "log.retention.ms", "soon", SET),
    (ResourceType.BROKER, "1", "num.partitions", "2", SET),
    (ResourceType.BROKER, "1", "log.cleaner.threads", "2", SET),
    (ResourceType.BROKER, "1", "log.cleanup.policy", "compact", APPEND),
    (ResourceType.BROKER, "1", "message.max.bytes", "2000000", SET),
    (ResourceType.BROKER, "1", "sasl.kerberos.min.time.before.relogin", "58000", SET),
    (ResourceType.TOPIC, "t", "message.format.version", "0.10.0.0", SET),
    (ResourceType.TOPIC, "t", "local.retention.ms", "3000", SET),
    (ResourceType.TOPIC, "t", "local.retention.bytes", "-3", SET),
    (ResourceType.TOPIC, "t", "remote.storage.enable", "true", SET),
    (ResourceType.TOPIC, "t", "remote.log.copy.disable", "true", SET),
    (ResourceType.TOPIC, "t", "remote.log.copy.disable", "false", SET),
    (ResourceType.TOPIC, "t", "remote.log.delete.on.disable", "true", SET),
    (ResourceType.BROKER, "1", "log.local.retention.ms", "7000", SET),
    (ResourceType.BROKER, "1", "log.local.retention.bytes", "-3", SET),
]


@pytest.mark.parametrize("validate_only", [True, False])
def test_changes_are_taken_or_refused_as_kafka_does(
    admins: tuple[AdminClient, AdminClient], validate_only: bool
) -> None:
    outcomes: list[list[str]] = []
    for admin in admins:
        outcome = []
        for kind, name, key, value, operation in CHANGES:
            entry = ConfigEntry(key, value, incremental_operation=operation)
            resource = ConfigResource(kind, name, incremental_configs=[entry])
            try:
                admin.incremental_alter_configs([resource], validate_only=validate_only)[resource].result(30)
                outcome.append(f"{key} {value}: taken")
            except KafkaException as error:
                outcome.append(f"{key} {value}: {error.args[0].name()}")
        outcomes.append(outcome)
    assert outcomes[1] == outcomes[0]
    for kind, name in ((ResourceType.TOPIC, "t"), (ResourceType.BROKER, "1")):
        theirs, ours = (describe(admin, kind, name) for admin in admins)
        for key in {change[2] for change in CHANGES} & theirs.keys():
            assert ours[key] == theirs[key]
