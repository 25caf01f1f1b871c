"""Nexmark's events: the same for a seed, in their proportions, and nothing refers to what is not there yet."""

from collections import Counter
from itertools import pairwise

import pytest

from nexmark.generator import (
    BID_WITHIN_S,
    CATEGORIES,
    EPOCH,
    FIRST_CATEGORY,
    SELLER_WITHIN_S,
    START_MS,
    Event,
    Generator,
    text_of,
)

COUNT = 400 * EPOCH


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return list(Generator(1).events(COUNT))


def test_generator_of_one_seed_gives_the_same_events(events: list[Event]) -> None:
    assert list(Generator(1).events(500)) == events[:500]
    assert list(Generator(2).events(500)) != events[:500]


def test_generator_keeps_the_proportions(events: list[Event]) -> None:
    assert Counter(event.kind for event in events) == {"person": 400, "auction": 1200, "bid": 18_400}


def test_generator_gives_each_event_a_time_of_its_own(events: list[Event]) -> None:
    assert events[0].at_ms == START_MS
    assert all(one.at_ms < other.at_ms for one, other in pairwise(events))


def test_generator_refers_to_what_is_there_and_not_too_old(events: list[Event]) -> None:
    persons: dict[int, int] = {}
    auctions: dict[int, int] = {}
    for kind, at_ms, fields in events:
        if kind == "person":
            persons[fields["id"]] = at_ms
        elif kind == "auction":
            auctions[fields["id"]] = at_ms
            assert 0 < at_ms - persons[fields["seller"]] <= SELLER_WITHIN_S * 1000
            assert FIRST_CATEGORY <= fields["category"] < FIRST_CATEGORY + CATEGORIES
        else:
            assert fields["bidder"] in persons
            assert 0 < at_ms - auctions[fields["auction"]] <= BID_WITHIN_S * 1000
    assert len(persons) == 400
    assert len(auctions) == 1200


def test_generator_makes_some_auctions_and_bidders_hot(events: list[Event]) -> None:
    bids = [event.fields for event in events if event.kind == "bid"]
    of_hot_auctions = sum(bid["auction"] % 100 == 0 for bid in bids)
    assert len(bids) * 0.45 < of_hot_auctions < len(bids) * 0.6
    assert len({bid["bidder"] for bid in bids}) > 300


def test_time_text_is_utc_with_milliseconds() -> None:
    assert text_of(START_MS + 61_005) == "2024-01-01T00:01:01.005"
