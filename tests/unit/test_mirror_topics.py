"""Which topics are mirrored, their settings, and the offsets of groups."""

import re
from dataclasses import replace

import pytest

from headwater.errors import UsageError
from headwater.mirror.groups import Mirrored, to_commit, translated
from headwater.mirror.topics import Choice, Refused, Settings, followed, pattern, record_of
from headwater_streams.sources.mirrored import MirrorMap, Runs, TopicRecord

ALL = Choice((re.compile(".*"),))


def mirrored(topic: str, via: tuple[str, ...], topic_id: str = "") -> TopicRecord:
    return TopicRecord(name=topic, source=via[-1], topic=topic, topic_id=topic_id, origin=topic, via=via)


def test_mirror_topics_are_those_whose_whole_name_matches() -> None:
    choice = Choice((re.compile("click.*"), re.compile("orders")), (re.compile(".*tmp"),))

    names = (
        "clicks",
        "aclicks",
        "orders",
        "orders2",
        "clicks.tmp",
        "__consumer_offsets",
        "__headwater_mirror",
    )
    assert [name for name in names if choice.has(name)] == ["clicks", "orders"]
    assert not ALL.has("__headwater_mirror")


def test_mirror_topics_bad_pattern_is_named() -> None:
    with pytest.raises(UsageError, match=r"--topics \*clicks is no regular expression"):
        pattern("*clicks", "--topics")


def test_mirror_topics_get_a_prefix_and_the_clusters_they_came_through() -> None:
    before = TopicRecord(name="t", source="A", topic="t", topic_id="", origin="t", via=("A",))

    record = record_of("t", Choice((), (), "b."), "B", "C", MirrorMap(topics={"t": before}), MirrorMap())

    assert record == TopicRecord(name="b.t", source="B", topic="t", topic_id="", origin="t", via=("A", "B"))


@pytest.mark.parametrize("via", [("A",), ("A", "C"), ("C", "A")])
def test_mirror_topics_that_came_from_the_target_are_left_out(via: tuple[str, ...]) -> None:
    at_source = MirrorMap(topics={"t": mirrored("t", via)})

    assert record_of("t", ALL, "B", "A", at_source, MirrorMap()) is None


def test_mirror_topics_that_were_released_are_the_sources_own() -> None:
    before = replace(mirrored("t", ("A",)), released={0: 5})

    record = record_of("t", ALL, "B", "A", MirrorMap(topics={"t": before}), MirrorMap())

    assert record == mirrored("t", ("B",))


def test_mirror_topics_that_others_made_after_the_mirror_was_deleted_are_that_clusters_own() -> None:
    kept = MirrorMap(topics={"t": replace(mirrored("t", ("A",)), here_id="first")})

    assert record_of("t", ALL, "B", "A", kept, MirrorMap(), topic_id="second") == mirrored(
        "t", ("B",), "second"
    )
    assert record_of("t", ALL, "B", "A", kept, MirrorMap(), topic_id="first") is None
    assert record_of("t", ALL, "B", "A", kept, MirrorMap(), topic_id="") is None

    refused = record_of("t", ALL, "A", "B", MirrorMap(), kept, here_id="second", is_at_target=True)
    assert isinstance(refused, Refused)
    assert "t was deleted and made anew at the target, not by a mirror" in refused.why
    for same in ("first", ""):
        assert record_of("t", ALL, "A", "B", MirrorMap(), kept, here_id=same) == kept.topics["t"]


def test_mirror_topics_that_were_released_at_the_target_are_refused_until_they_are_deleted_there() -> None:
    at_target = MirrorMap(topics={"t": replace(mirrored("t", ("A",)), released={0: 5})})

    refused = record_of("t", ALL, "A", "B", MirrorMap(), at_target, is_at_target=True)
    anew = record_of("t", ALL, "A", "B", MirrorMap(), at_target, is_at_target=False)

    assert isinstance(refused, Refused)
    assert "t at the target was released" in refused.why
    assert anew == mirrored("t", ("A",))


def test_mirror_topics_two_sources_of_one_name_are_refused() -> None:
    other = MirrorMap(topics={"t": mirrored("t", ("X",))})

    refused = record_of("t", ALL, "A", "B", MirrorMap(), other)

    assert isinstance(refused, Refused)
    assert "a --prefix gives this one another name" in refused.why


def test_mirror_topics_made_anew_at_the_source_are_refused_until_they_are_deleted_at_the_target() -> None:
    known = MirrorMap(topics={"t": mirrored("t", ("A",), "first")})

    def decided(topic_id: str, is_at_target: bool) -> TopicRecord | Refused | None:
        return record_of("t", ALL, "A", "B", MirrorMap(), known, topic_id=topic_id, is_at_target=is_at_target)

    assert decided("first", True) == decided("", True) == known.topics["t"]
    assert isinstance(decided("second", True), Refused)
    anew = decided("second", False)
    assert isinstance(anew, TopicRecord)
    assert (anew.topic_id, anew.origin) == ("second", "t@second")


def test_mirror_settings_follow_the_source_and_leave_what_was_set_at_the_target() -> None:
    changes, taken = followed(
        {"retention.ms": "5", "cleanup.policy": "compact"}, {"retention.ms": "5"}, ALL_KNOWN
    )
    assert (changes.set, changes.removed) == ({"cleanup.policy": "compact"}, ())

    changes, taken = followed({"cleanup.policy": "compact"}, taken, ALL_KNOWN)
    assert (changes.set, changes.removed) == ({}, ("retention.ms",))
    assert not followed({"cleanup.policy": "compact"}, taken, ALL_KNOWN)[0]


def test_mirror_does_not_have_the_target_ask_for_schemas_of_a_record_that_the_source_has_taken() -> None:
    asks = {"confluent.value.schema.validation": "true"}
    assert followed(asks, {}, [*asks])[1] == {}


@pytest.mark.parametrize(
    "name", ["remote.storage.enable", "local.retention.ms", "message.timestamp.before.max.ms"]
)
def test_mirror_settings_that_are_of_one_cluster_alone_are_left_out(name: str) -> None:
    """Brokers without tiered storage make no topic that has it, and a record that is mirrored late is no older."""
    assert followed({name: "1"}, {}, [name]) == (Settings({}, ()), {})
    assert followed({name: "1"}, {name: "1"}, [name]) == (Settings({}, (name,)), {})


def test_mirror_settings_that_the_target_does_not_know_are_left_out() -> None:
    assert not followed({"expose": "flushed", "message.timestamp.type": "LogAppendTime"}, {}, ALL_KNOWN)[0]


ALL_KNOWN = ("retention.ms", "cleanup.policy", "message.timestamp.type")


def test_mirror_groups_stand_where_their_next_record_is() -> None:
    mirrored = {("t", 0): Mirrored(("w.t", 0), Runs([(0, 100), (10, 120)]), 15, 125)}

    found = translated({("t", 0): 113, ("t", 1): 5, ("other", 0): 7}, mirrored)

    assert found == {("w.t", 0): 10}


def test_mirror_groups_offsets_that_somebody_moved_on_are_left_alone() -> None:
    place = ("t", 0)

    assert to_commit({place: 5}, {}, {}) == {place: 5}
    assert to_commit({place: 5}, {place: 5}, {}) == {}
    assert to_commit({place: 5}, {place: 9}, {}) == {}
    assert to_commit({place: 5}, {place: 9}, {place: 7}) == {}
    assert to_commit({place: 5}, {place: 9}, {place: 9}) == {place: 5}
    assert to_commit({place: 5}, {place: 3}, {}) == {place: 5}
