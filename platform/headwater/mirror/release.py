"""Lets others write to mirrored topics, as when the cluster that they were mirrored from is lost."""

from collections.abc import Sequence
from dataclasses import replace

from headwater.errors import UsageError
from headwater.mirror.end import LATEST, End, text_of
from headwater.mirror.errors import AwayError, MirrorError
from headwater.mirror.kept import Keeper, load
from headwater.mirror.topics import Choice
from headwater_streams.base.nearest import nearest
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.mirrored import TopicRecord


def release(target: KafkaCluster, choice: Choice) -> list[TopicRecord]:
    """Releases topics of a cluster: they are mirrored no more, and can be mirrored to others as its own.

    The cluster that they were mirrored from is not asked. Records that are there keep their origins.

    Args:
        target: The cluster that has them.
        choice: Which ones, by their names there.

    Returns:
        Those that were released now.

    Raises:
        UsageError: No topic that is mirrored into the cluster matches.
        MirrorError: The cluster does not answer.
    """
    end = End(target)
    try:
        end.refresh()
        mirrored = [
            each
            for each in load(end).topics.values()
            if each.name in end.layout.leaders and each.is_here(text_of(end.layout.ids.get(each.name)))
        ]
        chosen = [each for each in mirrored if choice.has(each.name)]
        if not chosen:
            names = sorted(each.name for each in mirrored)
            there = nearest(choice.text, names) or "none"
            raise UsageError(
                f"no topic that is mirrored into {target.bootstrap} matches --topics; it has {there}"
            )
        new = [_released(end, each) for each in chosen if each.released is None]
        if new:
            keeper = Keeper(end)
            keeper.keep(new)
            keeper.close()
    except AwayError as error:
        raise MirrorError(str(error)) from error
    finally:
        end.drop_connections()
    return new


def _released(end: End, record: TopicRecord) -> TopicRecord:
    places = [(record.name, number) for number in end.layout.leaders[record.name]]
    ends = end.offsets(places, LATEST)
    if lacking := set(places) - ends.keys():
        raise AwayError(f"{record.name}, partition {min(lacking)[1]}: nobody leads it")
    return replace(record, released={number: offset for (_, number), offset in sorted(ends.items())})


def described(records: Sequence[TopicRecord]) -> list[dict[str, object]]:
    """What was released, for machines: the topics, where they came from, and where their partitions ended."""
    return [
        {"topic": each.name, "source": each.source, "source_topic": each.topic, "ends": each.released}
        for each in records
    ]
