"""Groups that no coordinator runs, in the form of those that one does."""

from __future__ import annotations

from headwater_broker.groups import GroupState, describe_registered
from headwater_broker.groups.subscription import encode_assignment, encode_subscription, subscribed_topics


def test_registered_members_are_shown_with_what_they_own() -> None:
    group = describe_registered(
        "job",
        {
            "/srv/b": {"subscription": {"clicks": 1, "views": 2}, "headwater": {"host": "node-1"}},
            "/srv/a": {"subscription": {"clicks": 1}},
        },
        {("clicks", 1): "/srv/b", ("clicks", 0): "/srv/b", ("views", 0): "/srv/b", ("clicks", 2): "gone"},
    )
    assert (group.state, group.protocol_type) == (GroupState.STABLE, "consumer")
    first, second = group.members
    assert (first.member_id, first.client_host, first.assignment) == ("/srv/a", "/", encode_assignment([]))
    assert (second.client_id, second.client_host) == ("/srv/b", "/node-1")
    assert second.assignment == (
        b"\x00\x00" + b"\x00\x00\x00\x02"
        b"\x00\x06clicks" + b"\x00\x00\x00\x02" + b"\x00\x00\x00\x00\x00\x00\x00\x01"
        b"\x00\x05views" + b"\x00\x00\x00\x01" + b"\x00\x00\x00\x00" + b"\xff\xff\xff\xff"
    )
    assert subscribed_topics(second.metadata) == {"clicks", "views"}


def test_registered_group_whose_members_have_gone_is_empty() -> None:
    assert describe_registered("job", {}, {}).state is GroupState.EMPTY


def test_subscription_is_read_as_it_was_written() -> None:
    assert encode_subscription(["clicks"]) == b"\x00\x00\x00\x00\x00\x01\x00\x06clicks\xff\xff\xff\xff"
    assert subscribed_topics(encode_subscription([])) == frozenset()


def test_subscription_with_a_negative_length_is_something_else() -> None:
    """Read as a length it would go back in the bytes, and give the topics before it once more."""
    negative = b"\x00\x00\x00\x00\x00\x02\x00\x06clicks\xff\xfe\xff\xff\xff\xff"
    assert subscribed_topics(negative) is None
    null = b"\x00\x00\x00\x00\x00\x01\xff\xff\xff\xff\xff\xff"
    assert subscribed_topics(null) is None
