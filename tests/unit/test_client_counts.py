"""What a producer counts: the tally, and its records byte for byte."""

from pathlib import Path

import pytest

from headwater_client import Appended, Counts, EventError, Source, TopicTotals, bucket_of, event_from_json
from headwater_client.events import MOST_UNANSWERED
from headwater_client.tally import Tally
from headwater_streams.base.moments import iso

GOLDEN = Path(__file__).parent / "golden" / "counts"
EVENTS = {
    "counts.json": Counts(
        source="web-1",
        instance="a1",
        topic="clicks",
        bucket_start_ms=1_357_034_400_000,
        part=2,
        acknowledged=7,
        failed=1,
        uncertain=2,
        ranges={0: [(5, 9), (12, 14)], 3: [(0, 1)]},
    ),
    "appended.json": Appended(
        source="broker-1",
        instance="7",
        tier="broker",
        topic="clicks",
        topic_id="0a1b",
        partition=3,
        start=5,
        end=20,
        runs=[(5, 9, 1_357_034_400_000), (10, 20, 1_357_034_460_000)],
    ),
    "source.json": Source(
        source="web-1",
        instance="a1",
        opened_ms=1_357_034_400_000,
        at_ms=1_357_034_410_000,
        closed=True,
        topics={
            "clicks": TopicTotals(
                sent=11, acknowledged=7, failed=1, uncertain=2, unanswered={1_357_034_400_000: 1}
            )
        },
    ),
}


@pytest.mark.parametrize("name", EVENTS)
def test_event_is_what_it_was(name: str) -> None:
    text = (GOLDEN / name).read_text().strip()
    assert EVENTS[name].to_json() == text
    assert event_from_json(text.encode()) == EVENTS[name]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "is no JSON"),
        ("[]", "is no record of counts"),
        ('{"headwater_counts":true}', "is no record of counts"),
        (
            '{"headwater_counts":3}',
            "is of version 3, of which this Headwater reads version 2: update Headwater",
        ),
        ('{"headwater_counts":1,"kind":"x"}', "is of the kind 'x', which this Headwater does not know"),
        (
            '{"headwater_counts":1,"kind":"counts","x":1}',
            "has the key 'x', which this Headwater does not know",
        ),
        ('{"headwater_counts":1,"kind":"counts"}', "lacks what such a record has"),
        ('{"headwater_counts":1,"kind":"counts","ranges":[1]}', "lacks what such a record has"),
    ],
)
def test_event_that_is_none_is_told(text: str, said: str) -> None:
    with pytest.raises(EventError, match=f"^{said}"):
        event_from_json(text)


def test_event_of_a_broker_that_said_each_offset_once_is_read() -> None:
    assert event_from_json((GOLDEN / "appended.1.json").read_text()) == EVENTS["appended.json"]


def test_tally_is_cumulative_within_a_bucket() -> None:
    tally = Tally()
    for offset in (0, 1, 5):
        tally.sent("clicks", 59_999)
        tally.acknowledged("clicks", 59_999, partition=0, offset=offset)
    assert [(each.acknowledged, each.ranges) for each in tally.take("web", "a")] == [
        (3, {0: [(0, 2), (5, 6)]})
    ]
    assert tally.take("web", "a") == []
    tally.acknowledged("clicks", 0, partition=1, offset=7)
    tally.acknowledged("clicks", 60_000, partition=0, offset=6)
    taken = tally.take("web", "a")
    assert [(each.bucket_start_ms, each.acknowledged) for each in taken] == [(0, 4), (60_000, 1)]
    assert len({each.key for each in taken}) == 2


def test_tally_begins_a_part_where_one_is_full_or_let_go() -> None:
    tally = Tally(most_ranges=2, kept_buckets=1)
    for offset in (0, 2, 4):
        tally.acknowledged("clicks", 0, partition=0, offset=offset)
    assert [(each.part, each.ranges[0]) for each in tally.take("web", "a")] == [
        (0, [(0, 1), (2, 3)]),
        (1, [(4, 5)]),
    ]
    tally.acknowledged("clicks", 60_000, partition=0, offset=5)
    tally.take("web", "a")  # lets go of the older bucket
    tally.acknowledged("clicks", 0, partition=0, offset=6)
    assert [(each.part, each.acknowledged) for each in tally.take("web", "a")] == [(3, 1)]


def test_tally_that_gives_up_counts_as_if_nothing_had_been_sent() -> None:
    tally = Tally()
    tally.sent("paid", 0, 2)
    tally.acknowledged("paid", 0, partition=0, offset=0)
    tally.take("web", "a")
    tally.seal()
    tally.sent("paid", 0)
    tally.acknowledged("paid", 0, partition=0, offset=2)
    tally.refused("paid", 0, uncertain=True)
    tally.give_up()
    assert tally.take("web", "a") == []
    assert tally.totals() == {"paid": TopicTotals(sent=2, acknowledged=1)}  # what was open is so no more
    tally.acknowledged("paid", 0, partition=0, offset=4)
    assert [each.ranges for each in tally.take("web", "a")] == [{0: [(4, 5)]}]  # a part of its own


def test_tally_tells_what_is_uncertain_from_what_failed() -> None:
    tally = Tally()
    tally.sent("clicks", 0, 3)
    tally.refused("clicks", 0, uncertain=True)
    tally.refused("clicks", 0, uncertain=False)
    (counts,) = tally.take("web", "a")
    assert (counts.uncertain, counts.failed, tally.totals()["clicks"].pending) == (1, 1, 1)


def test_tally_names_the_buckets_of_what_is_not_answered() -> None:
    tally = Tally()
    tally.sent("clicks", 5, 2)
    tally.sent("clicks", 60_000)
    tally.sent("clicks", 120_000)
    tally.sent("clicks", 120_000, -1)  # the client did not take it
    tally.answered("clicks", 5)
    assert tally.totals()["clicks"].unanswered == {0: 1, 60_000: 1}
    for n in range(1_000):
        tally.sent("taps", n * 60_000)
    assert list(tally.totals()["taps"].unanswered) == [n * 60_000 for n in range(MOST_UNANSWERED)]
    assert tally.totals()["taps"].pending == 1_000


def test_tally_keeps_what_was_committed_and_not_taken_yet() -> None:
    """An answer that comes between the counts of a transaction and the end of it."""
    tally = Tally()
    tally.acknowledged("paid", 0, partition=0, offset=0)
    tally.take("web", "a")
    tally.acknowledged("paid", 0, partition=0, offset=1)
    tally.seal()
    tally.acknowledged("paid", 0, partition=0, offset=3)
    tally.give_up()
    ((counts),) = tally.take("web", "a")
    assert (counts.part, counts.ranges) == (0, {0: [(0, 2)]})
    assert tally.take("web", "a") == []


def test_tally_of_a_year_of_minutes_keeps_those_of_a_day() -> None:
    tally, keys = Tally(), set()
    for minute in range(525_600 // 12):
        tally.acknowledged("clicks", minute * 60_000, partition=0, offset=minute)
        if minute % 1_000 == 0:
            keys |= {each.key for each in tally.take("web", "a")}
    tally.take("web", "a")
    kept = sum(len(each) for each in vars(tally).values() if hasattr(each, "__len__"))
    assert kept < 2_000
    assert len(keys) == 43_001


@pytest.mark.parametrize("timestamp_ms", [-(2**63), -(10**15), 1_357_034_400_000_000, 2**63 - 1])
def test_bucket_of_a_time_that_no_calendar_has_is_the_first_or_the_last_one(timestamp_ms: int) -> None:
    start_ms = bucket_of(timestamp_ms)
    assert iso(start_ms * 1000) == ("1900-01-01T00:00:00Z" if timestamp_ms < 0 else "9999-12-31T23:59:00Z")
