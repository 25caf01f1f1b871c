"""`headwater audit --counts` over our broker, real producers and tables at rest: each fault is named, without Spark."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import CommitProperties, DeltaTable, write_deltalake

import headwater as hw
from audited_clicks import START_MS, TABLE, audit_one, commit, send, send_uncounted, words
from headwater.cli import main
from headwater.running.counts_topic import CountsTopic
from headwater_broker.testing import RunningBroker, broker
from headwater_client import COUNTS_TOPIC, Appended, CountedProducer, Counts, counted
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.ledger.counts.at_rest import added_since, held_by_partition, state_of, tables_by_topic
from headwater_streams.ledger.counts.said import Record, of_topic
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


@pytest.mark.parametrize("has_table", [False, True])
def test_hole_that_appears_after_an_audit_is_judged_with_whole_and_stays_judged(
    tmp_path: Path, *, has_table: bool
) -> None:
    """Of settled buckets. What is said after each audit is what one says that judges all of them."""
    home, data = Home(tmp_path / "home"), tmp_path / "data"
    log, properties = data / "clicks-0" / f"{0:020}.log", {"num.partitions": "1"}

    def read(start: int, end: int, batch: int) -> None:
        if has_table:
            commit(home, start, end, batch=batch)

    def judged(running: RunningBroker, *, whole: bool = False, is_known: bool = True) -> list[str]:
        found, copy = audit_one(home, running, whole=whole), tmp_path / "copy"
        shutil.copytree(home.root, copy)
        for again in (False, True) if is_known else (False,):
            every = audit_one(Home(copy), running, whole=again)
            assert (words(every), sorted(every.findings)) == (words(found), sorted(found.findings))
        shutil.rmtree(copy)
        return [f"{(each.bucket_start_ms - START_MS) // 60_000} {each.words}" for each in found.judged]

    with broker(data, properties=properties) as running:
        send(running, range(10))
        size = log.stat().st_size
        send(running, range(10, 30), "web-2")
        read(0, 30, 0)
        assert judged(running) == ["0 complete", "1 complete", "2 complete"]
        assert judged(running) == []
    kept = log.read_bytes()
    os.truncate(log, size)
    with broker(data, properties=properties) as running:
        send(running, range(30, 40), "web-3")
        read(30, 40, 1)
        assert judged(running, is_known=False) == ["3 complete"]  # it goes on where the last one ended
        every = judged(running, whole=True)
        assert every == ["0 complete", "1 missing 10", "2 missing 10", "3 complete"]
        lost = every[1:3]
        assert judged(running) == lost
        send(running, [20], "web-4")  # in a bucket that lost records
        read(40, 41, 2)
        assert judged(running) == lost
    log.write_bytes(kept)
    with broker(data, properties=properties) as running:
        assert judged(running, is_known=False) == lost
        assert judged(running, whole=True) == [f"{n} complete" for n in range(4)]
        assert judged(running) == []


def test_hole_in_what_came_since_the_last_audit_is_judged_without_whole(tmp_path: Path) -> None:
    home, data = Home(tmp_path / "home"), tmp_path / "data"
    log, properties = data / "clicks-0" / f"{0:020}.log", {"num.partitions": "1"}
    with broker(data, properties=properties) as running:
        send(running, range(10))
        assert words(audit_one(home, running)) == ["complete"]
        size = log.stat().st_size
        send(running, range(10, 20))
    os.truncate(log, size)
    with broker(data, properties=properties) as running:
        send(running, range(20, 30))
        found = audit_one(home, running)
        assert [each.words for each in found.judged] == ["complete", "missing 10", "complete"]
        assert found.notes[0].startswith("clicks 0: the brokers have lost offsets [10, 20)")
        for whole in (False, True, False):
            again = audit_one(home, running, whole=whole)
            assert (words(again), sorted(again.findings)) == (words(found), sorted(found.findings))
            assert len(again.judged) == (3 if whole else 1)


def test_counts_of_a_hole_that_was_restored_are_read_with_whole(tmp_path: Path) -> None:
    home, data = Home(tmp_path / "home"), tmp_path / "data"
    properties = {"num.partitions": "1"}
    log = data / f"{COUNTS_TOPIC}-0" / f"{0:020}.log"
    with broker(data, properties=properties) as running:
        send(running, range(10))
        size = log.stat().st_size
        send(running, range(10, 20), "web-2")
    kept = log.read_bytes()
    os.truncate(log, size)
    with broker(data, properties=properties) as running:
        send(running, range(20, 30), "web-3")
        found = audit_one(home, running)
        assert words(found) == ["complete", "uncounted 10", "complete"]
        assert found.notes[0].startswith(f"{COUNTS_TOPIC} 0: the brokers have lost offsets [")
        assert audit_one(home, running).notes == ()  # it was told, and is behind
        assert audit_one(home, running, whole=True).notes == found.notes
    log.write_bytes(kept)
    with broker(data, properties=properties) as running:
        for whole in (True, False, True):
            found = audit_one(home, running, whole=whole)
            assert (words(found), found.notes) == (["complete"] * 3, ())


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
        "is of version 9, of which this Headwater reads version 2: update Headwater",
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
        Record(
            Appended(
                source="b", instance="i", topic="clicks", topic_id=topic_id, partition=0, start=0, end=1
            ),
            0,
            0,
            True,
        )
        for topic_id in ("", "a-b_c", "a-b_d")
    ]
    assert of_topic(appended, "clicks", "east:clicks", {"", "a-b_c"}) == appended[:2]
    assert of_topic(appended, "clicks", "east:clicks", None) == appended
    assert of_topic(appended, "taps", "taps", None) == []


def test_topic_of_counts_is_read_from_where_an_audit_ended(running: RunningBroker) -> None:
    def read(since: tuple[str | None, Mapping[int, int]] | None) -> tuple[set[str], CountsTopic]:
        told = CountsTopic(KafkaCluster(running.bootstrap, name="east"))
        told.read([since])
        return {each.event.source for each in told.of("clicks", 0, since)}, told

    # Else the broker refuses that its records are deleted.
    make_topic(running.bootstrap, COUNTS_TOPIC, cleanup_policy="compact,delete")
    send(running, range(10))
    names, told = read(None)
    assert (names, told.topics(), len(told.broken)) == ({"web-1"}, {"clicks"}, 1)
    place = told.place
    send(running, range(10, 20), "web-2")
    told.read()
    assert {each.event.source for each in told.of("clicks", 1, None)} == {"web-2"}
    assert read(place)[0] == {"web-2"}
    other = ("AAAAAAAAAAAAAAAAAAAAAA", place[1])  # it was made again
    assert read(other)[0] == {"web-1", "web-2"}
    behind = (place[0], {0: 1_000})  # it was cut
    assert read(behind)[0] == {"web-1", "web-2"}
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    end = told.place[1][0]
    for future in admin.delete_records([TopicPartition(COUNTS_TOPIC, 0, end)]).values():
        future.result(10)
    names, told = read(place)
    assert (names, len(told.broken)) == (set(), 2)
    assert (
        f"counts at offsets [{place[1][0]}, {end}) were removed before an audit read them" in told.broken[-1]
    )


def test_audit_keeps_its_verdicts_where_counts_of_long_ago_are_let_go_of(
    running: RunningBroker, tmp_path: Path
) -> None:
    home = Home(tmp_path)
    settings = {"cleanup_policy": "compact,delete", "message_timestamp_type": "LogAppendTime"}
    make_topic(running.bootstrap, COUNTS_TOPIC, **settings, retention_ms="31536000000")
    live = counted(Producer({"bootstrap.servers": running.bootstrap}), name="web-1")
    for numbers in (range(20), range(20, 30)):
        for n in numbers:
            live.produce("clicks", b"%d" % n, timestamp=START_MS + n * 6_000)
        live.flush(10)
        assert audit_one(home, running).ok
        admin = AdminClient({"bootstrap.servers": running.bootstrap})  # as retention does
        for future in admin.delete_records([TopicPartition(COUNTS_TOPIC, 0, OFFSET_END)]).values():
            future.result(10)
    live.close()
    for whole in (False, True):
        found = audit_one(home, running, whole=whole)
        assert (words(found), found.findings, found.notes) == (["complete"] * 3, (), ())


def test_audit_of_counts_judges_what_is_new_and_leaves_the_rest_as_it_was(
    running: RunningBroker, tmp_path: Path
) -> None:
    """A claim that comes late for a settled bucket, a row that is removed, one that is written again."""
    home, path = Home(tmp_path), str(Home(tmp_path).table(TABLE))
    send(running, range(30))
    commit(home, 0, 30, batch=0)

    def judged() -> list[str]:
        found = audit_one(home, running)
        assert len(found.verdicts) == len(found.judged) + sum(found.settled.values())
        assert [each.bucket_start_ms for each in found.verdicts] == [
            START_MS + n * 60_000 for n in range(len(found.verdicts))
        ]
        return [f"{(each.bucket_start_ms - START_MS) // 60_000} {each.words}" for each in found.judged]

    assert judged() == ["0 complete", "1 complete", "2 complete"]
    assert judged() == []
    send(running, range(30, 35), "web-2")
    assert judged() == ["3 still open 5"]
    commit(home, 30, 35, batch=1)
    assert judged() == ["3 complete"]
    send(running, [12], "web-3")  # a record of a minute that is settled
    assert judged() == ["1 still open 1"]
    commit(home, 35, 36, batch=2)
    assert judged() == ["1 complete"]
    producer = Producer({"bootstrap.servers": running.bootstrap})
    claim = Counts(  # of an offset that another one was told
        source="web-4",
        instance="x",
        topic="clicks",
        bucket_start_ms=START_MS,
        acknowledged=1,
        ranges={0: [(3, 4)]},
    )
    producer.produce(COUNTS_TOPIC, claim.to_json(), key=claim.key)
    producer.flush(10)
    assert judged() == ["0 missing 1"]
    DeltaTable(path).delete("_offset = 15")
    assert judged() == ["0 missing 1", "1 missing 1", "2 complete", "3 complete"]
    commit(home, 15, 15, batch=3, doubled=[25, 15])
    assert judged() == ["0 missing 1", "1 complete", "2 doubled 1"]


def test_what_a_table_says_anew_is_known_by_its_commits_unless_rows_were_taken_away(tmp_path: Path) -> None:
    home = Home(tmp_path)
    path = str(home.table(TABLE))
    commit(home, 0, 10, batch=0)
    (facts,) = tables_by_topic(home)["clicks"]
    then = json.loads(json.dumps(state_of(home, facts)))

    def added() -> dict[int, list[tuple[int, int]]] | None:
        (facts,) = tables_by_topic(home)["clicks"]
        return added_since(home, "clicks", facts, then, json.loads(json.dumps(state_of(home, facts))))

    assert added() == {}
    commit(home, 12, 20, batch=1, doubled=[3], quarantined=[13])  # from 10 on: what it left out is missing
    assert added() == {0: [(3, 4), (10, 20)]}
    DeltaTable(path).optimize.compact()  # moves rows, and changes none
    assert added() == {0: [(3, 4), (10, 20)]}
    table = DeltaTable(path)
    rows = table.to_pyarrow_table()
    entry = LedgerEntry(
        job="clicks", generation=1, batch=2, table=TABLE, kind="backfill", sources=(), accounting={}
    )
    of_backfill = CommitProperties(custom_metadata={"userMetadata": entry.to_json()})
    write_deltalake(path, rows.slice(0, 0), mode="append", commit_properties=of_backfill)
    assert added() is None  # its batches are not compared with its rows any more
    DeltaTable(path).restore(table.version())
    assert added() is None
    (facts,) = tables_by_topic(home)["clicks"]
    then = json.loads(json.dumps(state_of(home, facts)))
    assert added() == {}
    DeltaTable(path).delete("_offset = 5")
    assert added() is None
