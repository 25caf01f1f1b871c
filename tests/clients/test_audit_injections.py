"""Faults at each tier of real parts: brokers, producers that count and others, a mirror. Each is named, and no more."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from deltalake import DeltaTable

from audited_clicks import (
    MINUTE_MS,
    START_MS,
    TABLE,
    audit,
    audit_one,
    await_appended,
    commit,
    counts,
    lose_power,
    send,
    send_uncounted,
    words,
)
from headwater.cli import main
from headwater.mirror.lane import Lane
from headwater.running.counts import TopicAudit
from headwater_broker.testing import RunningBroker, broker
from headwater_client import COUNTS_TOPIC, CountedProducer, counted
from headwater_streams.base.moments import iso
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.storage.home import Home
from kafka_clients import admin_of
from mirrored_topics import make_topic, mirror_once

pytestmark = pytest.mark.timeout(120)
PROPERTIES = {"num.partitions": "1", "counts.interval.ms": "20"}
TEN = "2013-01-01T10:00:00Z"
ONE_PAST = "2013-01-01T10:01:00Z"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningBroker]:
    with broker(tmp_path / "west", properties=PROPERTIES) as running:
        make_topic(running.bootstrap, "clicks", counts_bucket_ms=str(MINUTE_MS))
        yield running


@pytest.fixture
def east() -> Iterator[RunningBroker]:
    with broker(properties={"num.partitions": "1"}) as running:
        yield running


def audit_counted(home: Home, running: RunningBroker, count: int) -> TopicAudit:
    """An audit, once the broker has counted so many records."""
    await_appended(running, count)
    return audit_one(home, running)


def test_every_tier_saw_the_same(running: RunningBroker, home: Home) -> None:
    send(running, range(10))
    send(running, range(10, 20), "web-2")
    commit(home, 0, 20, batch=0)
    found = audit_counted(home, running, 20)
    assert (words(found), found.findings, found.ok) == (["complete"] * 2, (), True)
    assert counts(found) == {
        "producer web-1": 10,
        "producer web-2": 10,
        "appended broker-1": 20,
        "broker": 20,
        f"input {TABLE}": 20,
        f"table {TABLE}": 20,
    }


@pytest.mark.parametrize("is_counted", [True, False])
def test_what_a_power_failure_took_is_missing_at_the_broker(
    tmp_path: Path, home: Home, is_counted: bool
) -> None:
    """Of producers that count, and of others; its offsets are given away again."""
    west = tmp_path / "west"
    with broker(west, properties=PROPERTIES) as running:
        make_topic(running.bootstrap, "clicks", counts_bucket_ms=str(MINUTE_MS))
        send_all(running, range(12), is_counted=is_counted)
        size = (west / "clicks-0" / f"{0:020}.log").stat().st_size
        send_all(running, range(12, 16), is_counted=is_counted, name="web-2")
        await_appended(running, 16)
    lose_power(west, "clicks-0", size)
    with broker(west, properties=PROPERTIES) as running:
        found = audit_one(home, running)
        who = "web-2" if is_counted else "broker-1"
        lost = f"clicks {ONE_PAST}: 4 records are missing at broker ({who}): offsets clicks 0 [12, 16)"
        assert (words(found), found.findings) == (["complete", "missing 4"], (lost,))
        send_all(running, range(16, 20), is_counted=is_counted, name="web-3")  # of the same bucket
        found = audit_counted(home, running, 20)
        assert [each.partition("offsets")[2] for each in found.findings] == [" clicks 0 [12, 16)"]
        assert "4 records are missing at broker" in found.findings[0]


def test_what_a_broker_counts_again_as_its_counts_were_removed_is_no_fault(
    tmp_path: Path, home: Home
) -> None:
    west = tmp_path / "west"
    with broker(west, properties=PROPERTIES) as running:
        make_topic(running.bootstrap, "clicks", counts_bucket_ms=str(MINUTE_MS))
        send_all(running, range(20), is_counted=False)
        assert words(audit_counted(home, running, 20)) == ["complete"] * 2
        admin_of(running.bootstrap).delete_topics([COUNTS_TOPIC])[COUNTS_TOPIC].result(10)
    with broker(west, properties=PROPERTIES) as running:
        send_all(running, [20], is_counted=False)
        await_appended(running, 21)
        for whole in (False, True):
            found = audit_one(home, running, whole=whole)
            assert (words(found), found.findings) == (["complete"] * 3, ())


def test_what_an_earlier_audit_saw_is_missing_where_nobody_counts(tmp_path: Path, home: Home) -> None:
    west = tmp_path / "west"
    with broker(west) as running:
        make_topic(running.bootstrap, "clicks")
        send_all(running, range(12), is_counted=False)
        size = (west / "clicks-0" / f"{0:020}.log").stat().st_size
        send_all(running, range(12, 16), is_counted=False)
        assert audit_one(home, running).ok
    lose_power(west, "clicks-0", size)
    with broker(west) as running:
        for _ in range(2):  # it is not forgotten
            found = audit_one(home, running)
            assert found.findings == (
                f"clicks {ONE_PAST}: 4 records are missing at broker: offsets clicks 0 [12, 16)",
            )


def send_all(running: RunningBroker, numbers: range, *, is_counted: bool, name: str = "web-1") -> None:
    if is_counted:
        send(running, numbers, name)
    else:
        send_uncounted(running, {n: b"%d" % n for n in numbers})


def test_a_record_that_was_sent_again_past_the_counts_is_doubled(running: RunningBroker, home: Home) -> None:
    send(running, range(20))
    send_uncounted(running, {3: b"3"})
    found = audit_one(home, running)
    assert words(found) == ["doubled 1", "complete"]
    assert found.findings == (
        f"clicks {TEN}: 1 record stands there more than once at broker: offsets clicks 0 [20, 21)",
    )


def test_records_that_come_late_are_no_fault(running: RunningBroker, home: Home) -> None:
    """Counts that come late leave their bucket open; records of an old minute are counted in it."""
    send(running, range(1), "web-0")  # from here on records are counted
    clock = [START_MS / 1000]
    client = Producer({"bootstrap.servers": running.bootstrap})
    producer = CountedProducer(client, name="web-1", clock=lambda: clock[0])
    for n in range(10):
        producer.produce("clicks", b"%d" % n, timestamp=START_MS + n * 6_000)
    client.flush(10)  # and their counts are delayed
    found = audit_one(home, running, now_ms=START_MS + 2 * MINUTE_MS)
    assert (words(found), found.ok) == (["still open 10"], True)
    clock[0] += 3600
    producer.produce("clicks", b"an hour late", timestamp=START_MS)
    producer.end()
    found = audit_one(home, running)
    assert (words(found), found.findings) == (["complete"], ())
    assert (counts(found)["producer web-1"], counts(found)["broker"]) == (11, 12)


def test_a_producer_that_dies_with_counts_unsent_is_named(running: RunningBroker, home: Home) -> None:
    send(running, range(10))
    client = Producer({"bootstrap.servers": running.bootstrap})
    producer = CountedProducer(client, name="web-2")
    for n in range(10, 15):
        producer.produce("clicks", b"%d" % n, timestamp=START_MS + n * 6_000)
    client.flush(10)
    producer._closed = True  # it is killed
    found = audit_one(home, running)
    assert words(found) == ["complete", "uncounted 5"]
    (sentence,) = found.findings
    assert sentence == (
        f"clicks {ONE_PAST}: 5 records that no producer counted (perhaps of web-2, which was not heard of since): "
        "offsets clicks 0 [10, 15)"
    )


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_is_an_hour_wrong_is_told_and_nothing_is_missing_for_it(
    running: RunningBroker, home: Home, hours: int
) -> None:
    wrong_s = hours * 3600
    client = Producer({"bootstrap.servers": running.bootstrap})
    producer = CountedProducer(client, name="web-1", clock=lambda: time.time() + wrong_s)
    for n in range(10):
        producer.produce("clicks", b"%d" % n, timestamp=round((time.time() + wrong_s) * 1000))
    producer.end()
    found = audit_one(home, running)
    assert (set(words(found)), found.findings, found.ok) == ({"complete"}, (), True)
    (note,) = found.notes
    side = "ahead" if hours > 0 else "behind"
    assert note.startswith(f"clicks: the clock of producer web-1 is 60 min {side}")


def test_lines_that_a_shipper_sends_again_are_duplicates_of_the_job(
    running: RunningBroker, home: Home
) -> None:
    send(running, range(10), "shipper")
    send(running, range(7, 10), "shipper")  # it was killed before it saved how far it was
    commit(home, 0, 13, batch=0, duplicates=[10, 11, 12])
    found = audit_counted(home, running, 13)
    assert (words(found), found.findings) == (["complete"], ())
    seen = counts(found)
    assert (seen["producer shipper"], seen["broker"], seen[f"table {TABLE}"], seen[f"duplicate {TABLE}"]) == (
        *(13, 13),
        *(10, 3),
    )


def test_a_shipper_that_forgot_how_far_it_was_counts_what_it_sends_again(
    running: RunningBroker, home: Home, tmp_path: Path
) -> None:
    lines = tmp_path / "app.log"
    lines.write_text("".join(f"line {n}\n" for n in range(10)))
    ship = [
        "ship",
        str(lines),
        "--topic",
        "clicks",
        "--once",
        "--counts",
        "--name",
        "a/b",
        "--home",
        str(home.root),
    ]
    for _ in range(2):
        assert main([*ship, "--bootstrap", running.bootstrap]) == 0
        admin_of(running.bootstrap).delete_topics(["__headwater_ship"])["__headwater_ship"].result(10)
    found = audit_counted(home, running, 20)
    assert (set(words(found)), found.findings, found.notes) == ({"complete"}, (), ())
    assert counts(found) == {"producer a_b": 20, "appended broker-1": 20, "broker": 20}


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        (
            [{"start": 0, "end": 20, "lacking": [13]}],
            f"clicks {ONE_PAST}: 1 record is missing at table {TABLE}: offsets clicks 0 [13, 14)",
        ),
        (
            [{"start": 0, "end": 20, "doubled": [3]}],
            f"clicks {TEN}: 1 record stands there more than once at table {TABLE}: offsets clicks 0 [3, 4)",
        ),
        (
            [{"start": 0, "end": 8}, {"start": 9, "end": 20}],
            f"clicks {TEN}: 1 record is missing at input {TABLE}: offsets clicks 0 [8, 9)",
        ),
    ],
)
def test_what_a_job_loses_or_doubles_is_found_behind_it(
    running: RunningBroker, home: Home, batches: list[dict[str, Any]], expected: str
) -> None:
    send(running, range(20))
    for number, batch in enumerate(batches):
        commit(home, batch=number, **batch)
    assert audit_one(home, running).findings == (expected,)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (0, ()),
        (3, (f"clicks {ONE_PAST}: 3 records are missing at mirror east: offsets clicks 0 [12, 15)",)),
        (
            -2,
            (
                f"clicks {ONE_PAST}: 2 records stand there more than once at mirror east: offsets clicks 0 [10, 12)",
            ),
        ),
    ],
)
def test_what_a_mirror_leaves_out_or_copies_twice_is_found_there(
    running: RunningBroker,
    east: RunningBroker,
    home: Home,
    monkeypatch: pytest.MonkeyPatch,
    by: int,
    expected: tuple[str, ...],
) -> None:
    """A mirror that takes up its work at another place than where it ended."""
    place = Lane._copying

    def misplaced(lane: Lane, each: Any, here: int, begin: int | None) -> Any:
        copying = place(lane, each, here, begin)
        if copying is not None and here:
            copying.there += by
        return copying

    monkeypatch.setattr(Lane, "_copying", misplaced)
    send(running, range(12))
    mirror_once(running.bootstrap, east.bootstrap)
    mirror = KafkaCluster(east.bootstrap, name="east")
    send(running, range(12, 20), "web-2")
    here, there = audit(home, running, mirrors=[mirror])
    assert (words(here), here.ok) == (["complete", "still open 8"], True)  # they are not mirrored yet
    assert (there.topic, words(there)) == ("east:clicks", ["complete", "complete"])
    mirror_once(running.bootstrap, east.bootstrap)
    copies = 20 - by
    commit(home, 0, copies, batch=0, topic="east:clicks")
    here, there = audit(home, running, mirrors=[mirror])
    assert here.findings == expected
    assert counts(here)["mirror east"] == copies
    # What comes behind the mirror is as it should be.
    assert (set(words(there)), there.findings) == ({"complete"}, ())
    assert counts(there)[f"table {TABLE}"] == copies


def test_a_topic_that_was_made_again_is_not_taken_for_the_former_one(tmp_path: Path, home: Home) -> None:
    with broker(tmp_path / "west", properties=PROPERTIES) as running:
        for number in range(2):
            make_topic(running.bootstrap, "clicks", counts_bucket_ms=str(MINUTE_MS))
            send_all(running, range(12 + number), is_counted=False)
            await_appended(running, [12, 25][number])  # of both topics
            found = audit_one(home, running)
            assert (words(found)[0], found.findings) == ("complete", ())
            assert counts(found)["broker"] == 12 + number
            admin_of(running.bootstrap).delete_topics(["clicks"])["clicks"].result(10)


def remake(running: RunningBroker) -> None:
    admin_of(running.bootstrap).delete_topics(["clicks"])["clicks"].result(10)
    deadline_s = time.monotonic() + 10
    while True:
        try:
            return make_topic(running.bootstrap, "clicks", counts_bucket_ms=str(MINUTE_MS))
        except KafkaException:  # it is being deleted
            assert time.monotonic() < deadline_s
            time.sleep(0.1)


@pytest.mark.parametrize("ahead_ms", [0, 3_600_000, -3_600_000], ids=["true", "ahead", "behind"])
def test_counts_of_a_former_topic_are_not_compared_with_the_one_that_has_its_name(
    running: RunningBroker, home: Home, ahead_ms: int
) -> None:
    """One producer ended with the former topic, one goes on over both, one began with the new one; by any clock."""

    def audited() -> TopicAudit:
        return audit_one(home, running, now_ms=round(time.time() * 1000) + ahead_ms)

    send(running, range(12))
    commit(home, 0, 12, batch=0)
    both = counted(Producer({"bootstrap.servers": running.bootstrap}), name="web-2")
    for n in range(12, 16):
        both.produce("clicks", b"%d" % n, timestamp=START_MS + n * 6_000)
    both.flush(10)
    assert audited().findings == ()
    remake(running)
    for n in range(5):
        both.produce("clicks", b"%d" % n, timestamp=START_MS + n * 6_000)
    both.end()
    send(running, range(5, 9), "web-3")
    found = audited()
    assert found.findings == ()
    (note,) = found.notes
    assert note.startswith("clicks was deleted and made again between ")
    assert (words(found), found.ok) == (["still open 9"], True)  # the job has read nothing of it
    assert not audited().notes
    send_uncounted(running, {3: b"of nobody"})  # what comes now is judged
    assert "uncounted 1" in words(audited())[0]


def test_what_retention_removed_before_the_first_audit_is_unknown(running: RunningBroker, home: Home) -> None:
    send(running, range(20))
    await_appended(running, 20)
    removed = admin_of(running.bootstrap).delete_records([TopicPartition("clicks", 0, 12)])
    for future in removed.values():
        future.result(10)
    for _ in range(2):
        found = audit_one(home, running)
        assert (words(found), found.findings, found.ok) == (["unknown 10", "unknown 2"], (), True)
    send(running, range(20, 30), "web-2")
    assert words(audit_one(home, running)) == ["unknown 10", "unknown 2", "complete"]


def test_what_retention_removed_between_two_audits_leaves_what_the_first_one_saw(
    running: RunningBroker, home: Home
) -> None:
    send(running, range(10))
    assert words(audit_one(home, running)) == ["complete"]
    send(running, range(10, 20), "web-2")
    await_appended(running, 20)
    removed = admin_of(running.bootstrap).delete_records([TopicPartition("clicks", 0, 15)])
    for future in removed.values():
        future.result(10)
    found = audit_one(home, running)
    assert (words(found), found.ok) == (["complete", "unknown 5"], True)
    assert counts(found)["broker"] == 15
    assert words(audit_one(home, running)) == ["complete", "unknown 5"]


def test_times_that_no_calendar_has_are_counted_like_others(running: RunningBroker, home: Home) -> None:
    """Microseconds in place of milliseconds, and a time from before calendars; the broker says nothing against them."""
    times = (START_MS * 1000, -(10**15), -1, START_MS)
    with counted(Producer({"bootstrap.servers": running.bootstrap}), name="web-1") as producer:
        for time_ms in times:
            producer.produce("clicks", b"x", timestamp=time_ms)
    found = audit_counted(home, running, 4)
    assert [iso(each.bucket_start_ms * 1000) for each in found.verdicts] == [
        "1900-01-01T00:00:00Z",
        "1969-12-31T23:59:00Z",
        TEN,
        "9999-12-31T23:59:00Z",
    ]
    assert (words(found), found.findings) == (["complete"] * 3 + ["still open"], ())
    assert audit_one(home, running).findings == ()


def test_records_of_a_topic_that_the_broker_stamps(running: RunningBroker, home: Home) -> None:
    topic = "stamped"
    make_topic(
        running.bootstrap, topic, message_timestamp_type="LogAppendTime", counts_bucket_ms=str(MINUTE_MS)
    )
    with counted(Producer({"bootstrap.servers": running.bootstrap}), name="web-1") as producer:
        for n in range(10):
            producer.produce(topic, b"%d" % n, timestamp=START_MS, headers=[("n", b"x"), ("null", None)])
    await_appended(running, 10, topic)
    (found,) = audit(home, running, topics=[topic])
    assert (set(words(found)), found.findings) == ({"complete"}, ())
    plain = Producer({"bootstrap.servers": running.bootstrap})
    plain.produce(topic, b"3", headers=[("n", b"x"), ("null", None)])  # a copy, which has a time of its own
    plain.produce(topic, b"4")  # and none
    plain.flush(10)
    (found,) = audit(home, running, topics=[topic])
    kinds = sorted("more than once" in each for each in found.findings)
    assert kinds == [False, True]


def test_a_transaction_that_is_aborted_is_no_fault(running: RunningBroker, home: Home) -> None:
    settings = {"bootstrap.servers": running.bootstrap, "transactional.id": "t"}
    with counted(Producer(settings), name="paid") as producer:
        producer.init_transactions(10)
        for n, ends_well in enumerate((True, False, True, False)):
            producer.begin_transaction()
            for k in range(3):
                producer.produce("clicks", b"%d" % n, timestamp=START_MS + k)
            if n == 1:
                producer.flush(10)
            producer.commit_transaction(10) if ends_well else producer.abort_transaction(10)
    found = audit_counted(home, running, 6)
    assert (words(found), found.findings) == (["complete"], ())
    assert counts(found) == {"producer paid": 6, "appended broker-1": 6, "broker": 6}


def test_a_queue_that_is_full_doubles_and_loses_nothing(running: RunningBroker, home: Home) -> None:
    client = Producer({"bootstrap.servers": running.bootstrap, "queue.buffering.max.messages": 7})
    refused = 0
    with counted(client, name="web-1", every_s=0.01) as producer:
        for n in range(300):
            while True:
                try:
                    producer.produce("clicks", b"%d" % n, timestamp=START_MS + n * 600)
                    break
                except BufferError:
                    refused += 1
                    producer.poll(0.05)
    assert refused
    found = audit_counted(home, running, 300)
    assert (words(found), found.findings) == (["complete"] * 3, ())
    assert counts(found)["producer web-1"] == counts(found)["broker"] == 300


def test_tables_of_one_job_share_their_rejected_records(running: RunningBroker, home: Home) -> None:
    """The second table has each record that the first one filters; what is rejected stands beside the first."""
    send(running, range(20))
    odd, even = [*range(1, 20, 2)], [*range(2, 20, 2)]
    bad: dict[str, Any] = {"batch": 0, "quarantined": [0]}
    commit(home, 0, 20, filtered=odd, **bad)
    commit(home, 0, 20, filtered=even, beside=TABLE, table="silver.odd", **bad)
    found = audit_one(home, running)
    assert (words(found), found.findings) == (["complete"] * 2, ())
    seen = counts(found)
    assert [seen.get(f"{tier} {TABLE}") for tier in ("input", "table", "quarantine")] == [20, 9, 1]
    assert [seen.get(f"{tier} silver.odd") for tier in ("input", "table", "quarantine")] == [20, 10, None]
    DeltaTable(str(home.table(f"{TABLE}__quarantine"))).delete("_offset = 0")
    (lost,) = audit_one(home, running).findings  # one of those that its batch left out
    assert f"1 record is missing at quarantine {TABLE}: offsets clicks 0 [0, 2), clicks 0 [3, 4)" in lost
