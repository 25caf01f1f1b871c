"""The mirror: finds topics, keeps their names, partitions and settings alike, and has lanes copy them."""

import hashlib
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import UUID

from confluent_kafka import KafkaException

from headwater.errors import reason
from headwater.mirror.end import EARLIEST, LATEST, End, Place, text_of
from headwater.mirror.errors import AwayError, MirrorError, text_of_error
from headwater.mirror.groups import GroupOffsets, Mirrored
from headwater.mirror.kept import Keeper, load, require_topic
from headwater.mirror.lane import Lane, Tell
from headwater.mirror.partition import Partition
from headwater.mirror.target_topics import TargetTopics
from headwater.mirror.topics import Choice, Refused, record_of
from headwater_streams.base.nearest import nearest
from headwater_streams.base.plural import quantity
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.mirrored import MirrorMap, MirrorRecord, TopicRecord

_PAUSE_S = 1.0
_FORGOTTEN_AT_ONCE = 10_000
"""librdkafka takes 100,000 records before it has sent any."""


@dataclass(frozen=True)
class MirrorOptions:
    """What is mirrored, and how.

    Attributes:
        choice: Which topics.
        name: What origins call the source; empty: what they call it already, at first `default_name`.
        default_name: Empty: its cluster id.
        groups: Whether a group's offsets are translated.
        once: End when everything is mirrored that was there at the start.
        status_folder: Where to save how far it is, in a file of its own; None: nowhere.
        refresh_s: How often topics and settings are looked at.
        groups_s: How often groups' offsets are translated.
        settle_s: How long a partition that cannot go on waits for the next attempt.
    """

    choice: Choice
    name: str = ""
    default_name: str = ""
    groups: Callable[[str], bool] | None = None
    once: bool = False
    status_folder: Path | None = None
    refresh_s: float = 5.0
    groups_s: float = 5.0
    settle_s: float = 60.0


class Mirror:
    """Mirrors until it is stopped, or until everything is mirrored."""

    def __init__(
        self,
        source: KafkaCluster,
        target: KafkaCluster,
        options: MirrorOptions,
        *,
        stop: Event,
        tell: Tell,
        report: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        """Prepares.

        Args:
            source: What is mirrored.
            target: What it is mirrored into.
            options: How.
            stop: Set when it is to stop.
            tell: Takes a sentence for people.
            report: Takes `status` once a second.
        """
        self._source, self._target = End(source), End(target)
        self._options, self._stop, self._tell, self._report = options, stop, tell, report
        self._map = MirrorMap()
        self._mirror: MirrorRecord | None = None
        self._keeper: Keeper | None = None
        self._partitions: dict[Place, Partition] = {}
        self._lanes: dict[int, Lane] = {}
        self._at_source: MirrorMap | None = None
        self._seen_topics: frozenset[tuple[str, UUID | None]] = frozenset()
        self._told: set[str] = set()
        self._refused: list[str] = []
        self._groups = GroupOffsets(self._source, self._target, options.groups, self._tell_once)
        self._topics: TargetTopics | None = None
        self._passed: dict[Place, int] | None = None
        self._ends: dict[Place, int] | None = None
        self._has_ended = Event()

    def run(self) -> dict[str, Any]:
        """Mirrors.

        Returns:
            The last `status`.

        Raises:
            MirrorError: It cannot begin, or cannot go on.
        """
        saver = Thread(target=self._save_until_ended, name="mirror-status", daemon=True)
        saver.start()
        try:
            away = self._mirror_until_stopped()
            self._stop_lanes()
            failure = next((lane.failure for lane in self._lanes.values() if lane.failure is not None), None)
            if failure is not None:
                raise failure
            if self._mirror is not None and not away:
                self._follow_groups_at_the_end()
        finally:
            self._stop_lanes()
            self._has_ended.set()
            saver.join()
            self._save()
            if self._keeper is not None:
                self._keeper.close()
            self._source.drop_connections()
            self._target.drop_connections()
        if self._options.once:
            self._require_all()
        return self.status()

    def _follow_groups_at_the_end(self) -> None:
        try:
            self._groups.follow(self._mirrored())
        except (AwayError, KafkaException) as error:
            why = f"the groups' offsets are not what they are at the source: {text_of_error(error)}"
            if self._options.once:
                raise MirrorError(why) from error
            self._tell(why)

    def _mirror_until_stopped(self) -> str:
        """Mirrors; returns which cluster is away, empty where none is."""
        next_s = dict.fromkeys(("refresh", "groups", "retry"), 0.0)
        away = ""
        while not self._stop.is_set():
            now_s = time.monotonic()
            try:
                if self._mirror is None:
                    self._begin()
                if now_s >= next_s["refresh"]:
                    self._refresh()
                    next_s["refresh"] = now_s + self._options.refresh_s
                if now_s >= next_s["groups"]:
                    self._groups.follow(self._mirrored())
                    next_s["groups"] = now_s + self._options.groups_s
                if now_s >= next_s["retry"]:
                    for each in self._partitions.values():
                        each.halted = ""
                    self._forget_expired()
                    next_s["retry"] = now_s + self._options.settle_s
                away = ""
            except (AwayError, KafkaException) as error:
                text = text_of_error(error)
                if self._mirror is None and self._options.once:
                    raise MirrorError(text) from error
                if self._mirror is None and away != text:
                    self._tell(f"{text}; the mirror waits for it")
                away = text
                self._source.drop_connections()
                self._target.drop_connections()
            if self._options.once and self._is_done():
                break
            self._stop.wait(_PAUSE_S if not self._options.once else 0.1)
        return away

    def _stop_lanes(self) -> None:
        self._stop.set()
        for lane in self._lanes.values():
            lane.join()

    def _require_all(self) -> None:
        """Requires that everything could be mirrored.

        Raises:
            MirrorError: Something could not; it is named.
        """
        if self._refused:
            raise MirrorError(self._refused[0])
        if not self._is_done():
            raise MirrorError(
                "the mirror was stopped before everything was mirrored; the same command goes on"
            )
        halted = [each for each in self._partitions.values() if each.halted]
        if halted:
            raise MirrorError(
                f"{quantity(len(halted), 'partition')} could not be mirrored, as {halted[0].place[0]}, partition "
                f"{halted[0].place[1]}: {halted[0].halted}"
            )

    def status(self) -> dict[str, Any]:
        """How far it is: one object, with one for each topic and one for each partition below."""
        topics: dict[str, list[Partition]] = {}
        for each in self._partitions.values():
            topics.setdefault(each.place[0], []).append(each)
        return {
            "source": self._source.cluster.bootstrap,
            "source_id": self._source.layout.cluster_id,
            "target": self._target.cluster.bootstrap,
            "target_id": self._target.layout.cluster_id,
            "at_ms": int(time.time() * 1000),
            "ended": self._has_ended.is_set(),
            "refused": self._refused,
            "away": next((lane.away for lane in [*self._lanes.values()] if lane.away), ""),
            "topics": [
                {
                    "topic": topic,
                    "target": partitions[0].here,
                    "records": sum(each.records for each in partitions),
                    "lost": sum(map(self._lost, partitions)),
                    "lag": _lag(partitions),
                    "open": sum(each.open for each in partitions),
                    "partitions": [
                        {
                            "partition": each.place[1],
                            "mirrored_to": each.mirrored_to,
                            "source_end": each.source_end,
                            "lost": self._lost(each),
                            "halted": each.halted,
                        }
                        for each in sorted(partitions, key=lambda each: each.place[1])
                    ],
                }
                for topic, partitions in sorted(topics.items())
            ],
        }

    def _lost(self, each: Partition) -> int:
        return self._map.lost(*each.target)

    def _begin(self) -> None:
        source, target = self._source.refresh(), self._target.refresh()
        if source.cluster_id == target.cluster_id:
            raise MirrorError(
                f"{self._source.cluster.bootstrap} and {self._target.cluster.bootstrap} are one cluster, "
                f"{source.cluster_id}: a mirror is between two"
            )
        require_topic(self._target)
        if self._keeper is not None:  # of an attempt that failed
            self._keeper.close()
        self._keeper = Keeper(self._target)
        self._map = self._keeper.map
        mirror = self._map.mirrors.get(source.cluster_id)
        if mirror is None:
            mirror = MirrorRecord(
                source=source.cluster_id,
                name=self._options.name or self._options.default_name or source.cluster_id,
                producer_id=producer_of(source.cluster_id),
                producer_epoch=0,
            )
            self._keeper.keep([mirror])
        elif self._options.name and self._options.name != mirror.name:
            raise MirrorError(
                f"origins of this source are named {mirror.name} at the target already: leave --name out, or give that"
            )
        self._topics = TargetTopics(self._source, self._target, self._keeper, self._tell_once)
        self._mirror = mirror

    def _refresh(self) -> None:
        """Looks at topics, partitions and settings on both sides, and gives the lanes their work."""
        source, target = self._source.refresh(), self._target.refresh()
        if self._passed is None:
            self._passed = self._groups.passed()
        assert self._keeper is not None
        self._keeper.look()  # other processes mirror and release topics, too
        names = [name for name in sorted(source.leaders) if self._options.choice.has(name)]
        topics = frozenset((name, source.ids.get(name)) for name in names)
        if self._at_source is None or not self._seen_topics.issuperset(topics):
            # A mirror into the source keeps there what a topic is before it makes the topic.
            self._at_source = load(self._source)
            self._seen_topics = topics
        records: dict[str, TopicRecord] = {}
        if not names:
            others = sorted(each for each in source.leaders if not each.startswith("__"))
            there = nearest(self._options.choice.text, others) or "none"
            self._tell_once(f"no topic of {self._source.cluster.bootstrap} matches --topics; it has {there}")
        returned, refused = list[str](), list[str]()
        for name in names:
            here = f"{self._options.choice.prefix}{name}"
            record = record_of(
                name,
                self._options.choice,
                source.cluster_id,
                target.cluster_id,
                self._at_source,
                self._map,
                topic_id=text_of(source.ids.get(name)),
                here_id=text_of(target.ids.get(here)),
                is_at_target=here in target.leaders,
            )
            if isinstance(record, Refused):
                refused.append(record.why)
            elif record is None:
                returned.append(name)
            else:
                records[name] = record
        if returned:
            of_them = quantity(len(returned), "topic that came", "topics that came")
            self._tell_once(f"{of_them} from the target: not copied back, as {returned[0]}")
        assert self._topics is not None
        existing = self._topics.follow(records)
        refused += [each.why for each in existing.values() if each.why]
        partitions = {
            (name, number): self._partition((name, number), record)
            for name, record in records.items()
            for number in source.leaders[name]
            if number < existing[name].partitions
        }
        self._partitions, self._refused = partitions, refused
        self._assign()
        for why in refused:
            self._tell_once(why)
        if self._ends is None and self._options.once:
            ends = self._source.offsets(partitions, LATEST, committed=True)
            for place, end in ends.items():
                partitions[place].source_end = max(partitions[place].source_end or 0, end)
            if lacking := partitions.keys() - ends.keys():
                (topic, number), more = min(lacking), len(lacking) - 1
                which = f"topic {topic}, partition {number}" + (f" and {more} more" if more else "")
                self._tell_once(f"{which}: nobody leads it at the source; the mirror waits for it")
            else:
                self._ends = ends

    def _partition(self, place: Place, record: TopicRecord) -> Partition:
        topic_id, known = self._source.layout.ids.get(place[0]), self._partitions.get(place)
        leader = self._source.leader(place)
        if known is not None and known.topic_id == topic_id:
            if leader in (known.lane, -1):
                return known
            return replace(known, lane=leader, copying=None)  # the other lane may be at work on the old one
        runs = self._map.runs_of(record.name, place[1])
        passed = (self._passed or {}).get(place)
        return Partition(place, topic_id, record.name, runs, leader, passed=passed)

    def _forget_expired(self) -> None:
        """Forgets the runs of what the target itself has no more."""
        assert self._keeper is not None
        begins = self._target.offsets([each.target for each in self._partitions.values()], EARLIEST)
        keys = [key for place, begin in begins.items() for key in self._map.unneeded(*place, begin)]
        for at in range(0, len(keys), _FORGOTTEN_AT_ONCE):
            self._keeper.keep([], forgotten=keys[at : at + _FORGOTTEN_AT_ONCE])

    def _assign(self) -> None:
        by_leader: dict[int, dict[Place, Partition]] = {}
        for place, each in self._partitions.items():
            by_leader.setdefault(self._source.leader(place), {})[place] = each
        for leader in by_leader.keys() - self._lanes.keys() - {-1}:
            assert self._mirror is not None
            assert self._keeper is not None
            self._lanes[leader] = Lane(
                self._source.cluster,
                self._target.cluster,
                self._mirror,
                self._keeper,
                stop=self._stop,
                tell=self._tell,
            )
            self._lanes[leader].start()
        for leader, lane in self._lanes.items():
            lane.work.assign(by_leader.get(leader, {}))

    def _mirrored(self) -> dict[Place, Mirrored]:
        return {
            place: Mirrored(each.target, each.runs, each.acknowledged, each.mirrored_to)
            for place, each in self._partitions.items()
            if each.mirrored_to is not None
        }

    def _is_done(self) -> bool:
        if any(lane.failure for lane in self._lanes.values()):
            return True
        return self._ends is not None and all(
            place not in self._partitions  # its topic was deleted, or is refused by now
            or self._partitions[place].halted
            or (self._partitions[place].mirrored_to or 0) >= end
            for place, end in self._ends.items()
        )

    def _save_until_ended(self) -> None:
        """Saves how far it is, beside what waits for brokers: one that saves nothing is taken for one that stopped."""
        while not self._has_ended.wait(_PAUSE_S):
            self._save()

    def _save(self) -> None:
        status = self.status()
        self._report(status)
        folder = self._options.status_folder
        if folder is None or self._mirror is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{self._mirror.source}-{self._target.layout.cluster_id}.json"
            new = path.with_suffix(".new")
            new.write_text(json.dumps(status), encoding="utf-8")
            new.replace(path)
        except OSError as error:
            self._tell_once(
                f"cannot write to {folder}: {reason(error)}; headwater status does not show this mirror"
            )

    def _tell_once(self, sentence: str) -> None:
        if sentence not in self._told:
            self._told.add(sentence)
            self._tell(sentence)


def producer_of(source: str) -> int:
    """The producer id of a mirror, from the id of the cluster that is mirrored: all its processes have the same.

    Brokers give ids from 0 on; these are beyond any that they ever give.
    """
    digest = hashlib.sha256(f"headwater-mirror {source}".encode()).digest()
    return 1 << 61 | int.from_bytes(digest[:8]) >> 3


def _lag(partitions: Iterable[Partition]) -> int | None:
    """How many offsets of the source are not mirrored; None where that is not known of all."""
    lag = 0
    for each in partitions:
        if each.mirrored_to is None or each.source_end is None:
            return None
        lag += max(each.source_end - each.mirrored_to, 0)
    return lag
