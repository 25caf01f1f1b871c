"""Members and brokers come and go at random: no record is lost, and none comes twice while nobody leaves.

`HEADWATER_SEED` repeats a run; `HEADWATER_CHAOS_STEPS` makes it longer (20 steps each in `make test-all`).
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from amount import amount, drawn_seed
from headwater_broker.consumer import STRATEGIES, Record, StrategyName, ZooKeeperConsumer
from headwater_broker.coordination import (
    CoordinationError,
    Coordinator,
    MemoryCluster,
    MemoryCoordinator,
    ZooKeeperCoordinator,
)
from headwater_broker.testing import RunningBroker, broker
from support.processes import free_port

SEED = drawn_seed()
STEPS = amount("HEADWATER_CHAOS_STEPS", small=8, full=20)
DEADLINE_S = 120
TOPIC = "clicks"
PARTITIONS = 6
MOST_MEMBERS = 5

At = tuple[int, int]  # partition, offset


class Member(threading.Thread):
    """One consumer in a thread of its own: notes each record, then commits it."""

    def __init__(
        self, coordinator: Coordinator, strategy: StrategyName, note: Callable[[Record], None]
    ) -> None:
        super().__init__()
        self._coordinator = coordinator
        self._note = note
        self._crashed = threading.Event()
        self.consumer = ZooKeeperConsumer(
            "unused",
            "g",
            [TOPIC],
            strategy=strategy,
            coordinator=coordinator,
            client_settings={"reconnect.backoff.max.ms": 200, "topic.metadata.refresh.interval.ms": 500},
        )
        self.start()

    def run(self) -> None:
        for record in self.consumer:
            if self._crashed.is_set():
                return
            self._note(record)
            if self._crashed.is_set():
                return
            while not self._commit():
                time.sleep(0.05)

    def _commit(self) -> bool:
        try:
            self.consumer.commit()
        except CoordinationError:
            return False
        return True

    def leave(self) -> None:
        self.consumer.close()
        self.join()

    def crash(self) -> None:
        """Stops without a commit or a farewell; the end of its session is all that the others see."""
        self._crashed.set()
        self.consumer._closed.set()
        self.join()
        self._coordinator.stop()
        if self.consumer._fetcher is not None:
            self.consumer._fetcher.close()
            self.consumer._fetcher = None


class World:
    """Two brokers, of which one at most is down, a producer, and members."""

    def __init__(self, connect: Callable[[], Coordinator], directory: Path, rng: random.Random) -> None:
        self._connect = connect
        self._directory = directory
        self._rng = rng
        self._lock = threading.Lock()
        self.handed_out: Counter[At] = Counter()
        self.acknowledged: set[At] = set()
        self.members: list[Member] = []
        self._ports: dict[int, int] = {}
        self._brokers: dict[int, tuple[RunningBroker, AbstractContextManager[RunningBroker]]] = {}
        for broker_id in (1, 2):
            self.start_broker(broker_id)
        admin = AdminClient({"bootstrap.servers": self.bootstrap}, logger=logging.getLogger(__name__))
        created = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)], operation_timeout=DEADLINE_S)
        created[TOPIC].result(DEADLINE_S)
        self._partitions = PARTITIONS
        self._admin = admin
        self._producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 500,
            },
            logger=logging.getLogger(__name__),
        )

    @property
    def bootstrap(self) -> str:
        return ",".join(running.bootstrap for running, _ in self._brokers.values())

    # -- what happens ------------------------------------------------------------------------------

    def produce(self) -> None:
        for _ in range(self._rng.randrange(1, 40)):
            partition = self._rng.randrange(self._partitions)
            try:
                self._producer.produce(TOPIC, b"x", partition=partition, on_delivery=self._delivered)
            except KafkaException:  # the client has not heard of the new partition yet
                assert partition >= PARTITIONS
        self._producer.poll(0)

    def start_broker(self, broker_id: int) -> None:
        data = self._directory / f"broker-{broker_id}"
        port = self._ports.setdefault(broker_id, free_port())
        context = broker(data, coordinator=self._connect(), broker_id=broker_id, port=port)
        running = context.__enter__()
        self._brokers[broker_id] = (running, context)

    def stop_broker(self, broker_id: int) -> None:
        _, context = self._brokers.pop(broker_id)
        context.__exit__(None, None, None)

    def brokers_come_or_go(self) -> None:
        if missing := {1, 2} - self._brokers.keys():
            self.start_broker(missing.pop())
        else:
            self.stop_broker(self._rng.choice([1, 2]))

    def member_comes(self) -> None:
        if len(self.members) < MOST_MEMBERS:
            self.members.append(Member(self._connect(), self._rng.choice(STRATEGIES), self._note))

    def member_leaves(self) -> None:
        if len(self.members) > 1:
            self.members.pop(self._rng.randrange(len(self.members))).leave()

    def member_crashes(self) -> None:
        if len(self.members) > 1:
            self.members.pop(self._rng.randrange(len(self.members))).crash()

    def topic_grows(self) -> None:
        if len(self._brokers) == 2 and self._partitions < PARTITIONS + 3:
            grown = self._admin.create_partitions([NewPartitions(TOPIC, self._partitions + 1)])
            grown[TOPIC].result(DEADLINE_S)
            self._partitions += 1

    # -- and what comes of it ----------------------------------------------------------------------

    def wait_for_everything(self) -> None:
        for broker_id in {1, 2} - self._brokers.keys():
            self.start_broker(broker_id)
        assert self._producer.flush(DEADLINE_S) == 0
        deadline = time.monotonic() + DEADLINE_S
        while missing := self.acknowledged - self.handed_out.keys():
            assert time.monotonic() < deadline, (
                f"{len(missing)} of {len(self.acknowledged)} records were handed to nobody, such as "
                f"{sorted(missing)[:3]}; members read {[sorted(m.consumer.assignment) for m in self.members]}"
            )
            assert all(member.is_alive() for member in self.members)
            time.sleep(0.02)

    def close(self) -> None:
        with ExitStack() as stack:
            for broker_id in list(self._brokers):
                stack.callback(self.stop_broker, broker_id)
            for member in self.members:
                stack.callback(member.leave)

    def _note(self, record: Record) -> None:
        with self._lock:
            self.handed_out[record.partition, record.offset] += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        with self._lock:
            self.acknowledged.add((message.partition(), message.offset()))


@pytest.fixture(params=["memory", "zookeeper"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[[], Coordinator]]:
    if request.param == "memory":
        cluster = MemoryCluster()
        yield lambda: MemoryCoordinator(cluster=cluster)
    else:
        hosts = f"{request.getfixturevalue('zookeeper').hosts}/{uuid4()}"
        yield lambda: ZooKeeperCoordinator(hosts, session_timeout_ms=20_000)  # each ends by `stop`


@pytest.fixture
def world(connect: Callable[[], Coordinator], tmp_path: Path) -> Iterator[World]:
    print(f"HEADWATER_SEED={SEED}")
    made = World(connect, tmp_path, random.Random(SEED))
    try:
        yield made
    finally:
        made.close()


def live(world: World, happenings: list[Callable[[], None]]) -> None:
    rng = random.Random(SEED + 1)
    world.member_comes()
    for _ in range(STEPS):
        world.produce()
        happening = rng.choice(happenings)
        happening()
        time.sleep(rng.choice([0, 0.05, 0.3]))
    world.wait_for_everything()


def test_zk_consumer_members_and_brokers_come_and_nobody_leaves_each_record_once(world: World) -> None:
    live(world, [world.member_comes, world.brokers_come_or_go, world.topic_grows, world.produce])
    time.sleep(0.2)  # for one that comes a second time
    again = {at: times for at, times in world.handed_out.items() if times > 1}
    assert not again, f"{len(again)} records came twice or more often: {again}"


def test_zk_consumer_members_crash_and_leave_each_record_at_least_once(world: World) -> None:
    happenings = [world.member_comes, world.member_leaves, world.member_crashes]
    live(world, [*happenings, world.member_comes, world.brokers_come_or_go, world.topic_grows])
