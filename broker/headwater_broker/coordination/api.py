"""The interface to shared state: what a broker, a consumer and a running job need of ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from headwater_broker.coordination.model import (
    BrokerInfo,
    Change,
    Committed,
    ConfigKind,
    Controller,
    PartitionState,
    TopicPartition,
    TopicState,
)
from headwater_broker.security.acl import AclEntry, ResourcePattern

Assignment = Mapping[int, Sequence[int]]
"""Replicas by partition number, preferred leader first."""


class Coordinator(Protocol):
    """Shared state of a cluster. Synchronous and thread-safe; every call may block for some seconds.

    Every method raises `CoordinatorUnavailable` (retriable) while ZooKeeper does not answer, and never
    queues the call for later. `MemoryCoordinator` and `ZooKeeperCoordinator` pass the same conformance suite.
    """

    # -- life --------------------------------------------------------------------------------------

    def start(self, timeout_s: float = 15.0) -> None:
        """Connects and makes the directories that Kafka's layout has.

        Raises:
            CoordinatorUnavailable: nobody answered within `timeout_s`; the message names the address.
        """

    def stop(self) -> None:
        """Ends the session, and with it every registration. Idempotent."""

    def watch(self, callback: Callable[[Change], None]) -> None:
        """Reports changes made by anybody, this process included, from now on.

        The callback runs in a thread of the coordinator's (or in the one that made the change) and must
        return quickly; it may be called before this method returns. Reports may be merged or repeated. After
        a `CONNECTED` or `SESSION_RESTORED` everything may have changed.
        """

    def last_answer_monotonic(self) -> float:
        """When, by `time.monotonic`, the last request was sent that has been answered since.

        The session was alive on the server at that time or later. While `time.monotonic()` minus this is
        less than two thirds of `session_timeout_ms`, nobody else can have been told that the session is dead.
        """

    @property
    def session_timeout_ms(self) -> int:
        """The session timeout that the server granted."""

    @property
    def connected(self) -> bool:
        """Whether a call made now has a connection to go out on."""

    def cluster_id(self) -> str:
        """The cluster's id, made at first use: 22 characters of URL-safe base64."""

    # -- brokers -----------------------------------------------------------------------------------

    def register_broker(self, broker: BrokerInfo) -> int:
        """Registers a broker until `stop`, and again whenever the session had to be replaced.

        A stale registration of the same broker (same id, same identity) is replaced at once.

        Returns:
            The broker epoch.

        Raises:
            BrokerIdInUse: another live broker has the id; the message says which.
        """

    def deregister_broker(self) -> None:
        """Takes the registration back, the controllership too if held; the session goes on."""

    def brokers(self) -> dict[int, BrokerInfo]:
        """Live brokers by id."""

    def allocate_broker_id(self, reserved_max: int = 1000) -> int:
        """A broker id never given before, above `reserved_max` (Kafka's `reserved.broker.max.id`)."""

    # -- controller --------------------------------------------------------------------------------

    def elect_controller(self, broker_id: int) -> Controller:
        """Makes `broker_id` the controller if there is none, under an epoch one higher than the last.

        Returns:
            The controller, this broker or another. Call it again when a watch reports `CONTROLLER`.
        """

    def controller(self) -> Controller | None:
        """The controller now, None while nobody is."""

    # -- topics ------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        assignment: Assignment,
        configs: Mapping[str, str],
        topic_id: UUID,
        *,
        controller_epoch: int = 0,
    ) -> TopicState:
        """Creates a topic; each partition is led by the first of its replicas, with all of them in sync.

        Raises:
            AlreadyExists: there is a topic of that name, or it still waits for deletion.
        """

    def add_partitions(self, name: str, assignment: Assignment, *, controller_epoch: int = 0) -> TopicState:
        """Adds partitions; `assignment` holds the new ones only.

        Raises:
            DoesNotExist: no such topic.
            Conflict: the partitions changed meanwhile, or one of them is there already.
        """

    def delete_topic(self, name: str) -> None:
        """Marks a topic for deletion (`/admin/delete_topics`); `complete_topic_deletion` does it.

        Raises:
            DoesNotExist: no such topic.
        """

    def pending_deletions(self) -> set[str]:
        """Topics that are marked for deletion."""

    def complete_topic_deletion(self, name: str) -> None:
        """Removes a topic, its configuration, every group's offsets of it, and last the mark. Idempotent.

        To be called once the replicas' logs are gone (renamed away).
        """

    def topics(self) -> dict[str, TopicState]:
        """All topics, those marked for deletion too."""

    def topic(self, name: str) -> TopicState | None:
        """One topic."""

    def set_leader_states(
        self, states: Mapping[TopicPartition, PartitionState]
    ) -> dict[TopicPartition, PartitionState]:
        """Writes leader, epoch and ISR of partitions, each only if its stored version is still
        `state.version`.

        Returns:
            The states written, with their new versions. A partition that is not in it was changed by somebody
            else or deleted meanwhile: read it again.
        """

    # -- configuration -----------------------------------------------------------------------------

    def get_config(self, kind: ConfigKind, name: str) -> dict[str, str]:
        """Dynamic configuration of one entity; empty if it has none. `<default>` is the default entity's
        name.
        """

    def configs(self, kind: ConfigKind) -> dict[str, dict[str, str]]:
        """Dynamic configuration of all entities of a kind that have some."""

    def set_config(self, kind: ConfigKind, name: str, values: Mapping[str, str]) -> None:
        """Replaces the dynamic configuration of one entity and tells every watcher."""

    # -- security ----------------------------------------------------------------------------------

    def acls(self) -> dict[ResourcePattern, frozenset[AclEntry]]:
        """All access rules, by what they are about."""

    def update_acls(
        self, pattern: ResourcePattern, change: Callable[[frozenset[AclEntry]], frozenset[AclEntry]]
    ) -> frozenset[AclEntry]:
        """Changes the rules about one thing, and tells every watcher if that made a difference.

        Args:
            pattern: what the rules are about.
            change: gets the rules that there are, returns those that shall be; called again where somebody
                else was faster.

        Returns:
            The rules now.

        Raises:
            Conflict: others changed them again and again.
        """

    def tokens(self) -> dict[str, dict[str, Any]]:
        """All delegation tokens by id, each as Kafka's JSON has it; their secrets are not among it."""

    def put_token(self, token_id: str, value: Mapping[str, Any]) -> None:
        """Stores a token, new or changed."""

    def remove_token(self, token_id: str) -> None:
        """Forgets a token. Idempotent."""

    # -- producers ---------------------------------------------------------------------------------

    def allocate_producer_ids(self) -> tuple[int, int]:
        """A block of producer ids that nobody was given before.

        Returns:
            The first id and how many there are.
        """

    # -- groups' offsets ---------------------------------------------------------------------------

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Stores offsets of a group, in transactions each below 512 KiB. Any UTF-8 is a group name, ""
        too.
        """

    def fetch_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Committed]:
        """Offsets of a group: of the partitions named, or all. What was never committed is left out."""

    def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Forgets offsets of a group. What is not there is passed over."""

    def delete_group(self, group: str) -> None:
        """Forgets a group and all its offsets. Idempotent.

        Raises:
            AlreadyOwned: consumers or a job hold partitions of it.
        """

    def groups(self, names: Collection[str] | None = None) -> dict[str, bool]:
        """Groups that have offsets or registered members; True where members are registered.

        Args:
            names: which to look at; by default all.
        """

    def keep_group(self, group: str, data: bytes) -> None:
        """Stores what its coordinator is to know of a group after a restart, 512 KiB at most; `delete_group`
        forgets it.
        """

    def kept_groups(self) -> dict[str, bytes]:
        """What `keep_group` has stored, by group."""

    # -- members of decentralised groups, running jobs ---------------------------------------------

    def register_member(
        self,
        group: str,
        member: str,
        subscription: Mapping[str, int],
        about: Mapping[str, str] | None = None,
    ) -> None:
        """Registers a member of a group (`/consumers/<group>/ids`) until its session ends.

        A stale registration of the same name is replaced at once if its process is provably gone, and else
        waited for, for at most a session timeout.

        Args:
            group: the group's, or job's, name.
            member: the member's name; one live registration a name.
            subscription: streams by topic.
            about: what else the others are told, under `headwater` in the registration.

        Raises:
            AlreadyOwned: a live member has that name.
        """

    def deregister_member(self, group: str, member: str) -> None:
        """Takes a registration back, and what the member owns. Idempotent."""

    def members(self, group: str) -> dict[str, dict[str, Any]]:
        """Live members of a group by name, each with its registration (`subscription`, `timestamp`, ...)."""

    def claim_partitions(self, group: str, member: str, partitions: Collection[TopicPartition]) -> None:
        """Makes a registered member the owner of partitions (`/consumers/<group>/owners`), of all or none.

        Raises:
            AlreadyOwned: somebody else holds one; the message says who holds which.
            LeaseLost: the member is not registered in this session.
        """

    def release_partitions(self, group: str, member: str, partitions: Collection[TopicPartition]) -> None:
        """Gives partitions back. What the member does not own is passed over."""

    def owners(self, group: str) -> dict[TopicPartition, str]:
        """Members by the partitions that they own."""

    def plan(self, group: str) -> tuple[bytes, int]:
        """What the members of a group have agreed on last, and its number; empty and 0 at first."""

    def replace_plan(self, group: str, data: bytes, number: int) -> bool:
        """Replaces plan `number` by the next one.

        Returns:
            False if it was replaced already: look at what is there.
        """

    def watch_members(self, group: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back whenever the set of live members of a group, or its plan, may have changed.

        Returns:
            A function that ends the watch.
        """
