"""Groups that no coordinator runs, ZooKeeper consumers and streaming jobs, as DescribeGroups shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater_broker.groups.group import CONSUMER_PROTOCOL
from headwater_broker.groups.messages import GroupDescription, GroupState, MemberDescription
from headwater_broker.groups.subscription import encode_assignment, encode_subscription


def describe_registered(
    group_id: str, members: Mapping[str, Mapping[str, Any]], owners: Mapping[tuple[str, int], str]
) -> GroupDescription:
    """A group as its members' registrations show it: its assignment is what each of them owns.

    Args:
        group_id: The group.
        members: Registrations by member.
        owners: Members by the partitions that they own.
    """
    described = []
    strategy = ""
    for member, registration in sorted(members.items()):
        about = registration.get("headwater") or {}
        strategy = strategy or str(about.get("strategy", ""))
        owned = sorted(tp for tp, owner in owners.items() if owner == member)
        described.append(
            MemberDescription(
                member_id=member,
                instance_id=None,
                client_id=member,
                client_host="/" + str(about.get("host", "")),
                metadata=encode_subscription(sorted(registration.get("subscription") or ())),
                assignment=encode_assignment(owned),
            )
        )
    state = GroupState.STABLE if described else GroupState.EMPTY
    return GroupDescription(group_id, state, CONSUMER_PROTOCOL, strategy, tuple(described))
