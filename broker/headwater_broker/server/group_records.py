"""`__consumer_offsets`: what the groups of this broker have committed, for tools that read it there.

Committed offsets are kept in shared state, and what a group goes on from is read there. The topic is a copy in
Kafka's own records, as Kafka's tools and monitors of lag read them: the broker appends each commit that shared state
has taken, each generation of a group, and tombstones for what is forgotten. It is made, beside the requests, when
the first group has something to be told; what was committed before then is copied into it.

A group's records are in Kafka's partition for it, if this broker leads that one; otherwise, among several brokers, in
one that it does lead. Offsets that a ZooKeeper consumer or a streaming job commits by itself go past the broker: they
are not in the topic.
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
from headwater_broker.log import LogError, PartitionLog
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
_RECORDS_A_SLICE = 1000
_BATCH_BYTES = 61
_RECORD_BYTES = 32  # what is around key and value, at most

Turn = Callable[[str], AbstractAsyncContextManager[None]]


class GroupRecords:
    """Appends to the topic.

    Nobody waits for it: a commit is answered once shared state has it. Where many come, each costs no more than a note
    of it here: the last of each key is written every `_WRITE_EVERY_S`. What was noted and not written when a broker is
    killed comes with the group's next commit.
    """

    def __init__(self, node: Node, alone: Turn) -> None:
        """Starts without the topic.

        Args:
            node: The broker.
            alone: For whoever reads of a group in shared state what is not to change meanwhile.
        """
        self._node = node
        self._alone = alone
        self._make: Callable[[], Awaitable[None]] | None = None
        self._is_making = False
        self._is_checked = False
        self._offsets: dict[str, dict[TopicPartition, Committed | None]] = {}
        self._generations: dict[str, tuple[KeptGroup, int] | None] = {}
        self._kept_meanwhile: set[str] = set()
        self._topics: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._next_s = 0.0

    def made_by(self, make: Callable[[], Awaitable[None]]) -> None:
        """Sets who makes the topic."""
        self._make = make

    # -- what is appended ------------------------------------------------------------------------------

    def committed(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Shared state has taken offsets of a group."""
        self._offsets.setdefault(group, {}).update(offsets)
        self._write_soon()

    def kept(self, group: KeptGroup, since_ms: int) -> None:
        """Shared state has taken a generation of a group."""
        self._generations[group.group_id] = group, since_ms
        if self._is_making:
            self._kept_meanwhile.add(group.group_id)
        self._write_soon()

    def deleted(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Offsets of a group are no more."""
        self._offsets.setdefault(group, {}).update(dict.fromkeys(partitions))
        self._write_soon()

    def forgotten(self, group: str, partitions: Iterable[TopicPartition] = ()) -> None:
        """A group is no more, nor are its offsets."""
        self.deleted(group, partitions)
        self._generations[group] = None

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
        offsets, self._offsets = self._offsets, {}
        generations, self._generations = self._generations, {}
        records: dict[PartitionLog, list[Record]] = {}
        for group in {**generations, **offsets}:
            noted = offsets.get(group, {})
            self._topics.update(topic for (topic, _), each in noted.items() if each is not None)
            generation = generations.get(group)
            log = self._log(group, is_needed=generation is not None or any(noted.values()))
            if log is None:
                continue
            mine = records.setdefault(log, [])
            mine += [(offset_key(group, *key), self._value(each)) for key, each in noted.items()]
            if group in generations:
                mine.append((group_key(group), None if generation is None else group_value(*generation)))
        for log, each in records.items():
            self._append(log, each)

    def _value(self, each: Committed | None) -> bytes | None:
        if each is None:
            return None
        stamp_ms = self._node.clock.now_ms() if each.timestamp_ms is None else each.timestamp_ms
        return offset_value(each.offset, each.leader_epoch, each.metadata, stamp_ms, each.expires_ms)

    def _append(self, log: PartitionLog, records: list[Record]) -> None:
        now_ms = self._node.clock.now_ms()
        try:
            for batch in _batches(records, log.config.max_message_bytes, now_ms):
                log.append(memoryview(batch), now_ms=now_ms)
        except LogError as error:
            _LOG.warning("%s-%d is behind shared state: %s", OFFSETS_TOPIC, log.partition, error)
            return
        self._node.core.write(log)

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
            there = self._node.cluster.topics
            for group, topic, partition in live:
                if topic not in there:
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
        count = len(topic.partitions)
        log = self._node.logs.get(OFFSETS_TOPIC, partition_for(group, count))
        if log is None:
            mine = self._logs(topic.partitions)
            log = mine[partition_for(group, len(mine))] if mine else None
        return log

    def _logs(self, partitions: Iterable[int]) -> list[PartitionLog]:
        found = (self._node.logs.get(OFFSETS_TOPIC, partition) for partition in sorted(partitions))
        return [log for log in found if log is not None]

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
