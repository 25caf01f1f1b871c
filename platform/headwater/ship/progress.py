r"""How far each file was shipped: records of a compacted topic beside the lines themselves.

A record's key is `<shipper>\t<topic>\t<file id>` and its value the JSON of an `Entry`; a null value forgets the file.

Whoever may write to the topic can put anything there. A record that is no entry is named and passed over, and the one
before it under its key counts, if the log still has that.
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, get_type_hints

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic

from headwater.ship.brokers import Brokers
from headwater.ship.errors import ShipError
from headwater.ship.mark import HEAD_BYTES, TAIL_BYTES, Mark
from headwater_broker.shown import shown

PROGRESS_TOPIC = "__headwater_ship"
_CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.5",
    "max.message.bytes": "1048588",
}


@dataclass(frozen=True)
class Entry:
    """One file's progress.

    Attributes:
        file_id: Its id in the origin headers.
        path: Where it was first seen.
        place: Where it was last seen.
        pattern: The pattern that named it.
        device: The device it was on.
        inode: Its inode.
        mark: What had been read of it, up to the last acknowledged line.
        ordinal: The number of the next line.
        cut: A byte at which a line is divided, as its beginning may have been sent without an end.
        size: How large it was.
        done: It left the patterns and was read to its end.
        saved_ms: When this was written, in milliseconds since the epoch.
        missed_ms: When it was first not found, in milliseconds since the epoch.
    """

    file_id: str
    path: str
    place: str
    pattern: str
    device: int
    inode: int
    mark: Mark
    ordinal: int
    cut: int | None
    size: int
    done: bool
    saved_ms: int
    missed_ms: int | None = None

    def to_json(self) -> bytes:
        """The value of its record. A path that is not UTF-8 keeps its bytes as surrogates."""
        return json.dumps(asdict(self), separators=(",", ":")).encode("ascii")

    @classmethod
    def from_json(cls, text: bytes) -> "Entry":
        """The entry that a record holds.

        Raises:
            ValueError: It is not one.
        """
        try:
            value = json.loads(text)
            entry = cls(**{**value, "mark": Mark(**value["mark"])})
        except (ValueError, TypeError, KeyError, RecursionError):
            entry = None
        if entry is None or not _can_be(entry):
            raise ValueError(f"no entry of {PROGRESS_TOPIC}: {text[:80]!r}")
        return entry


_GREATEST_POSITION = 2**63 - 1
_GREATEST_INODE = 2**64 - 1
_GREATEST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, beyond which Python has no dates."""


def _can_be(entry: Entry) -> bool:
    """Whether a shipper may have saved this: each value of its type and where a file, or a time, can be."""
    mark = entry.mark
    if not (_has_its_types(entry) and _has_its_types(mark)):
        return False
    numbers = [each for each in _values(entry) + _values(mark) if isinstance(each, int)]
    times_ms = [entry.saved_ms, entry.missed_ms or 0]
    return (
        all(0 <= each <= _GREATEST_INODE for each in numbers)
        and max(mark.position, entry.ordinal, entry.cut or 0, entry.size) <= _GREATEST_POSITION
        and all(each <= _GREATEST_MS for each in times_ms)
        # This may be more than `position`: a file is saved before its first line is sent.
        and mark.head_bytes <= HEAD_BYTES
        and mark.tail_bytes <= min(TAIL_BYTES, mark.position)
        and all(map(_is_file_name, (entry.path, entry.place)))
    )


def _values(record: Entry | Mark) -> list[Any]:
    return [getattr(record, field.name) for field in fields(record)]


def _has_its_types(record: Entry | Mark) -> bool:
    return all(isinstance(getattr(record, name), kind) for name, kind in get_type_hints(type(record)).items())


def _is_file_name(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def entry_key(shipper: str, topic: str, file_id: str) -> bytes:
    """The key of a file's record."""
    return f"{shipper}\t{topic}\t{file_id}".encode()


def require_progress_topic(brokers: Brokers) -> None:
    """Creates the progress topic if there is none. Who may not create one ships if it is there.

    Raises:
        ShipError: The brokers refuse.
    """
    new = NewTopic(PROGRESS_TOPIC, num_partitions=1, replication_factor=-1, config=_CONFIG)
    admin = brokers.admin()
    try:
        admin.create_topics([new], request_timeout=brokers.timeout_s)[PROGRESS_TOPIC].result()
    except KafkaException as error:
        name, reason = error.args[0].name(), error.args[0].str().rstrip(".").lower()
        if name == "TOPIC_ALREADY_EXISTS":
            return
        advice = ""
        if name in _MAY_NOT:
            if _is_seen(brokers, admin):
                return
            advice = "; have it made, with cleanup.policy=compact, and allow reading and writing it"
        raise ShipError(f"cannot keep progress in the topic {PROGRESS_TOPIC}: {reason}{advice}") from error


_MAY_NOT = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED")


def _is_seen(brokers: Brokers, admin: Any) -> bool:
    try:  # asking for one topic by name would have the broker create it
        return PROGRESS_TOPIC in admin.list_topics(timeout=brokers.timeout_s).topics
    except KafkaException as error:
        raise brokers.explain(error.args[0], f"topic {PROGRESS_TOPIC}") from error


@dataclass(frozen=True)
class Progress:
    """What the progress topic says.

    Attributes:
        entries: Shipper, topic and entry of each file that is not forgotten.
        passed_over: A sentence for each record that is none.
    """

    entries: tuple[tuple[str, str, Entry], ...] = ()
    passed_over: tuple[str, ...] = ()


def progress_of(
    records: Iterable[tuple[int, bytes | None, bytes | None]], shipper: str | None, topic: str | None
) -> Progress:
    """Reads records of the progress topic.

    Args:
        records: Offset, key and value of each.
        shipper: Only this shipper's files; None for all.
        topic: Only what went to this topic; None for all.
    """
    entries: dict[bytes, tuple[str, str, Entry]] = {}
    passed_over: dict[bytes, tuple[int, str]] = {}
    for offset, key, value in records:
        names = (key or b"").decode("utf-8", "replace").split("\t")
        if key is None or len(names) != 3:
            if value is not None:
                passed_over[key or b""] = offset, "its key is not that of a file"
            continue
        if shipper not in (None, names[0]) or topic not in (None, names[1]):
            continue
        passed_over.pop(key, None)
        if value is None:
            entries.pop(key, None)
            continue
        try:
            entry = Entry.from_json(value)
        except ValueError:
            entry = None
        if entry is not None and entry.file_id == names[2]:
            entries[key] = names[0], names[1], entry
        elif key in entries:
            passed_over[key] = offset, "the record before it counts"
        else:
            passed_over[key] = offset, "its file counts as a new one"
    return Progress(
        tuple(entries.values()),
        tuple(
            f"topic {PROGRESS_TOPIC}, partition 0, offset {offset}, key {shown(key)}: the record is no progress of a "
            f"file and is passed over; {consequence}"
            for key, (offset, consequence) in passed_over.items()
        ),
    )


def load_progress(brokers: Brokers, shipper: str | None, topic: str | None) -> Progress:
    """Reads the progress topic to its end.

    Args:
        brokers: Where it is.
        shipper: Only this shipper's files; None for all.
        topic: Only what went to this topic; None for all.

    Returns:
        What it says; nothing if there is no progress topic.

    Raises:
        UserError: No broker answers.
    """
    properties = {
        **brokers.client_properties(),
        "group.id": "headwater-ship",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        # An answer without records marks the end; the brokers hold it back for this long.
        "fetch.wait.max.ms": 10,
        "allow.auto.create.topics": False,
    }
    try:
        if PROGRESS_TOPIC not in brokers.admin().list_topics(timeout=brokers.timeout_s).topics:
            return Progress()
        consumer = Consumer(properties)
        try:
            consumer.assign([TopicPartition(PROGRESS_TOPIC, 0, OFFSET_BEGINNING)])
            records = ((each.offset(), each.key(), each.value()) for each in _until_end(consumer, brokers))
            return progress_of(records, shipper, topic)
        finally:
            consumer.close()
    except KafkaException as error:
        raise brokers.explain(error.args[0], f"topic {PROGRESS_TOPIC}") from error


def _until_end(consumer: Any, brokers: Brokers) -> Iterator[Any]:
    while (message := consumer.poll(brokers.timeout_s)) is not None:
        if message.error() is None:
            yield message
        elif message.error().name() == "_PARTITION_EOF":
            return
        elif (
            message.error().name() != "GROUP_AUTHORIZATION_FAILED"
        ):  # of the coordinator of a group that is not used
            raise KafkaException(message.error())
    raise ShipError(
        f"{brokers.bootstrap} did not send the records of {PROGRESS_TOPIC} within {brokers.timeout_s:.0f} s"
    )
