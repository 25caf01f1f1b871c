"""`__consumer_offsets`: what the groups of this broker have committed, for tools that read it there.

Committed offsets are kept in shared state, and what a group goes on from is read there. The topic is a copy in
Kafka's own records, as Kafka's tools and monitors of lag read them: the broker appends each commit that shared state
has taken, each generation of a group, and tombstones for what is forgotten. It is made, beside the requests, when
the first group has something to be told, and among several brokers when the first client asks who coordinates one;
what was committed before then is copied into it.

A group's records are in Kafka's partition for it, whose leader coordinates the group. While that broker is away
another one does, and the partition takes nothing; who takes groups over, or back, copies what shared state has of
them. Offsets that a ZooKeeper consumer or a streaming job commits by itself go past the broker: they are not in the
topic.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager

from headwater_broker.coordination import Committed, CoordinationError, TopicPartition
from headwater_broker.groups import (
    KeptGroup,
    decode_group,
    decode_offset_key,
    group_key,
    group_value,
    offset_key,
    offset_value,
)
from headwater_broker.log import LogError, PartitionLog, StorageError
from headwater_broker.log.records import UnreadableBatchError
from headwater_broker.server.errors import ApiError
from headwater_broker.server.internal_topics import (
    OFFSETS_TOPIC,
    Record,
    batch_of,
    records_of,
)
from headwater_broker.server.node import Node
from headwater_broker.transactions import partition_for

_LOG = logging.getLogger(__name__)
_WRITE_EVERY_S = 0.1
_LOOK_EVERY_S = 0.5
_RETRY_S = 1.0
_RECORDS_A_SLICE = 1000
_BATCH_BYTES = 61
_RECORD_BYTES = 32  # what is around key and value, at most

Turn = Callable[[str], AbstractAsyncContextManager[None]]


class _Noted:
    """What is noted of groups and not written yet: of each key the last.

    Attributes:
        offsets: Of each group; None: it has no longer one.
        generations: Of each group; None: it is no more.
    """

    def __init__(self) -> None:
        self.offsets: dict[str, dict[TopicPartition, Committed | None]] = {}
        self.generations: dict[str, tuple[KeptGroup, int] | None] = {}

    def groups(self) -> Iterable[str]:
        """Groups of which something is noted."""
        return {**self.generations, **self.offsets}

    def add(self, group: str, former: "_Noted") -> None:
        """Takes back what was noted of a group before; what was noted since then wins."""
        if group in former.offsets:
            self.offsets[group] = {**former.offsets[group], **self.offsets.get(group, {})}
        if group in former.generations:
            self.generations.setdefault(group, former.generations[group])


class GroupRecords:
    """Appends to the topic.

    Nobody waits for it: a commit is answered once shared state has it. Where many come, each costs no more than a note
    of it here: the last of each key is written every `_WRITE_EVERY_S`, and again where the disk takes it only later.
    What was noted and not written when a broker is killed comes with the group's next commit.
    """

    def __init__(self, node: Node, alone: Turn) -> None:
        """Starts without the topic.

        Args:
            node: The broker.
            alone: A turn for reading a group in shared state while nobody changes it.
        """
        self._node = node
        self._alone = alone
        self._make: Callable[[], Awaitable[None]] | None = None
        self._is_making = False
        self._is_checked = False
        self._is_copy_old = False
        self._noted = _Noted()
        self._appended: dict[PartitionLog, tuple[int, _Noted]] = {}
        self._behind: set[int] = set()
        self._kept_meanwhile: set[str] = set()
        self._topics: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._next_s = 0.0
        node.core.on_written(self._written)

    def set_creator(self, make: Callable[[], Awaitable[None]]) -> None:
        """Sets the function that makes the topic."""
        self._make = make

    # -- what is appended ------------------------------------------------------------------------------

    def committed(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Shared state has taken offsets of a group."""
        self._noted.offsets.setdefault(group, {}).update(offsets)
        self._write_soon()

    def kept(self, group: KeptGroup, since_ms: int) -> None:
        """Shared state has taken a generation of a group."""
        self._noted.generations[group.group_id] = group, since_ms
        if self._is_making:
            self._kept_meanwhile.add(group.group_id)
        self._write_soon()

    def deleted(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Offsets of a group are no more."""
        self._noted.offsets.setdefault(group, {}).update(dict.fromkeys(partitions))
        self._write_soon()

    def forgotten(self, group: str, partitions: Iterable[TopicPartition] = ()) -> None:
        """A group is no more, nor are its offsets."""
        self.deleted(group, partitions)
        self._noted.generations[group] = None

    def _write_soon(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(self._next_s, loop.time()), self._write_now)

    def _write_now(self) -> None:
        self._next_s = asyncio.get_running_loop().time() + _WRITE_EVERY_S
        self.write()

    def write(self) -> None:
        """Appends what has been noted."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        noted, self._noted = self._noted, _Noted()
        of_logs: dict[PartitionLog, _Noted] = {}
        for group in noted.groups():
            offsets = noted.offsets.get(group, {})
            self._topics.update(topic for (topic, _), each in offsets.items() if each is not None)
            is_needed = noted.generations.get(group) is not None or any(offsets.values())
            log = self._log(group, is_needed=is_needed)
            if log is not None:
                of_logs.setdefault(log, _Noted()).add(group, noted)
        for log, each in of_logs.items():
            self._append(log, each)

    def _records(self, noted: _Noted) -> list[Record]:
        records: list[Record] = []
        for group in noted.groups():
            offsets = noted.offsets.get(group, {})
            records += [(offset_key(group, *key), self._value(each)) for key, each in offsets.items()]
            if group in noted.generations:
                generation = noted.generations[group]
                records.append((group_key(group), None if generation is None else group_value(*generation)))
        return records

    def _value(self, each: Committed | None) -> bytes | None:
        if each is None:
            return None
        stamp_ms = self._node.clock.now_ms() if each.timestamp_ms is None else each.timestamp_ms
        return offset_value(each.offset, each.leader_epoch, each.metadata, stamp_ms, each.expires_ms)

    def _append(self, log: PartitionLog, noted: _Noted) -> None:
        now_ms = self._node.clock.now_ms()
        start_offset = log.log_end_offset
        try:
            for batch in _batches(self._records(noted), log.config.max_message_bytes, now_ms):
                log.append(memoryview(batch), now_ms=now_ms)
        except LogError as error:
            self._refused(log, noted, error)
            return
        finally:
            if log.log_end_offset > start_offset:
                self._node.core.write(log)
        before = self._appended.get(log)
        if before is not None:  # the tick goes on
            for group in before[1].groups():
                noted.add(group, before[1])
        self._appended[log] = log.log_end_offset, noted

    def _written(self, log: PartitionLog) -> None:
        """A log was written, or was not: the end of a tick."""
        end_offset, noted = self._appended.pop(log, (0, None))
        if noted is None:
            return
        if log.write_error is not None and end_offset > log.written_offset:
            self._refused(log, noted, log.write_error)
        elif log.partition in self._behind:
            self._behind.discard(log.partition)
            _LOG.info("%s-%d has again what shared state has", OFFSETS_TOPIC, log.partition)

    def _refused(self, log: PartitionLog, noted: _Noted, error: LogError) -> None:
        """Notes again what a full disk did not take: it is written later, with what came meanwhile."""
        if log.partition not in self._behind:
            _LOG.warning("%s-%d is behind shared state: %s", OFFSETS_TOPIC, log.partition, error)
        if not isinstance(error, StorageError) or log.offline is not None:
            return
        self._behind.add(log.partition)
        for group in noted.groups():
            self._noted.add(group, noted)
        self._next_s = asyncio.get_running_loop().time() + _RETRY_S
        self._write_soon()

    async def follow_topics(self) -> None:
        """Has the offsets of topics that are deleted forgotten, as shared state has forgotten them."""
        while True:
            # One that came and went between two looks is known by the offsets that were noted of it.
            self._topics |= self._node.cluster.topics.keys()
            await asyncio.sleep(_LOOK_EVERY_S)
            gone = self._topics - self._node.cluster.topics.keys()
            self._topics -= gone
            if gone and OFFSETS_TOPIC in self._node.cluster.topics:
                try:
                    await self._forget_topics(gone)
                except (LogError, UnreadableBatchError) as error:
                    _LOG.warning("offsets of topics that were deleted stay in %s: %s", OFFSETS_TOPIC, error)

    async def _forget_topics(self, names: AbstractSet[str]) -> None:
        for log in self._logs(self._node.cluster.topics[OFFSETS_TOPIC].partitions):
            live: dict[tuple[str, str, int], None] = {}
            for count, (key, value) in enumerate(records_of(log)):
                if count % _RECORDS_A_SLICE == 0:
                    await asyncio.sleep(0)
                place = decode_offset_key(key)
                if place is None or place[1] not in names:
                    continue
                if value is None:
                    live.pop(place, None)
                else:
                    live[place] = None
            existing = self._node.cluster.topics
            for group, topic, partition in live:
                if topic not in existing:
                    self.deleted(group, [(topic, partition)])

    # -- the topic -------------------------------------------------------------------------------------

    def _log(self, group: str, *, is_needed: bool = True) -> PartitionLog | None:
        """Where to append what is about a group; None: nowhere, or it is copied later."""
        topic = self._node.cluster.topics.get(OFFSETS_TOPIC)
        if topic is None:
            if is_needed:
                self._ensure()
            return None
        if not self._is_checked and all(log.log_end_offset == 0 for log in self._logs(topic.partitions)):
            self._ensure()
            return None
        self._is_checked = True
        return self._node.logs.get(OFFSETS_TOPIC, partition_for(group, len(topic.partitions)))

    def _logs(self, partitions: Iterable[int]) -> list[PartitionLog]:
        logs = (self._node.logs.get(OFFSETS_TOPIC, partition) for partition in sorted(partitions))
        return [log for log in logs if log is not None]

    def copy(self) -> None:
        """Has all groups that this broker coordinates copied, where there is a topic: some may have been another's."""
        if OFFSETS_TOPIC in self._node.cluster.topics:
            self._is_copy_old = True
            self._ensure()

    def _ensure(self) -> None:
        if self._make is not None and not self._is_making:
            self._is_making = True
            self._node.core.spawn(self._begin())

    async def _begin(self) -> None:
        """Makes the topic if it is not there, and copies what shared state has into it."""
        try:
            if OFFSETS_TOPIC not in self._node.cluster.topics and self._make is not None:
                await self._make()
            self._is_checked = True
            self._is_copy_old = True
            while self._is_copy_old:
                self._is_copy_old = False
                await self._copy()
        except (ApiError, CoordinationError) as error:
            _LOG.warning("%s cannot be made for now: %s", OFFSETS_TOPIC, error)
            self._is_checked = False
        finally:
            self._is_making = False

    async def _copy(self) -> None:
        node = self._node
        coordinates = node.cluster.coordinates
        self._kept_meanwhile.clear()
        generations = await node.ask(node.coordinator.kept_groups)
        for group in filter(coordinates, generations.keys() - self._kept_meanwhile):
            try:
                self.kept(*decode_group(group, generations[group]))
            except ValueError as error:
                _LOG.warning("what is kept of group %r cannot be read: %s", group, error)
        for group in filter(coordinates, await node.ask(node.coordinator.groups)):
            async with self._alone(group):
                self.committed(group, await node.ask(node.coordinator.fetch_offsets, group))


def _batches(records: list[Record], limit_bytes: int, now_ms: int) -> Iterator[bytearray]:
    """The records in batches, each of as many as a topic's batch may have bytes for."""
    batch: list[Record] = []
    room_bytes = limit_bytes - _BATCH_BYTES
    for key, value in records:
        size_bytes = len(key) + len(value or b"") + _RECORD_BYTES
        if batch and size_bytes > room_bytes:
            yield batch_of(batch, now_ms)
            batch, room_bytes = [], limit_bytes - _BATCH_BYTES
        batch.append((key, value))
        room_bytes -= size_bytes
    if batch:
        yield batch_of(batch, now_ms)
