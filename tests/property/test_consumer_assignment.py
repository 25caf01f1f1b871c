"""Assignments, whatever the members read: complete, even, and the same whoever computes them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amount import amount
from headwater_broker.consumer.assignment import (
    STRATEGIES,
    Assignment,
    StrategyName,
    assign,
    common_strategy,
    range_assignment,
    round_robin_assignment,
)
from headwater_broker.consumer.plan import decode_plan, encode_plan
from headwater_broker.consumer.sticky import sticky_assignment
from headwater_broker.coordination import CorruptState

TOPICS = ["t", "u", "v"]
SUBSCRIPTIONS = st.dictionaries(
    st.sampled_from("abcdefg"), st.sets(st.sampled_from([*TOPICS, "missing"]), min_size=1), min_size=1
)
PARTITIONS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9).map(range))
SAME_TOPICS = st.lists(st.sampled_from("abcdefg"), min_size=1, unique=True).map(
    lambda members: dict.fromkeys(members, frozenset(TOPICS))
)


def shuffled(rng: random.Random, value: Mapping[Any, Any]) -> dict[Any, Any]:
    items = list(value.items())
    rng.shuffle(items)
    return {key: rng.sample(sorted(inner), len(inner)) for key, inner in items}


def check_complete(
    assignment: Assignment, subscriptions: Mapping[str, Any], partitions: Mapping[str, Any]
) -> None:
    assert assignment.keys() == subscriptions.keys()
    given = sorted(tp for share in assignment.values() for tp in share)
    read = {topic for topics in subscriptions.values() for topic in topics}
    assert given == sorted((topic, n) for topic in read & partitions.keys() for n in partitions[topic])
    assert all(tp[0] in subscriptions[member] for member, share in assignment.items() for tp in share)


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=amount(small=30, full=100))
@given(before=SUBSCRIPTIONS, after=SUBSCRIPTIONS, had=PARTITIONS, has=PARTITIONS, seed=st.integers())
def test_assignment_is_complete_and_the_same_at_every_member(
    strategy: StrategyName, before: Any, after: Any, had: Any, has: Any, seed: int
) -> None:
    previous = assign(strategy, before, had, {})
    assignment = assign(strategy, after, has, previous)
    check_complete(assignment, after, has)
    rng = random.Random(seed)
    elsewhere = assign(
        strategy, shuffled(rng, after), shuffled(rng, has), decode_plan("g", encode_plan(previous))
    )
    assert elsewhere == assignment


@settings(max_examples=amount(small=60, full=300))
@given(before=SUBSCRIPTIONS, after=SUBSCRIPTIONS, had=PARTITIONS, has=PARTITIONS)
def test_sticky_assignment_is_as_even_as_subscriptions_allow_and_does_not_change_by_itself(
    before: Any, after: Any, had: Any, has: Any
) -> None:
    shares = sticky_assignment(after, has, sticky_assignment(before, had, {}))
    assert sticky_assignment(after, has, shares) == shares
    for giver, share in shares.items():
        for taker, other in shares.items():
            if any(topic in after[taker] for topic, _ in share):
                assert len(share) - len(other) <= 1, f"{giver} could give one to {taker}"


@settings(max_examples=amount(small=60, full=300))
@given(before=SAME_TOPICS, after=SAME_TOPICS, partitions=PARTITIONS)
def test_sticky_assignment_moves_no_more_than_it_must(before: Any, after: Any, partitions: Any) -> None:
    old = sticky_assignment(before, partitions, {})
    new = sticky_assignment(after, partitions, old)
    sizes = sorted(map(len, new.values()))
    assert sizes[-1] - sizes[0] <= 1
    total, members = sum(sizes), len(after)
    # Of each member that stays: what fits into its new share. One share in `total % members` may be larger.
    stay = sorted((len(old[member]) for member in after if member in old), reverse=True)
    larger = total % members
    must_keep = sum(min(size, total // members + (index < larger)) for index, size in enumerate(stay))
    kept = sum(len(new[member] & old[member]) for member in after if member in old)
    assert kept == must_keep


@pytest.mark.parametrize(
    ("members", "partitions", "sizes"),
    [("ab", 4, [2, 2]), ("abc", 4, [2, 1, 1]), ("abcde", 4, [1, 1, 1, 1, 0]), ("a", 0, [0])],
)
def test_range_assignment_gives_runs_of_even_size(members: str, partitions: int, sizes: list[int]) -> None:
    shares = range_assignment({member: ["t"] for member in members}, {"t": range(partitions)})
    assert [len(shares[member]) for member in members] == sizes
    in_order = [tp for member in members for tp in sorted(shares[member])]
    assert in_order == [("t", p) for p in range(partitions)]


def test_range_assignment_goes_by_topic_and_subscription() -> None:
    shares = range_assignment({"a": ["t", "u"], "b": ["u"]}, {"t": [0, 1], "u": [0, 1], "unread": [0]})
    assert shares == {"a": {("t", 0), ("t", 1), ("u", 0)}, "b": {("u", 1)}}


def test_round_robin_assignment_is_kafkas() -> None:
    # The example in the documentation of Kafka's RoundRobinAssignor.
    subscriptions = {"C0": ["t0"], "C1": ["t0", "t1"], "C2": ["t0", "t1", "t2"]}
    shares = round_robin_assignment(subscriptions, {"t0": [0], "t1": [0, 1], "t2": [0, 1, 2]})
    assert shares == {
        "C0": {("t0", 0)},
        "C1": {("t1", 0)},
        "C2": {("t1", 1), ("t2", 0), ("t2", 1), ("t2", 2)},
    }


def test_sticky_assignment_moves_over_a_third_member_where_two_have_nothing_in_common() -> None:
    # a reads t, b reads t and u, c reads u: a can only be relieved by b, and b by c.
    previous = {"a": {("t", 0), ("t", 1), ("t", 2)}, "b": {("u", 0), ("u", 1)}, "c": set[Any]()}
    subscriptions = {"a": ["t"], "b": ["t", "u"], "c": ["u"]}
    shares = sticky_assignment(subscriptions, {"t": range(3), "u": range(2)}, previous)
    assert sorted(map(len, shares.values())) == [1, 2, 2]
    assert len(shares["c"]) >= 1


def test_sticky_assignment_that_two_claim_from_before_goes_to_the_first() -> None:
    previous = {"b": {("t", 0)}, "a": {("t", 0)}}
    shares = sticky_assignment({"a": ["t"], "b": ["t"]}, {"t": [0, 1]}, previous)
    assert shares == {"a": {("t", 0)}, "b": {("t", 1)}}


@pytest.mark.parametrize(
    ("wishes", "common"),
    [
        ([], "range"),
        (["sticky"], "sticky"),
        (["unheard-of", "roundrobin"], "roundrobin"),
        (["cooperative-sticky", "sticky"], "sticky"),
    ],
)
def test_common_strategy_is_what_most_wish(wishes: list[str], common: str) -> None:
    assert common_strategy(wishes) == common


@pytest.mark.parametrize("data", [b"{}", b"[]", b"x", b'{"version":2,"members":{}}', b'{"version":1}'])
def test_plan_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptState, match="the plan of group 'g'"):
        decode_plan("g", data)
