"""The mirror of the full demo, from the cluster that events are sent to into the one that the jobs read.

It is a process of its own, as elsewhere: beside Spark's driver it would keep that from its coordinator for seconds.
"""

import re
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Message

from headwater.demo.events import TOPICS
from headwater.demo.topic_log import TopicLog
from headwater.errors import UserError
from headwater.running.mirrors import saved_mirrors
from headwater.stack.logs import lines_since, open_log
from headwater.stack.processes import start_child

FRONT = "front"
"""What origins would call the cluster that events are sent to, if they had no origin of their own."""
_PATIENCE_S = 60.0
_STOP_S = 30.0
_POLL_S = 0.2


class RunningMirror:
    """`headwater mirror` of the demo's topics, as long as the block lasts; it ends with this process."""

    def __init__(self, front: str, analysis: str, home: Path, log: Path) -> None:
        """Prepare; nothing is copied yet.

        Args:
            front: The brokers whose topics are copied, host:port.
            analysis: The brokers that they are copied to.
            home: The home, where it saves how far it is.
            log: What it says is appended there.
        """
        self._ends, self._home, self._log = (front, analysis), home, log
        self._command = [sys.executable, "-m", "headwater.cli", "mirror", "--from", front, "--to", analysis]
        self._command += ["--name", FRONT, "--home", str(home)]
        self._command += [part for topic in TOPICS for part in ("--topics", re.escape(topic))]

    def __enter__(self) -> Self:
        with open_log(self._log) as log:
            self._said_from = log.tell()
            self._process = start_child(self._command, stdout=subprocess.DEVNULL, stderr=log)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def check(self) -> None:
        """Do nothing while it runs.

        Raises:
            UserError: It has ended.
        """
        if self._process.poll() is not None:
            said = lines_since(self._log, self._said_from)
            raise UserError(f"the mirror ended: {said[-1] if said else f'see {self._log}'}")

    def topics(self) -> list[dict[str, Any]]:
        """How far each topic is, once all is copied that is there, or a minute later.

        Raises:
            UserError: It has ended.
        """
        called_ms, deadline_s = time.time() * 1000, time.monotonic() + _PATIENCE_S
        while True:
            self.check()
            saved = [
                each
                for each in saved_mirrors(self._home)
                if (each["source"], each["target"]) == self._ends and each["at_ms"] > called_ms
            ]
            topics: list[dict[str, Any]] = saved[0]["topics"] if saved else []
            is_done = len(topics) == len(TOPICS) and all(each["lag"] == 0 for each in topics)
            if is_done or time.monotonic() > deadline_s:
                return topics
            time.sleep(_POLL_S)


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
