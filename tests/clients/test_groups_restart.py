"""Groups over a restart of their broker: members go on in their generation, and the dead stay fenced."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.errors import ErrorCode

from headwater_broker.coordination import ZooKeeperCoordinator
from headwater_broker.coordination.memory_file import MemoryFile
from headwater_broker.groups import KeptGroup
from headwater_broker.groups.kept import decode_group
from headwater_broker.groups.subscription import encode_assignment, encode_subscription
from headwater_broker.testing import WireClient
from headwater_broker.wire.apis import (
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
)

DEADLINE_S = 60
TOPIC = "lasting"
GROUP = "lasting"


@pytest.fixture
def restart(broker_process: Any) -> Callable[..., None]:
    """Ends the broker by kill -9, or else as an operator does, and starts it again."""

    def restarted(*, kills: bool = True) -> None:
        if kills:
            broker_process.kill()
        else:
            assert broker_process.stop() == 0
        broker_process.start()

    return restarted


@pytest.fixture
def topic(broker_process: Any) -> str:
    admin = AdminClient({"bootstrap.servers": broker_process.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 6, 1)], operation_timeout=30)[TOPIC].result(DEADLINE_S)
    return TOPIC


class Member:
    """A consumer that notes what it is given, what is taken from it, and what it reads."""

    def __init__(self, bootstrap: str, **config: str) -> None:
        self.rebalances: list[str] = []
        self.values: list[int] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 60_000,
                "heartbeat.interval.ms": 100,
                "reconnect.backoff.max.ms": 200,
                **config,
            }
        )
        self.consumer.subscribe(
            [TOPIC],
            on_assign=lambda *_: self.rebalances.append("assigned"),
            on_revoke=lambda *_: self.rebalances.append("revoked"),
            on_lost=lambda *_: self.rebalances.append("lost"),
        )

    def read(self) -> None:
        for message in self.consumer.consume(50, 0.02):
            if message.error() is None:
                self.values.append(int(message.value()))

    @property
    def owned(self) -> int:
        return len(self.consumer.assignment())


def until(condition: Callable[[], bool], what: str, *members: Member) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        for member in members:
            member.read()
        if not members:
            time.sleep(0.02)


def send(bootstrap: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in numbers:
        producer.produce(TOPIC, str(number), partition=number % 6)
    assert producer.flush(DEADLINE_S) == 0


def described(bootstrap: str) -> Any:
    with WireClient(bootstrap) as client:
        fields = {"groups": [GROUP], "include_authorized_operations": False}
        (answer,) = client.ask(DESCRIBE_GROUPS, 5, **fields).groups
    assert answer.error_code is ErrorCode.none
    return answer


@pytest.mark.parametrize(("strategy", "kills"), [("range", True), ("cooperative-sticky", False)])
def test_members_go_on_without_a_rebalance(
    broker_process: Any, topic: str, restart: Callable[..., None], strategy: str, kills: bool
) -> None:
    bootstrap = broker_process.bootstrap
    names = {"partition.assignment.strategy": strategy}
    members = [
        Member(bootstrap, **names, **{"group.instance.id": "static"}),
        Member(bootstrap, **names),
        Member(bootstrap, **names),
    ]
    until(lambda: [member.owned for member in members] == [2, 2, 2], "two partitions each", *members)
    send(bootstrap, range(60))
    until(lambda: sum(len(member.values) for member in members) == 60, "60 messages", *members)
    before, rebalances = described(bootstrap), [list(member.rebalances) for member in members]
    restart(kills=kills)
    send(bootstrap, range(60, 120))
    until(lambda: sum(len(member.values) for member in members) >= 120, "the other 60", *members)
    for member in members:
        member.consumer.commit(asynchronous=False)
    assert described(bootstrap) == before, "the same members with the same assignment"
    assert [member.rebalances for member in members] == rebalances
    # Nothing was committed before the restart: whoever had lost its partitions would have read them again.
    assert sorted(value for member in members for value in member.values) == list(range(120))
    for member in members:
        member.consumer.close()
    check = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    committed = check.committed([TopicPartition(TOPIC, number) for number in range(6)], DEADLINE_S)
    assert [each.offset for each in committed] == [20] * 6
    check.close()


# -- on the wire, step by step ---------------------------------------------------------------------


class Session:
    """A member that says one thing at a time."""

    def __init__(self, bootstrap: str, instance: str | None = None) -> None:
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self._bootstrap = bootstrap
        self._client = WireClient(bootstrap)

    def reconnect(self) -> None:
        self._client.close()
        self._client = WireClient(self._bootstrap)

    def close(self) -> None:
        self._client.close()

    def send_join(self) -> None:
        self._client.send(
            JOIN_GROUP,
            9,
            group_id=GROUP,
            session_timeout=60_000,
            rebalance_timeout=60_000,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": encode_subscription([TOPIC])}],
            reason=None,
        )

    def introduce(self) -> None:
        """Asks for a member id, as who is no static member has to."""
        self.member_id = ""
        self.send_join()
        answer = self._client.receive()
        assert answer.error_code is ErrorCode.member_id_required
        self.member_id = answer.member_id

    def joined(self) -> Any:
        answer = self._client.receive()
        assert answer.error_code is ErrorCode.none, answer
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def join(self) -> Any:
        if self.instance is None and not self.member_id:
            self.introduce()
        self.send_join()
        return self.joined()

    def sync(self, *assigned: tuple[str, int], generation: int | None = None) -> ErrorCode:
        """As the leader it assigns everything to the members given."""
        answer = self._client.ask(
            SYNC_GROUP,
            5,
            group_id=GROUP,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                {"member_id": member, "assignment": encode_assignment([(TOPIC, number)])}
                for member, number in assigned
            ],
        )
        code: ErrorCode = answer.error_code
        return code

    def _who(self, generation: int | None) -> dict[str, Any]:
        return {
            "group_id": GROUP,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "generation_id": self.generation if generation is None else generation,
        }

    def heartbeat(self, generation: int | None = None) -> ErrorCode:
        code: ErrorCode = self._client.ask(HEARTBEAT, 4, **self._who(generation)).error_code
        return code

    def commit(self, offset: int, generation: int | None = None) -> ErrorCode:
        who = self._who(generation)
        who["generation_id_or_member_epoch"] = who.pop("generation_id")
        partition = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": None,
        }
        (answer,) = self._client.ask(
            OFFSET_COMMIT, 8, **who, topics=[{"name": TOPIC, "partitions": [partition]}]
        ).topics
        code: ErrorCode = answer.partitions[0].error_code
        return code

    def leave(self) -> None:
        self._client.ask(LEAVE_GROUP, 0, group_id=GROUP, member_id=self.member_id)

    def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        return self._client.ask(api_key, version, **fields)


@pytest.fixture
def session(broker_process: Any) -> Iterator[Callable[..., Session]]:
    made: list[Session] = []

    def new(instance: str | None = None) -> Session:
        made.append(Session(broker_process.bootstrap, instance))
        return made[-1]

    yield new
    for each in made:
        each.close()


def test_zombie_of_an_earlier_generation_stays_fenced(
    topic: str, restart: Callable[..., None], session: Callable[..., Session]
) -> None:
    zombie, heir = session(), session()
    zombie.join()
    assert zombie.sync((zombie.member_id, 0)) is ErrorCode.none
    assert zombie.commit(5) is ErrorCode.none
    zombie.leave()  # as when its session is over: it is out, and does not know
    heir.join()
    assert heir.sync((heir.member_id, 0)) is ErrorCode.none
    assert heir.commit(10) is ErrorCode.none
    restart()
    for each in (zombie, heir):
        each.reconnect()
    for generation in (zombie.generation, heir.generation, heir.generation + 1):
        assert zombie.commit(6, generation) is ErrorCode.unknown_member_id
    assert heir.commit(11, heir.generation - 1) is ErrorCode.illegal_generation
    assert heir.heartbeat() is ErrorCode.none
    assert heir.commit(11) is ErrorCode.none
    heir.leave()
    after = session()
    assert after.join().generation_id > heir.generation
    assert zombie.commit(6) is ErrorCode.unknown_member_id


def test_static_member_comes_back_after_the_restart_to_what_it_had(
    topic: str, restart: Callable[..., None], session: Callable[..., Session]
) -> None:
    former = session("i")
    former.join()
    assert former.sync((former.member_id, 0)) is ErrorCode.none
    restart()
    heir = session("i")
    joined = heir.join()
    assert (joined.generation_id, joined.skip_assignment) == (former.generation, True)
    assert heir.sync() is ErrorCode.none
    former.reconnect()
    assert former.commit(1) is ErrorCode.fenced_instance_id
    assert heir.commit(2) is ErrorCode.none
    restart()
    heir.reconnect()
    assert heir.heartbeat() is ErrorCode.none
    former.reconnect()
    assert former.heartbeat() is ErrorCode.fenced_instance_id


def test_rebalance_under_way_is_made_again(
    topic: str, restart: Callable[..., None], session: Callable[..., Session]
) -> None:
    one, two = session(), session()
    one.join()
    assert one.sync((one.member_id, 0)) is ErrorCode.none
    two.introduce()
    two.send_join()
    until(lambda: one.heartbeat() is ErrorCode.rebalance_in_progress, "a rebalance")
    one.send_join()
    assert one.joined().generation_id == 2
    two.joined()
    restart()  # before the leader has assigned
    for each in (one, two):
        each.reconnect()
    assert one.sync((one.member_id, 0), (two.member_id, 1)) is ErrorCode.illegal_generation
    assert two.heartbeat() is ErrorCode.unknown_member_id
    assert one.commit(3, generation=2) is ErrorCode.illegal_generation
    assert one.commit(3, generation=1) is ErrorCode.none
    two.introduce()
    two.send_join()
    until(lambda: one.heartbeat(1) is ErrorCode.rebalance_in_progress, "a rebalance")
    assert one.join().generation_id == 2
    two.joined()
    assert one.sync((one.member_id, 0), (two.member_id, 1)) is ErrorCode.none
    assert two.sync() is ErrorCode.none


def kept_group(process: Any) -> KeptGroup:
    """What a broker that is started again would go on from."""
    kind, place = process.shared_state
    if kind == "--zookeeper":
        coordinator = ZooKeeperCoordinator(place)
        coordinator.start()
        kept = coordinator.kept_groups()
        coordinator.stop()
    else:
        kept = MemoryFile(process.data).read().groups
    return decode_group(GROUP, kept[GROUP])[0]


def test_empty_group_is_listed_with_its_type_and_its_offsets(
    broker_process: Any, topic: str, restart: Callable[..., None], session: Callable[..., Session]
) -> None:
    one = session()
    one.join()
    assert one.sync((one.member_id, 0)) is ErrorCode.none
    assert one.commit(7) is ErrorCode.none
    one.leave()
    until(lambda: described(one._bootstrap).group_state == "Empty", "the group to be empty")
    # Nobody waits for the save of an empty group.
    until(lambda: not kept_group(broker_process).members, "the empty group to be kept")
    restart()
    one.reconnect()
    group = described(one._bootstrap)
    assert (group.group_state, group.protocol_type, group.members) == ("Empty", "consumer", ())
    (listed,) = one.ask(LIST_GROUPS, 4, states_filter=[]).groups
    assert (listed.group_id, listed.protocol_type, listed.group_state) == (GROUP, "consumer", "Empty")
    (found,) = one.ask(OFFSET_FETCH, 2, group_id=GROUP, topics=None).topics
    assert found.partitions[0].committed_offset == 7


def test_java_member_goes_on_without_a_rebalance(
    broker_process: Any, topic: str, java_program: Callable[..., list[str]]
) -> None:
    bootstrap = broker_process.bootstrap
    said: list[str] = []
    with subprocess.Popen(
        java_program("Lasting", bootstrap, GROUP, TOPIC),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as java:
        assert java.stdout is not None
        assert java.stdin is not None
        reader = threading.Thread(target=lambda out=java.stdout: said.extend(line.strip() for line in out))
        reader.start()
        try:
            until(lambda: "assigned 6" in said, "all partitions")
            send(bootstrap, range(30))
            until(lambda: len(said) == 31, "30 records")
            before = described(bootstrap)
            broker_process.kill()
            broker_process.start()
            send(bootstrap, range(30, 60))
            until(lambda: len(said) == 61, "30 more")
            assert described(bootstrap) == before
        finally:
            java.stdin.close()
            reader.join(DEADLINE_S)
    records = sorted(int(line.split()[1]) for line in said if line.startswith("record "))
    assert records == list(range(60))
    assert [line for line in said if not line.startswith("record ")] == ["assigned 6", "revoked 6"]
