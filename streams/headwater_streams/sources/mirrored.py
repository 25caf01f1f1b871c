r"""Where the records of a mirrored topic first stood: what `headwater mirror` keeps in the topic `__headwater_mirror`.

A mirror copies whole batches, so a record has no room for its origin. Offsets of a mirrored partition follow those of
its origin in runs: within one, both count on by one. A new run begins where the origin has offsets without records,
those of transactions' markers, of compacted records and of what expired before it was mirrored. Most partitions are
one run for ever.

The topic is compacted, has one partition, and these records:

| key | value |
|---|---|
| `mirror TAB <cluster id>` | a `MirrorRecord`: the cluster that is mirrored, and the producer id of its batches here |
| `topic TAB <topic>` | a `TopicRecord`: which topic it is a mirror of, and through which clusters it came |
| `runs TAB <topic> TAB <partition> TAB <start> TAB <end>` | a `RunsRecord`: the runs of the offsets between |

In the order of the log, a `RunsRecord` replaces what was known of its own offsets, and nothing of others. It is written
before the records that it is about, so it may be about records that were never written: then another replaces it. It
goes once these offsets have expired here.
"""

import json
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from threading import Lock
from typing import Any, Self

from headwater_streams.sources.topic_metadata import shown_id

MIRROR_TOPIC = "__headwater_mirror"
_VERSION = 1
_MIRROR, _TOPIC, _RUNS = "mirror", "topic", "runs"


class MirrorRecordError(ValueError):
    """A record of `__headwater_mirror` is not one that a mirror of this version writes."""


@dataclass(frozen=True, kw_only=True)
class MirrorRecord:
    """A cluster that is mirrored into this one.

    Attributes:
        source: Its id.
        name: What origins call it.
        producer_id: Of every batch that the mirror writes here.
        producer_epoch: Of the same.
    """

    source: str
    name: str
    producer_id: int
    producer_epoch: int

    @property
    def key(self) -> bytes:
        """The key of its record."""
        return f"{_MIRROR}\t{self.source}".encode()


@dataclass(frozen=True, kw_only=True)
class TopicRecord:
    """A topic of this cluster that is a mirror of another one's.

    Attributes:
        name: Its name here.
        source: The id of the cluster that it is mirrored from.
        topic: Its name there.
        topic_id: The id of that topic; empty where its brokers give none.
        here_id: The id of the topic here; empty where the brokers give none, and until it is made.
        origin: What origins call that topic: another name, where it was made anew under the one that it had.
        via: The ids of all clusters that its records came through, the first of them first, `source` last.
        configs: Those of its settings that were taken over.
        released: Where its partitions ended when others were allowed to write to it; None: nobody else may.
    """

    name: str
    source: str
    topic: str
    topic_id: str
    origin: str
    via: tuple[str, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    released: Mapping[int, int] | None = None
    here_id: str = ""

    def is_here(self, topic_id: str | None) -> bool:
        """Whether the topic with an id is this mirror, not one that was made after it under its name.

        Where either id is not known, it is.
        """
        known = shown_id(topic_id)
        return not (known and self.here_id) or known == self.here_id

    def mirrored_before(self, partition: int, end: int) -> int:
        """The offset behind the last one before another that the mirror wrote: what others wrote has no origin."""
        return end if self.released is None else min(end, self.released.get(partition, 0))

    @property
    def key(self) -> bytes:
        """The key of its record."""
        return f"{_TOPIC}\t{self.name}".encode()


@dataclass(frozen=True, kw_only=True)
class RunsRecord:
    """The runs of some offsets of a partition.

    Attributes:
        topic: The topic here.
        partition: The partition, here and there.
        runs: The first offset of each run here, and the offset there that it stands for; at least one.
        end: The offset here behind those that it is about; None: it is about all, as of a topic that is made anew.
        lost: How many offsets there, before the first run's, expired before they were mirrored.
    """

    topic: str
    partition: int
    runs: tuple[tuple[int, int], ...]
    end: int | None
    lost: int = 0

    @property
    def key(self) -> bytes:
        """The key of its record."""
        return runs_key(self.topic, self.partition, self.runs[0][0], self.end)


def runs_key(topic: str, partition: int, start: int, end: int | None) -> bytes:
    """The key of a `RunsRecord`."""
    return f"{_RUNS}\t{topic}\t{partition}\t{start}\t{'' if end is None else end}".encode()


AnyRecord = MirrorRecord | TopicRecord | RunsRecord


def to_json(record: AnyRecord) -> bytes:
    """The value of a record."""
    values = {"version": _VERSION, **asdict(record)}
    if values.get("released", ...) is None:
        del values["released"]
    if values.get("here_id") == "":
        del values["here_id"]
    return json.dumps(values, separators=(",", ":")).encode()


def from_json(key: bytes, value: bytes) -> AnyRecord:
    """The record that a key and a value are.

    Raises:
        MirrorRecordError: They are none.
    """
    try:
        values: dict[str, Any] = json.loads(value)
        version = values.pop("version")
        record = _KINDS[key.split(b"\t", 1)[0].decode()](values)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise MirrorRecordError(f"no record of {MIRROR_TOPIC}: {value[:80]!r}") from error
    if version != _VERSION or record.key != key:
        raise MirrorRecordError(f"no record of {MIRROR_TOPIC} that this version reads: {value[:80]!r}")
    return record


def _mirror(values: dict[str, Any]) -> MirrorRecord:
    return MirrorRecord(**values)


def _topic(values: dict[str, Any]) -> TopicRecord:
    released = values.get("released")
    if released is not None:
        values["released"] = {int(partition): int(end) for partition, end in released.items()}
    return TopicRecord(**{**values, "via": tuple(values["via"]), "configs": dict(values["configs"])})


def _runs(values: dict[str, Any]) -> RunsRecord:
    runs = tuple((int(here), int(there)) for here, there in values["runs"])
    if (
        not runs
        or runs[0] < (0, 0)
        or any(other - one < 1 for one, other in pairwise(here for here, _ in runs))
    ):
        raise ValueError("runs begin at growing offsets")
    if values["end"] is not None and not runs[-1][0] < values["end"]:
        raise ValueError("runs begin before their end")
    return RunsRecord(**{**values, "runs": runs})


_KINDS: dict[str, Callable[[dict[str, Any]], AnyRecord]] = {_MIRROR: _mirror, _TOPIC: _topic, _RUNS: _runs}


class Runs:
    """The runs of one partition: offsets here, and those at the origin that they stand for.

    A run is further ahead at its origin than the one before it: the origin has offsets that are not here. Only where
    records were copied twice it is the other way round. One thread may `put` while others ask.
    """

    __slots__ = ("_here", "_lock", "_there")

    def __init__(self, runs: Sequence[tuple[int, int]] = ()) -> None:
        """Begins with runs in order."""
        self._here, self._there = array("q"), array("q")
        self._lock = Lock()
        if runs:
            self.put(runs, None)

    def __len__(self) -> int:
        return len(self._here)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._here, self._there, strict=True)

    def put(self, runs: Sequence[tuple[int, int]], end: int | None) -> None:
        """Replaces what is known of the offsets from the first run's on.

        A run behind those that is less far ahead was kept for records that were never written, and goes.

        Args:
            runs: The runs, in order; at least one.
            end: The offset behind those that are replaced; None: all are.

        Example:
            >>> runs = Runs([(0, 100), (10, 120), (20, 140)])
            >>> runs.put([(5, 105), (8, 110)], 12)
            >>> list(runs)
            [(0, 100), (8, 110), (20, 140)]
        """
        with self._lock:
            first = bisect_left(self._here, runs[0][0])
            behind = len(self._here) if end is None else bisect_left(self._here, end)
            kept = zip(self._here[behind:], self._there[behind:], strict=True)
            heres, theres = array("q"), array("q")
            ahead = self._there[first - 1] - self._here[first - 1] if first else None
            for here, there in runs:
                if there - here != ahead:
                    heres.append(here)
                    theres.append(there)
                    ahead = there - here
            for here, there in kept:
                if ahead is None or there - here > ahead:
                    heres.append(here)
                    theres.append(there)
                    ahead = there - here
            self._here[first:], self._there[first:] = heres, theres

    def forget(self, start: int, end: int) -> None:
        """Forgets the runs that begin between two offsets."""
        with self._lock:
            place = slice(bisect_left(self._here, start), bisect_left(self._here, end))
            del self._here[place], self._there[place]

    def start_of_run(self, here: int) -> int | None:
        """The first offset of the run that an offset belongs to; None before the first run."""
        with self._lock:
            place = bisect_right(self._here, here) - 1
            return None if place < 0 else self._here[place]

    def origin(self, here: int) -> int | None:
        """The offset at the origin of the record that stands, or will stand, at an offset; None before the first run.

        Example:
            >>> runs = Runs([(0, 100), (10, 120)])
            >>> runs.origin(9), runs.origin(10), runs.origin(12)
            (109, 120, 122)
        """
        with self._lock:
            place = bisect_right(self._here, here) - 1
            return None if place < 0 else self._there[place] + here - self._here[place]

    def between(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """What each run has of the offsets `[start, end)`: the first one, the one behind the last, how far ahead it is.

        Example:
            >>> Runs([(0, 100), (10, 120), (20, 140)]).between(5, 12)
            [(5, 10, 100), (10, 12, 110)]
        """
        if start >= end:
            return []
        with self._lock:
            place = max(bisect_right(self._here, start) - 1, 0)
            stop = bisect_left(self._here, end)
            heres, theres = self._here[place:stop], self._there[place:stop]
        behind = [*heres[1:], end] if heres else []
        return [
            (max(here, start), last, there - here)
            for here, there, last in zip(heres, theres, behind, strict=True)
        ]

    def agrees(self, runs: Sequence[tuple[int, int]], end: int) -> bool:
        """Whether runs, in order, are what is known of the offsets from the first one's on until `end`.

        Example:
            >>> runs = Runs([(0, 100), (10, 120)])
            >>> runs.agrees([(5, 105), (10, 120)], 15), runs.agrees([(5, 105)], 15), runs.agrees([(12, 122)], 15)
            (True, False, True)
        """
        known = [(first, first + ahead) for first, _, ahead in self.between(runs[0][0], end)]
        return known == list(runs)

    def translated(self, there: int, end: int) -> int:
        """The offset here from which on the records stand that are at or behind an offset of the origin.

        Args:
            there: An offset of the origin, as a group commits it: that of the next record to read.
            end: Where the partition ends here; what is beyond it is not mirrored yet.

        Example:
            >>> runs = Runs([(0, 100), (10, 120)])
            >>> [runs.translated(there, 15) for there in (5, 100, 109, 113, 120, 121, 500)]
            [0, 0, 9, 10, 10, 11, 15]
        """
        with self._lock:
            place = bisect_right(self._there, there) - 1
            if place < 0:
                return min(self._here[0], end) if self._here else end
            next_run = self._here[place + 1] if place + 1 < len(self._here) else end
            return min(self._here[place] + there - self._there[place], next_run, end)


@dataclass
class MirrorMap:
    """What the topic says. One thread may `read` while others ask.

    Attributes:
        mirrors: By the id of the cluster that is mirrored.
        topics: By their names here.
        runs: By topic and partition here.
        kept: The offsets that each `RunsRecord` of a partition is about, and how many were lost before them.
        passed_over: How many records were none that this version reads.
    """

    mirrors: dict[str, MirrorRecord] = field(default_factory=dict)
    topics: dict[str, TopicRecord] = field(default_factory=dict)
    runs: dict[tuple[str, int], Runs] = field(default_factory=dict)
    kept: dict[tuple[str, int], dict[tuple[int, int | None], int]] = field(default_factory=dict)
    passed_over: int = 0

    @classmethod
    def of(cls, records: Iterable[tuple[bytes | None, bytes | None]]) -> Self:
        """Reads records, keys and values, in the order of the log."""
        found = cls()
        for key, value in records:
            found.read(key, value)
        return found

    def read(self, key: bytes | None, value: bytes | None) -> None:
        """Takes note of what a key and a value say; counts those that are no record."""
        try:
            if key is None:
                self.passed_over += 1
            elif value is not None:
                self._take(from_json(key, value))
            elif key.startswith(f"{_RUNS}\t".encode()):
                self._forget(key)
        except MirrorRecordError:
            self.passed_over += 1

    def runs_of(self, topic: str, partition: int) -> Runs:
        """The runs of a partition here, which are kept up to date."""
        return self.runs.setdefault((topic, partition), Runs())

    def lost(self, topic: str, partition: int) -> int:
        """How many offsets of the origin expired before they were mirrored."""
        return sum(tuple(self.kept.get((topic, partition), {}).values()))

    def lost_before(self, topic: str, partition: int, start: int, end: int) -> int:
        """How many of these the record about the offsets `[start, end)` here says."""
        return self.kept.get((topic, partition), {}).get((start, end), 0)

    def unneeded(self, topic: str, partition: int, begin: int) -> list[bytes]:
        """The keys of records about offsets before the first one that a partition here still has.

        Those that say what was lost stay.
        """
        start = self.runs_of(topic, partition).start_of_run(begin)
        return [
            runs_key(topic, partition, first, end)
            for (first, end), lost in tuple(self.kept.get((topic, partition), {}).items())
            if start is not None and end is not None and end <= start and not lost
        ]

    def _take(self, record: AnyRecord) -> None:
        if isinstance(record, MirrorRecord):
            self.mirrors[record.source] = record
        elif isinstance(record, TopicRecord):
            self.topics[record.name] = record
        else:
            self.runs_of(record.topic, record.partition).put(record.runs, record.end)
            kept = self.kept.setdefault((record.topic, record.partition), {})
            if record.end is None:
                kept.clear()
            kept[record.runs[0][0], record.end] = record.lost

    def _forget(self, key: bytes) -> None:
        try:
            _, topic, partition, start, end = key.decode().split("\t")
            place, offsets = (topic, int(partition)), (int(start), int(end))
        except ValueError as error:
            raise MirrorRecordError(f"no key of {MIRROR_TOPIC}: {key[:80]!r}") from error
        self.kept.get(place, {}).pop(offsets, None)
        self.runs_of(*place).forget(*offsets)
