"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and who may commit offsets.

No I/O and no clock: `now_ms` (monotonic) comes in, replies that are due come out, to this request or to
others that were parked. The owner calls `tick` when `next_deadline_ms` has come. It keeps what `take_saves`
gives it and tells `saved`: a new assignment, or a static member's new id, is handed out only then. After a
restart it gives the groups back by `load`. Offsets are kept elsewhere.

It decides what Kafka 3.9's `GroupCoordinator` decides, except that no request is left without an answer. A
group whose last member has gone stays, with its generation, until its owner deletes it (`idle_groups`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from uuid import uuid4

from headwater_broker.groups.errors import GroupError
from headwater_broker.groups.group import CONSUMER_PROTOCOL, Group
from headwater_broker.groups.kept import KeptGroup
from headwater_broker.groups.member import Member
from headwater_broker.groups.messages import (
    UNKNOWN_MEMBER_ID,
    GroupDescription,
    GroupOverview,
    GroupState,
    HeartbeatResponse,
    JoinRequest,
    JoinResponse,
    Leaver,
    LeaveResponse,
    Reply,
    Save,
    SyncRequest,
    SyncResponse,
)
from headwater_broker.groups.retention import OffsetUse
from headwater_broker.groups.schedule import Schedule

_NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000  # Kafka's NewMemberJoinTimeoutMs


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Limits of groups, with Kafka's defaults.

    Attributes:
        initial_rebalance_delay_ms: `group.initial.rebalance.delay.ms`.
        min_session_timeout_ms: `group.min.session.timeout.ms`.
        max_session_timeout_ms: `group.max.session.timeout.ms`.
        max_size: `group.max.size`.
    """

    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1


class GroupCoordinator:
    """All groups that this broker coordinates. Not thread-safe."""

    def __init__(
        self, config: GroupConfig | None = None, new_id: Callable[[], str] = lambda: str(uuid4())
    ) -> None:
        """Starts without groups.

        Args:
            config: limits.
            new_id: makes the unique part of a member id.
        """
        self._config = config or GroupConfig()
        self._new_id = new_id
        self._groups: dict[str, Group] = {}
        self._schedule = Schedule()
        self._save_numbers = count(1)
        self._saves: list[Save] = []

    def __contains__(self, group_id: str) -> bool:
        """Whether the group is known here."""
        return group_id in self._groups

    # -- time --------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do, None for never. It may come early."""
        return self._schedule.next_ms()

    def tick(self, now_ms: int) -> list[Reply]:
        """Does what is due."""
        replies: list[Reply] = []
        for group_id in self._schedule.due(now_ms):
            group = self._groups[group_id]
            group.expire(now_ms)
            replies += self._settle(group)
        return replies

    # -- keeping -----------------------------------------------------------------------------------

    def take_saves(self) -> list[Save]:
        """Groups that are to be kept now; saves of one group are to be made in their order."""
        saves, self._saves = self._saves, []
        return saves

    def saved(self, now_ms: int, save: Save, *, is_kept: bool = True) -> list[Reply]:
        """Goes on after a save that succeeded or failed."""
        group = self._groups.get(save.group.group_id)
        if group is None:
            return []
        group.saved(save.number, is_kept, now_ms)
        return self._settle(group)

    def load(self, now_ms: int, kept: KeptGroup, idle_ms: int = 0) -> list[Reply]:
        """Takes over a group that was kept, unless it is here already.

        Args:
            now_ms: The time.
            kept: The group.
            idle_ms: For how long it has been in this state.
        """
        if kept.group_id in self._groups:
            return []
        group = self._new_group(kept.group_id, now_ms - idle_ms)
        group.restore(kept, now_ms)
        if len(group.members) > self._config.max_size:
            group.prepare_rebalance(now_ms, "it was kept with more members than are allowed now")
        return self._settle(group)

    # -- requests of members -----------------------------------------------------------------------

    def join(self, now_ms: int, token: object, request: JoinRequest) -> list[Reply]:
        """JoinGroup. The answer comes when the rebalance is complete."""

        def refused(error: GroupError, member_id: str = request.member_id) -> list[Reply]:
            return [Reply(token, JoinResponse(error, member_id))]

        config = self._config
        if not request.group_id:
            return refused(GroupError.INVALID_GROUP_ID)
        if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
            return refused(GroupError.INVALID_SESSION_TIMEOUT)
        group = self._groups.get(request.group_id)
        if group is None:
            if request.member_id != UNKNOWN_MEMBER_ID:
                return refused(GroupError.UNKNOWN_MEMBER_ID)
            group = self._new_group(request.group_id, now_ms)
        if not self._has_room(group, request.member_id):
            group.discard(request.member_id)
            at_once = refused(GroupError.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID)
        elif not group.supports(request.protocol_type, (name for name, _ in request.protocols)):
            at_once = refused(GroupError.INCONSISTENT_GROUP_PROTOCOL)
        elif request.member_id == UNKNOWN_MEMBER_ID:
            at_once = self._join_new(group, now_ms, token, request)
        elif request.member_id in group.pending_members and request.instance_id is None:
            at_once = self._admit(group, request.member_id, now_ms, token, request)
        else:
            at_once = self._join_again(group, now_ms, token, request)
        group.try_complete_join(now_ms)
        group.end_initial_delay(now_ms)  # one of 0 has passed already
        return self._settle(group) + at_once

    def sync(self, now_ms: int, token: object, request: SyncRequest) -> list[Reply]:
        """SyncGroup. A follower's answer comes with the leader's assignment."""
        group = self._groups.get(request.group_id)
        error = self._check_sync(group, request)
        if group is None or error is not GroupError.NONE:
            return [Reply(token, SyncResponse(error))]
        member = group.members[request.member_id]
        if group.state is GroupState.COMPLETING_REBALANCE:
            group.answer_sync(member, SyncResponse(GroupError.REBALANCE_IN_PROGRESS))  # a repeated request's
            member.sync_token = token
            group.synced(member.member_id)
            if group.leader == member.member_id:
                group.assign(request.assignments)
            return self._settle(group)
        group.synced(member.member_id)
        group.heard_from(member, now_ms)
        return [*self._settle(group), Reply(token, group.assignment_of(member))]

    def heartbeat(
        self,
        now_ms: int,
        token: object,
        group_id: str,
        member_id: str,
        generation: int,
        instance_id: str | None = None,
    ) -> list[Reply]:
        """Heartbeat."""
        error = self._heartbeat(now_ms, group_id, member_id, generation, instance_id)
        return [Reply(token, HeartbeatResponse(error))]

    def leave(self, now_ms: int, token: object, group_id: str, leavers: Collection[Leaver]) -> list[Reply]:
        """LeaveGroup, of one member or (v3 and later) several."""
        if not group_id:
            return [Reply(token, LeaveResponse(GroupError.INVALID_GROUP_ID))]
        group = self._groups.get(group_id)
        if group is None:
            errors = tuple((leaver, GroupError.UNKNOWN_MEMBER_ID) for leaver in leavers)
            return [Reply(token, LeaveResponse(GroupError.NONE, errors))]
        errors = tuple((leaver, self._leave(group, leaver, now_ms)) for leaver in leavers)
        return [*self._settle(group), Reply(token, LeaveResponse(GroupError.NONE, errors))]

    def check_offset_commit(
        self,
        now_ms: int,
        group_id: str,
        member_id: str,
        generation: int,
        instance_id: str | None = None,
        *,
        transactional: bool = False,
    ) -> GroupError:
        """Whether offsets may be committed: by a member of this generation, or by anybody to a group without
        members.

        A member that commits has been heard of. The caller stores the offsets if the answer is NONE.
        """
        group = self._groups.get(group_id)
        if group is None or (generation < 0 and group.state is GroupState.EMPTY):
            if generation < 0:
                return GroupError.NONE
            return GroupError.UNKNOWN_MEMBER_ID if transactional else GroupError.ILLEGAL_GENERATION
        if generation < 0 and member_id == UNKNOWN_MEMBER_ID and instance_id is None:
            # TxnOffsetCommit has told its member only since v3.
            return GroupError.NONE if transactional else GroupError.UNKNOWN_MEMBER_ID
        error = group.check_member(member_id, instance_id)
        if error is not GroupError.NONE:
            return error
        if generation != group.generation:
            return GroupError.ILLEGAL_GENERATION
        if group.state is GroupState.COMPLETING_REBALANCE and not transactional:
            return GroupError.REBALANCE_IN_PROGRESS
        if not transactional:
            self._heard_from(group, member_id, now_ms)
        return GroupError.NONE

    # -- requests of operators ---------------------------------------------------------------------

    def describe(self, group_id: str, *, stored: bool = False) -> GroupDescription:
        """DescribeGroups; `stored` tells whether offsets of the group are kept, as those of simple consumers
        are.
        """
        group = self._groups.get(group_id)
        if group is not None:
            return group.describe()
        return GroupDescription(group_id, GroupState.EMPTY if stored else GroupState.DEAD)

    def list_groups(
        self, states: Iterable[str] = (), stored: Mapping[str, bool] | None = None
    ) -> list[GroupOverview]:
        """ListGroups.

        Args:
            states: names of states to show, in any case; none: all.
            stored: groups that are known by their offsets or, where True, by consumers and jobs that no
                coordinator runs; without members here, the former are listed as empty, the latter as stable.
        """
        requested = {state.lower() for state in states}
        overviews = {group.group_id: group.overview() for group in self._groups.values()}
        for group_id, is_registered in (stored or {}).items():
            existing = overviews.get(group_id)
            if is_registered and (existing is None or existing.state is GroupState.EMPTY):
                overviews[group_id] = GroupOverview(group_id, CONSUMER_PROTOCOL, GroupState.STABLE)
            elif existing is None:
                overviews[group_id] = GroupOverview(group_id, "", GroupState.EMPTY)
        return [
            overview
            for _, overview in sorted(overviews.items())
            if not requested or overview.state.value.lower() in requested
        ]

    def delete(self, group_id: str, *, stored: bool = False) -> GroupError:
        """DeleteGroups; the caller deletes the offsets if the answer is NONE."""
        group = self._groups.get(group_id)
        if group is None:
            return GroupError.NONE if stored else GroupError.GROUP_ID_NOT_FOUND
        if group.state is not GroupState.EMPTY:
            return GroupError.NON_EMPTY_GROUP
        self._forget(group)
        return GroupError.NONE

    def check_offset_deletion(self, group_id: str, *, stored: bool = False) -> GroupError:
        """Whether OffsetDelete may go on to the single topics, each of which `is_subscribed` decides."""
        group = self._groups.get(group_id)
        if group is None:
            return GroupError.NONE if stored else GroupError.GROUP_ID_NOT_FOUND
        if group.state is GroupState.EMPTY or group.protocol_type == CONSUMER_PROTOCOL:
            return GroupError.NONE
        return GroupError.NON_EMPTY_GROUP

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        """Whether a member of the group reads the topic (GROUP_SUBSCRIBED_TO_TOPIC), True if that is not
        known.
        """
        group = self._groups.get(group_id)
        return group is not None and group.is_subscribed(topic)

    def offset_use(self, group_id: str, now_ms: int) -> OffsetUse | None:
        """Which offsets of a group may expire; None where it has had no members."""
        group = self._groups.get(group_id)
        return None if group is None else group.offset_use(now_ms)

    def idle_groups(self) -> list[str]:
        """Groups without members, and without any that are about to come."""
        return [
            group.group_id
            for group in self._groups.values()
            if group.state is GroupState.EMPTY and not group.pending_members
        ]

    def group_ids(self) -> list[str]:
        """Every group that is known here."""
        return list(self._groups)

    def unload(self, group_id: str, now_ms: int) -> list[Reply]:
        """Gives a group up to another coordinator: what is parked is answered with NOT_COORDINATOR."""
        group = self._groups.get(group_id)
        if group is None:
            return []
        group.close(GroupError.NOT_COORDINATOR, now_ms)
        self._forget(group)
        return self._take_replies(group)

    # -- joining -----------------------------------------------------------------------------------

    def _has_room(self, group: Group, member_id: str) -> bool:
        limit = self._config.max_size
        member = group.members.get(member_id)
        if group.state is GroupState.EMPTY:
            return True
        if group.state is GroupState.PREPARING_REBALANCE:
            # By those who have joined, so that the last to come is the one without a place.
            return (member is not None and member.join_token is not None) or group.awaiting_join < limit
        return member is not None or len(group.members) < limit

    # These return the answers that are due at once; what the group answers is taken when the request is
    # settled.

    def _join_new(self, group: Group, now_ms: int, token: object, request: JoinRequest) -> list[Reply]:
        instance_id = request.instance_id
        new_id = f"{request.client_id if instance_id is None else instance_id}-{self._new_id()}"
        if instance_id is not None and instance_id in group.static_members:
            return self._replace_static(group, instance_id, new_id, now_ms, token, request)
        if instance_id is None and request.require_member_id:
            group.pending_members[new_id] = now_ms + request.session_timeout_ms
            return [Reply(token, JoinResponse(GroupError.MEMBER_ID_REQUIRED, new_id))]
        return self._admit(group, new_id, now_ms, token, request)

    def _admit(
        self, group: Group, member_id: str, now_ms: int, token: object, request: JoinRequest
    ) -> list[Reply]:
        member = Member(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=request.protocols,
        )
        group.add_member(
            member,
            token,
            now_ms + _NEW_MEMBER_JOIN_TIMEOUT_MS,
            now_ms,
            f"new member {member_id} ({request.reason or 'no reason given'})",
        )
        return []

    def _join_again(self, group: Group, now_ms: int, token: object, request: JoinRequest) -> list[Reply]:
        error = group.check_member(request.member_id, request.instance_id)
        if error is not GroupError.NONE:
            return [Reply(token, JoinResponse(error, request.member_id))]
        member = group.members[request.member_id]
        is_leader = group.leader == member.member_id
        unchanged = member.protocols == request.protocols
        if unchanged and (
            group.state is GroupState.COMPLETING_REBALANCE
            or (group.state is GroupState.STABLE and not is_leader)
        ):
            # It did not get the answer to its last JoinGroup. (A leader that rejoins a stable group wants a
            # rebalance: what it assigns from has changed.)
            leads = is_leader and group.state is GroupState.COMPLETING_REBALANCE
            return [Reply(token, group.current_generation(member, as_leader=leads))]
        timeouts_ms = (request.session_timeout_ms, request.rebalance_timeout_ms)
        reason = f"member {member.member_id} joins again ({request.reason or 'no reason given'})"
        group.rejoin(member, token, request.protocols, timeouts_ms, now_ms, reason)
        return []

    def _replace_static(
        self, group: Group, instance_id: str, new_id: str, now_ms: int, token: object, request: JoinRequest
    ) -> list[Reply]:
        """A static member came back under its instance id, without a rebalance if nothing changes by it."""
        former_leader = group.leader or ""
        member = group.replace_static(instance_id, new_id)
        group.update(
            member, token, request.protocols, (request.session_timeout_ms, request.rebalance_timeout_ms)
        )
        group.heard_from(member, now_ms)
        if group.state is GroupState.COMPLETING_REBALANCE:
            # The leader may be assigning to the old member id at this moment.
            group.prepare_rebalance(now_ms, f"static member {instance_id} came back")
        elif group.state is GroupState.STABLE:
            if group.next_protocol() != group.protocol:
                group.prepare_rebalance(now_ms, f"static member {instance_id} changed the protocol")
            else:
                # An old client that finds itself leader would assign, and the stable group not listen:
                # it is told its former id, which it does not recognise.
                leader = (group.leader or "") if request.supports_skip_assignment else former_leader
                group.answer_join_once_saved(member, leader)
        return []

    # -- the rest ----------------------------------------------------------------------------------

    def _check_sync(self, group: Group | None, request: SyncRequest) -> GroupError:
        if not request.group_id:
            return GroupError.INVALID_GROUP_ID
        if group is None:
            return GroupError.UNKNOWN_MEMBER_ID
        error = group.check_member(request.member_id, request.instance_id)
        if error is not GroupError.NONE:
            return error
        if request.generation != group.generation:
            return GroupError.ILLEGAL_GENERATION
        if request.protocol_type not in {None, group.protocol_type} or request.protocol not in {
            None,
            group.protocol,
        }:
            return GroupError.INCONSISTENT_GROUP_PROTOCOL
        if group.state is GroupState.PREPARING_REBALANCE:
            return GroupError.REBALANCE_IN_PROGRESS
        return GroupError.NONE

    def _heartbeat(
        self, now_ms: int, group_id: str, member_id: str, generation: int, instance_id: str | None
    ) -> GroupError:
        if not group_id:
            return GroupError.INVALID_GROUP_ID
        group = self._groups.get(group_id)
        if group is None:
            return GroupError.UNKNOWN_MEMBER_ID
        error = group.check_member(member_id, instance_id)
        if error is not GroupError.NONE:
            return error
        if generation != group.generation:
            return GroupError.ILLEGAL_GENERATION
        self._heard_from(group, member_id, now_ms)
        if group.state is GroupState.PREPARING_REBALANCE:
            return GroupError.REBALANCE_IN_PROGRESS
        return GroupError.NONE

    def _leave(self, group: Group, leaver: Leaver, now_ms: int) -> GroupError:
        member_id = leaver.member_id
        if member_id == UNKNOWN_MEMBER_ID:
            member_id = group.static_members.get(leaver.instance_id or "", UNKNOWN_MEMBER_ID)
        elif member_id in group.pending_members:
            group.remove_pending(member_id, now_ms)
            return GroupError.NONE
        error = group.check_member(member_id, leaver.instance_id)
        if error is GroupError.NONE:
            reason = f"member {member_id} left ({leaver.reason or 'no reason given'})"
            group.remove_member(group.members[member_id], now_ms, reason)
        return error

    def _heard_from(self, group: Group, member_id: str, now_ms: int) -> None:
        member = group.members[member_id]
        group.heard_from(member, now_ms)
        self._schedule.set(group.group_id, member.expires_ms)

    def _new_group(self, group_id: str, since_ms: int) -> Group:
        group = Group(group_id, self._config.initial_rebalance_delay_ms, since_ms, self._save_numbers)
        self._groups[group_id] = group
        return group

    def _settle(self, group: Group) -> list[Reply]:
        """Takes the replies that fell due and what is to be kept, and sees to the group's next deadline."""
        if group.unsaved is not None:
            self._saves.append(Save(group.unsaved, group.to_keep()))
            group.unsaved = None
        if group.state is GroupState.EMPTY and group.generation == 0 and not group.pending_members:
            self._forget(group)  # nobody has ever joined it
        else:
            self._schedule.set(group.group_id, group.next_deadline_ms())
        return self._take_replies(group)

    def _take_replies(self, group: Group) -> list[Reply]:
        replies, group.replies = group.replies, []
        return replies

    def _forget(self, group: Group) -> None:
        del self._groups[group.group_id]
        self._schedule.drop(group.group_id)
