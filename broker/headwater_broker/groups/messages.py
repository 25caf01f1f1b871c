"""What goes into the group coordinator and what comes out, apart from any version of the wire format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from headwater_broker.groups.errors import GroupError
from headwater_broker.groups.kept import KeptGroup

UNKNOWN_MEMBER_ID = ""
NO_GENERATION = -1


class GroupState(Enum):
    """State of a group; the value is what DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A JoinGroup request.

    Attributes:
        group_id: the group.
        member_id: "" at the first join.
        instance_id: `group.instance.id` of a static member.
        client_id: the client's name for itself.
        client_host: its address, as Kafka shows it ("/127.0.0.1").
        session_timeout_ms: how long the member may be silent.
        rebalance_timeout_ms: how long it may take to rejoin (before v1: its session timeout).
        protocol_type: "consumer", "connect", ...
        protocols: metadata by protocol, the preferred one first.
        require_member_id: whether a new dynamic member is sent away once to come back with its id (v4 and
            later).
        supports_skip_assignment: whether a returning static leader can be told not to assign (v9 and later).
        reason: why it joins, for the log (v8 and later).
    """

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    require_member_id: bool = False
    supports_skip_assignment: bool = False
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """One member as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResponse:
    """Answer to JoinGroup; `members` is filled for the leader only."""

    error: GroupError
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A SyncGroup request; `assignments` come from the leader only, the protocol from v5."""

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SyncResponse:
    """Answer to SyncGroup."""

    error: GroupError
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatResponse:
    """Answer to Heartbeat."""

    error: GroupError


@dataclass(frozen=True, slots=True)
class Leaver:
    """A member that leaves; an operator names a static one by its instance id alone."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveResponse:
    """Answer to LeaveGroup: the error of the request, and of each leaver in the order of the request."""

    error: GroupError
    leavers: tuple[tuple[Leaver, GroupError], ...] = ()


Response = JoinResponse | SyncResponse | HeartbeatResponse | LeaveResponse


@dataclass(frozen=True, slots=True)
class Reply:
    """A response that is due now, with the token that came with its request."""

    token: object
    response: Response


@dataclass(frozen=True, slots=True)
class Save:
    """A group that is to be kept; `GroupCoordinator.saved` wants to hear how the save of that number went."""

    number: int
    group: KeptGroup


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member as DescribeGroups shows it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as DescribeGroups shows it."""

    group_id: str
    state: GroupState
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[MemberDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupOverview:
    """A group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: GroupState
