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
| `runs TAB <topic> TAB <partition> TAB <offset>` | a `RunsRecord`: the runs from that offset on |

In the order of the log, a `RunsRecord` replaces all that was written before it of its offset and of later ones.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Self

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
        origin: What origins call that topic: another name, where it was made anew under the one that it had.
        via: The ids of all clusters that its records came through, the first of them first, `source` last.
        configs: Those of its settings that were taken over.
    """

    name: str
    source: str
    topic: str
    topic_id: str
    origin: str
    via: tuple[str, ...]
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> bytes:
        """The key of its record."""
        return f"{_TOPIC}\t{self.name}".encode()


@dataclass(frozen=True, kw_only=True)
class RunsRecord:
    """Runs of a partition.

    Attributes:
        topic: The topic here.
        partition: The partition, here and there.
        runs: The first offset of each run here, and the offset there that it stands for; at least one.
    """

    topic: str
    partition: int
    runs: tuple[tuple[int, int], ...]

    @property
    def key(self) -> bytes:
        """The key of its record."""
        return f"{_RUNS}\t{self.topic}\t{self.partition}\t{self.runs[0][0]}".encode()


AnyRecord = MirrorRecord | TopicRecord | RunsRecord


def to_json(record: AnyRecord) -> bytes:
    """The value of a record."""
    return json.dumps({"version": _VERSION, **asdict(record)}, separators=(",", ":")).encode()


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
    return TopicRecord(**{**values, "via": tuple(values["via"]), "configs": dict(values["configs"])})


def _runs(values: dict[str, Any]) -> RunsRecord:
    runs = tuple((int(here), int(there)) for here, there in values["runs"])
    if not runs or any(one >= other for one, other in pairwise(runs)) or runs[0] < (0, 0):
        raise ValueError("runs begin at growing offsets")
    return RunsRecord(**{**values, "runs": runs})


_KINDS: dict[str, Callable[[dict[str, Any]], AnyRecord]] = {_MIRROR: _mirror, _TOPIC: _topic, _RUNS: _runs}


class Runs:
    """The runs of one partition: offsets here, and those at the origin that they stand for.

    One thread may add runs while others ask for `translated`.
    """

    __slots__ = ("_here", "_there")

    def __init__(self, runs: Iterable[tuple[int, int]] = ()) -> None:
        """Begins with runs in order."""
        self._here: list[int] = []
        self._there: list[int] = []
        for here, there in runs:
            self.begin(here, there)

    def __len__(self) -> int:
        return len(self._here)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._here, self._there, strict=True)

    def begin(self, here: int, there: int) -> None:
        """A run begins at an offset, and replaces what was known from there on."""
        self.cut(here)
        self._here.append(here)
        self._there.append(there)

    def cut(self, here: int) -> bool:
        """Forgets runs that begin at an offset or behind it; tells whether there were any behind it."""
        place = bisect_left(self._here, here)
        beyond = bool(self._here[place:] and self._here[-1] > here)
        del self._there[place:], self._here[place:]  # `_here` is never the shorter one for another thread
        return beyond

    def origin(self, here: int) -> int | None:
        """The offset at the origin of the record that stands, or will stand, at an offset; None before the first run.

        Example:
            >>> runs = Runs([(0, 100), (10, 120)])
            >>> runs.origin(9), runs.origin(10), runs.origin(12)
            (109, 120, 122)
        """
        place = bisect_right(self._here, here) - 1
        return None if place < 0 else self._there[place] + here - self._here[place]

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
        place = bisect_right(self._there, there) - 1
        if place < 0:
            return min(self._here[0], end) if self._here else end
        next_run = self._here[place + 1] if place + 1 < len(self._here) else end
        return min(self._here[place] + there - self._there[place], next_run, end)


@dataclass
class MirrorMap:
    """What the topic says.

    Attributes:
        mirrors: By the id of the cluster that is mirrored.
        topics: By their names here.
        runs: By topic and partition here.
        passed_over: How many records were none that this version reads.
    """

    mirrors: dict[str, MirrorRecord] = field(default_factory=dict)
    topics: dict[str, TopicRecord] = field(default_factory=dict)
    runs: dict[tuple[str, int], Runs] = field(default_factory=dict)
    passed_over: int = 0

    @classmethod
    def of(cls, records: Iterable[tuple[bytes | None, bytes | None]]) -> Self:
        """Reads records, keys and values, in the order of the log."""
        found = cls()
        for key, value in records:
            try:
                if key is not None and value is not None:
                    found.take(from_json(key, value))
            except MirrorRecordError:
                found.passed_over += 1
        return found

    def take(self, record: AnyRecord) -> None:
        """Takes note of a record."""
        if isinstance(record, MirrorRecord):
            self.mirrors[record.source] = record
        elif isinstance(record, TopicRecord):
            self.topics[record.name] = record
        else:
            runs = self.runs.setdefault((record.topic, record.partition), Runs())
            for here, there in record.runs:
                runs.begin(here, there)
