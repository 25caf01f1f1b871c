"""Groups by `subscribe()`, whatever the broker keeps its shared state in: librdkafka's members."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from headwater_broker.coordination import MemoryCluster, MemoryCoordinator
from headwater_broker.testing import RunningBroker, WireClient, broker
from headwater_broker.wire.apis import DESCRIBE_GROUPS, FIND_COORDINATOR

DEADLINE_S = 60
_LOG = logging.getLogger(__name__)
STRATEGIES = ["range", "roundrobin", "cooperative-sticky"]


class Member:
    """A consumer that notes what it is given and what is taken from it."""

    def __init__(self, running: RunningBroker, group: str, topic: str, **config: Any) -> None:
        self.assigned: list[set[int]] = []
        self.revoked: list[set[int]] = []
        self.values: list[bytes] = []
        self.errors: list[int] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": running.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 60_000,
                "heartbeat.interval.ms": 100,
                **config,
            }
        )
        self.consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned.append({each.partition for each in partitions})

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.revoked.append({each.partition for each in partitions})

    @property
    def partitions(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is None:
            return
        error = message.error()
        if error is not None:
            self.errors.append(error.code())
        else:
            self.values.append(message.value())


@pytest.fixture
def topic(new_topic: Callable[[int], str]) -> str:
    return new_topic(6)


@pytest.fixture
def group() -> str:
    return f"group-{uuid4().hex[:8]}"


Join = Callable[..., Member]


@pytest.fixture
def join(any_broker: RunningBroker, group: str, topic: str) -> Iterator[Join]:
    """Makes members of the group; those that are left are closed at the end."""
    members: list[Member] = []

    def made(**config: Any) -> Member:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        members.append(Member(any_broker, group, topic, **settings))
        return members[-1]

    yield made
    for member in members:
        member.consumer.close()


def until(condition: Callable[[], bool], what: str, *members: Member) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        for member in members:
            member.poll()
        if not members:
            time.sleep(0.02)


def until_shared(sizes: list[int], *members: Member) -> None:
    def is_shared() -> bool:
        shares = [member.partitions for member in members]
        return sorted(map(len, shares)) == sizes and set().union(*shares) == set(range(6))

    until(is_shared, f"shares of {sizes}", *members)


def produce(running: RunningBroker, topic: str, first: int, last: int) -> set[bytes]:
    producer = Producer({"bootstrap.servers": running.bootstrap})
    values = {str(number).encode() for number in range(first, last)}
    for value in values:
        producer.produce(topic, value, partition=int(value) % 6)
    assert producer.flush(DEADLINE_S) == 0
    return values


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_group_shares_partitions_and_reads_everything(
    any_broker: RunningBroker, topic: str, join: Join, strategy: str
) -> None:
    one, two = (join(partition_assignment_strategy=strategy) for _ in range(2))
    until_shared([3, 3], one, two)
    values = produce(any_broker, topic, 0, 60)
    until(lambda: len(one.values + two.values) >= 60, "60 messages", one, two)
    assert sorted(one.values + two.values) == sorted(values)
    three = join(partition_assignment_strategy=strategy)
    until_shared([2, 2, 2], one, two, three)
    two.consumer.close()
    until_shared([3, 3], one, three)
    assert not one.errors


def test_group_cooperative_members_keep_what_they_do_not_give_away(join: Join) -> None:
    one = join(partition_assignment_strategy="cooperative-sticky")
    until_shared([6], one)
    two = join(partition_assignment_strategy="cooperative-sticky")
    until_shared([3, 3], one, two)
    assert one.revoked == [two.partitions], "only what went to the other one"
    assert one.assigned[0] == set(range(6))
    assert all(not later for later in one.assigned[1:])


def test_group_eager_members_give_everything_up(join: Join) -> None:
    one = join(partition_assignment_strategy="range")
    until_shared([6], one)
    two = join(partition_assignment_strategy="range")
    until_shared([3, 3], one, two)
    assert one.revoked == [set(range(6))]


def test_group_of_members_with_several_strategies_takes_the_common_one(
    admin: AdminClient, group: str, join: Join
) -> None:
    one = join(partition_assignment_strategy="roundrobin,range")
    two = join(partition_assignment_strategy="range")
    until_shared([3, 3], one, two)
    described = admin.describe_consumer_groups([group])[group].result(DEADLINE_S)
    assert described.partition_assignor == "range"


def test_group_member_with_another_strategy_is_refused(join: Join) -> None:
    one = join(partition_assignment_strategy="range")
    until_shared([6], one)
    other = join(partition_assignment_strategy="roundrobin")
    until(lambda: bool(other.errors), "an error", one, other)
    assert other.errors[0] == KafkaError.INCONSISTENT_GROUP_PROTOCOL
    assert len(one.partitions) == 6


def test_group_member_that_stops_polling_loses_its_partitions(join: Join) -> None:
    one = join()
    stalls = join(session_timeout_ms=1000, max_poll_interval_ms=1000)
    until_shared([3, 3], one, stalls)
    until_shared([6], one)
    until(lambda: KafkaError._MAX_POLL_EXCEEDED in stalls.errors, "the member to hear of it", stalls)
    until_shared([3, 3], one, stalls)


def test_static_member_comes_back_to_its_partitions_without_a_rebalance(
    any_broker: RunningBroker, topic: str, join: Join
) -> None:
    one, two = (join(group_instance_id=name, session_timeout_ms=60_000) for name in ("a", "b"))
    until_shared([3, 3], one, two)
    had = two.partitions
    before = (len(one.assigned), len(one.revoked))
    two.consumer.close()  # a static member does not say that it leaves
    back = join(group_instance_id="b", session_timeout_ms=60_000)
    until(lambda: back.partitions == had, "the same partitions", one, back)
    values = produce(any_broker, topic, 0, 12)
    until(lambda: len(one.values + back.values) == 12, "twelve messages", one, back)
    assert set(one.values + back.values) == values
    assert (len(one.assigned), len(one.revoked)) == before


def test_static_member_of_the_same_name_fences_the_first(join: Join) -> None:
    first = join(group_instance_id="a")
    until_shared([6], first)
    second = join(group_instance_id="a")
    until_shared([6], second)
    until(lambda: KafkaError._FATAL in first.errors, "the first to be fenced", first, second)
    error = first.consumer  # librdkafka keeps the reason beside its own code
    with pytest.raises(KafkaException) as fenced:
        error.commit(asynchronous=False, offsets=[TopicPartition("any", 0, 1)])
    assert fenced.value.args[0].code() in (KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL)


def test_group_goes_on_from_its_commits(any_broker: RunningBroker, topic: str, join: Join) -> None:
    produce(any_broker, topic, 0, 30)
    one = join()
    until(lambda: len(one.values) == 30, "30 messages", one)
    one.consumer.commit(asynchronous=False)
    one.consumer.close()
    values = produce(any_broker, topic, 30, 60)
    two = join()
    until(lambda: len(two.values) >= 30, "the other 30 messages", two)
    assert sorted(two.values) == sorted(values)


def test_group_commit_of_whoever_is_no_member_is_refused(
    any_broker: RunningBroker, admin: AdminClient, group: str, topic: str, join: Join
) -> None:
    one = join()
    until_shared([6], one)
    change = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])]
    altered = admin.alter_consumer_group_offsets(change)[group].result(DEADLINE_S)
    assert [each.error.code() for each in altered.topic_partitions] == [KafkaError.UNKNOWN_MEMBER_ID]


def test_group_is_listed_described_and_deleted(
    admin: AdminClient, group: str, topic: str, join: Join
) -> None:
    def states(**filters: Any) -> dict[str, str]:
        listed = admin.list_consumer_groups(**filters).result(DEADLINE_S).valid
        return {each.group_id: each.state.name for each in listed}

    with pytest.raises(KafkaException) as missing:
        admin.delete_consumer_groups([group])[group].result(DEADLINE_S)
    assert missing.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND
    one = join(client_id="one")
    until_shared([6], one)
    assert states()[group] == "STABLE"
    assert group in states(states={ConsumerGroupState.STABLE})
    assert group not in states(states={ConsumerGroupState.EMPTY})
    described = admin.describe_consumer_groups([group], include_authorized_operations=True)[group]
    description = described.result(DEADLINE_S)
    (member,) = description.members
    assert (description.state.name, member.client_id) == ("STABLE", "one")
    assert {each.partition for each in member.assignment.topic_partitions} == set(range(6))
    assert {each.name for each in description.authorized_operations} == {"READ", "DELETE", "DESCRIBE"}
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(DEADLINE_S)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    one.consumer.close()
    assert states()[group] == "EMPTY"
    admin.delete_consumer_groups([group])[group].result(DEADLINE_S)
    assert group not in states()


def test_group_follows_a_topic_that_grows(admin: AdminClient, topic: str, join: Join) -> None:
    one = join(topic_metadata_refresh_interval_ms=100)
    until_shared([6], one)
    admin.create_partitions([NewPartitions(topic, 8)])[topic].result(DEADLINE_S)
    until(lambda: one.partitions == set(range(8)), "the new partitions", one)


def is_committed(member: Member, partition: int, offset: int) -> bool:
    """Commits; a rebalance, which a member whose session was over begins, refuses it."""
    try:
        member.consumer.commit(offsets=[TopicPartition("moving", partition, offset)], asynchronous=False)
    except KafkaException:
        return False
    return True


def test_group_moves_to_another_broker_and_back_when_its_coordinator_goes_and_comes(tmp_path: Path) -> None:
    cluster = MemoryCluster()

    def run(broker_id: int) -> AbstractContextManager[RunningBroker]:
        coordinator = MemoryCoordinator(cluster=cluster)
        return broker(tmp_path / str(broker_id), coordinator=coordinator, broker_id=broker_id)

    with run(1) as first, WireClient(first.bootstrap) as client, ExitStack() as others:
        others.enter_context(run(2))
        admin = AdminClient({"bootstrap.servers": first.bootstrap}, logger=_LOG)
        admin.create_topics([NewTopic("moving", 6, replica_assignment=[[1]] * 6)])["moving"].result(
            DEADLINE_S
        )
        # librdkafka 2 asks for the coordinator behind its fetches: a commit that it repeats before the answer makes
        # it give up the coordinator that it has just found, again and again, until its session is over.
        config = {"reconnect.backoff.max.ms": 200, "fetch.wait.max.ms": 20, "session.timeout.ms": 3000}

        def coordinator_of(name: str) -> tuple[int, str]:
            answer = client.ask(FIND_COORDINATOR, 3, key=name, key_type=0)
            return answer.node_id, f"{answer.host}:{answer.port}"

        group = next(
            name for name in (f"moving-{number}" for number in range(50)) if coordinator_of(name)[0] == 2
        )
        members = [Member(first, group, "moving", **config) for _ in range(2)]

        def is_settled_at(broker_id: int) -> bool:
            found_id, address = coordinator_of(group)
            if found_id != broker_id:
                return False
            with WireClient(address) as coordinator:
                (described,) = coordinator.ask(
                    DESCRIBE_GROUPS, 0, groups=[group], include_authorized_operations=False
                ).groups
            return (described.group_state, len(described.members)) == ("Stable", 2)

        until(lambda: is_settled_at(2), "the group at the second", *members)
        others.close()
        until(lambda: is_settled_at(1), "the group at the first", *members)
        until_shared([3, 3], *members)
        until(lambda: is_committed(members[0], 0, 5), "a commit", *members)
        others.enter_context(run(2))
        until(lambda: is_settled_at(2), "the group at the second again", *members)
        until_shared([3, 3], *members)
        until(lambda: is_committed(members[0], 1, 6), "a commit", *members)
        for member in members:
            member.consumer.close()
        found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
        offsets = found.result(DEADLINE_S).topic_partitions
        assert [(each.partition, each.offset) for each in offsets] == [(0, 5), (1, 6)]
