"""The registry's topic: read by a thread of its own, appended to in transactions.

Any number of registries may serve one topic. Each decides what to append by what it has read, so two that decide at
once could give one id twice. They share a transactional id: one that begins to write takes it over, which fences the
one before, aborts what that has not committed, and has that read to the end and decide again. (Confluent's elect one
that writes, and forward requests to it; theirs and ours must not both take writes for one topic.)
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from headwater.errors import UserError
from headwater.registry import errors as codes
from headwater.registry.errors import RegistryError
from headwater.registry.records import (
    Key,
    Record,
    UnreadableRecordError,
    decode,
    encode_key,
    encode_value,
)

TOPIC = "_schemas"
_POLL_S = 0.5
_TRANSACTION_TIMEOUT_MS = 10_000
_LONGEST_RECORD_BYTES = 64 * 1024 * 1024  # the topic's max.message.bytes decides, by the compressed size
_REPLICAS = 3
# The end behind the mark of a transaction shows only in an empty fetch, which the brokers hold back for so long.
_FETCH_WAIT_MS = 100
_log = logging.getLogger(__name__)


class FencedError(Exception):
    """Another registry has begun to write since, or the transaction was lost: read to the end and decide again."""


class TopicStore:
    """The records of a registry's topic.

    Args:
        properties: The properties of every client of the cluster.
        topic: The topic.
        timeout_s: How long the brokers may take for one request.
        apply: Called with each record, in order, while `changed` is held.
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        topic: str = TOPIC,
        timeout_s: float = 15.0,
        apply: Callable[[Record], None],
    ) -> None:
        self.topic = topic
        self.changed = threading.Condition(threading.RLock())
        # Without a function for them, librdkafka's errors would be raised out of whatever is called next.
        self._properties = {"error_cb": lambda _error: None, **properties}
        self.timeout_s = timeout_s
        self._apply = apply
        self._next = 0
        self._appended = -1  # the last of the records that this registry has appended itself
        self._otherwise: dict[Key, set[bytes]] = {}
        """Keys with values that another registry wrote in other bytes, as with `magic` 0 or in another order."""
        self._stopping = threading.Event()
        self._producer: Any = None
        self._consumer: Any = None
        self._asker: Any = None
        self._thread = threading.Thread(target=self._follow, name="registry-topic", daemon=True)

    def start(self) -> None:
        """Makes the topic if there is none, and reads all of it.

        Raises:
            UserError: No broker answers, or the topic is not one of a registry.
        """
        try:
            self._require_topic()
            common = {
                **self._properties,
                "group.id": "headwater-registry",
                "enable.auto.commit": False,
                "allow.auto.create.topics": False,
            }
            self._consumer = Consumer(
                {
                    **common,
                    "isolation.level": "read_committed",
                    "enable.partition.eof": True,
                    "auto.offset.reset": "earliest",
                    "fetch.wait.max.ms": _FETCH_WAIT_MS,
                }
            )
            # A client that is polled by another thread may leave its own questions unanswered for seconds.
            self._asker = Consumer(common)
            self._consumer.assign([TopicPartition(self.topic, 0, 0)])
            self._thread.start()
            self.catch_up()
        except KafkaException as error:
            raise UserError(
                f"the registry cannot use topic {self.topic}: {error.args[0].str()}: see that the brokers run, and "
                "that it may read, write and make that topic"
            ) from error
        except RegistryError as error:
            raise UserError(error.message) from error

    def stop(self) -> None:
        """Ends reading."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        for client in (self._consumer, self._asker):
            if client is not None:
                client.close()
        self._producer = None

    def catch_up(self) -> None:
        """Waits until all that stands in the topic now has been applied.

        Raises:
            RegistryError: The brokers do not answer in time.
        """
        place = TopicPartition(self.topic, 0)
        try:
            _, end = self._asker.get_watermark_offsets(place, timeout=self.timeout_s)
        except KafkaException as error:
            raise _unavailable(self.topic, error.args[0].str()) from error
        with self.changed:
            if (
                end == self._appended + 2
            ):  # the last is the mark of this registry's own transaction, and no record
                end -= 1
            if not self.changed.wait_for(lambda: self._next >= end, self.timeout_s):
                raise _unavailable(self.topic, f"offset {end} was not read within {self.timeout_s:.0f} s")

    def become_writer(self) -> None:
        """Makes sure that no other registry's decision stands between what is read from now on and `append`.

        Raises:
            RegistryError: The brokers do not answer in time.
        """
        if self._producer is not None:
            return
        producer = Producer(
            {
                **self._properties,
                "transactional.id": f"headwater-registry-{self.topic}",
                "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                "compression.type": "lz4",
                "message.max.bytes": _LONGEST_RECORD_BYTES,
                "linger.ms": 0,
            }
        )
        try:
            producer.init_transactions(self.timeout_s)
        except KafkaException as error:
            raise _unavailable(self.topic, error.args[0].str()) from error
        self._producer = producer

    def append(self, records: Sequence[Record]) -> None:
        """Appends records, all or none.

        Raises:
            FencedError: Another registry has begun to write.
            RegistryError: A record is too large, or the brokers do not answer in time.
        """
        failed: list[KafkaError] = []

        offsets: list[int] = []

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                failed.append(error)
            else:
                offsets.append(message.offset())

        producer = self._producer
        try:
            producer.begin_transaction()
            for key, value in self._written(records):
                producer.produce(self.topic, key=key, value=value, partition=0, on_delivery=delivered)
            producer.flush(self.timeout_s)
            if failed and failed[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                producer.abort_transaction(self.timeout_s)
                raise RegistryError(
                    codes.TOO_LARGE,
                    f"The schema is too large for topic {self.topic}, even compressed: raise its max.message.bytes",
                )
            _commit(producer, self.timeout_s)
            self._appended = max(offsets, default=-1)
        except KafkaException as error:
            self._producer = None  # what it was in the middle of is aborted by the one that follows
            cause = failed[0] if failed else error.args[0]
            if _is_fenced(cause) or _is_fenced(error.args[0]):
                raise FencedError from error
            raise _unavailable(self.topic, cause.str()) from error

    def _written(self, records: Sequence[Record]) -> Iterator[tuple[bytes, bytes | None]]:
        """Keys and values as they stand in the topic.

        Compaction compares a key's bytes: a value that an older registry wrote in others would stay, and come back when
        the record that deletes it has gone.
        """
        for each in records:
            yield from ((other, None) for other in sorted(self._otherwise.get(each.key, ())))
            yield encode_key(each.key), encode_value(each.key, each.value)

    def _follow(self) -> None:
        """Applies what comes, until it is told to stop."""
        while not self._stopping.is_set():
            message = self._consumer.poll(_POLL_S)
            if message is None:
                continue
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                _log.warning(f"topic {self.topic}: {error.str()}")
                self._stopping.wait(_POLL_S)
                continue
            with self.changed:
                if error is None:
                    self._take(message)
                    self._next = message.offset() + 1
                else:  # behind it may stand the marks of transactions, which are no messages
                    self._next = max(self._next, message.offset())
                self.changed.notify_all()

    def _take(self, message: Any) -> None:
        try:
            record = decode(message.key(), message.value())
        except UnreadableRecordError as error:
            _log.warning(f"{self.topic}, offset {message.offset()}, is no record of a registry: {error}")
            return
        if record is None:
            return
        if message.key() != encode_key(record.key):
            others = self._otherwise.setdefault(record.key, set())
            (others.discard if message.value() is None else others.add)(message.key())
        self._apply(record)

    def _require_topic(self) -> None:
        admin = AdminClient(self._properties)
        metadata = admin.list_topics(timeout=self.timeout_s)
        existing = metadata.topics.get(self.topic)
        if existing is None:
            topic = NewTopic(
                self.topic, 1, min(_REPLICAS, len(metadata.brokers)), config={"cleanup.policy": "compact"}
            )
            try:
                admin.create_topics([topic], operation_timeout=self.timeout_s)[self.topic].result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another registry was faster
                    raise
            self._await_leader(admin)
            return
        if len(existing.partitions) != 1:
            raise UserError(
                f"topic {self.topic} has {len(existing.partitions)} partitions, and a registry's has one: name another "
                "with --topic"
            )
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.topic)
        try:
            described = admin.describe_configs([resource], request_timeout=self.timeout_s)[resource].result()
        except KafkaException:  # one may use a topic without being allowed to describe it
            return
        policy = described["cleanup.policy"].value
        if policy != "compact":
            raise UserError(
                f"topic {self.topic} has cleanup.policy={policy}, by which schemas would be lost: headwater topics "
                f"alter {self.topic} --config cleanup.policy=compact"
            )

    def _await_leader(self, admin: Any) -> None:
        deadline = time.monotonic() + self.timeout_s
        while time.monotonic() < deadline:
            topic = admin.list_topics(timeout=self.timeout_s).topics.get(self.topic)
            if topic is not None and topic.partitions and topic.partitions[0].leader >= 0:
                return
            self._stopping.wait(0.05)


def _commit(producer: Any, timeout_s: float) -> None:
    try:
        producer.commit_transaction(timeout_s)
    except KafkaException as error:
        if not error.args[0].retriable():
            raise
        producer.commit_transaction(timeout_s)


def _is_fenced(error: KafkaError) -> bool:
    lost = (
        KafkaError._FENCED,  # noqa: SLF001 - its public name
        KafkaError._STATE,  # noqa: SLF001 - its public name
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.INVALID_TXN_STATE,
    )
    return error.code() in lost or error.fatal()


def _unavailable(topic: str, why: str) -> RegistryError:
    return RegistryError(codes.STORE_FAILED, f"the registry cannot reach its topic {topic}: {why}")
