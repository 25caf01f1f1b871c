"""Several brokers over one ZooKeeper, and what a broker leaves there in Kafka's layout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

DEADLINE_S = 60

MEMBER = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({
    "bootstrap.servers": sys.argv[1], "group.id": "mortal", "auto.offset.reset": "earliest",
    "session.timeout.ms": 1500, "heartbeat.interval.ms": 200,
})
consumer.subscribe(["watched"])
while True:
    consumer.poll(0.1)
    print(len(consumer.assignment()), flush=True)
"""


def until(condition: Callable[[], bool], what: str) -> None:
    """Polls a condition."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.05)


def read_as_group(bootstrap: str, group: str, topic: str, count: int) -> None:
    """Joins a group, reads that many different messages, commits and leaves."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen: set[bytes] = set()

    def all_seen() -> bool:
        seen.update(message.value() for message in consumer.consume(count, 0.2))
        return len(seen) == count

    until(all_seen, f"{count} messages")
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.fixture
def chroot(zookeeper: Any, tmp_path: Path) -> str:
    return f"{zookeeper.hosts}/{tmp_path.name}-{os.getpid()}"


@pytest.fixture
def brokers(chroot: str, tmp_path: Path, broker_process_class: Any) -> Iterator[list[Any]]:
    """Three brokers of one cluster."""
    processes = [broker_process_class(tmp_path, ["--zookeeper", chroot], each) for each in (1, 2, 3)]
    try:
        # A test waits for the end of the third's session; a busy machine must not end those of the others.
        for process, session_ms in zip(processes, (20_000, 20_000, 3000), strict=True):
            process.start(f"zookeeper.session.timeout.ms={session_ms}")
        yield processes
    finally:
        for process in processes:
            process.kill()


def test_cluster_of_three_spreads_topics_groups_and_deletions(brokers: list[Any]) -> None:
    admin = AdminClient({"bootstrap.servers": brokers[1].bootstrap})
    until(lambda: len(admin.list_topics(timeout=DEADLINE_S).brokers) == 3, "three brokers in the metadata")
    admin.create_topics([NewTopic("spread", 6, 1)], operation_timeout=DEADLINE_S)["spread"].result(DEADLINE_S)

    def leaders() -> list[int]:
        topic = admin.list_topics("spread", timeout=DEADLINE_S).topics["spread"]
        return sorted(partition.leader for partition in topic.partitions.values())

    until(lambda: leaders() == [1, 1, 2, 2, 3, 3], "two partitions on each broker")
    producer = Producer({"bootstrap.servers": brokers[2].bootstrap})
    for index in range(60):
        producer.produce("spread", str(index).encode(), partition=index % 6)
    assert producer.flush(DEADLINE_S) == 0
    for group in ("a", "b", "c", "d"):  # each coordinated by some broker
        read_as_group(brokers[0].bootstrap, group, "spread", 60)
    groups = admin.list_consumer_groups().result(DEADLINE_S).valid
    assert sorted(each.group_id for each in groups) == ["a", "b", "c", "d"]
    admin.delete_topics(["spread"], operation_timeout=DEADLINE_S)["spread"].result(DEADLINE_S)
    until(lambda: not [each for broker in brokers for each in broker.data.glob("spread-?")], "no log left")


def test_cluster_member_lost_its_partitions_have_no_leader_until_it_returns(brokers: list[Any]) -> None:
    admin = AdminClient({"bootstrap.servers": brokers[0].bootstrap})
    until(lambda: len(admin.list_topics(timeout=DEADLINE_S).brokers) == 3, "three brokers in the metadata")
    admin.create_topics([NewTopic("steady", 3, 1)], operation_timeout=DEADLINE_S)["steady"].result(DEADLINE_S)
    brokers[2].kill()

    def leaders() -> list[int]:
        topic = admin.list_topics("steady", timeout=DEADLINE_S).topics["steady"]
        return sorted(partition.leader for partition in topic.partitions.values())

    until(lambda: leaders() == [-1, 1, 2], "a partition without leader")
    brokers[2].start()  # with its usual session
    assert brokers[2].ready_cpu_s < 5
    until(lambda: leaders() == [1, 2, 3], "all partitions led")


def test_zookeeper_holds_kafkas_layout(chroot: str, tmp_path: Path, broker_process_class: Any) -> None:
    process = broker_process_class(tmp_path, ["--zookeeper", chroot], 5).start()
    client = KazooClient(chroot)
    client.start(timeout=DEADLINE_S)
    try:
        producer = Producer({"bootstrap.servers": process.bootstrap})
        producer.produce("laid-out", b"x")
        assert producer.flush(DEADLINE_S) == 0

        def read(path: str) -> Any:
            return json.loads(client.get(path)[0])

        registration = read("/brokers/ids/5")
        assert registration["endpoints"] == [f"PLAINTEXT://{process.bootstrap}"]
        assert f"{registration['host']}:{registration['port']}" == process.bootstrap
        assert read("/controller")["brokerid"] == 5
        assert read("/brokers/topics/laid-out")["partitions"] == {"0": [5]}
        state = read("/brokers/topics/laid-out/partitions/0/state")
        assert (state["leader"], state["isr"]) == (5, [5])
        assert process.stop() == 0
        assert client.get_children("/brokers/ids") == []
    finally:
        client.stop()
        client.close()
        process.kill()


def test_zookeeper_lost_for_a_while_produce_and_fetch_go_on(
    own_zookeeper: Any, tmp_path: Path, broker_process_class: Any
) -> None:
    process = broker_process_class(tmp_path, ["--zookeeper", own_zookeeper.hosts]).start(
        "zookeeper.session.timeout.ms=1000"
    )
    try:
        producer = Producer({"bootstrap.servers": process.bootstrap})
        producer.produce("steady", b"before", partition=0)
        assert producer.flush(DEADLINE_S) == 0
        own_zookeeper.kill()
        producer.produce("steady", b"without", partition=0)
        assert producer.flush(DEADLINE_S) == 0
        own_zookeeper.start()
        admin = AdminClient({"bootstrap.servers": process.bootstrap})

        def creates() -> bool:
            future = admin.create_topics([NewTopic("after", 1, 1)], operation_timeout=2)["after"]
            return future.exception(DEADLINE_S) is None or "after" in admin.list_topics(timeout=5).topics

        until(creates, "a topic can be created again")
        consumer = Consumer({"bootstrap.servers": process.bootstrap, "group.id": "x"})
        consumer.assign([TopicPartition("steady", 0, OFFSET_BEGINNING)])
        seen: list[bytes] = []
        until(lambda: seen.extend(m.value() for m in consumer.consume(2, 0.2)) or len(seen) == 2, "both")
        consumer.close()
        assert seen == [b"before", b"without"]
    finally:
        process.kill()


def test_group_member_killed_loses_its_partitions_to_the_others(broker_process: Any) -> None:
    bootstrap = broker_process.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("watched", 3, 1)])["watched"].result(DEADLINE_S)
    config = {"bootstrap.servers": bootstrap, "group.id": "mortal", "session.timeout.ms": 1500}
    members = [Consumer(config | {"heartbeat.interval.ms": 200}) for _ in range(2)]
    for member in members:
        member.subscribe(["watched"])
    mortal = subprocess.Popen([sys.executable, "-c", MEMBER, bootstrap], stdout=subprocess.PIPE, text=True)
    try:

        def sizes() -> list[int]:
            for member in members:
                member.poll(0.05)
            return sorted(len(member.assignment()) for member in members)

        until(lambda: sizes() == [1, 1], "one partition for each of three")
        mortal.kill()
        until(lambda: sizes() == [1, 2], "the dead member's partition with another")
    finally:
        mortal.kill()
        mortal.communicate()
        for member in members:
            member.close()
