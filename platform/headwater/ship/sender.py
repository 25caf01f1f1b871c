"""The producer: idempotent, with a bounded queue, patient with a broker that is slow or away."""

import time
from collections.abc import Callable
from threading import Event
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from headwater.ship.brokers import Brokers
from headwater.ship.errors import ProducerLostError, ShipError, StoppedError
from headwater_client import CountedProducer, counted

QUEUE_BYTES = 64 << 20
QUEUE_MESSAGES = 100_000
_POLL_S = 0.1
_QUIET_S = 5.0
_REPEAT_S = 30.0
_PROGRESS_BYTES = 65_536
_LAST_S, _COUNTS_S = 1.0, 5.0
# After these a new producer starts from what is saved: the brokers forgot the old one, it no longer knows what they
# have, or they now refuse batches as large or records as old as they took before.
_STARTS_AGAIN = (
    "_FATAL",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "UNKNOWN_PRODUCER_ID",
    "INVALID_PRODUCER_EPOCH",
    "MSG_SIZE_TOO_LARGE",
    "INVALID_TIMESTAMP",
)

Delivered = Callable[[KafkaError | None, Message], None]


class Sender:
    """Sends records, and reports when the brokers do not take them.

    Attributes:
        failure: Why a record was refused for good.
    """

    def __init__(
        self,
        brokers: Brokers,
        *,
        compression: str,
        limit_bytes: int,
        stop: Event,
        say: Callable[[str], None],
        counts_as: str | None = None,
        meanwhile: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            brokers: Where to.
            compression: As Kafka names it.
            limit_bytes: The most that a batch of the topic may have.
            stop: Set when the shipper is to stop.
            say: Takes a sentence for people.
            counts_as: What the sender is called in an audit by counts; None: it publishes none.
            meanwhile: Is called many times a second while it waits for the brokers; it must not send.
            monotonic: A clock.
        """
        self._brokers = brokers
        self._stop = stop
        self._say = say
        self._meanwhile = meanwhile
        self._monotonic = monotonic
        self._heard_s = self._complained_s = monotonic()
        self._silent = False
        self._sent = self._answered = 0
        self.failure: KafkaError | None = None
        producer = Producer(
            {
                **brokers.client_properties(),
                "client.id": "headwater-ship",
                "acks": "all",
                "enable.idempotence": True,
                # As Kafka's own clients place a key, so that any of them finds a file's partition.
                "partitioner": "murmur2_random",
                "compression.type": compression,
                "linger.ms": 20,
                "message.timeout.ms": 0,
                # The topic's limit is that of its batches; those of the progress topic are not under it.
                "message.max.bytes": max(limit_bytes, _PROGRESS_BYTES),
                "batch.size": min(limit_bytes, 1_000_000),
                "queue.buffering.max.messages": QUEUE_MESSAGES,
                "queue.buffering.max.kbytes": QUEUE_BYTES >> 10,
                "reconnect.backoff.max.ms": 1000,
                "error_cb": _ignore_transient,
            }
        )
        self._producer = producer if counts_as is None else counted(producer, name=counts_as)

    def send(
        self,
        topic: str,
        key: bytes,
        value: bytes | None,
        headers: Any,
        delivered: Delivered,
        timestamp_ms: int | None = None,
    ) -> None:
        """Queues a record; waits while the queue is full.

        Args:
            topic: Where to.
            key: Its key.
            value: Its value.
            headers: Its headers.
            delivered: Takes the outcome.
            timestamp_ms: Its timestamp, in milliseconds since the epoch; None for the time of sending.

        Raises:
            StoppedError: The shipper is to stop, and the queue is still full.
            KafkaException: The record is refused at once.
        """
        while True:
            try:
                self._producer.produce(
                    topic,
                    value=value,
                    key=key,
                    headers=headers,
                    on_delivery=delivered,
                    timestamp=timestamp_ms or 0,
                )
                self._sent += 1
                return
            except BufferError:
                self.poll(_POLL_S)
                self._meanwhile()
                if self._stop.is_set():
                    raise StoppedError from None

    def poll(self, timeout_s: float) -> None:
        """Takes delivery reports.

        Raises:
            ShipError: A record was refused for good.
            ProducerLostError: A new producer is needed.
        """
        self._producer.poll(timeout_s)
        # What poll() returns counts the events of lost connections too.
        answered = self._sent - len(self._producer)
        if answered != self._answered:
            self._answered = answered
            self._heard_s = self._monotonic()
            if self._silent:
                self._silent = False
                self._say(f"{self._brokers.bootstrap} takes records again")
        elif len(self._producer):
            self._complain()
        else:
            self._heard_s = self._monotonic()
        if self.failure is not None:
            if self.failure.fatal() or self.failure.name() in _STARTS_AGAIN:
                raise ProducerLostError(self.failure.str())
            error = self._brokers.explain(self.failure, "the brokers refused a record")
            raise ShipError(f"{error}; what was not acknowledged is sent by the next run")

    def wait(self, done: Callable[[], bool], deadline_s: float | None = None) -> bool:
        """Takes delivery reports until a condition holds.

        Args:
            done: The condition.
            deadline_s: A monotonic time to give up at; None: only when the shipper is to stop.

        Returns:
            Whether it holds.
        """
        while not done():
            if self._monotonic() >= deadline_s if deadline_s is not None else self._stop.is_set():
                return False
            self.poll(_POLL_S)
            self._meanwhile()
        return True

    @property
    def queued(self) -> int:
        """Records that are not acknowledged."""
        return len(self._producer)

    def close(self) -> None:
        """Gives up what is still queued."""
        if isinstance(self._producer, CountedProducer):
            self._producer.flush(_LAST_S)  # counts are on their way, too
            self._producer.purge()
            self._producer.end(_COUNTS_S)  # says that of the records that are given up nothing is known
        else:
            self._producer.purge()
            self._producer.flush(_LAST_S)

    def _complain(self) -> None:
        now = self._monotonic()
        if now - self._heard_s >= _QUIET_S and (not self._silent or now - self._complained_s >= _REPEAT_S):
            self._silent, self._complained_s = True, now
            self._say(
                f"{self._brokers.bootstrap} has not taken a record for {now - self._heard_s:.0f} s: "
                f"{len(self._producer)} wait, nothing is lost, and it is tried again"
            )


def _ignore_transient(error: KafkaError) -> None:
    """librdkafka reconnects by itself; what matters comes as a delivery report."""
