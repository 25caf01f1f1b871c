"""Kafka's names for what a group coordinator can answer; the server knows their codes."""

from __future__ import annotations

from enum import Enum, auto


class GroupError(Enum):
    """An error by Kafka's name, as in `org.apache.kafka.common.protocol.Errors`."""

    NONE = auto()
    COORDINATOR_LOAD_IN_PROGRESS = auto()
    COORDINATOR_NOT_AVAILABLE = auto()
    FENCED_INSTANCE_ID = auto()
    GROUP_ID_NOT_FOUND = auto()
    GROUP_MAX_SIZE_REACHED = auto()
    GROUP_SUBSCRIBED_TO_TOPIC = auto()
    ILLEGAL_GENERATION = auto()
    INCONSISTENT_GROUP_PROTOCOL = auto()
    INVALID_GROUP_ID = auto()
    INVALID_SESSION_TIMEOUT = auto()
    MEMBER_ID_REQUIRED = auto()
    NON_EMPTY_GROUP = auto()
    NOT_COORDINATOR = auto()
    REBALANCE_IN_PROGRESS = auto()
    UNKNOWN_MEMBER_ID = auto()
