"""The decentralised consumer against a real broker and a real ZooKeeper."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from headwater_broker.consumer import ZooKeeperConsumer
from headwater_broker.coordination import CoordinatorUnavailable, ZooKeeperCoordinator
from headwater_broker.testing import RunningBroker, broker

PARTITIONS = 6
DEADLINE_S = 60
SESSION_MS = 20_000
"""The longest that the tests' server grants: none of these expires by itself."""


class Setup:
    """A broker, its ZooKeeper and a topic of some partitions."""

    def __init__(self, running: RunningBroker, hosts: str) -> None:
        self.bootstrap = running.bootstrap
        self.hosts = hosts
        topic = NewTopic("clicks", num_partitions=PARTITIONS, replication_factor=1)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})  # its futures end with it
        (created,) = admin.create_topics([topic]).values()
        created.result(DEADLINE_S)

    def produce(self, first: int, last: int) -> set[str]:
        """Sends numbered values, spread over the partitions."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        for number in range(first, last):
            producer.produce("clicks", str(number), partition=number % PARTITIONS)
        assert producer.flush(DEADLINE_S) == 0
        return {str(number) for number in range(first, last)}


@pytest.fixture
def setup(zookeeper: Any, tmp_path: Path) -> Iterator[Setup]:
    hosts = f"{zookeeper.hosts}/{uuid4()}"
    with broker(tmp_path, coordinator=ZooKeeperCoordinator(hosts, session_timeout_ms=SESSION_MS)) as running:
        yield Setup(running, hosts)


def read(wanted: set[str], *consumers: ZooKeeperConsumer, commit: bool = True) -> list[str]:
    """Reads with all consumers in turn until everything wanted was seen."""
    seen: list[str] = []
    deadline = time.monotonic() + DEADLINE_S
    while not wanted <= set(seen):
        assert time.monotonic() < deadline, f"{len(wanted - set(seen))} of {len(wanted)} records are missing"
        for consumer in consumers:
            record = consumer.poll(0.02)
            if record is not None:
                assert record.value is not None
                seen.append(record.value.decode())
                if commit:
                    consumer.commit()
    return seen


def settle(condition: Callable[[], bool], *consumers: ZooKeeperConsumer) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, [sorted(consumer.assignment) for consumer in consumers]
        for consumer in consumers:
            assert consumer.poll(0.02) is None


def test_zk_consumer_reads_in_order_and_its_lag_is_seen_by_kafkas_tools(setup: Setup) -> None:
    values = setup.produce(0, 60)
    with ZooKeeperConsumer(setup.hosts, "audit", ["clicks"], session_timeout_ms=SESSION_MS) as consumer:
        seen = read(values, consumer)
        assert sorted(seen, key=int) == sorted(values, key=int)
        for partition in range(PARTITIONS):
            numbers = [int(value) for value in seen if int(value) % PARTITIONS == partition]
            assert numbers == sorted(numbers)
        admin = AdminClient({"bootstrap.servers": setup.bootstrap})
        (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("audit")]).values()
        offsets = {(tp.topic, tp.partition): tp.offset for tp in future.result(DEADLINE_S).topic_partitions}
        assert offsets == {("clicks", partition): 10 for partition in range(PARTITIONS)}
        group = admin.describe_consumer_groups(["audit"])["audit"].result(DEADLINE_S)
        assert (group.state.name, group.partition_assignor) == ("STABLE", "cooperative-sticky")
        (member,) = group.members
        assert member.client_id == consumer.member
        assert {at.partition for at in member.assignment.topic_partitions} == set(range(PARTITIONS))


def test_zk_consumer_goes_on_from_what_a_subscriber_of_the_same_group_committed(setup: Setup) -> None:
    first = setup.produce(0, 30)
    subscriber = Consumer(
        {
            "bootstrap.servers": setup.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    subscriber.subscribe(["clicks"])
    seen: set[str] = set()
    deadline = time.monotonic() + DEADLINE_S
    while seen != first:
        assert time.monotonic() < deadline
        message = subscriber.poll(0.5)
        if message is not None and message.error() is None:
            seen.add(message.value().decode())
    subscriber.commit(asynchronous=False)
    subscriber.close()
    second = setup.produce(30, 60)
    with ZooKeeperConsumer(setup.hosts, "g", ["clicks"], session_timeout_ms=SESSION_MS) as consumer:
        assert set(read(second, consumer)) == second


def end_session(hosts: str, client_id: tuple[int, bytes]) -> None:
    """Ends a session from outside, as the server does when it has heard nothing for too long."""
    thief = KazooClient(hosts.partition("/")[0], client_id=client_id)
    thief.start(timeout=DEADLINE_S)
    thief.stop()
    thief.close()


def committed(consumer: ZooKeeperConsumer) -> bool:
    try:
        consumer.commit()
    except CoordinatorUnavailable:
        return False
    return len(consumer.assignment) == PARTITIONS


MEMBER = """
import sys
from headwater_broker.consumer import ZooKeeperConsumer
consumer = ZooKeeperConsumer(sys.argv[1], "g", ["clicks"], session_timeout_ms=int(sys.argv[2]))
session_id, password = consumer._coordinator._session._client.client_id
print(session_id, password.hex(), flush=True)
for record in consumer:
    print(record.value.decode(), flush=True)
    consumer.commit()
"""


def test_zk_consumer_group_of_three_that_loses_a_member_loses_no_record(setup: Setup, zookeeper: Any) -> None:
    with (
        ZooKeeperConsumer(setup.hosts, "g", ["clicks"], session_timeout_ms=SESSION_MS) as one,
        ZooKeeperConsumer(setup.hosts, "g", ["clicks"], session_timeout_ms=SESSION_MS) as two,
    ):
        third = subprocess.Popen(
            [sys.executable, "-c", MEMBER, setup.hosts, str(SESSION_MS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert third.stdout is not None
        assert third.stderr is not None
        try:
            session_id, password = third.stdout.readline().split()
            settle(lambda: len(one.assignment) == len(two.assignment) == 2, one, two)
            values = setup.produce(0, 60)
            # The third reads its share until it is killed in the middle of it.
            seen_by_third = [third.stdout.readline().strip() for _ in range(5)]
            assert all(seen_by_third), third.stderr.read()
            third.send_signal(signal.SIGKILL)
            rest = third.stdout.read().split()
            third.wait()
            # Its session ends when the server has not heard of it for long enough; here it does so at once.
            end_session(setup.hosts, (int(session_id), bytes.fromhex(password)))
            seen = read(values - set(seen_by_third) - set(rest), one, two)
            settle(lambda: len(one.assignment | two.assignment) == PARTITIONS, one, two)
            assert set(seen) | set(seen_by_third) | set(rest) == values
            # At least once: only what the third had read and not committed may come again.
            assert len(seen) == len(set(seen))
            assert len(set(seen) & (set(seen_by_third) | set(rest))) <= 1
        finally:
            third.kill()
            third.wait()
            third.stdout.close()
            third.stderr.close()
        more = setup.produce(60, 120)
        assert set(read(more, one, two)) == more


def test_zk_consumer_goes_on_after_zookeeper_was_killed(own_zookeeper: Any, tmp_path: Path) -> None:
    data = tmp_path / "broker"
    data.mkdir()
    with broker(
        data, coordinator=ZooKeeperCoordinator(own_zookeeper.hosts, session_timeout_ms=SESSION_MS)
    ) as running:
        setup = Setup(running, own_zookeeper.hosts)
        first = setup.produce(0, 30)
        lost: list[frozenset[tuple[str, int]]] = []
        reader = ZooKeeperCoordinator(setup.hosts)

        def offsets() -> dict[tuple[str, int], int]:
            return {tp: stored.offset for tp, stored in reader.fetch_offsets("g").items()}

        with ZooKeeperConsumer(
            setup.hosts, "g", ["clicks"], session_timeout_ms=SESSION_MS, on_revoked=lost.append
        ) as consumer:
            seen = read(first, consumer)
            own_zookeeper.kill()
            second = setup.produce(30, 60)  # partitions with one replica go on
            own_zookeeper.start()
            seen += read(second, consumer, commit=False)
            reader.start()
            deadline = time.monotonic() + DEADLINE_S
            ends = {("clicks", partition): 10 for partition in range(PARTITIONS)}
            # It may still be connecting: records are handed out meanwhile.
            while not committed(consumer) or offsets() != ends:
                assert time.monotonic() < deadline
                record = consumer.poll(0.05)
                if record is not None:
                    assert lost  # on a busy machine its session expires, and it goes on from its commits
                    assert record.value is not None
                    seen.append(record.value.decode())
            assert len(set(seen)) == 60
            assert lost or len(seen) == 60
        reader.stop()


def expire(consumer: ZooKeeperConsumer) -> None:
    coordinator = consumer._coordinator
    assert isinstance(coordinator, ZooKeeperCoordinator)
    mine = coordinator._session
    end_session(mine.hosts, mine._client.client_id)


def test_zk_consumer_whose_session_expired_registers_again_and_goes_on_from_its_commits(setup: Setup) -> None:
    lost: list[frozenset[tuple[str, int]]] = []
    with ZooKeeperConsumer(
        setup.hosts, "g", ["clicks"], session_timeout_ms=SESSION_MS, on_revoked=lost.append
    ) as consumer:
        first = setup.produce(0, 30)
        assert len(read(first, consumer)) == 30
        expire(consumer)
        second = setup.produce(30, 60)
        seen = read(second, consumer, commit=False)  # it may still be connecting
        assert set(seen) == second, "what was committed does not come again"
        reader = ZooKeeperCoordinator(setup.hosts)
        reader.start()
        try:
            settle(lambda: list(reader.owners("g").values()) == [consumer.member] * PARTITIONS, consumer)
            assert list(reader.members("g")) == [consumer.member]
        finally:
            reader.stop()
        assert lost == [], "what is lost with the session is not revoked: others may have it by then"
