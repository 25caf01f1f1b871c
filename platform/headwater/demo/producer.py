"""Sends the plan with a real Kafka client, at least once, and counts what the broker acknowledged.

After a kill the journal says which slice to go on with. Records of that slice may be in the log already,
without a report: `reconcile` reads the log's end, recognises them by their origin, and notes them. The
slice is then sent again as a whole; whoever deduplicates by origin sees each event once.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from headwater.demo.events import TOPICS, Emission, ReplayPlan, Slice
from headwater.demo.journal import Journal
from headwater.errors import UserError

_DELIVERY_TIMEOUT_MS = 30_000
_POLL_S = 0.1
_READ_TIMEOUT_S = 30.0


class DeliveryError(UserError):
    """The broker did not take a record, or the log is not the one that the journal speaks of."""


@dataclass(frozen=True)
class ReplayProgress:
    """How far the replay is: slices delivered, of how many, and the replayed clock."""

    slices: int
    of_slices: int
    clock_ms: int


class Replay:
    """One run of the producer over what the journal leaves of the plan."""

    def __init__(
        self,
        plan: ReplayPlan,
        journal: Journal,
        bootstrap: str,
        *,
        rate: float = 0.0,
        check: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            plan: What to send.
            journal: What was sent before; grows with each slice.
            bootstrap: The brokers, host:port.
            rate: At most so many events a second; 0 sets no limit.
            check: Called while waiting; it raises when the replay should stop (a broker died, a job failed).
            monotonic: The clock that `rate` is measured with.
        """
        self._plan = plan
        self._journal = journal
        self._rate = rate
        self._check = check
        self._monotonic = monotonic
        self._acknowledged: Counter[tuple[str, int]] = Counter()
        self._failure: str | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": "headwater-demo",
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "linger.ms": 1,
                "delivery.timeout.ms": _DELIVERY_TIMEOUT_MS,
                "error_cb": _ignore_transient,
                "log_level": 2,
            }
        )

    def run(self, at_chunk: Callable[[int], None], progress: Callable[[ReplayProgress], None]) -> None:
        """Send every slice that is not delivered yet.

        Args:
            at_chunk: Called with a chunk's number before its first slice of this run; returns when the jobs
            have
                taken the chunk before.
            progress: Called after each slice.

        Raises:
            DeliveryError: The broker refused a record or did not answer in time.
        """
        started_s = self._monotonic()
        sent = 0
        chunk = None
        first = self._journal.next_slice
        for index, part in enumerate(self._plan.slices[first:], first):
            if part.chunk != chunk:
                chunk = part.chunk
                at_chunk(chunk)
                started_s, sent = self._monotonic(), 0
            self._acknowledged.clear()
            for emission in self._plan.emissions[part.start : part.end]:
                self._pace(started_s, sent)
                self._send(emission)
                sent += 1
            self._deliver(part)
            self._journal.record_slice(index, self._acknowledged)
            clock_ms = self._plan.emissions[part.end - 1].clock_ms
            progress(ReplayProgress(index + 1, len(self._plan.slices), clock_ms))

    def _pace(self, started_s: float, sent: int) -> None:
        if not self._rate:
            return
        due_s = started_s + sent / self._rate
        while (wait_s := due_s - self._monotonic()) > 0:
            self._check()
            self._producer.poll(min(wait_s, _POLL_S))

    def _send(self, emission: Emission) -> None:
        event = emission.event
        while True:
            try:
                self._producer.produce(
                    event.topic,
                    key=event.key,
                    value=event.value,
                    headers=list(event.headers),
                    timestamp=emission.clock_ms,
                    on_delivery=self._reported,
                )
                return
            except BufferError:
                self._check()
                self._producer.poll(_POLL_S)

    def _deliver(self, part: Slice) -> None:
        while self._producer.flush(_POLL_S) and self._failure is None:
            self._check()
        if self._failure is not None:
            raise DeliveryError(
                f"{self._failure}; run the same command again: it goes on from what was delivered"
            )
        assert sum(self._acknowledged.values()) == part.end - part.start

    def _reported(self, error: KafkaError | None, message: Message) -> None:
        topic, partition = message.topic(), message.partition()
        if error is not None:
            self._failure = f"the broker did not take a record of {topic}: {error.str()}"
            return
        expected = self._journal.next_offset(topic, partition) + self._acknowledged[topic, partition]
        # A retried batch that the broker had already is acknowledged without an offset.
        if message.offset() not in (expected, OFFSET_INVALID):
            self._failure = (
                f"{topic}-{partition} gave a record offset {message.offset()}, but the demo's own records "
                f"end at {expected}: somebody else writes to this topic"
            )
        self._acknowledged[topic, partition] += 1


def reconcile(plan: ReplayPlan, journal: Journal, bootstrap: str) -> int:
    """Find the records that reached the log without a delivery report in the journal, and note them there.

    Args:
        plan: What the demo sends; every record found must be of it.
        journal: The reports that were kept.
        bootstrap: The brokers, host:port.

    Returns:
        How many records were found.

    Raises:
        DeliveryError: The log is shorter than the journal says, or holds a record that the demo did not send.
    """
    known = {emission.event.headers: emission.event for emission in plan.emissions}
    found: Counter[tuple[str, int]] = Counter()
    consumer = _consumer(bootstrap)
    try:
        for topic, partition, start, end in _tails(consumer, journal):
            if end < start:
                raise DeliveryError(
                    f"{topic}-{partition} ends at offset {end}, but {start} records were acknowledged"
                )
            for message in _read(consumer, topic, partition, start, end):
                event = known.get(tuple(message.headers() or ()))
                if event is None or (event.topic, event.value) != (topic, message.value()):
                    raise DeliveryError(
                        f"{topic}-{partition} offset {message.offset()} holds a record that is not the demo's"
                    )
                found[topic, partition] += 1
    except KafkaException as error:
        raise DeliveryError(f"cannot read the demo's topics at {bootstrap}: {error.args[0].str()}") from None
    finally:
        consumer.close()
    if found:
        journal.record_found(found)
    return found.total()


def end_offsets(bootstrap: str, topic: str) -> dict[int, tuple[int, int]]:
    """Each partition's log start and log end offset, as the broker tells them."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "headwater-demo-offsets", "log_level": 2}
    )
    try:
        return {p: _watermarks(consumer, topic, p) for p in _partitions(consumer, topic)}
    finally:
        consumer.close()


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "headwater-demo",  # librdkafka wants one; nothing is committed under it
            "enable.auto.commit": False,
            "error_cb": _ignore_transient,
            "log_level": 2,
        }
    )


def _tails(consumer: Consumer, journal: Journal) -> list[tuple[str, int, int, int]]:
    return [
        (topic, partition, journal.next_offset(topic, partition), _watermarks(consumer, topic, partition)[1])
        for topic in TOPICS
        for partition in _partitions(consumer, topic)
    ]


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    metadata = consumer.list_topics(topic, timeout=_READ_TIMEOUT_S)
    return sorted(metadata.topics[topic].partitions)


def _watermarks(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_READ_TIMEOUT_S)
    return low, high


def _read(consumer: Consumer, topic: str, partition: int, start: int, end: int) -> list[Message]:
    if start == end:
        return []
    consumer.assign([TopicPartition(topic, partition, start)])
    messages: list[Message] = []
    deadline_s = time.monotonic() + _READ_TIMEOUT_S
    while len(messages) < end - start:
        if time.monotonic() > deadline_s:
            raise DeliveryError(
                f"{topic}-{partition} did not give offsets {start} to {end} in {_READ_TIMEOUT_S:.0f} s"
            )
        for message in consumer.consume(end - start - len(messages), _POLL_S):
            if message.error() is None:
                messages.append(message)
            elif message.error().code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                raise KafkaException(message.error())
    return messages


def _ignore_transient(error: KafkaError) -> None:
    """librdkafka reconnects by itself; what matters comes as a delivery report or an exception."""
