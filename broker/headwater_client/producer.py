"""A confluent-kafka producer that counts: the shell that has the clock and the client.

Counts go out by the producer that is counted, so they need no login of their own, and with a transaction they are
committed or aborted as its records are. No thread is started: counts are published from the calls that the program
makes anyway, `produce`, `poll`, `flush` and `commit_transaction`.
"""

import atexit
import logging
import math
import os
import socket
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from headwater_client.events import BUCKET_MS, COUNTS_TOPIC, Event, Source
from headwater_client.tally import Tally

_LOG = logging.getLogger("headwater_client")
_REFUSED = frozenset(
    {
        "_PURGE_QUEUE",
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_TOPIC",
        "CLUSTER_AUTHORIZATION_FAILED",
        "INVALID_MSG_SIZE",
        "INVALID_RECORD",
        "INVALID_REQUIRED_ACKS",
        "INVALID_TIMESTAMP",
        "MSG_SIZE_TOO_LARGE",
        "POLICY_VIOLATION",
        "TOPIC_AUTHORIZATION_FAILED",
        "TOPIC_EXCEPTION",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "UNSUPPORTED_COMPRESSION_TYPE",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    }
)
"""Errors after which no broker has the record. After any other one it may be there: a request went out, and no clear
answer came back, or the client gave up while one was tried again."""
_NO_TIMESTAMP = 0  # librdkafka's TIMESTAMP_NOT_AVAILABLE
_AGAIN_S = 60.0
"""How long counts rest after they were refused or not answered, so that no flush waits for them each time."""
_PATIENCE_S = 5.0
"""How long a flush waits for counts."""
_SLICE_S = 0.5
"""How long a flush that has no end waits before it looks whether only counts are left."""
_KEPT_EVENTS = 2_000
"""So many counts are kept while they are refused; of older ones an audit says that they are not there."""
_TOO_LARGE = "MSG_SIZE_TOO_LARGE"
_NOT_TAKEN = "producer %s: topic %s did not take its counts: %s; they are published again with the next ones"
_LEFT_OUT = "producer %s: counts are larger than its message.max.bytes and are left out: topic %s"

Delivered = Callable[[Any, Any], None]


def counted(
    producer: Any,
    *,
    name: str | None = None,
    topic: str = COUNTS_TOPIC,
    bucket_s: float = BUCKET_MS / 1000,
    every_s: float = 10.0,
) -> "CountedProducer":
    """Counts what a producer sends, and publishes it.

    Args:
        producer: A `confluent_kafka.Producer`, or one with the same methods, such as a `SerializingProducer`.
        name: What the producer is called in an audit; by default the machine and the number of the process.
        topic: Where the counts are published.
        bucket_s: How wide a bucket is, in seconds. All producers of a topic should have the same one.
        every_s: The longest time between two publications while records are sent, in seconds.

    Returns:
        The producer to use in place of the given one.

    Raises:
        ValueError: `bucket_s` or `every_s` is not above 0, or the name is empty or has a slash.
    """
    return CountedProducer(producer, name=name, topic=topic, bucket_s=bucket_s, every_s=every_s)


class CountedProducer:
    """A producer that counts; all that it does not count itself it hands on to the producer that it wraps.

    Args:
        producer: The producer.
        name: See `counted`, as for the others.
        topic: Where the counts are published.
        bucket_s: How wide a bucket is.
        every_s: The longest time between two publications.
        clock: The time, in seconds since the epoch.
        monotonic: A clock that is never set back.
    """

    def __init__(
        self,
        producer: Any,
        *,
        name: str | None = None,
        topic: str = COUNTS_TOPIC,
        bucket_s: float = BUCKET_MS / 1000,
        every_s: float = 10.0,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        for label, value in (("bucket_s", bucket_s), ("every_s", every_s)):
            if not value > 0:
                raise ValueError(f"{label} is {value!r}; give seconds above 0")
        name = f"{socket.gethostname()}-{os.getpid()}" if name is None else name
        if not name or "/" in name:
            raise ValueError(f"name is {name!r}; give one without a slash, such as 'web-1'")
        self._producer = producer
        self._name = name
        self._instance = uuid.uuid4().hex
        self._topic = topic
        self._every_s = every_s
        self._clock = clock
        self._monotonic = monotonic
        self._opened_ms = self._now_ms()
        self._tally = Tally(round(bucket_s * 1000))
        self._lock = threading.RLock()  # a program may produce and poll from several threads
        self._outbox: dict[str, Event] = {}  # what the brokers have not acknowledged yet, by its key
        self._queued: set[str] = set()  # the keys of those that are on their way
        self._in_flight = 0  # records of counts that the client holds
        self._transactional = self._in_transaction = self._committing = self._closed = False
        self._next_s = monotonic()  # that it is there is said at once
        self._refused_until_s = self._next_s
        self._published_totals: Mapping[str, Any] | None = None
        atexit.register(_say_last, weakref.ref(self))

    @property
    def name(self) -> str:
        """What the producer is called in an audit."""
        return self._name

    def produce(self, topic: str, *args: Any, **kwargs: Any) -> Any:
        """As the producer's own; the record is counted once its delivery is reported.

        Topics of brokers and of Headwater itself, whose names begin with two underscores, are not counted.
        """
        if topic.startswith("__"):
            return self._producer.produce(topic, *args, **kwargs)
        timestamp_ms = args[4] if len(args) > 4 else kwargs.get("timestamp")
        sent_ms = self._note_sent(topic, timestamp_ms)
        args, kwargs = self._with_callback(args, kwargs, sent_ms)
        try:
            result = self._producer.produce(topic, *args, **kwargs)
        except BaseException:
            self._take_back(topic, sent_ms)
            raise
        self._publish_in_time()
        return result

    def produce_batch(
        self, topic: str, messages: Sequence[Mapping[str, Any]], *args: Any, **kwargs: Any
    ) -> Any:
        """As the producer's own."""
        if topic.startswith("__"):
            return self._producer.produce_batch(topic, messages, *args, **kwargs)
        # Positional arguments after the messages: partition, then callback.
        theirs = (
            kwargs.pop("on_delivery", None)
            or kwargs.pop("callback", None)
            or (args[1] if len(args) > 1 else None)
        )
        times_ms = [self._note_sent(topic, message.get("timestamp")) for message in messages]
        own = [
            {
                **message,
                "callback": self._reporting(
                    message.get("callback") or message.get("on_delivery") or theirs, sent_ms
                ),
            }
            for message, sent_ms in zip(messages, times_ms, strict=True)
        ]
        for each in own:
            each.pop("on_delivery", None)
        try:
            taken = self._producer.produce_batch(topic, own, *args[:1], **kwargs)
        except BaseException:
            for sent_ms in times_ms:
                self._take_back(topic, sent_ms)
            raise
        for message, copy, sent_ms in zip(messages, own, times_ms, strict=True):
            if "_error" in copy:
                self._take_back(topic, sent_ms)
                if isinstance(message, dict):
                    message["_error"] = copy["_error"]
        self._publish_in_time()
        return taken

    def poll(self, *args: Any, **kwargs: Any) -> Any:
        """As the producer's own."""
        result = self._producer.poll(*args, **kwargs)
        self._publish_in_time()
        return result

    def flush(self, *args: Any, **kwargs: Any) -> Any:
        """As the producer's own; then the counts of what was delivered are published, and waited for a little.

        Returns:
            How many records are left, those of counts not among them: nothing waits for these alone.
        """
        timeout_s = args[0] if args else kwargs.get("timeout", -1)
        left = self._flush_records(timeout_s)
        if not (left or self._transactional or self._monotonic() < self._refused_until_s):
            self._publish_and_wait(min(timeout_s, _PATIENCE_S) if timeout_s >= 0 else _PATIENCE_S)
        return left

    def init_transactions(self, *args: Any, **kwargs: Any) -> Any:
        """As the producer's own; from then on counts are published with each transaction."""
        self._transactional = True
        return self._producer.init_transactions(*args, **kwargs)

    def begin_transaction(self, *args: Any, **kwargs: Any) -> Any:
        """As the producer's own."""
        result = self._producer.begin_transaction(*args, **kwargs)
        self._in_transaction = True
        return result

    def commit_transaction(self, *args: Any, **kwargs: Any) -> Any:
        """As the producer's own; the counts are committed with the records, or neither are.

        Where the brokers refuse the counts, they end the transaction: it is to be aborted and tried again, as after any
        such error. Then it goes without them for a while.
        """
        if not self._committing and not self._producer.flush(*args, **kwargs):  # a second try has the counts
            if self._monotonic() >= self._refused_until_s:
                self.publish()
            self._committing = True
        result = self._producer.commit_transaction(*args, **kwargs)
        self._committing = self._in_transaction = False
        with self._lock:
            self._tally.seal()
        return result

    def abort_transaction(self, *args: Any, **kwargs: Any) -> Any:
        """As the producer's own; what the transaction sent is not counted."""
        result = self._producer.abort_transaction(*args, **kwargs)
        self._committing = self._in_transaction = False
        with self._lock:
            self._tally.give_up()
            self._outbox.clear()
            self._queued.clear()
        return result

    def close(self, *args: Any, **kwargs: Any) -> Any:
        """Says that this producer has ended, waits until that is delivered, and closes the producer."""
        self.end(*args, **kwargs)
        close = getattr(self._producer, "close", None)
        return close(*args, **kwargs) if close is not None else None

    def publish(self, *, closed: bool = False) -> bool:
        """Publishes what changed since the last time, and what was not acknowledged of it.

        Args:
            closed: Whether to say that nothing more will come.

        Returns:
            Whether there was anything to publish.
        """
        with self._lock:
            self._next_s = self._monotonic() + self._every_s
            totals = self._tally.totals()
            changed = self._tally.take(self._name, self._instance)
            if changed or closed or totals != self._published_totals:
                source = Source(
                    source=self._name,
                    instance=self._instance,
                    opened_ms=self._opened_ms,
                    at_ms=self._now_ms(),
                    every_ms=round(self._every_s * 1000),
                    closed=closed,
                    topics=totals,
                )
                # The counts first: who reads of all of them in the source's record finds them.
                for event in (*changed, source):
                    self._outbox.pop(event.key, None)
                    self._outbox[event.key] = event
                    self._queued.discard(event.key)
                self._published_totals = totals
            waiting = [event for key, event in self._outbox.items() if key not in self._queued]
            for event in waiting:
                if not self._send(event):
                    break
            return bool(waiting)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def __len__(self) -> int:
        return max(0, len(self._producer) - self._in_flight)

    def __enter__(self) -> "CountedProducer":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._flush_records(-1)
        self.end()

    def end(self, timeout: float = -1) -> None:
        """Waits for what was sent, and says that nothing more will come, as `close` and the end of a program do.

        Where some of it is not answered in that time, or a transaction is open, it does not say so. A producer that is
        used again ends once more.
        """
        from confluent_kafka import KafkaException

        if self._closed:
            return
        self._closed = True
        patience_s = min(timeout, _PATIENCE_S) if timeout >= 0 else _PATIENCE_S
        self._flush_records(timeout)
        if self._in_transaction:
            return  # it is aborted by the brokers
        try:
            if not self._transactional:
                self._publish_and_wait(patience_s, at_end=True)
            else:
                self._producer.begin_transaction()
                self.publish(closed=True)
                self._producer.commit_transaction(timeout)
        except (KafkaException, RuntimeError) as error:
            _LOG.warning(_NOT_TAKEN, self._name, self._topic, error)

    def _flush_records(self, timeout_s: float) -> int:
        """Waits for the records that are not counts; returns how many are left."""
        deadline_s = self._monotonic() + timeout_s if timeout_s >= 0 else math.inf
        while True:
            slice_s = min(_SLICE_S, max(0.0, deadline_s - self._monotonic()))
            left: int = self._producer.flush(slice_s) - self._in_flight
            if left <= 0 or self._monotonic() >= deadline_s:
                return max(left, 0)

    def _publish_and_wait(self, timeout_s: float, *, at_end: bool = False) -> None:
        """Publishes, and waits so long until all of it is delivered, also where it is more than the queue takes.

        At the end it says that the producer has ended once all of its records are answered.
        """
        deadline_s = self._monotonic() + timeout_s
        is_closed = at_end and not len(self)
        is_there = self.publish(closed=is_closed)
        while is_there or self._in_flight:
            left_s = deadline_s - self._monotonic()
            if left_s <= 0:
                _LOG.warning(_NOT_TAKEN, self._name, self._topic, f"no answer in {timeout_s:g} s")
                self._refused_until_s = self._monotonic() + _AGAIN_S
                return
            self._producer.flush(left_s)
            if self._monotonic() < self._refused_until_s:
                return
            closes = at_end and not is_closed and not len(self)
            is_there = self.publish(closed=closes)
            is_closed |= closes

    def _send(self, event: Event) -> bool:
        """Gives a record of counts to the client; tells whether others may follow."""
        from confluent_kafka import KafkaException, Producer  # not with the package: brokers import that

        def delivered(error: Any, _: Any) -> None:
            with self._lock:
                self._in_flight -= 1
                if self._outbox.get(event.key) is event:
                    self._queued.discard(event.key)
                    if error is None:
                        del self._outbox[event.key]
                if error is not None:
                    self._refused(event, error)

        record = {"value": event.to_json().encode(), "key": event.key.encode(), "on_delivery": delivered}
        # Past a subclass's serializers, which are for its own records.
        produce = partial(Producer.produce, self._producer) if isinstance(self._producer, Producer) else None
        try:
            (produce or self._producer.produce)(self._topic, **record)
        except BufferError:  # the queue is full of records, which go first
            return False
        except KafkaException as error:
            self._refused(event, error.args[0])
            return bool(error.args[0].name() == _TOO_LARGE)
        except RuntimeError:  # it is closed
            return False
        self._in_flight += 1
        self._queued.add(event.key)
        return True

    def _refused(self, event: Event, error: Any) -> None:
        """The program goes on: counts are less than what they count."""
        if error.name() == _TOO_LARGE:
            if self._outbox.get(event.key) is event:
                del self._outbox[event.key]
            _LOG.warning(_LEFT_OUT, self._name, self._topic)
            return
        if error.name().startswith("_PURGE"):  # the program gave up what it had sent
            return
        now_s = self._monotonic()
        if now_s >= self._refused_until_s:
            _LOG.warning(_NOT_TAKEN, self._name, self._topic, error.str())
        self._next_s = self._refused_until_s = now_s + _AGAIN_S
        while len(self._outbox) > _KEPT_EVENTS:
            del self._outbox[next(iter(self._outbox))]

    def _note_sent(self, topic: str, timestamp_ms: int | None) -> int:
        sent_ms = timestamp_ms or self._now_ms()
        with self._lock:
            self._tally.sent(topic, sent_ms)
            self._closed = False
        return sent_ms

    def _take_back(self, topic: str, sent_ms: int) -> None:
        with self._lock:
            self._tally.sent(topic, sent_ms, -1)

    def _with_callback(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], sent_ms: int
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # After the topic come value, key, partition, callback and timestamp.
        if len(args) > 3:
            return (*args[:3], self._reporting(args[3], sent_ms), *args[4:]), kwargs
        theirs = kwargs.pop("callback", None) or kwargs.pop("on_delivery", None)
        return args, {**kwargs, "on_delivery": self._reporting(theirs, sent_ms)}

    def _reporting(self, theirs: Delivered | None, sent_ms: int) -> Delivered:
        def report(error: Any, message: Any) -> None:
            self._report(error, message, sent_ms)
            if theirs is not None:
                theirs(error, message)

        return report

    def _report(self, error: Any, message: Any, sent_ms: int) -> None:
        kind, timestamp_ms = message.timestamp()
        if kind == _NO_TIMESTAMP:  # as of a record that failed
            timestamp_ms = sent_ms
        topic = message.topic()
        with self._lock:
            self._tally.answered(topic, sent_ms)
            if error is not None:
                self._tally.refused(topic, timestamp_ms, uncertain=error.name() not in _REFUSED)
                return
            offset = message.offset()
            self._tally.acknowledged(
                topic, timestamp_ms, partition=message.partition(), offset=-1 if offset is None else offset
            )

    def _publish_in_time(self) -> None:
        if not self._transactional and self._monotonic() >= self._next_s:
            self.publish()

    def _now_ms(self) -> int:
        return round(self._clock() * 1000)


def _say_last(of: "weakref.ref[CountedProducer]") -> None:
    """Publishes what a program that ends did not flush: with a second's patience, as it is a person who waits."""
    producer = of()
    if producer is not None:
        producer.end(1.0)
