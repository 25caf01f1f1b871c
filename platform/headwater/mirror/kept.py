"""What a mirror keeps, in the topic `__headwater_mirror` of the target: `headwater_streams.sources.mirrored` has it."""

from collections.abc import Iterable
from threading import Lock
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewTopic

from headwater.mirror.end import End
from headwater.mirror.errors import AwayError, MirrorError
from headwater_streams.base.errors import RefusedError, UnavailableError
from headwater_streams.sources.mirror_reader import MirrorReader
from headwater_streams.sources.mirrored import MIRROR_TOPIC, AnyRecord, MirrorMap, to_json
from headwater_streams.sources.topic_metadata import UNANSWERED

_CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.5",
    "max.message.bytes": "1048588",
}
_TIMEOUT_S = 15.0


def require_topic(target: End) -> None:
    """Creates the topic if there is none.

    Raises:
        AwayError: The brokers do not answer.
        MirrorError: They refuse.
    """
    new = NewTopic(MIRROR_TOPIC, num_partitions=1, replication_factor=-1, config=_CONFIG)
    try:
        target.admin().create_topics([new], request_timeout=_TIMEOUT_S)[MIRROR_TOPIC].result()
    except KafkaException as error:
        name = error.args[0].name()
        if name == "TOPIC_ALREADY_EXISTS":
            return
        if name in UNANSWERED:
            raise AwayError(f"no broker answers at {target.cluster.bootstrap}") from error
        raise MirrorError(
            f"cannot keep the mirror's place in the topic {MIRROR_TOPIC} of {target.cluster.bootstrap}: "
            f"{error.args[0].str().rstrip('.').lower()}; have it made, with cleanup.policy=compact and one partition"
        ) from error


def load(end: End) -> MirrorMap:
    """What mirrors into a cluster keep there; nothing if it has no such topic.

    Raises:
        AwayError: No broker answers.
        MirrorError: The brokers refuse.
    """
    reader = MirrorReader(end.cluster)
    try:
        return _newest(reader)
    finally:
        reader.close()


def _newest(reader: MirrorReader) -> MirrorMap:
    try:
        return reader.newest()
    except UnavailableError as error:
        raise AwayError(str(error)) from error
    except RefusedError as error:
        raise MirrorError(str(error)) from error


class Keeper:
    """Writes records, and has what all processes wrote. For several threads.

    Attributes:
        map: What was kept when it was last looked at; the same object for ever.
    """

    def __init__(self, target: End) -> None:
        """Reads what is kept.

        Raises:
            AwayError: No broker answers.
            MirrorError: The brokers refuse.
        """
        self._lock = Lock()
        self._properties = {
            "client.id": "headwater-mirror",
            "log_level": 0,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.timeout.ms": 20_000,
            **target.cluster.rdkafka([]),
        }
        self._producer = Producer(self._properties)
        self._reader = MirrorReader(target.cluster)
        self.map = _newest(self._reader)

    def look(self) -> None:
        """Reads what was kept meanwhile, by this process and others.

        Raises:
            AwayError: No broker answers.
            MirrorError: The brokers refuse.
        """
        with self._lock:
            _newest(self._reader)

    def keep(self, records: Iterable[AnyRecord], forgotten: Iterable[bytes] = ()) -> None:
        """Writes records; when it returns, they are acknowledged and in `map`.

        Args:
            records: The records, in order.
            forgotten: The keys of records that are needed no more.

        Raises:
            AwayError: They were not all acknowledged.
        """
        failed: list[Any] = []
        written: list[int] = []

        def note(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(error)
            else:
                written.append(message.offset())

        pairs = [*((each.key, to_json(each)) for each in records), *((key, None) for key in forgotten)]
        with self._lock:
            try:
                for key, value in pairs:
                    self._producer.produce(MIRROR_TOPIC, value, key, partition=0, on_delivery=note)
                left = self._producer.flush(30)
            except KafkaException as error:  # of a producer that has met what it never gets over
                failed.append(error.args[0])
                left = 0
            if left or failed:
                self._producer.purge()
                self._producer = Producer(self._properties)
                why = f": {failed[0].str()}" if failed else ""
                raise AwayError(f"the brokers do not take records of {MIRROR_TOPIC}{why}")
            _newest(self._reader)
            if self._reader.read_to <= max(
                written, default=-1
            ):  # a broker that has not heard of the topic yet
                raise AwayError(f"the brokers do not send what they took of {MIRROR_TOPIC}")

    def close(self) -> None:
        """Lets go of its connections."""
        with self._lock:
            self._reader.close()
