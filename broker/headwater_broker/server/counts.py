"""What this broker appended, by bucket of time, in the topic of counts: where a topic's `counts.bucket.ms` asks for it.

It is the account of producers that do not count, and a second one beside those that do. It follows the logs, and is not
made of them when somebody asks. A log that lost what was acknowledged, with a power failure or a disk, does not tell of
it; what was counted before stands in another log, which is flushed.

Records are counted up to the last stable offset, so those of a transaction once it is decided. The topic of counts says
up to where a log was counted. After a start counting goes on from there, or from the end of the log if that is before:
offsets that were counted and lost are counted a second time, as other records have them now, and an audit sees both.
Of a log of which nothing is said there any more, it counts all, and says that this may have been counted before.

A record is published again with what came since until it has `_RUNS_EXTENDED` runs. It has the same key, so compaction
leaves one of some minutes, or hours where buckets are wide, and not one of every ten seconds.
"""

import asyncio
import logging
import os
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable

from headwater_broker.coordination import CoordinationError
from headwater_broker.log import FileRange, Isolation, LogError, PartitionLog, StorageError
from headwater_broker.log.bucket_runs import Run, bucket_runs, joined
from headwater_broker.log.records import UnreadableBatchError
from headwater_broker.server.durable import DurableWrites
from headwater_broker.server.errors import ApiError
from headwater_broker.server.internal_topics import batch_of, records_of
from headwater_broker.server.node import Node
from headwater_broker.shown import MESSAGE_CHARS, shown
from headwater_client import COUNTS_TOPIC, Appended, EventError, event_from_json
from headwater_client.events import MOST_RANGES

_LOG = logging.getLogger(__name__)
_READ_BYTES = 1 << 20
_READS_AT_ONCE = 64
_RUNS_AT_ONCE = 10_000
"""So many runs of a log are looked up before they are published: those of 1 MB may be as many as its records."""
_RUNS_EXTENDED = 20
_EVENTS_A_BATCH = 10  # of 45 KB at most: a batch that each topic takes
_RECORDS_A_SLICE = 1000
_TIER = "broker"

_Place = tuple[str, str, int]
"""Topic, its id and partition."""


class BrokerCounts:
    """Counts what this broker appends."""

    def __init__(self, node: Node, writes: DurableWrites, make_topic: Callable[[], Awaitable[None]]) -> None:
        """Notes where the logs end: do this before clients are let in.

        Args:
            node: The broker.
            writes: Waits for what is appended.
            make_topic: Makes the topic of counts if it is not there.
        """
        self._node = node
        self._writes = writes
        self._make_topic = make_topic
        self._instance = uuid.uuid4().hex
        self._ends = {_place(log): log.log_end_offset for log in node.logs}
        self._next: dict[_Place, int] | None = None
        self._recounted: dict[_Place, int] = {}
        self._newest: dict[_Place, Appended] = {}
        self._problem = ""

    async def run(self) -> None:
        """Counts until it is cancelled."""
        while True:
            await asyncio.sleep(self._node.settings.counts_interval_ms / 1000)
            try:
                while await self.count():
                    pass
                self._note("")
            except (ApiError, CoordinationError, LogError, UnreadableBatchError) as error:
                self._note(shown(error, MESSAGE_CHARS))
            except Exception:
                _LOG.exception("counting records failed")

    async def count(self) -> bool:
        """Counts what came since the last time, and waits until that is on the disk; tells whether some is left.

        Raises:
            ApiError: The topic of counts cannot be made.
            CoordinationError: Shared state does not answer.
            LogError: A disk refused.
            UnreadableBatchError: The topic of counts is damaged.
        """
        logs = [
            log for log in self._node.logs if log.config.counts_bucket_ms and not log.topic.startswith("__")
        ]
        if not logs:
            return False
        target = await self._target()
        if target is None:
            return False
        if self._next is None:
            self._next = await self._counted_before()
            self._recounted = {place: end for place, end in self._ends.items() if place not in self._next}
            self._ends.clear()
        is_left = False
        for log in logs:
            place, bucket_ms = _place(log), log.config.counts_bucket_ms
            start = max(self._next.get(place, 0), log.log_start_offset)
            try:
                runs, end = await self._runs(log, start, bucket_ms)
            except LogError:  # it is offline, was deleted, or is damaged, and the broker has said so
                continue
            if runs:
                events = self._events(place, start, end, bucket_ms, runs)
                await self._publish(target, events)
                self._newest[place] = events[-1]
            self._next[place] = end
            is_left |= start < end < log.last_stable_offset
        return is_left

    async def _runs(self, log: PartitionLog, start: int, bucket_ms: int) -> tuple[list[Run], int]:
        """What a log has from an offset on, and up to where that was looked at."""
        runs: list[Run] = []
        for _ in range(_READS_AT_ONCE):
            found = log.read(start, _READ_BYTES, isolation=Isolation.READ_COMMITTED)
            if not found.count or len(runs) >= _RUNS_AT_ONCE:
                break
            more, start = await self._node.ask(_read, found, bucket_ms, start)
            runs[-1:] = joined([*runs[-1:], *more[:1]])
            runs += more[1:]
        return runs, start

    def _events(self, place: _Place, start: int, end: int, bucket_ms: int, runs: list[Run]) -> list[Appended]:
        """The records that say so, of as many runs each as one may have; they follow each other without a gap."""
        recounted = start < self._recounted.get(place, 0)
        newest = self._newest.get(place)
        if (
            newest is not None
            and (newest.end, newest.bucket_ms, newest.recounted) == (start, bucket_ms, recounted)
            and len(newest.runs) < _RUNS_EXTENDED
        ):
            start, runs = newest.start, joined([*newest.runs, *runs])
        parts = [runs[at : at + MOST_RANGES] for at in range(0, len(runs), MOST_RANGES)]
        bounds = [start, *(part[0][0] for part in parts[1:]), end]
        topic, topic_id, partition = place
        return [
            Appended(
                source=f"broker-{self._node.me.broker_id}",
                instance=self._instance,
                tier=_TIER,
                topic=topic,
                topic_id=topic_id,
                partition=partition,
                start=bounds[number],
                end=bounds[number + 1],
                bucket_ms=bucket_ms,
                runs=part,
                recounted=recounted,
            )
            for number, part in enumerate(parts)
        ]

    async def _publish(self, target: PartitionLog, events: list[Appended]) -> None:
        for at in range(0, len(events), _EVENTS_A_BATCH):
            now_ms = self._node.clock.now_ms()
            some = events[at : at + _EVENTS_A_BATCH]
            batch = await self._node.ask(_batch, some, now_ms)
            appended = target.append(memoryview(batch), now_ms=now_ms)
            await self._writes.wait(target, appended.last_offset + 1)

    async def _target(self) -> PartitionLog | None:
        """The partition that this broker counts into."""
        if COUNTS_TOPIC not in self._node.cluster.topics:
            await self._make_topic()
        for log in self._targets():
            if log.refusal is None:
                return log
        self._note(
            f"it leads no partition of {COUNTS_TOPIC} that takes records: give that topic as many partitions as there "
            "are brokers"
        )
        return None

    def _targets(self) -> list[PartitionLog]:
        topic = self._node.cluster.topics.get(COUNTS_TOPIC)
        logs = (self._node.logs.get(COUNTS_TOPIC, each) for each in sorted(topic.partitions if topic else ()))
        return [log for log in logs if log is not None]

    async def _counted_before(self) -> dict[_Place, int]:
        """Where to go on after a start."""
        counted: dict[_Place, int] = {}
        for log in self._targets():
            for number, (key, value) in enumerate(records_of(log)):
                if number % _RECORDS_A_SLICE == 0:
                    await asyncio.sleep(0)
                event = _event(key, value)
                if event is not None:  # the newest one says where it ended
                    counted[event.topic, event.topic_id, event.partition] = event.end
        return {place: min(end, self._ends.get(place, end)) for place, end in counted.items()}

    def _note(self, problem: str) -> None:
        """Logs once why records are not counted."""
        if problem and problem != self._problem:
            _LOG.warning("this broker does not count records for now: %s", problem)
        self._problem = problem


def _place(log: PartitionLog) -> _Place:
    # As clients show it: base64 without the padding.
    return log.topic, urlsafe_b64encode(log.topic_id or b"").decode().rstrip("="), log.partition


def _event(key: bytes, value: bytes | None) -> Appended | None:
    if value is None or not key.startswith(f"{_TIER}/".encode()):
        return None
    try:
        event = event_from_json(value)
    except EventError:
        return None
    return event if isinstance(event, Appended) else None


def _batch(events: list[Appended], now_ms: int) -> bytearray:
    return batch_of([(each.key.encode(), each.to_json().encode()) for each in events], now_ms)


def _read(found: FileRange, bucket_ms: int, start: int) -> tuple[list[Run], int]:
    try:
        data = os.pread(found.fd, found.count, found.position)
    except OSError as error:
        raise StorageError(f"cannot read what is to be counted: {error.strerror}") from error
    return bucket_runs(data, bucket_ms, start, found.aborted)
