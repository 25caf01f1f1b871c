"""The decentralised consumer over a memory cluster and a fake Kafka client."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest

from headwater_broker.consumer import FetchError, NotAssignedError, Record, ZooKeeperConsumer
from headwater_broker.consumer.assignment import STRATEGIES, StrategyName
from headwater_broker.coordination import (
    BrokerInfo,
    Committed,
    CoordinatorUnavailable,
    Endpoint,
    MemoryCluster,
    MemoryCoordinator,
)

TP = tuple[str, int]
_POLL_S = 0.002
"""Nothing here runs in another thread: a poll finds at once what there is."""


class FakeLog:
    """Partitions of a cluster: `counts` records in each, whose values say where they are."""

    def __init__(self) -> None:
        self.counts: dict[TP, int] = {}


class FakeFetcher:
    """Reads a `FakeLog` in the order of partitions."""

    refuses_unknown_starts = False

    def __init__(self, log: FakeLog) -> None:
        self._log = log
        self._positions: dict[TP, int] = {}
        self.closed = False

    def assign(self, positions: Mapping[TP, int | None]) -> None:
        assert not self.closed
        assert not self.refuses_unknown_starts or None not in positions.values()
        self._positions = {tp: offset or 0 for tp, offset in positions.items()}

    def poll(self, timeout_s: float) -> Record | None:
        assert not self.closed
        for tp, offset in sorted(self._positions.items()):
            if offset < self._log.counts.get(tp, 0):
                self._positions[tp] += 1
                return Record(*tp, offset, 0, None, f"{tp[0]}-{tp[1]}@{offset}".encode())
        time.sleep(min(timeout_s, 0.005))
        return None

    def bounds(self, partition: TP) -> tuple[int, int]:
        return 0, self._log.counts.get(partition, 0)

    def offsets_at(self, times_ms: Mapping[TP, int]) -> dict[TP, int | None]:
        """Offset n is of time n."""
        return {tp: at if at < self._log.counts.get(tp, 0) else None for tp, at in times_ms.items()}

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

    def offsets(self) -> dict[TP, int]:
        return {tp: committed.offset for tp, committed in self.admin.fetch_offsets("g").items()}

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
    """Everything that the consumers have now, in turns, until all are silent and settled."""
    records = []
    silent = 0
    deadline = time.monotonic() + 30
    while silent < 3:
        found = [record for consumer in consumers if (record := consumer.poll(_POLL_S)) is not None]
        records += [(r.topic, r.partition, r.offset) for r in found]
        unsettled = any(consumer._ownership.needs_settling() for consumer in consumers)
        silent = 0 if found or (unsettled and time.monotonic() < deadline) else silent + 1
    return records


EVERYTHING = [("t", p, o) for p in range(4) for o in range(5)]


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
    has_all = threading.Event()
    closing = threading.Thread(target=lambda: (has_all.wait(), consumer.close()))
    closing.start()
    for count, _ in enumerate(consumer, 1):
        if count == 20:
            has_all.set()
    assert count == 20
    closing.join()
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
        others = [consumer.poll(30) for _ in range(15)]
        assert {record.partition for record in others if record is not None} == {1, 2, 3}
        assert consumer.poll(_POLL_S) is None
        cluster.admin.release_partitions("g", "zzz", [("t", 0)])
        record = consumer.poll(30)
        assert record is not None
        assert len(consumer.assignment) == 4
        assert (record.partition, record.offset) == (0, 0)


def test_consumer_without_answers_hands_nothing_out_and_goes_on_after(cluster: Cluster) -> None:
    session = Session(cluster=cluster.memory)
    with cluster.consumer(coordinator=session) as consumer:
        assert consumer.poll(30) is not None
        session.silent = True
        assert consumer.poll(0.05) is None
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


@pytest.mark.parametrize("topics", [[], "clicks"])
def test_consumer_without_a_list_of_topics_is_refused(topics: Any) -> None:
    with pytest.raises(ValueError, match="at least one topic"):
        ZooKeeperConsumer("unused", "g", topics)


def test_consumer_unknown_strategy_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="'fair': give one of range, roundrobin, sticky"):
        ZooKeeperConsumer("unused", "g", ["t"], strategy="fair")  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_consumer_group_of_each_strategy_hands_everything_out_once(
    cluster: Cluster, strategy: StrategyName
) -> None:
    every_poll: dict[str, Any] = {"strategy": strategy, "auto_commit_interval_ms": 0}
    with cluster.consumer(**every_poll) as first:
        seen = [first.poll(1) for _ in range(3)]
        with cluster.consumer(**every_poll) as second, cluster.consumer(**every_poll) as third:
            records = drain(first, second, third)
            owned = [consumer.assignment for consumer in (first, second, third)]
            assert sorted(map(len, owned)) == [1, 1, 2]
            assert frozenset().union(*owned) == {("t", p) for p in range(4)}
        assert drain(first) == []
        assert len(first.assignment) == 4
    assert sorted([*records, *((r.topic, r.partition, r.offset) for r in seen if r)]) == EVERYTHING


def test_consumer_eager_strategy_gives_everything_up_once_for_each_change(cluster: Cluster) -> None:
    revoked: list[frozenset[TP]] = []
    cluster.admin.register_member("g", "zzz", {"t": 1}, {"strategy": "range"})
    cluster.admin.claim_partitions("g", "zzz", [("t", 0), ("t", 2), ("t", 3)])
    with cluster.consumer(strategy="range", on_revoked=revoked.append) as consumer:
        assert {record.partition for _ in range(5) if (record := consumer.poll(30))} == {1}
        assert consumer.poll(_POLL_S) is None
        assert consumer.assignment == {("t", 1)}  # "zzz" holds on to the other one
        cluster.admin.release_partitions("g", "zzz", [("t", 0)])
        while consumer.assignment != {("t", 0), ("t", 1)}:
            consumer.poll(_POLL_S)
        assert revoked == []
        cluster.admin.deregister_member("g", "zzz")
        drain(consumer)
        assert revoked == [{("t", 0), ("t", 1)}]
        assert len(consumer.assignment) == 4


def test_consumer_group_changes_its_strategy_when_most_members_wish_it(cluster: Cluster) -> None:
    consumers = [cluster.consumer(strategy="roundrobin", topics=["t", "u"])]
    cluster.admin.create_topic("u", {p: [1] for p in range(3)}, {}, uuid4())
    try:
        consumers += [cluster.consumer(strategy="range", topics=["t", "u"]) for _ in range(2)]
        drain(*consumers)
        by_name = sorted(consumers, key=lambda consumer: consumer.member)
        assert [sorted(consumer.assignment) for consumer in by_name] == [
            [("t", 0), ("t", 1), ("u", 0)],
            [("t", 2), ("u", 1)],
            [("t", 3), ("u", 2)],
        ]
    finally:
        for consumer in consumers:
            consumer.close()


def test_consumer_commits_by_itself_at_its_interval_and_when_it_leaves(cluster: Cluster) -> None:
    with cluster.consumer(auto_commit_interval_ms=3_600_000) as consumer:
        assert consumer.poll(1) is not None
        assert consumer.committed([("t", 0)]) == {}
    assert cluster.offsets() == {("t", 0): 1}
    with cluster.consumer(auto_commit_interval_ms=0) as consumer:
        assert consumer.poll(1) is not None
        assert consumer.committed([("t", 0)]) == {("t", 0): 1}
        assert consumer.poll(1) is not None  # who asks for the next has done with the one before
        assert consumer.committed([("t", 0)]) == {("t", 0): 2}


def test_consumer_without_automatic_commits_commits_nothing(cluster: Cluster) -> None:
    with cluster.consumer() as consumer:
        drain(consumer)
    assert cluster.offsets() == {}


def test_consumer_seeks_forth_and_back_and_commits_where_it_is(cluster: Cluster) -> None:
    with cluster.consumer() as consumer:
        drain(consumer)
        consumer.seek({("t", 0): 3, ("t", 1): 4})
        assert consumer.position(("t", 0)) == 3
        assert sorted(drain(consumer)) == [("t", 0, 3), ("t", 0, 4), ("t", 1, 4)]
        consumer.seek({("t", 0): 1})
        consumer.commit()
    assert cluster.offsets() == {("t", 0): 1, ("t", 1): 5, ("t", 2): 5, ("t", 3): 5}


def test_consumer_rewinds_to_the_beginning_or_to_a_time(cluster: Cluster) -> None:
    with cluster.consumer() as consumer:
        with pytest.raises(FetchError, match="no broker is known yet"):
            (consumer._ownership.settle(consumer._revoked, consumer._assigned), consumer.rewind())
        drain(consumer)
        assert consumer.rewind([("t", 2)]) == {("t", 2): 0}
        assert sorted(drain(consumer)) == [("t", 2, offset) for offset in range(5)]
        cluster.log.counts["t", 3] = 6
        drain(consumer)
        assert consumer.rewind(to_timestamp_ms=5) == {("t", 0): 5, ("t", 1): 5, ("t", 2): 5, ("t", 3): 5}
        assert drain(consumer) == [("t", 3, 5)]


def test_consumer_seek_of_what_it_does_not_read_names_what_it_reads(cluster: Cluster) -> None:
    with cluster.consumer() as consumer:
        drain(consumer)
        with pytest.raises(NotAssignedError, match="does not read t-9; it reads t-0, t-1, t-2, t-3 now"):
            consumer.seek({("t", 0): 1, ("t", 9): 0})
        with pytest.raises(ValueError, match="t-1 has no offset -2"):
            consumer.seek({("t", 0): 1, ("t", 1): -2})
        assert consumer.position(("t", 0)) == 5
        with pytest.raises(NotAssignedError, match="t-9"):
            consumer.position(("t", 9))


def test_consumer_that_begins_at_the_end_keeps_that_place_over_a_rebalance(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeFetcher, "refuses_unknown_starts", True)
    with cluster.consumer(auto_offset_reset="latest") as first:
        assert drain(first) == []
        assert first.position(("t", 0)) == 5
        cluster.log.counts = {("t", p): 6 for p in range(4)}
        with cluster.consumer(auto_offset_reset="latest") as second:
            records = drain(first, second)
            assert {("t", partition, 5) for _, partition in first.assignment} <= set(records)


def test_consumer_stays_connected_while_brokers_go_and_come_back(cluster: Cluster) -> None:
    other = MemoryCoordinator(cluster=cluster.memory)
    other.register_broker(BrokerInfo(2, (Endpoint("127.0.0.1", 9093),)))
    with cluster.consumer() as consumer:
        drain(consumer)
        other.deregister_broker()
        drain(consumer)
        other.register_broker(BrokerInfo(2, (Endpoint("127.0.0.1", 9093),)))
        drain(consumer)
    assert [brokers for brokers, _ in cluster.fetchers] == ["127.0.0.1:9092,127.0.0.1:9093"]


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
