"""The decentralised consumer over a memory cluster and a fake Kafka client."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest

from headwater_broker.consumer import Record, ZooKeeperConsumer, range_assignment
from headwater_broker.coordination import (
    BrokerInfo,
    Committed,
    CoordinatorUnavailable,
    Endpoint,
    MemoryCluster,
    MemoryCoordinator,
)

TP = tuple[str, int]


class FakeLog:
    """Partitions of a cluster: `counts` records in each, whose values say where they are."""

    def __init__(self) -> None:
        self.counts: dict[TP, int] = {}


class FakeFetcher:
    """Reads a `FakeLog` in the order of partitions."""

    def __init__(self, log: FakeLog) -> None:
        self._log = log
        self._positions: dict[TP, int] = {}
        self.closed = False

    def assign(self, positions: Mapping[TP, int | None]) -> None:
        assert not self.closed
        self._positions = {tp: offset or 0 for tp, offset in positions.items()}

    def poll(self, timeout_s: float) -> Record | None:
        assert not self.closed
        for tp, offset in sorted(self._positions.items()):
            if offset < self._log.counts.get(tp, 0):
                self._positions[tp] += 1
                return Record(*tp, offset, 0, None, f"{tp[0]}-{tp[1]}@{offset}".encode())
        return None

    def close(self) -> None:
        self.closed = True


class Session(MemoryCoordinator):
    """A coordinator whose answers can be held back."""

    silent = False

    def last_answer_monotonic(self) -> float:
        return float("-inf") if self.silent else super().last_answer_monotonic()

    def members(self, group: str) -> dict[str, dict[str, Any]]:
        if self.silent:
            raise CoordinatorUnavailable("the connection is down")
        return super().members(group)


class Cluster:
    """One broker, one topic `t` with four partitions of five records."""

    def __init__(self) -> None:
        self.memory = MemoryCluster()
        self.admin = MemoryCoordinator(cluster=self.memory)
        self.admin.register_broker(BrokerInfo(1, (Endpoint("127.0.0.1", 9092),)))
        self.admin.create_topic("t", {p: [1] for p in range(4)}, {}, uuid4())
        self.log = FakeLog()
        self.log.counts = {("t", p): 5 for p in range(4)}
        self.fetchers: list[tuple[str, FakeFetcher]] = []

    def consumer(self, **options: Any) -> ZooKeeperConsumer:
        def make(brokers: str) -> FakeFetcher:
            self.fetchers.append((brokers, FakeFetcher(self.log)))
            return self.fetchers[-1][1]

        options.setdefault("coordinator", Session(cluster=self.memory))
        return ZooKeeperConsumer("unused", "g", options.pop("topics", ["t"]), fetcher=make, **options)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def drain(*consumers: ZooKeeperConsumer) -> list[tuple[str, int, int]]:
    """Everything that the consumers have now, in turns, until all are silent."""
    records = []
    silent = 0
    while silent < 3:
        found = [record for consumer in consumers if (record := consumer.poll(0.12)) is not None]
        records += [(r.topic, r.partition, r.offset) for r in found]
        silent = 0 if found else silent + 1
    return records


EVERYTHING = [("t", p, o) for p in range(4) for o in range(5)]


@pytest.mark.parametrize(
    ("members", "partitions", "sizes"),
    [("ab", 4, [2, 2]), ("abc", 4, [2, 1, 1]), ("abcde", 4, [1, 1, 1, 1, 0]), ("a", 0, [0])],
)
def test_range_assignment_gives_runs_of_even_size(members: str, partitions: int, sizes: list[int]) -> None:
    shares = range_assignment({member: ["t"] for member in members}, {"t": range(partitions)})
    assert [len(shares[member]) for member in members] == sizes
    in_order = [tp for member in members for tp in sorted(shares[member])]
    assert in_order == [("t", p) for p in range(partitions)]


def test_range_assignment_goes_by_topic_and_subscription() -> None:
    shares = range_assignment({"a": ["t", "u"], "b": ["u"]}, {"t": [0, 1], "u": [0, 1], "unread": [0]})
    assert shares == {"a": {("t", 0), ("t", 1), ("u", 0)}, "b": {("u", 1)}}


def test_consumer_alone_reads_everything_and_goes_on_from_its_commit(cluster: Cluster) -> None:
    with cluster.consumer() as first:
        assert sorted(drain(first)) == EVERYTHING
        assert set(cluster.admin.owners("g").values()) == {first.member}
        first.commit()
        cluster.log.counts["t", 2] = 7
        assert drain(first) == [("t", 2, 5), ("t", 2, 6)]
    assert cluster.admin.members("g") == {}
    assert cluster.admin.owners("g") == {}
    assert {tp: c.offset for tp, c in cluster.admin.fetch_offsets("g").items()} == {
        ("t", p): 5 for p in range(4)
    }
    with cluster.consumer() as second:
        assert drain(second) == [("t", 2, 5), ("t", 2, 6)]


def test_consumer_iterates_until_it_is_closed(cluster: Cluster) -> None:
    consumer = cluster.consumer()
    timer = threading.Timer(0.5, consumer.close)
    timer.start()
    assert len(list(consumer)) == 20
    timer.join()
    consumer.close()


def test_consumer_new_member_takes_its_share_and_gives_it_back(cluster: Cluster) -> None:
    revoked: list[frozenset[TP]] = []
    first = cluster.consumer(on_revoked=lambda partitions: (revoked.append(partitions), first.commit())[0])
    with first:
        assert sorted(drain(first)) == EVERYTHING
        second = cluster.consumer()
        with second:
            assert drain(first, second) == []  # what was handed out was committed as it was given up
            assert first.assignment | second.assignment == {("t", p) for p in range(4)}
            assert len(first.assignment) == len(second.assignment) == 2
            assert revoked == [second.assignment]
            cluster.log.counts = {("t", p): 6 for p in range(4)}
            assert sorted(drain(first, second)) == [("t", p, 5) for p in range(4)]
            second.commit()
        assert drain(first) == []
        assert len(first.assignment) == 4


def test_consumer_commit_leaves_out_what_is_not_owned(cluster: Cluster) -> None:
    with cluster.consumer() as consumer:
        drain(consumer)
        consumer.commit({("t", 0): 3, ("other", 0): 9})
    assert {tp: c.offset for tp, c in cluster.admin.fetch_offsets("g").items()} == {("t", 0): 3}


def test_consumer_finds_new_partitions_and_new_topics(cluster: Cluster) -> None:
    with cluster.consumer(topics=["t", "later"]) as consumer:
        drain(consumer)
        cluster.admin.add_partitions("t", {4: [1]})
        cluster.admin.create_topic("later", {0: [1]}, {}, uuid4())
        cluster.log.counts.update({("t", 4): 1, ("later", 0): 1})
        assert sorted(drain(consumer)) == [("later", 0, 0), ("t", 4, 0)]


def test_consumer_waits_for_partitions_that_are_not_released_yet(cluster: Cluster) -> None:
    cluster.admin.register_member("g", "zzz", {})
    cluster.admin.claim_partitions("g", "zzz", [("t", 0)])
    with cluster.consumer() as consumer:
        assert {partition for _, partition, _ in drain(consumer)} == {1, 2, 3}
        cluster.admin.release_partitions("g", "zzz", [("t", 0)])
        while len(consumer.assignment) < 4:
            record = consumer.poll(0.1)
        assert record is not None
        assert (record.partition, record.offset) == (0, 0)


def test_consumer_without_answers_hands_nothing_out_and_goes_on_after(cluster: Cluster) -> None:
    session = Session(cluster=cluster.memory)
    with cluster.consumer(coordinator=session) as consumer:
        assert consumer.poll(1) is not None
        session.silent = True
        assert consumer.poll(0.3) is None
        session.silent = False
        assert sorted(drain(consumer)) == EVERYTHING[1:]


def test_consumer_whose_session_was_lost_begins_at_its_commits(cluster: Cluster) -> None:
    revoked: list[frozenset[TP]] = []
    session = Session(cluster=cluster.memory)
    with cluster.consumer(coordinator=session, on_revoked=revoked.append) as consumer:
        drain(consumer)
        consumer.commit({("t", p): 3 for p in range(4)})
        session.deregister_member("g", consumer.member)
        assert sorted(drain(consumer)) == [("t", p, o) for p in range(4) for o in (3, 4)]
        assert revoked == []
        assert set(cluster.admin.owners("g").values()) == {consumer.member}


def test_consumer_follows_brokers_to_new_addresses(cluster: Cluster) -> None:
    with cluster.consumer() as consumer:
        drain(consumer)
        cluster.admin.deregister_broker()
        assert drain(consumer) == []
        cluster.admin.register_broker(BrokerInfo(1, (Endpoint("127.0.0.1", 9999),)))
        cluster.log.counts["t", 0] = 6
        assert drain(consumer) == [("t", 0, 5)]
    assert [brokers for brokers, _ in cluster.fetchers] == ["127.0.0.1:9092", "127.0.0.1:9999"]
    assert all(fetcher.closed for _, fetcher in cluster.fetchers)


def test_consumer_before_any_broker_waits(cluster: Cluster) -> None:
    cluster.admin.deregister_broker()
    with cluster.consumer() as consumer:
        assert drain(consumer) == []
        cluster.admin.register_broker(BrokerInfo(1, (Endpoint("127.0.0.1", 9092),)))
        assert sorted(drain(consumer)) == EVERYTHING


def test_consumer_without_topics_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one topic"):
        ZooKeeperConsumer("unused", "g", [])


def test_consumer_three_members_lose_one_and_nothing_else(cluster: Cluster) -> None:
    sessions = [Session(cluster=cluster.memory) for _ in range(3)]
    consumers = [cluster.consumer(coordinator=session) for session in sessions]
    try:
        assert sorted(drain(*consumers)) == EVERYTHING
        for consumer in consumers:
            consumer.commit()
        sessions[0].stop()  # what the server does when a member has crashed
        cluster.log.counts = {("t", p): 8 for p in range(4)}
        assert sorted(drain(*consumers[1:])) == [("t", p, o) for p in range(4) for o in (5, 6, 7)]
    finally:
        for consumer in consumers:
            consumer.close()


def test_consumer_committed_offset_is_stamped(cluster: Cluster) -> None:
    with cluster.consumer() as consumer:
        drain(consumer)
        consumer.commit({("t", 0): 3})
    committed = cluster.admin.fetch_offsets("g")["t", 0]
    assert isinstance(committed, Committed)
    assert committed.timestamp_ms is not None
