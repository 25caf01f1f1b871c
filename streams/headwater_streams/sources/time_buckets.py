"""Which bucket of time each record of a range of offsets is of, as a client of its own reads them from the brokers."""

import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from headwater_client.events import bucket_of
from headwater_streams.base.bucket_run import BucketRun
from headwater_streams.base.errors import RefusedError, UnavailableError
from headwater_streams.sources.client_faults import Complaint
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.topic_metadata import forbidden, new_client

_SILENCE_S = 15.0
_WAIT_S = 0.1
_AT_ONCE = 10_000

Bounds = Mapping[int, tuple[int, int]]
"""Half-open offset ranges by partition."""


def read_runs(
    cluster: KafkaCluster,
    topic: str,
    bounds: Bounds,
    bucket_ms: int,
    reading: Mapping[str, str] | None = None,
    lost: dict[int, list[tuple[int, int]]] | None = None,
) -> tuple[dict[int, list[BucketRun]], dict[int, int]]:
    """The runs of a topic's records, by partition, and up to which offset each partition was read.

    The records are those that a reader of committed ones sees: a partition is read up to the first transaction that is
    open.

    Args:
        cluster: The cluster.
        topic: The topic.
        bounds: Which offsets.
        bucket_ms: How wide a bucket is.
        reading: Further settings of the consumer.
        lost: As for `records_of`.

    Raises:
        RefusedError: The brokers and this client do not come together, or it may not read the topic.
        UnavailableError: The brokers do not answer.
    """
    runs: dict[int, list[BucketRun]] = {partition: [] for partition in bounds}
    ends = {partition: end for partition, (_, end) in bounds.items()}
    last: dict[int, tuple[int, int, int]] = {}  # what is no run yet: start, end and bucket
    for message in records_of(cluster, topic, bounds, reading, ends, lost):
        partition, offset, time_ms = message.partition(), message.offset(), message.timestamp()[1]
        start, end, bucket = last.get(partition, (offset, offset, bucket_of(time_ms, bucket_ms)))
        if end != offset or not bucket <= time_ms < bucket + bucket_ms:
            other = bucket_of(time_ms, bucket_ms)
            if end != offset or other != bucket:
                runs[partition].append(BucketRun(start, end, bucket))
                start, bucket = offset, other
        last[partition] = start, offset + 1, bucket
    for partition, (start, end, bucket) in last.items():
        runs[partition].append(BucketRun(start, end, bucket))
    return runs, ends


def read_repeats(
    cluster: KafkaCluster,
    topic: str,
    offsets: Mapping[int, Sequence[tuple[int, int]]],
    bounds: Bounds,
    reading: Mapping[str, str] | None = None,
) -> dict[int, list[tuple[int, int]]]:
    """The offsets among some whose records equal another one of the ranges in all that its producer gave it.

    It reads twice, and keeps a digest of each record at one of these offsets alone.

    Args:
        cluster: The cluster.
        topic: The topic.
        offsets: Which records, by partition, in order; they are within the ranges.
        bounds: Where their copies are looked for.
        reading: Further settings of the consumer.

    Raises:
        RefusedError: As for `read_runs`.
        UnavailableError: As for `read_runs`.
    """
    asked = {partition: [end for _, end in pairs] for partition, pairs in offsets.items()}

    def is_asked(message: Message) -> bool:
        partition, offset = message.partition(), message.offset()
        at = bisect_right(asked.get(partition, ()), offset)
        return at < len(asked.get(partition, ())) and offsets[partition][at][0] <= offset

    within = {
        partition: (max(bounds[partition][0], pairs[0][0]), min(bounds[partition][1], pairs[-1][1]))
        for partition, pairs in offsets.items()
        if pairs
    }
    places: dict[bytes, list[tuple[int, int]]] = {}
    for message in records_of(cluster, topic, within, reading):
        if is_asked(message):
            places.setdefault(_digest(message), []).append((message.partition(), message.offset()))
    alike = {digest for digest, of_it in places.items() if len(of_it) > 1}
    for message in records_of(cluster, topic, bounds, reading):
        if not is_asked(message) and (digest := _digest(message)) in places:
            alike.add(digest)
    repeats: dict[int, list[tuple[int, int]]] = {}
    for partition, offset in sorted(place for digest in alike for place in places[digest]):
        repeats.setdefault(partition, []).append((offset, offset + 1))
    return repeats


def _digest(message: Message) -> bytes:
    kind, time_ms = message.timestamp()
    headers = [part for name, value in message.headers() or () for part in (name.encode(), value)]
    # Of copies that the broker stamped each has a time of its own.
    time = None if kind == TIMESTAMP_LOG_APPEND_TIME else str(time_ms).encode()
    digest = blake2b(digest_size=16)
    for part in (message.key(), message.value(), time, *headers):
        digest.update(b"-" if part is None else b"%d:" % len(part) + part)
    return digest.digest()


def records_of(
    cluster: KafkaCluster,
    topic: str,
    bounds: Bounds,
    reading: Mapping[str, str] | None = None,
    ends: dict[int, int] | None = None,
    lost: dict[int, list[tuple[int, int]]] | None = None,
) -> Iterator[Message]:
    """The records of some ranges of a topic, those of a partition in order; offsets that a broker lost are passed over.

    Args:
        cluster: The cluster.
        topic: The topic.
        bounds: Which offsets.
        reading: Further settings of the consumer.
        ends: Gets where a partition ended that ended before its range.
        lost: Gets the offsets that the brokers say they have lost.

    Raises:
        RefusedError: As for `read_runs`.
        UnavailableError: As for `read_runs`.
    """
    left = {partition: end for partition, (start, end) in bounds.items() if start < end}
    if not left:
        return
    with _consumer(cluster, reading or {}) as (consumer, complaints):
        bare = cluster.bare(topic)
        consumer.assign([TopicPartition(bare, partition, bounds[partition][0]) for partition in sorted(left)])
        heard_s = time.monotonic()
        while left:
            # It waits until it has so many, or its time is up: not for long, as most topics end before.
            messages = consumer.consume(_AT_ONCE, _WAIT_S)
            if messages:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > _SILENCE_S:
                fault = cluster.fault(complaints)
                if fault is not None:
                    raise fault
                raise UnavailableError(f"the broker at {cluster.bootstrap} does not answer; is it up?")
            for message in messages:
                partition = message.partition()
                if message.error() is not None:
                    if message.error().code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - its public name
                        if partition in left:
                            start, behind = _gap(consumer, cluster, topic, message)
                            end = min(behind, left[partition])
                            if lost is not None:
                                lost.setdefault(partition, []).append((start, end))
                            if end == left[partition]:
                                del left[partition]
                            else:
                                _go_on(consumer, TopicPartition(bare, partition, behind))
                    elif _is_end(cluster, topic, message) and partition in left:
                        end = left.pop(partition)
                        if ends is not None:
                            ends[partition] = min(end, max(message.offset(), bounds[partition][0]))
                elif partition in left:
                    if message.offset() < left[partition]:
                        yield message
                    if message.offset() + 1 >= left[partition]:
                        del left[partition]


def _go_on(consumer: Consumer, at: TopicPartition) -> None:
    consumer.incremental_unassign([at])
    consumer.incremental_assign([at])


def _gap(consumer: Consumer, cluster: KafkaCluster, topic: str, message: Message) -> tuple[int, int]:
    """The offsets that a partition has lost, of an error that says that one of them is out of range.

    Raises:
        UnavailableError: It has lost none; they were removed meanwhile.
    """
    at, offset = TopicPartition(cluster.bare(topic), message.partition()), message.offset()
    # A broker of ours that has lost an offset says for once that its log begins behind the gap.
    behind, begin = (consumer.get_watermark_offsets(at, timeout=_SILENCE_S)[0] for _ in range(2))
    if begin <= offset < behind:
        return offset, behind
    raise UnavailableError(
        f"{topic} {message.partition()}: offset {offset} was removed while it was read; run this again"
    )


def _is_end(cluster: KafkaCluster, topic: str, message: Message) -> bool:
    """Whether an error says that a partition has ended; others that matter are raised."""
    error = message.error()
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return False  # see `record_count`: the records come all the same
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise RefusedError(forbidden(cluster, topic), topic)
    if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
        raise UnavailableError(
            f"the broker at {cluster.bootstrap} does not give the records of {topic} ({error.str()})"
        )
    return True


@contextmanager
def _consumer(cluster: KafkaCluster, reading: Mapping[str, str]) -> Iterator[tuple[Any, list[Complaint]]]:
    complaints: list[Complaint] = []
    settings = {
        "group.id": "headwater-metadata",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        **cluster.rdkafka(complaints),
        **reading,
    }
    consumer = new_client(Consumer, settings, cluster)
    try:
        yield consumer, complaints
    except KafkaException as error:
        raise UnavailableError(
            f"the broker at {cluster.bootstrap} does not give records ({error.args[0].str()})"
        ) from error
    finally:
        consumer.close()
