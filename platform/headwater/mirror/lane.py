"""Copies the partitions that one broker of the source leads: fetch, plan, keep the runs, produce.

While batches are produced, the next ones are fetched, and where many came, the target's acknowledgements are taken only
after those: both clusters have something to do at all times. What is asked of a partition is decided anew after every
error: `_sync` looks where the target's partition ends, which is the only place that is kept of it.
"""

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Event, Thread
from time import monotonic
from typing import Any
from uuid import UUID

from confluent_kafka import KafkaException
from kio.schema.errors import ErrorCode

from headwater.mirror.batches import Copying, Outgoing, Planned
from headwater.mirror.connection import FETCH, Connection, passes
from headwater.mirror.end import EARLIEST, LATEST, End, Layout, Place
from headwater.mirror.errors import AwayError, HaltedError, text_of_error
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
from headwater_streams.sources.mirrored import MirrorMap, MirrorRecord, RunsRecord

_WAIT_MS = 500
_PARTITION_BYTES = 4 << 20
_FETCH_BYTES = 16 << 20
_MORE_BYTES = 1 << 20
"""Where so many bytes came at once, more are there already."""
_REQUESTS_UNDER_WAY = 20
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _LOOK_AGAIN_S = 0.2, 5.0, 1.0
_RUNS_AT_ONCE = 10_000
"""Of one record: some 25 bytes each, and a batch of a topic may have a megabyte."""

_Asked = dict[tuple[str | UUID, int], tuple[Partition, int]]
"""By topic and partition of a fetch: whose it is, and from which offset on."""

_Sent = Mapping[Place, tuple[Partition, Outgoing]]
"""The batches of a request, by where they are to stand."""

Tell = Callable[[str], None]
Seen = Callable[[Place, Outgoing], None]


class Lane:
    """A thread that copies what is assigned to it until it is stopped.

    Attributes:
        failure: What ended it.
        away: Which cluster it waits for, as a sentence; empty where both answer.
    """

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
        self.away = ""
        self._source, self._target = End(source), End(target)
        self._mirror, self._keeper = mirror, keeper
        self._stop, self._tell, self._seen = stop, tell, seen
        self._feeds: dict[int, Connection] = {}
        self._under_way: tuple[Connection, _Asked] | None = None
        self._unacknowledged = deque[tuple[Connection, _Sent]]()
        self._planned_to: list[tuple[Partition, Copying, int]] = []
        self._looked_s, self._turns = 0.0, 0
        self._thread = Thread(target=self._run, name="mirror-lane", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def join(self) -> None:
        """Waits for its end."""
        self._thread.join()

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._stop.is_set():
            try:
                self._look()
                if not self._turn():
                    self._stop.wait(_FIRST_PAUSE_S)
                if self.away:
                    self._tell(f"{self.away}: it is back, the mirror goes on")
                pause_s, self.away = _FIRST_PAUSE_S, ""
            except (AwayError, KafkaException) as error:
                text = text_of_error(error)
                if not self.away:
                    self._tell(f"{text}; the mirror waits for it")
                self.away = text
                self._begin_anew()
                self._stop.wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            except Exception as error:
                self.failure = error
                self._stop.set()
        with suppress(AwayError):
            self._take_acknowledgements()
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
        self._unacknowledged.clear()
        self._planned_to.clear()
        for feed in self._feeds.values():
            feed.close()
        self._feeds = {}
        self._source.drop_connections()
        self._target.drop_connections()

    def _turn(self) -> bool:
        """Takes what the fetch under way brings, or begins one; False if there is nothing to do."""
        going, now_s = self._going(), monotonic()
        self._sync([each for each in going.values() if each.copying is None and each.rests_until_s <= now_s])
        if self._under_way is None:
            return self._fetch(going)
        connection, asked = self._under_way
        self._under_way = None
        self._turns += 1
        answer = connection.receive()
        self._take_acknowledgements()
        going = self._going()  # a topic may have been taken away while its fetch was waited for
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
                    kept += _to_keep(each, planned, each.copying.here, self._keeper.map)
                    outgoing.append((each, planned.batches))
        self._fetch({place: each for place, each in going.items() if not each.halted})
        if kept:
            self._keeper.keep(kept)
        self._produce(outgoing)
        return True

    def _going(self) -> dict[Place, Partition]:
        return {place: each for place, each in self.work.now().items() if not each.halted}

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
        # An answer is full with the first ones (KIP-74): all have their turn.
        wanted.sort(key=lambda each: each.served)
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
            raise HaltedError(f"the source refuses to send it: {_words_of(code)}")
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
        # What lies before what was passed were markers, or records that were aborted.
        self._tell_lost(each, each.copying.here, max(at, each.passed or 0), begin)
        each.copying.there = max(begin, at)

    def _tell_lost(self, each: Partition, here: int, first: int, begin: int) -> None:
        """Says which offsets expired, and keeps how many at once: no record may come behind them for long."""
        lost = begin - first
        if lost <= 0:
            return
        before = self._keeper.map.lost_before(each.here, each.place[1], here, here + 1)
        record = RunsRecord(
            topic=each.here, partition=each.place[1], runs=((here, begin),), end=here + 1, lost=before + lost
        )
        self._keeper.keep([record])
        self._tell(
            f"{_named(each)}: {quantity(lost, 'offset')} of the source, from {first} on, expired before they were "
            "mirrored"
        )

    def _sync(self, partitions: list[Partition]) -> None:
        """Has partitions go on where the target ends."""
        if not partitions:
            return
        self._take_acknowledgements()  # they come before the answers to what is asked now
        ends = self._target.offsets([each.target for each in partitions], LATEST)
        self._keeper.look()  # after that: whoever wrote up to there kept the runs before
        # Of what has none, or none yet: also where the runs of a former topic's first offsets were forgotten.
        anew = [each.place for each in partitions if each.runs.origin(ends.get(each.target, 0)) is None]
        begins = self._source.offsets(anew, EARLIEST)
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
                each.acknowledged = here
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
            if each.passed is not None:  # a mirror stood there before
                self._tell_lost(each, here, each.passed, begin)
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
        if passes(data.error_code):
            raise AwayError(f"{each.here}, partition {each.place[1]}: its leader is away")
        if data.error_code is ErrorCode.offset_out_of_range:
            return True  # all of it has expired there
        if data.error_code:
            raise HaltedError(f"the target refuses to send {each.here}: {_words_of(data.error_code)}")
        header = _last_header(data.records or b"")
        return header is None or (
            header[PRODUCER_ID] == self._mirror.producer_id
            and header[BASE_SEQUENCE] == header[BASE_OFFSET] & MAX_SEQUENCE
        )

    def _produce(self, outgoing: list[tuple[Partition, list[Outgoing]]]) -> None:
        """Produces the batches of a fetch.

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
            for number in range(max(len(batches) for _, batches in of_leader)):
                now = [(each, batches[number]) for each, batches in of_leader if number < len(batches)]
                now = [(each, batch) for each, batch in now if each.copying is not None]
                if not now:
                    continue
                if len(self._unacknowledged) >= _REQUESTS_UNDER_WAY:
                    self._take_acknowledgement()
                connection.produce([(each.here, each.place[1], batch) for each, batch in now])
                self._unacknowledged.append((connection, {each.target: (each, batch) for each, batch in now}))
        self._planned_to = [(each, each.copying, each.copying.there) for each, _ in outgoing if each.copying]
        if sum(batch.size for _, batches in outgoing for batch in batches) < _MORE_BYTES:
            self._take_acknowledgements()

    def _take_acknowledgements(self) -> None:
        """Waits for all that was produced, and takes note of how far partitions are with it."""
        while self._unacknowledged:
            self._take_acknowledgement()
        for each, copying, there in self._planned_to:
            if each.copying is copying:
                each.reached(there)
        self._planned_to.clear()

    def _take_acknowledgement(self) -> None:
        connection, sent = self._unacknowledged.popleft()
        self._acknowledge(connection.receive(), sent)

    def _acknowledge(self, answer: Any, sent: _Sent) -> None:
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
                    self._halt(each, HaltedError(_refused(each, code, batch.size, _why(result))))

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


def _to_keep(each: Partition, planned: Planned, end: int, known: MirrorMap) -> list[RunsRecord]:
    """What is to be kept of a plan before it is carried out; nothing where that is known."""
    runs = planned.runs
    if each.runs.agrees(runs, end):
        return []
    parts = [tuple(runs[at : at + _RUNS_AT_ONCE]) for at in range(0, len(runs), _RUNS_AT_ONCE)]
    ends = [*(part[0][0] for part in parts[1:]), end]
    topic, partition = each.target
    return [
        RunsRecord(
            topic=topic,
            partition=partition,
            runs=part,
            end=part_end,
            lost=known.lost_before(topic, partition, part[0][0], part_end),
        )
        for part, part_end in zip(parts, ends, strict=True)
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


def _words_of(code: ErrorCode) -> str:
    return code.name.replace("_", " ")


def _why(result: Any) -> str:
    """What a broker says of a batch that it refuses, of its first bad record where it names one."""
    of_records = [error.batch_index_error_message for error in result.record_errors]
    return next(filter(None, (*of_records, result.error_message)), "").strip().rstrip(".")


def _refused(each: Partition, code: ErrorCode, size: int, why: str) -> str:
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
    return f"the target refuses a batch of it: {_words_of(code)}" + (f" ({why})" if why else "")
