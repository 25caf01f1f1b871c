"""`headwater ship` as a person runs it, against a broker in this process."""

import gzip
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from headwater.running.cluster import Cluster
from headwater.ship.brokers import TopicLimits
from headwater.ship.discovery import missing_file
from headwater.ship.frames import frame
from headwater.ship.listener import parse_address
from headwater.ship.progress import PROGRESS_TOPIC as PROGRESS
from headwater.ship.shipper import ShipOptions, Shipper
from headwater.ship.spool import Spool
from headwater.ship.syslog import SyslogMessage
from headwater_broker.shown import escaped
from headwater_broker.testing import RunningBroker
from headwater_broker.testing import broker as running_broker
from support.processes import free_port

Headwater = Callable[..., subprocess.CompletedProcess[str]]
WAIT_S = 30
LEFT_OUT = (
    "is compressed and left out: unless it was shipped before it was compressed, unpack it and ship that"
)


def records(bootstrap: str, topic: str, count: int | None = None) -> list[Any]:
    """What a topic holds, partition by partition; waits for `count` records."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "enable.partition.eof": True})
    try:
        deadline = time.monotonic() + WAIT_S
        while not (
            partitions := sorted(consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions)
        ):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
        found, ended = [], set()
        while time.monotonic() < deadline:
            if len(ended) == len(partitions) and (count is None or len(found) >= count):
                break
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is not None:
                ended.add(message.partition())
            else:
                found.append(message)
        return sorted(found, key=lambda each: (each.partition(), each.offset()))
    finally:
        consumer.close()


def values(found: list[Any]) -> list[str]:
    return [each.value().decode() for each in found]


def coordinates(message: Any) -> tuple[str, ...]:
    headers = dict(message.headers())
    return tuple(
        headers[f"headwater-origin-{name}"].decode() for name in ("cluster", "topic", "partition", "offset")
    )


def journal_size(folder: Path) -> int:
    """Bytes of the journal in which a shipper notes what it is about to send, before it does."""
    (journal,) = (folder / ".headwater" / "ship").glob("*/logs/sent.jsonl")
    return journal.stat().st_size


class Following:
    """A shipper that goes on until it is told to end."""

    def __init__(self, folder: Path, bootstrap: str, arguments: tuple[str, ...]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headwater.cli", "ship", *arguments, "--bootstrap", bootstrap],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def await_that(self, done: Callable[[], bool]) -> None:
        """Waits until something is so, while the shipper runs."""
        deadline = time.monotonic() + WAIT_S
        while not done():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def has_open(self, path: Path) -> bool:
        """Whether the shipper has a file open."""
        for link in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # it was closed meanwhile
                if link.samefile(path):
                    return True
        return False

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, out, err


@pytest.fixture
def follow(tmp_path: Path, broker: RunningBroker) -> Iterator[Callable[..., Following]]:
    started: list[Following] = []

    def start(*arguments: str, bootstrap: str = broker.bootstrap) -> Following:
        started.append(Following(tmp_path, bootstrap, arguments))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


@pytest.mark.story
def test_ship_once_sends_every_line_with_its_origin(
    tmp_path: Path, broker: RunningBroker, headwater: Headwater
) -> None:
    (tmp_path / "a.log").write_bytes(b"one\r\ntwo\nlast")
    (tmp_path / "old.log.gz").write_bytes(gzip.compress(b"zero\n"))
    done = headwater(
        "ship", "*.log*", "--topic", "logs", "--once", "--name", "here", "--bootstrap", broker.bootstrap
    )
    assert (done.returncode, done.stdout) == (0, "shipped 3 lines (13 bytes) to logs\n")
    assert done.stderr == f"headwater: {tmp_path / 'old.log.gz'} {LEFT_OUT}\n"
    found = records(broker.bootstrap, "logs")
    assert values(found) == ["one", "two", "last"]
    headers = [dict(each.headers()) for each in found]
    assert [each["headwater-origin-offset"] for each in headers] == [b"0", b"1", b"2"]
    assert [each["headwater-origin-position"] for each in headers] == [b"0", b"5", b"9"]
    assert {each["headwater-origin-cluster"] for each in headers} == {b"here"}
    assert {each.key() for each in found} == {str(tmp_path / "a.log").encode()}


@pytest.mark.story
def test_ship_once_reads_on_in_what_was_rotated_and_compressed_into_another_folder(
    tmp_path: Path, broker: RunningBroker, headwater: Headwater
) -> None:
    log, old = tmp_path / "app.log", tmp_path / "old"
    old.mkdir()
    (old / "before.gz").write_bytes(gzip.compress(b"from before\n"))
    lines = [f"line {number:02} of a log that is rotated once a day" for number in range(40)]
    arguments = ("ship", "app.log", "old/*", "--topic", "logs", "--once", "--bootstrap", broker.bootstrap)
    said = []
    for start in range(0, 40, 10):
        with log.open("a") as file:
            file.writelines(f"{line}\n" for line in lines[start : start + 5])
        done = headwater(*arguments)
        assert done.returncode == 0, done.stderr
        said.append(done.stderr)
        with log.open("a") as file:
            file.writelines(f"{line}\n" for line in lines[start + 5 : start + 10])
        packed = old / f"app.log-{start}.gz"
        packed.write_bytes(gzip.compress(log.read_bytes()))
        log.unlink()
    log.touch()
    said.append(headwater(*arguments).stderr)
    assert sorted(values(records(broker.bootstrap, "logs"))) == lines
    assert said == [f"headwater: {old / 'before.gz'} {LEFT_OUT}\n", "", "", "", ""]


def test_ship_sends_utf16_as_utf8(tmp_path: Path, broker: RunningBroker, headwater: Headwater) -> None:
    (tmp_path / "marked.log").write_bytes("\ufeffżółw\r\nzwei".encode("utf-16-be"))
    (tmp_path / "bare.log").write_bytes("ein ਊ\n".encode("utf-16-le"))
    at = ("--topic", "logs", "--once", "--bootstrap", broker.bootstrap)
    done = headwater("ship", "*.log", "--encoding", "utf-16-le", *at)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(values(records(broker.bootstrap, "logs"))) == ["ein ਊ", "zwei", "żółw"]


@pytest.mark.story
def test_ship_again_with_another_home_sends_only_what_is_new(
    tmp_path: Path, broker: RunningBroker, headwater: Headwater
) -> None:
    log = tmp_path / "a.log"
    log.write_text("one\n")
    arguments = ("ship", "a.log", "--topic", "logs", "--once", "--bootstrap", broker.bootstrap)
    headwater(*arguments, "--home", "first")
    log.write_text("one\ntwo\n")
    done = headwater(*arguments, "--home", "second")
    assert done.stdout == "shipped 1 line (4 bytes) to logs\n"
    assert values(records(broker.bootstrap, "logs")) == ["one", "two"]


@pytest.mark.story
def test_ship_status_shows_position_and_lag_of_each_file(
    tmp_path: Path, broker: RunningBroker, headwater: Headwater
) -> None:
    log = tmp_path / "a.log"
    log.write_text("one\n")
    at = ("--bootstrap", broker.bootstrap)
    assert headwater("ship", "--status", "--json", *at).stdout == "[]\n"
    headwater("ship", "a.log", "--topic", "logs", "--once", "--name", "here", *at)
    log.write_text("one\ntwo\n")
    (found,) = json.loads(headwater("ship", "--status", "--json", *at).stdout)
    assert {name: found[name] for name in ("shipper", "topic", "file", "position", "size", "lag_bytes")} == {
        "shipper": "here",
        "topic": "logs",
        "file": str(log),
        "position": 4,
        "size": 8,
        "lag_bytes": 4,
    }
    assert "followed" in headwater("ship", "--status", *at).stdout
    assert headwater("ship", "--status", "--name", "elsewhere", *at).stderr == "nothing was shipped\n"


@pytest.mark.story
def test_ship_line_above_the_topics_limit_is_kept_aside_and_named(
    tmp_path: Path, broker: RunningBroker, headwater: Headwater
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("logs", 1, 1, config={"max.message.bytes": "20000"})])["logs"].result()
    long = "x" * 25_000
    (tmp_path / "a.log").write_text(f"one\n{long}\ntwo\n")
    done = headwater(
        "ship", "a.log", "--topic", "logs", "--once", "--name", "here", "--bootstrap", broker.bootstrap
    )
    assert done.returncode == 0
    assert values(records(broker.bootstrap, "logs")) == ["one", "two"]
    (kept,) = (tmp_path / ".headwater/ship/here/logs/too-long").iterdir()
    assert kept.read_text() == f"{long}\n"
    assert done.stderr == (
        f"headwater: the line at byte 4 of {tmp_path / 'a.log'} has 25001 bytes, more than a record of logs may "
        f"have (max.message.bytes): it is kept in {kept.relative_to(tmp_path)}\n"
    )


def test_ship_topic_whose_limit_is_lowered_meanwhile_gets_every_line_that_fits(
    tmp_path: Path, broker: RunningBroker, follow: Callable[..., Following]
) -> None:
    log = tmp_path / "a.log"
    log.write_text("one\n")
    shipper = follow("a.log", "--topic", "logs", "--name", "here", "--compression", "none")
    records(broker.bootstrap, "logs", 1)
    lowered = ConfigEntry("max.message.bytes", "20000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "logs", incremental_configs=[lowered])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result()
    lines = [f"{number} {'x' * 70}" for number in range(3000)]
    with log.open("a") as file:
        file.write("\n".join([*lines[:1500], "y" * 25_000, *lines[1500:], ""]))
    deadline = time.monotonic() + WAIT_S
    while lines[-1] not in (found := values(records(broker.bootstrap, "logs"))):  # some may be sent twice
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert list(dict.fromkeys(found)) == ["one", *lines]
    code, _, err = shipper.end()
    assert (code, "Traceback" in err, err.count("is kept in")) == (0, False, 1), err
    assert len([*(tmp_path / ".headwater/ship/here/logs/too-long").iterdir()]) == 1


@pytest.mark.story
def test_ship_passes_over_what_is_no_progress_in_its_topic(
    tmp_path: Path, broker: RunningBroker, headwater: Headwater
) -> None:
    (tmp_path / "a.log").write_bytes(b"one\n")
    (tmp_path / "b.log").write_bytes(b"another\n")
    arguments = ("*.log", "--topic", "logs", "--once", "--name", "here", "--bootstrap", broker.bootstrap)
    assert headwater("ship", *arguments).returncode == 0
    kept = {Path(json.loads(each.value())["path"]).name: each for each in records(broker.bootstrap, PROGRESS)}
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for key in (kept["a.log"].key(), b"here\tlogs\tnobody", b"\x1b[2J"):
        producer.produce(PROGRESS, b"{", key)
    assert producer.flush(WAIT_S) == 0
    end = len(records(broker.bootstrap, PROGRESS))
    (tmp_path / "a.log").write_bytes(b"one\ntwo\n")
    done = headwater("ship", *arguments)
    assert (done.returncode, done.stdout) == (0, "shipped 1 line (4 bytes) to logs\n")
    assert sorted(values(records(broker.bootstrap, "logs"))) == ["another", "one", "two"]
    where = f"headwater: topic {PROGRESS}, partition 0, offset"
    why = "the record is no progress of a file and is passed over;"
    lines = [
        f"{where} {end - 3}, key {escaped(kept['a.log'].key().decode())}: {why} the record before it counts",
        f"{where} {end - 2}, key here\\tlogs\\tnobody: {why} its file counts as a new one",
        f"{where} {end - 1}, key \\x1b[2J: {why} its key is not that of a file",
    ]
    assert done.stderr.splitlines() == lines
    status = headwater("ship", "--status", "--json", "--bootstrap", broker.bootstrap)
    assert (status.returncode, status.stderr.splitlines()) == (
        0,
        lines[1:],
    )  # the shipper wrote the first anew
    assert {Path(each["file"]).name: each["lag_bytes"] for each in json.loads(status.stdout)} == {
        "a.log": 0,
        "b.log": 0,
    }


@pytest.mark.story
def test_ship_follows_growth_and_rotation_and_ends_on_sigterm(
    tmp_path: Path, broker: RunningBroker, follow: Callable[..., Following]
) -> None:
    log = tmp_path / "a.log"
    log.write_text("one\n")
    shipper = follow("a.log*", "--topic", "logs", "--json")
    assert values(records(broker.bootstrap, "logs", 1)) == ["one"]
    log.rename(tmp_path / "a.log.1")
    log.write_text("two\nhal")
    records(broker.bootstrap, "logs", 2)
    with log.open("a") as file:
        file.write("f\n")
    found = records(broker.bootstrap, "logs", 3)
    assert values(found) == ["one", "two", "half"]
    code, out, err = shipper.end()
    assert (code, err) == (0, "")
    progress = [json.loads(line) for line in out.splitlines()]
    assert progress[-1] == {
        "topic": "logs",
        "lines": 3,
        "bytes": 13,
        "files": 2,
        "lag_bytes": 0,
        "queued": 0,
        "too_long": 0,
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_ship_started_between_copy_and_truncation_sends_no_line_twice(
    tmp_path: Path, broker: RunningBroker, follow: Callable[..., Following], number: int
) -> None:
    log = tmp_path / "app.log"
    lines = [f"line {number:04} of the log that is rotated" for number in range(601)]
    arguments = ("app.log*", "--topic", "logs", "--name", "here")
    log.write_text("".join(f"{line}\n" for line in lines[:500]))
    shipper = follow(*arguments)
    records(broker.bootstrap, "logs", 500)
    shipper.end(number)
    shutil.copyfile(log, tmp_path / "app.log.1")
    shipper = follow(*arguments)
    with log.open("a") as file:
        file.write(f"{lines[500]}\n")
    records(broker.bootstrap, "logs", 501)
    os.truncate(log, 0)
    with log.open("a") as file:
        file.writelines(f"{line}\n" for line in lines[501:])
    found = records(broker.bootstrap, "logs", 601)
    assert shipper.end()[0] == 0
    found = records(broker.bootstrap, "logs")
    by_coordinates = {coordinates(each): each.value().decode() for each in found}
    assert sorted(by_coordinates.values()) == lines


def test_ship_once_waits_for_the_truncation_of_a_file_that_was_just_copied(
    tmp_path: Path, broker: RunningBroker, follow: Callable[..., Following]
) -> None:
    log = tmp_path / "app.log"
    log.write_text("".join(f"line {number:04} of a log\n" for number in range(500)))
    shutil.copyfile(log, tmp_path / "app.log.1")
    shipper = follow("app.log*", "--topic", "logs", "--once")
    records(broker.bootstrap, "logs", 500)
    os.truncate(log, 0)
    with log.open("a") as file:
        file.write("after\n")
    out, err = shipper.process.communicate(timeout=WAIT_S)
    assert (shipper.process.returncode, err) == (0, "")
    assert out == "shipped 501 lines (9,506 bytes) to logs\n"


def test_ship_once_sends_equal_files_both(
    tmp_path: Path, broker: RunningBroker, headwater: Headwater
) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text(f"{'one' * 30}\n")
    done = headwater("ship", "*.log", "--topic", "logs", "--once", "--bootstrap", broker.bootstrap)
    assert (done.returncode, done.stdout) == (0, "shipped 2 lines (182 bytes) to logs\n")


def test_ship_waits_for_a_broker_that_is_away_and_sends_everything_when_it_is_back(
    tmp_path: Path, follow: Callable[..., Following]
) -> None:
    log = tmp_path / "a.log"
    port = free_port()
    with running_broker(tmp_path / "data", port=port) as first:
        bootstrap = first.bootstrap
        shipper = follow("a.log", "--topic", "logs", bootstrap=bootstrap)
        log.write_text("one\n")
        assert values(records(bootstrap, "logs", 1)) == ["one"]
    before = journal_size(tmp_path)
    with log.open("a") as file:
        file.writelines(f"{number}\n" for number in range(200_000))
    shipper.await_that(lambda: journal_size(tmp_path) > before)
    with running_broker(tmp_path / "data", port=port) as second:
        found = records(second.bootstrap, "logs", 200_001)
        assert {coordinates(each): each.value() for each in found}.keys() == {
            coordinates(each) for each in found
        }
        assert list(dict.fromkeys(values(found))) == ["one", *map(str, range(200_000))]
        assert shipper.end()[0] == 0


def test_ship_file_that_is_rotated_while_the_broker_is_away_is_shipped_in_all_its_parts(
    tmp_path: Path, follow: Callable[..., Following]
) -> None:
    log = tmp_path / "a.log"
    lines = [f"line {number:03} of a log that is rotated again and again" for number in range(5)]
    port = free_port()
    with running_broker(tmp_path / "data", port=port) as first:
        bootstrap = first.bootstrap
        shipper = follow("a.log", "--topic", "logs", bootstrap=bootstrap)
        log.write_text(f"{lines[0]}\n")
        records(bootstrap, "logs", 1)
    for number, line in enumerate(lines[1:]):
        for older in reversed(range(1, number + 1)):
            (tmp_path / f"a.log.{older}").rename(tmp_path / f"a.log.{older + 1}")
        log.rename(tmp_path / "a.log.1")
        log.write_text(f"{line}\n")
        shipper.await_that(lambda: shipper.has_open(log))
    with running_broker(tmp_path / "data", port=port) as second:
        found = records(second.bootstrap, "logs", 5)
        assert sorted(values(found)) == lines
        assert shipper.end()[0] == 0


def test_ship_told_to_stop_while_its_queue_is_full_says_what_was_not_acknowledged(
    tmp_path: Path, follow: Callable[..., Following]
) -> None:
    log = tmp_path / "a.log"
    log.write_text("first\n")
    with running_broker(tmp_path / "data", port=free_port()) as running:
        shipper = follow("a.log", "--topic", "logs", bootstrap=running.bootstrap)
        records(running.bootstrap, "logs", 1)
    before = journal_size(tmp_path)
    with log.open("a") as file:
        file.writelines(f"{number}\n" for number in range(600_000))
    shipper.await_that(
        lambda: journal_size(tmp_path) > before
    )  # its first chunk alone is more than the queue takes
    code, _, err = shipper.end()
    assert (code, "Traceback" in err) == (0, False), err
    assert "headwater: not acknowledged: " in err


def test_ship_from_end_sends_what_was_written_while_the_broker_was_away(
    tmp_path: Path, follow: Callable[..., Following], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "HEADWATER_CLIENT_TIMEOUT_S", "2"
    )  # it says that it waits when nobody has answered for so long
    log = tmp_path / "a.log"
    log.write_text("before\n")
    port = free_port()
    with running_broker(tmp_path / "data", port=port) as first:
        bootstrap = first.bootstrap
    shipper = follow("*.log", "--topic", "logs", "--from-end", bootstrap=bootstrap)
    assert shipper.process.stderr is not None
    assert "waiting for the brokers, nothing is lost" in shipper.process.stderr.readline()
    with log.open("a") as file:
        file.write("while it was away\n")
    (tmp_path / "b.log").write_text("a new file\n")
    with running_broker(tmp_path / "data", port=port) as second:
        assert sorted(values(records(second.bootstrap, "logs", 2))) == ["a new file", "while it was away"]
        assert shipper.end()[0] == 0


@pytest.mark.story
def test_ship_syslog_messages_arrive_with_their_sender(
    tmp_path: Path, broker: RunningBroker, follow: Callable[..., Following]
) -> None:
    shipper = follow("--syslog", "127.0.0.1:0", "--topic", "logs", "--json")
    assert shipper.process.stdout is not None
    host, port = parse_address(json.loads(shipper.process.stdout.readline())["listening"])
    with socket.create_connection((host, port)) as tcp:
        tcp.sendall(b"14 <34>1 two\nline<13>three\n")
        records(broker.bootstrap, "logs", 2)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.sendto(b"<34>four", (host, port))
    found = records(broker.bootstrap, "logs", 3)
    assert values(found) == ["<34>1 two\nline", "<13>three", "<34>four"]
    assert {each.key() for each in found} == {b"127.0.0.1"}
    assert len({coordinates(each) for each in found}) == 3
    assert shipper.end()[0] == 0


def test_ship_long_syslog_message_is_cut_and_its_record_says_so(
    broker: RunningBroker, follow: Callable[..., Following]
) -> None:
    shipper = follow("--syslog", "127.0.0.1:0", "--topic", "logs", "--json")
    assert shipper.process.stdout is not None
    address = parse_address(json.loads(shipper.process.stdout.readline())["listening"])
    long = b"<34>" + b"x" * 747_493
    with socket.create_connection(address) as tcp:
        tcp.sendall(b"%d %s<34>two\n" % (len(long), long))
        found = records(broker.bootstrap, "logs", 2)
    assert [each.value() for each in found] == [long[: 512 << 10], b"<34>two"]
    truncated = [dict(each.headers()).get("headwater-syslog-truncated") for each in found]
    assert truncated == [b"747497", None]
    code, _, err = shipper.end()
    assert code == 0
    assert err == (
        "headwater: cut: 1 syslog message longer than 524288 bytes or broken off with the connection; "
        "the header headwater-syslog-truncated has the full length\n"
    )


def test_ship_killed_with_syslog_in_its_spool_sends_it_later(
    tmp_path: Path, broker: RunningBroker, follow: Callable[..., Following], headwater: Headwater
) -> None:
    shipper = follow(
        *("--syslog", "127.0.0.1:0", "--topic", "logs", "--json", "--name", "here"),
        bootstrap=f"127.0.0.1:{free_port()}",
    )
    assert shipper.process.stdout is not None
    address = parse_address(json.loads(shipper.process.stdout.readline())["listening"])
    with socket.create_connection(address) as tcp:
        tcp.sendall(b"<34>one\n<34>two\n")
        spool = tmp_path / ".headwater/ship/here/logs/spool"
        shipper.await_that(lambda: any(b"two" in each.read_bytes() for each in spool.glob("*")))
    received_ms = time.time_ns() // 1_000_000
    shipper.end(signal.SIGKILL)
    (tmp_path / "empty.log").touch()
    done = headwater(
        "ship", "empty.log", "--topic", "logs", "--once", "--name", "here", "--bootstrap", broker.bootstrap
    )
    assert done.returncode == 0, done.stderr
    found = records(broker.bootstrap, "logs", 2)
    assert values(found) == ["<34>one", "<34>two"]
    assert all(received_ms - 60_000 < each.timestamp()[1] <= received_ms for each in found)
    assert list(spool.iterdir()) == []


@pytest.mark.parametrize("taken_ms", [None, 7_200_000, 1_000])
def test_ship_syslog_has_the_time_at_which_it_was_received_where_the_topic_takes_it(
    tmp_path: Path, broker: RunningBroker, headwater: Headwater, taken_ms: int | None
) -> None:
    config = {} if taken_ms is None else {"message.timestamp.before.max.ms": str(taken_ms)}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("logs", 1, 1, config=config)])["logs"].result()
    began_ms = time.time_ns() // 1_000_000
    received_ms = began_ms - 3_600_000
    spool = tmp_path / ".headwater/ship/here/logs/spool"
    spool.mkdir(parents=True)
    (spool / "1.spool").write_bytes(
        frame(b"192.0.2.7", b"<34>one", received_ms=received_ms) + frame(b"192.0.2.7", b"<34>two")
    )
    (tmp_path / "empty.log").touch()
    at = ("--once", "--name", "here", "--bootstrap", broker.bootstrap)
    done = headwater("ship", "empty.log", "--topic", "logs", *at)
    assert (done.returncode, done.stderr) == (0, "")
    one, two = (each.timestamp()[1] for each in records(broker.bootstrap, "logs", 2))
    assert one == received_ms if taken_ms != 1_000 else one >= began_ms
    assert two >= began_ms


def test_ship_syslog_that_a_topic_takes_no_more_at_its_time_gets_the_time_of_sending(
    tmp_path: Path, broker: RunningBroker, headwater: Headwater, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a topic that may not be described."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"message.timestamp.before.max.ms": "1000"}
    admin.create_topics([NewTopic("logs", 1, 1, config=config)])["logs"].result()
    began_ms = time.time_ns() // 1_000_000
    spool = Spool(tmp_path / "spool", 1 << 20, clock_ns=lambda: (began_ms - 3_600_000) * 1_000_000)
    spool.append(b"192.0.2.7", [SyslogMessage(b"<34>one")])
    spool.close()
    monkeypatch.setattr(
        "headwater.ship.shipper.require_topic", lambda *_: TopicLimits(max_bytes=1_048_588, oldest_ms=None)
    )
    options = ShipOptions((), "logs", "here", tmp_path / "own", once=True)
    said: list[str] = []
    cluster = Cluster(tmp_path, broker.bootstrap)
    Shipper(options, cluster, spool=spool, stop=threading.Event(), say=said.append).run()
    (found,) = records(broker.bootstrap, "logs", 1)
    assert found.value() == b"<34>one"
    assert found.timestamp()[1] >= began_ms
    assert [each.partition(":")[0] for each in said] == ["starting again from the saved progress"]


@pytest.mark.parametrize("home", [".headwater", "another"])
def test_ship_second_shipper_of_the_same_name_is_refused(
    tmp_path: Path,
    broker: RunningBroker,
    follow: Callable[..., Following],
    headwater: Headwater,
    home: str,
) -> None:
    (tmp_path / "a.log").write_text("one\n")
    follow("a.log", "--topic", "logs", "--name", "here")
    records(broker.bootstrap, "logs", 1)
    at = ("--name", "here", "--once", "--home", home, "--bootstrap", broker.bootstrap)
    done = headwater("ship", "a.log", "--topic", "logs", *at)
    assert (done.returncode, done.stderr) == (
        1,
        "headwater: a shipper named here ships to logs already: stop it, or give this one another --name\n",
    )


def test_ship_lock_that_cannot_be_written_is_told(
    tmp_path: Path, broker: RunningBroker, headwater: Headwater
) -> None:
    (tmp_path / "a.log").write_text("one\n")
    (tmp_path / ".headwater/ship/here/logs/lock").mkdir(parents=True)
    at = ("--name", "here", "--once", "--bootstrap", broker.bootstrap)
    done = headwater("ship", "a.log", "--topic", "logs", *at)
    assert done.returncode == 1
    assert done.stderr == (
        "headwater: cannot write to .headwater/ship/here/logs: is a directory; "
        "run it as the user that owns it, or give this one another --home\n"
    )


@pytest.mark.story
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("a.log",), 2, "headwater ship needs --topic: where the lines go"),
        (("--topic", "t"), 2, "headwater ship needs files, patterns or --syslog: where the lines come from"),
        (("nope.log", "--topic", "t", "--once"), 1, "there is no file nope.log"),
        (
            ("a.log.gz", "--topic", "t"),
            2,
            "a.log.gz is compressed, and lines are read of plain files; unpack it and ship that",
        ),
        (
            ("packed.log", "--topic", "t"),
            2,
            "packed.log is compressed, and lines are read of plain files; unpack it and ship that",
        ),
        (
            ("folder", "--topic", "t"),
            2,
            "folder is a directory, and lines are read of plain files; name those",
        ),
        (("pipe", "--topic", "t"), 2, "pipe is a named pipe, and lines are read of plain files; name those"),
        (
            ("dangling.log", "--topic", "t", "--once"),
            1,
            "dangling.log is a symbolic link to nowhere.log, which is not there",
        ),
        (("loop.log", "--topic", "t", "--once"), 1, "loop.log leads into a loop of symbolic links"),
        (("--syslog", "5514", "--topic", "t"), 2, "--syslog 5514 is not of the form host:port"),
        (
            ("--syslog", "127.0.0.1:0", "--topic", "t", "--once"),
            2,
            "--once and --syslog exclude each other: a port has no end",
        ),
        (
            ("a.log", "--topic", "t", "--compression", "zip"),
            2,
            "--compression zip is none of none, gzip, snappy, lz4, zstd",
        ),
        (
            ("a.log", "--topic", "t", "--encoding", "cp037"),
            2,
            (
                "--encoding cp037 is none in which lines can be found: give utf-8, utf-16, utf-16-le, utf-16-be, "
                "utf-32 or one that has ASCII in it, as cp1252, latin-1, gbk or shift_jis"
            ),
        ),
    ],
)
def test_ship_wrong_use_is_one_sentence(
    tmp_path: Path, headwater: Headwater, arguments: tuple[str, ...], code: int, message: str
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "old.log.gz").write_bytes(gzip.compress(b"zero\n"))
    for link, target in (
        ("packed.log", "old.log.gz"),
        ("dangling.log", "nowhere.log"),
        ("loop.log", "loop.log"),
    ):
        (tmp_path / link).symlink_to(target)
    done = headwater("ship", *arguments, "--bootstrap", "127.0.0.1:1")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"headwater: {message}\n")


def test_ship_named_file_that_is_not_there_yet_is_told_and_shipped_once_it_is(
    tmp_path: Path, broker: RunningBroker, follow: Callable[..., Following]
) -> None:
    (tmp_path / "today.log").symlink_to("1.log")
    shipper = follow("today.log", "none.log", "--topic", "logs")
    assert shipper.process.stderr is not None
    assert [shipper.process.stderr.readline() for _ in range(2)] == [
        "headwater: today.log is a symbolic link to 1.log, which is not there; it is shipped once it can be read\n",
        "headwater: there is no file none.log; it is shipped once it can be read\n",
    ]
    (tmp_path / "1.log").write_text("one\n")
    assert values(records(broker.bootstrap, "logs", 1)) == ["one"]
    assert shipper.end()[0] == 0


def test_ship_pattern_that_no_file_matches_is_told(broker: RunningBroker, headwater: Headwater) -> None:
    done = headwater("ship", "none/*.log", "--topic", "logs", "--once", "--bootstrap", broker.bootstrap)
    assert (done.returncode, done.stderr) == (0, "headwater: no file matches none/*.log\n")


def test_ship_named_file_that_may_not_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.log").write_text("one\n")
    monkeypatch.setattr(os, "access", lambda *_: False)  # whoever is root may read all
    assert missing_file(str(tmp_path / "a.log")) == f"cannot read {tmp_path / 'a.log'}: permission denied"


def test_ship_once_with_too_few_descriptors_names_what_it_did_not_ship(
    tmp_path: Path, broker: RunningBroker
) -> None:
    for number in range(90):
        (tmp_path / f"{number:02}.log").write_text(f"of {number}\n")
    arguments = ["ship", "*.log", "--topic", "logs", "--once", "--bootstrap", broker.bootstrap]
    done = subprocess.run(
        ["sh", "-c", 'ulimit -n 90; exec "$@"', "sh", sys.executable, "-m", "headwater.cli", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    shipped = values(records(broker.bootstrap, "logs"))
    assert 0 < len(shipped) < 90
    first, last = done.stderr.splitlines()
    assert first.startswith(f"headwater: cannot read {tmp_path}")
    assert first.endswith("this process may open 90 files; raise that, as with ulimit -n")
    assert last.startswith(f"headwater: not shipped, as it could not be read: {tmp_path}")
    assert last.endswith(f"and {90 - len(shipped) - 10} more")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start it as a user that may not read the folder")
def test_ship_once_with_a_folder_that_it_may_not_read_fails(tmp_path: Path, broker: RunningBroker) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        Path(home).chmod(0o777)
        locked = Path(home) / "locked"
        for each in ("open", "locked"):
            (Path(home) / each).mkdir()
            (Path(home) / each / "a.log").write_text(f"{each}\n")
        locked.chmod(0o700)
        arguments = [
            "ship",
            "*/*.log",
            "--topic",
            "logs",
            "--once",
            "--name",
            "n",
            "--bootstrap",
            broker.bootstrap,
        ]
        done = subprocess.run(
            ["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-m", "headwater.cli", *arguments],
            cwd=home,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
    if "Permission denied" in done.stderr:
        pytest.skip("another user may not run this Python")
    assert done.returncode == 1, done.stderr
    assert values(records(broker.bootstrap, "logs")) == ["open"]
    assert done.stderr.splitlines() == [
        f"headwater: cannot read {locked}: permission denied",
        f"headwater: not shipped, as it could not be read: {locked}",
    ]


def test_ship_topic_that_the_brokers_do_not_make_is_named(tmp_path: Path, headwater: Headwater) -> None:
    (tmp_path / "a.log").write_text("one\n")
    with running_broker(properties={"auto.create.topics.enable": "false"}) as strict:
        done = headwater("ship", "a.log", "--topic", "logs", "--once", "--bootstrap", strict.bootstrap)
    assert done.returncode == 1
    assert done.stderr == ("headwater: there is no topic logs: make it with headwater topics create logs\n")
