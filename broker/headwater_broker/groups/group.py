"""One group: its members, its generation and its timers.

States, as in Kafka's `GroupMetadata`:

    Empty --first member--> PreparingRebalance --all rejoined, or time is up--> CompletingRebalance
    CompletingRebalance --the leader's assignment, once it is kept--> Stable
    CompletingRebalance, Stable --member joins, leaves or fails--> PreparingRebalance
    PreparingRebalance --nobody is left--> Empty
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from headwater_broker.groups.errors import GroupError
from headwater_broker.groups.kept import KeptGroup
from headwater_broker.groups.member import Member
from headwater_broker.groups.messages import (
    GroupDescription,
    GroupOverview,
    GroupState,
    JoinResponse,
    Reply,
    SyncResponse,
)
from headwater_broker.groups.retention import OffsetUse
from headwater_broker.groups.subscription import subscribed_topics
from headwater_broker.shown import MESSAGE_CHARS, shown

_log = logging.getLogger(__name__)

CONSUMER_PROTOCOL = "consumer"


class Group:
    """Members, generation and timers of one group. Replies that fall due are added to `replies`.

    Its owner keeps the group whenever `unsaved` is a number, and says how that save went: `saved`.
    """

    def __init__(
        self, group_id: str, initial_rebalance_delay_ms: int, now_ms: int, save_numbers: Iterator[int]
    ) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_since_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: dict[str, int] = {}
        """When each member that was sent away to come back with its new id is forgotten."""
        self.replies: list[Reply] = []
        self.unsaved: int | None = None
        """The number of the save that is to be made."""
        self._save_numbers = save_numbers
        self._assignment_save: int | None = None
        self._returning: dict[
            int, tuple[str, str]
        ] = {}  # by save: a static member, and the leader it is told
        self._initial_delay_ms = initial_rebalance_delay_ms
        self._join_deadline_ms: int | None = None
        self._initial_round: tuple[int, int] | None = None  # length of this delay, what may be added to it
        self._new_member_added = False
        self._pending_sync: set[str] = set()
        self._sync_deadline_ms: int | None = None

    # -- looking -----------------------------------------------------------------------------------

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that a member asked for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def awaiting_join(self) -> int:
        """How many members have a JoinGroup parked."""
        return sum(member.join_token is not None for member in self.members.values())

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a member with these protocols can be in the group."""
        names = set(protocols)
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and names)
        if self.protocol_type != protocol_type:
            return False
        # All members may have gone while the rebalance waits for one that is still to come back with its id.
        return bool(names if not self.members else names & self._common_protocols())

    def check_member(self, member_id: str, instance_id: str | None) -> GroupError:
        """Whether a request comes from a current member, and not from a static one's predecessor."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                return GroupError.UNKNOWN_MEMBER_ID
            if current != member_id:
                return GroupError.FENCED_INSTANCE_ID
        return GroupError.NONE if member_id in self.members else GroupError.UNKNOWN_MEMBER_ID

    def next_deadline_ms(self) -> int | None:
        """When `expire` has something to do."""
        deadlines = [member.expires_ms for member in self.members.values()]
        deadlines += [self._join_deadline_ms, self._sync_deadline_ms, *self.pending_members.values()]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member reads the topic; True where the members' metadata cannot be read."""
        if not self.members:
            return False
        topics = self.subscribed_topics()
        return topics is None or topic in topics

    def subscribed_topics(self) -> frozenset[str] | None:
        """Topics that the members of this generation read; None where that is not known."""
        if self.protocol_type != CONSUMER_PROTOCOL or self.protocol is None:
            return None
        read: set[str] = set()
        for member in self.members.values():
            metadata = member.metadata(self.protocol)
            if metadata is None:
                continue  # it joins with other protocols, and is in no generation yet
            topics = subscribed_topics(metadata)
            if topics is None:
                return None
            read |= topics
        return frozenset(read)

    def offset_use(self, now_ms: int) -> OffsetUse:
        """Which offsets may expire, and from when on they do (KIP-211)."""
        if self.state is GroupState.EMPTY:
            return OffsetUse(idle_ms=now_ms - self.state_since_ms, read_topics=frozenset())
        stable = self.state is GroupState.STABLE
        return OffsetUse(idle_ms=None, read_topics=self.subscribed_topics() if stable else None)

    def describe(self) -> GroupDescription:
        """As DescribeGroups shows it."""
        protocol = self.protocol if self.state is GroupState.STABLE else None
        members = tuple(member.describe(protocol) for member in self.members.values())
        return GroupDescription(self.group_id, self.state, self.protocol_type or "", protocol or "", members)

    def overview(self) -> GroupOverview:
        """As ListGroups shows it."""
        return GroupOverview(self.group_id, self.protocol_type or "", self.state)

    # -- members -----------------------------------------------------------------------------------

    def add_member(self, member: Member, token: object, expires_ms: int, now_ms: int, reason: str) -> None:
        """Takes a member in, with its JoinGroup parked, and rebalances."""
        if self.state is GroupState.PREPARING_REBALANCE and self.generation == 0:
            self._new_member_added = True
        if not self.members:
            self.protocol_type = member.protocol_type
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        member.join_token = token
        member.expires_ms = expires_ms
        self.members[member.member_id] = member
        self.pending_members.pop(member.member_id, None)
        self._rebalance_if_settled(now_ms, reason)

    def rejoin(
        self,
        member: Member,
        token: object,
        protocols: tuple[tuple[str, bytes], ...],
        timeouts_ms: tuple[int, int],
        now_ms: int,
        reason: str,
    ) -> None:
        """Parks the JoinGroup of a member, with what it says about itself now, and rebalances."""
        self.update(member, token, protocols, timeouts_ms)
        self._rebalance_if_settled(now_ms, reason)

    def update(
        self,
        member: Member,
        token: object,
        protocols: tuple[tuple[str, bytes], ...],
        timeouts_ms: tuple[int, int],
    ) -> None:
        """Parks the JoinGroup of a member; timeouts are those of the session and of the rebalance."""
        # Kafka leaves a JoinGroup that its sender repeats without an answer; here each request gets one.
        self._answer_join(member, JoinResponse(GroupError.REBALANCE_IN_PROGRESS, member.member_id))
        member.protocols = protocols
        member.session_timeout_ms, member.rebalance_timeout_ms = timeouts_ms
        member.join_token = token

    def replace_static(self, instance_id: str, new_member_id: str) -> Member:
        """Gives a static member's place to its successor, and fences the requests of the old one."""
        old_member_id = self.static_members[instance_id]
        member = self.members.pop(old_member_id)
        self._answer_join(member, JoinResponse(GroupError.FENCED_INSTANCE_ID, old_member_id))
        self.answer_sync(member, SyncResponse(GroupError.FENCED_INSTANCE_ID))
        member.member_id = new_member_id
        self.members[new_member_id] = member
        self.static_members[instance_id] = new_member_id
        if old_member_id in self._pending_sync:
            self._pending_sync.remove(old_member_id)
            self._pending_sync.add(new_member_id)
        if self.leader == old_member_id:
            self.leader = new_member_id
        return member

    def remove_member(self, member: Member, now_ms: int, reason: str) -> None:
        """Removes a member that left or failed, and rebalances."""
        self._answer_join(member, JoinResponse(GroupError.UNKNOWN_MEMBER_ID, ""))
        self.answer_sync(member, SyncResponse(GroupError.UNKNOWN_MEMBER_ID))
        self.discard(member.member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            self.try_complete_join(now_ms)
        else:
            self._rebalance_if_settled(now_ms, reason)

    def remove_pending(self, member_id: str, now_ms: int) -> None:
        """Forgets a member that was given an id and has not come back."""
        self.pending_members.pop(member_id, None)
        if self.state is GroupState.PREPARING_REBALANCE:
            self.try_complete_join(now_ms)

    def discard(self, member_id: str) -> None:
        """Takes a member, or pending member, out of the books."""
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_members.pop(member_id, None)
        self._pending_sync.discard(member_id)

    def heard_from(self, member: Member, now_ms: int) -> None:
        """Starts a member's session anew."""
        member.expires_ms = now_ms + member.session_timeout_ms

    def answer_join_once_saved(self, member: Member, leader: str) -> None:
        """Answers a static member's JoinGroup with the generation that there is, once its new id is kept."""
        self.unsaved = next(self._save_numbers)
        self._returning[self.unsaved] = (member.member_id, leader)

    def current_generation(
        self, member: Member, *, as_leader: bool, leader: str | None = None, skip: bool = False
    ) -> JoinResponse:
        """The answer to a JoinGroup of this generation."""
        protocol = self.protocol
        assert protocol is not None
        everybody = tuple(other.joined(protocol) for other in self.members.values()) if as_leader else ()
        return JoinResponse(
            GroupError.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            protocol,
            leader if leader is not None else self.leader or "",
            skip,
            everybody,
        )

    # -- rebalance ---------------------------------------------------------------------------------

    def prepare_rebalance(self, now_ms: int, reason: str) -> None:
        """Asks every member to rejoin."""
        if self.state is GroupState.COMPLETING_REBALANCE:
            for member in self.members.values():
                member.assignment = b""
                self._propagate(member, SyncResponse(GroupError.REBALANCE_IN_PROGRESS), now_ms)
        self._pending_sync.clear()
        self._sync_deadline_ms = None
        self._assignment_save = None
        timeout_ms = self.rebalance_timeout_ms
        if self.state is GroupState.EMPTY:
            # A group that starts waits for more members to come before it gives partitions to the first.
            delay_ms = self._initial_delay_ms
            self._initial_round = (delay_ms, max(timeout_ms - delay_ms, 0))
            self._join_deadline_ms = now_ms + delay_ms
        else:
            self._initial_round = None
            self._join_deadline_ms = now_ms + timeout_ms
        _log.info(
            "group %s rebalances after generation %d: %s",
            shown(self.group_id),
            self.generation,
            shown(reason, MESSAGE_CHARS),
        )
        self._become(GroupState.PREPARING_REBALANCE, now_ms)
        self.try_complete_join(now_ms)

    def try_complete_join(self, now_ms: int) -> None:
        """Ends the joining as soon as everybody has joined, except in the first delay."""
        if self.state is not GroupState.PREPARING_REBALANCE or self._initial_round is not None:
            return
        if self.awaiting_join == len(self.members) and not self.pending_members:
            self._complete_join(now_ms)

    def end_initial_delay(self, now_ms: int) -> None:
        """Ends the first delay where it has passed, and looks at no other deadline."""
        while (
            self._initial_round is not None
            and self._join_deadline_ms is not None
            and self._join_deadline_ms <= now_ms
        ):
            self._join_deadline_passed(now_ms)

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Takes the leader's assignment, to be handed out once it is kept.

        Handed out earlier, it could be forgotten in a crash, and the former generation be good again.
        """
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self.unsaved = self._assignment_save = next(self._save_numbers)

    def saved(self, number: int, is_kept: bool, now_ms: int) -> None:
        """Goes on after a save; what happened to the group meanwhile comes first."""
        returning = self._returning.pop(number, None)
        if returning is not None and self.state is GroupState.STABLE:
            self._returned(*returning, is_kept, now_ms)
        if self._assignment_save != number:
            return
        self._assignment_save = None
        if is_kept:
            self._become(GroupState.STABLE, now_ms)
            for member in self.members.values():
                self._propagate(member, self.assignment_of(member), now_ms)
            return
        for member in self.members.values():
            self._propagate(member, SyncResponse(GroupError.COORDINATOR_NOT_AVAILABLE), now_ms)
        self.prepare_rebalance(now_ms, f"the assignment of generation {self.generation} could not be kept")

    def _returned(self, member_id: str, leader: str, is_kept: bool, now_ms: int) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        if is_kept:
            # It is told to skip the assignment if it finds itself leader: a stable group would not listen.
            leads = leader == member_id
            response = self.current_generation(member, as_leader=leads, leader=leader, skip=leads)
        else:
            response = JoinResponse(GroupError.COORDINATOR_NOT_AVAILABLE, "")
        self._answer_join(member, response)
        self.heard_from(member, now_ms)

    def to_keep(self) -> KeptGroup:
        """What is to be kept of it."""
        members = tuple(member.to_keep() for member in self.members.values())
        return KeptGroup(
            self.group_id, self.generation, self.protocol_type, self.protocol, self.leader, members
        )

    def restore(self, kept: KeptGroup, now_ms: int) -> None:
        """Goes on from what was kept; the members' sessions begin anew."""
        self.generation = kept.generation
        self.protocol_type, self.protocol, self.leader = kept.protocol_type, kept.protocol, kept.leader
        for each in kept.members:
            member = Member.restored(each, kept.protocol_type or "")
            self.members[member.member_id] = member
            if member.instance_id is not None:
                self.static_members[member.instance_id] = member.member_id
            self.heard_from(member, now_ms)
        if self.members:
            self.state = GroupState.STABLE

    def assignment_of(self, member: Member) -> SyncResponse:
        """The answer to a SyncGroup of this generation."""
        return SyncResponse(GroupError.NONE, self.protocol_type, self.protocol, member.assignment)

    def synced(self, member_id: str) -> None:
        """Notes that a member has asked for its assignment."""
        self._pending_sync.discard(member_id)
        if not self._pending_sync:
            self._sync_deadline_ms = None

    def next_protocol(self) -> str:
        """The protocol that all members support and most like best; the first vote breaks a tie."""
        candidates = self._common_protocols()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def expire(self, now_ms: int) -> None:
        """Does what is due: sessions, pending members, the deadlines of joining and syncing."""
        for member_id in [m for m, deadline_ms in self.pending_members.items() if deadline_ms <= now_ms]:
            self.remove_pending(member_id, now_ms)
        for member in list(self.members.values()):
            if member.expires_ms is None or member.expires_ms > now_ms:
                continue
            if self.members.get(member.member_id) is not member:
                continue  # went with the expiry of another
            if member.is_excused:
                member.expires_ms = None
            else:
                self.remove_member(
                    member, now_ms, f"member {member.member_id} was not heard of in its session timeout"
                )
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            self._sync_deadline_ms = None
            late = [self.members[member_id] for member_id in sorted(self._pending_sync)]
            for member in late:
                self.discard(member.member_id)
            self.prepare_rebalance(now_ms, f"{len(late)} members did not ask for their assignment")
        while self._join_deadline_ms is not None and self._join_deadline_ms <= now_ms:
            self._join_deadline_passed(now_ms)

    def close(self, error: GroupError, now_ms: int) -> None:
        """Answers whatever is parked with an error, and dies."""
        for member in self.members.values():
            self._answer_join(member, JoinResponse(error, member.member_id))
            self.answer_sync(member, SyncResponse(error))
        self._become(GroupState.DEAD, now_ms)

    def answer_sync(self, member: Member, response: SyncResponse) -> bool:
        """Answers a member's parked SyncGroup, if it has one."""
        token, member.sync_token = member.sync_token, None
        if token is not None:
            self.replies.append(Reply(token, response))
        return token is not None

    def _answer_join(self, member: Member, response: JoinResponse) -> None:
        token, member.join_token = member.join_token, None
        if token is not None:
            self.replies.append(Reply(token, response))

    def _propagate(self, member: Member, response: SyncResponse, now_ms: int) -> None:
        if self.answer_sync(member, response):
            self.heard_from(member, now_ms)

    def _rebalance_if_settled(self, now_ms: int, reason: str) -> None:
        if self.state in {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}:
            self.prepare_rebalance(now_ms, reason)

    def _join_deadline_passed(self, now_ms: int) -> None:
        if self._initial_round is not None:
            delay_ms, remaining_ms = self._initial_round
            if self._new_member_added and remaining_ms:
                self._new_member_added = False
                extension_ms = min(self._initial_delay_ms, remaining_ms)
                self._initial_round = (extension_ms, max(remaining_ms - delay_ms, 0))
                self._join_deadline_ms = now_ms + extension_ms
                return
        self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        """Starts the next generation with those who have joined."""
        self._join_deadline_ms = None
        self._initial_round = None
        for member in [m for m in self.members.values() if m.join_token is None and not m.is_static]:
            _log.info(
                "group %s: member %s did not rejoin in time", shown(self.group_id), shown(member.member_id)
            )
            self.discard(member.member_id)
        if self.members and not self._elect_leader():
            # Static members only, none of them back: their sessions decide.
            self._join_deadline_ms = now_ms + max(self.rebalance_timeout_ms, 1)
            return
        self.generation += 1
        self._pending_sync.clear()
        if not self.members:
            self.protocol = None
            self._become(GroupState.EMPTY, now_ms)
            self.unsaved = next(self._save_numbers)
            return
        self.protocol = self.next_protocol()
        self._become(GroupState.COMPLETING_REBALANCE, now_ms)
        self._sync_deadline_ms = now_ms + self.rebalance_timeout_ms
        self._pending_sync.update(self.members)
        for member in self.members.values():
            self._answer_join(
                member, self.current_generation(member, as_leader=member.member_id == self.leader)
            )
            self.heard_from(member, now_ms)
            member.is_new = False

    def _elect_leader(self) -> bool:
        """Keeps the leader if it has joined, else takes another who has."""
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.join_token is not None:
            return True
        joined = next((m for m in self.members.values() if m.join_token is not None), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    def _common_protocols(self) -> set[str]:
        support = Counter(
            name for member in self.members.values() for name in {n for n, _ in member.protocols}
        )
        return {name for name, members in support.items() if members == len(self.members)}

    def _become(self, state: GroupState, now_ms: int) -> None:
        self.state = state
        self.state_since_ms = now_ms
