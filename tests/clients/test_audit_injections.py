"""Faults at each tier of real parts: brokers, producers that count and others, a mirror. Each is named, and no more."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

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
from headwater_client import CountedProducer
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.storage.home import Home
from mirrored_topics import admin_of, make_topic, mirror_once

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
    assert counts(found)["producer web-1"] == counts(found)["broker"] == 11


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
