"""Has topics at the target be as those at the source are: there, with as many partitions, and with their settings."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import sleep
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
)

from headwater.mirror.end import TIMEOUT_S, End, text_of, why_refused
from headwater.mirror.errors import MirrorError
from headwater.mirror.kept import Keeper
from headwater.mirror.topics import followed
from headwater_streams.sources.mirrored import MIRROR_TOPIC, RunsRecord, TopicRecord

_LOOKS, _PAUSE_S = 20, 0.1
"""For topics that were made: how often, and after which pause, brokers are asked for them."""
_STAMPS, _CREATED = "message.timestamp.type", "CreateTime"
"""A record keeps its time, also where the target's brokers give each topic theirs."""


@dataclass(frozen=True)
class Existing:
    """What there is of a topic at the target.

    Attributes:
        partitions: How many partitions it has.
        why: Why it is not as it should be; empty where it is.
    """

    partitions: int
    why: str = ""


class TargetTopics:
    """Topics of the target that are mirrors."""

    def __init__(self, source: End, target: End, keeper: Keeper, tell: Callable[[str], None]) -> None:
        """Asks the target which settings it knows.

        Args:
            source: What is mirrored.
            target: What it is mirrored into.
            keeper: Keeps what topics are.
            tell: Takes a sentence for people; the same one many times.

        Raises:
            MirrorError: The topic of what is kept would forget it.
        """
        self._source, self._target, self._keeper, self._tell = source, target, keeper, tell
        self._forced: dict[str, str] = {}
        resource = ConfigResource(ConfigResource.Type.TOPIC, MIRROR_TOPIC)
        described = self._described(target, [resource])[MIRROR_TOPIC]
        self._known_settings = frozenset(described)
        policy = described.get("cleanup.policy")
        if policy is not None and policy.value != "compact":
            raise MirrorError(
                f"{MIRROR_TOPIC} at the target has cleanup.policy={policy.value}, and would forget what is mirrored: "
                f"headwater topics alter {MIRROR_TOPIC} --config cleanup.policy=compact mends that"
            )
        stamps = described.get(_STAMPS)
        if stamps is not None and stamps.value != _CREATED:
            self._forced = {_STAMPS: _CREATED}

    def follow(self, records: Mapping[str, TopicRecord]) -> dict[str, Existing]:
        """Has them be as those at the source are; all by their names there.

        Raises:
            AwayError: What they are could not be kept.
            KafkaException: Brokers cannot answer now.
        """
        settings = self._settings(records)
        existing = {
            name: self._follow_one(name, record, settings.get(name, {})) for name, record in records.items()
        }
        self._keep_ids([record for name, record in records.items() if not existing[name].why])
        return existing

    def _keep_ids(self, records: Sequence[TopicRecord]) -> None:
        """Keeps the ids of topics of which none is kept: by them a topic is told apart that others make later."""
        made = {each.name for each in records} - self._target.layout.leaders.keys()
        for _ in range(_LOOKS if made else 0):  # a broker may not have heard of them yet
            if self._target.refresh().leaders.keys() >= made:
                break
            sleep(_PAUSE_S)
        kept = (self._keeper.map.topics.get(each.name) for each in records)
        ids = self._target.layout.ids
        new = [each for each in kept if each is not None and not each.here_id and each.name in ids]
        if new:
            self._keeper.keep([replace(each, here_id=text_of(ids[each.name])) for each in new])

    def _follow_one(self, name: str, record: TopicRecord, settings: dict[str, str]) -> Existing:
        count = len(self._source.layout.leaders[name])
        changes, taken_over = followed(settings, record.configs, self._known_settings)
        existing = self._target.layout.leaders.get(record.name)
        if existing is None:
            record = replace(record, here_id="")
        if record != self._keeper.map.topics.get(record.name) or (existing is None):
            # Before the topic is there: a mirror the other way reads it then.
            self._keeper.keep([*self._resets(record), record])
        there = len(existing or ())
        try:
            if existing is None:
                config = {**taken_over, **self._forced}
                new = NewTopic(record.name, num_partitions=count, replication_factor=-1, config=config)
                self._target.admin().create_topics([new], request_timeout=TIMEOUT_S)[record.name].result()
            elif there < count:
                grown = [NewPartitions(record.name, count)]
                futures = self._target.admin().create_partitions(grown, request_timeout=TIMEOUT_S)
                futures[record.name].result()
            there = count
            if existing is not None and changes:
                self._alter(record.name, changes.set, changes.removed)
        except KafkaException as error:
            why = why_refused(error)
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                return Existing(
                    there, f"topic {record.name} at the target cannot be made as {name} is: {why}"
                )
            there = count  # another process made it
        if changes:
            self._keeper.keep([replace(record, configs=taken_over)])
        return Existing(there)

    def _alter(self, topic: str, new: Any, removed: Iterable[str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in new.items()
        ]
        entries += [
            ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE) for name in removed
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        self._target.admin().incremental_alter_configs([resource], request_timeout=TIMEOUT_S)[
            resource
        ].result()

    def _resets(self, record: TopicRecord) -> list[RunsRecord]:
        """What is kept where a topic was made anew at the source: its offsets have nothing to do with those before."""
        known = self._keeper.map.topics.get(record.name)
        if known is None or not known.topic_id or known.topic_id == record.topic_id:
            return []
        numbers = [number for topic, number in tuple(self._keeper.map.runs) if topic == record.name]
        return [RunsRecord(topic=record.name, partition=each, runs=((0, 0),), end=None) for each in numbers]

    def _settings(self, records: Mapping[str, TopicRecord]) -> dict[str, dict[str, str]]:
        """The settings that the source's topics have of their own."""
        if not records:
            return {}
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in records]
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {
            topic: {
                name: entry.value
                for name, entry in entries.items()
                if entry.source == own and entry.value is not None and not entry.is_sensitive
            }
            for topic, entries in self._described(self._source, resources).items()
        }

    def _described(self, end: End, resources: list[ConfigResource]) -> dict[str, dict[str, Any]]:
        found = {}
        for resource, future in end.admin().describe_configs(resources, request_timeout=TIMEOUT_S).items():
            try:
                found[resource.name] = future.result()
            except KafkaException as error:
                why = why_refused(error)
                self._tell(
                    f"the settings of topic {resource.name} of {end.cluster.bootstrap} are not followed: {why}"
                )
                found[resource.name] = {}
        return found
