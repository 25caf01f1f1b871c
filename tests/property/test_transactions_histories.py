"""Random histories of transactional producers against a model: crashes, lost answers, time-outs, zombies."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal

import pytest

from amount import drawn_seed
from headwater_broker.transactions import (
    PendingOffset,
    Producer,
    ProducerIdNeeded,
    Transaction,
    TransactionCoordinator,
    TransactionError,
    TransactionRefused,
    TransactionState,
    Transition,
    decode_value,
    encode_value,
)

ROUNDS = 150
STEPS = 150
IDS = ("a", "b")
PARTITIONS = [("t", index) for index in range(3)]
TIMEOUT_MS = 40


@dataclass
class Outcome:
    """What one transaction wrote, and how each partition was told that it ended."""

    number: int
    partitions: set[tuple[str, int]] = field(default_factory=set)
    offset: int | None = None
    decided: bool | None = None
    told: set[tuple[str, int]] = field(default_factory=set)


@dataclass
class Holder:
    """A producer that was given an id once.

    Attributes:
        producer: What it was given.
        outcome: The transaction that it knows to be in.
        unanswered: What it asked last without an answer, and asks again before anything else: to add, to commit
            (True) or to abort (False).
    """

    producer: Producer
    outcome: Outcome | None = None
    unanswered: Literal["add"] | bool | None = None


class World:
    """A coordinator with a log that survives it, partitions that take markers, and a group's offset.

    A transition is written to the log, and may be lost before that, or the answer after it.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now_ms = 0
        self.next_id = 1
        self.log: dict[str, bytes] = {}
        self.coordinator = TransactionCoordinator(max_timeout_ms=1000)
        self.holders: dict[str, list[Holder]] = {name: [] for name in IDS}
        self.open: dict[str, Outcome | None] = dict.fromkeys(IDS)
        self.ended: list[tuple[str, Outcome]] = []
        self.last_ended: dict[str, Outcome] = {}
        self.group: dict[tuple[str, int], int] = {}
        self.numbers = 0

    # -- the coordinator's owner -------------------------------------------------------------------

    def store(self, transition: Transition | None) -> bool:
        """Writes a transition; False where the broker died before or after that."""
        if transition is None:
            return True
        fate = self.rng.random()
        if fate < 0.04:
            self.crash()
            return False
        if fate < 0.06:
            self.coordinator.abandon(transition)
            return False
        before = transition.before
        after = transition.after
        assert after is not None
        self.log[transition.transactional_id] = encode_value(after)
        self.note(transition.transactional_id, before, after)
        if fate < 0.1:
            self.crash()
            return False
        self.coordinator.apply(transition)
        return True

    def note(self, name: str, before: Transaction | None, after: Transaction) -> None:
        """The record is what decides."""
        was_open = before is not None and before.state is TransactionState.ONGOING
        if after.state.is_prepared and was_open:
            outcome = self.open[name]
            assert outcome is not None
            outcome.decided = after.state is TransactionState.PREPARE_COMMIT
            assert after.partitions == outcome.partitions
            self.ended.append((name, outcome))
            self.last_ended[name] = outcome
            self.open[name] = None

    def crash(self) -> None:
        """All that is not in the log is gone; what was decided goes on."""
        self.coordinator = TransactionCoordinator(max_timeout_ms=1000)
        stored = [decode_value(name, value) for name, value in self.log.items()]
        for transaction in self.coordinator.load(stored):
            self.finish(transaction)

    def finish(self, transaction: Transaction) -> None:
        """Tells everybody, perhaps twice, and then that all is done."""
        name = transaction.transactional_id
        outcome = self.last_ended[name]
        assert self.open[name] is None, "a marker of one transaction within the next"
        assert outcome.decided is (transaction.state is TransactionState.PREPARE_COMMIT)
        outcome.told |= transaction.partitions
        for pending in transaction.offsets.values():
            for partition, each in pending.items():
                self.group[partition] = each.offset
        if self.rng.random() < 0.9:
            transition = self.coordinator.complete(self.now_ms, name)
            if transition is not None:
                self.store(transition)

    def finish_all(self) -> None:
        for transaction in self.coordinator.transactions():
            if transaction.state.is_prepared:
                self.finish(transaction)

    # -- the producers -----------------------------------------------------------------------------

    def init(self, name: str) -> None:
        try:
            transition = self.coordinator.init_producer(self.now_ms, name, TIMEOUT_MS)
        except ProducerIdNeeded:
            self.next_id += 1
            transition = self.coordinator.init_producer(self.now_ms, name, TIMEOUT_MS, None, self.next_id)
        after = transition.after
        assert after is not None
        if self.store(transition) and not after.state.is_prepared:
            assert all(after.producer != each.producer for each in self.holders[name]), "an epoch given twice"
            self.holders[name].append(Holder(after.producer))

    def add(self, name: str, holder: Holder) -> None:
        partitions = self.rng.sample(PARTITIONS, self.rng.randint(1, 2))
        before = self.coordinator.get(name)
        transition = self.coordinator.add(self.now_ms, name, holder.producer, partitions, ["g"])
        begins = before is None or before.state is not TransactionState.ONGOING
        outcome = self.open[name]
        if begins or outcome is None:
            self.numbers += 1
            outcome = Outcome(self.numbers)
        known = set(outcome.partitions)
        if transition is not None:
            self.open[name], previous = outcome, self.open[name]
            outcome.partitions |= set(partitions)
            if not self.store(transition):
                holder.unanswered = "add"
                stored = decode_value(name, self.log[name])
                if stored.state is TransactionState.ONGOING and stored.partitions == outcome.partitions:
                    return  # stored, though nobody was told
                outcome.partitions = known
                if self.open[name] is outcome:
                    self.open[name] = previous
                return
        holder.outcome, holder.unanswered = outcome, None

    def stage(self, name: str, holder: Holder, offset: int) -> None:
        pending = {("in", IDS.index(name)): PendingOffset(offset)}
        transition = self.coordinator.stage_offsets(self.now_ms, name, holder.producer, "g", pending)
        outcome = self.open[name]
        assert outcome is not None
        if self.store(transition):
            outcome.offset = offset
        else:
            found = decode_value(name, self.log[name]).offsets.get("g", {}).get(("in", IDS.index(name)))
            if found is not None and found.offset == offset:
                outcome.offset = offset

    def end(self, name: str, holder: Holder) -> None:
        commit = self.rng.random() < 0.6
        if isinstance(holder.unanswered, bool):
            commit = holder.unanswered
        holder.unanswered = commit
        transition = self.coordinator.end(self.now_ms, name, holder.producer, commit=commit)
        mine = holder.outcome
        if transition is None:
            assert mine is None or mine.decided is commit, "told of an end that was another"
            holder.outcome = holder.unanswered = None
            return
        assert mine is None or mine is self.open[name], "ended a transaction of somebody else's"
        if self.store(transition):
            holder.outcome = holder.unanswered = None


@pytest.mark.parametrize("block", range(4))
def test_transactions_random_histories_end_as_they_were_decided(block: int) -> None:
    for _ in range(ROUNDS // 4):
        seed = drawn_seed()
        _run(World(random.Random(seed)))


def _run(world: World) -> None:
    rng = world.rng
    offset = 0
    for _ in range(STEPS):
        world.now_ms += rng.randint(0, 6)
        name = rng.choice(IDS)
        holders = world.holders[name]
        # Mostly the newest, sometimes a zombie.
        holder = rng.choice(holders[-3:]) if holders and rng.random() < 0.2 else (holders or [None])[-1]
        action = rng.random()
        try:
            if holder is None or action < 0.08:
                world.init(name)
            elif holder.unanswered == "add" or (action < 0.4 and holder.unanswered is None):
                world.add(name, holder)
            elif action < 0.6 and holder.unanswered is None:
                offset += 1
                world.stage(name, holder, offset)
            elif action < 0.8:
                world.end(name, holder)
            elif action < 0.84:
                world.crash()
            elif action < 0.9:
                coordinator = world.coordinator
                for transition in coordinator.time_out(world.now_ms):
                    if world.coordinator is coordinator:  # else it died, and this decision with it
                        world.store(transition)
        except TransactionRefused as refusal:
            if holder is not None and refusal.error is TransactionError.INVALID_TXN_STATE:
                holder.unanswered = None
            if refusal.error is TransactionError.PRODUCER_FENCED:
                assert holder is not None
                current = world.coordinator.get(name)
                assert current is not None
                assert current.producer != holder.producer
        if rng.random() < 0.5:
            world.finish_all()
    _check(world)


def _check(world: World) -> None:
    for _ in range(50):
        world.finish_all()
    for name in IDS:
        ended = [outcome for each, outcome in world.ended if each == name]
        for outcome in ended:
            assert outcome.decided is not None
            assert outcome.told == outcome.partitions, "a partition was not told, or one too many"
        committed = [outcome.offset for outcome in ended if outcome.decided and outcome.offset is not None]
        key = ("in", IDS.index(name))
        assert world.group.get(key) == (committed[-1] if committed else None)
        current = world.coordinator.get(name)
        if current is not None and current.state is TransactionState.ONGOING:
            outcome = world.open[name]
            assert outcome is not None
            assert current.partitions == outcome.partitions
