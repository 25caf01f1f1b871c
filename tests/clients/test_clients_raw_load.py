"""The benchmarks' load generator: what it sends is stored whole, and what goes wrong ends its run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from beside_kafka import FETCHED, LOADS, WITH_ACL, Produced, medians, table
from headwater_broker.testing import RunningBroker, broker
from support.load import Load, LoadError, NoCompilerError

VALUE_BYTES = 200


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """The generator, built once."""
    try:
        return Load(tmp_path_factory.mktemp("load"))
    except NoCompilerError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    """A broker."""
    with broker() as found:
        yield found


def make_topic(running: RunningBroker, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    return name


def read(running: RunningBroker, topic: str, offset: int) -> list[bytes]:
    """Values from an offset to the end, with the checksums looked at."""
    settings = {"bootstrap.servers": running.bootstrap, "group.id": "raw", "check.crcs": True}
    consumer = Consumer(settings)
    try:
        partition = TopicPartition(topic, 0, offset)
        end_offset = consumer.get_watermark_offsets(partition, timeout=60)[1]
        consumer.assign([partition])
        values: list[bytes] = []
        while len(values) < end_offset - offset:
            for message in consumer.consume(end_offset - offset - len(values), timeout=60):
                assert message.error() is None
                assert message.offset() == offset + len(values)
                values.append(message.value())
        return values
    finally:
        consumer.close()


@pytest.mark.parametrize("each", LOADS, ids=lambda each: each.name)
def test_load_produce_stores_every_message_and_fetch_reads_them(
    load: Load, running: RunningBroker, each: Produced
) -> None:
    topic = make_topic(running, each.name)
    shape = {"acks": each.acks, "messages": each.messages, "in_flight": each.in_flight}

    seen = load.produce(running.port, topic, **shape, seconds=0.2, max_bytes=3e6)

    assert seen["messages"] == seen["requests"] * each.messages > 0
    last = read(running, topic, seen["messages"] - each.messages)
    assert [len(value) for value in last] == [VALUE_BYTES] * each.messages
    if each.in_flight == 1:
        assert 0 < seen["p50_us"] <= seen["p99_us"]
    fetched = load.fetch(running.port, topic, messages=each.messages, max_bytes=100_000, seconds=0.1)
    assert fetched["bytes"] > 0


@pytest.mark.parametrize(
    ("acks", "messages"), [(0, 1), (0, 50), (1, 50)], ids=["one", "fifty", "acknowledged"]
)
def test_load_consume_reads_each_message_once_and_tells_when(
    load: Load, running: RunningBroker, acks: int, messages: int
) -> None:
    topic = make_topic(running, f"consumed-{acks}-{messages}")
    shape = {
        "acks": acks,
        "messages": messages,
        "in_flight": 100,
        "seconds": 20,
        "max_bytes": 4e6,
        "slices": 4,
    }

    produced = load.produce(running.port, topic, **shape)
    consumed = load.consume(running.port, topic, messages=messages, max_bytes=200_000, slices=4, seconds=20)

    assert consumed["messages"] == produced["messages"] >= 4e6 / VALUE_BYTES
    for seen in (produced, consumed):
        counts, times_s = zip(*seen["slices"], strict=True)
        assert len(counts) in (3, 4, 5)
        assert counts[-1] == seen["messages"]
        assert list(counts) == sorted(set(counts))
        assert list(times_s) == sorted(times_s)
        assert times_s[-1] == pytest.approx(seen["seconds"], abs=0.01)


def test_load_consume_of_other_records_ends_the_run(load: Load, running: RunningBroker) -> None:
    topic = make_topic(running, "others")
    load.produce(running.port, topic, acks=1, messages=1, in_flight=10, seconds=0.05, max_bytes=1e5)

    with pytest.raises(LoadError, match="the records at offset 0 are not those that were produced"):
        load.consume(running.port, topic, messages=2, max_bytes=10_000, slices=2, seconds=1)


def test_load_topic_that_is_not_empty_is_not_measured(load: Load, running: RunningBroker) -> None:
    topic = make_topic(running, "used")
    shape = {"acks": 1, "messages": 1, "in_flight": 10, "seconds": 0.05, "max_bytes": 1e5}
    stored = load.produce(running.port, topic, **shape)["messages"]

    with pytest.raises(LoadError, match=f"request 0 was stored at offset {stored}"):
        load.produce(running.port, topic, **shape)


def test_load_request_that_is_refused_ends_the_run(load: Load, running: RunningBroker) -> None:
    shape = {"messages": 50, "in_flight": 10, "seconds": 1, "max_bytes": 1e6}
    with pytest.raises(LoadError, match="error code 3"):
        load.produce(running.port, "nowhere", acks=1, **shape)
    with pytest.raises(LoadError, match=r"closed the connection|took no more"):
        load.produce(running.port, "nowhere", acks=0, **shape)


def test_load_fetch_of_other_records_ends_the_run(load: Load, running: RunningBroker) -> None:
    topic = make_topic(running, "other")
    load.produce(running.port, topic, acks=1, messages=1, in_flight=10, seconds=0.05, max_bytes=1e5)

    with pytest.raises(LoadError, match="the records at offset 0 are not those that were produced"):
        load.fetch(running.port, topic, messages=2, max_bytes=10_000, seconds=0.1)


def test_load_no_compiler_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NoCompilerError, match="there is no C compiler"):
        Load(tmp_path)


def test_table_has_medians_of_the_rounds_and_their_ratio() -> None:
    ours = {"requests_per_s": 300e3, "messages_per_s": 300e3, "cpu_us": 3.0, "p50_us": 50, "p99_us": 90}
    ours |= {"gb_per_s": 5.0}
    theirs = {name: value / 2 for name, value in ours.items()} | {"cpu_us": 60.0, "p50_us": 100}
    odd = {name: value * 99 for name, value in ours.items()}
    figures = {
        name: {"headwater": [odd, ours, ours], "kafka": [theirs, theirs, odd]}
        for name in [*(each.name for each in LOADS), FETCHED]
    }
    figures[WITH_ACL]["headwater_acl"] = [theirs, ours, odd]

    lines = table(medians(figures)).splitlines()

    assert len({line.count("|") for line in lines}) == 1
    assert len(lines) == 2 + len(LOADS) + 1 + 1
    assert (
        "| 300.0 k requests/s | 150.0 k requests/s | 2.0 times | 3.0 us | 60 us | 20.0 times less |"
        in lines[2]
    )
    assert "with an ACL | 300.0 k requests/s | - | 2.0 times" in lines[4]
    assert "| p50 50, p99 90 us | p50 100, p99 45 us | 2.0 times |" in lines[-2]
    assert "| 5.0 GB/s | 2.5 GB/s | 2.0 times |" in lines[-1]
