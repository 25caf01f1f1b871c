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
    """Reads the topic to its end; nothing if a cluster has none.

    Raises:
        AwayError: No broker answers.
        MirrorError: The brokers refuse.
    """
    reader = MirrorReader(end.cluster)
    try:
        return reader.newest()
    except UnavailableError as error:
        raise AwayError(str(error)) from error
    except RefusedError as error:
        raise MirrorError(str(error)) from error
    finally:
        reader.close()


class Keeper:
    """Writes records, which are acknowledged when it returns. For several threads."""

    def __init__(self, target: End) -> None:
        self._lock = Lock()
        properties = {
            "client.id": "headwater-mirror",
            "log_level": 0,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.timeout.ms": 20_000,
            **target.cluster.rdkafka([]),
        }
        self._producer = Producer(properties)

    def keep(self, records: Iterable[AnyRecord]) -> None:
        """Writes records.

        Raises:
            AwayError: They were not all acknowledged.
        """
        failed: list[Any] = []

        def note(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(error)

        with self._lock:
            for each in records:
                self._producer.produce(MIRROR_TOPIC, to_json(each), each.key, partition=0, on_delivery=note)
            if self._producer.flush(30):
                self._producer.purge()
                self._producer.flush(1)
                raise AwayError(f"the brokers do not take records of {MIRROR_TOPIC}")
        if failed:
            raise AwayError(f"the brokers do not take records of {MIRROR_TOPIC}: {failed[0].str()}")
