"""The mirror of the full demo, from the cluster that events are sent to into the one that the jobs read."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Message

from headwater.demo.events import TOPICS
from headwater.demo.topic_log import TopicLog
from headwater.errors import UserError
from headwater.mirror import Mirror, MirrorOptions
from headwater.mirror.topics import Choice
from headwater.running.clusters import Clusters
from headwater.running.mirrors import mirror_folder

FRONT = "front"
"""What origins would call the cluster that events are sent to, if they had no origin of their own."""
_REFRESH_S = 1.0


class RunningMirror:
    """A mirror of the demo's topics in a thread of its own, as long as the block lasts."""

    def __init__(self, front: str, analysis: str, home: Path, say: Callable[[str], None]) -> None:
        """Prepare; nothing is copied yet.

        Args:
            front: The brokers whose topics are copied, host:port.
            analysis: The brokers that they are copied to.
            home: The home, where it saves how far it is.
            say: Takes a sentence for people.
        """
        self._stop = Event()
        options = MirrorOptions(
            Choice(tuple(re.compile(re.escape(topic)) for topic in TOPICS)),
            name=FRONT,
            status_folder=mirror_folder(home),
            refresh_s=_REFRESH_S,
        )
        source, target = (Clusters(home, each).require_default() for each in (front, analysis))
        self._mirror = Mirror(
            source, target, options, stop=self._stop, tell=lambda text: say(f"mirror: {text}")
        )
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="demo-mirror")

    def __enter__(self) -> Self:
        self._run = self._pool.submit(self._mirror.run)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._pool.shutdown()

    def check(self) -> None:
        """Do nothing while it runs.

        Raises:
            UserError: It has ended.
        """
        if self._run.done():
            raise UserError(
                f"the mirror ended while the jobs ran: {self._run.exception() or 'nobody knows why'}"
            )

    def status(self) -> dict[str, Any]:
        """How far it is, as `headwater mirror --status --json` shows it."""
        return self._mirror.status()


def compare_clusters(front: TopicLog, analysis: TopicLog) -> tuple[int, list[str]]:
    """Compare the demo's topics in two clusters, record by record.

    Args:
        front: The one that events were sent to.
        analysis: The one that has the copy.

    Returns:
        How many records are the same in both, offset, key, value, headers and time; and what is not, a sentence for
        each partition.
    """
    same, differences = 0, []
    for topic in TOPICS:
        for partition in front.partitions(topic):
            sent, copied = (
                [_identity(message) for message in log.read(topic, partition, *log.offsets(topic, partition))]
                for log in (front, analysis)
            )
            if sent == copied:
                same += len(sent)
                continue
            at = next(
                (n for n, (one, other) in enumerate(zip(sent, copied, strict=False)) if one != other),
                min(len(sent), len(copied)),
            )
            differences.append(
                f"{topic}-{partition} has {len(sent)} records in one cluster and {len(copied)} in the other, and they "
                f"differ from the {at + 1}. on"
            )
    return same, differences


def _identity(message: Message) -> tuple[object, ...]:
    return message.offset(), message.key(), message.value(), message.headers(), message.timestamp()
