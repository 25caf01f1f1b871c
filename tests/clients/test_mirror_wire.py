"""`headwater mirror` between two of our brokers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
)

from headwater.errors import UsageError
from headwater.mirror import MirrorError
from headwater.mirror.end import End
from headwater.mirror.errors import AwayError
from headwater.mirror.groups import GroupOffsets
from headwater.mirror.kept import load
from headwater.mirror.release import release
from headwater.mirror.topics import Choice
from headwater.running.mirrors import mirror_folder, mirror_problems, mirror_rows, saved_mirrors
from headwater_broker.testing import RunningBroker, broker
from headwater_streams.sources.kafka_cluster import KafkaCluster
from kafka_clients import QUIET, admin_of
from mirrored_topics import (
    RunningMirror,
    contents,
    make_anew,
    make_topic,
    mirror_once,
    rows,
    send,
    send_transaction,
)

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def west() -> Iterator[RunningBroker]:
    with broker() as running:
        yield running


@pytest.fixture
def east() -> Iterator[RunningBroker]:
    with broker() as running:
        yield running


def admin(of: RunningBroker) -> AdminClient:
    return admin_of(of.bootstrap)


def until(holds: Callable[[], bool], within_s: float = 20) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_mirror_copies_partition_for_partition_with_offsets_and_times(
    west: RunningBroker, east: RunningBroker, codec: str
) -> None:
    make_topic(west.bootstrap, "clicks", 3)
    send(west.bootstrap, "clicks", range(5000), **{"compression.type": codec})

    status, told = mirror_once(west.bootstrap, east.bootstrap)

    assert rows(east.bootstrap, "clicks") == rows(west.bootstrap, "clicks")
    assert (status["topics"][0]["records"], status["topics"][0]["lag"], told) == (5000, 0, [])


def test_mirror_goes_on_where_the_target_ends(west: RunningBroker, east: RunningBroker) -> None:
    make_topic(west.bootstrap, "clicks", 2)
    for part in range(3):
        send(west.bootstrap, "clicks", range(part * 500, part * 500 + 500))
        mirror_once(west.bootstrap, east.bootstrap)

    assert rows(east.bootstrap, "clicks") == rows(west.bootstrap, "clicks")


def test_mirror_leaves_out_what_was_aborted_and_translates_groups_over_the_gaps(
    west: RunningBroker, east: RunningBroker
) -> None:
    make_topic(west.bootstrap, "orders")
    producer = Producer({"bootstrap.servers": west.bootstrap, "transactional.id": "t", **QUIET})
    producer.init_transactions()
    for number in range(12):
        producer.begin_transaction()
        for each in range(3):
            producer.produce("orders", b"%d" % (10 * number + each))
        producer.flush()
        producer.abort_transaction() if number % 3 == 1 else producer.commit_transaction()
    there = rows(west.bootstrap, "orders")
    places = {f"group-{offset}": offset for offset in range(there[-1][1] + 2)}
    for group, offset in places.items():
        admin(west).alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, [TopicPartition("orders", 0, offset)])]
        )[group].result()

    mirror_once(west.bootstrap, east.bootstrap, groups=lambda group: group.startswith("group-"))

    here = rows(east.bootstrap, "orders")
    assert contents(here) == contents(there)
    assert [row[1] for row in here] == list(range(len(there)))
    for group, offset in places.items():
        found = admin(east).list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
        assert found.topic_partitions[0].offset == sum(row[1] < offset for row in there), group


def test_mirror_copies_what_compaction_left(west: RunningBroker, east: RunningBroker, tmp_path: Path) -> None:
    with broker(properties={"log.cleaner.backoff.ms": "100"}) as source:
        make_topic(
            source.bootstrap,
            "state",
            cleanup_policy="compact",
            min_cleanable_dirty_ratio="0.01",
            segment_bytes="20000",
        )
        for part in range(5):
            send(source.bootstrap, "state", range(part * 400, part * 400 + 400))
        until(lambda: len(rows(source.bootstrap, "state")) < 1500)

        mirror_once(source.bootstrap, east.bootstrap)
        mirrored = rows(east.bootstrap, "state")
        of_source = {row[2]: row[3] for row in rows(source.bootstrap, "state")}

        assert {row[2]: row[3] for row in mirrored} == of_source
        runs = load(End(KafkaCluster(east.bootstrap))).runs["state", 0]
        by_value = {row[3]: row[1] for row in rows(source.bootstrap, "state")}
        for row in mirrored:
            assert row[3] not in by_value or runs.origin(row[1]) == by_value[row[3]]


def test_mirror_tells_what_expired_before_it_was_mirrored(west: RunningBroker, east: RunningBroker) -> None:
    make_topic(west.bootstrap, "clicks")
    send(west.bootstrap, "clicks", range(100))
    mirror_once(west.bootstrap, east.bootstrap)
    send(west.bootstrap, "clicks", range(100, 200))
    admin(west).delete_records([TopicPartition("clicks", 0, 150)])[TopicPartition("clicks", 0, 150)].result()

    status, told = mirror_once(west.bootstrap, east.bootstrap)

    assert told == [
        "topic clicks, partition 0: 50 offsets of the source, from 100 on, expired before they were mirrored"
    ]
    assert [row[3] for row in rows(east.bootstrap, "clicks")] == [
        b"value %d" % each for each in (*range(100), *range(150, 200))
    ]
    assert status["topics"][0]["lost"] == 50
    send(west.bootstrap, "clicks", range(200, 210))
    assert (
        mirror_once(west.bootstrap, east.bootstrap)[0]["topics"][0]["lost"] == 50
    )  # also of another process


def test_mirror_goes_on_saying_what_expired_though_no_record_came_behind_it(
    west: RunningBroker, east: RunningBroker
) -> None:
    make_topic(west.bootstrap, "clicks")
    send(west.bootstrap, "clicks", range(100))

    def lost_after(sent: int, gone_before: int) -> int:
        send(west.bootstrap, "clicks", range(sent))
        place = TopicPartition("clicks", 0, gone_before)
        admin(west).delete_records([place])[place].result()
        return mirror_once(west.bootstrap, east.bootstrap)[0]["topics"][0]["lost"]

    # Nothing expired yet; all of 50; nothing new; all of 20 more; and records that stay.
    steps = [(0, 0), (50, 150), (0, 150), (20, 170), (1, 170), (1, 170)]
    assert [lost_after(*step) for step in steps] == [0, 50, 50, 70, 70, 70]
    here = rows(east.bootstrap, "clicks")
    runs = load(End(KafkaCluster(east.bootstrap))).runs["clicks", 0]
    assert [runs.origin(row[1]) for row in here] == [*range(100), 170, 171]


def test_mirror_tells_what_expired_before_the_first_record_was_mirrored(
    west: RunningBroker, east: RunningBroker
) -> None:
    make_topic(west.bootstrap, "clicks")
    make_topic(west.bootstrap, "old")
    send(west.bootstrap, "old", range(9))
    place = TopicPartition("old", 0, 5)
    admin(west).delete_records([place])[place].result()
    mirror_once(west.bootstrap, east.bootstrap)  # what was gone before a mirror began is not lost by one
    send(west.bootstrap, "clicks", range(100))
    place = TopicPartition("clicks", 0, 60)
    admin(west).delete_records([place])[place].result()

    status, told = mirror_once(west.bootstrap, east.bootstrap)

    assert [topic["lost"] for topic in status["topics"]] == [60, 0]
    assert told == [
        "topic clicks, partition 0: 60 offsets of the source, from 0 on, expired before they were mirrored"
    ]


def test_mirror_goes_on_where_all_that_it_wrote_has_expired(west: RunningBroker, east: RunningBroker) -> None:
    make_topic(west.bootstrap, "clicks")
    send(west.bootstrap, "clicks", range(100))
    mirror_once(west.bootstrap, east.bootstrap)
    place = TopicPartition("clicks", 0, 100)
    admin(east).delete_records([place])[place].result()
    send(west.bootstrap, "clicks", range(100, 110))

    assert mirror_once(west.bootstrap, east.bootstrap)[1] == []

    assert rows(east.bootstrap, "clicks") == rows(west.bootstrap, "clicks")[100:]


def test_mirror_halts_before_a_record_without_a_key_that_a_compacted_topic_does_not_take(
    west: RunningBroker, east: RunningBroker
) -> None:
    make_topic(west.bootstrap, "clicks")
    producer = Producer({"bootstrap.servers": west.bootstrap, **QUIET})
    producer.produce("clicks", b"without a key")
    producer.flush()
    change(west, "clicks", "cleanup.policy", "compact")

    with pytest.raises(
        MirrorError, match=r"refuses a batch of it: invalid record \(Compacted .* without key"
    ):
        mirror_once(west.bootstrap, east.bootstrap)
    change(east, "clicks", "cleanup.policy", "delete")
    mirror_once(west.bootstrap, east.bootstrap)
    assert rows(east.bootstrap, "clicks") == rows(west.bootstrap, "clicks")


def test_mirror_once_waits_for_a_partition_that_nobody_leads(
    west: RunningBroker, east: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(west.bootstrap, "clicks", 2)
    send(west.bootstrap, "clicks", range(100))
    is_led, offsets = threading.Event(), End.offsets

    def of_those_that_are_led(end: End, places: Any, which: int, *, committed: bool = False) -> Any:
        found = offsets(end, places, which, committed=committed)
        return {place: offset for place, offset in found.items() if is_led.is_set() or place != ("clicks", 1)}

    monkeypatch.setattr(End, "offsets", of_those_that_are_led)
    mirror = RunningMirror(west.bootstrap, east.bootstrap, once=True)
    with mirror:
        until(lambda: bool(mirror.told))
        assert mirror.told == [
            "topic clicks, partition 1: nobody leads it at the source; the mirror waits for it"
        ]
        is_led.set()
        mirror.join()
    assert rows(east.bootstrap, "clicks") == rows(west.bootstrap, "clicks")


def test_mirror_does_not_call_expired_markers_lost(west: RunningBroker, east: RunningBroker) -> None:
    make_topic(west.bootstrap, "orders")
    for _ in range(3):
        send_transaction(west.bootstrap, "orders", range(3), aborts=True)
    send_transaction(west.bootstrap, "orders", range(3))
    for _ in range(3):
        send_transaction(west.bootstrap, "orders", range(3), aborts=True)
    mirror_once(west.bootstrap, east.bootstrap)
    end = 7 * 4
    admin(west).delete_records([TopicPartition("orders", 0, end)])[TopicPartition("orders", 0, end)].result()

    status, told = mirror_once(west.bootstrap, east.bootstrap)

    assert (status["topics"][0]["lost"], told) == (0, [])
    send_transaction(west.bootstrap, "orders", range(3, 6))
    mirror_once(west.bootstrap, east.bootstrap)
    assert [row[3] for row in rows(east.bootstrap, "orders")] == [b"%d" % each for each in range(6)]


def test_mirror_halts_where_somebody_else_wrote(west: RunningBroker, east: RunningBroker) -> None:
    make_topic(west.bootstrap, "clicks")
    send(west.bootstrap, "clicks", range(100))
    mirror_once(west.bootstrap, east.bootstrap)
    send(east.bootstrap, "clicks", range(5))
    send(west.bootstrap, "clicks", range(100, 110))

    with pytest.raises(MirrorError, match=r"clicks at the target has records that this mirror did not write"):
        mirror_once(west.bootstrap, east.bootstrap)


def test_mirror_halts_before_a_topic_that_has_records_already(
    west: RunningBroker, east: RunningBroker
) -> None:
    for each in (west, east):
        make_topic(each.bootstrap, "clicks")
        send(each.bootstrap, "clicks", range(3))

    with pytest.raises(MirrorError, match=r"give the mirror a --prefix"):
        mirror_once(west.bootstrap, east.bootstrap)
    mirror_once(west.bootstrap, east.bootstrap, "clicks", prefix="west.")
    assert contents(rows(east.bootstrap, "west.clicks")) == contents(rows(west.bootstrap, "clicks"))


def test_mirror_of_a_topic_that_was_deleted_at_the_target_is_made_anew(
    west: RunningBroker, east: RunningBroker
) -> None:
    make_topic(west.bootstrap, "clicks")
    send(west.bootstrap, "clicks", range(100))
    mirror_once(west.bootstrap, east.bootstrap)
    admin(east).delete_topics(["clicks"])["clicks"].result()

    mirror_once(west.bootstrap, east.bootstrap)

    assert rows(east.bootstrap, "clicks") == rows(west.bootstrap, "clicks")


def test_mirror_of_a_topic_that_was_made_anew_at_the_source_waits_for_its_deletion_at_the_target(
    west: RunningBroker, east: RunningBroker
) -> None:
    make_topic(west.bootstrap, "clicks")
    send(west.bootstrap, "clicks", range(100))
    mirror_once(west.bootstrap, east.bootstrap)
    make_anew(west.bootstrap, "clicks", range(3))

    with pytest.raises(MirrorError, match=r"it was deleted and made anew at the source"):
        mirror_once(west.bootstrap, east.bootstrap)
    admin(east).delete_topics(["clicks"])["clicks"].result()
    mirror_once(west.bootstrap, east.bootstrap)
    assert rows(east.bootstrap, "clicks") == rows(west.bootstrap, "clicks")


def test_topic_that_others_made_anew_at_the_target_is_the_targets_own(
    west: RunningBroker, east: RunningBroker
) -> None:
    make_topic(west.bootstrap, "clicks")
    send(west.bootstrap, "clicks", range(100))
    mirror_once(west.bootstrap, east.bootstrap)
    make_anew(east.bootstrap, "clicks", range(1000, 1010))

    with pytest.raises(MirrorError, match=r"clicks was deleted and made anew at the target, not by a mirror"):
        mirror_once(west.bootstrap, east.bootstrap)
    with pytest.raises(UsageError, match=r"no topic that is mirrored into .* matches"):
        release(KafkaCluster(east.bootstrap), Choice((re.compile("clicks"),)))
    _, told = mirror_once(east.bootstrap, west.bootstrap, prefix="east.")

    assert rows(west.bootstrap, "east.clicks") == rows(east.bootstrap, "clicks")
    assert told == []
    admin(east).delete_topics(["clicks"])["clicks"].result()
    mirror_once(west.bootstrap, east.bootstrap, "clicks")
    assert rows(east.bootstrap, "clicks") == rows(west.bootstrap, "clicks")


@pytest.mark.parametrize("numbers", [range(0), range(1000, 1010)])
def test_mirror_that_runs_writes_nothing_into_a_topic_that_others_made_anew_at_the_target(
    west: RunningBroker, east: RunningBroker, numbers: range
) -> None:
    make_topic(west.bootstrap, "clicks")
    send(west.bootstrap, "clicks", range(100))
    with RunningMirror(west.bootstrap, east.bootstrap) as mirror:
        until(lambda: "clicks" in admin(east).list_topics(timeout=5).topics)
        until(lambda: len(rows(east.bootstrap, "clicks")) == 100)
        make_anew(east.bootstrap, "clicks", numbers)
        until(lambda: any("made anew at the target" in each for each in mirror.told))
        send(west.bootstrap, "clicks", range(100, 110))
        time.sleep(1)
        assert [row[3] for row in rows(east.bootstrap, "clicks")] == [b"value %d" % each for each in numbers]
        admin(east).delete_topics(["clicks"])["clicks"].result()
        until(lambda: "clicks" in admin(east).list_topics(timeout=5).topics)
        until(lambda: len(rows(east.bootstrap, "clicks")) == 110)

    assert rows(east.bootstrap, "clicks") == rows(west.bootstrap, "clicks")


def test_mirror_both_ways_makes_no_loop(west: RunningBroker, east: RunningBroker) -> None:
    make_topic(west.bootstrap, "clicks")
    make_topic(east.bootstrap, "orders")
    with (
        RunningMirror(west.bootstrap, east.bootstrap, prefix="west.") as one,
        RunningMirror(east.bootstrap, west.bootstrap, prefix="east."),
    ):
        send(west.bootstrap, "clicks", range(100))
        send(east.bootstrap, "orders", range(100))
        until(lambda: "west.clicks" in admin(east).list_topics(timeout=5).topics)
        until(lambda: "east.orders" in admin(west).list_topics(timeout=5).topics)
        until(lambda: len(rows(east.bootstrap, "west.clicks")) == 100)
        until(lambda: len(rows(west.bootstrap, "east.orders")) == 100)
        time.sleep(2)

    for each in (west, east):
        names = {name for name in admin(each).list_topics(timeout=5).topics if not name.startswith("__")}
        assert len(names) == 2, names
    assert one.told == ["1 topic that came from the target: not copied back, as east.orders"]


def test_mirror_in_a_ring_of_three_makes_no_loop(west: RunningBroker, east: RunningBroker) -> None:
    make_topic(west.bootstrap, "clicks")
    send(west.bootstrap, "clicks", range(10))
    with broker() as south:
        for one, other in ((west, east), (east, south), (south, west)) * 2:
            mirror_once(one.bootstrap, other.bootstrap)

        assert [len(rows(each.bootstrap, "clicks")) for each in (west, east, south)] == [10, 10, 10]


def test_mirror_of_a_cluster_into_itself_is_refused(west: RunningBroker) -> None:
    with pytest.raises(MirrorError, match=r"are one cluster"):
        mirror_once(west.bootstrap, west.bootstrap)


def test_mirror_follows_partitions_and_settings_and_leaves_the_targets_own(
    west: RunningBroker, east: RunningBroker
) -> None:
    make_topic(west.bootstrap, "clicks", retention_ms="86400000", cleanup_policy="delete")
    mirror_once(west.bootstrap, east.bootstrap)
    assert settings_of(east, "clicks") == {"retention.ms": "86400000", "cleanup.policy": "delete"}

    change(east, "clicks", "retention.ms", "-1")
    change(west, "clicks", "segment.bytes", "1000000")
    change(west, "clicks", "cleanup.policy", None)
    admin(west).create_partitions([NewPartitions("clicks", 3)])["clicks"].result()
    send(west.bootstrap, "clicks", range(300))
    mirror_once(west.bootstrap, east.bootstrap)

    assert settings_of(east, "clicks") == {"retention.ms": "-1", "segment.bytes": "1000000"}
    assert rows(east.bootstrap, "clicks") == rows(west.bootstrap, "clicks")
    assert {row[0] for row in rows(east.bootstrap, "clicks")} == {0, 1, 2}


def test_two_processes_of_one_mirror_write_each_record_once(west: RunningBroker, east: RunningBroker) -> None:
    make_topic(west.bootstrap, "clicks", 2)
    mirror_once(west.bootstrap, east.bootstrap)
    with RunningMirror(west.bootstrap, east.bootstrap), RunningMirror(west.bootstrap, east.bootstrap):
        for part in range(20):
            send(west.bootstrap, "clicks", range(part * 100, part * 100 + 100))
        until(lambda: len(rows(east.bootstrap, "clicks")) >= 2000)

    assert rows(east.bootstrap, "clicks") == rows(west.bootstrap, "clicks")


def test_two_processes_of_one_mirror_of_transactions_keep_each_run(
    west: RunningBroker, east: RunningBroker
) -> None:
    make_topic(west.bootstrap, "orders", 2)
    mirror_once(west.bootstrap, east.bootstrap)
    with RunningMirror(west.bootstrap, east.bootstrap), RunningMirror(west.bootstrap, east.bootstrap):
        for part in range(60):
            send_transaction(west.bootstrap, "orders", range(part * 7, part * 7 + 7), aborts=part % 5 == 3)
        until(lambda: len(rows(east.bootstrap, "orders")) >= 48 * 7)

    there, here = rows(west.bootstrap, "orders"), rows(east.bootstrap, "orders")
    assert contents(here) == contents(there)
    runs = load(End(KafkaCluster(east.bootstrap))).runs
    for one, other in zip(here, there, strict=True):
        assert runs["orders", one[0]].origin(one[1]) == other[1]


def test_mirror_of_a_topic_that_is_made_anew_while_it_runs_copies_nothing_of_the_new_one(
    west: RunningBroker, east: RunningBroker
) -> None:
    make_topic(west.bootstrap, "clicks")
    send(west.bootstrap, "clicks", range(100))
    make_topic(west.bootstrap, "orders")
    with RunningMirror(west.bootstrap, east.bootstrap, refresh_s=4.0) as mirror:
        until(lambda: "clicks" in admin(east).list_topics(timeout=5).topics)
        until(lambda: len(rows(east.bootstrap, "clicks")) == 100)
        make_anew(west.bootstrap, "clicks", range(1000, 1300))
        send(west.bootstrap, "orders", range(10))
        until(lambda: len(rows(east.bootstrap, "orders")) == 10)  # the others go on
        until(lambda: any("made anew at the source" in each for each in mirror.told))
        assert [row[3] for row in rows(east.bootstrap, "clicks")] == [
            b"value %d" % each for each in range(100)
        ]
        admin(east).delete_topics(["clicks"])["clicks"].result()
        until(lambda: "clicks" in admin(east).list_topics(timeout=5).topics)
        until(lambda: len(rows(east.bootstrap, "clicks")) == 300)

    assert rows(east.bootstrap, "clicks") == rows(west.bootstrap, "clicks")
    kept = load(End(KafkaCluster(east.bootstrap)))
    assert [kept.runs["clicks", 0].origin(each) for each in (0, 299)] == [0, 299]


def test_mirror_of_a_topic_that_is_deleted_while_it_runs_goes_on_with_the_others(
    west: RunningBroker, east: RunningBroker
) -> None:
    for topic in ("clicks", "orders"):
        make_topic(west.bootstrap, topic)
        send(west.bootstrap, topic, range(10))
    with RunningMirror(west.bootstrap, east.bootstrap) as mirror:
        until(lambda: {"clicks", "orders"} <= admin(east).list_topics(timeout=5).topics.keys())
        until(lambda: len(rows(east.bootstrap, "clicks")) == 10)
        admin(west).delete_topics(["clicks"])["clicks"].result()
        send(west.bootstrap, "orders", range(10, 20))
        until(lambda: len(rows(east.bootstrap, "orders")) == 20)
        until(lambda: [each["topic"] for each in mirror.mirror.status()["topics"]] == ["orders"])

    assert (len(rows(east.bootstrap, "clicks")), mirror.told) == (10, [])


def test_mirror_says_that_no_topic_matches_and_which_ones_there_are(
    west: RunningBroker, east: RunningBroker
) -> None:
    make_topic(west.bootstrap, "clicks")

    status, told = mirror_once(west.bootstrap, east.bootstrap, "clciks")

    assert (status["topics"], told) == (
        [],
        [f"no topic of {west.bootstrap} matches --topics; it has clicks"],
    )


def test_mirror_that_cannot_make_a_topic_says_so_and_copies_the_others(
    west: RunningBroker, east: RunningBroker, tmp_path: Path
) -> None:
    long = "c" * 249
    for topic in (long, "orders"):
        make_topic(west.bootstrap, topic)
        send(west.bootstrap, topic, range(10))

    with pytest.raises(
        MirrorError, match=rf"topic w\.{long} at the target cannot be made as {long} is: .*249"
    ):
        mirror_once(west.bootstrap, east.bootstrap, prefix="w.")

    assert len(rows(east.bootstrap, "w.orders")) == 10
    with RunningMirror(west.bootstrap, east.bootstrap, prefix="w.", status_folder=mirror_folder(tmp_path)):
        until(lambda: len(mirror_problems(saved_mirrors(tmp_path))) == 1)
    assert mirror_problems(saved_mirrors(tmp_path)) == []  # it does not run any more


def test_mirror_once_that_is_stopped_does_not_say_that_all_is_mirrored(
    west: RunningBroker, east: RunningBroker
) -> None:
    make_topic(west.bootstrap, "clicks")
    mirror = RunningMirror(west.bootstrap, east.bootstrap, once=True)
    mirror.stop.set()

    with pytest.raises(MirrorError, match=r"stopped before everything was mirrored"):
        mirror.mirror.run()


def test_mirror_once_whose_groups_could_not_be_written_says_so(
    west: RunningBroker, east: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(west.bootstrap, "clicks")
    follow, calls = GroupOffsets.follow, [0]

    def fails_at_the_end(self: GroupOffsets, mirrored: Any) -> None:
        calls[0] += 1
        if calls[0] > 1 and mirrored:
            raise AwayError("the coordinator of group readers is away")
        follow(self, mirrored)

    monkeypatch.setattr(GroupOffsets, "follow", fails_at_the_end)
    with pytest.raises(MirrorError, match=r"groups' offsets .*: the coordinator of group readers is away"):
        mirror_once(west.bootstrap, east.bootstrap)


def test_mirror_that_waits_for_brokers_is_not_shown_as_stopped(
    west: RunningBroker, east: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, going_on = threading.Event(), threading.Event()

    def waits(*_: object) -> None:
        held.set()
        going_on.wait(30)

    monkeypatch.setattr(GroupOffsets, "follow", waits)
    with RunningMirror(west.bootstrap, east.bootstrap, status_folder=mirror_folder(tmp_path)):
        assert held.wait(20)
        until(lambda: bool(saved_mirrors(tmp_path)))
        before_ms = saved_mirrors(tmp_path)[0]["at_ms"]
        until(lambda: saved_mirrors(tmp_path)[0]["at_ms"] > before_ms)
        going_on.set()


def test_processes_of_a_mirror_that_begin_at_once_are_one_producer(
    west: RunningBroker, east: RunningBroker
) -> None:
    for topic in ("clicks", "orders"):
        make_topic(west.bootstrap, topic)
        send(west.bootstrap, topic, range(100))
    with (
        RunningMirror(west.bootstrap, east.bootstrap, "clicks"),
        RunningMirror(west.bootstrap, east.bootstrap, "orders"),
    ):
        until(lambda: {"clicks", "orders"} <= admin(east).list_topics(timeout=5).topics.keys())
        until(lambda: all(len(rows(east.bootstrap, each)) == 100 for each in ("clicks", "orders")))
    for topic in ("clicks", "orders"):
        send(west.bootstrap, topic, range(100, 200))
    mirror_once(west.bootstrap, east.bootstrap)

    assert all(rows(east.bootstrap, each) == rows(west.bootstrap, each) for each in ("clicks", "orders"))


def test_mirror_translates_hundreds_of_groups(west: RunningBroker, east: RunningBroker) -> None:
    make_topic(west.bootstrap, "clicks", 2)
    send(west.bootstrap, "clicks", range(1000))
    groups = [f"group-{number}" for number in range(300)]
    for number, group in enumerate(groups):
        places = [TopicPartition("clicks", each, number) for each in range(2)]
        admin(west).alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])[
            group
        ].result()

    mirror_once(west.bootstrap, east.bootstrap, groups=lambda _: True)

    end = End(KafkaCluster(east.bootstrap))
    end.refresh()
    found = [end.committed(group) for group in groups]
    end.drop_connections()
    assert found == [{("clicks", each): number for each in range(2)} for number in range(300)]


def test_mirror_of_topics_that_are_released_ends_and_they_are_mirrored_back(
    west: RunningBroker, east: RunningBroker
) -> None:
    for topic in ("clicks", "orders"):
        make_topic(west.bootstrap, topic)
        send(west.bootstrap, topic, range(100))
    mirror_once(west.bootstrap, east.bootstrap)
    target = KafkaCluster(east.bootstrap)

    with pytest.raises(UsageError, match=r"matches --topics; it has clicks"):
        release(target, Choice((re.compile("clciks"),)))
    (released,) = release(target, Choice((re.compile("clicks"),)))
    assert (released.name, released.released) == ("clicks", {0: 100})
    assert release(target, Choice((re.compile("clicks"),))) == []
    again = headwater("mirror", "--release", "--to", east.bootstrap, "--topics", "clicks")
    assert again.stdout == f"all topics of {east.bootstrap} that match are released already\n"
    send(east.bootstrap, "clicks", range(100, 110))
    send(west.bootstrap, "orders", range(100, 110))
    with pytest.raises(MirrorError, match=r"clicks at the target was released"):
        mirror_once(west.bootstrap, east.bootstrap)
    assert rows(east.bootstrap, "orders") == rows(west.bootstrap, "orders")  # the others go on
    assert [row[3] for row in rows(east.bootstrap, "clicks")] == [b"value %d" % each for each in range(110)]

    with pytest.raises(MirrorError, match=r"records that this mirror did not write"):
        mirror_once(east.bootstrap, west.bootstrap)
    admin(west).delete_topics(["clicks"])["clicks"].result()
    _, told = mirror_once(east.bootstrap, west.bootstrap)
    assert rows(west.bootstrap, "clicks") == rows(east.bootstrap, "clicks")
    assert told == ["1 topic that came from the target: not copied back, as orders"]


def test_mirror_that_runs_stops_at_a_topic_that_is_released(west: RunningBroker, east: RunningBroker) -> None:
    make_topic(west.bootstrap, "clicks")
    send(west.bootstrap, "clicks", range(10))
    with RunningMirror(west.bootstrap, east.bootstrap) as mirror:
        until(lambda: "clicks" in admin(east).list_topics(timeout=5).topics)
        until(lambda: len(rows(east.bootstrap, "clicks")) == 10)
        release(KafkaCluster(east.bootstrap), Choice((re.compile("clicks"),)))
        until(lambda: any("was released" in each for each in mirror.told))
        send(west.bootstrap, "clicks", range(10, 20))
        time.sleep(1)

    assert len(rows(east.bootstrap, "clicks")) == 10


def test_mirror_refuses_a_topic_of_its_own_that_forgets(west: RunningBroker, east: RunningBroker) -> None:
    make_topic(east.bootstrap, "__headwater_mirror", cleanup_policy="delete")

    with pytest.raises(MirrorError, match=r"would forget .*--config cleanup\.policy=compact mends that"):
        mirror_once(west.bootstrap, east.bootstrap)


def test_mirror_halts_before_records_that_the_target_does_not_take_and_goes_on_once_it_does(
    west: RunningBroker, east: RunningBroker
) -> None:
    make_topic(west.bootstrap, "clicks", 2)
    mirror_once(west.bootstrap, east.bootstrap)
    change(east, "clicks", "max.message.bytes", "500")
    producer = Producer({"bootstrap.servers": west.bootstrap, **QUIET})
    producer.produce("clicks", b"." * 1000, partition=0)
    producer.produce("clicks", b"small", partition=1)
    assert producer.flush(10) == 0
    with RunningMirror(west.bootstrap, east.bootstrap) as mirror:
        until(lambda: len(rows(east.bootstrap, "clicks")) == 1)
        until(lambda: any("max.message.bytes=" in each for each in mirror.told))
        change(east, "clicks", "max.message.bytes", "2000")
        until(lambda: len(rows(east.bootstrap, "clicks")) == 2)

    assert rows(east.bootstrap, "clicks") == rows(west.bootstrap, "clicks")


def test_mirror_copies_records_that_have_become_too_old_to_be_produced(
    west: RunningBroker, east: RunningBroker
) -> None:
    make_topic(west.bootstrap, "clicks")
    producer = Producer({"bootstrap.servers": west.bootstrap, **QUIET})
    producer.produce("clicks", b"old", timestamp=1_357_034_400_000)
    producer.flush()
    change(west, "clicks", "message.timestamp.before.max.ms", "3600000")

    mirror_once(west.bootstrap, east.bootstrap)

    assert rows(east.bootstrap, "clicks") == rows(west.bootstrap, "clicks")


def test_mirror_keeps_times_where_the_targets_brokers_stamp_records(west: RunningBroker) -> None:
    make_topic(west.bootstrap, "clicks")
    producer = Producer({"bootstrap.servers": west.bootstrap, **QUIET})
    producer.produce("clicks", b"old", timestamp=1_357_034_400_000)
    assert producer.flush(10) == 0
    with broker(properties={"log.message.timestamp.type": "LogAppendTime"}) as stamping:
        mirror_once(west.bootstrap, stamping.bootstrap)

        assert rows(stamping.bootstrap, "clicks") == rows(west.bootstrap, "clicks")


def test_mirror_that_waits_for_an_open_transaction_says_so(
    west: RunningBroker, east: RunningBroker, tmp_path: Path
) -> None:
    make_topic(west.bootstrap, "orders")
    producer = Producer({"bootstrap.servers": west.bootstrap, "transactional.id": "t", **QUIET})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", b"1")
    producer.flush()
    send(west.bootstrap, "orders", range(5))

    def state() -> str:
        (row,) = mirror_rows(saved_mirrors(tmp_path)) or [[""]]
        return str(row[-1])

    with RunningMirror(west.bootstrap, east.bootstrap, status_folder=mirror_folder(tmp_path)):
        until(lambda: state() == "waits for an open transaction")
        producer.commit_transaction()
        until(lambda: state() == "up to date")
        until(lambda: len(rows(east.bootstrap, "orders")) == 6)
    assert state() == "stopped"


def test_mirror_that_waits_for_a_cluster_is_not_up_to_date(east: RunningBroker, tmp_path: Path) -> None:
    def state() -> str:
        (row,) = mirror_rows(saved_mirrors(tmp_path)) or [[""]]
        return str(row[-1])

    with broker(tmp_path / "west") as west:
        make_topic(west.bootstrap, "orders")
        mirror_once(west.bootstrap, east.bootstrap)
    with RunningMirror(west.bootstrap, east.bootstrap, status_folder=mirror_folder(tmp_path)):
        for _ in range(2):
            with broker(tmp_path / "west", port=west.port):
                until(lambda: state() == "up to date")
            until(lambda: state().startswith("waits: ") and west.bootstrap in state())


def test_mirror_forgets_the_runs_of_what_expired_at_the_target(
    west: RunningBroker, east: RunningBroker
) -> None:
    make_topic(west.bootstrap, "orders")
    for part in range(10):
        send_transaction(west.bootstrap, "orders", range(part * 3, part * 3 + 3))
        mirror_once(west.bootstrap, east.bootstrap)
    place = TopicPartition("orders", 0, 16)
    admin(east).delete_records([place])[place].result()

    mirror_once(west.bootstrap, east.bootstrap)

    kept = load(End(KafkaCluster(east.bootstrap)))
    assert next(iter(kept.runs["orders", 0])) == (15, 20)
    send_transaction(west.bootstrap, "orders", range(30, 33))
    mirror_once(west.bootstrap, east.bootstrap)
    assert contents(rows(east.bootstrap, "orders")) == contents(rows(west.bootstrap, "orders"))[16:]

    admin(east).delete_topics(["orders"])["orders"].result()
    mirror_once(west.bootstrap, east.bootstrap)  # from the beginning, of which nothing is kept any more
    here, there = rows(east.bootstrap, "orders"), rows(west.bootstrap, "orders")
    assert contents(here) == contents(there)
    runs = load(End(KafkaCluster(east.bootstrap))).runs["orders", 0]
    assert [runs.origin(row[1]) for row in here] == [row[1] for row in there]


def test_mirror_waits_for_either_side(tmp_path: Path) -> None:
    with broker(tmp_path / "west") as first, broker(tmp_path / "east") as second:
        west, east = first, second
        make_topic(west.bootstrap, "clicks")
        send(west.bootstrap, "clicks", range(100))
        mirror_once(west.bootstrap, east.bootstrap)
    mirror = RunningMirror(west.bootstrap, east.bootstrap)
    with mirror:
        until(lambda: bool(mirror.told))
        with broker(tmp_path / "west", port=west.port):
            send(west.bootstrap, "clicks", range(100, 200))
            with broker(tmp_path / "east", port=east.port):
                until(lambda: len(rows(east.bootstrap, "clicks")) == 200)
            time.sleep(1)
            send(west.bootstrap, "clicks", range(200, 300))
        with broker(tmp_path / "east", port=east.port), broker(tmp_path / "west", port=west.port):
            until(lambda: len(rows(east.bootstrap, "clicks")) == 300)
            assert rows(east.bootstrap, "clicks") == rows(west.bootstrap, "clicks")


def test_mirror_shows_its_lag_as_a_group_of_the_source(west: RunningBroker, east: RunningBroker) -> None:
    make_topic(west.bootstrap, "clicks")
    send(west.bootstrap, "clicks", range(100))
    status, _ = mirror_once(west.bootstrap, east.bootstrap)
    group = f"headwater-mirror-{status['target_id']}"

    def offset() -> int:
        found = admin(west).list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
        return found.topic_partitions[0].offset if found.topic_partitions else -1

    until(lambda: offset() == 100)


def test_mirror_leaves_a_group_alone_that_reads_at_the_target(
    west: RunningBroker, east: RunningBroker
) -> None:
    make_topic(west.bootstrap, "clicks")
    send(west.bootstrap, "clicks", range(100))
    commit(west, "readers", 50)
    mirror_once(west.bootstrap, east.bootstrap, groups=lambda _: True)
    commit(east, "readers", 80)
    commit(west, "readers", 60)

    mirror_once(west.bootstrap, east.bootstrap, groups=lambda _: True)

    found = (
        admin(east).list_consumer_group_offsets([ConsumerGroupTopicPartitions("readers")])["readers"].result()
    )
    assert found.topic_partitions[0].offset == 80


def test_mirror_command_copies_once_and_status_shows_it(
    west: RunningBroker, east: RunningBroker, tmp_path: Path
) -> None:
    make_topic(west.bootstrap, "clicks")
    send(west.bootstrap, "clicks", range(100))
    ends = ["--from", west.bootstrap, "--to", east.bootstrap, "--home", str(tmp_path)]

    done = headwater("mirror", *ends, "--topics", "clicks", "--name", "west", "--once")
    again = headwater("mirror", *ends, "--topics", "clicks", "--once", "--json")
    status = headwater("mirror", "--status", "--home", str(tmp_path))
    stack = headwater("status", "--home", str(tmp_path), "--json")

    assert done.stdout == f"mirrored 100 records of 1 topic into {east.bootstrap}\n", done.stderr
    assert json.loads(again.stdout)["topics"][0]["lag"] == 0
    assert "clicks" in status.stdout
    assert "stopped" in status.stdout
    assert json.loads(stack.stdout)["mirrors"][0]["topics"][0]["topic"] == "clicks"


def test_mirror_command_says_what_is_missing(west: RunningBroker, tmp_path: Path) -> None:
    for arguments, sentence in (
        (["--topics", "x"], "needs --from"),
        (["--from", west.bootstrap], "needs --topics"),
        (["--from", west.bootstrap, "--to", west.bootstrap, "--topics", "*"], "no regular expression"),
    ):
        failed = headwater("mirror", *arguments, "--home", str(tmp_path))
        assert failed.returncode == 2
        assert sentence in failed.stderr


def headwater(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headwater.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def settings_of(of: RunningBroker, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    entries = admin(of).describe_configs([resource])[resource].result()
    return {name: entry.value for name, entry in entries.items() if entry.source == 1}


def change(of: RunningBroker, topic: str, name: str, value: str | None) -> None:
    how = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value, incremental_operation=how)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin(of).incremental_alter_configs([resource])[resource].result()


def commit(of: RunningBroker, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": of.bootstrap, "group.id": group, **QUIET})
    consumer.commit(offsets=[TopicPartition("clicks", 0, offset)], asynchronous=False)
    consumer.close()
