"""Whole populations of members, eager or cooperative, dynamic or static, some of which crash, stall or double.

The members behave as Kafka's clients do. The model knows what each of them believes that it owns, and when
the coordinator last heard of it. At any time:

- nobody who may believe so owns what somebody else owns;
- a stable group holds no member that was silent for its session;
- every assignment is the one that the generation's leader made;
- offsets are taken from nobody whose partitions are another's.

All of that holds while the coordinator crashes and is loaded from what was kept, a save takes its time, and some
saves fail.

And once the faults are over, everybody is in one generation and everything is owned. `HEADWATER_SEED` repeats
a run; `HEADWATER_HISTORIES` sets how many there are.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Mapping
from typing import Any

import pytest

from amount import amount
from headwater_broker.consumer.sticky import sticky_assignment
from headwater_broker.groups import (
    GroupConfig,
    GroupCoordinator,
    GroupError,
    GroupState,
    HeartbeatResponse,
    JoinRequest,
    JoinResponse,
    KeptGroup,
    Leaver,
    LeaveResponse,
    Reply,
    Save,
    SyncRequest,
    SyncResponse,
)

SEED = int(os.environ.get("HEADWATER_SEED", random.SystemRandom().randrange(2**32)))
HISTORIES = amount("HEADWATER_HISTORIES", small=15, full=60)
PARTITIONS = range(8)
STEP_MS = 100
HEARTBEAT_MS = 1000
GONE = {GroupError.UNKNOWN_MEMBER_ID, GroupError.ILLEGAL_GENERATION}
AGAIN = {GroupError.REBALANCE_IN_PROGRESS, GroupError.COORDINATOR_NOT_AVAILABLE}


class Client:
    """One member as a process: it answers what the coordinator says, while it lives and does not stall."""

    def __init__(self, world: World, instance: str | None) -> None:
        rng = world.rng
        self.world = world
        self.instance = instance
        self.session_ms = rng.choice([6000, 10_000])
        self.rebalance_ms = self.session_ms + rng.choice([0, 20_000])
        self.requires_id = rng.random() < 0.7
        self.skips = rng.random() < 0.5
        self.member_id = ""
        self.generation = -1
        self.coordinator = (
            0  # which one its last answer came from: generations are its own until they are kept
        )
        self.owned: frozenset[int] = frozenset()
        self.is_in = False
        self.is_waiting = False
        self.is_fenced = False
        self.stalled_until_ms = 0
        self.heard_ms = 0
        self.next_heartbeat_ms = 0
        self.inbox: list[Any] = []

    def may_own(self) -> bool:
        """Whether its belief counts: not when its session can be over, or its name is another's, or it stalls
        over an answer that it has to rejoin: heartbeats do not save who is late for that.
        """
        is_told = any(response.error is not GroupError.NONE for response in self.inbox)
        superseded = self.instance is not None and self.world.by_instance.get(self.instance) is not self
        return not is_told and not superseded and self.world.now_ms < self.heard_ms + self.session_ms

    def act(self) -> None:
        """Does what is due."""
        if self.is_fenced or self.world.now_ms < self.stalled_until_ms:
            return
        inbox, self.inbox = self.inbox, []
        for response in inbox:
            self.is_waiting = False
            self._take(response)
        if self.is_waiting or self.is_fenced:
            return
        if not self.is_in:
            self._join()
        elif self.world.now_ms >= self.next_heartbeat_ms:
            self.next_heartbeat_ms = self.world.now_ms + HEARTBEAT_MS
            self.is_waiting = True
            self.world.heartbeat(self)

    def _join(self) -> None:
        if not self.world.cooperative:
            self.owned = frozenset()
        said = json.dumps([self.generation, sorted(self.owned)]).encode()
        self.is_waiting = True
        self.world.join(self, (("cooperative" if self.world.cooperative else "eager", said),))

    def _take(self, response: Any) -> None:
        match response:
            case JoinResponse(error=GroupError.NONE):
                self._joined(response)
            case SyncResponse(error=GroupError.NONE):
                given = frozenset(json.loads(response.assignment or b"[]"))
                lost = self.owned - given
                self.owned = given
                self.is_in = True
                self.next_heartbeat_ms = self.world.now_ms + HEARTBEAT_MS
                if lost and self.world.cooperative:
                    self.is_in = False  # what it gave up is for others: another round
            case HeartbeatResponse(error=GroupError.NONE):
                pass
            case JoinResponse(error=GroupError.MEMBER_ID_REQUIRED):
                self.member_id = response.member_id
            case _ if response.error is GroupError.FENCED_INSTANCE_ID:
                self.is_fenced, self.owned = True, frozenset()
            case _ if response.error in GONE:
                if response.error is GroupError.UNKNOWN_MEMBER_ID:
                    self.member_id = ""
                self.is_in, self.owned, self.generation = False, frozenset(), -1
            case _:
                assert response.error in AGAIN, response
                self.is_in = False

    def _joined(self, response: JoinResponse) -> None:
        world = self.world
        self.member_id = response.member_id
        self.generation = response.generation
        assignments: dict[str, bytes] = {}
        if response.leader == self.member_id and not response.skip_assignment:
            said = {member.member_id: json.loads(member.metadata) for member in response.members}
            shares = world.shares(said)
            assignments = {member: json.dumps(sorted(share)).encode() for member, share in shares.items()}
            key = (self.coordinator, response.generation)
            assert key not in world.decided or world.decided[key][0] is self
            world.decided[key] = (self, assignments)
        self.is_waiting = True
        world.sync(self, assignments)


class World:
    """The coordinator, the population and time."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.cooperative = self.rng.random() < 0.5
        self.clients: list[Client] = []
        self.by_instance: dict[str, Client] = {}
        self.decided: dict[tuple[int, int], tuple[Client, dict[str, bytes]]] = {}
        self.heard_ms: dict[str, int] = {}
        self._sessions: dict[str, int] = {}
        self._numbers = itertools.count()
        self._asked: dict[int, Client] = {}
        self._tokens = itertools.count()
        self._generation = 0
        self._saves: list[tuple[int, Save]] = []
        self._kept: KeptGroup | None = None
        self._crashes = 0
        self._delay_ms = self.rng.choice([0, 3000])
        self.machine = self._new_machine()

    def _new_machine(self) -> GroupCoordinator:
        return GroupCoordinator(
            GroupConfig(initial_rebalance_delay_ms=self._delay_ms), new_id=lambda: str(next(self._numbers))
        )

    # -- requests ----------------------------------------------------------------------------------

    def join(self, client: Client, protocols: tuple[tuple[str, bytes], ...]) -> None:
        request = JoinRequest(
            "g", client.member_id, client.instance, "c", "/h", client.session_ms, client.rebalance_ms,
            "consumer", protocols, client.requires_id, client.skips,
        )  # fmt: skip
        self._deliver(self.machine.join(self.now_ms, self._token(client), request))

    def sync(self, client: Client, assignments: Mapping[str, bytes]) -> None:
        request = SyncRequest(
            "g", client.member_id, client.generation, client.instance, assignments=assignments
        )
        self._deliver(self.machine.sync(self.now_ms, self._token(client), request))

    def heartbeat(self, client: Client) -> None:
        token = self._token(client)
        self._deliver(
            self.machine.heartbeat(
                self.now_ms, token, "g", client.member_id, client.generation, client.instance
            )
        )

    def commit(self, client: Client) -> None:
        error = self.machine.check_offset_commit(
            self.now_ms, "g", client.member_id, client.generation, client.instance
        )
        if error is GroupError.NONE:
            self._heard(client, client.member_id)
            others = [other for other in self.clients if other is not client and other.may_own()]
            assert not any(client.owned & other.owned for other in others)

    def leave(self, client: Client) -> None:
        if client.member_id:
            leaver = Leaver(client.member_id, client.instance)
            self._deliver(self.machine.leave(self.now_ms, self._token(client), "g", [leaver]))
        self.clients.remove(client)

    def _token(self, client: Client) -> int:
        token = next(self._tokens)
        self._asked[token] = client
        return token

    def _heard(self, client: Client, member_id: str) -> None:
        client.heard_ms = self.now_ms
        self.heard_ms[member_id] = self.now_ms
        self._sessions[member_id] = client.session_ms

    def _deliver(self, replies: list[Reply]) -> None:
        for reply in replies:
            assert isinstance(reply.token, int)
            client = self._asked.pop(reply.token)  # twice would be a KeyError
            response = reply.response
            if isinstance(response, LeaveResponse):
                continue
            if isinstance(response, JoinResponse) and response.error is GroupError.NONE:
                assert response.generation >= self._generation
                if response.generation > self._generation:
                    # Sessions begin anew with a generation, those of static members that were late too.
                    members = self.machine.describe("g").members
                    self.heard_ms.update((member.member_id, self.now_ms) for member in members)
                self._generation = response.generation
                self._heard(client, response.member_id)
            elif response.error in {GroupError.NONE, GroupError.REBALANCE_IN_PROGRESS}:
                self._heard(client, client.member_id)
            if isinstance(response, SyncResponse) and response.error is GroupError.NONE:
                self._check_assignment(client, response)
            client.coordinator = self._crashes
            client.inbox.append(response)
        for save in self.machine.take_saves():
            self._saves.append((self.now_ms + self.rng.choice([0, 0, 400, 3000]), save))
        self._keep()

    def _keep(self) -> None:
        """Makes the saves that are done by now, in their order."""
        while self._saves and self._saves[0][0] <= self.now_ms:
            _, save = self._saves.pop(0)
            is_kept = self.rng.random() < 0.9
            if is_kept:
                self._kept = save.group
            self._deliver(self.machine.saved(self.now_ms, save, is_kept=is_kept))

    def crash(self) -> None:
        """The coordinator is gone, and another loads what was kept; a save under way may have come through."""
        for _, save in self._saves[: self.rng.randint(0, len(self._saves))]:
            self._kept = save.group
        self._saves.clear()
        for client in self._asked.values():
            client.is_waiting = False
        self._asked.clear()
        self.machine = self._new_machine()
        kept = self._kept
        self._generation = kept.generation if kept is not None else 0
        last = (self._crashes, self._generation)
        self._crashes += 1
        if last in self.decided:
            self.decided[self._crashes, self._generation] = self.decided[last]
        if kept is not None:
            for member in kept.members:
                self.heard_ms[member.member_id] = self.now_ms
                self._sessions[member.member_id] = member.session_timeout_ms
            self._deliver(self.machine.load(self.now_ms, kept))

    def _check_assignment(self, client: Client, response: SyncResponse) -> None:
        _, decided = self.decided[self._crashes, self._generation]
        if client.member_id in decided:
            assert response.assignment == decided[client.member_id]
        else:  # a static member that came back under a new id inherits, nobody else is given anything
            assert not response.assignment or client.instance is not None

    def shares(self, said: Mapping[str, tuple[int, list[int]]]) -> dict[str, set[int]]:
        """What a leader decides, from what the members say: their last generation and what they own."""
        members = {member: ["t"] for member in said}
        if not self.cooperative:
            shares = sticky_assignment(members, {"t": PARTITIONS}, {})
            return {member: {number for _, number in share} for member, share in shares.items()}
        owner: dict[int, tuple[int, str]] = {}
        for member, (generation, owned) in said.items():
            for number in owned:
                owner[number] = max(owner.get(number, (-2, "")), (generation, member))
        claims: dict[str, list[tuple[str, int]]] = {member: [] for member in said}
        for number, (_, member) in owner.items():
            claims[member].append(("t", number))
        shares = sticky_assignment(members, {"t": PARTITIONS}, claims)
        return {
            member: {number for _, number in share if number not in owner or owner[number][1] == member}
            for member, share in shares.items()
        }

    # -- time and faults ---------------------------------------------------------------------------

    def pass_time(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms:
            self.now_ms += STEP_MS
            while (due_ms := self.machine.next_deadline_ms()) is not None and due_ms <= self.now_ms:
                self._deliver(self.machine.tick(self.now_ms))
            self._keep()
            for client in list(self.clients):
                client.act()
            self.check()

    def check(self) -> None:
        owner: dict[int, Client] = {}
        for client in self.clients:
            for number in client.owned if client.may_own() else ():
                assert number not in owner, f"{number} has two owners at {self.now_ms} ms"
                owner[number] = client
        group = self.machine.describe("g")
        if group.state is GroupState.STABLE:
            for member in group.members:
                if member.member_id not in self.heard_ms:
                    continue  # a static one whose answer waits until its new id is kept
                silence_ms = self.now_ms - self.heard_ms[member.member_id]
                assert silence_ms < self._sessions[member.member_id], f"{member.member_id} is silent"
            names = [member.instance_id for member in group.members if member.instance_id is not None]
            assert len(names) == len(set(names))

    def start(self, instance: str | None) -> None:
        client = Client(self, instance)
        if instance is not None:
            self.by_instance[instance] = client
        client.heard_ms = self.now_ms
        self.clients.append(client)

    def fault(self) -> None:
        """Something happens to somebody."""
        rng = self.rng
        happening = rng.choice(
            ["start", "start", "static", "crash", "restart", "stall", "leave", "commit", "broker"]
        )
        if happening == "broker":
            self.crash()
            return
        if happening == "start" and len(self.clients) < 6:
            self.start(None)
        elif happening == "static" and len(self.clients) < 6:
            self.start(rng.choice(["i0", "i1", "i2"]))  # perhaps a second one of that name
        elif not self.clients:
            return
        client = rng.choice(self.clients)
        if happening == "crash":
            self.clients.remove(client)
        elif happening == "restart":
            self.clients.remove(client)
            self.start(client.instance)
        elif happening == "stall":
            client.stalled_until_ms = self.now_ms + rng.choice([500, 5000, 30_000])
        elif happening == "leave":
            self.leave(client)
        elif happening == "commit" and client.is_in and self.now_ms >= client.stalled_until_ms:
            self.commit(client)


@pytest.mark.parametrize("number", range(HISTORIES))
def test_population_any_history_keeps_ownership_apart_and_comes_to_rest(number: int) -> None:
    seed = SEED + number
    print(f"HEADWATER_SEED={seed} HEADWATER_HISTORIES=1")
    world = World(seed)
    world.start(None)
    for _ in range(40):
        world.fault()
        world.pass_time(world.rng.choice([STEP_MS, 1000, 4000]))
    for client in world.clients:
        client.stalled_until_ms = 0
    world.pass_time(120_000)
    live = [client for client in world.clients if not client.is_fenced]
    assert len({client.generation for client in live}) <= 1
    assert all(client.is_in for client in live)
    owned = sorted(number for client in live for number in client.owned)
    assert owned == (list(PARTITIONS) if live else [])
    if live:
        assert world.machine.describe("g").state is GroupState.STABLE
        assert len(world.machine.describe("g").members) == len(live)
