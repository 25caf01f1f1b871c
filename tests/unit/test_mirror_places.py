"""Who copies a partition, and as which producer; no broker is asked."""

import re
from threading import Event

import pytest

from headwater.errors import UsageError
from headwater.mirror import Mirror, MirrorOptions
from headwater.mirror.batches import Copying
from headwater.mirror.end import End, Layout
from headwater.mirror.mirror import producer_of
from headwater.mirror.topics import Choice
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.mirrored import TopicRecord


def test_mirror_is_the_same_producer_in_each_process_and_another_for_each_source() -> None:
    ids = [producer_of(source) for source in ("W", "E", "W")]

    assert ids[0] == ids[2] != ids[1]
    assert all(1 << 61 <= each < 1 << 62 for each in ids)


def test_partition_that_another_broker_leads_is_begun_anew_by_its_lane() -> None:
    """The lane of the former leader may still be at work on what it has."""
    mirror = Mirror(
        KafkaCluster("127.0.0.1:1"),
        KafkaCluster("127.0.0.1:2"),
        MirrorOptions(Choice((re.compile(".*"),))),
        stop=Event(),
        tell=lambda _: None,
    )
    record = TopicRecord(name="clicks", source="W", topic="clicks", topic_id="", origin="clicks", via=("W",))

    def led_by(leader: int) -> None:
        mirror._source.layout = Layout("W", leaders={"clicks": {0: leader}})

    led_by(1)
    first = mirror._partition(("clicks", 0), record)
    mirror._partitions = {first.place: first}
    first.copying, first.records = Copying(5, 5, producer_id=1, producer_epoch=0), 5
    led_by(-1)
    assert mirror._partition(first.place, record) is first
    led_by(2)
    moved = mirror._partition(first.place, record)
    assert moved is not first
    assert (moved.lane, moved.copying, moved.records, moved.runs) == (2, None, 5, first.runs)


def test_mirror_of_a_name_that_no_cluster_has_says_what_may_be_named() -> None:
    with pytest.raises(
        UsageError, match=r"west is neither a broker nor a cluster .* NAME of a \[cluster\.NAME\]"
    ):
        End(KafkaCluster("west")).refresh()
