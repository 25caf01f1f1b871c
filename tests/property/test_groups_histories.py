"""Random histories of a group: whatever clients do, every request is answered, once, and the books agree."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from amount import amount
from headwater_broker.groups import (
    GroupConfig,
    GroupCoordinator,
    GroupState,
    JoinRequest,
    JoinResponse,
    Leaver,
    Reply,
    SyncRequest,
)

PROTOCOLS = [(("range", b"a"),), (("range", b"b"), ("sticky", b"")), (("sticky", b""), ("range", b"a")), ()]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "rejoin", "sync", "heartbeat", "leave", "commit", "wait"]),
        st.integers(0, 5),
        st.sampled_from([None, "i0", "i1"]),
        st.integers(0, 3),
        st.integers(0, 12_000),
    ),
    max_size=60,
)


@settings(max_examples=amount(small=50, full=200))
@given(steps=STEPS, delay_ms=st.sampled_from([0, 3000]), require_id=st.booleans())
def test_group_any_history_answers_each_request_once(
    steps: list[tuple[str, int, str | None, int, int]], delay_ms: int, require_id: bool
) -> None:
    numbers = itertools.count()
    machine = GroupCoordinator(
        GroupConfig(initial_rebalance_delay_ms=delay_ms), new_id=lambda: str(next(numbers))
    )
    asked: list[int] = []
    answered: list[object] = []
    known_ids = ["ghost"]
    generation = 0
    now_ms = 0

    def take(replies: list[Reply]) -> None:
        nonlocal generation
        for reply in replies:
            answered.append(reply.token)
            if isinstance(reply.response, JoinResponse):
                known_ids.append(reply.response.member_id)
                generation = max(generation, reply.response.generation)
        # Every third time what was to be kept could not be.
        for save in machine.take_saves():
            take(machine.saved(now_ms, save, is_kept=save.number % 3 > 0))

    for token, (step, who, instance, which, ms) in enumerate(steps):
        member_id = known_ids[-1 - who % len(known_ids)]
        if step == "wait":
            now_ms += ms
            take(machine.tick(now_ms))
            continue
        if step == "commit":
            machine.check_offset_commit(now_ms, "g", member_id, generation - which % 2, instance)
            continue
        asked.append(token)
        if step in {"join", "rejoin"}:
            request = JoinRequest(
                *("g", "" if step == "join" else member_id, instance, "c", "h", 6000, 9000 + ms),
                *("consumer", PROTOCOLS[which], require_id, bool(which % 2)),
            )
            take(machine.join(now_ms, token, request))
        elif step == "sync":
            take(machine.sync(now_ms, token, SyncRequest("g", member_id, generation, instance)))
        elif step == "heartbeat":
            take(machine.heartbeat(now_ms, token, "g", member_id, generation, instance))
        else:
            take(machine.leave(now_ms, token, "g", [Leaver(member_id, instance)]))
        described = machine.describe("g")
        if described.state is GroupState.STABLE:
            assert described.members
    while (deadline_ms := machine.next_deadline_ms()) is not None:
        assert deadline_ms < now_ms + 10**7, "time goes by and nothing happens"
        take(machine.tick(deadline_ms))
    assert sorted(asked) == sorted(answered)  # type: ignore[type-var]
    assert all(group.state is GroupState.EMPTY for group in machine.list_groups())
    for group_id in machine.idle_groups():
        machine.delete(group_id)
    assert machine.list_groups() == []
