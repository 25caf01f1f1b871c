"""Copies the partitions that one broker of the source leads: fetch, plan, keep the runs, produce.

While batches are produced, the next ones are fetched. What is asked of a partition is decided anew after every error:
`synced` looks where the target's partition ends, which is the only place that is kept of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.mirror.batches import Copying, Outgoing
from headwater.mirror.connection import FETCH, Connection, passes
from headwater.mirror.end import EARLIEST, LATEST, End, Layout, Place
from headwater.mirror.errors import AwayError, HaltedError, MirrorError
from headwater.mirror.kept import Keeper
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
from headwater_streams.sources.mirrored import MirrorRecord, Runs, RunsRecord

_WAIT_MS = 500
_PARTITION_BYTES = 4 << 20
_FETCH_BYTES = 32 << 20
_REQUESTS_UNDER_WAY = 20
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _LOOK_AGAIN_S = 0.2, 5.0, 1.0
_RUNS_AT_ONCE = 10_000
"""Of one record: some 25 bytes each, and a batch of a topic may have a megabyte."""

Tell = Callable[[str], None]
Seen = Callable[[Place, Outgoing], None]


@dataclass
class Partition:
    """A partition that is mirrored.

    Attributes:
        place: Where it is at the source.
        here: Its topic at the target.
        runs: What is known of its offsets.
        copying: Where it stands; None: the target is to be asked.
        mirrored_to: The offset of the source up to which the target has acknowledged all; None before the first look.
        acknowledged: Where the target ended then.
        source_end: Where the source ended when it was last asked.
        records: How many records this process has mirrored.
        lost: How many offsets of the source expired before they were mirrored.
        halted: Why it does not go on; empty where it does.
    """

    place: Place
    here: str
    runs: Runs
    copying: Copying | None = None
    mirrored_to: int | None = None
    acknowledged: int = 0
    source_end: int | None = None
    records: int = 0
    lost: int = 0
    halted: str = ""

    @property
    def target(self) -> Place:
        """Where it is at the target."""
        return self.here, self.place[1]


@dataclass
class Work:
    """What a lane is to do; changed by the mirror, read by the lane.

    Attributes:
        partitions: By their places at the source.
    """

    partitions: dict[Place, Partition] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def assign(self, partitions: Mapping[Place, Partition]) -> None:
        """Replaces what is to be done."""
        with self.lock:
            self.partitions = dict(partitions)

    def now(self) -> dict[Place, Partition]:
        """What is to be done."""
        with self.lock:
            return dict(self.partitions)


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
        self.failure: MirrorError | None = None
        self._source, self._target = End(source), End(target)
        self._mirror, self._keeper = mirror, keeper
        self._stop, self._tell, self._seen = stop, tell, seen
        self._feeds: dict[int, Connection] = {}
        self._under_way: tuple[Connection, dict[Place, int]] | None = None
        self._looked_s = 0.0
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
            except MirrorError as error:
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
        partitions = self.work.now()
        going = {place: each for place, each in partitions.items() if not each.halted}
        self._sync([each for each in going.values() if each.copying is None])
        if self._under_way is None:
            return self._fetch(going)
        connection, asked = self._under_way
        self._under_way = None
        answer = connection.receive()
        outgoing: list[tuple[Partition, list[Outgoing]]] = []
        kept: list[tuple[Partition, RunsRecord]] = []
        for topic in answer.responses:
            for data in topic.partitions:
                place = topic.topic, data.partition_index
                each = going.get(place)
                if each is None or each.copying is None or each.copying.there != asked.get(place):
                    continue
                try:
                    planned = self._planned(each, data)
                except HaltedError as error:
                    self._halt(each, error)
                    continue
                if planned is not None:
                    batches, runs = planned
                    kept += [(each, record) for record in _records(each, runs)]
                    outgoing.append((each, batches))
        self._fetch({place: each for place, each in going.items() if not each.halted})
        if kept:
            self._keeper.keep(record for _, record in kept)
            for each, record in kept:
                for run in record.runs:
                    each.runs.begin(*run)
        self._produce(outgoing)
        return True

    def _fetch(self, going: Mapping[Place, Partition]) -> bool:
        leader, topics, asked = -1, dict[str, list[dict[str, int]]](), dict[Place, int]()
        for place, each in going.items():
            if each.copying is None or self._source.leader(place) < 0:
                continue
            if leader < 0:
                leader = self._source.leader(place)
            if self._source.leader(place) != leader:
                continue
            asked[place] = each.copying.there
            topics.setdefault(place[0], []).append(_asked(place[1], each.copying.there, _PARTITION_BYTES))
        if not asked:
            return False
        if leader not in self._feeds:  # what else is asked of the broker does not wait behind a fetch
            self._feeds[leader] = Connection(self._source.cluster, *self._source.layout.brokers[leader])
        connection = self._feeds[leader]
        _send_fetch(connection, topics, wait_ms=_WAIT_MS, max_bytes=_FETCH_BYTES, committed=True)
        self._under_way = connection, asked
        return True

    def _planned(self, each: Partition, data: Any) -> tuple[list[Outgoing], list[tuple[int, int]]] | None:
        """What the data of a fetch become; None where there are none.

        Raises:
            HaltedError: The partition cannot go on.
            AwayError: The leader moved.
        """
        assert each.copying is not None
        code: ErrorCode = data.error_code
        if code is ErrorCode.offset_out_of_range:
            self._out_of_range(each)
            return None
        if code:
            if passes(code):
                raise AwayError(f"{each.place[0]}, partition {each.place[1]}: its leader is away")
            raise HaltedError(f"the source refuses to send it: {code.name.replace('_', ' ')}")
        each.source_end = data.last_stable_offset if data.last_stable_offset >= 0 else data.high_watermark
        aborted = [(gone.producer_id, gone.first_offset) for gone in data.aborted_transactions or ()]
        planned = each.copying.plan(data.records or b"", aborted)
        if not planned.batches:
            each.mirrored_to = each.copying.there
            return None
        return planned.batches, planned.runs

    def _out_of_range(self, each: Partition) -> None:
        assert each.copying is not None
        at = each.copying.there
        begin = self._source.offsets([each.place], EARLIEST).get(each.place)
        end = self._source.offsets([each.place], LATEST).get(each.place)
        if begin is None or end is None:
            raise AwayError(f"{each.place[0]}, partition {each.place[1]}: its leader is away")
        if at > end:
            raise HaltedError(
                f"the source ends at offset {end}, and {at} offsets of it are mirrored: the topic was deleted and made "
                f"anew there, or lost its end; delete {each.here} at the target to have it mirrored anew"
            )
        if begin > at:
            each.lost += begin - at
            self._tell(
                f"{_named(each)}: {quantity(begin - at, 'offset')} of the source, from {at} on, expired before they "
                "were mirrored"
            )
            each.copying.there = begin

    def _sync(self, partitions: list[Partition]) -> None:
        """Has partitions go on where the target ends."""
        ends = self._target.offsets([each.target for each in partitions], LATEST)
        begins = self._source.offsets([each.place for each in partitions if not len(each.runs)], EARLIEST)
        for each in partitions:
            here = ends.get(each.target)
            if here is None:
                continue
            try:
                each.copying = self._copying(each, here, begins.get(each.place))
            except HaltedError as error:
                self._halt(each, error)
            if each.copying is not None:
                each.mirrored_to, each.acknowledged = each.copying.there, here

    def _copying(self, each: Partition, here: int, begin: int | None) -> Copying | None:
        ids = {"producer_id": self._mirror.producer_id, "producer_epoch": self._mirror.producer_epoch}
        is_cut = each.runs.cut(here + 1)
        there = each.runs.origin(here)
        if there is None:
            if here:
                raise HaltedError(_foreign(each, 0))
            return None if begin is None else Copying(begin, 0, goes_on=False, **ids)
        if here and not self._is_ours(each, here):
            raise HaltedError(_foreign(each, here - 1))
        if is_cut:
            self._keeper.keep([RunsRecord(topic=each.here, partition=each.place[1], runs=((here, there),))])
            each.runs.begin(here, there)
        return Copying(there, here, goes_on=True, **ids)

    def _is_ours(self, each: Partition, end: int) -> bool:
        """Whether the last batch of a partition of the target is the mirror's, and stands where it was to."""
        connection = self._target.connection(self._target.leader(each.target))
        topics = {each.here: [_asked(each.place[1], end - 1, 1)]}
        _send_fetch(connection, topics, wait_ms=0, max_bytes=1, committed=False)
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
                each.mirrored_to = each.copying.there

    def _acknowledge(self, answer: Any, sent: Mapping[Place, tuple[Partition, Outgoing]]) -> None:
        for topic in answer.responses:
            for result in topic.partition_responses:
                each, batch = sent[topic.name, result.index]
                if each.copying is None:
                    continue
                code: ErrorCode = result.error_code
                if not code and result.base_offset in (batch.here, -1):
                    each.records += batch.count
                    each.mirrored_to, each.acknowledged = batch.origin_end, batch.here + batch.count
                    self._seen(each.place, batch)
                    continue
                each.copying = None  # what was planned behind it is planned anew
                if not code:
                    self._halt(each, HaltedError(_foreign(each, batch.here)))
                elif code in _RACED:
                    continue
                elif passes(code):
                    self._target.layout = Layout("")
                    self._stop.wait(_FIRST_PAUSE_S)
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
    topics: Mapping[str, list[dict[str, int]]],
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
        topics=[{"topic": name, "partitions": partitions} for name, partitions in topics.items()],
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


def _records(each: Partition, runs: list[tuple[int, int]]) -> list[RunsRecord]:
    parts = [tuple(runs[at : at + _RUNS_AT_ONCE]) for at in range(0, len(runs), _RUNS_AT_ONCE)]
    return [RunsRecord(topic=each.here, partition=each.place[1], runs=part) for part in parts]


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
            "the target takes no records of this age: headwater topics alter "
            f"{each.here} --config message.timestamp.before.max.ms=9223372036854775807 there allows it"
        )
    if code is ErrorCode.topic_authorization_failed:
        return "the target does not let the mirror write it: an ACL is to allow it"
    return f"the target refuses a batch of it: {code.name.replace('_', ' ')}"
