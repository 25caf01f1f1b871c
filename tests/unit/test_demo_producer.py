"""The replaying producer against librdkafka's own mock cluster: reports, resuming, and what it refuses."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from headwater.demo.events import TOPICS, ReplayPlan, ReplaySpec, plan_replay
from headwater.demo.flights import read_month
from headwater.demo.journal import Journal
from headwater.demo.producer import DeliveryError, Replay, ReplayProgress
from headwater.demo.reconcile import LogRecord, count_copies, read_records, reconcile
from headwater.demo.topic_log import TopicLog
from headwater.errors import UserError


@pytest.fixture(scope="module")
def plan() -> ReplayPlan:
    flights = read_month(1)
    return plan_replay(ReplaySpec(month=1, seed=4, duplicates=0.2, late=0.02), flights[:300])


@pytest.fixture
def cluster() -> Iterator[Producer]:
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 2})
    yield producer
    producer.flush(5)


@pytest.fixture
def bootstrap(cluster: Producer) -> str:
    broker = next(iter(cluster.list_topics(timeout=10).brokers.values()))
    for topic in TOPICS:
        cluster.list_topics(topic, timeout=10)  # the mock cluster creates what is asked for
    return f"{broker.host}:{broker.port}"


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


@pytest.fixture
def log(bootstrap: str) -> Iterator[TopicLog]:
    with TopicLog(bootstrap) as opened:
        yield opened


def _ends(log: TopicLog) -> dict[tuple[str, int], int]:
    ends = {(topic, p): log.offsets(topic, p)[1] for topic in TOPICS for p in log.partitions(topic)}
    return {place: end for place, end in ends.items() if end}


class _StopReplay(Exception):  # noqa: N818 - a signal of the test, not an error
    """Ends a replay where the test wants it to end."""


def test_replay_whole_plan_every_record_is_reported_and_in_the_log(
    plan: ReplayPlan, journal: Journal, bootstrap: str, log: TopicLog
) -> None:
    seen: list[ReplayProgress] = []
    chunks: list[int] = []
    Replay(plan, journal, bootstrap).run(chunks.append, seen.append)
    assert chunks == list(range(plan.chunks))
    assert (seen[-1].slices, seen[-1].of_slices) == (len(plan.slices), len(plan.slices))
    assert journal.delivered.total() == len(plan.emissions)
    assert not journal.unreported
    assert _ends(log) == dict(journal.delivered)


def test_replay_run_again_after_the_end_sends_nothing(
    plan: ReplayPlan, journal: Journal, bootstrap: str, log: TopicLog
) -> None:
    Replay(plan, journal, bootstrap).run(lambda _: None, lambda _: None)
    before = _ends(log)
    assert reconcile(plan, journal, log) == 0
    Replay(plan, journal, bootstrap).run(lambda _: None, lambda _: None)
    assert _ends(log) == before


def test_replay_killed_before_the_journal_line_reconciles_and_goes_on(
    plan: ReplayPlan, tmp_path: Path, bootstrap: str, log: TopicLog
) -> None:
    """The producer dies when a slice is in the log but its line is not in the journal."""
    killed = Journal(tmp_path / "journal")

    def stop_at_third_slice(progress: ReplayProgress) -> None:
        if progress.slices == 3:
            raise _StopReplay

    with pytest.raises(_StopReplay):
        Replay(plan, killed, bootstrap).run(lambda _: None, stop_at_third_slice)
    lines = (tmp_path / "journal").read_text().splitlines(keepends=True)
    (tmp_path / "journal").write_text("".join(lines[:2]) + lines[2][:9])

    journal = Journal(tmp_path / "journal")
    assert journal.next_slice == 2
    third = plan.slices[2].end - plan.slices[2].start
    assert reconcile(plan, journal, log) == third
    assert reconcile(plan, Journal(tmp_path / "journal"), log) == 0
    Replay(plan, journal, bootstrap).run(lambda _: None, lambda _: None)

    reread = Journal(tmp_path / "journal")
    assert sum(map(reread.produced, TOPICS)) == len(plan.emissions) + third
    assert _ends(log) == dict(reread.delivered + reread.unreported)


def test_replay_log_shorter_than_the_journal_is_refused(
    plan: ReplayPlan, journal: Journal, log: TopicLog
) -> None:
    journal.record_slice(0, Counter({("departures", 0): 7}))
    with pytest.raises(UserError, match="departures-0 ends at offset 0, but 7 records"):
        reconcile(plan, journal, log)


def test_reconcile_foreign_record_is_named(
    plan: ReplayPlan, journal: Journal, cluster: Producer, log: TopicLog
) -> None:
    cluster.produce("arrivals", value=b"not of the demo", partition=1)
    cluster.flush(10)
    with pytest.raises(UserError, match="arrivals-1 offset 0 holds a record that is not the demo's"):
        reconcile(plan, journal, log)


def test_read_records_copies_are_counted_by_the_batch_that_read_them(
    plan: ReplayPlan, journal: Journal, bootstrap: str, log: TopicLog
) -> None:
    Replay(plan, journal, bootstrap).run(lambda _: None, lambda _: None)
    records = [record for topic in TOPICS for record in read_records(log, topic)]
    assert len(records) == len(plan.emissions)

    def by_twenties(record: LogRecord) -> int:
        return record.offset // 20

    planned = sum(emission.copy for emission in plan.emissions)
    assert count_copies(records, lambda _: 0).all == planned
    assert count_copies(records, lambda _: 0).in_later_batches == 0
    assert 0 < count_copies(records, by_twenties).in_later_batches < planned


def test_replay_foreign_record_in_between_stops_the_replay(
    plan: ReplayPlan, journal: Journal, bootstrap: str, cluster: Producer
) -> None:
    for partition in range(4):
        cluster.produce("departures", value=b"not of the demo", partition=partition)
    cluster.flush(10)
    with pytest.raises(DeliveryError, match="somebody else writes to this topic"):
        Replay(plan, journal, bootstrap).run(lambda _: None, lambda _: None)


def test_replay_rate_spreads_the_events_over_the_clock(
    plan: ReplayPlan, journal: Journal, bootstrap: str
) -> None:
    """A clock that moves a second at each look: at 20 events a second the replay takes its time."""
    now_s = 0.0

    def monotonic() -> float:
        nonlocal now_s
        now_s += 1.0
        return now_s

    Replay(plan, journal, bootstrap, rate=20.0, monotonic=monotonic).run(lambda _: None, lambda _: None)
    assert now_s >= len(plan.emissions) / 20.0
    assert journal.delivered.total() == len(plan.emissions)


def test_replay_check_that_fails_ends_the_wait(plan: ReplayPlan, journal: Journal) -> None:
    def broker_is_dead() -> None:
        raise _StopReplay

    clients: list[Producer] = []

    def producer(properties: dict[str, Any]) -> Producer:
        clients.append(Producer(properties))
        return clients[0]

    replay = Replay(plan, journal, "127.0.0.1:1", producer=producer, check=broker_is_dead)
    with pytest.raises(_StopReplay):
        replay.run(lambda _: None, lambda _: None)
    assert journal.next_slice == 0
    clients[0].purge()
    assert clients[0].flush(10) == 0  # what is reported of these records holds the client


def test_journal_torn_only_line_counts_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_text('{"slice":0,"deliv')
    journal = Journal(path)
    assert journal.next_slice == 0
    journal.record_slice(0, Counter({("arrivals", 2): 5}))
    assert Journal(path).next_offset("arrivals", 2) == 5
