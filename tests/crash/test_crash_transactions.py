"""kill -9 of a broker at random instants, under load from every kind of client that was promised something.

`HEADWATER_KILLS=200` runs the long form; `HEADWATER_SEED` repeats a run's instants, as far as a clock can.

What must hold at the end, whatever was cut off where:

- a record that an idempotent producer with acks=all was told of is there once, at the offset it was told, and each
  producer's records are in the order in which it sent them;
- the output of consume-transform-produce transactions is the input up to the committed offset, each record once;
- a committed offset that its consumer was told of never goes back;
- a topic that was created stays, and one that was deleted stays away.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from amount import amount, drawn_seed
from support.processes import free_port

KILLS = amount("HEADWATER_KILLS", small=2, full=8)
PARTITIONS = 3
WAIT_S = 60
SETTINGS = (
    "log.segment.bytes=60000",
    "log.index.interval.bytes=512",
    "group.initial.rebalance.delay.ms=0",
    "log.flush.offset.checkpoint.interval.ms=500",
    "transaction.state.log.num.partitions=3",
    "transaction.state.log.segment.bytes=20000",
)
CLIENT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "topic.metadata.refresh.sparse": False,
    "log_level": 0,
    # With its default librdkafka 2.11 forgets a broker that is away, but not that it was a group's coordinator, and
    # waits for that one for ever.
    "metadata.recovery.strategy": "none",
}


class Broker:
    """A broker process that keeps its port."""

    def __init__(self, directory: Path, shared_state: list[str]) -> None:
        self._directory = directory
        self._shared_state = shared_state
        self._process: subprocess.Popen[str] | None = None
        self._port = free_port()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def spawn(self) -> None:
        command = [
            sys.executable,
            "-m",
            "headwater_broker",
            "--id",
            "1",
            "--data",
            str(self._directory / "data"),
        ]
        command += ["--listen", self.bootstrap, *self._shared_state]
        for setting in SETTINGS:
            command += ["--set", setting]
        with (self._directory / "stderr").open("ab") as stderr:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)

    def wait(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("ready "), (self._directory / "stderr").read_text(errors="replace")[-5000:]
        assert line.split()[1] == self.bootstrap

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


class Calm:
    """When the last kill was over: only from then on must clients be answered within `WAIT_S`.

    On a busy machine the broker may be away for most of the time until then.
    """

    def __init__(self) -> None:
        self.since_s: float | None = None

    def begin(self) -> None:
        self.since_s = time.monotonic()

    @property
    def is_over(self) -> bool:
        return self.since_s is not None and time.monotonic() > self.since_s + WAIT_S


class Client(threading.Thread):
    """Something that goes on until it is told to stop; what goes wrong in it fails the test."""

    def __init__(self, bootstrap: str, calm: Calm) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.calm = calm
        self.failure: BaseException | None = None
        self.stopping = threading.Event()

    def config(self, **more: Any) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap, **CLIENT, **more}

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.failure = error

    def work(self) -> None:
        raise NotImplementedError

    def retried(self, ask: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Asks again while the broker is away."""
        while True:
            try:
                return ask(*arguments, **options)
            except KafkaException as error:
                cause = error.args[0]
                if self.calm.is_over or not (cause.retriable() or cause.code() in _AWAY):
                    raise
                time.sleep(0.02)

    def finish(self) -> None:
        self.stopping.set()
        self.join(2 * WAIT_S)
        if self.failure is not None:
            raise self.failure
        if self.is_alive():
            assert self.ident is not None
            stack = traceback.format_stack(sys._current_frames()[self.ident])
            pytest.fail(f"{self.name} does not come to an end:\n{''.join(stack)}")


class IdempotentWriter(Client):
    """Sends numbers to every partition in turn and keeps what it was told of each."""

    def __init__(self, bootstrap: str, calm: Calm, topic: str, name: str) -> None:
        super().__init__(bootstrap, calm)
        self.topic = topic
        self.prefix = name
        self.told: dict[tuple[int, int], bytes] = {}
        self.sent = 0
        self.refused: list[KafkaError] = []

    def work(self) -> None:
        producer = Producer(
            self.config(
                **{
                    "enable.idempotence": True,
                    "linger.ms": 1,
                    "batch.num.messages": 5,
                    "message.timeout.ms": 0,
                }
            )
        )
        while not self.stopping.is_set():
            if self.sent - len(self.told) < 500:
                for _ in range(random.randrange(1, 8)):
                    value = b"%s-%d" % (self.prefix.encode(), self.sent)
                    partition = self.sent % PARTITIONS
                    producer.produce(self.topic, value, partition=partition, on_delivery=self.delivered)
                    self.sent += 1
            producer.poll(0.003)
        assert producer.flush(WAIT_S) == 0
        assert not self.refused, self.refused[0]

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(error)
        else:
            self.told[message.partition(), message.offset()] = message.value()


class Copier(Client):
    """Copies `in` to `out`, a few records and their offset in each transaction, aborting every fourth."""

    def __init__(self, bootstrap: str, calm: Calm, partition: int) -> None:
        super().__init__(bootstrap, calm)
        self.partition = partition
        self.told_offset = 0
        self.commits = self.aborts = self.fresh_starts = 0

    def work(self) -> None:
        consumer = Consumer(
            self.config(
                **{
                    "group.id": "copy",
                    "isolation.level": "read_committed",
                    "enable.auto.commit": False,
                    "fetch.wait.max.ms": 20,
                    "fetch.error.backoff.ms": 20,
                    "fetch.queue.backoff.ms": 20,
                }
            )
        )
        source = TopicPartition("in", self.partition, OFFSET_BEGINNING)
        consumer.assign([source])
        try:
            while not self.stopping.is_set():
                self.fresh_starts += 1
                producer = Producer(
                    self.config(**{"transactional.id": f"copier-{self.partition}", "linger.ms": 1})
                )
                try:
                    self.retried(producer.init_transactions, 5)
                    while not self.stopping.is_set():
                        self._rewind(consumer, source)
                        self._copy(consumer, producer, source)
                except KafkaException as error:
                    if not error.args[0].fatal() and not error.args[0].txn_requires_abort():
                        raise
        finally:
            consumer.close()

    def _rewind(self, consumer: Consumer, source: TopicPartition) -> None:
        """Goes to the committed offset, which may not be before the one that was told."""
        (committed,) = self.retried(consumer.committed, [source], 5)
        assert max(committed.offset, 0) >= self.told_offset, "a committed offset went back"
        self.retried(consumer.seek, TopicPartition("in", self.partition, max(committed.offset, 0)))

    def _copy(self, consumer: Consumer, producer: Producer, source: TopicPartition) -> None:
        """Transactions until one of them is aborted."""
        while not self.stopping.is_set():
            messages = [
                each for each in consumer.consume(random.randrange(1, 12), 0.2) if each.error() is None
            ]
            if not messages:
                continue
            end = messages[-1].offset() + 1
            try:
                producer.begin_transaction()
                for message in messages:
                    producer.produce("out", message.value(), partition=self.partition)
                offsets = [TopicPartition("in", self.partition, end)]
                self.retried(
                    producer.send_offsets_to_transaction, offsets, consumer.consumer_group_metadata(), 5
                )
                if random.random() < 0.25:
                    self.retried(producer.abort_transaction, 5)
                    self.aborts += 1
                    return
                self.retried(producer.commit_transaction, 5)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                self.retried(producer.abort_transaction, 5)
                self.aborts += 1
                return
            self.told_offset = end
            self.commits += 1


class Committer(Client):
    """A simple consumer that commits a growing offset and looks it up again."""

    def __init__(self, bootstrap: str, calm: Calm) -> None:
        super().__init__(bootstrap, calm)
        self.told = 0

    def work(self) -> None:
        consumer = Consumer(self.config(**{"group.id": "simple", "enable.auto.commit": False}))
        try:
            while not self.stopping.is_set():
                wanted = TopicPartition("plain", 0, self.told + 1)
                self.retried(consumer.commit, offsets=[wanted], asynchronous=False)
                self.told += 1
                (found,) = self.retried(consumer.committed, [TopicPartition("plain", 0)], 5)
                assert found.offset == self.told
                time.sleep(0.005)
        finally:
            consumer.close()


class TopicMaker(Client):
    """Creates topics, and deletes each after two more."""

    def __init__(self, bootstrap: str, calm: Calm) -> None:
        super().__init__(bootstrap, calm)
        self.present: set[str] = set()
        self.gone: set[str] = set()
        self.made = 0

    def work(self) -> None:
        admin = AdminClient(self.config())
        while not self.stopping.is_set():
            name = f"topic-{self.made}"
            self._ask(
                lambda name=name: admin.create_topics([NewTopic(name, 2, 1)])[name],
                KafkaError.TOPIC_ALREADY_EXISTS,
            )
            self.present.add(name)
            self.made += 1
            if self.made > 2:
                old = f"topic-{self.made - 3}"
                self.present.discard(old)
                self._ask(lambda old=old: admin.delete_topics([old])[old], KafkaError.UNKNOWN_TOPIC_OR_PART)
                self.gone.add(old)
            time.sleep(0.05)

    def _ask(self, ask: Callable[[], Any], done_before: int) -> None:
        """Asks until it is done; an answer that was lost shows as `done_before`."""
        while True:
            try:
                ask().result(60)
                return
            except KafkaException as error:
                if error.args[0].code() == done_before:
                    return
                if self.calm.is_over:
                    raise
                time.sleep(0.05)

    def check(self) -> None:
        listed = set(AdminClient(self.config()).list_topics(timeout=WAIT_S).topics)
        assert self.present <= listed, f"{self.present - listed} were created, and are not there"
        assert not self.gone & listed, f"{self.gone & listed} were deleted, and are there"


_AWAY = {
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._WAIT_COORD,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
}


def read_all(bootstrap: str, topic: str) -> list[list[tuple[int, bytes]]]:
    """Offset and value of every committed record, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    found: list[list[tuple[int, bytes]]] = [[] for _ in range(PARTITIONS)]
    left = set(range(PARTITIONS))
    try:
        while left:
            for message in consumer.consume(1000, 0.1):
                error = message.error()
                if error is None:
                    found[message.partition()].append((message.offset(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return found


@pytest.mark.timeout(600 + KILLS * 12)
@pytest.mark.parametrize("shared_state", [pytest.param("memory", marks=pytest.mark.story), "zookeeper"])
def test_broker_killed_at_random_instants_loses_doubles_and_reorders_nothing(
    tmp_path: Path, request: pytest.FixtureRequest, shared_state: str
) -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    arguments = ["--coordinator", "memory"]
    if shared_state == "zookeeper":
        hosts = request.getfixturevalue("zookeeper").hosts
        arguments = ["--zookeeper", f"{hosts}/crash-{tmp_path.name}-{os.getpid()}"]
    broker = Broker(tmp_path, arguments)
    broker.spawn()
    try:
        broker.wait()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topics = [NewTopic(name, PARTITIONS, 1) for name in ("plain", "in", "out")]
        for future in admin.create_topics(topics).values():
            future.result(60)
        del admin
        calm = Calm()
        writers = [
            IdempotentWriter(broker.bootstrap, calm, topic, name)
            for topic, name in (("plain", "a"), ("plain", "b"), ("in", "c"))
        ]
        copiers = [Copier(broker.bootstrap, calm, partition) for partition in range(PARTITIONS)]
        committer, maker = Committer(broker.bootstrap, calm), TopicMaker(broker.bootstrap, calm)
        clients: list[Client] = [*writers, *copiers, committer, maker]
        for client in clients:
            client.start()
        for _ in range(KILLS // 2 + (KILLS % 2 if shared_state == "memory" else 0)):
            time.sleep(rng.uniform(0.1, 1.5))
            broker.kill()
            broker.spawn()
            if rng.random() < 0.15:
                time.sleep(rng.uniform(0, 0.4))  # while it starts
                broker.kill()
                broker.spawn()
            broker.wait()
        calm.begin()
        while not all(each.commits or each.failure for each in copiers) and not calm.is_over:
            time.sleep(0.02)  # a busy machine may have left them no time between two kills
        calm.begin()
        for client in clients:
            client.stopping.set()
        for client in clients:
            client.finish()
        maker.check()
        _check_records(broker.bootstrap, writers)
        _check_copies(broker.bootstrap, copiers)
        print(
            f"{sum(len(each.told) for each in writers)} records, {sum(each.commits for each in copiers)} commits, "
            f"{sum(each.aborts for each in copiers)} aborts, {committer.told} offsets, {maker.made} topics, "
            f"{sum(each.fresh_starts for each in copiers)} producers begun anew"
        )
    finally:
        broker.kill()


def _check_records(bootstrap: str, writers: list[IdempotentWriter]) -> None:
    for topic in ("plain", "in"):
        mine = [each for each in writers if each.topic == topic]
        for partition, found in enumerate(read_all(bootstrap, topic)):
            by_offset = dict(found)
            assert len({value for _, value in found}) == len(found), "a record is there twice"
            for writer in mine:
                told = {
                    offset: value for (number, offset), value in writer.told.items() if number == partition
                }
                lost = [offset for offset, value in told.items() if by_offset.get(offset) != value]
                assert not lost, (
                    f"{topic}-{partition}: {len(lost)} records are not where they were told to be"
                )
                prefix = writer.prefix.encode() + b"-"
                numbers = [int(value[len(prefix) :]) for _, value in found if value.startswith(prefix)]
                assert numbers == sorted(numbers), f"{topic}-{partition}: out of order"
                assert numbers == list(range(partition, writer.sent, PARTITIONS))


def _check_copies(bootstrap: str, copiers: list[Copier]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "copy"})
    given, taken = read_all(bootstrap, "in"), read_all(bootstrap, "out")
    for copier in copiers:
        (committed,) = consumer.committed([TopicPartition("in", copier.partition)], WAIT_S)
        copied = [value for _, value in taken[copier.partition]]
        expected = [value for offset, value in given[copier.partition] if offset < committed.offset]
        assert max(committed.offset, 0) >= copier.told_offset
        assert copied == expected
        assert copier.commits > 0
    consumer.close()
