"""Which topics are mirrored, under which names and with which settings. It decides and asks nobody."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from headwater.errors import UsageError
from headwater_streams.sources.mirrored import MirrorMap, TopicRecord

OWN_SETTINGS = frozenset(
    {
        "confluent.key.schema.validation",
        "confluent.value.schema.validation",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "min.insync.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "unclean.leader.election.enable",
    }
)
"""Settings that each cluster has of its own: how many brokers it has, whether it has tiered storage, and how records
are stamped and judged when they are produced. A mirrored record keeps its timestamp, which is the older the further the
mirror is behind (KAFKA-20163), and its topic's name may be of no subject. Brokers without tiered storage make no topic
that has it."""


@dataclass(frozen=True)
class Choice:
    """Which topics are mirrored, and what they are called.

    Attributes:
        patterns: Regular expressions; a topic is mirrored whose whole name matches one.
        excluded: Those that are not, even so.
        prefix: What stands before the names at the target.
    """

    patterns: tuple[re.Pattern[str], ...]
    excluded: tuple[re.Pattern[str], ...] = ()
    prefix: str = ""

    @property
    def text(self) -> str:
        """The patterns as they were typed."""
        return "|".join(each.pattern for each in self.patterns)

    def has(self, topic: str) -> bool:
        """Whether a topic is mirrored; those of brokers and of Headwater itself are not."""
        return (
            not topic.startswith("__")
            and any(each.fullmatch(topic) for each in self.patterns)
            and not any(each.fullmatch(topic) for each in self.excluded)
        )


def pattern(text: str, option: str) -> re.Pattern[str]:
    """A pattern of topics or groups.

    Raises:
        UsageError: It is none.
    """
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(
            f"{option} {text} is no regular expression: {error}; all topics are '.*', those of a beginning 'clicks.*'"
        ) from error


@dataclass(frozen=True)
class Refused:
    """A topic that is not mirrored, and why.

    Attributes:
        why: A sentence.
    """

    why: str


def record_of(
    topic: str,
    choice: Choice,
    source_id: str,
    target_id: str,
    at_source: MirrorMap,
    at_target: MirrorMap,
    *,
    topic_id: str = "",
    here_id: str = "",
    is_at_target: bool = False,
) -> TopicRecord | Refused | None:
    """What the target is to remember of a topic; None where the topic came from the target itself.

    Args:
        topic: Its name at the source.
        choice: What it is called at the target.
        source_id: The source's id.
        target_id: The target's id.
        at_source: What mirrors into the source keep there.
        at_target: What mirrors into the target keep there.
        topic_id: The topic's id at the source; empty where it is not known now.
        here_id: The id of the target's topic of that name; empty where it is not known now, or there is none.
        is_at_target: Whether the target has a topic of that name.
    """
    before = at_source.topics.get(topic)
    if before is not None and (before.released is not None or not before.is_here(topic_id)):
        before = None  # others write to it, or made it after the mirror was deleted: it is the source's own
    via = (*(before.via if before is not None else ()), source_id)
    if target_id in via:
        return None
    name = f"{choice.prefix}{topic}"
    known = at_target.topics.get(name)
    if known is not None and (known.source, known.topic) != (source_id, topic):
        return Refused(
            f"topic {topic} is not mirrored: {name} at the target is a mirror of {known.topic} of the cluster "
            f"{known.source}; a --prefix gives this one another name"
        )
    if known is not None and known.released is not None:
        if is_at_target:
            return Refused(
                f"topic {topic} is not mirrored: {name} at the target was released, and others may write to it; delete "
                "it there to have it mirrored anew"
            )
        known = replace(known, released=None)
    if known is not None and not known.is_here(here_id):
        return Refused(
            f"topic {topic} is not mirrored: {name} was deleted and made anew at the target, not by a mirror; a "
            "--prefix gives this one another name, or delete it there to have this one mirrored anew"
        )
    if known is None:
        return TopicRecord(name=name, source=source_id, topic=topic, topic_id=topic_id, origin=topic, via=via)
    if topic_id and known.topic_id and topic_id != known.topic_id:
        if is_at_target:
            return Refused(
                f"topic {topic} is not mirrored: it was deleted and made anew at the source; delete {name} at the "
                "target to have the new one mirrored"
            )
        # Its offsets begin again, and are others than those of the old one.
        return replace(known, topic_id=topic_id, origin=f"{topic}@{topic_id}", via=via)
    return replace(known, topic_id=known.topic_id or topic_id, via=via)


@dataclass(frozen=True)
class Settings:
    """What is to be changed at the target.

    Attributes:
        set: Settings with new values.
        removed: Settings that go back to the default.
    """

    set: Mapping[str, str]
    removed: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.set or self.removed)


def followed(
    source: Mapping[str, str], taken_over: Mapping[str, str], known: Iterable[str]
) -> tuple[Settings, dict[str, str]]:
    """What changed at the source since its settings were taken over; what was set at the target itself stays else.

    Args:
        source: The topic's own settings at the source.
        taken_over: What was taken over before.
        known: The settings that the target's brokers know.

    Returns:
        The changes, and what is taken over with them.

    Example:
        >>> followed({"retention.ms": "5", "min.insync.replicas": "2"}, {"segment.ms": "9"}, ["retention.ms"])
        (Settings(set={'retention.ms': '5'}, removed=('segment.ms',)), {'retention.ms': '5'})
    """
    known = set(known)
    wanted = {name: value for name, value in source.items() if name in known and name not in OWN_SETTINGS}
    changed = {name: value for name, value in wanted.items() if taken_over.get(name) != value}
    return Settings(changed, tuple(sorted(taken_over.keys() - wanted.keys()))), wanted
