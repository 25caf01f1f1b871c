"""`headwater audit --counts` over our broker, real producers and tables at rest: each fault is named, without Spark."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

import headwater as hw
from audited_clicks import START_MS, TABLE, audit_one, commit, send, send_uncounted, words
from headwater.cli import main
from headwater.running.counts_topic import CountsTopic, of_topic
from headwater_broker.testing import RunningBroker, broker
from headwater_client import COUNTS_TOPIC, Appended, CountedProducer, counted
from headwater_streams.ledger.counts import TopicLog
from headwater_streams.ledger.counts.at_rest import held_by_partition
from headwater_streams.ledger.counts.store import COUNTS_TABLE
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.storage.home import Home
from mirrored_topics import make_topic


@pytest.fixture
def running() -> Iterator[RunningBroker]:
    with broker(properties={"num.partitions": "1"}) as running:
        yield running


def test_audit_of_counts_that_agree_is_complete(running: RunningBroker, tmp_path: Path) -> None:
    home = Home(tmp_path)
    send(running, range(20))
    commit(home, 0, 12, batch=0)
    found = audit_one(home, running)
    assert words(found) == ["complete", "still open 8"]  # the job has not read the rest
    assert found.ok
    commit(home, 12, 20, batch=1)
    found = audit_one(home, running)
    assert (words(found), found.findings, found.notes) == (["complete", "complete"], (), ())
    assert [(c.tier, c.where, c.count) for c in found.verdicts[1].counts] == [
        ("producer", "web-1", 10),
        ("broker", "", 10),
        ("input", TABLE, 10),
        ("table", TABLE, 10),
    ]


def test_audit_of_counts_names_rows_that_a_table_lost(running: RunningBroker, tmp_path: Path) -> None:
    home = Home(tmp_path)
    send(running, range(20))
    commit(home, 0, 20, batch=0, lacking=[13, 14])
    found = audit_one(home, running)
    assert words(found) == ["complete", "missing 2"]
    assert found.findings == (
        "clicks 2013-01-01T10:01:00Z: 2 records are missing at table silver.clicks: offsets clicks 0 [13, 15)",
    )


def test_audit_of_counts_tells_a_doubled_record_from_an_uncounted_one(
    running: RunningBroker, tmp_path: Path
) -> None:
    send(running, range(20))
    # The first is equal to one that was counted: it was sent again.
    send_uncounted(running, {3: b"3", 15: b"another"})
    found = audit_one(Home(tmp_path), running)
    assert words(found) == ["doubled 1", "uncounted 1"]
    assert found.findings == (
        "clicks 2013-01-01T10:00:00Z: 1 record stands there more than once at broker: offsets clicks 0 [20, 21)",
        (
            "clicks 2013-01-01T10:01:00Z: 1 record that no producer counted (all producers that count have ended): "
            "offsets clicks 0 [21, 22)"
        ),
    )


def test_audit_of_counts_names_a_producer_that_died_before_it_counted(
    running: RunningBroker, tmp_path: Path
) -> None:
    send(running, range(10))
    producer = counted(Producer({"bootstrap.servers": running.bootstrap}), name="web-2")
    for n in range(10, 13):
        producer.produce("clicks", b"%d" % n, timestamp=START_MS + n * 6_000)
    producer._producer.flush(10)  # and nothing is said of them
    producer._closed = True
    found = audit_one(Home(tmp_path), running)
    assert words(found) == ["complete", "uncounted 3"]
    assert "perhaps of web-2, which was not heard of since" in found.findings[0]


def test_audit_of_counts_is_open_while_a_producer_may_still_speak(
    running: RunningBroker, tmp_path: Path
) -> None:
    times = [START_MS / 1000]
    client = Producer({"bootstrap.servers": running.bootstrap})
    producer = CountedProducer(client, name="web-1", clock=lambda: times[0])
    producer.produce("clicks", b"x", timestamp=START_MS)
    producer._producer.flush(10)
    found = audit_one(Home(tmp_path), running, now_ms=START_MS + 1_000)
    assert words(found) == ["still open 1"]
    times[0] += 5
    producer.end()
    assert words(audit_one(Home(tmp_path), running)) == ["complete"]


def test_audit_of_counts_knows_what_retention_removed(running: RunningBroker, tmp_path: Path) -> None:
    home = Home(tmp_path)
    send(running, range(20))
    audit_one(home, running)
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    for future in admin.delete_records([TopicPartition("clicks", 0, 12)]).values():
        future.result(10)
    send(running, range(20, 25), "web-2")
    found = audit_one(home, running)
    assert (words(found), found.notes) == (["complete"] * 3, ())
    files = set(DeltaTable(str(home.table(COUNTS_TABLE))).file_uris())
    audit_one(home, running)  # nothing has changed
    assert set(DeltaTable(str(home.table(COUNTS_TABLE))).file_uris()) == files


def test_audit_of_counts_says_what_was_removed_before_it_looked(
    running: RunningBroker, tmp_path: Path
) -> None:
    home = Home(tmp_path)
    send(running, range(5))
    audit_one(home, running)
    send(running, range(5, 15), "web-2")
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    for future in admin.delete_records([TopicPartition("clicks", 0, 8)]).values():
        future.result(10)
    found = audit_one(home, running)
    assert found.notes == ("clicks 0: offsets [5, 8) were removed before they were counted",)
    assert found.ok


def test_audit_of_counts_names_what_a_log_has_lost_in_its_middle(tmp_path: Path) -> None:
    home, data = Home(tmp_path / "home"), tmp_path / "data"
    log, properties = data / "clicks-0" / f"{0:020}.log", {"num.partitions": "1"}
    with broker(data, properties=properties) as running:
        send(running, range(10))
        size = log.stat().st_size
        send(running, range(10, 30), "web-2")
        assert words(audit_one(home, running)) == ["complete"] * 3
    kept = log.read_bytes()
    os.truncate(log, size)
    with broker(data, properties=properties) as running:
        send(running, range(30, 40), "web-3")  # they stand behind what is lost
        first = audit_one(Home(tmp_path / "first"), running)
        assert words(first) == ["complete", "missing 10", "missing 10", "complete"]
        assert first.findings[0].endswith("are missing at broker (web-2): offsets clicks 0 [10, 20)")
        assert first.notes[0].startswith("clicks 0: the brokers have lost offsets [10, 30)")
        assert words(audit_one(home, running)) == ["complete"] * 4  # it goes on where the last one ended
        assert audit_one(home, running, whole=True).findings == first.findings
        assert audit_one(home, running).findings == first.findings
    log.write_bytes(kept)
    with broker(data, properties=properties) as running:
        found = audit_one(home, running, whole=True)
        assert (words(found), found.findings) == (["complete"] * 4, ())


def test_audit_of_counts_remembers_what_was_lost_of_records_that_nobody_counted(tmp_path: Path) -> None:
    home, data = Home(tmp_path / "home"), tmp_path / "data"
    log, properties = data / "clicks-0" / f"{0:020}.log", {"num.partitions": "1"}
    with broker(data, properties=properties) as running:
        send_uncounted(running, {n: b"%d" % n for n in range(10)})
        size = log.stat().st_size
        send_uncounted(running, {n: b"%d" % n for n in range(10, 20)})
        assert words(audit_one(home, running)) == ["complete"] * 2
    kept = log.read_bytes()
    os.truncate(log, size)
    with broker(data, properties=properties) as running:
        for whole in (True, False, True):
            assert words(audit_one(home, running, whole=whole)) == ["complete", "missing 10"]
    log.write_bytes(kept)
    with broker(data, properties=properties) as running:
        assert words(audit_one(home, running, whole=True)) == ["complete"] * 2


def test_audit_of_counts_passes_over_what_is_no_count(running: RunningBroker, tmp_path: Path) -> None:
    send(running, range(10))
    producer = Producer({"bootstrap.servers": running.bootstrap})
    for value in (b"hello", b'{"headwater_counts":9}'):
        producer.produce(COUNTS_TOPIC, value, key=value)
    producer.flush(10)
    found = audit_one(Home(tmp_path), running)
    assert found.ok
    assert [note.partition(" offset ")[2].partition(" ")[2] for note in found.notes] == [
        "is no JSON",
        "is of version 9, of which this Headwater reads version 1: update Headwater",
    ]


def test_audit_counts_command(
    running: RunningBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    send(running, range(20))
    commit(Home(tmp_path), 0, 20, batch=0, lacking=[13])
    arguments = ["audit", "--counts", "--home", str(tmp_path), "--bootstrap", running.bootstrap]
    assert main(arguments) == 1
    said = capsys.readouterr().out
    assert "missing 1" in said
    assert "clicks: 1 of 2 buckets complete" in said
    assert main([*arguments, "clicks", "--json"]) == 1
    (topic,) = json.loads(capsys.readouterr().out)
    assert [bucket["status"] for bucket in topic["buckets"]] == ["complete", "missing"]
    (of_python,) = hw.audit.counts(["clicks"], home=tmp_path, bootstrap=running.bootstrap)
    assert (of_python.ok, list(of_python.findings)) == (False, topic["findings"])
    assert main([*arguments, "clocks"]) == 2
    assert "there is no topic clocks" in capsys.readouterr().err
    assert main([*arguments, "--bucket", "soon"]) == 2
    assert main([*arguments, "--mirror", "nowhere"]) == 2
    assert main([*arguments, "--bucket", "5 minutes"]) == 2
    assert "was counted in buckets of 60 s" in capsys.readouterr().err
    assert main(["audit", "--all", "--home", str(tmp_path)]) == 2


@pytest.mark.parametrize("chunk", [1, 100])
def test_rows_at_rest_name_what_stands_twice_but_not_the_rows_of_one_record(chunk: int) -> None:
    places = [(0, 5, 0), (0, 5, 1), (0, 6, 0), (0, 6, 0), (1, 9, None)]
    columns = [pa.array(each) for each in zip(*places, strict=True)]
    rows = pa.table(dict(zip(("_partition", "_offset", "_row"), columns, strict=True)))
    held = held_by_partition(rows.to_batches(max_chunksize=chunk))
    assert (list(held[0].offsets), list(held[0].again)) == ([(5, 7)], [(6, 7)])
    assert (list(held[1].offsets), list(held[1].again)) == ([(9, 10)], [])
    plain = held_by_partition(rows.drop_columns("_row").to_batches(max_chunksize=chunk))
    assert list(plain[0].again) == [(5, 6), (6, 7)]


def test_audit_of_counts_says_which_settings_its_topic_lacks(running: RunningBroker, tmp_path: Path) -> None:
    make_topic(running.bootstrap, COUNTS_TOPIC)  # as brokers make a topic that they do not know
    send(running, range(10))
    (note,) = audit_one(Home(tmp_path), running).notes
    assert note == (
        "__headwater_counts loses counts by its retention, or does not show whose clock is wrong: headwater topics "
        "alter __headwater_counts --config cleanup.policy=compact --config message.timestamp.type=LogAppendTime"
    )


def test_what_brokers_counted_of_a_topic_that_was_made_again_is_of_the_newer_one_alone() -> None:
    appended = [
        Appended(source="b", instance="i", topic="clicks", topic_id=topic_id, partition=0, start=0, end=1)
        for topic_id in ("", "a-b_c", "a-b_d")
    ]
    assert [each.topic_id for each in of_topic(appended, "clicks", "a+b/c")] == ["", "a-b_c"]
    assert len(of_topic(appended, "clicks", None)) == 3
    assert of_topic(appended, "taps", None) == []


def test_topic_of_counts_is_read_once_and_then_what_came_meanwhile(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(running, range(10))
    told, taken = CountsTopic(KafkaCluster(running.bootstrap, name="east")), list[tuple[int, int]]()
    take = told._take
    monkeypatch.setattr(told, "_take", lambda value, *at: taken.append(at[:2]) or take(value, *at))
    told.read()
    earlier, count = told.earlier(), len(taken)
    send(running, range(10, 20), "web-2")
    told.read()
    assert 0 < count < len(taken) == len(set(taken))
    claims = told.of("clicks", TopicLog("east:clicks", 60_000, {}, {}), earlier)
    assert {each.source for each in claims.counts} == {"web-1", "web-2"}
    assert {each.source for each in claims.earlier.counts.values()} == {"web-1"}
    assert [each.record.topics["east:clicks"].acknowledged for each in claims.sources] == [10, 10]
