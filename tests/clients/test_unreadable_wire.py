"""A log with batches that nobody can read: what clients see of them, and how they go past."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.errors import ErrorCode

from bad_batches import cases, plain, raw_batch
from headwater.cli import main
from headwater_broker.testing import RunningBroker, WireClient, broker
from headwater_broker.wire.apis import FETCH
from headwater_broker.wire.fetch import PAST_UNREADABLE
from old_log import append_to_log

TIMEOUT_S = 60
REASON = "the batch of offsets 10 to 12 cannot be read: "


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Topic t: offsets 0 to 9 are good, 10 to 12 garbage, 13 to 15 good, 16 to 19 fewer than said, 20 to 29 good."""
    data, bad = tmp_path_factory.mktemp("unreadable"), cases(0)
    with broker(data) as first:
        admin = AdminClient({"bootstrap.servers": first.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(TIMEOUT_S)
        fill(first)
    assert append_to_log(data / "t-0", bad["garbage"]) == 10
    assert append_to_log(data / "t-0", raw_batch(plain(3), 3)) == 13
    assert append_to_log(data / "t-0", bad["fewer records than the count"]) == 16
    with broker(data) as second:
        fill(second)
        yield second


def fill(to: RunningBroker, topic: str = "t") -> None:
    producer = Producer({"bootstrap.servers": to.bootstrap, "linger.ms": 100, "log_level": 0})
    for number in range(10):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def consumer(bootstrap: str, **settings: Any) -> Consumer:
    found = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": True} | settings
    )
    found.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    return found


def test_consumer_gets_the_error_and_can_go_past(running: RunningBroker) -> None:
    reader, offsets, errors = consumer(running.bootstrap), list[int | None](), list[int]()
    starts = iter((13, 20))
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        message = reader.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            offsets.append(message.offset())
        elif error.code() == KafkaError._PARTITION_EOF:
            break
        else:
            errors.append(error.code())
            reader.seek(TopicPartition("t", 0, next(starts)))
    reader.close()
    assert set(errors) == {KafkaError.INVALID_MSG}
    assert offsets == [*range(10), 13, 14, 15, *range(20, 30)]


def test_consumer_that_asks_for_it_gets_one_record_for_each_and_everything_else_once(
    running: RunningBroker,
) -> None:
    reader = consumer(running.bootstrap, **{"client.rack": PAST_UNREADABLE.decode(), "check.crcs": True})
    found: dict[int | None, tuple[bytes | None, Any]] = {}
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        message = reader.poll(1)
        if message is None:
            continue
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF
            break
        assert message.offset() not in found
        found[message.offset()] = message.value(), message.headers()
    reader.close()
    assert list(found) == [*range(11), *range(13, 17), *range(20, 30)]
    value, headers = found[10]
    ((name, reason),) = headers
    assert (name, reason[: len(REASON)]) == ("headwater-unreadable", REASON.encode())
    assert bytes(cases(0)["garbage"])[21:] in (value or b""), "the batch as it is stored"
    assert found[13] == (b"value", None)


RACKS = ("headwater-past-unreadable", "headwater-past-unreadablf", "")


@pytest.mark.parametrize(
    ("version", "rack"),
    [(version, rack) for version in range(4, 13) for rack in RACKS if version >= 11 or not rack],
)
def test_only_the_rack_of_that_name_asks_for_it(running: RunningBroker, version: int, rack: str) -> None:
    asked: dict[str, Any] = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20}
    asked |= {"isolation_level": 0}
    asked |= {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": []} if version >= 7 else {}
    asked |= {"rack_id": rack} if version >= 11 else {}
    partition = {"partition": 0, "fetch_offset": 10, "partition_max_bytes": 1 << 20}
    with WireClient(running.bootstrap) as client:
        answer = client.ask(FETCH, version, **asked, topics=[{"topic": "t", "partitions": [partition]}])
    records = bytes(answer.responses[0].partitions[0].records)
    assert (REASON.encode() in records) == (rack == RACKS[0])
    assert (answer.responses[0].partitions[0].error_code == ErrorCode.corrupt_message) == (rack != RACKS[0])


def test_fetch_has_no_room_for_a_log_that_nobody_looked_at_and_it_comes_with_the_next(tmp_path: Path) -> None:
    with broker(tmp_path) as first:
        admin = AdminClient({"bootstrap.servers": first.bootstrap})
        for future in admin.create_topics([NewTopic(name, 1, 1) for name in ("t", "u")]).values():
            future.result(TIMEOUT_S)
        fill(first)
        fill(first, "u")
    asked: dict[str, Any] = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1,
        "isolation_level": 0,
    }
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    with broker(tmp_path) as again, WireClient(again.bootstrap) as client:
        for names in (("t", "u"), ("u", "t")):
            answer = client.ask(
                FETCH, 4, **asked, topics=[{"topic": n, "partitions": [partition]} for n in names]
            )
            parts = [topic.partitions[0] for topic in answer.responses]
            assert [each.error_code for each in parts] == [ErrorCode.none] * 2
            assert [bool(each.records) for each in parts] == [True, False]


def test_consume_command_tells_of_them_and_prints_the_rest(
    running: RunningBroker, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["consume", "t", "--bootstrap", running.bootstrap]) == 0
    printed = capfdbinary.readouterr()
    assert printed.out.splitlines() == [
        *(b"%d" % number for number in range(10)),
        *[b"value"] * 3,
        *(b"%d" % number for number in range(10)),
    ]
    told = [line for line in printed.err.decode().splitlines() if line.startswith("headwater: ")]
    assert [line.partition(" cannot be read: ")[0] for line in told] == [
        "headwater: t 0: the batch of offsets 10 to 12",
        "headwater: t 0: the batch of offsets 16 to 19",
    ]
