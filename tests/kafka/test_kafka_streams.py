"""Kafka Streams applications on our broker: what they count must be right, whatever is killed meanwhile."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support import apache_kafka

KILLS = int(os.environ.get("HEADWATER_STREAMS_KILLS", "2"))
WORDS = [f"word-{number}" for number in range(17)]
PARTITIONS = 2
_IN_TIME_S = 90
_FIRST_MS = 1_700_000_000_000 // 60_000 * 60_000


@pytest.fixture(scope="module")
def class_path(java_classes: Callable[[str, Path], str]) -> str:
    """The application, compiled, and Kafka Streams."""
    if shutil.which("java") is None:
        pytest.skip("needs a java command")
    try:
        return java_classes("Counting", apache_kafka.streams_jars())
    except apache_kafka.NoKafkaError as error:
        pytest.skip(str(error))


class Application:
    """One run after another of the application, on the same state."""

    def __init__(self, class_path: str, bootstrap: str, directory: Path, guarantee: str) -> None:
        self.state = directory / "state"
        self._output = directory / "application"
        self._command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self._command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", class_path, "Counting"]
        self._command += [bootstrap, str(self.state), guarantee]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it; it needs seconds to begin."""
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._end()

    def stop(self) -> None:
        """As an operator does."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._end()

    def _end(self) -> None:
        assert self._process is not None
        assert self._process.wait(timeout=60) is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process = None

    def log(self) -> str:
        """What it printed."""
        return self._output.read_text(errors="replace")[-6000:]


class Counts:
    """What was said of each word, in order, read as committed."""

    def __init__(self, bootstrap: str) -> None:
        self.of: dict[str, list[int]] = defaultdict(list)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "counts",
                "isolation.level": "read_committed",
                "log_level": 0,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.assign(
            [TopicPartition(topic, each, 0) for topic in ("counts", "minutes") for each in range(PARTITIONS)]
        )

    def read(self) -> None:
        """Takes what comes within a moment."""
        for message in self._consumer.consume(1000, timeout=0.2):
            assert message.error() is None, message.error()
            key, value = message.key(), message.value()
            assert key is not None
            assert value is not None
            self.of[key.decode()].append(int(value))

    def read_until(self, count: int, application: Application) -> None:
        """Takes what comes until there are so many."""
        deadline_s = time.monotonic() + _IN_TIME_S
        while (seen := sum(map(len, self.of.values()))) < count:
            assert time.monotonic() < deadline_s, (seen, count, application.log())
            self.read()

    def close(self) -> None:
        """Closes the consumer."""
        self._consumer.close()


@pytest.fixture
def bootstrap(broker_process_class: Any, tmp_path: Path) -> Iterator[Any]:
    """A broker with the topics of the application."""
    process = broker_process_class(tmp_path, ["--coordinator", "memory"])
    process.start("transaction.abort.timed.out.transaction.cleanup.interval.ms=500")
    try:
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        topics = [NewTopic(name, PARTITIONS, 1) for name in ("words", "counts", "minutes")]
        for made in admin.create_topics(topics).values():
            made.result(30)
        yield process
    finally:
        process.kill()


def feed(bootstrap: str, rng: random.Random, count: int, expected: Counter[str]) -> None:
    """Some words, spread over three minutes of event time."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
    )
    minute_ms = _FIRST_MS + 60_000 * (expected.total() // 2 // 500)
    for _ in range(count):
        word = rng.choice(WORDS)
        expected[word] += 1
        expected[f"{word}@{minute_ms}"] += 1
        producer.produce("words", word, partition=rng.randrange(PARTITIONS), timestamp=minute_ms + 1)
    assert producer.flush(60) == 0


@pytest.mark.timeout(420)
def test_streams_exactly_once_killed_at_random_counts_each_word_once(
    bootstrap: Any, class_path: str, tmp_path: Path
) -> None:
    seed = int(os.environ.get("HEADWATER_STREAMS_SEED", time.time_ns() % 1_000_000))
    print(f"HEADWATER_STREAMS_SEED={seed}")
    rng = random.Random(seed)
    expected: Counter[str] = Counter()
    application = Application(class_path, bootstrap.bootstrap, tmp_path, "exactly_once_v2")
    counts = Counts(bootstrap.bootstrap)
    try:
        for number in range(KILLS):
            application.start()
            feed(bootstrap.bootstrap, rng, 200, expected)
            counts.read_until(sum(map(len, counts.of.values())) + 1, application)
            feed(bootstrap.bootstrap, rng, 300, expected)
            time.sleep(rng.uniform(0, 0.5))
            application.kill()
            if number % 2:
                shutil.rmtree(application.state)  # all of it comes back from the changelogs
        application.start()
        counts.read_until(sum(map(len, counts.of.values())) + 1, application)
        feed(bootstrap.bootstrap, rng, 200, expected)
        time.sleep(rng.uniform(0, 0.3))
        bootstrap.kill()
        bootstrap.start()
        counts.read_until(expected.total(), application)
        application.stop()
        counts.read()
        assert counts.of == one_by_one(expected)
    finally:
        application.kill()
        counts.close()


@pytest.mark.story
@pytest.mark.timeout(240)
def test_streams_at_least_once_stopped_and_started_counts_on(
    bootstrap: Any, class_path: str, tmp_path: Path
) -> None:
    rng = random.Random(5)
    expected: Counter[str] = Counter()
    application = Application(class_path, bootstrap.bootstrap, tmp_path, "at_least_once")
    counts = Counts(bootstrap.bootstrap)
    try:
        for _ in range(2):
            feed(bootstrap.bootstrap, rng, 300, expected)
            application.start()
            counts.read_until(expected.total(), application)
            application.stop()
            shutil.rmtree(application.state)
        counts.read()
        assert counts.of == one_by_one(expected)
    finally:
        application.kill()
        counts.close()


def one_by_one(expected: Counter[str]) -> dict[str, list[int]]:
    """What is said where each word is counted once: 1, 2, 3, ..."""
    return {word: list(range(1, count + 1)) for word, count in expected.items()}
