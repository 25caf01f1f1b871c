"""Sends the plan with a real Kafka client, at least once, and counts what the broker acknowledged."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, Message, Producer

from headwater.demo.events import Emission, Event, ReplayPlan, Slice
from headwater.demo.journal import Journal
from headwater.errors import UserError

_DELIVERY_TIMEOUT_MS = 30_000
_POLL_S = 0.1


class DeliveryError(UserError):
    """The broker did not take a record, or the log is not the journal's."""


@dataclass(frozen=True)
class ReplayProgress:
    """How far the replay is: slices delivered, of how many, and the replayed clock."""

    slices: int
    of_slices: int
    clock_ms: int


def value_of(event: Event, _: int) -> bytes:
    """An event's own value, in whatever chunk it is sent."""
    return event.value


class Replay:
    """One run of the producer over the part of the plan that is not in the journal."""

    def __init__(
        self,
        plan: ReplayPlan,
        journal: Journal,
        bootstrap: str,
        *,
        rate: float = 0.0,
        producer: Callable[[dict[str, Any]], Any] = Producer,
        value: Callable[[Event, int], bytes] = value_of,
        check: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            plan: What to send.
            journal: What was sent before; grows with each slice.
            bootstrap: The brokers, host:port.
            rate: At most so many events a second; 0 sets no limit.
            producer: Makes the Kafka client of its properties.
            value: Gives the value that an event is sent with in a chunk.
            check: Called while waiting; it raises when the replay should stop (a broker died, a job failed).
            monotonic: The clock that `rate` is measured with.
        """
        self._plan = plan
        self._journal = journal
        self._rate = rate
        self._value = value
        self._check = check
        self._monotonic = monotonic
        self._acknowledged: Counter[tuple[str, int]] = Counter()
        self._failure: str | None = None
        self._producer = producer(
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
                have taken the chunk before.
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
                self._send(emission, part.chunk)
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

    def _send(self, emission: Emission, chunk: int) -> None:
        event = emission.event
        while True:
            try:
                self._producer.produce(
                    event.topic,
                    key=event.key,
                    value=self._value(event, chunk),
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


def _ignore_transient(error: KafkaError) -> None:
    """librdkafka reconnects by itself; what matters comes as a delivery report or an exception."""
