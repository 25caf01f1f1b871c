r"""How far each file was shipped: records of a compacted topic beside the lines themselves.

A record's key is `<shipper>\t<topic>\t<file id>` and its value the JSON of an `Entry`; a null value forgets the file.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, get_type_hints

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic

from headwater.ship.brokers import Brokers
from headwater.ship.errors import ShipError
from headwater.ship.mark import Mark

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
        value = json.loads(text)
        try:
            entry = cls(**{**value, "mark": Mark(**value["mark"])})
        except (TypeError, KeyError) as error:
            raise ValueError(f"no entry of {PROGRESS_TOPIC}: {text[:80]!r}") from error
        if not (_has_its_types(entry) and _has_its_types(entry.mark)):
            raise ValueError(f"no entry of {PROGRESS_TOPIC}: {text[:80]!r}")
        return entry


def _has_its_types(made: Entry | Mark) -> bool:
    return all(isinstance(getattr(made, name), kind) for name, kind in get_type_hints(type(made)).items())


def entry_key(shipper: str, topic: str, file_id: str) -> bytes:
    """The key of a file's record."""
    return f"{shipper}\t{topic}\t{file_id}".encode()


def require_progress_topic(brokers: Brokers) -> None:
    """Makes the progress topic where it is not there.

    Raises:
        ShipError: The brokers refuse.
    """
    new = NewTopic(PROGRESS_TOPIC, num_partitions=1, replication_factor=-1, config=_CONFIG)
    admin = brokers.admin()
    try:
        admin.create_topics([new], request_timeout=brokers.timeout_s)[PROGRESS_TOPIC].result()
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise ShipError(
                f"cannot keep progress in the topic {PROGRESS_TOPIC}: {error.args[0].str().lower()}"
            ) from error


def load_progress(brokers: Brokers, shipper: str | None, topic: str | None) -> list[tuple[str, str, Entry]]:
    """Reads the progress topic to its end.

    Args:
        brokers: Where it is.
        shipper: Only this shipper's files; None for all.
        topic: Only what went to this topic; None for all.

    Returns:
        Shipper, topic and entry of each file that is not forgotten; none if there is no progress topic.

    Raises:
        UserError: No broker answers.
    """
    properties = {
        **brokers.client_properties(),
        "group.id": "headwater-ship",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        # The end is told by an answer without records, which the brokers keep back for so long.
        "fetch.wait.max.ms": 10,
        "allow.auto.create.topics": False,
    }
    found: dict[bytes, bytes | None] = {}
    try:
        if PROGRESS_TOPIC not in brokers.admin().list_topics(timeout=brokers.timeout_s).topics:
            return []
        consumer = Consumer(properties)
        try:
            consumer.assign([TopicPartition(PROGRESS_TOPIC, 0, OFFSET_BEGINNING)])
            for message in _until_end(consumer, brokers):
                found[message.key()] = message.value()
        finally:
            consumer.close()
    except KafkaException as error:
        raise brokers.explain(error.args[0], f"topic {PROGRESS_TOPIC}") from error
    entries = []
    for key, value in found.items():
        names = key.decode("utf-8", "replace").split("\t")
        if (
            value is None
            or len(names) != 3
            or shipper not in (None, names[0])
            or topic not in (None, names[1])
        ):
            continue
        try:
            entries.append((names[0], names[1], Entry.from_json(value)))
        except ValueError as error:
            raise ShipError(f"{error}: it was written by another version") from error
    return entries


def _until_end(consumer: Any, brokers: Brokers) -> Iterator[Any]:
    while (message := consumer.poll(brokers.timeout_s)) is not None:
        if message.error() is None:
            yield message
        elif message.error().name() == "_PARTITION_EOF":
            return
        else:
            raise KafkaException(message.error())
    raise ShipError(
        f"{brokers.bootstrap} did not send the records of {PROGRESS_TOPIC} within {brokers.timeout_s:.0f} s"
    )
