"""Copies the partitions that one broker of the source leads: fetch, plan, keep the runs, produce.

While batches are produced, the next ones are fetched. What is asked of a partition is decided anew after every error:
`synced` looks where the target's partition ends, which is the only place that is kept of it.
"""

from collections.abc import Callable, Mapping
from threading import Event, Thread
from time import monotonic
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from headwater.mirror.batches import Copying, Outgoing, Planned
from headwater.mirror.connection import FETCH, Connection, passes
from headwater.mirror.end import EARLIEST, LATEST, End, Layout, Place
from headwater.mirror.errors import AwayError, HaltedError
from headwater.mirror.kept import Keeper
from headwater.mirror.partition import Partition, Work
from headwater_broker.log.batch import (
    BASE_OFFSET,
    BASE_SEQUENCE,
    HEADER,
    MAX_SEQUENCE,
    PRODUCER_ID,
    HeaderTuple,
    size_of,
)
from headwater_streams.base.plural import quantity
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.mirrored import MirrorRecord, RunsRecord

_WAIT_MS = 500
_PARTITION_BYTES = 4 << 20
_FETCH_BYTES = 32 << 20
_REQUESTS_UNDER_WAY = 20
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _LOOK_AGAIN_S = 0.2, 5.0, 1.0
_RUNS_AT_ONCE = 10_000
"""Of one record: some 25 bytes each, and a batch of a topic may have a megabyte."""

_Asked = dict[tuple[str | UUID, int], tuple[Partition, int]]
"""By topic and partition of a fetch: whose it is, and from which offset on."""

Tell = Callable[[str], None]
Seen = Callable[[Place, Outgoing], None]


class Lane:
    """A thread that copies what is assigned to it until it is stopped."""

    def __init__(
        self,
        source: KafkaCluster,
        target: KafkaCluster,
        mirror: MirrorRecord,
        keeper: Keeper,
        *,
        stop: Event,
        tell: Tell,
        seen: Seen = lambda _, __: None,
    ) -> None:
        """Prepares.

        Args:
            source: What is mirrored.
            target: What it is mirrored into.
            mirror: The mirror's producer.
            keeper: Keeps the runs.
            stop: Ends it.
            tell: Takes a sentence for people.
            seen: Is called for each batch that was acknowledged.
        """
        self.work = Work()
        self.failure: Exception | None = None
        self._source, self._target = End(source), End(target)
        self._mirror, self._keeper = mirror, keeper
        self._stop, self._tell, self._seen = stop, tell, seen
        self._feeds: dict[int, Connection] = {}
        self._under_way: tuple[Connection, _Asked] | None = None
        self._looked_s, self._turns = 0.0, 0
        self._thread = Thread(target=self._run, name="mirror-lane", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def join(self) -> None:
        """Waits for its end."""
        self._thread.join()

    def _run(self) -> None:
        pause_s, away = _FIRST_PAUSE_S, ""
        while not self._stop.is_set():
            try:
                self._look()
                if not self._turn():
                    self._stop.wait(_FIRST_PAUSE_S)
                if away:
                    self._tell(f"{away}: it is back, the mirror goes on")
                pause_s, away = _FIRST_PAUSE_S, ""
            except AwayError as error:
                if not away:
                    self._tell(f"{error}; the mirror waits for it")
                away = str(error)
                self._begin_anew()
                self._stop.wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            except Exception as error:
                self.failure = error
                self._stop.set()
        self._drop_connections()

    def _look(self) -> None:
        """Asks who leads what, where that is not known of all that is to be done."""
        ends = self._source, self._target
        is_unknown = any(
            self._source.leader(place) < 0 or self._target.leader(each.target) < 0
            for place, each in self.work.now().items()
            if not each.halted
        )
        never = not all(end.layout.brokers for end in ends)
        if never or (is_unknown and monotonic() - self._looked_s > _LOOK_AGAIN_S):
            for end in ends:
                end.refresh()
            self._looked_s = monotonic()

    def _begin_anew(self) -> None:
        self._drop_connections()
        for end in (self._source, self._target):
            end.layout = Layout("")
        for each in self.work.now().values():
            each.copying = None

    def _drop_connections(self) -> None:
        self._under_way = None
        for feed in self._feeds.values():
            feed.close()
        self._feeds = {}
        self._source.drop_connections()
        self._target.drop_connections()

    def _turn(self) -> bool:
        """Takes what the fetch under way brings, or begins one; False if there is nothing to do."""
        going = {place: each for place, each in self.work.now().items() if not each.halted}
        now_s = monotonic()
        self._sync([each for each in going.values() if each.copying is None and each.rests_until_s <= now_s])
        if self._under_way is None:
            return self._fetch(going)
        connection, asked = self._under_way
        self._under_way = None
        self._turns += 1
        answer = connection.receive()
        outgoing: list[tuple[Partition, list[Outgoing]]] = []
        kept: list[RunsRecord] = []
        for topic in answer.responses:
            for data in topic.partitions:
                each, offset = asked[_topic_of(topic), data.partition_index]
                if going.get(each.place) is not each or each.copying is None or each.copying.there != offset:
                    continue
                try:
                    planned = self._planned(each, data)
                except HaltedError as error:
                    self._halt(each, error)
                    continue
                if planned is not None:
                    each.served = self._turns
                    kept += _to_keep(each, planned, each.copying.here)
                    outgoing.append((each, planned.batches))
        self._fetch({place: each for place, each in going.items() if not each.halted})
        if kept:
            self._keeper.keep(kept)
            for each, _ in outgoing:
                each.lost = 0
        self._produce(outgoing)
        return True

    def _fetch(self, going: Mapping[Place, Partition]) -> bool:
        leader, wanted, asked = -1, list[Partition](), _Asked()
        for place, each in going.items():
            if each.copying is None or self._source.leader(place) < 0:
                continue
            if leader < 0:
                leader = self._source.leader(place)
            if self._source.leader(place) == leader:
                wanted.append(each)
        if not wanted:
            return False
        wanted.sort(
            key=lambda each: each.served
        )  # an answer is full with the first ones (KIP-74): all have their turn
        if leader not in self._feeds:  # what else is asked of the broker does not wait behind a fetch
            self._feeds[leader] = self._source.connect(leader)
        connection = self._feeds[leader]
        topics: dict[str, dict[str, Any]] = {}
        for each in wanted:
            (name, number), key = each.place, each.topic_id if connection.fetches_by_id else each.place[0]
            assert each.copying is not None
            assert key is not None
            asked[key, number] = each, each.copying.there
            entry = topics.setdefault(name, {"topic": name, "topic_id": each.topic_id, "partitions": []})
            entry["partitions"].append(_asked(number, each.copying.there, _PARTITION_BYTES))
        _send_fetch(connection, [*topics.values()], wait_ms=_WAIT_MS, max_bytes=_FETCH_BYTES, committed=True)
        self._under_way = connection, asked
        return True

    def _planned(self, each: Partition, data: Any) -> Planned | None:
        """What the data of a fetch become; None where there are none.

        Raises:
            HaltedError: The partition cannot go on.
        """
        assert each.copying is not None
        code: ErrorCode = data.error_code
        if code is ErrorCode.offset_out_of_range:
            self._out_of_range(each)
            return None
        if passes(code):  # its leader moved, or its topic was deleted
            self._source.layout = Layout("")
            each.rest()
            return None
        if code:
            raise HaltedError(f"the source refuses to send it: {code.name.replace('_', ' ')}")
        each.source_end = data.last_stable_offset if data.last_stable_offset >= 0 else data.high_watermark
        each.open = data.high_watermark - each.source_end
        aborted = [(gone.producer_id, gone.first_offset) for gone in data.aborted_transactions or ()]
        planned = each.copying.plan(data.records or b"", aborted)
        if not planned.batches:
            each.reached(each.copying.there)
            return None
        return planned

    def _out_of_range(self, each: Partition) -> None:
        assert each.copying is not None
        at = each.copying.there
        begin = self._source.offsets([each.place], EARLIEST).get(each.place)
        end = self._source.offsets([each.place], LATEST).get(each.place)
        if begin is None or end is None:
            each.rest()
            return
        if at > end:
            raise HaltedError(
                f"the source ends at offset {end}, and {at} offsets of it are mirrored: the topic was deleted and made "
                f"anew there, or lost its end; delete {each.here} at the target to have it mirrored anew"
            )
        first = max(at, each.passed)  # what lies before that were markers, or records that were aborted
        if begin > first:
            each.lost += begin - first
            self._tell(
                f"{_named(each)}: {quantity(begin - first, 'offset')} of the source, from {first} on, expired before "
                "they were mirrored"
            )
        each.copying.there = max(begin, at)

    def _sync(self, partitions: list[Partition]) -> None:
        """Has partitions go on where the target ends."""
        if not partitions:
            return
        ends = self._target.offsets([each.target for each in partitions], LATEST)
        self._keeper.look()  # after that: whoever wrote up to there kept the runs before
        begins = self._source.offsets([each.place for each in partitions if not len(each.runs)], EARLIEST)
        for each in partitions:
            here = ends.get(each.target)
            if here is None:
                each.rest()
                continue
            try:
                each.copying = self._copying(each, here, begins.get(each.place))
            except HaltedError as error:
                self._halt(each, error)
            if each.copying is not None:
                each.acknowledged, each.lost = here, 0
                each.passed = each.passed if here else 0
                each.reached(each.copying.there)

    def _copying(self, each: Partition, here: int, begin: int | None) -> Copying | None:
        there = each.runs.origin(here)
        if there is None:
            if here:
                raise HaltedError(_foreign(each, 0))
            if begin is None:
                each.rest()
                return None
            there = begin
        if here and not self._is_ours(each, here):
            raise HaltedError(_foreign(each, here - 1))
        return Copying(
            there, here, producer_id=self._mirror.producer_id, producer_epoch=self._mirror.producer_epoch
        )

    def _is_ours(self, each: Partition, end: int) -> bool:
        """Whether the last batch of a partition of the target is the mirror's, and stands where it was to."""
        connection = self._target.connection(self._target.leader(each.target))
        topic = {
            "topic": each.here,
            "topic_id": self._target.layout.ids.get(each.here),
            "partitions": [_asked(each.place[1], end - 1, 1)],
        }
        _send_fetch(connection, [topic], wait_ms=0, max_bytes=1, committed=False)
        data = connection.receive().responses[0].partitions[0]
        if data.error_code and passes(data.error_code):
            raise AwayError(f"{each.here}, partition {each.place[1]}: its leader is away")
        header = _last_header(data.records or b"")
        return header is None or (
            header[PRODUCER_ID] == self._mirror.producer_id
            and header[BASE_SEQUENCE] == header[BASE_OFFSET] & MAX_SEQUENCE
        )

    def _produce(self, outgoing: list[tuple[Partition, list[Outgoing]]]) -> None:
        """Produces the batches of a fetch, and takes note of what was acknowledged.

        Raises:
            AwayError: A leader of the target is away.
        """
        by_leader: dict[int, list[tuple[Partition, list[Outgoing]]]] = {}
        for each, batches in outgoing:
            by_leader.setdefault(self._target.leader(each.target), []).append((each, batches))
        if -1 in by_leader:
            raise AwayError(f"{_named(by_leader[-1][0][0])}: nobody leads it at the target")
        for leader, of_leader in by_leader.items():
            connection = self._target.connection(leader)
            rounds = max(len(batches) for _, batches in of_leader)
            waiting: list[dict[Place, tuple[Partition, Outgoing]]] = []
            for number in range(rounds):
                now = [(each, batches[number]) for each, batches in of_leader if number < len(batches)]
                now = [(each, batch) for each, batch in now if each.copying is not None]
                if now:
                    connection.produce([(each.here, each.place[1], batch.data) for each, batch in now])
                    waiting.append({each.target: (each, batch) for each, batch in now})
                if len(waiting) >= _REQUESTS_UNDER_WAY:
                    self._acknowledge(connection.receive(), waiting.pop(0))
            for each_round in waiting:
                self._acknowledge(connection.receive(), each_round)
        for each, _ in outgoing:
            if each.copying is not None:
                each.reached(each.copying.there)

    def _acknowledge(self, answer: Any, sent: Mapping[Place, tuple[Partition, Outgoing]]) -> None:
        for topic in answer.responses:
            for result in topic.partition_responses:
                each, batch = sent[topic.name, result.index]
                if each.copying is None:
                    continue
                code: ErrorCode = result.error_code
                if not code and result.base_offset in (batch.here, -1):
                    each.records += batch.count
                    each.acknowledged = batch.here + batch.count
                    each.reached(batch.origin_end)
                    self._seen(each.place, batch)
                    continue
                each.copying = None  # what was planned behind it is planned anew
                if not code:
                    self._halt(each, HaltedError(_foreign(each, batch.here)))
                elif code in _RACED:
                    continue
                elif passes(code):
                    self._target.layout = Layout("")
                    each.rest()
                else:
                    self._halt(each, HaltedError(_refused(each, code, len(batch.data))))

    def _halt(self, each: Partition, error: HaltedError) -> None:
        each.copying = None
        each.halted = str(error)
        self._tell(f"{_named(each)}: {error}")


_RACED = (ErrorCode.out_of_order_sequence_number, ErrorCode.duplicate_sequence_number)
"""Another process of this mirror, or a request of one that was killed, was faster."""


def _asked(partition: int, offset: int, max_bytes: int) -> dict[str, int]:
    return {
        "partition": partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "log_start_offset": -1,
        "partition_max_bytes": max_bytes,
    }


def _send_fetch(
    connection: Connection,
    topics: list[dict[str, Any]],
    *,
    wait_ms: int,
    max_bytes: int,
    committed: bool,
) -> None:
    connection.send(
        FETCH,
        replica_id=-1,
        max_wait=wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=int(committed),
        session_id=0,
        session_epoch=-1,
        topics=topics,
        forgotten_topics_data=[],
        rack_id="",
    )


def _last_header(data: bytes) -> HeaderTuple | None:
    """The header of the last whole batch; None where there is none."""
    at, last = 0, None
    while len(data) - at >= HEADER.size:
        header: HeaderTuple = HEADER.unpack_from(data, at)
        last, at = header, at + size_of(header)
    return last


def _to_keep(each: Partition, planned: Planned, end: int) -> list[RunsRecord]:
    """What is to be kept of a plan before it is carried out; nothing where that is known."""
    runs = planned.runs
    if each.runs.agrees(runs, end) and not each.lost:
        return []
    parts = [tuple(runs[at : at + _RUNS_AT_ONCE]) for at in range(0, len(runs), _RUNS_AT_ONCE)]
    ends = [*(part[0][0] for part in parts[1:]), end]
    lost = [each.lost] + [0] * (len(parts) - 1)
    return [
        RunsRecord(topic=each.here, partition=each.place[1], runs=part, end=part_end, lost=part_lost)
        for part, part_end, part_lost in zip(parts, ends, lost, strict=True)
    ]


def _topic_of(answer: Any) -> str | UUID:
    """How a fetched topic is named in an answer."""
    name: str | UUID = answer.topic_id if hasattr(answer, "topic_id") else answer.topic
    return name


def _named(each: Partition) -> str:
    return f"topic {each.place[0]}, partition {each.place[1]}"


def _foreign(each: Partition, offset: int) -> str:
    return (
        f"{each.here} at the target has records that this mirror did not write, at offset {offset} or before: give the "
        f"mirror a --prefix, or delete {each.here} there to have it mirrored anew"
    )


def _refused(each: Partition, code: ErrorCode, size: int) -> str:
    if code in (ErrorCode.message_too_large, ErrorCode.record_list_too_large):
        return (
            f"the target takes no batch of {size} bytes: headwater topics alter {each.here} --config "
            f"max.message.bytes={size} there raises that"
        )
    if code is ErrorCode.invalid_timestamp:
        return (
            f"the target takes no records so far from the present: headwater topics alter {each.here} there with "
            "--config message.timestamp.before.max.ms=9223372036854775807 and, for those ahead of its clock, "
            "message.timestamp.after.max.ms=9223372036854775807 allows it"
        )
    if code is ErrorCode.topic_authorization_failed:
        return "the target does not let the mirror write it: an ACL is to allow it"
    return f"the target refuses a batch of it: {code.name.replace('_', ' ')}"
