"""Brokers that speak Kafka's protocol, ours and Apache Kafka's, under tests/bench/load.c.

As in the paper the producer waits for no acknowledgement. A consumer asks for 200 KB at a time, one request in flight.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from beside_kafka import DELETED_AT_ONCE, HEAP, Contender
from queues.system import MESSAGE_BYTES, PREFETCH_BYTES, SLICES, NoContenderError, Run, run_of
from support.apache_kafka import NEWEST, NoKafkaError, running_kafka
from support.load import Load
from support.processes import cpu_s, running, zookeeper


class KafkaLike:
    """One of the two."""

    client = "load.c: Produce with acks=0 and Fetch, raw requests"
    batches = (1, 50)

    def __init__(self, title: str, contender: Contender, load: Load) -> None:
        self.name = contender.name
        self.title = title
        self._contender = contender
        self._load = load

    @contextlib.contextmanager
    def queue(self, name: str) -> Iterator[None]:
        """A topic with one partition."""
        with self._contender.topic(name):
            yield

    def produce(self, queue: str, *, batch: int, messages: int, seconds: float) -> Run:
        """As `System` says; rounded up to whole blocks of 256 KiB."""
        return run_of(
            self._load.produce(
                self._contender.port,
                queue,
                acks=0,
                messages=batch,
                in_flight=0,
                seconds=seconds,
                max_bytes=messages * MESSAGE_BYTES,
                slices=SLICES,
            )
        )

    def consume(self, queue: str, *, batch: int, messages: int, seconds: float) -> Run:
        """As `System` says."""
        seen = self._load.consume(
            self._contender.port,
            queue,
            messages=batch,
            max_bytes=PREFETCH_BYTES,
            slices=SLICES,
            seconds=seconds,
        )
        assert seen["messages"] == messages, (seen["messages"], messages)
        return run_of(seen)

    def cpu_s(self) -> float:
        """The broker process's own."""
        return cpu_s(self._contender.pid)


@contextlib.contextmanager
def running_headwater(folder: Path, load: Load) -> Iterator[KafkaLike]:
    """Ours as users run it: with ZooKeeper, and with the settings that it has by itself."""
    settings = [part for name, value in DELETED_AT_ONCE.items() for part in ("--set", f"{name}={value}")]
    (folder / "zookeeper").mkdir(parents=True)
    with (
        zookeeper(folder / "zookeeper") as hosts,
        running(folder / "data", "--zookeeper", hosts, *settings) as (process, bootstrap, _),
    ):
        title = f"Headwater {version('headwater')}"
        yield KafkaLike(title, Contender("headwater", process.pid, bootstrap), load)


@contextlib.contextmanager
def running_apache_kafka(folder: Path, load: Load) -> Iterator[KafkaLike]:
    """One KRaft node with Kafka's defaults and the Java options of its start script.

    Raises:
        NoContenderError: It is not to be had.
    """
    folder.mkdir()
    try:
        with running_kafka(folder, DELETED_AT_ONCE, heap=HEAP, version=NEWEST) as (pid, bootstrap):
            yield KafkaLike(f"Apache Kafka {NEWEST}", Contender("kafka", pid, bootstrap), load)
    except NoKafkaError as error:
        raise NoContenderError(str(error)) from error
