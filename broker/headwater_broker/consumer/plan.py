"""The assignment that a group has agreed on, kept where every member sees it.

A sticky assignment depends on the one before. If each member took that from the owners that it happens to see
in the middle of a rebalance, no two would compute the same. So the last assignment is kept beside the group's
members, with a number: whoever finds that it does not fit the facts any more computes the next one and
replaces it, if nobody else was first; then it looks again.
"""

from __future__ import annotations

import json

from headwater_broker.consumer.assignment import Assignment
from headwater_broker.coordination import CorruptState

_VERSION = 1


def encode_plan(assignment: Assignment) -> bytes:
    """JSON: partition numbers by topic by member."""
    members: dict[str, dict[str, list[int]]] = {}
    for member, share in sorted(assignment.items()):
        topics = members.setdefault(member, {})
        for topic, number in sorted(share):
            topics.setdefault(topic, []).append(number)
    return json.dumps({"version": _VERSION, "members": members}, separators=(",", ":")).encode()


def decode_plan(group: str, data: bytes) -> Assignment:
    """What `encode_plan` made; nothing from nothing.

    Raises:
        CorruptState: the bytes are something else.
    """
    if not data:
        return {}
    try:
        value = json.loads(data)
        if value["version"] != _VERSION:
            raise ValueError(f"version {value['version']!r}")
        return {
            member: frozenset((topic, int(number)) for topic, numbers in topics.items() for number in numbers)
            for member, topics in value["members"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptState(f"the plan of group {group!r} is {data[:200]!r}, which is no plan") from error
