"""The classic group protocol, step by step. Times are milliseconds; the corner cases are those of Kafka's
own tests.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

import pytest

from headwater_broker.groups import (
    GroupConfig,
    GroupCoordinator,
    GroupError,
    GroupState,
    HeartbeatResponse,
    JoinRequest,
    JoinResponse,
    KeptGroup,
    KeptMember,
    Leaver,
    LeaveResponse,
    OffsetUse,
    SyncRequest,
    SyncResponse,
    decode_group,
    encode_group,
)

SESSION_MS = 10_000
REBALANCE_MS = 60_000
RANGE = (("range", b"r"),)


class Driver:
    """Sends requests by name and keeps what each was answered."""

    def __init__(
        self, initial_delay_ms: int = 0, max_size: int = 100, rebalance_ms: int = REBALANCE_MS
    ) -> None:
        self.rebalance_ms = rebalance_ms
        numbers = itertools.count(1)
        self.now_ms = 1000
        self.answers: dict[str, JoinResponse | SyncResponse | HeartbeatResponse | LeaveResponse] = {}
        self.keeps = True
        self.kept: KeptGroup | None = None
        self.machine = GroupCoordinator(
            GroupConfig(initial_rebalance_delay_ms=initial_delay_ms, max_size=max_size),
            new_id=lambda: str(next(numbers)),
        )

    def _take(self, replies: list) -> None:
        for reply in replies:
            assert reply.token not in self.answers, f"{reply.token} was answered twice"
            self.answers[reply.token] = reply.response
        for save in self.machine.take_saves() if self.keeps else ():
            self.kept = save.group
            self._take(self.machine.saved(self.now_ms, save))

    def join(
        self,
        token: str,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        require_id: bool = False,
        skip: bool = False,
    ) -> JoinResponse | None:
        request = JoinRequest(
            "g", member_id, instance, "c", "/127.0.0.1", session_ms, self.rebalance_ms,
            protocol_type, protocols, require_id, skip,
        )  # fmt: skip
        self._take(self.machine.join(self.now_ms, token, request))
        return self.joined(token)

    def joined(self, token: str) -> JoinResponse | None:
        answer = self.answers.get(token)
        assert answer is None or isinstance(answer, JoinResponse)
        return answer

    def sync(
        self,
        token: str,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        **more: str,
    ) -> SyncResponse | None:
        request = SyncRequest("g", member_id, generation, assignments=assignments or {}, **more)
        self._take(self.machine.sync(self.now_ms, token, request))
        return self.synced(token)

    def synced(self, token: str) -> SyncResponse | None:
        answer = self.answers.get(token)
        assert answer is None or isinstance(answer, SyncResponse)
        return answer

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> GroupError:
        (reply,) = self.machine.heartbeat(self.now_ms, "h", "g", member_id, generation, instance)
        assert isinstance(reply.response, HeartbeatResponse)
        return reply.response.error

    def leave(self, *leavers: Leaver) -> list[GroupError]:
        replies = self.machine.leave(self.now_ms, "leave", "g", leavers)
        self._take(replies)
        answer = self.answers.pop("leave")
        assert isinstance(answer, LeaveResponse)
        assert answer.error is GroupError.NONE
        return [error for _, error in answer.leavers]

    def commit(self, member_id: str = "", generation: int = -1, **more: object) -> GroupError:
        return self.machine.check_offset_commit(self.now_ms, "g", member_id, generation, **more)  # type: ignore[arg-type]

    def wait(self, ms: int) -> None:
        """Lets time pass, ticking exactly when the machine asks for it."""
        end_ms = self.now_ms + ms
        while (deadline_ms := self.machine.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self._take(self.machine.tick(self.now_ms))
        self.now_ms = end_ms

    @property
    def state(self) -> GroupState:
        return self.machine.describe("g").state

    def stable(self, members: int = 1, *, instances: bool = False) -> list[str]:
        """A stable group; its members are named in the order in which they joined, the leader first."""
        ids: list[str] = []
        for n in range(members):
            self.join(f"first{n}", instance=f"i{n}" if instances else None)
            answer = self.joined(f"first{n}")
            if n == 0:
                assert answer is not None
                ids.append(answer.member_id)
                continue
            for m, member_id in enumerate(ids):
                self.join(f"again{n}-{m}", member_id, instance=f"i{m}" if instances else None)
            answer = self.joined(f"first{n}")
            assert answer is not None
            ids.append(answer.member_id)
        for n, member_id in reversed(list(enumerate(ids))):
            self.sync(f"sync{n}", member_id, members, {m: m.encode() for m in ids} if n == 0 else None)
        assert self.state is GroupState.STABLE
        return ids


def test_join_first_member_is_leader_and_sees_itself() -> None:
    driver = Driver()
    answer = driver.join("a")
    assert answer is not None
    assert (answer.error, answer.generation, answer.protocol) == (GroupError.NONE, 1, "range")
    assert answer.leader == answer.member_id == "c-1"
    assert [(m.member_id, m.metadata) for m in answer.members] == [("c-1", b"r")]


def test_join_v4_dynamic_member_is_sent_away_to_come_back_with_its_id() -> None:
    driver = Driver()
    first = driver.join("a", require_id=True)
    assert first is not None
    assert (first.error, first.member_id) == (GroupError.MEMBER_ID_REQUIRED, "c-1")
    assert driver.machine.describe("g").members == ()
    second = driver.join("b", "c-1", require_id=True)
    assert second is not None
    assert (second.error, second.member_id, second.generation) == (GroupError.NONE, "c-1", 1)


def test_join_pending_member_that_does_not_come_back_is_forgotten() -> None:
    driver = Driver()
    driver.join("a", require_id=True)
    driver.wait(SESSION_MS)
    answer = driver.join("b", "c-1", require_id=True)
    assert answer is not None
    assert answer.error is GroupError.UNKNOWN_MEMBER_ID
    assert driver.machine.next_deadline_ms() is None


def test_join_rebalance_waits_for_pending_member_until_it_is_forgotten() -> None:
    driver = Driver()
    (one,) = driver.stable()
    driver.join("new", require_id=True)
    driver.join("other")
    assert driver.join("again", one) is None
    driver.wait(SESSION_MS)
    answer = driver.joined("again")
    assert answer is not None
    assert (answer.generation, len(answer.members)) == (2, 2)


def test_join_while_a_rebalance_without_members_waits_for_a_pending_one_is_accepted() -> None:
    driver = Driver()
    (one,) = driver.stable()
    driver.join("pending", require_id=True)
    driver.join("again", one)
    driver.leave(Leaver(one))
    assert driver.state is GroupState.PREPARING_REBALANCE
    driver.join("late")
    driver.wait(SESSION_MS)
    answer = driver.joined("late")
    assert answer is not None
    assert (answer.error, answer.generation) == (GroupError.NONE, 2)


def test_join_unknown_member_of_unknown_group_is_refused() -> None:
    answer = Driver().join("a", "ghost")
    assert answer is not None
    assert answer.error is GroupError.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("session_ms", [5999, 1_800_001])
def test_join_session_timeout_out_of_bounds_is_refused(session_ms: int) -> None:
    answer = Driver().join("a", session_ms=session_ms)
    assert answer is not None
    assert answer.error is GroupError.INVALID_SESSION_TIMEOUT


def test_join_empty_group_id_is_refused() -> None:
    machine = GroupCoordinator()
    request = JoinRequest("", "", None, "c", "h", SESSION_MS, REBALANCE_MS, "consumer", RANGE)
    (reply,) = machine.join(0, "a", request)
    assert reply.response == JoinResponse(GroupError.INVALID_GROUP_ID, "")


def test_join_without_protocols_is_refused_and_leaves_no_group() -> None:
    driver = Driver()
    answer = driver.join("a", protocols=())
    assert answer is not None
    assert answer.error is GroupError.INCONSISTENT_GROUP_PROTOCOL
    assert driver.state is GroupState.DEAD


def test_join_other_protocols_than_the_group_are_refused() -> None:
    driver = Driver()
    driver.stable()
    for protocols, kind in [((("sticky", b""),), "consumer"), (RANGE, "connect")]:
        answer = driver.join(f"a{kind}", protocols=protocols, protocol_type=kind)
        assert answer is not None
        assert answer.error is GroupError.INCONSISTENT_GROUP_PROTOCOL


def test_join_initial_delay_gathers_members_into_one_generation() -> None:
    # 0         3000         6000          (delay 3000)
    # a joins   b joined: +3000            nobody new: both are answered
    driver = Driver(initial_delay_ms=3000)
    driver.join("a")
    driver.wait(2000)
    driver.join("b")
    driver.wait(1500)
    assert driver.joined("a") is None
    driver.wait(2500)
    first, second = driver.joined("a"), driver.joined("b")
    assert first is not None
    assert second is not None
    assert first.generation == second.generation == 1
    assert len(first.members) == 2
    assert second.members == ()


def test_join_initial_delay_is_bounded_by_the_rebalance_timeout() -> None:
    driver = Driver(initial_delay_ms=3000)
    driver.join("first")
    for n in range(40):  # somebody new every 2 s
        driver.wait(2000)
        driver.join(f"n{n}")
        if driver.joined("first") is not None:
            break
    assert driver.now_ms - 1000 <= REBALANCE_MS + 3000
    assert driver.joined("first") is not None


def test_join_new_member_makes_others_rejoin() -> None:
    driver = Driver()
    (one,) = driver.stable()
    assert driver.join("two") is None
    assert driver.heartbeat(one, 1) is GroupError.REBALANCE_IN_PROGRESS
    answer = driver.join("again", one)
    assert answer is not None
    assert (answer.generation, answer.leader, len(answer.members)) == (2, one, 2)
    second = driver.joined("two")
    assert second is not None
    assert (second.generation, second.leader, second.members) == (2, one, ())


def test_join_member_that_does_not_rejoin_is_removed_at_the_rebalance_timeout() -> None:
    driver = Driver()
    (one,) = driver.stable()
    driver.join("two")
    for _ in range(6):  # it sends heartbeats but never rejoins
        driver.wait(SESSION_MS - 1)
        assert driver.heartbeat(one, 1) is GroupError.REBALANCE_IN_PROGRESS
    driver.wait(SESSION_MS)
    answer = driver.joined("two")
    assert answer is not None
    assert (answer.leader, len(answer.members)) == (answer.member_id, 1)
    assert driver.heartbeat(one, 1) is GroupError.UNKNOWN_MEMBER_ID


def test_join_new_member_whose_client_went_away_is_removed_after_five_minutes() -> None:
    # Ten minutes to rejoin: the joining is still open when the newcomer's five minutes are over.
    driver = Driver(rebalance_ms=600_000)
    (one,) = driver.stable()
    driver.join("gone")
    for _ in range(31):
        driver.wait(SESSION_MS - 1)
        assert driver.heartbeat(one, 1) is GroupError.REBALANCE_IN_PROGRESS
    answer = driver.joined("gone")
    assert answer is not None
    assert answer.error is GroupError.UNKNOWN_MEMBER_ID
    back = driver.join("again", one)
    assert back is not None
    assert len(back.members) == 1


def test_join_repeated_with_same_metadata_gets_the_same_generation() -> None:
    driver = Driver()
    _one, two = driver.stable(2)
    answer = driver.join("repeat", two)
    assert answer is not None
    assert (answer.generation, answer.members) == (2, ())
    assert driver.state is GroupState.STABLE


def test_join_leader_of_stable_group_makes_a_rebalance() -> None:
    driver = Driver()
    one, two = driver.stable(2)
    assert driver.join("leader", one) is None
    assert driver.state is GroupState.PREPARING_REBALANCE
    driver.join("follower", two)
    answer = driver.joined("leader")
    assert answer is not None
    assert (answer.generation, len(answer.members)) == (3, 2)


def test_join_follower_with_new_metadata_makes_a_rebalance() -> None:
    driver = Driver()
    _, two = driver.stable(2)
    assert driver.join("changed", two, protocols=(("range", b"other"),)) is None
    assert driver.state is GroupState.PREPARING_REBALANCE


def test_join_while_completing_repeats_the_answer_to_the_leader_with_members() -> None:
    driver = Driver()
    driver.join("a")
    answer = driver.join("b", "c-1")
    assert answer is not None
    assert (answer.generation, len(answer.members)) == (1, 1)
    assert driver.state is GroupState.COMPLETING_REBALANCE


def test_join_sent_twice_answers_the_first_too() -> None:
    driver = Driver()
    one, two = driver.stable(2)
    driver.join("leader", one)
    driver.join("leader2", one)
    first = driver.joined("leader")
    assert first is not None
    assert first.error is GroupError.REBALANCE_IN_PROGRESS
    driver.join("follower", two)
    second = driver.joined("leader2")
    assert second is not None
    assert second.generation == 3


def test_join_protocol_is_the_common_one_with_most_votes() -> None:
    driver = Driver(initial_delay_ms=3000)
    driver.join("a", protocols=(("range", b""), ("sticky", b""), ("own", b"")))
    driver.join("b", protocols=(("sticky", b""), ("range", b"")))
    driver.join("c", protocols=(("sticky", b""), ("range", b"")))
    driver.wait(9000)
    answer = driver.joined("a")
    assert answer is not None
    assert answer.protocol == "sticky"


def test_join_group_at_its_maximum_size_refuses_one_more() -> None:
    driver = Driver(max_size=1)
    (one,) = driver.stable()
    answer = driver.join("two")
    assert answer is not None
    assert (answer.error, answer.member_id) == (GroupError.GROUP_MAX_SIZE_REACHED, "")
    assert driver.heartbeat(one, 1) is GroupError.NONE


def test_sync_follower_waits_for_the_leaders_assignment() -> None:
    driver = Driver(initial_delay_ms=3000)
    driver.join("a")
    driver.join("b")
    driver.wait(6000)
    assert driver.sync("follower", "c-2", 1) is None
    leader = driver.sync("leader", "c-1", 1, {"c-1": b"one", "c-2": b"two"})
    assert leader == SyncResponse(GroupError.NONE, "consumer", "range", b"one")
    assert driver.synced("follower") == SyncResponse(GroupError.NONE, "consumer", "range", b"two")


def test_sync_member_left_out_of_the_assignment_gets_an_empty_one() -> None:
    driver = Driver(initial_delay_ms=3000)
    driver.join("a")
    driver.join("b")
    driver.wait(6000)
    driver.sync("leader", "c-1", 1, {"c-1": b"one"})
    late = driver.sync("late", "c-2", 1)
    assert late == SyncResponse(GroupError.NONE, "consumer", "range", b"")


def test_sync_wrong_generation_member_or_protocol_is_refused() -> None:
    driver = Driver()
    (one,) = driver.stable()
    cases = {
        "generation": driver.sync("1", one, 7),
        "member": driver.sync("2", "ghost", 1),
        "protocol": driver.sync("3", one, 1, protocol="sticky"),
        "type": driver.sync("4", one, 1, protocol_type="connect"),
    }
    assert {name: answer.error for name, answer in cases.items() if answer is not None} == {
        "generation": GroupError.ILLEGAL_GENERATION,
        "member": GroupError.UNKNOWN_MEMBER_ID,
        "protocol": GroupError.INCONSISTENT_GROUP_PROTOCOL,
        "type": GroupError.INCONSISTENT_GROUP_PROTOCOL,
    }


def test_sync_parked_is_answered_with_rebalance_when_a_member_joins() -> None:
    driver = Driver(initial_delay_ms=3000)
    driver.join("a")
    driver.join("b")
    driver.wait(6000)
    driver.sync("follower", "c-2", 1)
    driver.join("c")
    assert driver.synced("follower") == SyncResponse(GroupError.REBALANCE_IN_PROGRESS)


def test_sync_members_that_never_sync_are_removed_at_the_rebalance_timeout() -> None:
    driver = Driver(initial_delay_ms=3000)
    driver.join("a")
    driver.join("b")
    driver.wait(6000)
    driver.sync("follower", "c-2", 1)  # the leader heartbeats but never assigns
    for _ in range(7):
        driver.wait(SESSION_MS - 1)
        driver.heartbeat("c-1", 1)
    assert driver.synced("follower") == SyncResponse(GroupError.REBALANCE_IN_PROGRESS)
    assert driver.heartbeat("c-1", 1) is GroupError.UNKNOWN_MEMBER_ID
    answer = driver.join("back", "c-2")
    assert answer is not None
    assert (answer.generation, answer.leader) == (2, "c-2")


def test_heartbeat_silent_member_is_removed_after_its_session() -> None:
    driver = Driver()
    one, two = driver.stable(2)
    driver.wait(SESSION_MS - 1)
    assert driver.heartbeat(one, 2) is GroupError.NONE
    driver.wait(1)
    assert driver.state is GroupState.PREPARING_REBALANCE
    assert driver.heartbeat(two, 2) is GroupError.UNKNOWN_MEMBER_ID
    answer = driver.join("alone", one)
    assert answer is not None
    assert (answer.generation, len(answer.members)) == (3, 1)


def test_heartbeat_wrong_generation_is_refused() -> None:
    driver = Driver()
    (one,) = driver.stable()
    assert driver.heartbeat(one, 2) is GroupError.ILLEGAL_GENERATION


def test_heartbeat_last_member_silent_empties_the_group() -> None:
    driver = Driver()
    driver.stable()
    driver.wait(SESSION_MS)
    group = driver.machine.describe("g")
    assert (group.state, group.protocol_type, group.members) == (GroupState.EMPTY, "consumer", ())
    assert driver.machine.next_deadline_ms() is None
    assert driver.machine.idle_groups() == ["g"]
    assert driver.machine.delete("g") is GroupError.NONE
    assert driver.state is GroupState.DEAD
    assert driver.machine.describe("g", stored=True).state is GroupState.EMPTY


def test_join_after_the_last_member_left_goes_on_counting_generations() -> None:
    driver = Driver()
    (one,) = driver.stable()
    driver.leave(Leaver(one))
    assert driver.heartbeat(one, 1) is GroupError.UNKNOWN_MEMBER_ID
    assert driver.commit(one, 1) is GroupError.UNKNOWN_MEMBER_ID
    answer = driver.join("new", protocols=(("own", b""),), protocol_type="connect")
    assert answer is not None
    assert (answer.error, answer.generation) == (GroupError.NONE, 3)
    assert driver.machine.describe("g").protocol_type == "connect"


def test_heartbeat_parked_join_stands_for_heartbeats() -> None:
    driver = Driver()
    one, two = driver.stable(2)
    driver.join("leader", one)
    for _ in range(4):
        driver.wait(SESSION_MS - 1)
        assert driver.heartbeat(two, 2) is GroupError.REBALANCE_IN_PROGRESS
    answer = driver.join("follower", two)
    assert answer is not None
    assert driver.joined("leader") is not None


def test_leave_member_makes_others_rejoin() -> None:
    driver = Driver()
    one, two = driver.stable(2)
    assert driver.leave(Leaver(two)) == [GroupError.NONE]
    assert driver.heartbeat(one, 2) is GroupError.REBALANCE_IN_PROGRESS
    answer = driver.join("alone", one)
    assert answer is not None
    assert len(answer.members) == 1


def test_leave_leader_makes_another_leader() -> None:
    driver = Driver()
    one, two = driver.stable(2)
    driver.leave(Leaver(one))
    answer = driver.join("alone", two)
    assert answer is not None
    assert answer.leader == two


def test_leave_batch_answers_each_in_order() -> None:
    driver = Driver()
    driver.stable(2, instances=True)
    pending = driver.join("p", require_id=True)
    assert pending is not None
    errors = driver.leave(
        Leaver("", "i0"),
        Leaver("wrong", "i1"),
        Leaver("", "ghost"),
        Leaver(pending.member_id),
        Leaver("nobody"),
    )
    assert errors == [
        GroupError.NONE,
        GroupError.FENCED_INSTANCE_ID,
        GroupError.UNKNOWN_MEMBER_ID,
        GroupError.NONE,
        GroupError.UNKNOWN_MEMBER_ID,
    ]


def test_leave_unknown_group_answers_unknown_member() -> None:
    assert Driver().leave(Leaver("a")) == [GroupError.UNKNOWN_MEMBER_ID]


def test_leave_member_with_parked_join_is_answered() -> None:
    driver = Driver()
    one, _two = driver.stable(2)
    driver.join("leader", one)
    driver.leave(Leaver(one))
    answer = driver.joined("leader")
    assert answer is not None
    assert answer.error is GroupError.UNKNOWN_MEMBER_ID


def test_static_member_comes_back_without_rebalance() -> None:
    driver = Driver()
    one, two = driver.stable(2, instances=True)
    answer = driver.join("back", instance="i1")
    assert answer is not None
    assert (answer.error, answer.generation, answer.leader) == (GroupError.NONE, 2, one)
    assert answer.member_id not in {one, two}
    assert driver.state is GroupState.STABLE
    assert driver.heartbeat(two, 2, "i1") is GroupError.FENCED_INSTANCE_ID
    synced = driver.sync("s", answer.member_id, 2)
    assert synced is not None
    assert synced.assignment == two.encode()


@pytest.mark.parametrize("skip", [True, False])
def test_static_leader_comes_back_and_does_not_assign(skip: bool) -> None:
    driver = Driver()
    one, _ = driver.stable(2, instances=True)
    answer = driver.join("back", instance="i0", skip=skip)
    assert answer is not None
    assert answer.skip_assignment is skip
    assert (answer.leader == answer.member_id) is skip
    assert len(answer.members) == (2 if skip else 0)
    if not skip:
        assert answer.leader == one


def test_static_member_coming_back_while_completing_makes_a_rebalance() -> None:
    driver = Driver()
    driver.join("a", instance="i0")
    assert driver.join("back", instance="i0") is not None
    answer = driver.joined("back")
    assert answer is not None
    assert (answer.error, answer.generation) == (GroupError.NONE, 2)


def test_static_member_coming_back_fences_the_parked_join_of_its_predecessor() -> None:
    driver = Driver()
    one, _two = driver.stable(2, instances=True)
    driver.join("leader", one, instance="i0")
    driver.join("leader-again", instance="i0")
    answer = driver.joined("leader")
    assert answer is not None
    assert answer.error is GroupError.FENCED_INSTANCE_ID


def test_static_member_coming_back_with_another_protocol_makes_a_rebalance() -> None:
    driver = Driver()
    driver.join("a", instance="i0", protocols=(("range", b""), ("sticky", b"")))
    driver.sync("s", "i0-1", 1, {"i0-1": b""})
    answer = driver.join("back", instance="i0", protocols=(("sticky", b""), ("range", b"")))
    assert answer is not None
    assert (answer.generation, answer.protocol) == (2, "sticky")


def test_static_member_that_does_not_rejoin_stays_until_its_session_ends() -> None:
    driver = Driver()
    one, two = driver.stable(2, instances=True)
    driver.join("leader", one, instance="i0")
    for _ in range(6):
        driver.wait(SESSION_MS - 1)
        driver.heartbeat(two, 2, "i1")
    driver.wait(SESSION_MS - 1)
    answer = driver.joined("leader")
    assert answer is not None
    assert {member.member_id for member in answer.members} == {one, two}


def test_commit_is_allowed_to_members_and_to_anybody_while_the_group_is_empty() -> None:
    driver = Driver()
    assert driver.commit() is GroupError.NONE
    assert driver.commit("ghost", 3) is GroupError.ILLEGAL_GENERATION
    assert driver.commit("ghost", 3, transactional=True) is GroupError.UNKNOWN_MEMBER_ID
    (one,) = driver.stable()
    assert driver.commit(one, 1) is GroupError.NONE
    assert driver.commit() is GroupError.UNKNOWN_MEMBER_ID
    assert driver.commit(transactional=True) is GroupError.NONE
    assert driver.commit("ghost", 1) is GroupError.UNKNOWN_MEMBER_ID
    assert driver.commit(one, 2) is GroupError.ILLEGAL_GENERATION


def test_commit_during_rebalance_is_allowed_until_the_new_generation() -> None:
    driver = Driver()
    one, two = driver.stable(2)
    driver.join("leader", one)
    assert driver.commit(two, 2) is GroupError.NONE
    driver.join("follower", two)
    assert driver.commit(two, 2) is GroupError.ILLEGAL_GENERATION
    assert driver.commit(two, 3) is GroupError.REBALANCE_IN_PROGRESS


def test_commit_of_fenced_static_member_is_refused() -> None:
    driver = Driver()
    _, two = driver.stable(2, instances=True)
    driver.join("back", instance="i1")
    assert driver.commit(two, 2, instance_id="i1") is GroupError.FENCED_INSTANCE_ID


def test_commit_counts_as_heartbeat() -> None:
    driver = Driver()
    (one,) = driver.stable()
    for _ in range(3):
        driver.wait(SESSION_MS - 1)
        assert driver.commit(one, 1) is GroupError.NONE
    assert driver.heartbeat(one, 1) is GroupError.NONE


def test_describe_stable_group_shows_metadata_and_assignments() -> None:
    driver = Driver()
    one, two = driver.stable(2)
    group = driver.machine.describe("g")
    assert (group.state, group.protocol_type, group.protocol) == (GroupState.STABLE, "consumer", "range")
    assert {m.member_id: (m.metadata, m.assignment, m.client_host) for m in group.members} == {
        one: (b"r", one.encode(), "/127.0.0.1"),
        two: (b"r", two.encode(), "/127.0.0.1"),
    }


def test_list_filters_by_state_in_any_case_and_includes_stored_groups() -> None:
    driver = Driver()
    driver.stable()
    everything = driver.machine.list_groups(stored={"old": False, "g": False})
    assert [(g.group_id, g.state) for g in everything] == [
        ("g", GroupState.STABLE),
        ("old", GroupState.EMPTY),
    ]
    assert [g.group_id for g in driver.machine.list_groups(["stable"], {"old": False})] == ["g"]
    assert [g.group_id for g in driver.machine.list_groups(["EMPTY"], {"old": False})] == ["old"]


def test_delete_group_only_without_members() -> None:
    driver = Driver()
    assert driver.machine.delete("g") is GroupError.GROUP_ID_NOT_FOUND
    assert driver.machine.delete("g", stored=True) is GroupError.NONE
    (one,) = driver.stable()
    assert driver.machine.delete("g", stored=True) is GroupError.NON_EMPTY_GROUP
    driver.leave(Leaver(one))
    assert driver.machine.delete("g", stored=True) is GroupError.NONE


def test_offset_deletion_of_subscribed_topic_is_known() -> None:
    driver = Driver()
    metadata = b"\x00\x01" + b"\x00\x00\x00\x01" + b"\x00\x06clicks" + b"\xff\xff\xff\xff"
    driver.join("a", protocols=(("range", metadata),))
    driver.sync("s", "c-1", 1, {"c-1": b""})
    assert driver.machine.check_offset_deletion("g") is GroupError.NONE
    assert driver.machine.is_subscribed("g", "clicks")
    assert not driver.machine.is_subscribed("g", "other")
    assert driver.machine.check_offset_deletion("none") is GroupError.GROUP_ID_NOT_FOUND


def test_offset_deletion_with_unreadable_metadata_counts_every_topic_as_subscribed() -> None:
    driver = Driver()
    driver.stable()
    assert driver.machine.is_subscribed("g", "anything")


def test_offset_deletion_while_a_member_joins_with_other_protocols_asks_the_others() -> None:
    driver = Driver()
    metadata = b"\x00\x01" + b"\x00\x00\x00\x01" + b"\x00\x06clicks" + b"\xff\xff\xff\xff"
    driver.join("a", protocols=(("range", metadata), ("sticky", metadata)))
    driver.sync("s", "c-1", 1, {"c-1": b""})
    driver.join("b", protocols=(("sticky", metadata),))
    assert driver.state is GroupState.PREPARING_REBALANCE
    assert driver.machine.is_subscribed("g", "clicks")
    assert not driver.machine.is_subscribed("g", "other")


def test_offset_use_follows_the_groups_state() -> None:
    driver = Driver()
    assert driver.machine.offset_use("g", driver.now_ms) is None
    metadata = b"\x00\x01" + b"\x00\x00\x00\x01" + b"\x00\x06clicks" + b"\xff\xff\xff\xff"
    driver.join("a", protocols=(("range", metadata),))
    assert driver.machine.offset_use("g", driver.now_ms) == OffsetUse(None, None)
    driver.sync("s", "c-1", 1, {"c-1": b""})
    assert driver.machine.offset_use("g", driver.now_ms) == OffsetUse(None, frozenset({"clicks"}))
    driver.leave(Leaver("c-1"))
    assert driver.machine.offset_use("g", driver.now_ms + 500) == OffsetUse(500, frozenset())


def test_unload_answers_what_is_parked() -> None:
    driver = Driver()
    one, _two = driver.stable(2)
    driver.join("leader", one)
    (reply,) = driver.machine.unload("g", driver.now_ms)
    assert reply.response == JoinResponse(GroupError.NOT_COORDINATOR, one)
    assert driver.machine.next_deadline_ms() is None


# -- keeping ---------------------------------------------------------------------------------------


def restarted(driver: Driver, idle_ms: int = 0, **config: int) -> Driver:
    """Another coordinator, which takes over what the first one kept."""
    other = Driver(**config)
    other.now_ms = driver.now_ms
    assert driver.kept is not None
    group, since_ms = decode_group("g", encode_group(driver.kept, 77))
    assert (group, since_ms) == (driver.kept, 77)
    other._take(other.machine.load(other.now_ms, group, idle_ms))
    return other


def test_load_stable_group_goes_on_in_its_generation() -> None:
    driver = Driver()
    one, two = driver.stable(2, instances=True)
    after = restarted(driver)
    assert after.machine.describe("g") == driver.machine.describe("g")
    assert after.heartbeat(one, 2) is GroupError.NONE
    assert after.commit(two, 2) is GroupError.NONE
    assert after.heartbeat(two, 1) is GroupError.ILLEGAL_GENERATION
    answer = after.sync("again", two, 2)
    assert answer is not None
    assert answer.assignment == two.encode()


def test_load_members_that_stay_away_are_removed_after_a_session() -> None:
    driver = Driver()
    one, two = driver.stable(2)
    after = restarted(driver)
    after.wait(SESSION_MS - 1)
    assert after.heartbeat(one, 2) is GroupError.NONE
    assert after.state is GroupState.STABLE
    after.wait(1)
    assert after.heartbeat(two, 2) is GroupError.UNKNOWN_MEMBER_ID
    assert after.heartbeat(one, 2) is GroupError.REBALANCE_IN_PROGRESS
    answer = after.join("back", one)
    assert answer is not None
    assert answer.generation == 3


def test_load_member_of_a_generation_that_was_not_kept_cannot_commit_with_it() -> None:
    driver = Driver()
    one, two = driver.stable(2)
    driver.keeps = False
    # Both join generation 3; the coordinator is gone before the leader has assigned.
    driver.join("a", one, protocols=(("range", b"new"),))
    driver.join("b", two)
    answer = driver.joined("a")
    assert answer is not None
    assert answer.generation == 3
    after = restarted(driver)
    assert after.commit(one, 3) is GroupError.ILLEGAL_GENERATION
    assert after.commit(one, 2) is GroupError.NONE
    again = after.sync("s", one, 3, {one: b"x"})
    assert again is not None
    assert again.error is GroupError.ILLEGAL_GENERATION


def test_load_member_that_was_removed_before_is_fenced() -> None:
    driver = Driver()
    one, two = driver.stable(2)
    assert driver.leave(Leaver(two)) == [GroupError.NONE]
    driver.join("alone", one)
    driver.sync("alone s", one, 3, {one: b"all"})
    after = restarted(driver)
    for generation in (2, 3):
        assert after.commit(two, generation) is GroupError.UNKNOWN_MEMBER_ID
    assert after.commit(one, 3) is GroupError.NONE


def test_load_static_member_keeps_its_place_and_its_predecessor_is_fenced() -> None:
    driver = Driver()
    first, _ = driver.stable(2, instances=True)
    back = driver.join("back", instance="i0", skip=True)
    assert back is not None
    after = restarted(driver)
    assert after.heartbeat(back.member_id, 2, "i0") is GroupError.NONE
    assert after.heartbeat(first, 2, "i0") is GroupError.FENCED_INSTANCE_ID
    assert after.commit(first, 2, instance_id="i0") is GroupError.FENCED_INSTANCE_ID
    # It comes back once more, without a rebalance.
    answer = after.join("once more", instance="i0", skip=True)
    assert answer is not None
    assert (answer.error, answer.generation, answer.skip_assignment) == (GroupError.NONE, 2, True)


def test_load_empty_group_keeps_generation_type_and_age() -> None:
    driver = Driver()
    (one,) = driver.stable()
    driver.leave(Leaver(one))
    after = restarted(driver, idle_ms=5000)
    group = after.machine.describe("g")
    assert (group.state, group.protocol_type, group.members) == (GroupState.EMPTY, "consumer", ())
    assert after.machine.offset_use("g", after.now_ms) == OffsetUse(5000, frozenset())
    answer = after.join("new")
    assert answer is not None
    assert answer.generation == 3


def test_load_more_members_than_are_allowed_now_rebalances() -> None:
    driver = Driver()
    one, _ = driver.stable(2)
    after = restarted(driver, max_size=1)
    assert after.heartbeat(one, 2) is GroupError.REBALANCE_IN_PROGRESS


def test_sync_is_answered_once_the_assignment_is_kept() -> None:
    driver = Driver()
    driver.keeps = False
    one = driver.join("a")
    assert one is not None
    assert driver.sync("s", one.member_id, 1, {one.member_id: b"x"}) is None
    assert driver.commit(one.member_id, 1) is GroupError.REBALANCE_IN_PROGRESS
    (save,) = driver.machine.take_saves()
    driver._take(driver.machine.saved(driver.now_ms, save))
    answer = driver.synced("s")
    assert answer is not None
    assert answer.assignment == b"x"
    assert driver.state is GroupState.STABLE


def test_sync_assignment_that_cannot_be_kept_is_made_again() -> None:
    driver = Driver()
    driver.keeps = False
    one = driver.join("a")
    assert one is not None
    driver.sync("s", one.member_id, 1, {one.member_id: b"x"})
    (save,) = driver.machine.take_saves()
    driver._take(driver.machine.saved(driver.now_ms, save, is_kept=False))
    answer = driver.synced("s")
    assert answer is not None
    assert (answer.error, answer.assignment) == (GroupError.COORDINATOR_NOT_AVAILABLE, b"")
    assert driver.state is GroupState.PREPARING_REBALANCE
    again = driver.join("b", one.member_id)
    assert again is not None
    assert again.generation == 2


def test_sync_assignment_kept_after_the_next_rebalance_began_is_not_handed_out() -> None:
    driver = Driver()
    driver.keeps = False
    one = driver.join("a")
    assert one is not None
    driver.sync("s", one.member_id, 1, {one.member_id: b"x"})
    (save,) = driver.machine.take_saves()
    driver.join("b")
    answer = driver.synced("s")
    assert answer is not None
    assert answer.error is GroupError.REBALANCE_IN_PROGRESS
    driver._take(driver.machine.saved(driver.now_ms, save))
    assert driver.state is GroupState.PREPARING_REBALANCE


def test_join_static_member_whose_new_id_cannot_be_kept_is_told_to_try_again() -> None:
    driver = Driver()
    driver.stable(2, instances=True)
    driver.keeps = False
    assert driver.join("back", instance="i1", skip=True) is None
    (save,) = driver.machine.take_saves()
    driver._take(driver.machine.saved(driver.now_ms, save, is_kept=False))
    answer = driver.joined("back")
    assert answer is not None
    assert answer.error is GroupError.COORDINATOR_NOT_AVAILABLE


def test_decode_group_of_many_members_comes_back() -> None:
    member = KeptMember("m", None, "c", "/h", 6000, 9000, (("range", bytes(range(256))),), b"\x00" * 500)
    members = tuple(replace(member, member_id=f"m{number}") for number in range(2000))
    group = KeptGroup("g", 9, "consumer", "range", "m0", members)
    data = encode_group(group, 5)
    assert len(data) < 512 * 1024
    assert decode_group("g", data) == (group, 5)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"version":2}', b"\x78\x9c", b"{", b"garbage"])
def test_decode_group_of_something_else_says_so(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_group("g", data)
