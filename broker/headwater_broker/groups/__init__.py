"""The coordinator of groups that clients join by `subscribe()`: a state machine without I/O and clock.

`GroupCoordinator` takes requests with the time they came at, and returns the replies that are due, each with
the token of its request. The server maps its requests and responses to the wire, and keeps offsets, and what a
restart must not forget of a group, through coordination/.
"""

from headwater_broker.groups.coordinator import GroupConfig, GroupCoordinator
from headwater_broker.groups.errors import GroupError
from headwater_broker.groups.kept import KeptGroup, KeptMember, decode_group, encode_group
from headwater_broker.groups.messages import (
    NO_GENERATION,
    UNKNOWN_MEMBER_ID,
    GroupDescription,
    GroupOverview,
    GroupState,
    HeartbeatResponse,
    JoinedMember,
    JoinRequest,
    JoinResponse,
    Leaver,
    LeaveResponse,
    MemberDescription,
    Reply,
    Response,
    Save,
    SyncRequest,
    SyncResponse,
)
from headwater_broker.groups.records import (
    decode_offset_key,
    group_key,
    group_value,
    offset_key,
    offset_value,
)
from headwater_broker.groups.registered import describe_registered
from headwater_broker.groups.retention import OffsetUse

__all__ = [
    "NO_GENERATION",
    "UNKNOWN_MEMBER_ID",
    "GroupConfig",
    "GroupCoordinator",
    "GroupDescription",
    "GroupError",
    "GroupOverview",
    "GroupState",
    "HeartbeatResponse",
    "JoinRequest",
    "JoinResponse",
    "JoinedMember",
    "KeptGroup",
    "KeptMember",
    "LeaveResponse",
    "Leaver",
    "MemberDescription",
    "OffsetUse",
    "Reply",
    "Response",
    "Save",
    "SyncRequest",
    "SyncResponse",
    "decode_group",
    "decode_offset_key",
    "describe_registered",
    "encode_group",
    "group_key",
    "group_value",
    "offset_key",
    "offset_value",
]
