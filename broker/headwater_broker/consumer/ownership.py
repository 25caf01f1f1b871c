"""One member's side of a decentralised rebalance: register, watch, compute, release, claim.

There is no leader and no round of messages. Whoever sees the members or the topics change computes the same
assignment, gives up what is no longer its own, and claims what is. What its former owner has not released
yet is claimed again a little later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from headwater_broker.consumer.assignment import (
    Assignment,
    StrategyName,
    TopicPartition,
    assign,
    common_strategy,
    is_eager,
    needs_previous,
)
from headwater_broker.consumer.plan import decode_plan, encode_plan
from headwater_broker.coordination import AlreadyOwned, Change, ChangeKind, Coordinator, LeaseLost
from headwater_broker.shown import MESSAGE_CHARS, shown

_log = logging.getLogger(__name__)

_SAFE_FRACTION = 2 / 3
_PLAN_ATTEMPTS = 10
_REBALANCING = {ChangeKind.BROKERS, ChangeKind.TOPICS, ChangeKind.CONNECTED, ChangeKind.SESSION_RESTORED}

OnRevoked = Callable[[frozenset[TopicPartition], bool], None]
OnAssigned = Callable[[frozenset[TopicPartition]], None]


class Ownership:
    """The partitions that a member owns now. Watches only leave notes here; `settle` acts on them."""

    def __init__(
        self,
        coordinator: Coordinator,
        group: str,
        member: str,
        topics: Collection[str],
        strategy: StrategyName,
        clock: Callable[[], float],
    ) -> None:
        self.owned: frozenset[TopicPartition] = frozenset()
        self._coordinator = coordinator
        self._group = group
        self._member = member
        self._subscription = dict.fromkeys(topics, 1)
        self._strategy = strategy
        self._clock = clock
        self._outdated = threading.Event()
        self._session_lost = threading.Event()
        self._to_release: frozenset[TopicPartition] = frozenset()
        self._goal: frozenset[TopicPartition] | None = None
        self._unwatch: Callable[[], None] | None = None

    def join(self) -> None:
        """Registers the member and begins to watch."""
        self._register()
        self._coordinator.watch(self._on_change)
        self._unwatch = self._coordinator.watch_members(self._group, self._outdated.set)
        self._outdated.set()

    def leave(self) -> None:
        """Gives everything back."""
        if self._unwatch is not None:
            self._unwatch()
        self.owned = frozenset()
        self._coordinator.deregister_member(self._group, self._member)

    def needs_settling(self) -> bool:
        """Whether something has changed since `settle` last came to an end."""
        return self._outdated.is_set()

    def is_safe(self) -> bool:
        """Whether nobody else can own these partitions by now, as far as the clock tells."""
        silence_s = self._clock() - self._coordinator.last_answer_monotonic()
        return (
            not self._session_lost.is_set()
            and silence_s < self._coordinator.session_timeout_ms / 1000 * _SAFE_FRACTION
        )

    def settle(self, revoked: OnRevoked, assigned: OnAssigned) -> None:
        """Brings what is owned in line with the assignment. If it fails half-way, call it again.

        Args:
            revoked: called with partitions before they are released (or, with True, after they were lost).
            assigned: called with partitions after they were claimed.
        """
        self._outdated.clear()
        try:
            self._settle(revoked, assigned)
        except BaseException:
            self._outdated.set()
            raise

    def _settle(self, revoked: OnRevoked, assigned: OnAssigned) -> None:
        if self._session_lost.is_set():
            self._session_lost.clear()
            lost, self.owned, self._to_release = self.owned, frozenset(), frozenset()
            self._goal = None
            if lost:
                revoked(lost, True)
            self._register()
        members = self._coordinator.members(self._group)
        if self._member not in members:
            self._session_lost.set()
            self._outdated.set()
            return
        strategy = common_strategy(map(_wish, members.values()))
        share = self._agreed(strategy, members).get(self._member, frozenset())
        losing = self.owned - share
        if is_eager(strategy) and share != self._goal:
            losing = self.owned
        if losing:
            revoked(losing, False)
            self.owned -= losing
            self._to_release |= losing
        self._goal = share
        if self._to_release:
            self._coordinator.release_partitions(self._group, self._member, self._to_release)
            self._to_release = frozenset()
        claimed = frozenset(tp for tp in sorted(share - self.owned) if self._claim(tp))
        if claimed:
            assigned(claimed)
            self.owned |= claimed
        if self.owned != share:
            self._outdated.set()

    def _register(self) -> None:
        self._coordinator.register_member(
            self._group, self._member, self._subscription, {"strategy": self._strategy}
        )

    def _agreed(self, strategy: StrategyName, members: Mapping[str, Mapping[str, Any]]) -> Assignment:
        """The assignment that every member comes to."""
        if not needs_previous(strategy):
            return assign(strategy, _subscriptions(members), self._partitions(members), {})
        for _ in range(_PLAN_ATTEMPTS):
            # The plan is read before the facts: a plan that is newer than its reader's facts is not replaced.
            data, number = self._coordinator.plan(self._group)
            members = self._coordinator.members(self._group)
            previous = decode_plan(self._group, data)
            assignment = assign(strategy, _subscriptions(members), self._partitions(members), previous)
            if data and assignment == previous:
                return assignment
            if self._coordinator.replace_plan(self._group, encode_plan(assignment), number):
                return assignment
        self._outdated.set()  # others are quicker: go by what they have agreed on
        return decode_plan(self._group, self._coordinator.plan(self._group)[0])

    def _partitions(self, members: Mapping[str, Mapping[str, Any]]) -> dict[str, Collection[int]]:
        read = {topic for topics in _subscriptions(members).values() for topic in topics}
        doomed = self._coordinator.pending_deletions()
        states = {name: self._coordinator.topic(name) for name in sorted(read - doomed)}
        return {name: sorted(topic.partitions) for name, topic in states.items() if topic is not None}

    def _claim(self, tp: TopicPartition) -> bool:
        try:
            self._coordinator.claim_partitions(self._group, self._member, [tp])
        except AlreadyOwned as held:
            _log.debug("%s", shown(held, MESSAGE_CHARS))  # its owner will see the same members and release it
            return False
        except LeaseLost:
            self._session_lost.set()
            return False
        return True

    def _on_change(self, change: Change) -> None:
        if change.kind is ChangeKind.SESSION_LOST:
            self._session_lost.set()
        if change.kind is ChangeKind.SESSION_LOST or change.kind in _REBALANCING:
            self._outdated.set()


def _subscriptions(members: Mapping[str, Mapping[str, Any]]) -> dict[str, Collection[str]]:
    return {member: registration.get("subscription") or () for member, registration in members.items()}


def _wish(registration: Mapping[str, Any]) -> str:
    """The strategy that a member wishes; Kafka 0.8's consumers, which say nothing, assign ranges."""
    return str((registration.get("headwater") or {}).get("strategy", "range"))
