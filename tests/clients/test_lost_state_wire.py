"""Brokers whose shared state was lost, or is an older copy: no record is removed for it, and it is told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headwater_broker.testing import RunningBroker, broker

TIMEOUT_S = 30


def make(running: RunningBroker, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in topics]).values():
        future.result(TIMEOUT_S)


def send(running: RunningBroker, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def read(running: RunningBroker, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = consumer.consume(count, TIMEOUT_S)
    consumer.close()
    return [each.value() for each in found]


def change(data: Path, **topics: str | None) -> None:
    """Gives topics other ids, or takes them away, as versions before wrote the state: without a digest."""
    path = data / "coordinator.json"
    state = json.loads(path.read_bytes())
    del state["digest"]
    state["topics"] = [each for each in state["topics"] if topics.get(each["name"], "kept") is not None]
    for each in state["topics"]:
        each["topic_id"] = topics.get(each["name"], each["topic_id"])
    path.write_text(json.dumps(state))


OTHER_ID = "00112233-4455-6677-8899-aabbccddeeff"


def test_records_of_another_topic_of_the_name_are_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with broker(tmp_path) as running:
        make(running, "t", "u")
        send(running, "t", b"one", b"two")
        send(running, "u", b"three")
    records = (tmp_path / "t-0/00000000000000000000.log").read_bytes()
    change(tmp_path, t=OTHER_ID)
    with broker(tmp_path) as running:
        send(running, "t", b"new")
        assert read(running, "t", 1) == [b"new"]
        assert read(running, "u", 1) == [b"three"]
    (aside,) = tmp_path.glob("t-0.*-stray")
    assert f"t-0 has records of another topic of that name: they are set aside as {aside}" in caplog.text
    with broker(tmp_path) as running:
        assert read(running, "t", 1) == [b"new"]
    assert (aside / "00000000000000000000.log").read_bytes() == records


def test_logs_of_topics_that_are_not_known_are_told_and_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with broker(tmp_path) as running:
        make(running, "t", "u")
        send(running, "t", b"one", b"two")
    whole = (tmp_path / "coordinator.json").read_bytes()
    change(tmp_path, t=None)
    with broker(tmp_path) as running:
        send(running, "u", b"three")
    told = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert len(told) == 1
    assert re.match(
        r"there are logs of topics that are not known: t\. They are left as they are; if ", told[0]
    )
    assert (tmp_path / ".headwater-offline").read_text().startswith("t 0 no topic of that name is known")
    (tmp_path / "coordinator.json").write_bytes(whole)
    with broker(tmp_path) as running:
        assert read(running, "t", 2) == [b"one", b"two"]
        assert read(running, "u", 1) == [b"three"]
    assert not (tmp_path / ".headwater-offline").exists()


def test_partition_whose_folder_is_gone_is_no_pitfall_for_who_has_read_it(tmp_path: Path) -> None:
    with broker(tmp_path) as running:
        make(running, "t")
        send(running, "t", b"one", b"two", b"three")
    for each in (tmp_path / "t-0").iterdir():
        each.unlink()
    (tmp_path / "t-0").rmdir()
    with broker(tmp_path) as running:
        send(running, "t", b"four")
        consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": "g"})
        consumer.assign([TopicPartition("t", 0, 3)])  # where a group has come to that had read all
        found = consumer.consume(1, TIMEOUT_S)
        consumer.close()
        assert [(each.offset(), each.value()) for each in found] == [(3, b"four")]
        assert read(running, "t", 1) == [b"four"]
